"""The faults as places: one for each component, with what else it may be, and edges as ranges."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from openmrc.fabric.model import IntArray
from openmrc.ops.diagnose.components import KINDS, Component
from openmrc.ops.diagnose.counters import MOST_OF
from openmrc.ops.diagnose.observed import FloatArray
from openmrc.ops.diagnose.runs import DEAD, NARROW, OF_ALL
from openmrc.ops.diagnose.search import AROUND, FRONT, RATES, Fault, Search

# Within which two explanations, or an edge and another, cannot be told apart: one in 150.
MARGIN_NATS = 5.0
PAUSES_MIN = 2  # one pause has no length to expect another by: two are the fewest to compare
# What is damaged loses half at most, so what is nearer to all than to half, as ratios go, is dead:
# packets that leave at its edges pass.
DEAD_MIN = math.sqrt(0.5)

Range = tuple[float, float]


class Place(NamedTuple):
    """A place that broke; times in us of the run."""

    where: str
    kind: str
    one_of: tuple[str, ...]
    dead: bool
    is_whole: bool  # nothing passes, whichever of several it is
    rate: float
    lost: int
    since_us: tuple[float, float]  # last seen well at, first lost at
    until_us: tuple[float, float]  # last lost at, next seen well at
    times: int  # how often it was bad
    noticed_us: tuple[float, float]  # when senders knew of the first and the last loss
    nats: float
    ports: tuple[int, ...]
    paths: frozenset[tuple[int, int]]  # queue pair and EV of those that lost packets there
    downs: int  # how often ports there said that they went down
    ahead: float  # by how much, nats, it explains more than chance
    narrow: bool = False  # it passes small packets, and loses large ones


def places(search: Search) -> list[Place]:
    """Return the places that the faults of a search are."""
    by_component: dict[int, list[Fault]] = {}
    for fault in search.faults:
        by_component.setdefault(fault.component, []).append(fault)
    found = [_place(search, which, faults) for which, faults in by_component.items()]
    return sorted(found, key=lambda it: (bool(it.one_of), -it.lost, it.where))


def _place(search: Search, component: int, faults: list[Fault]) -> Place:
    row = search.table.rows[component]
    main = max(faults, key=lambda it: it.lost)
    lost = np.unique(np.concatenate([search.losses(it) for it in faults]))
    known, told = search.seen.lost.known_us[lost], search.seen.lost.ev[lost] < 0
    n_lost = int(search.weight[lost[~told]].sum())
    pairs = zip(search.seen.lost.qp[lost].tolist(), search.seen.lost.ev[lost].tolist(), strict=True)
    paths = frozenset((qp, ev) for qp, ev in pairs if qp >= 0)
    kept = search.faults
    search.set([it for it in kept if it not in faults])
    near, ahead = _others(search, component)
    others = (*row.others, *near)
    begun = [_begin(search, it) for it in faults]
    over = [_end(search, it) for it in faults]
    search.set(kept)
    since, until = min(begun), max(over)
    until = until[0], max(until[1], _again_until(search, faults))
    if told.any():
        own = [it for *it, fault in zip(begun, over, faults, strict=True) if fault.told]
        since, until = _as_told(
            search, lost[told], min(it[0] for it in own), max(it[1] for it in own)
        )
    elif not any(search.table.shared(component, it.component) for it in kept):
        since, until = _as_counted(search, row, n_lost, since, until)
    narrow = main.level == NARROW or _is_told_narrow(search, paths)
    rate = 1.0 if narrow else _rate(search, main)
    return Place(
        row.where, KINDS[row.kind], others, _is_dead(search, main, rate),
        main.level == DEAD, rate, n_lost,
        since, until, sum(len(it.spans_us) for it in faults),
        (float(known.min()), float(known.max())), sum(it.nats for it in faults), row.ports,
        paths, sum(len(it.spans_us) for it in faults) if told.any() else 0, ahead, narrow,
    )  # fmt: skip


def _is_told_narrow(search: Search, paths: frozenset[tuple[int, int]]) -> bool:
    """Whether senders say of most of these paths that they pass small packets and lose large ones:
    they have seen it twice in a row, which is chance where half of all is lost.
    """
    return len(search.seen.narrow & paths) > MOST_OF * len(paths)


def _is_dead(search: Search, fault: Fault, rate: float) -> bool:
    """Whether no data came through, as senders know, or nothing at all, as ports count. What
    arrives damaged arrives.
    """
    row, fabric = search.table.rows[fault.component], search.seen.fabric
    damaged = float(fault.moved[fabric.n_switches + fabric.n_ports :].sum())
    if damaged > MOST_OF * float(fault.moved.sum()):
        return False
    passed = None if row.others else search.counters.passed(row, fault.spans_us)
    return bool(rate >= DEAD_MIN or (passed is not None and passed <= 1 - RATES[0]))


def _as_told(search: Search, told: IntArray, since: Range, until: Range) -> tuple[Range, Range]:
    """The edges of what ports said that they were down: NICs know when; of ports between switches
    they lie between two readings, of which one found them up.
    """
    seen, fabric = search.seen, search.seen.fabric
    port, end_us = seen.lost.routes[told, 0], float(seen.edges_us[-1])
    nics = told[(fabric.port_nic[port] >= 0) | (fabric.port_peer_nic[port] >= 0)]
    at_us = seen.lost.sent_us[nics if len(nics) else told]
    first_us, last_us = float(at_us.min()), float(at_us.max())
    if len(nics):
        return (first_us, first_us), (last_us, last_us if last_us < end_us else np.inf)
    first, last = seen.bin_of(np.array([first_us, last_us])).tolist()
    down = np.append(seen.down[:, port].any(axis=1), False)
    while first > 0 and down[first - 1]:
        first -= 1
    while down[last + 1]:
        last += 1
    early_us, late_us = (float(np.append(seen.edges_us, np.inf)[it]) for it in (first, last + 2))
    begun_us = since[1] if early_us <= since[1] <= first_us else first_us
    over_us = until[0] if last_us <= until[0] <= late_us else last_us
    return (early_us, begun_us), (over_us, late_us)


def _as_counted(
    search: Search, row: Component, n_lost: int, since: Range, until: Range
) -> tuple[Range, Range]:
    """The edges of what is missing on the links of a component, if that is what was lost: it began
    in the first tick in which some is, or before, and ended in the last one, or later.
    """
    gone, edges_us = search.seen.gone[:, list(row.ports)].sum(axis=1), search.seen.edges_us
    if gone.sum() < MOST_OF * n_lost or n_lost == 0:
        return since, until
    first, *_, last = np.flatnonzero(gone).repeat(2).tolist()
    early, late = edges_us[[first, first + 1]].tolist(), edges_us[[last, last + 1]].tolist()
    begun = since[1] if early[0] <= since[1] <= early[1] else early[1]
    over = until[0] if late[0] <= until[0] <= late[1] else late[0]
    return (min(since[0], begun), begun), (over, max(until[1], late[1]))


def _again_until(search: Search, faults: list[Fault]) -> float:
    """Until when a place that was bad again and again may be so once more: it is over after a pause
    that is longer than any before.
    """
    spans = sorted(span for it in faults for span in it.spans_us)
    pauses = [later[0] - each[1] for each, later in pairwise(spans)]
    if len(pauses) < PAUSES_MIN:
        return 0.0
    over_us = max(end for _, end in spans) + max(pauses)
    return over_us if over_us < search.seen.edges_us[-1] else np.inf


def _rate(search: Search, fault: Fault) -> float:
    """The rate of a fault: all, if a NIC saw its own port down; where its component stands for
    several places, of the paths that lost packets, if these are known, since the others may cross
    a healthy one.
    """
    seen, lost = search.seen, search.losses(fault)
    if (seen.lost.ev[lost] < 0).any():
        return 1.0
    if not search.table.rows[fault.component].others or (seen.lost.qp[lost] < 0).all():
        return fault.rate
    paths = np.stack([seen.lost.qp, seen.lost.ev], axis=1)[lost]
    asked = np.stack([seen.answered.qp, seen.answered.ev], axis=1)
    again = np.zeros(len(asked), np.bool_)
    for since_us, until_us in fault.spans_us:
        at_us = seen.answered.sent_us
        again |= (at_us >= since_us) & (at_us <= until_us)
    _, of = np.unique(np.concatenate([paths, asked]), axis=0, return_inverse=True)
    passed = int(np.isin(of.ravel()[len(paths) :][again], of.ravel()[: len(paths)]).sum())
    n_lost = float(search.weight[lost].sum())
    return n_lost / (n_lost + passed)


def _gains(search: Search, fault: Fault) -> tuple[FloatArray, float, int]:
    """How much each entry of the component of a fault speaks for it, the cost of a packet that
    passes, and the number of the kind of rate.
    """
    pairs, n_lost = search.pairs, len(search.seen.lost)
    part = slice(pairs.first[fault.component], pairs.first[fault.component + 1])
    packet = pairs.packet[part]
    cost = float(np.log1p(-fault.draws))
    now = np.append(search.now, 0.0)[np.minimum(packet, n_lost)]
    draws = np.append(search.draws, 1.0)[np.minimum(packet, n_lost)]
    speaks = (np.log1p(-(1 - np.exp(now)) * (1 - fault.draws)) - now) * draws
    if fault.level == NARROW:
        speaks = speaks * ~np.append(search.seen.lost.probe, True)[np.minimum(packet, n_lost)]
    gain = np.where(packet < n_lost, speaks, 0.0 if fault.level == NARROW else cost)
    if fault.level < DEAD:
        gain[pairs.back[part]] = 0.0
    return gain, cost, int(fault.level >= OF_ALL)


def _begin(search: Search, fault: Fault) -> tuple[float, float]:
    """When a fault may have begun: from when on it explains about as much as at best."""
    gain, cost, row = _gains(search, fault)
    pairs = search.pairs
    at_us = pairs.at_us[pairs.first[fault.component] : pairs.first[fault.component + 1]]
    last = int(np.searchsorted(at_us, fault.spans_us[0][1], side="right")) - 1
    base = int(pairs.first[fault.component])
    only, total = np.array(len(fault.spans_us) == 1), np.array(fault.level in (DEAD, NARROW))
    passed = search.passed(
        row, base + np.arange(last + 1), np.array(base + last), total, total & only
    )
    worth = np.cumsum(gain[last::-1])[::-1] + passed * cost
    near = np.flatnonzero(worth >= worth.max() - MARGIN_NATS)
    first = int(near[0])
    slack = float(worth[first] - worth.max() + MARGIN_NATS)
    earliest = _moved(search, fault, float(at_us[first]), -slack / cost, -1)
    earliest = max(earliest - search.seen.rtt_us, 0.0)  # answers come so much later
    if first > 0:
        earliest = max(earliest, float(at_us[first - 1]))
    known = search.seen.lost.known_us
    packet = pairs.packet[pairs.first[fault.component] :][: int(near[-1]) + 1][first:]
    packet = packet[packet < len(known)]
    latest = float(at_us[near[-1]])
    if len(packet):
        latest = max(latest, float(known[packet].min()) - search.seen.rtt_us)
    return earliest, latest


def _end(search: Search, fault: Fault) -> tuple[float, float]:
    """When a fault may have ended."""
    gain, cost, row = _gains(search, fault)
    pairs = search.pairs
    part = slice(pairs.first[fault.component], pairs.first[fault.component + 1])
    at_us = pairs.at_us[part]
    begin = int(np.searchsorted(at_us, fault.spans_us[-1][0]))
    base = int(pairs.first[fault.component])
    only, total = np.array(len(fault.spans_us) == 1), np.array(fault.level in (DEAD, NARROW))
    passed = search.passed(
        row, np.array(base + begin), base + np.arange(begin, len(at_us)), total & only, total
    )
    worth = np.cumsum(gain[begin:]) + passed * cost
    near = begin + np.flatnonzero(worth >= worth.max() - MARGIN_NATS)
    last = int(near[-1])
    slack = float(worth[last - begin] - worth.max() + MARGIN_NATS)
    # Answers may come so much later of what crossed it before.
    from_us = float(at_us[last]) + (1 + FRONT) * search.seen.rtt_us
    latest = _moved(search, fault, from_us, -slack / cost, 1)
    if last + 1 < len(at_us):
        latest = min(latest, float(at_us[last + 1]))
    rtt_us = search.seen.rtt_us
    on_link_us = rtt_us / 2 / search.seen.lost.routes.shape[1]  # it was lost before it came out
    last_us = float(at_us[near[0]]) - on_link_us - AROUND * rtt_us
    return last_us, latest + rtt_us  # what a queue may hold it


def _moved(search: Search, fault: Fault, at_us: float, packets: float, way: int) -> float:
    """The time at which so many packets have crossed the component after a time, or before it."""
    edges = search.seen.edges_us
    points = np.unique(np.append(edges, at_us))
    crossed = search.crossed(fault.component, points)
    here = float(crossed[np.searchsorted(points, at_us)])
    if way < 0:
        return float(np.interp(here - packets, crossed, points, left=0.0))
    if crossed[-1] < here + packets:
        return np.inf
    # the last moment of a pause ends it
    return float(points[np.searchsorted(crossed, here + packets, side="right") - 1 :][:2].max())


def _others(search: Search, component: int) -> tuple[list[str], float]:
    """Places that explain about as much as a component does, and by how much, nats, it explains
    more than chance.
    """
    best = search.best(component)
    own = best.nats if best is not None else 0.0
    net = search.nets(own - MARGIN_NATS)
    near = [it for it in net if it != component and net[it] >= own - MARGIN_NATS]
    rows = [search.table.rows[it] for it in sorted(near, key=lambda it: (-net[it], it))]
    return [name for row in rows for name in (row.where, *row.others)], own
