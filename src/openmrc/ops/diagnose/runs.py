"""The best times at which a component lost a part of its packets, compiled.

A component is well or loses packets, and changes between the two: its first change for the worse
costs its prior, each further one less. The best path through these two states is found in one pass
over what it met. What arrived in the bins in which it first fails and last recovers may have been
outside of its runs, as fast as links carry it; but around a run that is shorter than a bin, and
between two runs, evenly. Entries of
a component are in order of time; arrays are those of `search.Pairs`.
"""

from __future__ import annotations

import math

from openmrc.jit import compiled, inlined

NEVER = -1e300
# What is said of a rate: it is that of data; of packets of all sorts; nothing passes, no answer
# either.
OF_DATA, OF_ALL, DEAD = range(3)


@inlined
def _gain(k, rate, packet, back, gains, through, n_lost, level):
    """How much an entry speaks for a component that loses packets then."""
    if back[k] and level[rate] < DEAD:  # one lost answer among many does no harm
        return 0.0
    return gains[rate, packet[k]] if packet[k] < n_lost else through[rate]


@compiled
def best_rates(
    which, first, packet, back, before, first_even, even, after, gains, through, level, dies,
    prior, again, at_us, within_us, nats, rates,
):  # fmt: skip
    """Write to `nats` and `rates` [components] the largest gain of each of `which`, less what its
    changes cost, and the number of the rate. `gains` [rates, losses]; `through` [rates]: the cost
    of a packet that arrived; `level` [rates]; `dies` [components]: whether only what lets nothing
    through is tried; `again` [components]: the cost of each further change; `within_us`
    [entries]: what begins at one and is shorter is within a bin.
    """
    n_lost = gains.shape[1]
    for at in range(len(which)):
        c = which[at]
        nats[c], rates[c] = NEVER, 0
        every_other, near = (len(through) + 1) // 2, 0
        for number in range(every_other + 2):  # and then those beside the best of them
            rate = 2 * number
            if number >= every_other:
                rate = near - 1 + 2 * (number - every_other)
                if rate < 0 or rate >= len(through):
                    continue
            if dies[c] and level[rate] < DEAD:
                continue
            row, cost = min(level[rate], 1), through[rate]
            # Well: after a first run. Short: a run within a bin.
            losing, short, well, best, begin, upto = NEVER, NEVER, NEVER, NEVER, first[c], 0.0
            for k in range(first[c], first[c + 1]):
                start = max(-prior[c], well - again[c]) - first_even[row, k] * cost
                own = _gain(k, rate, packet, back, gains, through, n_lost, level)
                if max(start, -prior[c] - before[row, k] * cost) > losing:
                    losing, begin, upto = start, k, first_even[row, k]
                    if -prior[c] - before[row, k] * cost > start:
                        losing, upto = -prior[c] - before[row, k] * cost, before[row, k]
                losing += own
                short = max(short, start) + own
                well = max(well, short + even[row, k] * cost)
                if at_us[k] - at_us[begin] >= within_us[begin]:
                    well = max(well, losing + max(even[row, k], upto) * cost)
                    best = max(best, losing + max(after[row, k], upto) * cost)
                best = max(best, well)
            if best > nats[c]:
                nats[c], rates[c] = best, rate
            if number < every_other:
                near = rates[c]


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
    again, at_us, within_us, began, previous, runs,
):  # fmt: skip
    """Write to `runs` [2, most] the first and last entries of the runs of a component, the last run
    first; return how many there are. `began`, `previous` [2, most]: space for as many entries
    as it has, of runs that are long and short.
    """
    n_lost, row, cost = gains.shape[1], min(level[rate], 1), through[rate]
    losing, short, well, best = NEVER, NEVER, NEVER, NEVER
    begin, begin_short, upto = -1, -1, 0.0
    over, end = -1, -1  # twice the last entry of the best runs so far, and 1 more if it is short
    base = first[c]
    for k in range(base, first[c + 1]):
        start, came = -prior, -1
        if well - again > -prior:
            start, came = well - again, over
        start -= first_even[row, k] * cost
        own = _gain(k, rate, packet, back, gains, through, n_lost, level)
        if max(start, -prior - before[row, k] * cost) > losing:
            losing, begin, upto = start, k, first_even[row, k]
            previous[0, k - base] = came
            if -prior - before[row, k] * cost > start:
                losing, upto = -prior - before[row, k] * cost, before[row, k]
                previous[0, k - base] = -1
        if start > short:
            short, begin_short = start, k
            previous[1, k - base] = came
        losing, short = losing + own, short + own
        began[0, k - base], began[1, k - base] = begin, begin_short
        if short + even[row, k] * cost > well:
            well, over = short + even[row, k] * cost, 2 * k + 1
        if at_us[k] - at_us[begin] >= within_us[begin]:
            if losing + max(even[row, k], upto) * cost > well:
                well, over = losing + max(even[row, k], upto) * cost, 2 * k
            if losing + max(after[row, k], upto) * cost > best:
                best, end = losing + max(after[row, k], upto) * cost, 2 * k
        if well > best:
            best, end = well, over
    n = 0
    while end >= 0 and n < runs.shape[1]:
        at = began[end % 2, end // 2 - base]
        runs[0, n], runs[1, n] = at, end // 2
        end = previous[end % 2, at - base]
        n += 1
    return n
