"""The workload as arrays: its rows, its waves, and what is refused."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmrc.errors import InputError
from openmrc.traffic import releases
from openmrc.traffic.releases import waves
from openmrc.traffic.traffic import Calcs, Traffic, make_traffic, unroll


def messages(n: int, **more: Any) -> Traffic:
    """n messages of 100 B, message i from NIC 0 to NIC 1 on a QP of its own."""
    return make_traffic("test", 2, [0] * n, [1] * n, np.arange(n), 100, **more)


def rows(first: np.ndarray, nxt: np.ndarray) -> list[list[int]]:
    return [nxt[a:b].tolist() for a, b in pairwise(first.tolist())]


def order(traffic: Traffic) -> list[list[int]]:
    tables = (traffic.recv_first, traffic.recv_next), (traffic.sent_first, traffic.sent_next)
    return [wave.tolist() for wave in waves(tables, traffic.msg_deps)]


def test_releases_become_compressed_rows_in_their_order() -> None:
    traffic = messages(4, recv=([2, 0, 0], [3, 2, 1]), sent=([1], [3]))
    assert rows(traffic.recv_first, traffic.recv_next) == [[2, 1], [], [3], []]
    assert rows(traffic.sent_first, traffic.sent_next) == [[], [3], [], []]
    assert traffic.msg_deps.tolist() == [0, 1, 1, 2]
    assert order(traffic) == [[0], [1, 2], [3]]


def test_the_arrays_have_the_agreed_types() -> None:
    traffic = messages(3, imm=True)
    assert (traffic.n_qps, traffic.n_msgs) == (3, 3)
    types = {name: getattr(traffic, name).dtype.str[1:] for name in (
        "qp_src", "qp_dst", "msg_qp", "msg_bytes", "msg_start_ps", "msg_deps", "msg_imm",
        "msg_compute_ps", "msg_count", "msg_block", "msg_blocks", "msg_longer", "msg_job",
        "recv_first", "recv_next", "sent_first", "sent_next",
    )}  # fmt: skip
    longs = {"msg_bytes", "msg_start_ps", "msg_compute_ps"}
    assert {name for name, dtype in types.items() if dtype == "i8"} == longs
    assert {name for name, dtype in types.items() if dtype == "b1"} == {"msg_imm"}
    assert set(types.values()) == {"i4", "i8", "b1"}
    assert traffic.msg_bytes.tolist() == [100] * 3
    assert traffic.msg_bytes.flags.writeable


def test_a_message_may_need_only_some_of_its_releases() -> None:
    # As a multishot does: of three firings the first starts 3, the second 4.
    traffic = messages(5, sent=([0, 1, 2] * 2, [3] * 3 + [4] * 3), deps=[0, 0, 0, 1, 2])
    assert order(traffic) == [[0, 1, 2], [3, 4]]


def test_a_message_that_wakes_itself_again_is_released_once() -> None:
    traffic = messages(3, sent=([0, 1, 2], [1, 2, 1]), deps=[0, 1, 1])
    assert order(traffic) == [[0], [1], [2]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"qp_dst": [1, 0]}, "workload QP to its own NIC 1: 0; source and destination must differ"),
        ({"qp_dst": [1, 7]}, "workload QP destination 1: 7; name a NIC below 4"),
        ({"qp_src": [-1, 0]}, "workload QP source 0: -1; name a NIC below 4"),
        ({"msg_qp": [0, 2]}, "workload QP of message 1: 2; no such QP"),
        ({"msg_bytes": [5, -5]}, "workload size of message 1: -5; at least 1 byte is needed"),
        ({"msg_bytes": [5, 0]}, "workload size of message 1: 0; at least 1 byte is needed"),
        ({"msg_start_ps": -3}, "workload start of message 0: -3; 0 ps or later is accepted"),
        (
            {"compute_ps": [0, -2]},
            "workload compute before message 1: -2; 0 ps or more is accepted",
        ),
        ({"count": [0, 1]}, "workload messages in series 0: 0; 1 or more is accepted"),
        ({"blocks": (0, 0, 0)}, "workload blocks of message 0: 0; 1 or more is accepted"),
        ({"blocks": (3, 3, 0)}, "workload block of message 0: 3; name one that exists"),
        ({"blocks": (2, 3, 4)}, "workload longer blocks of message 0: 4; 0 to all"),
        ({"deps": [-1, 0]}, "workload releases needed by message 0: -1; 0 or more is accepted"),
        ({"recv": ([0], [2])}, "traffic release 0: 2; name a message below 2"),
        (
            {"msg_qp": [], "msg_bytes": []},
            "workload: no messages, no computations; at least one is needed",
        ),
    ],
)
def test_wrong_numbers_are_refused_in_one_line(change: dict[str, Any], message: str) -> None:
    parts: dict[str, Any] = {
        "qp_src": [0, 0],
        "qp_dst": [1, 2],
        "msg_qp": [0, 1],
        "msg_bytes": 100,
    }
    with pytest.raises(InputError) as refused:
        make_traffic("test", 4, **(parts | change))
    assert str(refused.value) == message


# --- series


def series(n: int, **more: Any) -> Traffic:
    """n series of 5 messages of 100 B with immediates, each on a QP of its own."""
    return messages(n, **({"count": 5, "imm": True, "deps": 0} | more))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"deps": [2, 0]},
            "workload releases needed by series 0: 2; 1 at most is accepted",
        ),
        (
            {"recv": ([0], [1]), "imm": False},
            "workload release by series 0: 0; only with immediates do the messages of a series"
            " arrive in order",
        ),
        (
            {"recv": ([0, 1], [1, 0]), "count": [5, 1], "deps": [-4, 5]},  # its gate waits for it
            "workload message 0 (nic 0 to nic 1): never posted, the -4 releases it waits for"
            " cannot all happen; break the cycle or lower the count",
        ),
        (
            {"recv": ([0, 1], [1, 1]), "deps": [-4, 0]},
            "workload releases given to series 1: 2; by one other at most",
        ),
        ({}, "workload releases needed by series 0: 4; fewer are given"),
        (
            {"recv": ([0], [1]), "count": [3, 5], "deps": [-2, 0]},
            "workload releases needed by series 1: 4; fewer are given",
        ),
        (
            {"recv": ([0, 1], [1, 0]), "deps": [1, 1]},
            "workload message 0 (nic 0 to nic 1): never posted, the 1 releases it waits for"
            " cannot all happen; break the cycle or lower the count",
        ),
    ],
)
def test_a_series_that_could_stop_half_way_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refused:
        series(2, **change)
    assert str(refused.value) == message


def test_a_circle_with_a_message_ahead_goes_round() -> None:
    # Message k of 1 waits for message k of 0, that for message k - 1 of 1.
    circle = series(2, count=3, recv=([0, 1], [1, 0]), deps=[0, 1])
    listed = unroll(circle)
    assert order(listed) == [[0], [3], [1], [4], [2], [5]]
    assert listed.msg_deps.tolist() == [0, 1, 1, 1, 1, 1]


def test_a_window_of_messages_is_under_way_at_once() -> None:
    # Each acknowledgement releases the next; three have been posted before the first.
    listed = unroll(series(1, count=6, sent=([0], [0]), deps=-2))
    assert listed.msg_deps.tolist() == [0, 0, 0, 1, 1, 1]
    assert rows(listed.sent_first, listed.sent_next) == [[3], [4], [5], [], [], []]


@given(st.integers(1, 40), st.integers(1, 12), st.data())
def test_the_bytes_of_a_series_are_those_of_its_messages(
    count: int, blocks: int, data: st.DataObject
) -> None:
    block, longer = data.draw(st.integers(0, blocks - 1)), data.draw(st.integers(0, blocks))
    size, pmtu = data.draw(st.integers(1, 20)), data.draw(st.integers(1, 7))
    one = make_traffic(
        "one", 2, [0], [1], [0], size, deps=1 - count, count=count, blocks=(block, blocks, longer)
    )
    sizes = [size + ((block - k) % blocks < longer) for k in range(count)]
    assert unroll(one).msg_bytes.tolist() == sizes
    assert one.msg_total_bytes.tolist() == [sum(sizes)]
    assert one.packets(pmtu).tolist() == [sum(-(-n // pmtu) for n in sizes)]
    assert one.n_sends == count


def test_what_is_listed_already_stays_as_it_is() -> None:
    first = messages(5, sent=([0, 1, 2] * 2, [3] * 3 + [4] * 3), deps=[0, 0, 0, 1, 2])
    again = unroll(first)
    for name, column in vars(first).items():
        assert np.array_equal(getattr(again, name), column), name


def test_a_circle_is_never_posted() -> None:
    with pytest.raises(InputError) as refused:
        messages(3, recv=([1, 2], [2, 1]))
    assert str(refused.value) == (
        "workload message 1 (nic 0 to nic 1): never posted, the 1 releases it waits for cannot"
        " all happen; break the cycle or lower the count"
    )
    with pytest.raises(InputError, match="the 2 releases it waits for cannot all happen"):
        messages(2, sent=([0], [1]), deps=[0, 2])


@given(st.integers(1, 30).flatmap(
    lambda n: st.tuples(
        st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=60)
    )
))  # fmt: skip
def test_waves_respect_every_release_of_any_acyclic_workload(
    case: tuple[int, list[tuple[int, int]]],
) -> None:
    n, pairs = case
    edges = [(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]]
    half = len(edges) // 2
    recv, sent = (
        tuple(zip(*part, strict=True)) or ((), ()) for part in (edges[:half], edges[half:])
    )
    traffic = messages(n, recv=recv, sent=sent)
    wave_of = {m: number for number, wave in enumerate(order(traffic)) for m in wave}
    assert sorted(wave_of) == list(range(n))
    assert all(wave_of[giving] < wave_of[released] for giving, released in edges)


@given(
    st.lists(st.tuples(st.integers(0, 29), st.integers(0, 29)), max_size=120),
    st.lists(st.integers(-1, 4), min_size=30, max_size=30),
)
def test_small_waves_are_the_same_one_by_one(
    pairs: list[tuple[int, int]], needed: list[int]
) -> None:
    giving, released = (np.array([pair[end] for pair in pairs], np.int64) for end in (0, 1))
    first = np.concatenate([[0], np.cumsum(np.bincount(giving, minlength=30))]).astype(np.int32)
    table = [(first, released[np.argsort(giving, kind="stable")].astype(np.int32))]
    found = []
    for few in (0, 100):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(releases, "FEW", few)
            found.append([wave.tolist() for wave in waves(table, np.array(needed, np.int32))])
    assert found[0] == found[1]


def test_a_gate_and_all_of_a_series_are_waited_for_where_they_are_listed() -> None:
    """Computation 0 opens a series of 3, which another passes on; computation 1 waits for that."""
    traffic = make_traffic(
        "test", 3, [0, 1], [1, 2], [0, 1], 100,
        recv=([2, 0, 1], [0, 1, 3]), deps=[-2, 0], imm=True, count=3, calcs=Calcs([5, 7]),
    )  # fmt: skip
    assert traffic.mixed
    assert traffic.msg_gates.tolist() == [1, 0]
    assert traffic.calc_deps.tolist() == [0, 3]
    listed = unroll(traffic)
    assert listed.n_msgs == 6
    assert not listed.mixed
    # messages 0 to 2 of the one, 3 to 5 of the other, computations 6 and 7
    gate, end = [0, 1, 2], [[7]] * 3
    assert rows(listed.recv_first, listed.recv_next)[6:] == [gate, []]
    assert listed.msg_deps.tolist() == [1, 1, 1, 0, 1, 1]
    found = rows(listed.recv_first, listed.recv_next)
    assert found[:3] == [[4], [5], []]  # with deps = 0 message k needs k of the other
    assert found[3:6] == end
    assert listed.calc_deps.tolist() == [0, 3]


def test_what_an_arrival_gives_to_a_series_that_is_a_ring_is_found_as_one_wave() -> None:
    ring, n = np.arange(4), 4
    giving = np.concatenate([ring, n + ring, ring])
    released = np.concatenate([(ring + 1) % n, ring, np.full(n, 2 * n)])
    counts = np.array([6] * n + [1] * (n + 1))
    deps = np.array([0] * n + [0] * n + [4 * 6])
    found = [sorted(w.tolist()) for w in releases.mixed_waves(giving, released, deps, counts)]
    assert found == [[4, 5, 6, 7], [0, 1, 2, 3], [8]]
