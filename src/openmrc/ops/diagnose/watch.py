"""Links to watch: they lost too little to be named, and more than chance explains."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from openmrc.ops.diagnose.answer import MARGIN_NATS
from openmrc.ops.diagnose.components import DIRECTION, NATS
from openmrc.ops.diagnose.search import LOSSES_MIN, Search

# A place is named if one of 10^9 is so by chance; to watch is what one is by chance.
WATCHED_NATS = NATS[DIRECTION] - math.log(1e9)
WATCHED_MAX = 10


class Watched(NamedTuple):
    """A link, or one of several, and what it lost; times in us of the run."""

    where: str
    since_us: float
    until_us: float
    lost: int
    queue_pairs: int


def watched(search: Search) -> list[Watched]:
    """Return the links that explain most of what neither chance nor the faults do."""
    lost, fabric = search.seen.lost, search.seen.fabric
    left = np.where(lost.ev < 0, 0.0, -search.now * search.draws)
    found: list[Watched] = []
    while len(found) < WATCHED_MAX:
        nats = np.zeros(fabric.n_ports + 1)  # the last is that of no port
        for column in lost.routes.T:
            nats += np.bincount(np.where(column < 0, fabric.n_ports, column), left, len(nats))
        near = np.flatnonzero(nats[:-1] >= nats[:-1].max() - MARGIN_NATS)
        if not len(near) or nats[:-1].max() < WATCHED_NATS:
            break
        port = int(np.argmax(nats[:-1]))
        mine = (lost.routes == port).any(axis=1) & (left > 0)
        left[mine] = 0.0
        n = int(search.weight[mine].sum())
        if n < LOSSES_MIN:
            continue
        names = next(row for row in search.table.rows if row.ports == (port,))
        more = len(near) - 1 + len(names.others)
        known_us, qps = lost.known_us[mine], np.unique(lost.qp[mine])
        where = names.where + f" or {more} more" * (more > 0)
        found.append(Watched(where, float(known_us.min()), float(known_us.max()), n, len(qps)))
    return found
