"""Several jobs on one fabric: where each is, when it starts, and that nothing else changes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from openmrc.errors import InputError
from openmrc.traffic.traffic import Traffic, unroll
from openmrc.units import US
from openmrc.workload import (
    Job,
    all_to_all,
    halving_doubling_all_reduce,
    incast,
    read_nics,
    ring_all_reduce,
    several_jobs,
    stream,
)


@pytest.mark.parametrize(
    ("text", "nics"),
    [
        ("all", list(range(12))),
        ("even", [0, 2, 4, 6, 8, 10]),
        ("odd", [1, 3, 5, 7, 9, 11]),
        ("every 4", [0, 4, 8]),
        ("every 4 from 2", [2, 6, 10]),
        ("0-3", [0, 1, 2, 3]),
        ("11, 2-4,7", [11, 2, 3, 4, 7]),
    ],
)
def test_a_placement_is_a_list_of_nics_in_the_order_of_ranks(text: str, nics: list[int]) -> None:
    assert read_nics(text, 12).tolist() == nics


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("some", '\'some\' is refused; accepted: "all", "even", "odd", "every 4 from 2",'),
        ("", "'' is refused; accepted: "),
        ("-3", "'-3' is refused; accepted: "),
        ("3-12", "'3-12': NICs 0 to 11 exist, and a range goes upwards"),
        ("5-4", "'5-4': NICs 0 to 11 exist, and a range goes upwards"),
        ("7", "'7': two or more different NICs below 12 are needed"),
        ("1-3, 2", "'1-3, 2': two or more different NICs below 12 are needed"),
        ("every 11 from 1", "'every 11 from 1': two or more different NICs below 12 are needed"),
        ("every 0", "'every 0': 1 or more apart is accepted"),
    ],
)
def test_a_placement_that_cannot_be_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        read_nics(text, 12)
    assert str(refused.value).startswith(message)


def test_jobs_lie_one_behind_the_other_and_release_only_their_own() -> None:
    ring, exchange = ring_all_reduce(4, 4000), all_to_all(3, 300, at_once=1)
    traffic = several_jobs(
        [
            Job("ring", ring, read_nics("even", 8)),
            Job("exchange", exchange, np.array([7, 3, 1]), 5 * US),
        ],
        8,
    )
    assert (traffic.kind, traffic.n_nics, traffic.jobs) == ("jobs", 8, ("ring", "exchange"))
    assert traffic.msg_job.tolist() == [0] * 4 + [1] * 6
    assert traffic.msg_src.tolist() == [0, 2, 4, 6, 7, 3, 1, 7, 3, 1]
    assert traffic.msg_dst.tolist() == [2, 4, 6, 0, 3, 1, 7, 1, 7, 3]
    assert traffic.msg_start_ps.tolist() == [0] * 4 + [5 * US] * 6
    assert traffic.msg_count.tolist() == [6] * 4 + [1] * 6
    assert np.diff(traffic.recv_first).tolist() == [1] * 4 + [0] * 6
    assert traffic.recv_next.tolist() == [1, 2, 3, 0]
    assert np.diff(traffic.sent_first).tolist() == [0] * 4 + [1] * 3 + [0] * 3
    assert traffic.sent_next.tolist() == [7, 8, 9]
    for column in ("msg_bytes", "msg_deps", "msg_imm", "msg_block", "msg_blocks", "msg_longer"):
        both = [*getattr(ring, column), *getattr(exchange, column)]
        assert getattr(traffic, column).tolist() == both


def test_listed_or_not_a_message_keeps_its_job() -> None:
    jobs = [
        Job("a", ring_all_reduce(4, 4000), np.arange(4)),
        Job("b", halving_doubling_all_reduce(4, 4000), np.arange(4)),
        Job("c", incast(4, 2, 100), np.arange(4)),
    ]
    listed = unroll(several_jobs(jobs, 4))
    assert np.bincount(listed.msg_job).tolist() == [24, 16, 2]
    assert listed.jobs == ("a", "b", "c")
    assert listed.as_one("three").jobs == ()
    assert not listed.as_one("three").msg_job.any()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: several_jobs([], 4), "workload.job: there is none; at least one is needed"),
        (
            lambda: several_jobs([Job("a", stream(0, 1, 5), np.array([2, 9]))], 4),
            "workload QP destination 0: 9; name a NIC below 4",
        ),
    ],
)
def test_what_cannot_run_is_refused(make: Callable[[], Traffic], message: str) -> None:
    with pytest.raises(InputError) as refused:
        make()
    assert str(refused.value) == message
