"""The failures of a period, drawn: the same ones for every fabric.

Failures of a kind come at random times, to random things, and last for random times (exponential).
Of fabrics that differ the one with the higher rate has more: each failure of the other is one of
its own, at the same moment and in the same part of the fabric.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

from openmrc.planning.assumptions import HOURS_PER_DAY
from openmrc.planning.reliability import ALL, PORT, SECONDS_PER_DAY, Kind, kinds_of
from openmrc.planning.sizing import Design

NOTHING = "nothing"  # what a failure takes, beside `reliability`'s
GPU, RACK, UPDATE, SHOCK = "GPU or its host", "power of a rack", "update", "shock"

Floats = npt.NDArray[np.float64]


class Failures(NamedTuple):
    """The failures of one fabric, in order of time."""

    kinds: Sequence[Kind]
    kind: npt.NDArray[np.int64]  # index into `kinds`
    at_s: Floats
    lasts_s: Floats
    nic: npt.NDArray[np.int64]  # the first of those below it
    plane: npt.NDArray[np.int64]


def kinds_of_day(design: Design, values: Mapping[str, float]) -> list[Kind]:
    """Return all that breaks: what a plan knows, and hosts, racks, updates and shocks."""
    repair = values["repair_h"] / HOURS_PER_DAY
    host, rack = int(values["host_gpus"]), int(values["rack_gpus"])
    day = HOURS_PER_DAY
    return [
        *kinds_of(design, values),
        Kind(GPU, design.nics, 1.0, host, day / values["gpu_mtbf_h"], repair, ALL),
        Kind(RACK, -(-design.nics // rack), 1.0, rack, day / values["rack_mtbf_h"], repair, ALL),
        Kind(UPDATE, 1, 0.0, 0, values["updates_per_day"], 0.0, NOTHING),
        Kind(
            SHOCK,
            1,
            1 / design.planes,
            min(int(values["shock_nics"]), design.nics),
            values["shocks_per_day"],
            values["flap_s"] / SECONDS_PER_DAY,
            PORT,
        ),
    ]


def draw(
    designs: Sequence[Design], values: Mapping[str, float], days: float, seed: int
) -> list[Failures]:
    """Return the failures of each design."""
    kinds = [kinds_of_day(design, values) for design in designs]
    drawn = {
        name: _of_kind(name, max(_per_day(k, name) for k in kinds), days, seed)
        for name in dict.fromkeys(each.kind for k in kinds for each in k)
    }
    return [_of_design(d, k, drawn, days) for d, k in zip(designs, kinds, strict=True)]


def hitting(failures: Failures, mine: npt.NDArray[np.bool_]) -> Failures:
    """Return those that hit one of these NICs, [NICs]; what hits none in particular hits all."""
    below = np.array([kind.nics for kind in failures.kinds])[failures.kind]
    upto = np.append(0, np.cumsum(mine))
    last = np.minimum(failures.nic + below, len(mine))
    hits = (upto[last] > upto[failures.nic]) | (below == 0)
    return Failures(failures.kinds, *(column[hits] for column in failures[1:]))


def _per_day(kinds: Sequence[Kind], name: str) -> float:
    return sum(each.things * each.per_thing_day for each in kinds if each.kind == name)


class _Drawn(NamedTuple):
    per_day: float
    at: Floats  # share of the period
    lasts: Floats  # of its mean
    thing: Floats  # which one, as a share of them
    plane: Floats
    mark: Floats  # below its part of `per_day` it is there


def _of_kind(name: str, per_day: float, days: float, seed: int) -> _Drawn:
    draws = np.random.default_rng([seed, crc32(name.encode())])
    n = int(draws.poisson(per_day * days))
    at, thing, plane, mark = draws.random((4, n))
    return _Drawn(per_day, at, draws.exponential(size=n), thing, plane, mark)


def _of_design(
    design: Design, kinds: Sequence[Kind], drawn: Mapping[str, _Drawn], days: float
) -> Failures:
    parts = []
    for number, k in enumerate(kinds):
        d = drawn[k.kind]
        there = d.mark * d.per_day < k.things * k.per_thing_day
        below = max(k.nics, 1)
        first = (d.thing[there] * -(-design.nics // below)).astype(np.int64) * below
        lasts_s = d.lasts[there] * k.lasts_days * SECONDS_PER_DAY
        plane = (d.plane[there] * design.planes).astype(np.int64)
        kind = np.full(len(first), number)
        parts.append((kind, d.at[there] * days * SECONDS_PER_DAY, lasts_s, first, plane))
    kind, at_s, lasts_s, nic, plane = (
        np.concatenate(column) for column in zip(*parts, strict=True)
    )
    order = np.argsort(at_s, kind="stable")
    return Failures(kinds, kind[order], at_s[order], lasts_s[order], nic[order], plane[order])
