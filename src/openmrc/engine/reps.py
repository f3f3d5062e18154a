"""Recycled entropies: REPS (Bonato et al., arXiv 2407.21625, algorithms 1 and 2).

A packet takes the oldest EV whose packet was acknowledged without a mark, and removes it from the
ring; if there is none, the sender explores with a random EV. When a packet is lost the sender
freezes: it does not explore, and cycles through the EVs in the ring, used or not, until an unmarked
answer arrives after `freezing_ps` of the configuration. Then one packet in `EXPLORE_EVERY`
explores, for one BDP of packets.

Planes are separate networks here, and take turns as in MRC: each has its own ring. All EVs are
equal until there is feedback, so active and backup EVs are both drawn from. No EV is ever
ASSUMED_BAD and none is probed; only denied EVs are left out.
"""

from __future__ import annotations

from openmrc.engine import bits
from openmrc.engine.ev import DENIED
from openmrc.engine.policy import HEARD_CLEAN, HEARD_LOST
from openmrc.engine.state import REPS_HELD
from openmrc.jit import inlined, inner
from openmrc.units import PS_BITS

EXPLORE_EVERY = REPS_HELD
TRIES = 8  # random draws before all EVs are tried in order


@inlined
def _take_fresh(r):
    """The oldest EV not used since its last feedback; there must be one."""
    place = (int(r.head) - int(r.fresh)) % REPS_HELD
    r.fresh -= 1
    return int(r.held[place])


@inlined
def _take_again(r):
    """Frozen: the next EV in the ring, used before or not; there must be one."""
    place = int(r.again)
    r.again = place + 1 if place + 1 < r.known else 0
    return int(r.held[place])


@inner
def _explore(st, q, plane, avoid):
    """A random EV of the plane that is not denied, and not `avoid` if there is another."""
    n = int(plane.n_evs)
    pick = 0
    for _ in range(TRIES):
        pick = bits.draw_below(st.stream, q.index, n)
        ev = int(plane.ev0) + pick
        if ev != avoid and st.ev[q.ev0 + ev].state != DENIED:
            return ev
    for _ in range(n):
        ev = int(plane.ev0) + pick
        if st.ev[q.ev0 + ev].state != DENIED:
            return ev
        pick = pick + 1 if pick + 1 < n else 0
    return int(plane.ev0)


@inner
def choose(st, q, plane, r, avoid):
    """Index within the QP of the EV for the next packet on a plane; `r` is the plane's ring."""
    if r.explore > 0:
        r.explore -= 1
        if r.explore % EXPLORE_EVERY == 0:
            return _explore(st, q, plane, avoid)
    while r.fresh > 0:
        ev = _take_fresh(r)
        if st.ev[q.ev0 + ev].state != DENIED:
            return ev
    if r.frozen:
        for _ in range(r.known):
            ev = _take_again(r)
            if st.ev[q.ev0 + ev].state != DENIED:
                return ev
    return _explore(st, q, plane, avoid)


@inner
def learn(q, c, r, ev, event, now):
    """Apply the feedback on a packet's EV: it enters the ring if the answer is unmarked; a loss
    freezes.
    """
    if event == HEARD_LOST:
        if r.frozen == 0 and r.explore == 0:
            r.frozen = 1
            r.again = 0
            r.thaw_at = now + c.freezing_ps
    elif event == HEARD_CLEAN:
        r.held[r.head] = ev
        r.head = (int(r.head) + 1) % REPS_HELD
        r.fresh = min(int(r.fresh) + 1, REPS_HELD)
        r.known = min(int(r.known) + 1, REPS_HELD)
        if r.frozen and now > r.thaw_at:
            r.frozen = 0
            r.explore = bdp_packets(q, c)


@inlined
def bdp_packets(q, c):
    """Packets in a plane's BDP, at least one."""
    return max(int(c.port_rate_bps * float(c.base_rtt_ps) / PS_BITS / q.pkt), 1)


assert REPS_HELD < 128  # `head` and its like are one byte
