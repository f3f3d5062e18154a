"""A moment of a day as a scenario of its own: what is broken then, and the messages of the step
that is under way.

The job lives through its failures up to that moment; the part of a step that is done by then says
which phases are under way, or if all ranks compute which ones are next. Of their groups those count
that lack a port, and otherwise the first ones: groups in equal state are equal.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from openmrc.day.command import RESULTS
from openmrc.day.day import Side, life_of, sides_of, steps_of
from openmrc.day.failures import draw
from openmrc.day.life import Life
from openmrc.errors import InputError
from openmrc.fabric.model import LongArray
from openmrc.flow.steps import UnderWay, ring_steps
from openmrc.planning.reliability import PATHS, SECONDS_PER_DAY
from openmrc.reading import read_text
from openmrc.scenario.scenario import parse_scenario
from openmrc.units import US, S, fmt_time
from openmrc.workload.phases import ALL_TO_ALL, Message
from openmrc.zoom.messages import under_way
from openmrc.zoom.moment import Moment, moment

NICS_MAX = 1024  # whose groups are written; `reduced` takes what fits


def moment_of_day(directory: Path, name: str | None, at_ps: int, for_ps: int) -> Moment:
    """Return what the job on a fabric was doing; raise `InputError` for a time without traffic."""
    day = _read(directory / RESULTS)
    at_s = at_ps / S
    if at_s >= day["days"] * SECONDS_PER_DAY:
        raise InputError(f"--at {fmt_time(at_ps)}: the day ended after {day['days']:g} days")
    scenario = parse_scenario(day["scenario"])
    sides = sides_of(scenario, day["switch_rate_bps"])
    number = _side_of(sides, name)
    side, values, seed = sides[number], day["assumptions"], day["seed"]
    failures = draw([each.design for each in sides], values, day["days"], seed)[number]
    steps = steps_of(side, scenario.seed)
    life = life_of(side, steps, failures, values, seed)
    life.run(at_s)
    if life.waits_for:
        raise InputError(f"--at {fmt_time(at_ps)}: the job waits then ({life.waits_for})")
    phases = steps.under_way(life.ports_missing, life.steps_done % 1)
    if not phases:
        raise InputError(f"--at {fmt_time(at_ps)}: the ranks send nothing more in that step")
    weak = np.array(sorted({nic for nic, _ in life.ports_missing}), np.int64)
    flows = pl.concat([_flows(each, weak) for each in phases])
    every = under_way(flows, 0.0, 0, for_ps)
    tables = {
        "name": f"{scenario.name}, from {fmt_time(at_ps)} on",
        "seed": scenario.seed,
        "fabric": scenario.tables["fabric"],
        "fault": [
            {"at": "0s", "kind": "link-down", "where": where}
            for where in sorted({*_ports(life), *_paths(side, life)})
        ],
    }
    names = [each.name for each in scenario.transports]
    transport = names.index(side.transport.name)
    tables["transport"] = [scenario.tables["transport"][transport]]
    return moment(tables, every, side.fabric, side.transport.pmtu)


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(read_text(path, "a directory of mrc day --out"))
        if not {"scenario", "days", "seed", "assumptions", "switch_rate_bps"} <= set(found):
            raise ValueError("keys are missing")
    except ValueError as error:
        raise InputError(f"{path}: was not written by mrc day --out ({error})") from None
    return found


def _side_of(sides: list[Side], name: str | None) -> int:
    """Which fabric is meant: one of the scenario's planes, as a scenario describes no other."""
    there = [side.name for side in sides if side.fabric is sides[0].fabric]
    if name is None and len(there) == 1:
        name = there[0]
    if name not in there:
        said = "" if name is None else f" {name}"
        raise InputError(f"--transport{said}: name one of {'; '.join(there)}")
    return [side.name for side in sides].index(name)


def _flows(now: UnderWay, weak: LongArray) -> pl.DataFrame:
    """The messages of a phase, each member's as one series, times from now on."""
    lacks = np.isin(now.nics, weak).any(axis=1)
    chosen = np.argsort(~lacks, kind="stable")[: max(NICS_MAX // now.nics.shape[1], 1)]
    nics, phase = now.nics[chosen], now.phase
    members = nics.shape[1]
    if isinstance(phase, Message):
        src, dst, count, size = nics[:, 0], nics[:, 1], 1, now.size
    elif phase.kind == ALL_TO_ALL:
        i, j = np.nonzero(~np.eye(members, dtype=bool))
        src, dst, count, size = nics[:, i].ravel(), nics[:, j].ravel(), 1, now.size // members
    else:
        src, dst = nics.ravel(), np.roll(nics, -1, axis=1).ravel()
        count = ring_steps(phase.kind, members)
        size = now.size // members * count
    n = len(src)
    end_us = np.full(n, now.end_ps / US)
    columns = {"src": src, "dst": dst, "bytes": np.full(n, size), "messages": np.full(n, count)}
    times = {"start_us": np.full(n, now.begin_ps / US), "done_us": end_us, "delivered_us": end_us}
    return pl.DataFrame(columns | times)


def _ports(life: Life) -> Iterator[str]:
    for nic, plane in life.ports_missing:
        yield f"nic {nic} plane {plane}"


def _paths(side: Side, life: Life) -> Iterator[str]:
    """The links between switches that are missing; of equal uplinks the failure's number says
    which, since a day counts them only.
    """
    fabric, failures, design = side.fabric, life.failures, side.design
    for number in life.holding():
        kind = failures.kinds[int(failures.kind[number])]
        if kind.takes != PATHS or kind.nics > design.reach(0):
            continue
        plane = int(failures.plane[number])
        port = fabric.nic_port(int(failures.nic[number]), plane)
        t0 = fabric.port_peer_switch[port]
        ups = np.flatnonzero((fabric.port_switch == t0) & (fabric.port_peer_switch >= 0))
        ups = ups[fabric.sw_tier[fabric.port_peer_switch[ups]] > 0]
        for i in range(max(round(kind.share * len(ups)), 1)):
            yield fabric.link_name(int(ups[(number + i) % len(ups)]))
