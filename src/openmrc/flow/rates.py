"""Max-min fair rates, computed anew for those flows alone that a change can affect.

A pool that is full divides its bandwidth; one that is not affects nobody. So influence passes from
flow to flow through full pools only: from those on the way of a flow that begins, or that the end
of another has left with room, to all of their flows, to the full pools on their ways, and so on.
Of the pools met rates are filled from below: the pool with the least for each of its flows fixes
them, which leaves more or less for the others. A pool that had room and has none with these rates
is met too, and the rates are computed once more. What was not met keeps its rate, and the result is
that of a computation for all flows at once.

Answers (acknowledgements) are part of it: a flow takes of the ports on its way back what its
answers take. Between switches, and where that is less than `FAINT` of its rate, it is taken off
what a pool shares when that is computed anyway: otherwise rings of flows would hang together by
their answers, and every change would be one for all.
"""

from __future__ import annotations

import math

from openmrc.flow.state import BACK, DATA, IDLE, LAST, WAY
from openmrc.jit import inlined, inner

TINY = 1e-30
FAINT = 0.02
STALE = FAINT / 10  # of a pool: with so many more or fewer answers its rates are computed again,
ANSWERED = 4  # up to so many times, each of which leaves a fiftieth of what it was off
NEAR = 1e-9  # shares of a pool that count as equal


@inner
def join(fl, f):
    """A flow begins to send: enter it into the lists of its pools; it has no rate yet."""
    for k in range(WAY):
        r = int(fl.way[f, k])
        if r < 0:
            continue
        node = f * WAY + k
        head = int(fl.pool[r].head)
        fl.behind[node] = head
        fl.before[node] = -1
        if head >= 0:
            fl.before[head] = node
        fl.pool[r].head = node
    if fl.flow[f].fresh == 0:
        c = fl.c[0]
        fl.flow[f].fresh = 1
        fl.fresh[c.n_fresh] = f
        c.n_fresh += 1


@inlined
def send_up_to(flow, now):
    """What a flow has sent at its rate up to now is sent."""
    flow.left_bytes = max(flow.left_bytes - flow.rate * (now - flow.at), 0.0)
    flow.at = now


@inner
def leave(fl, f):
    """A flow has nothing to send: remove it; pools that it leaves with room are dirty."""
    _set_rate(fl, f, 0.0)
    for k in range(WAY):
        r = int(fl.way[f, k])
        if r < 0:
            continue
        node = f * WAY + k
        after = int(fl.behind[node])
        ahead = int(fl.before[node])
        if after >= 0:
            fl.before[after] = ahead
        if ahead >= 0:
            fl.behind[ahead] = after
        else:
            fl.pool[r].head = after
        if fl.pool[r].full:
            make_dirty(fl, r)


@inlined
def make_dirty(fl, r):
    """The flows of a pool may have other rates now."""
    c = fl.c[0]
    if fl.pool[r].dirty == 0:
        fl.pool[r].dirty = 1
        fl.dirty[c.n_dirty] = r
        c.n_dirty += 1


@inner
def _set_rate(fl, f, rate):
    """Give a flow a rate: the loads of its pools follow."""
    flow = fl.flow[f]
    more = rate - flow.rate
    flow.rate = rate
    for k in range(WAY):
        r = int(fl.way[f, k])
        if r >= 0:
            fl.pool[r].load += more * _weight(flow, k)
    for k in range(BACK):
        r = int(fl.faint[f, k])
        if r >= 0:
            fl.pool[r].faint += more * flow.answers


@inlined
def _weight(flow, k):
    """What a flow takes of the k-th pool of its way at a rate of 1."""
    if k >= DATA:
        return flow.answers
    if k > LAST:
        return flow.crowd
    return flow.burden if k == LAST else 1.0


@inlined
def _is_full(pool):
    """Whether a pool limits its flows; if its answers have become fewer it did when they were
    computed.
    """
    return pool.load + pool.faint >= pool.bytes_per_ps * (1 - FAINT)


@inner
def _consider(fl, r):
    """Meet a pool, if it is not met yet."""
    c = fl.c[0]
    if fl.pool[r].met == 0:
        fl.pool[r].met = 1
        fl.considered[c.n_pools] = r
        c.n_pools += 1


@inner
def _meet(fl, f, now):
    """Meet a flow, and the full pools on its way."""
    c = fl.c[0]
    if fl.flow[f].met:
        return
    send_up_to(fl.flow[f], now)
    fl.flow[f].met = 1
    fl.met[c.n_met] = f
    c.n_met += 1
    for k in range(WAY):
        r = int(fl.way[f, k])
        if r < 0:
            continue
        pool = fl.pool[r]
        if pool.touched == 0:
            pool.touched = 1
            fl.touched[c.n_touched] = r
            c.n_touched += 1
        if pool.full:
            _consider(fl, r)


