"""How well the conformance kit finds what is broken in the engine: mutants made by machine.

A sample of all small edits (`tests/conform/machine.py`), the same number of each function as far
as it has so many, is held against the rules of the kit, in process and in plain Python. Those that
pass run stories of two endpoints with losses, trims, marks and delays, beside the engine as it is:
one that does not differ from it in any packet is set aside, as nobody could tell the two apart.
Survivors are listed by function.

    NUMBA_DISABLE_JIT=1 .venv/bin/python benchmarks/mutants.py              # 200: half an hour
    NUMBA_DISABLE_JIT=1 .venv/bin/python benchmarks/mutants.py --n 1500 --seed 7 --json report.json

With `--network` the mutants are of the live endpoint, too, in how it receives and transmits, and
the kit meets it by plain UDP on loopback. A mutant of the engine meets only the rules that run its
line in process.

    NUMBA_DISABLE_JIT=1 .venv/bin/python benchmarks/mutants.py --network --n 60   # half an hour
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from openmrc.conform import network, script, targets, tester
from openmrc.conform.engine import EngineTarget
from openmrc.conform.run import FAIL, run
from openmrc.conform.script import Rule
from openmrc.units import MS
from openmrc.verbs import secret as secrets
from tests.conform import machine
from tests.engine.pair import Pair

WHOLE = ("127.77.3.1", "127.77.3.2")  # of the endpoint as it is
LIMIT_S = 30  # of processor time, of a mutant that never ends
PATIENCE_PS = 60 * MS  # with an endpoint in plain Python
CONFIRMED = 2  # times that a rule must fail again
KIT_S = 900  # of the kit against one that it meets by the network
STORIES = 8
ENGINE = "/openmrc/engine/"  # in the path of its files
BROKEN = "!"  # before the name of an exception that a mutant raises


class Reach:
    """Which lines of the engine each rule and each story runs: the others cannot tell a mutant."""

    def __init__(self, rules: list[Rule], told: bool = True) -> None:
        self.always = script.rules(kind=script.ALWAYS)
        self.rules = [(rule, _lines(partial(run, rule, EngineTarget))[1]) for rule in rules]
        stories = [_lines(partial(_story, seed)) for seed in range(STORIES if told else 0)]
        self.stories = [(seed, digest, lines) for seed, (digest, lines) in enumerate(stories)]

    def judged(self, edit: machine.Edit) -> str:
        """The rule that a mutant fails; "" if none, or "=" if no story differs either."""
        there = machine.lines(edit)

        def attempt() -> str:
            machine.apply(edit)
            reached = [rule for rule, lines in self.rules if lines & there]
            if name := first_failed(reached, self.always):
                return name
            return self.alike(there)

        return in_child(attempt)

    def alike(self, there: set[tuple[str, int]]) -> str:
        """ "=" if no packet of the stories differs in a process that has changed these lines."""
        reached = [(seed, was) for seed, was, lines in self.stories if lines & there]
        return "" if any(_story(seed) != was for seed, was in reached) else "="


def first_failed(rules: Sequence[Rule], always: Sequence[Rule]) -> str:
    """The first rule that the engine, as it is now, fails; "" if none."""
    for rule in rules:
        verdict = run(rule, EngineTarget, always)
        if verdict.breaches:
            return verdict.breaches[0].rule.name
        if verdict.outcome == FAIL:
            return rule.name
    return ""


def _lines(what: Callable[[], Any]) -> tuple[Any, set[tuple[str, int]]]:
    """What a function returns, and the lines of the engine that it runs."""
    found: set[tuple[str, int]] = set()

    def local(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            found.add((frame.f_code.co_filename, frame.f_lineno))
        return local

    def enter(frame: FrameType, _: str, __: Any) -> Any:
        return local if ENGINE in frame.f_code.co_filename else None

    sys.settrace(enter)
    try:
        return what(), found
    finally:
        sys.settrace(None)


class Network:
    """The live endpoint, broken, in a process of its own, and the kit beside it. In plain Python it
    is slow: what fails must fail again, and pass each time against the endpoint as it is.
    """

    def __init__(self, rules: list[Rule]) -> None:
        self.reach = Reach(rules)
        self.secret = secrets.new()

    def judged(self, edit: machine.Edit) -> str:
        """The rule that a mutant fails; "" if none."""
        there, tried = machine.lines(edit), self.reach.rules
        if not edit.module.startswith("live."):
            tried = [(rule, lines) for rule, lines in tried if lines & there]
        with self._served(edit) as broken, self._served(None) as whole:
            own = [rule for rule, _ in tried]

            def attempt() -> str:
                hurry()
                return self._first(broken, whole, own)

            failed = in_child(attempt, KIT_S)

        def alike() -> str:
            machine.apply(edit)
            return self.reach.alike(there)

        return failed if failed or edit.module.startswith("live.") else in_child(alike)

    @contextlib.contextmanager
    def _served(self, edit: machine.Edit | None) -> Iterator[network.Where]:
        out, into = os.pipe()
        if (pid := os.fork()) == 0:
            with contextlib.suppress(BaseException):
                hurry()
                if edit:
                    machine.apply(edit)
                planes = targets.LIVE if edit else WHOLE
                serve = tester.on_network(planes), self.secret, 0
                tester.serve(*serve, lambda port: write(into, port))
            os._exit(1)
        os.close(into)
        try:
            port = int(os.read(out, 16) or 0)
            where = network.Where(targets.KIT, "127.0.0.1", port, self.secret)
            yield replace(where, patience_ps=PATIENCE_PS)
        finally:
            os.close(out)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def _first(self, broken: network.Where, whole: network.Where, rules: list[Rule]) -> str:
        for rule in rules:
            failed = [self._fails(rule, broken)]
            while failed[-1] and len(failed) <= CONFIRMED and not self._fails(rule, whole):
                failed.append(self._fails(rule, broken))
            if len(failed) > CONFIRMED and failed[-1]:
                return failed[0]
        return ""

    def _fails(self, rule: Rule, where: network.Where) -> str:
        verdict = network.verdict(rule, where, self.reach.always)
        if verdict.breaches:
            return verdict.breaches[0].rule.name
        return rule.name if verdict.outcome == FAIL else ""


def hurry() -> None:
    """Real time comes before what else the machine does, as far as it permits that."""
    with contextlib.suppress(OSError):
        os.nice(-10)


def write(into: int, port: int) -> None:
    """Tell the kit where an endpoint listens."""
    os.write(into, str(port).encode())


def in_child(attempt: Callable[[], str], limit_s: int = LIMIT_S) -> str:
    """What a function returns in a process of its own, which it may change or break."""
    out, into = os.pipe()
    if (pid := os.fork()) == 0:
        signal.setitimer(signal.ITIMER_PROF, limit_s)
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


def _story(seed: int) -> str:
    """A digest of the packets of a story."""
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
    parser.add_argument("--network", action="store_true", help="of the live endpoint, by UDP")
    args = parser.parse_args()
    reach = Network(script.rules()) if args.network else Reach(script.rules())
    rows = []
    for k, edit in enumerate(machine.drawn(args.n, args.seed, args.network)):
        rows.append((edit, reach.judged(edit)))
        print(f"\r{k + 1} of {args.n}", end="", file=sys.stderr, flush=True)
        if args.json:  # after each: a run takes long, and may be ended
            args.json.write_text(json.dumps([[str(e), failed] for e, failed in rows], indent=1))
    print(file=sys.stderr)
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
