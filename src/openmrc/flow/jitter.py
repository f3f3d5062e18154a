"""How late jitter makes packets. None overtakes another of its port, so each arrives after those
before it.

Of `n` packets that are sent at once the last is late by the most that is drawn for any of them.
Of packets that others send through the port, at any time, `m` within the longest jitter on average,
one is still to come that is later by more than x with the probability 1 - exp(-m (1 - x)^2 / 2),
where the longest jitter is 1. A message that is sprayed waits for the slowest of its planes.
"""

from __future__ import annotations

import math

from openmrc.flow import losses
from openmrc.flow.state import DATA, LAST
from openmrc.jit import inlined, inner


@inlined
def _recent(fl, r, now):
    """Packets that a pool sent within the jitter of a link, those of long ago forgotten evenly."""
    pool = fl.pool[r]
    return pool.recent * math.exp(-(now - pool.recent_at) / fl.c[0].jitter_ps)


@inner
def _pool_of(fl, f, k):
    """A pool of NICs on the way of a flow, or of its answers, which may be faint."""
    r = int(fl.way[f, k])
    return r if r >= 0 or k < DATA else int(fl.faint[f, k - DATA])


@inner
def note(fl, f, first, packets, now):
    """A flow sends packets, or answers: `first` is 0 or `DATA`."""
    if fl.c[0].jitter_ps > 0:
        for k in (first, first + LAST):
            r = _pool_of(fl, f, k)
            if r >= 0:
                fl.pool[r].recent = _recent(fl, r, now) + packets
                fl.pool[r].recent_at = now


@inner
def late_ps(fl, f, first, links, follow, now):
    """How late the last of so many packets is that follow each other closely, ps."""
    c = fl.c[0]
    if c.jitter_ps <= 0:
        return 0
    others = 0.0
    for k in (first, first + LAST):
        r = _pool_of(fl, f, k)
        if r >= 0:
            others += _recent(fl, r, now) / 2
    others /= c.ports
    planes = min(int(c.ports), math.ceil(follow))
    latest = 0.0
    for _ in range(planes):
        late = 0.0
        for _ in range(links):
            own = losses.drawn(fl, f) ** (planes / follow)
            if others > 0:
                draw = max(losses.drawn(fl, f), losses.SELDOM)
                own = max(own, 1 - math.sqrt(-2 * math.log(draw) / others))
            late += own
        latest = max(latest, late)
    return int(c.jitter_ps * latest)
