"""Findings that belong together are told as one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from openmrc.fabric import multiplane
from openmrc.ops.together import Finding, joined

FABRIC = multiplane(64, 4, 100 * 10**9, 8, 8, 0, 0)


def finding(where: str, since_us: float = 100.0, *one_of: str) -> Finding:
    kind = "link" if " > " in where or " < " in where else "switch"
    return Finding(where, kind, one_of, (), True, 1.0, 10, since_us, 500.0, 3, 2, 1, 400.0, 50.0)


def told(*findings: Finding) -> list[tuple[str, str, int]]:
    return [(one.where, one.kind, one.lost) for one in joined(FABRIC, findings)]


def test_both_directions_that_fail_at_once_are_the_link() -> None:
    ways = [finding(f"plane 1 t0 3 {arrow} t1 5") for arrow in "><"]
    assert told(*ways) == [("plane 1 t0 3 - t1 5", "link", 20)]
    (one,) = joined(FABRIC, ways)
    assert (one.paths, one.queue_pairs, one.back, one.nats) == (6, 2, 2, 100.0)


def test_what_fails_at_another_time_or_may_be_another_stays_alone() -> None:
    up, down = "plane 1 t0 3 > t1 5", "plane 1 t0 3 < t1 5"
    assert len(told(finding(up), finding(down, 200.0))) == 2
    assert len(told(finding(up), finding(down, 100.0, "plane 1 t1 5"))) == 2
    assert len(told(finding(up), finding("plane 2 t0 3 < t1 5"))) == 2


def test_both_directions_that_lose_about_as_much_during_the_same_time_are_the_link() -> None:
    up, down = (
        replace(finding(f"plane 1 t0 3 {arrow} t1 5", since_us), dead=False, lost=41, rate=0.04)
        for arrow, since_us in ((">", 100.0), ("<", 150.0))  # a gap between losses is 10 us
    )
    assert told(up, down) == [("plane 1 t0 3 - t1 5", "link", 82)]
    assert len(told(up, replace(down, since_us=151.0))) == 2
    assert len(told(up, replace(down, until_us=449.0))) == 2
    assert len(told(up, replace(down, rate=0.019))) == 2
    assert len(told(up, replace(down, dead=True))) == 2


@pytest.mark.parametrize(("earliest_us", "alone"), [(None, 2), (130.0, 2), (100.0, 1), (90.0, 1)])
def test_a_direction_that_hardly_anything_crossed_before_may_have_been_bad_from_then_on(
    earliest_us: float | None, alone: int
) -> None:
    up, down = (
        replace(finding(f"plane 0 t0 1 {way} t1 2", since_us), dead=False, rate=0.1, lost=41)
        for way, since_us in ((">", 100.0), ("<", 220.0))
    )
    assert len(told(up, replace(down, earliest_us=earliest_us))) == alone


def test_three_links_of_a_transceiver_that_fail_at_once_are_the_transceiver() -> None:
    links = [finding(f"plane 1 t0 3 > t1 {i}") for i in (4, 5, 7)]
    assert told(*links) == [("plane 1 t0 3 transceiver 3", "transceiver", 30)]
    assert len(told(*links[:2])) == 2
    assert len(told(*links[:2], finding("plane 1 t0 3 > t1 7", 200.0))) == 3
    other = finding("plane 1 t0 3 > t1 3")  # of the transceiver beside it
    assert len(told(*links[:2], other)) == 3


def test_links_of_a_transceiver_that_lose_about_as_much_during_the_same_time_are_it() -> None:
    links = [
        replace(finding(f"plane 1 t0 3 > t1 {i}", since_us), dead=False, lost=41, rate=0.04)
        for i, since_us in ((4, 100.0), (5, 150.0), (7, 125.0))  # a gap between losses is 10 us
    ]
    assert told(*links) == [("plane 1 t0 3 transceiver 3", "transceiver", 123)]
    assert len(told(*links[:2], replace(links[2], rate=0.019))) == 3
    assert len(told(*links[:2], replace(links[2], since_us=151.0))) == 3


def test_what_each_may_be_and_all_of_them_could_is_the_simpler_story() -> None:
    each = [
        finding(f"nic {40 + i} plane 1 > t0", 100.0, f"nic {i} plane 1 < t0") for i in (0, 9, 2, 3)
    ]
    found = joined(FABRIC, each)
    both = {"plane 1 t0 0 transceiver 0", "plane 1 t0 5 transceiver 0"}
    assert found[0].where in both
    assert found[0].kind == "transceiver"
    assert found[0].one_of == ()


def test_ports_of_a_nic_share_its_transceiver() -> None:
    ports = [finding(f"nic 7 plane {k} > t0") for k in range(4)]
    assert told(*ports) == [("nic 7 transceiver 0", "transceiver", 40)]


def test_a_switch_is_no_link_of_a_transceiver() -> None:
    switches = [finding(f"plane {k} t1 5") for k in range(4)]
    assert len(told(*switches)) == 4


def test_two_that_may_be_one_link_are_that_link() -> None:
    up = finding("plane 1 t0 0 > t1 3", 100.0, "plane 1 t0 1 < t1 3", "plane 1 t1 3")
    down = finding("plane 1 t0 3 > t1 3", 100.0, "plane 1 t0 0 < t1 3", "plane 1 t1 3")
    assert told(up, down) == [("plane 1 t0 0 - t1 3", "link", 20)]
    later = finding("plane 1 t0 3 > t1 3", 200.0, "plane 1 t0 0 < t1 3")
    assert len(told(up, later)) == 2
    # Three next to each other: it may be the switch.
    third = finding("plane 1 t0 1 > t1 3", 100.0, "plane 1 t0 2 < t1 3", "plane 1 t1 3")
    (one,) = joined(FABRIC, [up, down, third])
    assert (one.where, one.one_of) == ("plane 1 t1 3 transceiver 0", ("plane 1 t1 3",))


def test_what_one_finding_may_be_counts_as_one_link_of_a_transceiver() -> None:
    names = [f"plane 1 t0 3 > t1 {i}" for i in (4, 5, 7)]
    alone = finding(names[0], 100.0, *names[1:])
    assert told(alone) == [(names[0], "link", 10)]


def test_of_two_transceivers_that_all_may_be_the_one_that_explains_more_is_it() -> None:
    ways = [f"plane 1 t0 1 > t1 {spine}" for spine in range(4)]
    found = [
        finding(f"plane 1 t0 {other} < t1 {spine}", 100.0, ways[spine])
        for other in (0, 2)
        for spine in range(4)
    ]
    for order in (found, found[::-1], found[4:] + found[:4]):
        assert told(*order) == [("plane 1 t0 1 transceiver 2", "transceiver", 80)]
