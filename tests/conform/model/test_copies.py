"""Why packets go again, and how evenly paths carry them."""

from __future__ import annotations

from typing import Any

from openmrc.conform.model.copies import Copies
from openmrc.conform.model.trips import Trips

RTT, RTO = 100, 700


def copies() -> Copies:
    return Copies(2, 4, RTT, RTO, True, Trips(RTT))


def sent(c: Copies, seq: int, at: int, ev: int, rtx: int = 0) -> dict[str, Any]:
    p = {"ev": ev, "plane": ev >> 16, "rtx": rtx, "no_trim": 0, "tx_timestamp": at}
    return c.sends(seq, p, at, 0b11, waits=True)


def test_a_packet_goes_again_if_it_was_refused_or_is_overdue() -> None:
    c = copies()
    for seq in range(3):
        sent(c, seq, 0, seq % 2 << 16)
    assert sent(c, 0, 100, 0x1_0000, rtx=1)["reason"] == 0
    c.refused(1, 0x1_0000, 1, 100)
    assert sent(c, 1, 100, 0, rtx=1)["reason"] == 1
    assert sent(c, 2, 125, 0x1_0000, rtx=1)["reason"] == 1


def comes(c: Copies, seq: int, ev: int, stamp: int, now: int, m: int = 0) -> None:
    c.reflected(ev, m, seq, stamp, known=False, of_data=True, now_ps=now)
    c.came({seq}, now)


def test_what_is_overdue_avoids_the_plane_if_another_delivers() -> None:
    c = copies()
    sent(c, 0, 0, 1)
    sent(c, 1, 0, 0x1_0001)
    assert "same_plane" not in sent(c, 0, 130, 1, rtx=1)
    comes(c, 1, 0x1_0001, 0, 130)
    assert sent(c, 0, 260, 1, rtx=1)["same_plane"] == 1
    sent(c, 2, 260, 0x1_0001)  # that may be lost by then
    assert "same_plane" not in sent(c, 0, 390, 1, rtx=1)


def test_planes_and_paths_lead_by_one() -> None:
    c = copies()
    right = [sent(c, k, k, ev) for k, ev in enumerate([1, 0x1_0001, 2, 3])]
    assert [r["plane_lead"] for r in right] == [1, 0, 1, 2]
    assert [r["ev_lead"] for r in right] == [0, 0, 0, 0]
    assert sent(c, 9, 9, 3)["ev_lead"] == 1
    comes(c, 9, 3, 9, 10, m=1)
    assert "ev_lead" not in sent(c, 10, 10, 3)
