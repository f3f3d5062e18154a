"""A link that loses 0.5 % in one step of examples/training.toml, found by what its senders saw.

    .venv/bin/python benchmarks/gray.py [--trials N] [--scale N] [--seed N] [--case NAME] [--json]

Packets are simulated one by one, and `mrc why` reads nothing but what senders noted of their
paths. A link is drawn for each trial; it is found if it is named with its direction. A step of the
example moves little across links between T0s and T1s: `--scale` makes its transfers so many times
as large there. `nothing` and `congestion` break nothing; in `congestion and damage` a link of a T1
down to the T0 of an incast's victim loses 20 % of packets, a third of which are trimmed: nothing
tells that link from its T1, so it is `among` what is named.
"""

from __future__ import annotations

import argparse
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from rows import tell

from openmrc.fabric import Fabric
from openmrc.ops.records import Record, read
from openmrc.ops.why import Answer, why
from openmrc.report.result import simulate
from openmrc.scenario.scenario import make_scenario
from openmrc.units import parse_size

ROOT = Path(__file__).resolve().parents[1]
RATE, DAMAGE = 0.005, 0.2
VICTIM = 0
SIZES = ("tp_size", "pp_size", "ep_size", "dp_size", "expert_size", "bucket")
INCAST = {"kind": "incast", "n": 48, "size": "4MB"}
WIRE_BYTES = 4096 + 94  # of a full packet: with headers, preamble and gap


def step(scale: int) -> dict[str, Any]:
    """The example's first step, MRC alone, nothing broken."""
    tables = tomllib.loads((ROOT / "examples/training.toml").read_text(encoding="utf-8"))
    del tables["fault"]
    tables["transport"] = tables["transport"][:1]
    sizes = {key: f"{scale * parse_size(tables['workload'][key])}B" for key in SIZES}
    tables["workload"] |= sizes | {"steps": 1}
    return tables


def incast() -> dict[str, Any]:
    return step(1) | {"workload": INCAST}


def is_it(fabric: Fabric, port: int, case: str) -> bool:
    """Whether a directed port is of a case: its ends are "nic" or the tier of a switch."""
    ends = [
        "nic" if nic >= 0 else f"t{int(fabric.sw_tier[switch])}"
        for nic, switch in (
            (fabric.port_nic[port], fabric.port_switch[port]),
            (fabric.port_peer_nic[port], fabric.port_peer_switch[port]),
        )
    ]
    return " > ".join(ends) == case


LINKS = ("nic > t0", "t0 > nic", "t0 > t1", "t1 > t0")
CASES = (*LINKS, "nothing", "congestion", "congestion and damage")


def trial(case: str, number: int, scale: int, seed: int) -> dict[str, Any]:
    """One run, and what is named."""
    rng = np.random.default_rng([seed, CASES.index(case), number])
    of_t1 = case in ("t0 > t1", "t1 > t0")
    tables = incast() if case.startswith("congestion") else step(scale if of_t1 else 1)
    tables["seed"] = seed + number
    fabric = make_scenario(tables).fabric.build()
    damaged = case == "congestion and damage"
    which = "t1 > t0" if damaged else case
    ports = [port for port in range(fabric.n_ports) if is_it(fabric, port, which)]
    if damaged:
        ports = [port for port in ports if fabric.sw_lo[fabric.port_peer_switch[port]] == VICTIM]
    bad = int(rng.choice(ports)) if ports else None
    if bad is not None:
        where, rate = fabric.port_name(bad), DAMAGE if damaged else RATE
        tables["fault"] = [{"at": "0us", "kind": "link-loss", "where": where, "rate": rate}]
    result = simulate(tables, sampled=True)
    with tempfile.TemporaryDirectory() as directory:
        result.save(Path(directory))
        (record,) = read(Path(directory))
        answer = why(record)
    return {"case": case} | told(record, answer, bad)


def told(record: Record, answer: Answer, bad: int | None) -> dict[str, Any]:
    """Whether the link, and nothing else, was named; what it carried."""
    sure = [finding for finding in answer.findings if not finding.one_of]
    name = None if bad is None else record.fabric.port_name(bad)
    counts = record.counts
    mine = counts.filter(pl.col("port") == bad)["packets"].sum() if counts is not None else 0
    return {
        "where": name,
        "found": any(finding.where == name for finding in sure),
        "among": any(name in it.one_of or name == it.where for it in answer.findings),
        "wrong": sum(finding.where != name for finding in sure),
        "one_of": len(answer.findings) - len(sure),
        "packets": int(mine),
        "megabytes": round(int(mine) * WIRE_BYTES / 1e6, 1),
        "lost": sum(finding.lost for finding in sure if finding.where == name),
        "trimmed": record.summary["packets"]["trimmed"],
        "step_us": record.summary["sim_time_us"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=10, help="of each case (default: 10)")
    parser.add_argument("--scale", type=int, default=8, help="of transfers, for links of T1s")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", action="append", choices=CASES, help="these cases only")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    arguments = parser.parse_args()
    rows = (
        trial(case, number, arguments.scale, arguments.seed)
        for case in arguments.case or CASES
        for number in range(arguments.trials)
    )
    tell(rows, arguments.json)


if __name__ == "__main__":
    main()
