"""The best times at which a component lost a part of its packets, compiled.

A component is well or loses packets, and changes between the two: its first change for the worse
costs its prior, each further one less. The best path through these two states is found in one pass
over what it met. Entries of a component are in order of time; arrays are those of `search.Pairs`.
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
    which, first, packet, back, before, after, gains, through, level, dies, prior, again,
    at_us, lasting, less, nats, rates,
):  # fmt: skip
    """Write to `nats` and `rates` [components] the largest gain of each of `which`, less what its
    changes cost, and the number of the rate. `gains` [rates, losses]; `through` [rates]: the cost
    of a packet that arrived; `level` [rates]; `dies`
    [components]: whether only what lets nothing through is tried; `again`, `lasting` [components]:
    the cost of each further change, and of each us; `less` [losses]: of each
    loss, where there is a cost of each us.
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
            losing, well = NEVER, NEVER  # well: after a first run
            for k in range(first[c], first[c + 1]):
                start = max(-prior[c], well - again[c]) - before[row, k] * cost
                if k > first[c]:
                    losing -= lasting[c] * (at_us[k] - at_us[k - 1])
                losing = max(losing, start) + _gain(
                    k, rate, packet, back, gains, through, n_lost, level
                )
                if lasting[c] > 0 and packet[k] < n_lost:
                    losing -= less[packet[k]]
                well = max(well, losing + after[row, k] * cost)
            if well > nats[c]:
                nats[c], rates[c] = well, rate
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
    c, rate, first, packet, back, before, after, gains, through, level, prior, again, at_us,
    lasting, less, began, previous, runs,
):  # fmt: skip
    """Write to `runs` [2, most] the first and last entries of the runs of a component, the last run
    first; return how many there are. `began`, `previous`: space for as many entries as it has.
    """
    n_lost, row, cost = gains.shape[1], min(level[rate], 1), through[rate]
    losing, well = NEVER, NEVER
    begin, end = -1, -1
    base = first[c]
    for k in range(base, first[c + 1]):
        again_at = well - again
        start = max(-prior, again_at) - before[row, k] * cost
        if k > base:
            losing -= lasting * (at_us[k] - at_us[k - 1])
        if start > losing:
            losing, begin = start, k
            previous[k - base] = end if again_at > -prior else -1
        losing += _gain(k, rate, packet, back, gains, through, n_lost, level)
        if lasting > 0 and packet[k] < n_lost:
            losing -= less[packet[k]]
        began[k - base] = begin
        if losing + after[row, k] * cost > well:
            well, end = losing + after[row, k] * cost, k
    n = 0
    while end >= 0 and n < runs.shape[1]:
        runs[0, n], runs[1, n] = began[end - base], end
        end = previous[began[end - base] - base]
        n += 1
    return n
