"""The best times at which a component lost a part of its packets, compiled.

A component is well or loses packets, and changes between the two: its first change for the worse
costs its prior, each further one less. The best path through these two states is found in one pass
over what it met. What arrived in the bins in which it fails and recovers may have been outside
of its runs, as fast as links carry it; but around a run that is shorter than a bin, and in a pause
that is, evenly. Three beginnings are kept on the way: the best if all that arrives from
now on speaks against the run, the best if nothing does, and the best of a run within a bin.
Entries of a component are in order of time; arrays are those of `search.Pairs`.
"""

from __future__ import annotations

import math

from openmrc.jit import compiled, inlined

NEVER = -1e300
# What is said of a rate: it is that of data, and small packets pass, probes among them; of data; of
# packets of all sorts; nothing passes, no answer either.
NARROW, OF_DATA, OF_ALL, DEAD = range(4)
WIDE, FREE, SHORT = range(3)  # beginnings that are kept


@inlined
def _gain(k, rate, packet, back, gains, through, n_lost, level):
    """How much an entry speaks for a component that loses packets then."""
    if back[k] and level[rate] < DEAD:  # one lost answer among many does no harm
        return 0.0
    if packet[k] < n_lost:
        return gains[rate, packet[k]]
    return 0.0 if level[rate] == NARROW else through[rate]


@inlined
def _path(
    c, rate, first, packet, back, before, first_even, even, after, gains, through, level, prior,
    again, at_us, within_us, value, upto, began, previous,
):  # fmt: skip
    """Return the gain of the best runs of a component, less what its changes cost, and the end of
    the last one: three times its entry, and which of the beginnings. To `began` and `previous`
    [3, most] are written, by that and entry, where a run begins that ends here, and the end of the
    run before one that begins here, -1 if there is none. `value`, `upto` [3]: space, for what each
    beginning is worth, and how much had arrived by then.
    """
    n_lost, row, cost = gains.shape[1], int(level[rate] >= OF_ALL), through[rate]
    total = level[rate] == DEAD or level[rate] == NARROW
    well, best, over, end, base = NEVER, NEVER, -1, -1, first[c]
    value[:], upto[:] = NEVER, 0.0
    for k in range(base, first[c + 1]):
        start, came = -prior, -1  # it was well until now, and is so no more
        if well - again > -prior:
            start, came = well - again, over
        fresh, before_it = -prior, -1  # the same after a pause that is longer than a bin
        paused = end >= 0 and at_us[k] - at_us[end // 3] >= within_us[end // 3]
        if paused and best - again > -prior:
            fresh, before_it = best - again, end
        own = _gain(k, rate, packet, back, gains, through, n_lost, level)
        for i in range(0 if total else SHORT, 3):
            begin = began[i, k - base - 1] if k > base else base
            weighs = 0.0 if i == FREE else cost
            new, so_far, last = start, first_even[row, k], came
            if i != SHORT and fresh - before[row, k] * weighs >= start - so_far * weighs:
                new, so_far, last = fresh, before[row, k], before_it
            if new - so_far * weighs > value[i] - upto[i] * weighs:
                value[i], upto[i], begin = new, so_far, k
                previous[i, k - base] = last
            value[i] += own
            began[i, k - base] = begin
            if own <= 0:  # what arrived ends no run
                continue
            if i != SHORT and at_us[k] - at_us[begin] < within_us[begin]:
                continue
            each = value[i] + max(even[row, k] - upto[i], 0.0) * cost
            if each > well:
                well, over = each, 3 * k + i
            if i != SHORT:
                each = value[i] + max(after[row, k] - upto[i], 0.0) * cost
            if each > best:
                best, end = each, 3 * k + i
        if well > best:
            best, end = well, over
    return best, end


@compiled
def best_rates(
    which, first, packet, back, before, first_even, even, after, gains, through, level, dies,
    prior, again, at_us, within_us, nats, rates, value, upto, began, previous,
):  # fmt: skip
    """Write to `nats` and `rates` [2, components] the largest gain of each of `which`, less what
    its changes cost, and the number of the rate: of rates of which some passes, and of which
    nothing does, or nothing large. `gains` [rates, losses]; `through` [rates]: the cost of a packet
    that arrived; `level` [rates]; `dies` [components]: whether only what lets nothing through is
    tried; `again` [components]: the cost of each further change; `within_us` [entries]: what begins
    at one and is shorter is within a bin; the last ones: space (`_path`).
    """
    for at in range(len(which)):
        c = which[at]
        nats[:, c], rates[:, c] = NEVER, 0
        narrow = len(through) - 1  # the last one
        every_other, near = (narrow + 1) // 2, 0
        for number in range(every_other + 3):  # then those beside the best of them
            rate = 2 * number
            if number == every_other + 2:
                rate = narrow
            elif number >= every_other:
                rate = near - 1 + 2 * (number - every_other)
                if rate <= 0 or rate >= narrow:
                    continue
            total = int(level[rate] == NARROW or level[rate] == DEAD)
            if dies[c] and level[rate] < DEAD:
                continue
            best, _ = _path(
                c, rate, first, packet, back, before, first_even, even, after, gains, through,
                level, prior[c], again[c], at_us, within_us, value, upto, began, previous,
            )  # fmt: skip
            if best > nats[total, c]:
                nats[total, c], rates[total, c] = best, rate
            if number < every_other:
                near = rates[0, c]


@compiled
def explain(left, now, weight, which, every_rate, gains):
    """Write to `gains` [rates, losses] how much each rate would explain of each of `which` losses,
    of which `now` is the logarithm of the probability, and `left` that of no loss.
    """
    for i in range(len(which)):
        for rate in range(len(every_rate)):
            own = math.log1p(-left[i] * (1 - every_rate[rate]))
            gains[rate, which[i]] = (own - now[i]) * weight[i]


@compiled
def touch(which, first, components, stale):
    """Set `stale` [components] for those that met any of `which` losses."""
    for i in which:
        for k in range(first[i], first[i + 1]):
            stale[components[k]] = True


@compiled
def best_runs(
    c, rate, first, packet, back, before, first_even, even, after, gains, through, level, prior,
    again, at_us, within_us, runs, value, upto, began, previous,
):  # fmt: skip
    """Write to `runs` [2, most] the first and last entries of the runs of a component, the last run
    first; return how many there are.
    """
    _, end = _path(
        c, rate, first, packet, back, before, first_even, even, after, gains, through, level,
        prior, again, at_us, within_us, value, upto, began, previous,
    )  # fmt: skip
    n, base = 0, first[c]
    while end >= 0 and n < runs.shape[1]:
        at = began[end % 3, end // 3 - base]
        runs[0, n], runs[1, n] = at, end // 3
        end = previous[end % 3, at - base]
        n += 1
    return n
