"""What a denylist saves: a job that starts on dead links, with and without the mapper's findings.

    .venv/bin/python benchmarks/denied.py [--share F] [--period-count N] [--nics N] [--seed N]

A share of all cables of a fabric of 64 NICs on 8 planes is dead before a job starts. The mapper's
probes of ten periods (`ops.schedule`) cross the same fabric; what is lost of them goes to the
localiser, and the places that it names to a denylist. Then a permutation of 1 MB starts, three
times: as nothing were known, with that denylist from its beginning, and for comparison on a fabric
without dead links.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np

from openmrc import simulate
from openmrc.fabric import Fabric, multiplane
from openmrc.ops import evidence, schedule
from openmrc.ops.localise import localise

GBPS = 10**9
T0_DOWN = 8


def dead_links(fabric: Fabric, share: float, seed: int) -> list[int]:
    """The lower ports of cables drawn."""
    ports = np.arange(fabric.n_ports)
    lower = ports[(fabric.port_nic >= 0) | _upwards(fabric)]
    n = max(1, round(share * len(lower)))
    return sorted(np.random.default_rng(seed).choice(lower, n, replace=False).tolist())


def _upwards(fabric: Fabric) -> np.ndarray:
    own, far = fabric.port_switch, fabric.port_peer_switch
    return (own >= 0) & (far >= 0) & (fabric.sw_tier[own] < fabric.sw_tier[far])


def found_by_probes(fabric: Fabric, dead: list[int], periods: int) -> list[str]:
    """The places that the mapper names after so many periods."""
    plan = schedule.make(fabric)
    bad = np.zeros(fabric.n_ports + 1, np.bool_)
    bad[dead] = bad[fabric.port_reverse[dead]] = True
    turns, numbers, lost = [], [], []
    for turn in range(min(periods, schedule.TURNS)):
        gone = np.flatnonzero(bad[plan.routes(turn)].any(axis=1))
        turns.append(np.full(len(gone), turn))
        numbers.append(gone)
        lost.append(np.full(len(gone), (periods - turn + schedule.TURNS - 1) // schedule.TURNS))
    seen = evidence.of_probes(
        plan, np.concatenate(turns), np.concatenate(numbers), np.concatenate(lost), periods
    )
    return [verdict.where for verdict in localise(fabric, seen) if verdict.is_sure]


def run(nics: int, planes: int, dead: list[str], denied: list[str], seed: int) -> dict[str, Any]:
    """The figures of one run."""
    faults = [{"at": "0us", "kind": "link-down", "where": where} for where in dead]
    faults += [{"at": "0us", "kind": "deny", "where": where} for where in denied]
    scenario = {
        "seed": seed,
        "fabric": {"nics": nics, "planes": planes, "port_rate": "100Gbps", "t0_down": T0_DOWN},
        "workload": {"kind": "permutation", "size": "1MB"},
        "fault": faults,
    }
    (outcome,) = simulate(scenario).summary()["transports"].values()
    flows, packets = outcome["flows"], outcome["packets"]
    return {
        "lost_to_dead_links": packets["dropped_fault"],
        "sent_again": packets["retransmitted"],
        "unfinished": flows["total"] - flows["completed"],
        "p50_us": flows["fct_us"]["p50"],
        "p100_us": flows["fct_us"]["p100"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--share", type=float, default=0.01, help="of all cables")
    parser.add_argument("--period-count", type=int, default=10, help="of the mapper")
    parser.add_argument("--nics", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    nics, planes = arguments.nics, 8
    fabric = multiplane(nics, planes, 100 * GBPS, T0_DOWN, T0_DOWN, 0, 0)
    ports = dead_links(fabric, arguments.share, arguments.seed)
    dead = [fabric.link_name(port) for port in ports]
    truth = {fabric.port_name(way) for port in ports for way in (port, fabric.port_reverse[port])}
    denied = found_by_probes(fabric, ports, arguments.period_count)
    results = {
        "dead": dead,
        "named": {"right": len(truth & set(denied)), "of": len(truth), "named": len(denied)},
        "unknown": run(nics, planes, dead, [], arguments.seed),
        "denied": run(nics, planes, dead, denied, arguments.seed),
        "healthy": run(nics, planes, [], [], arguments.seed),
    }
    if arguments.json:
        print(json.dumps(results, indent=2))
        return 0
    named = results["named"]
    print(
        f"{len(dead)} dead cables; {named['named']} directions named, {named['right']} of"
        f" {named['of']} right"
    )
    for name in ("unknown", "denied", "healthy"):
        row = results[name]
        print(f"{name:8}", ", ".join(f"{key} {value}" for key, value in row.items()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
