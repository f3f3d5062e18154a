"""What MRC loses over switches that choose paths, where no EV names one: p50 / p99 / p100, us.

    .venv/bin/python benchmarks/unnamed.py [--seeds 3] [--nics 256]

1 MB each over 8 planes of 100 Gb/s; what is broken is broken from the start, and routing knows of
dead links 20 ms later.
"""

from __future__ import annotations

import argparse

import numpy as np

from openmrc.run.figures import nearest_rank
from openmrc.run.simulation import simulate
from openmrc.scenario.scenario import parse_scenario
from openmrc.units import US

PERMUTATION, INCAST = 'kind = "permutation"', 'kind = "incast"\nn = 32'
ROWS: dict[str, tuple[str, str]] = {
    "healthy": (PERMUTATION, ""),
    "1 % of links dead": (
        PERMUTATION,
        'kind = "link-down"\nwhere = "plane * t0 * - t1 *"\nshare = 0.01',
    ),
    "a silent T1": (PERMUTATION, 'kind = "switch-silent"\nwhere = "plane 0 t1 0"'),
    "a cable loses 5 %": (
        PERMUTATION,
        'kind = "link-loss"\nwhere = "plane 0 t0 0 - t1 0"\nrate = 0.05',
    ),
    "32 to one": (INCAST, ""),
}
TRANSPORTS = """
[[transport]]
name = "MRC"
[[transport]]
name = "MRC, adaptive switches"
srv6 = false
routing = "adaptive"
convergence = "20ms"
[[transport]]
name = "MRC, spraying switches"
srv6 = false
routing = "spray"
convergence = "20ms"
[[transport]]
kind = "roce"
name = "RoCEv2, adaptive switches"
routing = "adaptive"
convergence = "20ms"
"""


def cells(row: str, nics: int, seeds: int) -> dict[str, str]:
    """Return the cell of each transport in a row, over the flows of all seeds."""
    workload, fault = ROWS[row]
    text = (
        f'[fabric]\nnics = {nics}\nplanes = 8\nport_rate = "100Gbps"\nt0_down = 64\n'
        f'[workload]\n{workload}\nsize = "1MB"\n{TRANSPORTS}'
    )
    if fault:
        text += f'[[fault]]\nat = "0s"\n{fault}\n'
    found: dict[str, list[np.ndarray]] = {}
    for seed in range(1, seeds + 1):
        for run in simulate(parse_scenario(text, [f"seed={seed}"])).transports:
            found.setdefault(run.name, []).append(run.fct_ps)
    return {
        name: " / ".join(_said(nearest_rank(np.concatenate(of), q) / US) for q in (0.5, 0.99, 1))
        for name, of in found.items()
    }


def _said(us: float) -> str:
    return f"{us:.1f}" if us < 1000 else f"{us / 1000:.1f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--nics", type=int, default=256)
    options = parser.parse_args()
    for number, row in enumerate(ROWS):
        found = cells(row, options.nics, options.seeds)
        if number == 0:
            print("| | " + " | ".join(found) + " |\n" + "|---" * (1 + len(found)) + "|")
        print(f"| {row} | " + " | ".join(found.values()) + " |", flush=True)


if __name__ == "__main__":
    main()
