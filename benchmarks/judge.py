"""The judge of `mrc why`: whether what it said is what was broken. It knows the faults, and nothing
of how they are found.

    right       the place, or an honest set of places with it; direction, kind and both edges
    unseen      nothing said, and at most `FEW` packets were lost there that were the fault's own
    missed      nothing said
    part, more  a part of the place was named, or more than the place
    many        a set of more than `SET_MAX` places
    wrong kind  what is dead was said to lose a part, or the other way round
    wrong time  an edge is outside the range that was said

Besides, each claim is `healthy` of which no place is broken: the worst that can be said.

**A fault's own losses.** A fault is judged by what it cost, packet by packet: those that crossed
its place while it was there, and were lost, unless another fault on their way let nothing of their
sort through all the while, and cost more. Those would have been lost without it, so nobody can know
of it. All others are its own, of whatever they were lost. A fault that a NIC says of its own port
is seen, too, even if it cost nothing. What is unseen need not be named; what is said of its place
counts, unless that is right of another fault.

A direction or a link of the place that lost at most `FEW` packets may be named and need not be. An
edge is known as a range. It is right if the range meets the time between the fault's edge and its
first or last own loss, for before and after that nobody can know of it either; as nobody can where
the edge lies within another fault that lets nothing through all of the place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from openmrc.fabric import Fabric, places
from openmrc.fabric.kinds import ENDS, LINKS_DEFAULT, Fault
from openmrc.ops.finding import Finding
from openmrc.ops.records import Record
from openmrc.units import US

FloatArray = npt.NDArray[np.float64]
Rows = npt.NDArray[np.bool_]
Spans = tuple[tuple[float, float], ...]
FEW = 4  # losses: with fewer chance is as good an explanation
SET_MAX = 8
ON_WAY_RTTS = 2  # for which a packet may be on its way, and in queues
SLACK_US = 0.5  # of what is rounded
RIGHT, UNSEEN, MISSED, PART, MORE, MANY, KIND, TIME = WORDS = (
    *("right", "unseen", "missed", "part", "more", "many", "wrong kind", "wrong time"),
)
GOOD = (RIGHT, UNSEEN)
HEALTHY = ("deny", "link-slow")  # kinds of faults that lose no packet


class Truth(NamedTuple):
    """What was broken; times in us of the run."""

    where: str
    ports: frozenset[int]  # directed
    lossy: frozenset[int]  # those of them that lost more than `FEW` packets
    lost: int  # packets and probes of its own
    told: bool  # a NIC said so of its own port
    since_us: tuple[float, float]  # when it broke, and when a packet was first lost there
    until_us: tuple[float, float]  # when one was last lost there, and when it was repaired
    dead: bool
    repeats: bool

    @property
    def is_unseen(self) -> bool:
        """Whether nobody can know of it."""
        return not self.told and (self.lost <= FEW or not self.lossy)


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


class _Lost(NamedTuple):
    """What senders judged lost, packet by packet."""

    routes: npt.NDArray[np.int32]  # [n, hops] directed ports, as senders know them
    since_us: FloatArray  # when each left
    until_us: FloatArray  # until when it may have been on its way
    known_us: FloatArray
    data: Rows  # and no probe, which is short


class _Broken(NamedTuple):
    """A fault, its place, and which losses crossed that while it lasted."""

    fault: Fault
    ports: frozenset[int]
    spans_us: Spans
    crossed: Rows  # [losses]
    total: Rows  # [losses] of which it lets nothing through that crosses it for certain


def truths(record: Record, faults: Sequence[Fault]) -> list[Truth]:
    """Return what faults broke, and what of it senders could notice at all."""
    lost = _lost(record)
    ends_us = [it.at_ps / US for it in faults if it.kind in ENDS]
    begun = [it for it in faults if it.kind not in (*ENDS, *HEALTHY)]
    every = [_broken(record, lost, it, ends_us) for it in begun]
    cost = [int(it.crossed.sum()) for it in every]
    found = []
    for i, one in enumerate(every):
        own = one.crossed.copy()
        for j, other in enumerate(every):
            if (cost[j], -j) > (cost[i], -i):
                own &= ~_stopped(lost, one, other)
        found.append(_truth(record, lost, one, own, [it for it in every if it is not one]))
    return found


def _stopped(lost: _Lost, one: _Broken, other: _Broken) -> Rows:
    """[losses] Those that another fault would have stopped: it was there all the while, or, if it
    has all of the place, from when this one began.
    """
    begun_us = one.fault.at_ps / US if one.ports <= other.ports else 0.0
    during = np.zeros_like(one.crossed)
    for since_us, until_us in other.spans_us:
        during |= (np.maximum(lost.since_us, begun_us) >= since_us) & (lost.until_us <= until_us)
    return during & other.total


def _lost(record: Record) -> _Lost:
    if record.account is None:
        nothing = np.zeros(0)
        return _Lost(np.zeros((0, 1), np.int32), nothing, nothing, nothing, nothing > 0)
    rows = record.account.filter(record.account["became"].is_in(["lost", "probe lost"]))
    sent_us, known_us = rows["sent_us"].to_numpy(), rows["known_us"].to_numpy()
    until_us = np.minimum(known_us, sent_us + ON_WAY_RTTS * record.rtt_us)
    data = (rows["became"] == "lost").to_numpy()
    return _Lost(record.routes(rows), sent_us, until_us, known_us, data)


def _broken(record: Record, lost: _Lost, fault: Fault, ends_us: Sequence[float]) -> _Broken:
    ports, spans = ports_of(record.fabric, fault.place), _spans(fault, record.end_us, ends_us)
    met = np.zeros(len(lost.since_us), np.bool_)
    for since_us, until_us in spans:
        met |= (lost.since_us < until_us) & (lost.until_us > since_us)
    may = np.isin(lost.routes, _known(record, ports, every=False)).any(axis=1)
    must = np.isin(lost.routes, _known(record, ports, every=True)).any(axis=1)
    sort = lost.data if fault.kind == "mtu" else np.ones_like(lost.data)
    return _Broken(fault, ports, spans, met & may, must & sort & _is_total(fault))


def _is_total(fault: Fault) -> bool:
    """Whether a fault lets nothing through of its sort, all over its place, while it lasts."""
    return fault.rate in (None, 1) and fault.mtbf_ps is None and fault.share is None


def _known(record: Record, ports: frozenset[int], every: bool) -> list[int]:
    """The ports as senders know them of which one, or every one, is in a place."""
    if record.outline is None:
        return sorted(ports)
    here, other = (
        set(record.outline.port_of[[*each]].tolist())
        for each in (ports, set(range(record.fabric.n_ports)) - ports)
    )
    return sorted(here - other if every else here)


def _spans(fault: Fault, end_us: float, ends_us: Sequence[float]) -> Spans:
    """The times at which a fault lasts, us; of a random one those at which it may."""
    at_us, over_us = fault.at_ps / US, _over_us(fault)
    if fault.period_ps is None:
        return ((at_us, min([over_us, *(it for it in ends_us if it > at_us)])),)
    starts = np.arange(at_us, min(over_us, end_us), fault.period_ps / US)
    return tuple((it, min(it + fault.lasts_ps / US, over_us)) for it in starts.tolist())


def _over_us(fault: Fault) -> float:
    if fault.for_ps is None and fault.until_ps is None:
        return math.inf
    return (fault.until_ps or fault.at_ps + (fault.for_ps or 0)) / US


def _truth(record: Record, lost: _Lost, it: _Broken, own: Rows, others: Sequence[_Broken]) -> Truth:
    fault, at_us, over_us = it.fault, it.fault.at_ps / US, _over_us(it.fault)
    known_us, by_port = lost.known_us[own], _by_port(record, lost.routes[own])
    around = [one for one in others if it.ports <= one.ports and one.fault.kind != "mtu"]
    hidden = [span for one in around if _is_total(one.fault) for span in one.spans_us]
    begun_us = min([at_us, *(a for a, b in hidden if a <= at_us < b)])
    ended_us = max([over_us, *(b for a, b in hidden if a <= over_us <= b)])
    return Truth(
        fault.place,
        it.ports,
        frozenset(port for port in it.ports if by_port[port] > FEW),
        int(own.sum()),
        _is_told(record, it),
        (begun_us, max(at_us, float(known_us.min(initial=math.inf)))),
        (min(over_us, float(lost.since_us[own].max(initial=0.0))), ended_us),
        fault.rate in (None, 1),
        fault.repeats,
    )


def _is_told(record: Record, it: _Broken) -> bool:
    """Whether a NIC saw a port of its own go down as this began."""
    if record.events is None:
        return False
    known, rows = record.known, record.events.filter(record.events["event"] == "port down")
    plane = rows["ev"].to_numpy() >> known.ev_plane_shift & (1 << known.ev_plane_bits) - 1
    ports = rows["src"].to_numpy() * known.n_planes + plane
    at_us = rows["t_us"].to_numpy()[np.isin(ports, sorted(it.ports))]
    return any(bool((np.abs(at_us - since_us) <= SLACK_US).any()) for since_us, _ in it.spans_us)


def _by_port(record: Record, routes: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """[ports] so many losses, by the directed ports that they may have crossed."""
    found = np.bincount(routes[routes >= 0], minlength=record.known.n_ports)
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
    return [_best(one, truths, claims) for one in truths], healthy


def holds(truths: Sequence[Truth], it: Claim) -> bool:
    """Return whether the place of a claim, or one of its set, is broken; whatever it says of it."""
    return any(_word(one, it) in (RIGHT, TIME, KIND) for one in truths)


def _best(one: Truth, truths: Sequence[Truth], claims: Sequence[Claim]) -> str:
    """The best word for a truth."""
    order = (RIGHT, TIME, KIND, UNSEEN, MANY, PART, MORE, MISSED)
    words = [
        word
        for it in claims
        if (word := _word(one, it)) == RIGHT or not _is_right(it, truths if one.is_unseen else ())
    ]
    return min([*words, UNSEEN if one.is_unseen else MISSED], key=order.index)


def _is_right(it: Claim, truths: Sequence[Truth]) -> bool:
    return any(_word(one, it) == RIGHT for one in truths)


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
