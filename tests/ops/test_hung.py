"""Switches that hang, by what ports count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl
import pytest

from openmrc.fabric import multiplane
from openmrc.ops.hung import Hang, hangs, with_hangs
from openmrc.ops.together import Finding

FABRIC = multiplane(16, 2, 100 * 10**9, 4, 4, 0, 0)
UP, DOWN, LAST = FABRIC.route(1, 9, FABRIC.ev(1, 2))[1:]
OTHER = FABRIC.route(1, 5, FABRIC.ev(1, 2))[2]  # another way down
T1 = int(FABRIC.port_peer_switch[UP])
NAME = FABRIC.switch_name(T1)


def counted(
    came: Sequence[int], left: Sequence[int], dropped: Sequence[int] = (), ways: int = 2
) -> list[Hang]:
    """What hung if so many packets went into a T1 and came out in each bin of 10 us; senders put
    some on one way down, or on two.
    """
    drops = dropped or [0] * len(came)
    rows = [
        (port, 10.0 * i, 10.0 * (i + 1), packets, sent, gone)
        for i, counts in enumerate(zip(came, left, drops, strict=True))
        for port, packets, sent, gone in (
            (UP, 9, counts[0], 0),
            (DOWN, 5, *counts[1:]),
            (OTHER, 4 * (ways - 1), 0, 0),
            (LAST, 5, counts[1], 0),
        )
    ]
    columns = ["port", "from_us", "until_us", "packets", "packets_out", "dropped"]
    return hangs(FABRIC, pl.DataFrame(rows, schema=columns, orient="row"))


def test_a_switch_that_sends_nothing_while_packets_come_in_hangs() -> None:
    assert counted([100] * 5, [100, 75, 0, 0, 50]) == [Hang(T1, 17.5, 45.0, 275, True)]


def test_it_may_hang_again_and_until_the_end() -> None:
    first, second = counted([100] * 6, [0, 100, 100, 100, 0, 0])
    assert first == Hang(T1, 0.0, 10.0, 100, False)
    assert second == Hang(T1, 40.0, 60.0, 200, True)


def test_a_switch_with_one_way_out_may_have_a_dead_link() -> None:
    assert not counted([100] * 5, [100, 75, 0, 0, 50], ways=1)


@pytest.mark.parametrize(
    ("came", "left", "dropped"),
    [
        ([100, 100, 100], [100, 40, 100], []),  # it loses a part
        ([100, 100, 100], [100, 0, 190], []),  # packets that were late
        ([100, 19, 100], [100, 0, 100], []),  # hardly any came
        ([100, 0, 100], [100, 0, 100], []),  # none did
        ([100, 100, 100], [100, 0, 100], [0, 100, 0]),  # all were dropped
    ],
)
def test_otherwise_it_does_not(
    came: Sequence[int], left: Sequence[int], dropped: Sequence[int]
) -> None:
    assert not counted(came, left, dropped)


def found(where: str, since_us: float = 20.0, **more: object) -> Finding:
    one = Finding(where, "link", (), (), True, 1.0, 9, since_us, since_us + 10, 3, 3, 0, None, 30.0)
    return replace(one, **more)  # type: ignore[arg-type]


HANG = Hang(T1, 20.0, 40.0, 300, True)


def told(*findings: Finding) -> list[str]:
    return [it.where for it in with_hangs(FABRIC, findings, [HANG], 5.0)]


def test_what_hung_is_told_once_and_its_links_not_beside_it() -> None:
    link, other = FABRIC.port_name(UP), "nic 3 plane 0 > t0"
    (one,) = with_hangs(FABRIC, [], [HANG], 5.0)
    assert (one.where, one.kind, one.dead, one.lost) == (NAME, "switch", True, 300)
    assert (one.since_us, one.until_us) == (20.0, 40.0)
    assert told(found(NAME, kind="switch")) == [NAME]
    assert told(found(link), found(other)) == [other, NAME]
    assert told(found(other, one_of=(link,))) == [NAME]
    assert told(found(f"{NAME} transceiver 0", kind="transceiver")) == [NAME]


def test_what_broke_at_another_time_or_was_seen_down_is_told_as_well() -> None:
    link = FABRIC.port_name(UP)
    assert told(found(link, 46.0)) == [link, NAME]
    assert told(found(link, 5.0)) == [link, NAME]
    assert told(found(link, downs=1)) == [link, NAME]
    assert told(found(NAME, 5.0, kind="switch", back=3)) == [NAME, NAME]
    assert told(found(NAME, 5.0, kind="switch")) == [NAME]  # it never came back


@pytest.mark.parametrize(("is_most", "dead"), [(True, True), (False, False)])
def test_what_is_said_to_lose_a_part_hung_if_it_lost_little_else(is_most: bool, dead: bool) -> None:
    some = found(NAME, 5.0, kind="switch", dead=False, rate=0.1, until_us=50.0)
    (one,) = with_hangs(FABRIC, [some], [HANG._replace(is_most=is_most)], 5.0)
    assert (one.dead, one.lost, one.paths) == (dead, some.lost, some.paths)
    assert (one.since_us, one.until_us) == ((20.0, 40.0) if dead else (5.0, 50.0))
