"""The collectives of B15 and B16 of `mrc paper` without losses, on switches that cut through:
the time of one, us, also over switches that balance.

    .venv/bin/python benchmarks/cut_through.py [--sizes 4 64] [--stored] [--seed 1]

Scenarios and sizes (MB) are those of the experiments; `--stored` prints those of switches that
store whole packets, too.
"""

from __future__ import annotations

import argparse
from typing import Any

from openmrc.paper.case import scenario
from openmrc.paper.experiments import collectives
from openmrc.run.simulation import simulate

FOUR_PORTS = {"fabric.planes": 4, "fabric.port_rate": "100Gbps"}
BALANCED = {"transport.routing": "adaptive"}
ROCE = collectives.roce(1)
COLUMNS: dict[str, tuple[str, dict[str, Any]]] = {  # curve, and what a scenario changes further
    "MRC, 4 ports": (collectives.MRC, {}),
    "MRC, 1 port": (collectives.MRC_ONE, {}),
    "RoCEv2, 1 QP": (ROCE, {}),
    "RoCEv2, 8 QPs": (collectives.roce(8), {}),
    "adaptive, 1 port": (ROCE, BALANCED),
    "adaptive, 4 ports": (ROCE, BALANCED | {"fabric.kind": "multiplane"} | FOUR_PORTS),
}
KINDS = {"B15": collectives.ALL_REDUCE, "B16": collectives.ALL_TO_ALL}


def one_us(kind: collectives.Kind, size_mb: int, column: str, change: dict[str, Any]) -> float:
    """Return how long one collective of a size takes, us: of several in succession, their mean."""
    curve, more = COLUMNS[column]
    of_size = collectives.of_size(kind, size_mb)
    given = scenario(collectives.file_of(kind, curve)).replace(
        of_size | collectives.of_curve(curve) | {"fault[0].rate": 0.0} | more | change, "this case"
    )
    (row,) = simulate(given).figures.to_dicts()
    return float(row["slowdown_p100"] * row["ideal_us"]) / kind.times.get(size_mb, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=[4, 64], help="MB")
    parser.add_argument("--stored", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print("| | " + " | ".join(COLUMNS) + " |\n" + "|---" * (1 + len(COLUMNS)) + "|")
    for name, kind in KINDS.items():
        for size in options.sizes:
            for switching in ("store-and-forward",) * options.stored + ("cut-through",):
                change = {"fabric.switching": switching, "seed": options.seed}
                cells = [f"{one_us(kind, size, each, change):,.1f}" for each in COLUMNS]
                print(f"| {name}, {size} MB; {switching} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
