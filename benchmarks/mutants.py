"""How well the conformance kit finds what is broken in the engine: mutants made by machine.

A sample of all small edits (`tests/conform/machine.py`), the same number of each function as far
as it has so many, is held against the rules of the kit, in process and in plain Python. Those that
pass run stories of two endpoints with losses, trims, marks and delays, beside the engine as it is:
one that does not differ from it in any packet is set aside, as nobody could tell the two apart.
Survivors are listed by function.

    NUMBA_DISABLE_JIT=1 .venv/bin/python benchmarks/mutants.py              # 200: half an hour
    NUMBA_DISABLE_JIT=1 .venv/bin/python benchmarks/mutants.py --n 1500 --seed 7 --json report.json
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from openmrc.conform import script
from openmrc.conform.engine import EngineTarget
from openmrc.conform.run import FAIL, run
from openmrc.conform.script import Rule
from tests.conform import machine
from tests.engine.pair import Pair

LIMIT_S = 60  # of a mutant that never ends
STORIES = 8
BROKEN = "!"  # before the name of an exception that a mutant raises


def judged(edit: machine.Edit, rules: list[Rule], told: list[str] | None = None) -> str:
    """The rule that a mutant fails; "" if none, or "=" if no story differs from `told` either."""

    def attempt() -> str:
        machine.apply(edit)
        for rule in rules:
            if run(rule, EngineTarget).outcome == FAIL:
                return rule.name
        return "=" if told and stories() == told else ""

    return in_child(attempt)


def in_child(attempt: Callable[[], str]) -> str:
    """What a function returns in a process of its own, which it may change or break."""
    out, into = os.pipe()
    if (pid := os.fork()) == 0:
        signal.alarm(LIMIT_S)
        try:
            said = attempt()
        except BaseException as error:  # an endpoint that breaks has failed
            said = f"{BROKEN}{type(error).__name__}"
        os.write(into, said.encode())
        os._exit(0)
    os.close(into)
    with os.fdopen(out, "rb") as pipe:
        said = pipe.read().decode()
    _, status = os.waitpid(pid, 0)
    return said if status == 0 else f"{BROKEN}hangs"


def stories() -> list[str]:
    """A digest of the packets of each story."""
    return [_story(seed) for seed in range(STORIES)]


def _story(seed: int) -> str:
    dice = random.Random(seed)
    pair = Pair(
        planes=dice.choice([1, 2, 4]),
        evs=dice.choice([1, 4, 8]),
        backup=dice.choice([0, 2]),
        qps=dice.choice([1, 2]),
        trimming=dice.choice([0, 1]),
        checked=False,
    )
    for _ in range(3):
        pair.post(dice.randrange(1, 200_000), imm=dice.choice([None, 7]))
        plane = dice.randrange(pair.planes)
        pair.drop(dice.randrange(6), plane=plane)
        pair.trim(dice.randrange(4))
        pair.mark(dice.randrange(20))
        pair.delay(dice.randrange(30), dice.randrange(4))
        pair.advance(dice.randrange(5, 200))
    if pair.planes > 1 and dice.random() < 0.5:
        pair.cut(plane=0)
        pair.post(100_000)
        pair.advance(300)
        pair.heal()
    pair.drive(20_000, errors=True)
    digest = hashlib.sha256()
    for each in pair.log:
        digest.update(f"{each.at} {each.kind} {each.p}".encode())
    return digest.hexdigest()


def main() -> None:
    """Draw, judge, and print what survived."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n", maxsplit=1)[0])
    parser.add_argument("--n", type=int, default=200, help="mutants (200)")
    parser.add_argument("--seed", type=int, default=1, help="another sample (1)")
    parser.add_argument("--json", type=Path, help="every mutant and what it failed")
    args = parser.parse_args()
    rules, told, rows = script.rules(), stories(), []
    for k, edit in enumerate(machine.drawn(args.n, args.seed)):
        rows.append((edit, judged(edit, rules, told)))
        print(f"\r{k + 1} of {args.n}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    if args.json:
        args.json.write_text(json.dumps([[str(edit), failed] for edit, failed in rows], indent=1))
    aside = [edit for edit, failed in rows if failed == "="]
    left = [edit for edit, failed in rows if not failed]
    judged_n = len(rows) - len(aside)
    for (module, name), n in sorted(Counter((e.module, e.function) for e in left).items()):
        print(f"{module}.{name}: {n}")
        for edit in left:
            if (edit.module, edit.function) == (module, name):
                print(f"    line {edit.line}: {edit.what}")
    found = judged_n - len(left)
    print(f"{args.n} mutants, {len(aside)} like the engine in every packet of {STORIES} stories")
    print(f"of the other {judged_n} the kit finds {found} ({found / max(judged_n, 1):.0%})")


if __name__ == "__main__":
    main()
