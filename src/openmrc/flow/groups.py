"""The times of a training job's phases, compiled: how long the groups of a stage take over a
collective, all groups at once; and when phases end that wait for each other.

What a message takes is its bytes over what its pair of NICs has (`capacity`), and then its way.
Messages that a NIC sends at once share its ports evenly. Arrays are [groups, members], ps.
"""

from __future__ import annotations

import math

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


@compiled
def pass_time(taken, cost_of, first, waits, stages, aside, begun, at):
    """Write when each phase ends, ps: as `Ranks` does, with one time for each stage. `taken` has
    what a phase takes, for how long it sends, and how many messages at once.
    """
    for i in range(cost_of.shape[0]):
        for k in range(first[i], first[i + 1]):
            begun[i] = max(begun[i], at[waits[k]])
        own = cost_of[i]
        at[i] = begun[i] + taken[own, 0]
        if taken[own, 1] <= 0:
            continue
        for side in range(2):
            stage = stages[i, side]
            if stage >= 0:
                beside(taken, cost_of, aside, stage, i, begun, at)


@inner
def beside(taken, cost_of, aside, stage, i, begun, at):
    """A phase begins at a stage: it shares the ports with those that are under way, of which the
    first column of `aside` has the number.
    """
    kept = 0
    own = cost_of[i]
    for k in range(1, aside[stage, 0] + 1):
        j = aside[stage, k]
        if at[j] <= begun[i]:
            continue
        other = cost_of[j]
        both = max(min(at[i], at[j]) - max(begun[i], begun[j]), 0.0)
        for each in (own, other):
            both *= min(taken[each, 1] / taken[each, 0], 1.0)
        at[i] += both * min(taken[other, 2] / taken[own, 2], 1.0)
        at[j] += both * min(taken[own, 2] / taken[other, 2], 1.0)
        kept += 1
        aside[stage, kept] = j
    if kept < aside.shape[1] - 1:
        kept += 1
        aside[stage, kept] = i
    aside[stage, 0] = kept
