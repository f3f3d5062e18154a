"""The flow level beside the packet level, on scenarios that are drawn.

    .venv/bin/python benchmarks/flow.py --draw 100 --seed 1000

Draws scenarios as `mrc soak` does, on fabrics of 16, 32 and 64 NICs, every second one without
faults, runs each at both levels, and prints how far the flow level is off: in the completion of the
whole (of training the mean step) and in the flow completion time, p50 and p100. Scenarios that
either level refuses are counted, and another one is drawn. The last lines are those that are off by
more than 8 %, the worst first, and the shares of scenarios within 3 % and 8 %, by what they have.

A packet lost more or less can cost a timer of milliseconds, and which are lost is drawn. So each of
those lines also has how far the packet level itself differs between five seeds of the run; where
that is more than 8 %, the means of both levels over these seeds are compared. `judged` has
the shares with that reading.
Nothing of the model depends on these draws: use another seed for another set.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from openmrc.errors import InputError
from openmrc.flow.world import refuse
from openmrc.run.figures import nearest_rank
from openmrc.run.outcome import TransportResult
from openmrc.run.simulation import simulate
from openmrc.scenario.scenario import Scenario, make_scenario
from openmrc.soak import sim as soak

NICS = (16, 32, 64)
BOUNDS = (0.03, 0.08)
SEEDS, SEED_STEP = 5, 1_000_003  # runs of a scenario that is far off; far from other scenarios


class Compared(NamedTuple):
    """A scenario at both levels: how far the flow level is off, as a share; wall times, s."""

    seed: int
    groups: tuple[str, ...]
    what: str
    whole: float
    p50: float
    p100: float
    packet_s: float
    flow_s: float
    spread: float = 0.0  # of the whole, packet by packet, between seeds
    mean: float = 0.0  # how far its mean over the seeds is off

    @property
    def judged(self) -> float:
        """How far the whole is off; where it is a matter of chance, its mean."""
        return self.mean if self.spread > BOUNDS[-1] else self.whole


def drawn(seed: int) -> Scenario:
    """Return the scenario of a seed."""
    tables = soak.draw(seed, NICS)
    if seed % 2:
        tables["fault"] = []
    return make_scenario(tables)


def compare(scenario: Scenario) -> Compared:
    """Run a scenario at both levels."""
    packet, flow = (
        simulate(scenario.replace({"level": level}), threads=1) for level in ("packet", "flow")
    )
    off = [
        there / here - 1
        for here, there in zip(
            *(_figures(each.transports[0]) for each in (packet, flow)), strict=True
        )
    ]
    whole, p50, p100 = off
    what = _what(scenario)
    walls = (packet.wall_s, flow.wall_s)
    found = Compared(scenario.seed, _groups(scenario), what, whole, p50, p100, *walls)
    if abs(whole) <= BOUNDS[-1]:
        return found
    spread, mean = _of_seeds(scenario)
    return found._replace(spread=spread, mean=mean)


def _of_seeds(scenario: Scenario) -> tuple[float, float]:
    """Of the whole over several seeds: how far the packet level differs, and the flow level's mean
    is off.
    """
    seeds = [scenario.seed + i * SEED_STEP for i in range(SEEDS)]
    packet, flow = (
        np.array(
            [
                _figures(
                    simulate(
                        scenario.replace({"level": level, "seed": seed}), threads=1
                    ).transports[0]
                )[0]
                for seed in seeds
            ],
            float,
        )
        for level in ("packet", "flow")
    )
    spread = (packet.max() - packet.min()) / packet.mean()
    return float(spread), float(flow.mean() / packet.mean() - 1)


def _figures(run: TransportResult) -> tuple[float, float, float]:
    """The whole, and p50 and p100 of the flows; NaN where nothing was completed."""
    fct = run.fct_ps
    p50, p100 = (nearest_rank(fct, share) if len(fct) else np.nan for share in (0.5, 1.0))
    return run.whole_ps or np.nan, p50, p100


def _groups(scenario: Scenario) -> tuple[str, ...]:
    """Return the groups in which a scenario counts."""
    tables, fabric = scenario.tables, scenario.tables["fabric"]
    if scenario.transport(0).balances:
        transport = "switches that balance"
    elif tables["transport"][0].get("kind") == "roce":
        transport = "RoCEv2, hashed"
    else:
        transport = "MRC, with faults" if tables["fault"] else "MRC, healthy"
    few = fabric["t0_up"] < fabric["t0_down"]
    found = ["all", transport, "too few uplinks" if few else "uplinks enough"]
    found += ["jitter of 20 us"] if fabric.get("jitter") == "20us" else []
    return tuple(found)


def _what(scenario: Scenario) -> str:
    """Return what was drawn, in a few words."""
    tables: dict[str, Any] = scenario.tables
    transport, workload, fabric = tables["transport"][0], tables["workload"], tables["fabric"]
    words = [
        str(transport.get("paths", transport.get("kind"))),
        workload["kind"],
        str(workload.get("size", "")),
        f"{fabric['nics']} NICs",
        f"{fabric.get('planes', 1)} planes",
        f"{fabric['t0_down']}:{fabric['t0_up']}",
        f"{len(tables['fault'])} faults",
    ]
    words += [f"jitter {fabric['jitter']}"] if fabric.get("jitter", "0ns") != "0ns" else []
    words += ["hashed EVs"] if transport.get("srv6") is False else []
    words += [f"{transport['evs_active']} EVs"] if "evs_active" in transport else []
    words += [f"{transport['qps']} QPs"] if "qps" in transport else []
    return ", ".join(filter(None, words))


def rows(n: int, seed: int, seconds: float) -> Iterator[Compared | str]:
    """Compare `n` scenarios from `seed` on, as far as the time allows; a text is what was left
    out.
    """
    until = time.monotonic() + seconds
    found = 0
    while found < n and time.monotonic() < until:
        scenario = drawn(seed)
        seed += 1
        try:
            refuse(scenario.transport(0))
        except InputError as error:
            yield str(error)
            continue
        try:
            yield compare(scenario)
        except InputError as error:  # buffers too small for so many NICs
            yield str(error)
            continue
        found += 1


def main() -> None:
    parser = argparse.ArgumentParser(description="the flow level beside the packet level")
    parser.add_argument("--draw", type=int, default=30, metavar="N")
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=3600, help="stop drawing after this time")
    arguments = parser.parse_args()
    found: list[Compared] = []
    refused = 0
    for each in rows(arguments.draw, arguments.seed, arguments.seconds):
        if isinstance(each, str):
            refused += 1
            continue
        found.append(each)
        print(
            f"{each.seed:6} whole {each.whole:+7.1%}  p50 {each.p50:+7.1%}  p100 {each.p100:+7.1%}"
            f"  {each.packet_s:6.2f} s, {each.flow_s:5.2f} s  {each.what}",
            flush=True,
        )
    print(f"{len(found)} compared; {refused} refused")
    for each in sorted(found, key=lambda each: -abs(each.whole)):
        if abs(each.whole) > BOUNDS[-1]:
            print(
                f"{each.whole:+7.1%}  {each.seed}  {each.what};"
                f" between seeds {each.spread:.0%}, their mean {each.mean:+.1%}"
            )
    groups: dict[str, list[Compared]] = {}
    for each in found:
        for group in each.groups:
            groups.setdefault(group, []).append(each)
    for group in sorted(groups):
        for name in ("whole", "judged", "p50", "p100"):
            off = np.abs([getattr(each, name) for each in groups[group]])
            shares = [f"{np.mean(off <= bound):.0%} within {bound:.0%}" for bound in BOUNDS]
            print(
                f"{group:21} {len(off):3}  {name:6}: {', '.join(shares)},"
                f" median {np.nanmedian(off):.1%}"
            )


if __name__ == "__main__":
    main()
