"""The effect of one failure of each kind, how often each happens, and how often a job is
interrupted.

**Share.** The share of the bandwidth of an affected NIC that a failure takes, at full load. Planes
carry equal loads (# MRC 3.4), so what is missing inside a plane counts in full: one of a T0's h
uplinks takes 1/h, the 3 % and 0.4 % of # MRC 7.5, though of all uplinks of the T0 group it is only
1 in planes * h. A port, a NIC's link or a T0 takes the plane from its NICs: 1/planes.

**Interruption.** A job is interrupted when one of its NICs has no port left, and only then:
failures between switches leave other paths. A NIC or its transceiver always does that (# MRC 9.2).
A failure that takes one plane from n NICs does it if one of them has no other plane at that moment:
with u the fraction of time in which a NIC's port into one plane is missing, 1 - (1 -
u^(planes-1))^n. With one plane that is 1. Failures are independent; one job holds all GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from openmrc.planning.assumptions import HOURS_PER_DAY
from openmrc.planning.sizing import Design

SECONDS_PER_DAY = 86_400
ALL, PORT, PATHS = "all", "port", "paths"  # what a failure takes
FLAP = ", flap"  # suffix of a kind that ends by itself


class Failure(NamedTuple):
    """One kind of failure of a design."""

    kind: str
    things: int  # number of things that can fail in this way
    share: float  # taken from the bandwidth of each affected NIC
    nics: int  # affected by one failure, at most
    per_day: float  # of all things together
    interrupts: float  # probability that one of them interrupts the job
    lasts_days: float

    @property
    def interruptions_per_day(self) -> float:
        """Return how often a failure of this kind interrupts the job."""
        return self.per_day * self.interrupts


class Kind(NamedTuple):
    """One kind of failure: how often there is one, what it takes, and for how long."""

    kind: str
    things: int
    share: float
    nics: int
    per_thing_day: float
    lasts_days: float
    takes: str  # "all" of a NIC, its "port" into one plane, or "paths" that have alternatives


def failures(design: Design, values: Mapping[str, float]) -> list[Failure]:
    """Return every kind of failure of `design` with the rates of `assumptions.values_with`."""
    kinds = kinds_of(design, values)
    missing = _port_missing(design, kinds)
    return [
        Failure(
            k.kind,
            k.things,
            k.share,
            k.nics,
            k.things * k.per_thing_day,
            _interrupts(k, design.planes, missing),
            k.lasts_days,
        )
        for k in kinds
    ]


def kinds_of(design: Design, values: Mapping[str, float]) -> list[Kind]:
    """Return every kind of failure of `design`."""
    return [*_at_nics(design, values), *_between_switches(design, values)]


def interruptions_per_day(found: list[Failure]) -> float:
    """Return how often a job on all GPUs is interrupted by the fabric."""
    return sum(failure.interruptions_per_day for failure in found)


def mean_time_between_h(per_day: float) -> float | None:
    """Return the mean time between events of this rate, hours; None if they never happen."""
    return HOURS_PER_DAY / per_day if per_day > 0 else None


def _at_nics(design: Design, values: Mapping[str, float]) -> list[Kind]:
    """Return the failures that take a whole plane, or everything, from a NIC."""
    nics, planes = design.nics, design.planes
    plane = 1 / planes
    repair = values["repair_h"] / HOURS_PER_DAY
    flap = values["flap_s"] / SECONDS_PER_DAY
    rate = {name: HOURS_PER_DAY / values[f"{name}_mtbf_h"] for name in MTBFS}
    _, t0_transceivers, _ = design.transceivers
    per = min(design.links_per_transceiver, nics)
    return [
        Kind("NIC", nics, 1.0, 1, rate["nic"], repair, ALL),
        Kind("transceiver of a NIC", nics, 1.0, 1, rate["transceiver"], repair, ALL),
        Kind(f"NIC port{FLAP}", nics * planes, plane, 1, values["port_flaps_per_day"], flap, PORT),
        Kind("link NIC-T0", design.links[0], plane, 1, rate["link"], repair, PORT),
        Kind(
            "transceiver of a T0, to NICs",
            t0_transceivers,
            plane,
            per,
            rate["transceiver"],
            repair,
            PORT,
        ),
        Kind("T0 switch", design.switches[0], plane, design.reach(0), rate["switch"], repair, PORT),
        Kind("plane", planes, plane, nics, rate["plane"], repair, PORT),
    ]


MTBFS = ("nic", "transceiver", "link", "switch", "plane")


def _between_switches(design: Design, values: Mapping[str, float]) -> list[Kind]:
    """Return the failures that take some of the paths of a plane: all of them leave others."""
    repair = values["repair_h"] / HOURS_PER_DAY
    flap = values["flap_s"] / SECONDS_PER_DAY
    rate = {name: HOURS_PER_DAY / values[f"{name}_mtbf_h"] for name in MTBFS}
    half, per = design.half, design.links_per_transceiver
    kinds = [
        Kind(
            "transceiver between switches",
            design.transceivers[2],
            per / half,
            design.reach(0),
            rate["transceiver"],
            repair,
            PATHS,
        )
    ]
    for tier in range(design.tiers - 1):
        name, links = f"link T{tier}-T{tier + 1}", design.links[tier + 1]
        share, nics = half ** -(tier + 1), design.reach(tier)
        flaps = values["fabric_flaps_per_day"]
        kinds.append(Kind(name, links, share, nics, rate["link"], repair, PATHS))
        kinds.append(Kind(f"{name}{FLAP}", links, share, nics, flaps, flap, PATHS))
    for tier in range(1, design.tiers):
        bundle = design.bundle if tier == design.tiers - 1 else 1
        kinds.append(
            Kind(
                f"T{tier} switch",
                design.switches[tier],
                bundle / half**tier,
                design.reach(tier),
                rate["switch"],
                repair,
                PATHS,
            )
        )
    return kinds


def _port_missing(design: Design, kinds: list[Kind]) -> float:
    """Return the fraction of time in which a NIC lacks its port into one plane."""
    loads = 0.0
    for k in kinds:
        if k.takes == PORT:
            # failures of this kind that affect one port of one NIC, per day
            met = k.things * k.per_thing_day * k.nics / (design.nics * design.planes)
            loads += met * k.lasts_days
    # An alternating process with these means: missing for loads / (1 + loads) of the time.
    return loads / (1 + loads)


def _interrupts(kind: Kind, planes: int, missing: float) -> float:
    if kind.takes == ALL:
        return 1.0
    if kind.takes == PATHS:
        return 0.0
    all_others = missing ** (planes - 1)
    if all_others >= 1.0:
        return 1.0
    return -math.expm1(kind.nics * math.log1p(-all_others))
