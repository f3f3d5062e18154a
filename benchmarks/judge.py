"""The judge of `mrc why`: whether what it said is what was broken. It knows the faults, and nothing
of how they are found.

    right       the place, or an honest set of places with it; direction, kind and both edges
    unseen      nothing said, and at most `FEW` packets were lost there
    missed      nothing said
    part, more  a part of the place was named, or more than the place
    many        a set of more than `SET_MAX` places
    wrong kind  what is dead was said to lose a part, or the other way round
    wrong time  an edge is outside the range that was said

Besides, each claim is `healthy` of which no place is broken: the worst that can be said.

A direction or a link of the place that lost at most `FEW` packets may be named and need not be:
nobody can know of it. An edge is known as a range. It is right if the range meets the time between
the fault's edge and the first or last loss, for before and after that nobody can know of it either.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from openmrc.fabric import Fabric, places
from openmrc.fabric.kinds import LINKS_DEFAULT, Fault
from openmrc.ops.finding import Finding
from openmrc.ops.records import Record
from openmrc.units import US

FEW = 4  # losses: with fewer chance is as good an explanation
SET_MAX = 8
LATE_US = 300.0  # until what is lost has been judged so: an RTO
SLACK_US = 0.5  # of what is rounded
RIGHT, UNSEEN, MISSED, PART, MORE, MANY, KIND, TIME = WORDS = (
    *("right", "unseen", "missed", "part", "more", "many", "wrong kind", "wrong time"),
)
GOOD = (RIGHT, UNSEEN)


class Truth(NamedTuple):
    """What was broken; times in us of the run."""

    where: str
    ports: frozenset[int]  # directed
    lossy: frozenset[int]  # those of them that lost more than `FEW` packets
    lost: int
    since_us: tuple[float, float]  # when it broke, and when a packet was first lost there
    until_us: tuple[float, float]  # when one was last lost there, and when it was repaired
    dead: bool
    repeats: bool


class Claim(NamedTuple):
    """What was said to be broken: one of several places, and each edge as a range."""

    where: str
    one_of: tuple[frozenset[int], ...]  # directed ports
    since_us: tuple[float, float]
    until_us: tuple[float, float]
    dead: bool


def ports_of(fabric: Fabric, where: str) -> frozenset[int]:
    """Return all directed ports of a place, or of several."""
    found: set[int] = set()
    for name in places.split(where):
        kind = places.kind_of(name)
        if kind == "transceiver":
            found |= {*places.transceivers(fabric, name, LINKS_DEFAULT).targets.tolist()}
        elif kind == "plane":
            nics = np.arange(fabric.n_nics)
            for plane in places.planes(fabric, name).tolist():
                own = nics * fabric.n_planes + plane
                switch = np.flatnonzero(fabric.sw_plane[np.maximum(fabric.port_switch, 0)] == plane)
                found |= {*own.tolist(), *switch[fabric.port_switch[switch] >= 0].tolist()}
        else:
            found |= {*places.ports(fabric, name).tolist()}
    return frozenset(found)


def across(record: Record, ports: frozenset[int]) -> npt.NDArray[np.bool_]:
    """[rows] Which paths that lost packets cross one of these directed ports, or may cross one."""
    known = sorted(ports)
    if record.outline is not None:
        known = record.outline.port_of[known].tolist()
    return np.asarray(np.isin(record.routes(record.paths), known).any(axis=1), np.bool_)


def truth(record: Record, fault: Fault) -> Truth:
    """Return what a fault broke, and what of it senders could notice at all."""
    fabric, rows = record.fabric, record.paths
    ports = ports_of(fabric, fault.place)
    lost, first, last = (rows[name].to_numpy() for name in ("lost", "first_us", "last_us"))
    at_us, over_us = fault.at_ps / US, math.inf
    if fault.for_ps is not None or fault.until_ps is not None:
        over_us = (fault.until_ps or fault.at_ps + (fault.for_ps or 0)) / US
    during = (last >= at_us - SLACK_US) & (first <= over_us + LATE_US)
    mine = across(record, ports) & during
    by_port = _by_port(record, np.where(during, lost, 0))
    return Truth(
        fault.place,
        ports,
        frozenset(it for it in ports if by_port[it] > FEW),
        int(lost[mine].sum()),
        (at_us, max(at_us, float(first[mine].min(initial=math.inf)))),
        (min(over_us, float(last[mine].max(initial=0.0))), over_us),
        fault.rate in (None, 1),
        fault.repeats,
    )


def _by_port(record: Record, lost: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """[ports] so many losses of each row of paths, by the directed ports that it may cross."""
    routes, n = record.routes(record.paths), record.known.n_ports
    there = routes >= 0
    found = np.bincount(routes[there], np.broadcast_to(lost[:, None], routes.shape)[there], n)
    return found if record.outline is None else found[record.outline.port_of]


def claim(record: Record, finding: Finding) -> Claim:
    """Return what a finding says."""
    last_us, well_us = finding.ended_us
    every = tuple(ports_of(record.fabric, it) for it in (finding.where, *finding.one_of))
    over_us = math.inf if well_us is None else well_us
    return Claim(finding.where, every, finding.began_us, (last_us, over_us), finding.dead)


def judged(truths: Sequence[Truth], claims: Sequence[Claim]) -> tuple[list[str], list[str]]:
    """Return a word for each truth, and the claims of which no place is broken."""
    broken: frozenset[int] = frozenset().union(*(it.ports for it in truths))
    healthy = [it.where for it in claims if not any(ports & broken for ports in it.one_of)]
    healthy += [
        it.where
        for it in claims
        if len(it.one_of) == 1 and it.one_of[0] & broken and not it.one_of[0] <= broken
        and not any(one.lossy <= it.one_of[0] for one in truths if one.lossy & it.one_of[0])
    ]  # fmt: skip
    return [_best(one, claims) for one in truths], healthy


def holds(truths: Sequence[Truth], it: Claim) -> bool:
    """Return whether the place of a claim, or one of its set, is broken; whatever it says of it."""
    return any(_word(one, it) in (RIGHT, TIME, KIND) for one in truths)


def _best(one: Truth, claims: Sequence[Claim]) -> str:
    """The best word for a truth."""
    order = (RIGHT, TIME, KIND, MANY, PART, MORE, UNSEEN, MISSED)
    words = [_word(one, it) for it in claims]
    few = one.lost <= FEW or not one.lossy
    return min([*words, UNSEEN if few else MISSED], key=order.index)


def _word(one: Truth, it: Claim) -> str:
    """What a claim is to a truth."""
    touching = [ports for ports in it.one_of if ports & one.ports]
    if not touching:
        return MISSED
    if not any(one.lossy <= ports <= one.ports for ports in touching):
        return PART if any(ports <= one.ports for ports in touching) else MORE
    if len(it.one_of) > SET_MAX:
        return MANY
    if not one.repeats and it.dead != one.dead:
        return KIND
    begun = _meet(it.since_us, one.since_us)
    over = one.repeats or _meet(it.until_us, one.until_us)
    return RIGHT if begun and over else TIME


def _meet(said: tuple[float, float], true: tuple[float, float]) -> bool:
    """Whether two ranges of time have a moment in common."""
    return said[0] <= true[1] + SLACK_US and said[1] >= true[0] - SLACK_US
