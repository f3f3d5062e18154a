"""A packet model of one congested port, to see what DCQCN and PFC do together: `n` senders, each on
a link of its own to a switch, all to one receiver. Everything in the world's own terms: frames of
one size, one rate, one delay. Written for tests: no Net, no queue of events.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from openmrc.engine import bits
from openmrc.engine.state import NEVER
from openmrc.jit import compiled, records
from openmrc.sim.roce import dcqcn, pfc
from openmrc.sim.roce.profiles import FlowControl, Marking, Profile, dcqcn_config, pfc_config

FRAME = 4178  # RoCEv2 over IPv4 with 4096 B of payload, preamble and gap included
RING = 1 << 16
MASK = RING - 1
MARKING, CONTROL = Marking(), FlowControl()
FRAMES = 16  # pause frames under way to one sender

WORLD = np.dtype(
    [
        ("now", "i8"),
        ("rate_bps", "i8"),
        ("delay_ps", "i8"),
        ("frame_ps", "i8"),
        ("frame_bytes", "i8"),
        ("back_busy", "i1"),  # the way back is always in the midst of a frame: the worst case
        ("with_pfc", "i1"),
        ("limit_bytes", "i8"),  # of the egress queue without PFC
        ("low_bytes", "i8"),
        ("high_bytes", "i8"),
        ("p_max", "f8"),
        ("egress_free_at", "i8"),
        ("queue_bytes", "i8"),
        ("first", "i8"),  # rings: numbers of their first and next entries
        ("next_", "i8"),
        ("q_first", "i8"),
        ("q_next", "i8"),
        ("cnp_first", "i8"),
        ("cnp_next", "i8"),
        ("delivered", "i8"),
        ("sent", "i8"),
        ("dropped", "i8"),
        ("marked", "i8"),
        ("wrong", "i8"),  # broken invariants
    ],
    align=True,
)
SENDER = np.dtype(
    [
        ("start_at", "i8"),
        ("stop_at", "i8"),
        ("free_at", "i8"),
        ("frame_first", "i8"),  # of the ring of pause frames under way
        ("frame_next", "i8"),
        ("frame_at", "i8", (FRAMES,)),
        ("frame_kind", "i8", (FRAMES,)),
        ("sent", "i8"),
    ],
    align=True,
)
ENTRY = np.dtype([("at", "i8"), ("sender", "i8")], align=True)


@compiled
def _tell(w: Any, s: Any, link: Any, now: int, kind: int) -> None:
    """A pause frame sets out."""
    back_free = now + w.frame_ps if w.back_busy else now
    at = pfc.send_frame(link, now, back_free, w.rate_bps, w.delay_ps)
    s.frame_at[s.frame_next % FRAMES] = at
    s.frame_kind[s.frame_next % FRAMES] = kind
    s.frame_next += 1
    if s.frame_next - s.frame_first > FRAMES:
        w.wrong += 1


@compiled
def run(
    w: Any, sender: Any, rp: Any, np_: Any, c: Any, sw: Any, links: Any, pc: Any,
    arrive: Any, queue: Any, cnp: Any, stream: Any, until: int, every: int, samples: Any,
) -> None:  # fmt: skip
    """Advance to `until`; each `every` ps a row of samples, as `Outcome` has them."""
    n = sender.shape[0]
    row = 0
    while True:
        best = int(until)
        what = 0
        who = -1
        if row < samples.shape[0] and row * every < best:
            best = row * every
            what = 1
        if w.first < w.next_ and arrive[w.first & MASK].at < best:
            best = arrive[w.first & MASK].at
            what = 2
        if w.q_first < w.q_next and w.egress_free_at < best:
            best = w.egress_free_at
            what = 3
        if w.cnp_first < w.cnp_next and cnp[w.cnp_first & MASK].at < best:
            best = cnp[w.cnp_first & MASK].at
            what = 4
        for i in range(n):
            s = sender[i]
            if s.frame_first < s.frame_next and s.frame_at[s.frame_first % FRAMES] < best:
                best = s.frame_at[s.frame_first % FRAMES]
                what = 5
                who = i
            if links[i].refresh_at < best:
                best = links[i].refresh_at
                what = 6
                who = i
            if pfc.is_paused(links[i]):
                if links[i].paused_until < best:
                    best = links[i].paused_until
                    what = 7
                    who = i
            else:
                at = max(max(s.start_at, s.free_at), dcqcn.may_send_at(rp[i]))
                if at < best and at < s.stop_at:
                    best = at
                    what = 8
                    who = i
        best = max(best, w.now)
        w.now = best
        now = int(best)
        if what == 0:
            return
        if what == 1:
            paused = 0
            active = 0
            for i in range(n):
                paused += links[i].paused_ps
                paused += now - links[i].paused_since if pfc.is_paused(links[i]) else 0
                active += 1 if sender[i].start_at <= now < sender[i].stop_at else 0
            samples[row, 0] = w.queue_bytes
            samples[row, 1] = w.delivered
            samples[row, 2] = paused
            samples[row, 3] = active
            row += 1
        elif what == 2:
            i = int(arrive[w.first & MASK].sender)
            w.first += 1
            if w.with_pfc:
                action = pfc.on_enqueue(pc, sw, links[i], now, w.frame_bytes)
                if action == pfc.PAUSE:
                    _tell(w, sender[i], links[i], now, 1)
            else:
                action = pfc.PASS
                if w.queue_bytes + w.frame_bytes > w.limit_bytes:
                    action = pfc.DROP
            if action == pfc.DROP:
                w.dropped += 1
            else:
                w.queue_bytes += w.frame_bytes
                queue[w.q_next & MASK] = i
                w.q_next += 1
                w.egress_free_at = max(w.egress_free_at, now)
        elif what == 3:
            i = int(queue[w.q_first & MASK])
            w.q_first += 1
            w.queue_bytes -= w.frame_bytes
            w.egress_free_at = now + w.frame_ps
            w.delivered += w.frame_bytes
            if w.with_pfc:
                if pfc.on_dequeue(pc, sw, links[i], w.frame_bytes) == pfc.RESUME:
                    _tell(w, sender[i], links[i], now, 0)
                held = 0
                for j in range(n):
                    held += links[j].held_bytes + links[j].headroom_held_bytes
                    if links[j].held_bytes < 0 or links[j].headroom_held_bytes < 0:
                        w.wrong += 1
                if held != w.queue_bytes or held != sw.used_bytes + sw.headroom_used_bytes:
                    w.wrong += 1
            over = w.queue_bytes - w.low_bytes
            span = w.high_bytes - w.low_bytes
            if over > 0 and (
                over >= span or bits.draw_below(stream, 0, int(span / w.p_max)) < over
            ):
                w.marked += 1
                received = now + w.frame_ps + w.delay_ps
                if dcqcn.cnp_due(np_[i], c, received):
                    cnp[w.cnp_next & MASK].at = received + 2 * w.delay_ps
                    cnp[w.cnp_next & MASK].sender = i
                    w.cnp_next += 1
        elif what == 4:
            i = int(cnp[w.cnp_first & MASK].sender)
            w.cnp_first += 1
            dcqcn.on_cnp(rp[i], c, now)
        elif what == 5:
            s = sender[who]
            if s.frame_kind[s.frame_first % FRAMES] == 1:
                pfc.on_pause(links[who], pc, now)
            else:
                pfc.on_resume(links[who], pc, now)
            s.frame_first += 1
        elif what == 6:
            if pfc.on_refresh(links[who], now) == pfc.PAUSE:
                _tell(w, sender[who], links[who], now, 1)
        elif what == 7:
            pfc.on_expiry(links[who], pc, now)
        else:
            s = sender[who]
            dcqcn.on_timer(rp[who], c, now)
            at = dcqcn.may_send_at(rp[who])
            if at > now:
                continue
            dcqcn.on_sent(rp[who], c, now, w.frame_bytes)
            s.free_at = now + w.frame_ps
            s.sent += 1
            w.sent += 1
            arrive[w.next_ & MASK].at = now + w.frame_ps + w.delay_ps
            arrive[w.next_ & MASK].sender = who
            w.next_ += 1
        r = rp[who] if who >= 0 else rp[0]
        if not (c.min_bps <= r.rate_bps <= c.line_bps) or not (0.0 <= r.alpha <= 1.0):
            w.wrong += 1


@dataclass
class Outcome:
    """What came of a run; samples [rows, (queue bytes, delivered bytes, paused ps, active)]."""

    world: Any
    senders: Any
    limiters: Any
    links: Any
    switch: Any
    samples: Any
    every_ps: int

    def share(self, from_ps: int, to_ps: int) -> float:
        """Part of the port's rate that was used between two times."""
        a, b = from_ps // self.every_ps, to_ps // self.every_ps
        moved = int(self.samples[b, 1] - self.samples[a, 1]) * 8
        return moved / (int(self.world.rate_bps) * (b - a) * self.every_ps / 1e12)

    def queue(self, from_ps: int, to_ps: int) -> Any:
        """Samples of the queue between two times, bytes."""
        return self.samples[from_ps // self.every_ps : to_ps // self.every_ps, 0]

    def paused(self, from_ps: int, to_ps: int) -> float:
        """Mean number of senders that were paused between two times."""
        a, b = from_ps // self.every_ps, to_ps // self.every_ps
        return int(self.samples[b, 2] - self.samples[a, 2]) / ((b - a) * self.every_ps)


def incast(
    profile: Profile,
    starts_ps: list[int],
    until_ps: int,
    *,
    rate_bps: int = 400_000_000_000,
    delay_ps: int = 1_000_000,
    with_pfc: bool = True,
    limit_bytes: int = 1 << 40,
    marking: Marking = MARKING,
    control: FlowControl = CONTROL,
    shared_bytes: int = 16_000_000,
    headroom_less: int = 0,
    marks: bool = True,
    back_busy: bool = True,
    every_ps: int = 10_000_000,
    seed: int = 1,
) -> Outcome:
    """Let `len(starts_ps)` senders loose on one port."""
    n = len(starts_ps)
    world = records(1, WORLD)
    w = world[0]
    w.rate_bps, w.delay_ps, w.frame_bytes = rate_bps, delay_ps, FRAME
    w.frame_ps = FRAME * pfc.PS_BITS // rate_bps
    w.back_busy, w.with_pfc, w.limit_bytes = back_busy, with_pfc, limit_bytes
    w.low_bytes = marking.low_bytes(rate_bps) if marks else 1 << 50
    w.high_bytes = marking.high_bytes(rate_bps) if marks else 1 << 51
    w.p_max = marking.p_max
    sender = records(n, SENDER)
    sender.start_at = starts_ps
    sender.stop_at = NEVER
    config = dcqcn_config(profile, rate_bps)
    rp, np_ = records(n, dcqcn.LIMITER), records(n, dcqcn.NOTIFIER)
    for i in range(n):
        dcqcn.start(rp[i], config[0])
    flow = pfc_config(control, FRAME)
    switch, links = records(1, pfc.SWITCH), records(n, pfc.LINK)
    switch[0].shared_bytes = shared_bytes
    room = pfc.headroom_bytes(rate_bps, rate_bps, delay_ps, delay_ps, FRAME) - headroom_less
    pfc.open_links(links, pfc.pause_time_ps(rate_bps, control.quanta), room)
    stream = bits.seed_streams(seed, 77, 1)
    arrive, cnp = records(RING, ENTRY), records(RING, ENTRY)
    queue = np.zeros(RING, np.int64)
    samples = np.zeros((until_ps // every_ps, 4), np.int64)
    run(
        w, sender, rp, np_, config[0], switch[0], links, flow[0],
        arrive, queue, cnp, stream, until_ps, every_ps, samples,
    )  # fmt: skip
    return Outcome(w, sender, rp, links, switch[0], samples, every_ps)