@inner
def _spread(fl, first, now):
    """Meet all flows of the pools from number `first` on, and what these lead to."""
    i = first
    while i < fl.c[0].n_pools:
        node = int(fl.pool[fl.considered[i]].head)
        while node >= 0:
            _meet(fl, node // WAY, now)
            node = int(fl.behind[node])
        i += 1


@inner
def _fill(fl):
    """Compute the rates of all flows met; they are kept in `rate`, the loads follow later."""
    c = fl.c[0]
    lowest = math.inf
    for i in range(c.n_met):
        flow = fl.flow[fl.met[i]]
        flow.fixed = 0
        lowest = min(lowest, flow.rate_max / flow.claim)
    for i in range(c.n_pools):
        pool = fl.pool[fl.considered[i]]
        pool.shared = max(pool.bytes_per_ps - pool.faint, 0.0)
        pool.left = pool.shared
        pool.weight = 0.0
        pool.waiting = 0
        node = int(pool.head)
        while node >= 0:
            flow = fl.flow[node // WAY]
            pool.weight += _weight(flow, node % WAY) * flow.claim
            pool.waiting += 1
            node = int(fl.behind[node])
    open_pools = int(c.n_pools)
    while True:
        least = -1
        share = 0.0
        i = 0
        while i < open_pools:
            r = int(fl.considered[i])
            pool = fl.pool[r]
            if pool.waiting == 0:  # behind those that are open, where it stays met
                open_pools -= 1
                fl.considered[i] = fl.considered[open_pools]
                fl.considered[open_pools] = r
                continue
            each = pool.left / pool.weight
            if least < 0 or each < share:
                least = r
                share = each
            i += 1
        if (least < 0 or lowest <= share) and _fix_those_below(fl, share, least):
            continue
        if least < 0:
            return
        node = int(fl.pool[least].head)
        while node >= 0:
            f = node // WAY
            node = int(fl.behind[node])
            if fl.flow[f].fixed == 0:
                _fix(fl, f, share * fl.flow[f].claim)


@inner
def _fix_those_below(fl, share, least):
    """Fix the flows that can have no more than the least share; True if there are any."""
    c = fl.c[0]
    found = False
    for i in range(c.n_met):
        f = int(fl.met[i])
        flow = fl.flow[f]
        if flow.fixed == 0 and (least < 0 or flow.rate_max <= share * flow.claim):
            _fix(fl, f, flow.rate_max)
            found = True
    return found


@inner
def _fix(fl, f, rate):
    """The rate of a flow is known."""
    flow = fl.flow[f]
    flow.fixed = 1
    _set_rate(fl, f, rate)
    for k in range(WAY):
        r = int(fl.way[f, k])
        if r < 0:
            continue
        pool = fl.pool[r]
        if pool.met:
            weight = _weight(flow, k)
            pool.left = max(pool.left - rate * weight, 0.0)
            pool.weight = max(pool.weight - weight * flow.claim, TINY)
            pool.waiting -= 1


@inner
def _overloaded(fl):
    """Meet the pools that cannot carry these rates; True if there are any."""
    c = fl.c[0]
    found = False
    for i in range(c.n_touched):
        r = int(fl.touched[i])
        pool = fl.pool[r]
        if pool.met == 0 and pool.load > (pool.bytes_per_ps - pool.faint) * (1 + NEAR):
            _consider(fl, r)
            found = True
    return found


@inner
def _is_stale(fl):
    """Whether a pool has other answers with these rates than those that were taken off it."""
    for i in range(fl.c[0].n_pools):
        pool = fl.pool[fl.considered[i]]
        left = max(pool.bytes_per_ps - pool.faint, 0.0)
        if abs(left - pool.shared) > STALE * pool.bytes_per_ps:
            return True
    return False


@inner
def _cross(fl):
    """Count the pools with queues that each flow met crosses, beyond the first: of each it has
    less than its neighbours (`crowded`). True if any has other claims than before.
    """
    found = False
    for i in range(fl.c[0].n_met):
        flow = fl.flow[fl.met[i]]
        crosses = 0
        for k in range(LAST, DATA):
            r = int(fl.way[fl.met[i], k])
            if r >= 0 and _is_full(fl.pool[r]) and fl.behind[fl.pool[r].head] >= 0:
                crosses += 1
        claim = flow.portion * flow.yields ** max(crosses - 1, 0)
        found = found or claim != flow.claim
        flow.claim = claim
    return found


@inner
def compute(fl, now):
    """Compute the rates that what is dirty or fresh can affect; `met` has the flows. Call `forget`
    once they are used.
    """
    c = fl.c[0]
    for i in range(c.n_fresh):
        f = int(fl.fresh[i])
        fl.flow[f].fresh = 0
        if fl.flow[f].entry != IDLE:
            _meet(fl, f, now)
    c.n_fresh = 0
    for i in range(c.n_dirty):
        r = int(fl.dirty[i])
        fl.pool[r].dirty = 0
        if fl.pool[r].head >= 0:
            _consider(fl, r)
        else:
            fl.pool[r].full = 0
    c.n_dirty = 0
    first = 0
    again = 0
    crossed = False
    while True:
        _spread(fl, first, now)
        _fill(fl)
        first = int(c.n_pools)
        if not _overloaded(fl):
            if not crossed:
                crossed = True
                if _cross(fl):
                    continue
            again += 1
            if again >= ANSWERED or not _is_stale(fl):
                break


@inner
def forget(fl):
    """The rates computed are in use: what they fill is full."""
    c = fl.c[0]
    for i in range(c.n_touched):
        pool = fl.pool[fl.touched[i]]
        pool.touched = 0
        pool.full = 1 if _is_full(pool) else 0
    for i in range(c.n_pools):
        pool = fl.pool[fl.considered[i]]
        pool.met = 0
        pool.full = 1 if _is_full(pool) else 0
    for i in range(c.n_met):
        fl.flow[fl.met[i]].met = 0
    c.n_met = 0
    c.n_pools = 0
    c.n_touched = 0
