"""How many packets a sender may have under way: MPR, what its peer has room for.

A queue pair sends so many packets at the rate that it gets, and then waits for the first of their
acknowledgements, a round trip after it left: so it goes on in rounds. At this level a message that
takes several rounds is sent evenly over them.
"""

from __future__ import annotations

import math

from openmrc.jit import inner

UNPACED = 1e9  # bytes per ps: more than any rate


@inner
def pace(fl, f, now):
    """A flow begins a message: set what the rounds that it takes let it send. True if that limits
    this message, or the one before.
    """
    flow = fl.flow[f]
    room = fl.c[0].room_bytes
    round_ps = fl.entry[flow.entry].round_ps
    before = flow.paced
    flow.paced = UNPACED
    if now - flow.round_at >= round_ps:
        flow.round_at = now
        flow.round_left = room
    more = flow.left_bytes - flow.round_left
    if more > 0:
        rounds = math.ceil(more / room)
        flow.round_at += rounds * round_ps
        flow.round_left = rounds * room - more
        last = room - flow.round_left
        until = flow.round_at + (last / flow.rate_open if flow.rate_open > 0 else 0.0)
        flow.paced = flow.left_bytes / max(until - now, 1.0)
    else:
        flow.round_left = -more
    flow.rate_max = min(flow.rate_open, flow.paced)
    return min(flow.paced, before) < flow.rate_open
