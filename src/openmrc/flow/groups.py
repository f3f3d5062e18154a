"""The times of a training job's phases, compiled: how long the groups of a stage take over a
collective, all groups at once; and when phases end that wait for each other.

What a message takes is its bytes over what its pair of NICs has (`capacity`), and then its way.
Messages that a NIC sends at once share its ports evenly. Arrays are [groups, members], ps.
"""

from __future__ import annotations

import math

from openmrc.flow.rates import TINY
from openmrc.jit import compiled, inner


@inner
def pair_bytes_per_ps(has, i, j, n):
    """What NIC `i` sends to `j` when both have `n` such flows, and how many tiers they climb."""
    common = 0.0
    sends = 0.0
    receives = 0.0
    for k in range(has.out.shape[1]):
        common += min(has.out[i, k], has.into[j, k])
        sends += has.out[i, k]
        receives += has.into[j, k]
    rate = min(common, min(sends, receives) / n)
    climbs = 0
    for tier in range(has.block.shape[0]):
        if has.block[tier, i] == has.block[tier, j]:
            break
        rate = min(rate, has.up[tier, i] / n, has.down[tier, j] / n)
        climbs += 1
    return rate, climbs


@compiled
def links(has, src, dst, wire_bytes, after_ps, send_ps, way_ps):
    """Write how long each pair of NICs sends a message, and how long it is under way then."""
    for i in range(src.shape[0]):
        rate, climbs = pair_bytes_per_ps(has, src[i], dst[i], 1)
        send_ps[i] = wire_bytes / rate if rate > 0 else math.inf
        way_ps[i] = after_ps[climbs]


@compiled
def ring(start_ps, send_ps, way_ps, steps, sent_ps, ready_ps):
    """Write to `ready_ps` when each member has the last of `steps` messages that go round its ring;
    it passes one on when it has it, has sent the one before, and has begun itself.

    At first both `ready_ps` and `sent_ps` are when each member begins.
    """
    last = start_ps.shape[1] - 1
    for g in range(start_ps.shape[0]):
        for _ in range(steps):
            round_ps = 0.0
            for i in range(last, -1, -1):
                sent = max(ready_ps[g, i], sent_ps[g, i]) + send_ps[g, i]
                sent_ps[g, i] = sent
                arrives = sent + way_ps[g, i]
                if i == last:
                    round_ps = arrives
                else:
                    ready_ps[g, i + 1] = max(arrives, start_ps[g, i + 1])
            ready_ps[g, 0] = max(round_ps, start_ps[g, 0])


@compiled
def exchange(has, nics, start_ps, wire_bytes, after_ps, ready_ps):
    """Write when each member has a message from every other one; all are sent at once."""
    others = nics.shape[1] - 1
    for g in range(nics.shape[0]):
        for to in range(others + 1):
            last = start_ps[g, to]
            for i in range(others + 1):
                if i != to:
                    rate, climbs = pair_bytes_per_ps(has, nics[g, i], nics[g, to], others)
                    send_ps = wire_bytes / rate if rate > 0 else math.inf
                    last = max(last, start_ps[g, i] + send_ps + after_ps[climbs])
            ready_ps[g, to] = last


BEGIN, END, WORK = 0, 1, 2  # columns of `lasts`, ps


@compiled
def pass_time(taken, cost_of, first, waits, stages, series, aside, lasts):
    """Write when each phase begins and ends, as `steps.Ranks` does with one time for each stage.
    `taken` has what a phase takes, for how long it sends, and how many messages at once; `series`
    its queue pairs, and which way it sends.
    """
    for i in range(cost_of.shape[0]):
        begin = 0.0
        for k in range(first[i], first[i + 1]):
            begin = max(begin, lasts[waits[k], END])
        lasts[i, BEGIN] = begin
        lasts[i, END] = begin + taken[cost_of[i], 0]
        lasts[i, WORK] = taken[cost_of[i], 1]
        for side in range(2):
            if stages[i, side] >= 0:
                _meet(taken, cost_of, series, aside, stages[i, side], i, begin, lasts)


@inner
def _meet(taken, cost_of, series, aside, stage, i, begin, lasts):
    """A phase begins at a stage: it shares the ports with those that are under way, of which the
    first column of `aside` has the number.
    """
    kept = 0
    for k in range(1, aside[stage, 0] + 1):
        j = aside[stage, k]
        if lasts[j, END] <= begin:
            continue
        if series[i, 0] == series[j, 0]:  # behind it, as one phase that is longer
            lasts[i, END] = max(lasts[i, END], lasts[j, END] + lasts[i, WORK])
            lasts[i, WORK] += lasts[j, WORK]
            lasts[i, BEGIN] = lasts[j, BEGIN]
            continue
        kept += 1
        aside[stage, kept] = j
        both_messages = max(series[i, 1], series[j, 1]) < 2
        if series[i, 1] == series[j, 1] or not both_messages:
            both = min(lasts[i, END], lasts[j, END]) - max(lasts[i, BEGIN], lasts[j, BEGIN])
            both = max(both, 0.0)
            for each in (i, j):
                there = max(lasts[each, END] - lasts[each, BEGIN], TINY)
                both *= min(lasts[each, WORK] / there, 1.0)
            ratio = taken[cost_of[j], 2] / taken[cost_of[i], 2]
            lasts[i, END] += both * min(ratio, 1.0)
            lasts[j, END] += both * min(1 / ratio, 1.0)
    if kept < aside.shape[1] - 1:
        kept += 1
        aside[stage, kept] = i
    aside[stage, 0] = kept
