"""Scenarios as an operator on call meets them, and what `mrc why` says of each: oncall.

    .venv/bin/python benchmarks/oncall.py [NAME ...] [--keep DIR] [--json]

Each scenario of `examples/why` runs once (NAME: only those). The faults are cut out of its results,
`mrc why` answers, and only then `judge.py` compares the answer with the faults. Of links that are
slow and of denied places nothing is lost, so "nothing broke" is right of them. Of several
transports each answer must be right.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from blind import asked, kept, said, total

from openmrc.ops.records import read
from openmrc.scenario.scenario import load_scenario

SCENARIOS = Path(__file__).resolve().parents[1] / "examples/why"


def ask(name: str, directory: Path | None) -> list[dict[str, Any]]:
    """Run a scenario, unless its results are kept, and ask why: a row for each transport."""
    scenario = load_scenario(SCENARIOS / f"{name}.toml")
    with kept(scenario, None if directory is None else directory / name) as results:
        return [asked(scenario, f"{name} ({it.name})", it) for it in read(results)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", metavar="NAME", nargs="*", help="scenarios (default: all)")
    parser.add_argument("--keep", metavar="DIR", type=Path, help="keep the results there")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    arguments = parser.parse_args()
    rows = []
    for name in arguments.names or sorted(path.stem for path in SCENARIOS.glob("*.toml")):
        found = ask(name, arguments.keep)
        rows += found
        for row in found if not arguments.json else ():
            print("right" if row["right"] else "WRONG", said(row), flush=True)
    print(json.dumps(rows, indent=1) if arguments.json else total(rows))


if __name__ == "__main__":
    main()
