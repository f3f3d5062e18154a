"""Switches that balance beside MRC, in what is published of such a fabric.

    .venv/bin/python benchmarks/adaptive.py [plane] [links]

plane     32 NICs of four planes of 100 Gb/s; all T1s of one die after 1 ms
links     one plane of 400 Gb/s, 64 NICs; 10 % of the links between switches are dead, and routing
          knows: five seeds

Rates are those of a NIC, payload, as a share of the one before, or in Gb/s.
"""

from __future__ import annotations

import sys

import numpy as np

from openmrc.run.outcome import TransportResult
from openmrc.run.simulation import simulate
from openmrc.scenario.scenario import parse_scenario

TRANSPORTS = """
    [[transport]]
    paths = "mrc"
    [[transport]]
    kind = "roce"
    name = "adaptive"
    routing = "adaptive"
"""
PLANE = """
    [fabric]
    nics = 32
    planes = 4
    port_rate = "100Gbps"
    t0_down = 2
    t0_up = 2
    [workload]
    kind = "permutation"
    size = "1GB"
    [[fault]]
    at = "1ms"
    kind = "switch-down"
    where = "plane 3 t1 *"
    [stop]
    time = "6ms"
"""
LINKS = """
    [fabric]
    nics = 64
    planes = 1
    port_rate = "400Gbps"
    t0_down = 16
    t0_up = 16
    [workload]
    kind = "permutation"
    size = "8MB"
"""
DEAD = """
    [[fault]]
    at = "0s"
    kind = "link-down"
    where = "plane 0 t0 * - t1 *"
    share = 0.1
"""
BACK = 0.97  # of three planes' rate: a bin is as good as back


def plane() -> None:
    """When NICs that have lost a plane are back at the rate of the others."""
    for run in simulate(parse_scenario(PLANE + TRANSPORTS)).transports:
        t_ms, gbps = rates(run)
        before = gbps[(t_ms > 0.5) & (t_ms < 0.95)].mean()
        good = gbps[:-1] >= BACK * 0.75 * before
        bad = np.flatnonzero(~good & (t_ms[:-1] >= 1))
        back = t_ms[bad[-1] + 1] - 1 if bad.size else 0.0
        down = gbps[(t_ms >= 1) & (t_ms < 1 + max(back, 0.01))].mean()
        after = gbps[-11:-1].mean() / before
        print(
            f"plane     {run.name:9} back after {back:8.2f} ms, until then at {down / before:5.1%};"
            f" then {after:5.1%}"
        )


def rates(run: TransportResult) -> tuple[np.ndarray, np.ndarray]:
    """The start of each bin, ms, and the payload placed in it, Gb/s."""
    t_ps = np.asarray(run.timeline["t_ps"])
    width_ps = int(t_ps[1] - t_ps[0])
    return t_ps / 1e9, np.asarray(run.timeline["goodput_bytes"]) * 8e3 / width_ps


def links() -> None:
    """The rates of flows, healthy and with a tenth of the links dead."""
    for title, text in (("healthy", LINKS), ("10 % dead", LINKS + DEAD)):
        found: dict[str, list[np.ndarray]] = {}
        for seed in range(1, 6):
            more = TRANSPORTS + 'convergence = "instant"\n'
            for run in simulate(parse_scenario(text + more, [f"seed={seed}"])).transports:
                gbps = run.flows["bytes"] * 8e3 / run.fct_ps
                found.setdefault(run.name, []).append(gbps)
        for name, each in found.items():
            rates_gbps = np.concatenate(each)
            p01, p50 = np.percentile(rates_gbps, [1, 50])
            told = f"mean {rates_gbps.mean():6.1f} Gb/s, p50 {p50:6.1f}, p01 {p01:6.1f}"
            print(f"links     {name:9} {title:10} {told}")


def main() -> None:
    which = sys.argv[1:] or ["plane", "links"]
    if "plane" in which:
        plane()
    if "links" in which:
        links()


if __name__ == "__main__":
    main()
