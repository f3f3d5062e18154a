"""A loop by round trips and late marks, in place of DCQCN's: `cc = "rtt"`.

How NICs that are sold do this is not published. The rule here has the four cases of UET's NSCC
(docs/protocol.md), for a rate instead of a window. A QP times one packet in a round trip; what its
round trip exceeds the empty fabric's by is its delay. Switches mark a packet as it leaves their
queue, and the receiver reports marks by CNPs, as for DCQCN:

    short delay, no mark    rate += GAIN x line rate x (target - delay) / target
    long delay, no mark     rate += ADD x line rate: the queue is about to empty
    short delay, mark       the rate stays: the queue has only begun
    long delay, mark        rate *= 1 - DROP x (delay - target) / delay, at least by half

The limiter and its pace are DCQCN's (`dcqcn.LIMITER`), without its timers.
"""

from __future__ import annotations

import numpy as np

from openmrc.jit import compiled, inlined
from openmrc.sim.roce import dcqcn

# All four are choices of this project: target and drop are NSCC's, and the gains let a rate return
# from nothing to the line's within about ten round trips without a queue, and fairly with one.
TARGET = 0.75  # of the base round trip
GAIN = 1 / 8
ADD = 1 / 256
DROP, DROP_MOST = 0.8, 0.5

SAMPLE = np.dtype(  # of a QP that sends
    [
        ("seq", "i8"),  # of the packet that it times; -1: none
        ("sent_at", "i8"),
        ("marked", "i1"),  # a CNP has come since the last one
    ],
    align=True,
)


@inlined
def on_sent(s, seq, now):
    """A packet that was never sent before leaves."""
    if s.seq < 0:
        s.seq = seq
        s.sent_at = now


@inlined
def on_lost(s):
    """What is timed may be sent again: its round trip would be that of either."""
    s.seq = -1


@compiled
def rate_after(rate_bps, line_bps, delay, is_marked):
    """The next rate; `delay` is in base round trips."""
    if delay < TARGET and not is_marked:
        return rate_bps + GAIN * line_bps * (TARGET - delay) / TARGET
    if not is_marked:
        return rate_bps + ADD * line_bps
    if delay < TARGET:
        return rate_bps
    return rate_bps * (1.0 - min(DROP * (delay - TARGET) / delay, DROP_MOST))


@compiled
def on_ack(s, r, c, base_ps, una, now):
    """Everything below `una` is acknowledged: if that is the timed packet, the rate changes."""
    if s.seq < 0 or una <= s.seq:
        return
    delay = max(now - s.sent_at - base_ps, 0) / base_ps
    rate_bps = rate_after(float(r.rate_bps), float(c.line_bps), delay, s.marked != 0)
    dcqcn.set_rate(r, now, min(max(rate_bps, c.min_bps), c.line_bps))
    r.limited = r.rate_bps < c.line_bps
    s.seq = -1
    s.marked = 0
