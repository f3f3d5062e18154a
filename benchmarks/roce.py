"""The tables of docs/roce.md: a ring all-reduce over RoCEv2 and over MRC, with and without losses.

    .venv/bin/python benchmarks/roce.py ring [--row ROW ...] [--sizes 16MB] [--seeds 1 2]
    .venv/bin/python benchmarks/roce.py loss [--row ROW ...] [--sizes 4MB 64MB]

64 NICs of 400 Gb/s below four T0s with 16 uplinks each, ranks in random order. `ring` prints the
ideal time of each transport over its time, by seed. `loss` lets every NIC's link lose 0.1 % and
1 % of its packets in both directions, and prints milliseconds, with that share in brackets.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from openmrc.run.outcome import TransportResult
from openmrc.run.simulation import simulate
from openmrc.scenario.scenario import make_scenario
from openmrc.units import MS

RING: dict[str, dict[str, Any]] = {
    "RoCE, 1 QP": {"kind": "roce"},
    "RoCE, 8 QPs": {"kind": "roce", "qps": 8},
    "RoCE, 16 QPs": {"kind": "roce", "qps": 16},
    "MRC, 1 QP": {"kind": "mrc"},
}
LOSS: dict[str, dict[str, Any]] = {
    "RoCE, 1 QP": {"kind": "roce"},
    "RoCE, 8 QPs": {"kind": "roce", "qps": 8},
    'the same, `rto = "1ms"`': {"kind": "roce", "qps": 8, "rto": "1ms"},
    "MRC": {"kind": "mrc"},
}
LOSSES = {"0.1 %": 0.001, "1 %": 0.01}


def run(transport: dict[str, Any], size: str, seed: int, loss: float = 0.0) -> TransportResult:
    """Return the run of one transport: an all-reduce of this size, with links that lose packets."""
    scenario: dict[str, Any] = {
        "seed": seed,
        "fabric": {
            "kind": "fat-tree", "nics": 64, "port_rate": "400Gbps", "t0_down": 16, "t0_up": 16,
        },
        "workload": {"kind": "ring-all-reduce", "size": size, "order": "random"},
        "transport": [transport],
    }  # fmt: skip
    if loss:
        where = "nic * plane 0 - t0"
        scenario["fault"] = [{"at": "0s", "kind": "link-loss", "where": where, "rate": loss}]
    [result] = simulate(make_scenario(scenario)).transports
    return result


def ring_cell(transport: dict[str, Any], size: str, seeds: Sequence[int]) -> str:
    """Return the ideal time over the run's, of each seed."""
    return ", ".join(f"{_share(run(transport, size, seed)):.2f}" for seed in seeds)


def loss_cell(transport: dict[str, Any], size: str, loss: float) -> str:
    """Return the run's time in ms, and in brackets the ideal time over it."""
    result = run(transport, size, 1, loss)
    assert result.finish_ps is not None
    time_ms = result.finish_ps / MS
    digits = 2 if time_ms < 10 else 1 if time_ms < 100 else 0  # three figures
    return f"{time_ms:.{digits}f} ({_share(result):.2f})"


def _share(result: TransportResult) -> float:
    return 1 / float(result.summary()["slowdown_p100"])


def main() -> None:
    """Print a table, row by row."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("table", choices=["ring", "loss"])
    parser.add_argument("--row", nargs="+")
    parser.add_argument("--sizes", nargs="+")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2])
    arguments = parser.parse_args()
    rows = RING if arguments.table == "ring" else LOSS
    sizes = arguments.sizes or (["16MB"] if arguments.table == "ring" else ["4MB", "64MB"])
    heads = sizes if arguments.table == "ring" else [f"{s}, {p}" for p in LOSSES for s in sizes]
    print(f"| | {' | '.join(heads)} |\n|{'---|' * (len(heads) + 1)}")
    for name, transport in rows.items():
        if arguments.row and name not in arguments.row:
            continue
        if arguments.table == "ring":
            cells = [ring_cell(transport, size, arguments.seeds) for size in sizes]
        else:
            cells = [loss_cell(transport, s, loss) for loss in LOSSES.values() for s in sizes]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
