"""The simple workloads, number by number."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmrc.errors import InputError
from openmrc.traffic.traffic import Traffic
from openmrc.workload import incast, permutation, stream


@given(st.integers(2, 200), st.integers(0, 2**32))
def test_a_permutation_reaches_every_nic_once_and_never_itself(n: int, seed: int) -> None:
    traffic = permutation(n, 1000, seed)
    assert traffic.qp_src.tolist() == list(range(n))
    assert sorted(traffic.qp_dst.tolist()) == list(range(n))
    assert (traffic.qp_src != traffic.qp_dst).all()


def test_a_seed_is_one_permutation() -> None:
    first, again, other = (permutation(64, 10, seed).qp_dst.tolist() for seed in (1, 1, 2))
    assert first == again != other


def test_channels_share_the_bytes_of_a_transfer() -> None:
    traffic = permutation(4, 10, seed=1, channels=3)
    assert traffic.qp_src.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert traffic.msg_bytes.tolist() == [4, 3, 3] * 4


def test_an_incast_comes_from_the_far_end() -> None:
    traffic = incast(16, 3, 500)
    assert traffic.msg_src.tolist() == [15, 14, 13]
    assert traffic.msg_dst.tolist() == [0, 0, 0]
    assert traffic.msg_bytes.tolist() == [500] * 3


def test_the_victim_goes_to_the_idle_neighbour_of_the_target() -> None:
    traffic = incast(16, 3, 500, target=15, victim=True)
    assert traffic.msg_src.tolist() == [13, 12, 11, 10]
    assert traffic.msg_dst.tolist() == [15, 15, 15, 14]


def test_one_stream_is_one_message() -> None:
    traffic = stream(3, 5, 10**9, 8)
    assert (traffic.kind, traffic.n_nics, traffic.n_msgs) == ("stream", 8, 1)
    assert (traffic.msg_src.tolist(), traffic.msg_dst.tolist()) == ([3], [5])
    assert stream(3, 5, 1).n_nics == 6


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: permutation(0, 10, 1), "fabric.nics: 0 is too few; a workload needs at least 2"),
        (lambda: permutation(4, -5, 1), "workload.size: -5 B; at least 1 byte is needed"),
        (
            lambda: permutation(4, 5, 1, 6),
            "workload.channels: 6; 1 to 5 (one per byte) is accepted",
        ),
        (
            lambda: permutation(4, 5, 1, 0),
            "workload.channels: 0; 1 to 5 (one per byte) is accepted",
        ),
        (lambda: incast(8, 8, 10), "workload.n: 8 senders; 1 to 7 fit into 8 NICs"),
        (lambda: incast(8, 0, 10), "workload.n: 0 senders; 1 to 7 fit into 8 NICs"),
        (lambda: incast(8, 6, 10, 0, True), "workload.n: 6 senders; 1 to 5 fit into 8 NICs"),
        (lambda: incast(8, 2, 10, 8), "workload.target: nic 8 does not exist; 0 to 7 do"),
        (lambda: stream(1, 1, 10), "workload.dst: nic 1 is the source too; name another"),
        (lambda: stream(1, 9, 10, 8), "workload.dst: nic 9 does not exist; 0 to 7 do"),
        (lambda: stream(-1, 3, 10), "workload.src: nic -1 does not exist; 0 to 3 do"),
        (lambda: stream(1, 2, 0), "workload.size: 0 B; at least 1 byte is needed"),
    ],
)
def test_what_cannot_be_made_is_refused_by_key(make: Callable[[], Traffic], message: str) -> None:
    with pytest.raises(InputError) as refused:
        make()
    assert str(refused.value) == message
