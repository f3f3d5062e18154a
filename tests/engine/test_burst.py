"""Bursts: new packets in a row on one EV, and planes that stay even all the same."""

from __future__ import annotations

from itertools import groupby

import pytest

from openmrc.engine import packet as pk
from openmrc.engine.endpoint import next_packet
from openmrc.engine.ev import SKIP
from tests.engine.pair import Pair

BOTH = 0b11


def taken(pair: Pair, n: int, free: int = BOTH) -> list[tuple[int, int]]:
    """Plane and EV of the next packets."""
    found = []
    for _ in range(n):
        plane = next_packet(pair.st, pair.q, free, pair.now, pair.scratch)
        if plane < 0:
            break
        found.append((plane, int(pair.scratch.ev)))
    return found


def runs(found: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """(plane, packets) of each run on one EV."""
    return [(plane, len(list(run))) for (plane, _), run in groupby(found)]


def pair(burst: int) -> Pair:
    return Pair(planes=2, evs=4, burst=burst, rtt_us=32)


@pytest.mark.parametrize("burst", [1, 2, 4])
def test_much_goes_in_bursts_and_planes_take_turns(burst: int) -> None:
    p = pair(burst)
    p.post(200 * 4096, pump=False)
    found = taken(p, 32)
    assert runs(found) == [(k % 2, burst) for k in range(32 // burst)]
    evs = [ev for ev, _ in groupby(ev for _, ev in found)]
    assert len(set(evs[:8])) == min(8, 32 // burst)  # no EV twice before each had its turn


@pytest.mark.parametrize(
    ("packets", "expected"),
    [
        (1, [1]),
        (3, [1, 1, 1]),
        (4, [2, 1, 1]),
        (6, [3, 1, 1, 1]),
        (16, [8, 4, 2, 1, 1]),
    ],
)
def test_little_is_spread(packets: int, expected: list[int]) -> None:
    """No burst takes more than leaves each of both planes as many of what is queued."""
    p = pair(8)
    p.post(packets * 4096, pump=False)
    found = runs(taken(p, packets))
    assert [n for _, n in found] == expected
    used = [sum(n for k, n in found if k == plane) for plane in range(2)]
    assert abs(used[0] - used[1]) <= 1


def test_a_burst_ends_where_its_port_is_busy_or_its_path_goes() -> None:
    p = pair(8)
    p.post(200 * 4096, pump=False)
    [(plane, ev)] = taken(p, 1)
    [(other, _)] = taken(p, 1, BOTH & ~(1 << plane))
    assert other == 1 - plane
    begun = taken(p, 2, 1 << plane)
    assert begun[0] == begun[1] != (plane, ev)  # another EV: that burst is over
    at = next(k for k in range(4) if p.ev(plane, k) == begun[0][1])
    p.path(plane, at).state = SKIP  # it was marked
    assert taken(p, 1, 1 << plane)[0] not in begun


@pytest.mark.parametrize(
    ("window", "queued", "needed", "sent"),
    [
        (64, 200, 8, 4),  # a burst of 4 for each of two planes, and the first goes
        (16, 200, 4, 2),  # of a small window a quarter
        (64, 66, 6, 6),  # what is left to send
    ],
)
def test_a_full_window_opens_by_a_burst(window: int, queued: int, needed: int, sent: int) -> None:
    p = pair(4)
    p.q.cwnd = window * p.q.pkt
    p.post(queued * 4096, pump=False)
    assert window - needed < len(taken(p, queued)) <= window
    assert p.scratch.flag_bits & pk.ACK_REQ  # its answer opens the window
    p.q.inflight = (window - needed + 1) * p.q.pkt
    assert taken(p, queued) == []
    p.q.inflight -= p.q.pkt
    assert len(taken(p, queued)) == sent


def test_everything_arrives_as_without_bursts() -> None:
    p = pair(8)
    p.post(1_000_000, imm=5)
    p.drive()
    assert p.immediates() == [5]
    p.check(0)
    used = [sum(x.p.plane == k for x in p.packets("data")) for k in range(2)]
    assert sum(used) == -(-1_000_000 // 4096)
    assert abs(used[0] - used[1]) <= 8
