"""Whether the rules that hold always are true of right endpoints on networks that nobody tried.

A rule that is false for some seed accuses endpoints that are right: these meet other packets of the
kit's networks than openmrc does. Each exchange with a network is run with other seeds, against the
engine, or with `--live` the live endpoint in virtual time; breaches are printed, each is a fault of
the kit's model (or of the endpoint). What an exchange itself expects at its end is counted apart.

    NUMBA_DISABLE_JIT=1 .venv/bin/python benchmarks/seeds.py --n 50     # ten minutes on two cores
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import sys
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from openmrc.conform import script
from openmrc.conform.engine import EngineTarget
from openmrc.conform.run import FAIL, Verdict, run
from openmrc.conform.script import Rule
from tests.conform import virtual

SEED_BITS = 30


def with_seeds(rule: Rule, dice: random.Random) -> Rule:
    """The exchange with another seed for each of its networks."""
    steps = tuple(
        replace(
            step,
            conditions=(
                *(c for c in step.conditions if c[0] != "seed"),
                ("seed", "=", str(dice.getrandbits(SEED_BITS))),
            ),
        )
        if step.word in ("serve", "arrive")
        else step
        for step in rule.steps
    )
    return replace(rule, steps=steps)


def tried(rule: Rule, live: bool) -> Verdict:
    """One exchange, beside the rules that hold always."""
    always = script.rules(kind=script.ALWAYS)
    return virtual.verdict(rule, always) if live else run(rule, EngineTarget, always)


def main() -> int:
    """Run, and print what does not hold."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n", maxsplit=1)[0])
    parser.add_argument("--n", type=int, default=50, help="seeds of each exchange (50)")
    parser.add_argument("--seed", type=int, default=1, help="what they are drawn from (1)")
    parser.add_argument("--live", action="store_true", help="the live endpoint in virtual time")
    parser.add_argument("--rule", default="", help="part of the names of the exchanges")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    args = parser.parse_args()
    dice = random.Random(args.seed)
    rules = [rule for rule in script.rules() if rule.group.endswith("networks")]
    drawn = [with_seeds(rule, dice) for _ in range(args.n) for rule in rules]
    drawn = [rule for rule in drawn if args.rule in rule.name]
    false, late = Counter[str](), Counter[str]()
    with multiprocessing.get_context("fork").Pool(args.jobs) as pool:
        for verdict in pool.imap_unordered(partial(tried, live=args.live), drawn):
            late[verdict.rule.name] += verdict.outcome == FAIL
            for breach in verdict.breaches[:1]:
                false[breach.rule.name] += 1
                seeds = [{c[0]: c[2] for c in step.conditions} for step in verdict.rule.steps]
                print(verdict.rule.name, breach.rule.name, breach.why, breach.came, sep=": ")
                print("   ", *(one["seed"] for one in seeds if "seed" in one), flush=True)
    print(f"{len(drawn)} exchanges; rules that hold always, false in {dict(false)}")
    print(f"expected at the end, and not there: {dict(+late)}")
    return int(bool(false))


if __name__ == "__main__":
    sys.exit(main())
