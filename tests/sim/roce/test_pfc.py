"""Priority flow control: accounts, thresholds, pause frames, storms; and that nothing is lost."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmrc.engine.state import NEVER
from openmrc.errors import InputError
from openmrc.jit import compiled, records
from openmrc.sim.roce import pfc
from openmrc.sim.roce.profiles import GBPS, FlowControl, Profile, shared_buffer_bytes
from tests.sim.roce.incast import FRAME, Outcome, incast

US = 1_000_000
MS = 1_000 * US
KB = 1_000
LINE = 400_000_000_000
PAUSE_PS = 65_535 * 512 * 1_000_000_000_000 // LINE  # 83.88 us


@compiled
def is_paused(link: Any) -> Any:
    return pfc.is_paused(link)


class Bench:
    """A switch, and links to it."""

    def __init__(self, links: int = 1, xoff: int = 10 * KB, shared: int = 100 * KB) -> None:
        self.c = records(1, pfc.CONFIG)[0]
        self.c.xoff_bytes = xoff
        self.c.alpha = 1.0
        self.c.xon_gap_bytes = 2 * KB
        self.c.storm_ps = 200 * MS
        self.sw = records(1, pfc.SWITCH)[0]
        self.sw.shared_bytes = shared
        self.links = records(links, pfc.LINK)
        pfc.open_links(self.links, PAUSE_PS, 3 * KB)

    def put(self, size: int, i: int = 0, now: int = 0) -> int:
        return int(pfc.on_enqueue(self.c, self.sw, self.links[i], now, size))

    def take(self, size: int, i: int = 0) -> int:
        return int(pfc.on_dequeue(self.c, self.sw, self.links[i], size))


def test_the_packet_without_room_in_the_share_asks_for_a_pause() -> None:
    b = Bench()
    link = b.links[0]
    assert [b.put(4 * KB), b.put(4 * KB)] == [pfc.PASS, pfc.PASS]
    assert b.put(2001, now=5 * US) == pfc.PAUSE
    assert (link.held_bytes, link.headroom_held_bytes, link.frames_sent) == (8 * KB, 2001, 1)
    assert link.refresh_at == 5 * US + PAUSE_PS // 2
    assert b.put(2 * KB) == pfc.PASS  # still fits, and the pause is asked for already
    assert b.put(1 * KB) == pfc.DROP  # no more share, and 999 B of headroom
    assert (b.sw.drops, b.sw.used_bytes, b.sw.headroom_used_bytes) == (1, 10 * KB, 2001)
    assert b.sw.peak_bytes == 12_001


def test_a_link_goes_on_when_its_headroom_is_empty_and_its_share_is_down() -> None:
    b = Bench()
    b.put(8 * KB)
    b.put(3 * KB)
    assert b.take(2 * KB) == pfc.PASS  # headroom first: 1 KB of it is left
    assert (b.links[0].held_bytes, b.links[0].headroom_held_bytes) == (8 * KB, 1 * KB)
    assert b.take(1 * KB) == pfc.RESUME  # 8 KB is XOFF less the gap
    assert b.links[0].refresh_at == NEVER
    assert b.take(1 * KB) == pfc.PASS


def test_the_gap_keeps_a_link_paused_a_little_longer() -> None:
    b = Bench()
    b.put(9 * KB)
    b.put(2 * KB)
    assert b.take(2 * KB) == pfc.PASS  # the headroom is empty, but 9 KB are held
    assert b.take(999) == pfc.PASS
    assert b.take(1) == pfc.RESUME


def test_a_share_by_alpha_shrinks_as_the_buffer_fills() -> None:
    b = Bench(links=2, xoff=0, shared=90 * KB)
    assert pfc.xoff_of(b.c, b.sw) == 90 * KB
    assert b.put(45 * KB) == pfc.PASS
    assert pfc.xoff_of(b.c, b.sw) == 45 * KB
    assert b.put(1) == pfc.PAUSE  # one link alone gets alpha / (1 + alpha) of the buffer
    assert b.put(30 * KB, 1) == pfc.PASS
    assert pfc.xoff_of(b.c, b.sw) == 15 * KB
    assert b.put(1, 1) == pfc.PAUSE  # the other has more than its share by now


def test_a_share_by_alpha_can_never_be_more_than_what_is_free() -> None:
    b = Bench(xoff=0, shared=10 * KB)
    b.c.alpha = 8.0
    assert b.put(9 * KB) == pfc.PASS
    assert b.put(2 * KB) == pfc.PAUSE
    assert b.sw.used_bytes <= b.sw.shared_bytes


def test_an_empty_link_goes_on_even_if_the_others_hold_everything() -> None:
    b = Bench(links=2, xoff=0, shared=10 * KB)
    assert b.put(5 * KB) == pfc.PASS
    b.c.alpha = 0.0
    assert b.put(1 * KB, 1) == pfc.PAUSE
    assert b.take(1 * KB, 1) == pfc.RESUME


def test_a_pause_frame_waits_for_the_frame_in_transmission_and_for_the_one_before() -> None:
    link = Bench().links[0]
    on_wire = 84 * 8 * 1_000_000_000_000 // LINE
    assert on_wire == 1_680
    assert pfc.send_frame(link, 10 * US, 0, LINE, 3 * US) == 13 * US + on_wire
    busy = 20 * US
    assert pfc.send_frame(link, 19 * US, busy, LINE, 3 * US) == 23 * US + on_wire
    assert pfc.send_frame(link, 19 * US, busy, LINE, 3 * US) == 23 * US + 2 * on_wire


def test_a_pause_ends_by_itself_when_nobody_repeats_it() -> None:
    b = Bench()
    link = b.links[0]
    assert pfc.on_pause(link, b.c, 10 * US)
    assert is_paused(link)
    assert link.paused_until == 10 * US + PAUSE_PS
    assert not pfc.on_pause(link, b.c, 50 * US)  # repeated
    assert not pfc.on_expiry(link, b.c, 10 * US + PAUSE_PS)
    assert pfc.paused_ps(b.links, 60 * US).tolist() == [50 * US]
    assert pfc.on_expiry(link, b.c, 50 * US + PAUSE_PS)
    assert not is_paused(link)
    assert (link.pauses, link.paused_ps, link.longest_ps) == (1, 40 * US + PAUSE_PS, link.paused_ps)


def test_pauses_add_up() -> None:
    b = Bench()
    link = b.links[0]
    for begin, lasts in ((0, 7), (20, 3)):
        pfc.on_pause(link, b.c, begin * US)
        assert pfc.on_resume(link, b.c, (begin + lasts) * US)
    assert not pfc.on_resume(link, b.c, 30 * US)  # one too many
    assert (link.pauses, link.paused_ps, link.longest_ps) == (2, 10 * US, 7 * US)
    assert pfc.paused_ps(b.links, 99 * US).tolist() == [10 * US]


def test_the_pause_is_asked_for_again_while_it_is_wanted() -> None:
    b = Bench()
    b.put(9 * KB)
    b.put(2 * KB, now=0)
    link = b.links[0]
    first = int(link.refresh_at)
    assert pfc.on_refresh(link, first - 1) == pfc.PASS
    assert pfc.on_refresh(link, first) == pfc.PAUSE
    assert (link.refresh_at, link.frames_sent) == (2 * first, 2)
    b.take(11 * KB)
    assert pfc.on_refresh(link, 2 * first) == pfc.PASS


def test_a_pause_that_is_renewed_again_and_again_is_a_storm_counted_once() -> None:
    b = Bench()
    link = b.links[0]
    b.c.storm_ps = 1 * MS
    b.put(10 * KB)
    assert b.put(2 * KB) == pfc.PAUSE
    now = 0
    while now < 5 * MS:
        pfc.on_pause(link, b.c, now)
        assert link.storms == (1 if now >= MS else 0)
        now = int(link.refresh_at)
        assert pfc.on_refresh(link, now) == pfc.PAUSE
    assert b.take(12 * KB) == pfc.RESUME
    pfc.on_resume(link, b.c, now)
    assert (link.storms, link.pauses, link.longest_ps) == (1, 1, now)
    pfc.on_pause(link, b.c, now + US)
    assert link.storms == 1  # a new pause is no storm yet


def test_a_pause_that_lasts_as_long_as_a_storm_is_one_when_it_ends() -> None:
    b = Bench()
    b.c.storm_ps = 30 * US
    pfc.on_pause(b.links[0], b.c, 0)
    pfc.on_resume(b.links[0], b.c, 30 * US)
    assert b.links[0].storms == 1


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(64, 4178)), max_size=80), st.booleans())
def test_the_accounts_agree(arrivals: list[tuple[int, int]], by_alpha: bool) -> None:
    """What links are charged is what is queued, in total and each; never below nothing."""
    b = Bench(links=3, xoff=0 if by_alpha else 9 * KB, shared=40 * KB)
    queued: list[tuple[int, int]] = []
    for i, size in arrivals:
        if b.put(size, i) != pfc.DROP:
            queued.append((i, size))
        if size % 3 == 0 and queued:
            j, left = queued.pop(0)
            b.take(left, j)
        total = 0
        for k in range(3):
            link = b.links[k]
            assert link.held_bytes >= 0
            assert 0 <= link.headroom_held_bytes <= link.headroom_bytes
            assert link.wants_pause or link.headroom_held_bytes == 0
            mine = sum(size for j, size in queued if j == k)
            assert link.held_bytes + link.headroom_held_bytes == mine
            total += mine
        assert b.sw.used_bytes + b.sw.headroom_used_bytes == total
        assert b.sw.used_bytes <= b.sw.shared_bytes
    for j, left in queued:
        b.take(left, j)
    assert (b.sw.used_bytes, b.sw.headroom_used_bytes) == (0, 0)
    assert not b.links.wants_pause.any()


def test_headroom_by_hand() -> None:
    """400 Gb/s, 1 us each way: 50 KB per us."""
    assert pfc.headroom_bytes(LINE, LINE, US, US, 4178) == 3 * 4178 + 84 + 100_000
    assert pfc.headroom_bytes(LINE, LINE, US, US, 4178, US) == 3 * 4178 + 84 + 150_000
    # The way back at a quarter of the rate: four times as long before the pause is under way.
    assert pfc.headroom_bytes(LINE, LINE // 4, US, US, 4178) == 2 * 4178 + 4 * 4262 + 100_000


def test_the_longest_pause_that_a_frame_can_ask_for() -> None:
    assert pfc.pause_time_ps(100_000_000_000) == 335_539_200
    assert pfc.pause_time_ps(LINE) == PAUSE_PS


def test_what_a_switch_has_to_share() -> None:
    control = FlowControl()
    assert shared_buffer_bytes(control, 51_200 * GBPS, 40_000_000) == 163_840_000 - 40_000_000
    with pytest.raises(
        InputError, match=r"'auto' is 3200 B .* 3000 B of headroom; state at least 6000 B"
    ):
        shared_buffer_bytes(control, GBPS, 3_000)


UNCONTROLLED = Profile()  # no marks are made below, so no CNP ever comes


def flood(n: int, delay_ps: int, less: int = 0, **control: Any) -> Outcome:
    """`n` senders at line rate into one port, without DCQCN, the way back always busy."""
    return incast(
        UNCONTROLLED, [0] * n, 1 * MS, delay_ps=delay_ps, marks=False, headroom_less=less,
        control=FlowControl(**control), shared_bytes=2_000_000,
    )  # fmt: skip


@pytest.mark.parametrize("control", [{"xoff_bytes": 50_000}, {"alpha": 1.0}, {"alpha": 0.125}])
@pytest.mark.parametrize("delay_ns", [50, 333, 1000, 3001])
@pytest.mark.parametrize("n", [2, 7, 15])
def test_nothing_is_lost_with_headroom_as_computed(
    n: int, delay_ns: int, control: dict[str, Any]
) -> None:
    o = flood(n, delay_ns * 1_000, **control)
    assert (o.world.dropped, o.world.wrong) == (0, 0)
    assert o.links.pauses.min() > 0
    assert o.links.headroom_peak_bytes.max() <= o.links[0].headroom_bytes
    if "alpha" in control:  # shares of more than a round trip: the port is never idle either
        assert o.share(100 * US, 990 * US) > 0.999


@pytest.mark.parametrize("delay_ns", [333, 1000])
def test_something_is_lost_with_a_frame_less(delay_ns: int) -> None:
    """The formula is no larger than it must be: a frame less is too little."""
    o = flood(15, delay_ns * 1_000, less=FRAME, xoff_bytes=50_000)
    assert o.world.dropped > 0
    assert o.world.dropped == o.switch.drops


def test_without_flow_control_a_full_queue_drops() -> None:
    o = incast(
        UNCONTROLLED, [0] * 4, 1 * MS, marks=False, with_pfc=False, limit_bytes=1_000_000
    )  # fmt: skip
    assert o.world.dropped > 0
    assert int(o.links.pauses.sum()) == 0
