"""How well the conformance kit finds what is broken in the engine: mutants made by machine.

A sample of all small edits (`tests/conform/machine.py`), the same number of each function as far
as it has so many, is held against the rules of the kit, in process and in plain Python. Those that
pass run stories of two endpoints with losses, trims, marks and delays, beside the engine as it is:
one that does not differ from it in any packet is set aside, as nobody could tell the two apart.
Survivors are listed by function.

    NUMBA_DISABLE_JIT=1 .venv/bin/python benchmarks/mutants.py              # 200: half an hour
    NUMBA_DISABLE_JIT=1 .venv/bin/python benchmarks/mutants.py --n 1500 --seed 7 --json report.json

With `--live` the mutants are of the live endpoint, too, in how it receives and transmits, and the
kit meets that by datagrams in virtual time (`tests/conform/virtual.py`): nothing is late, and a run
repeats. What is set aside are edits that change no packet of stories of two live endpoints.

    NUMBA_DISABLE_JIT=1 .venv/bin/python benchmarks/mutants.py --live --n 200    # an hour
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from openmrc.conform import script
from openmrc.conform.engine import EngineTarget
from openmrc.conform.run import FAIL, Verdict, run
from openmrc.conform.script import Rule
from openmrc.conform.whole import Try
from tests.conform import machine, stories, virtual

T = TypeVar("T")
LIMIT_S = 15  # of processor time, of an exchange with a mutant that never ends
STORIES = 8
PARTS = ("/openmrc/engine/", "/openmrc/live/endpoint/")  # in the paths of the endpoint's files
BROKEN = "!"  # before the name of an exception that a mutant raises


class Reach:
    """Which lines of the endpoint each rule and each story runs: the others cannot tell a mutant.
    Exchanges that take little come first.
    """

    def __init__(self, rules: Sequence[Rule], live: bool = False, jobs: int = 1) -> None:
        self.tried: Try = virtual.verdict if live else in_process
        self.always = script.rules(kind=script.ALWAYS)
        story = stories.of_live if live else stories.of_engines
        with multiprocessing.get_context("fork").Pool(jobs) as pool:
            of_rules = pool.map(_lines, [partial(self.tried, rule, self.always) for rule in rules])
            of_stories = pool.map(_lines, [partial(story, seed) for seed in range(STORIES)])
        found = [
            (took, rule, lines) for rule, (_, took, lines) in zip(rules, of_rules, strict=True)
        ]
        found.sort(key=lambda each: each[0])
        self.rules = [(rule, lines) for _, rule, lines in found]
        self.stories = [
            (partial(story, seed), digest, lines)
            for seed, (digest, _, lines) in enumerate(of_stories)
        ]

    def judged(self, edit: machine.Edit) -> str:
        """The rule that a mutant fails; "" if none, or "=" if no story differs either."""
        there = machine.lines(edit)

        def attempt() -> str:
            machine.apply(edit)
            reached = [rule for rule, lines in self.rules if lines & there]
            if name := first_failed(reached, self.always, self.tried):
                return name
            return self.alike(there)

        return in_child(attempt)

    def alike(self, there: set[tuple[str, int]]) -> str:
        """ "=" if no packet of the stories differs in a process that has changed these lines."""
        reached = [(story, was) for story, was, lines in self.stories if lines & there]
        return "" if any(_timed(story) != was for story, was in reached) else "="


def in_process(rule: Rule, always: Sequence[Rule]) -> Verdict:
    """One exchange with the engine."""
    return run(rule, EngineTarget, always)


def first_failed(rules: Sequence[Rule], always: Sequence[Rule], tried: Try = in_process) -> str:
    """The first rule that the endpoint, as it is now, fails; "" if none."""
    for rule in rules:
        verdict = _timed(partial(tried, rule, always))
        if verdict.breaches:
            return verdict.breaches[0].rule.name
        if verdict.outcome == FAIL:
            return rule.name
    return ""


def _timed(what: Callable[[], T]) -> T:
    """What a function returns; it may take so long."""
    signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
    return what()


def _lines(what: Callable[[], Any]) -> tuple[Any, float, set[tuple[str, int]]]:
    """What a function returns, its time, and the lines of the endpoint that it runs."""
    found: set[tuple[str, int]] = set()

    def local(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            found.add((frame.f_code.co_filename, frame.f_lineno))
        return local

    def enter(frame: FrameType, _: str, __: Any) -> Any:
        return local if any(part in frame.f_code.co_filename for part in PARTS) else None

    begun = time.process_time()
    sys.settrace(enter)
    try:
        said = what()
    finally:
        sys.settrace(None)
    told = said if isinstance(said, str) else ""
    return told, time.process_time() - begun, found


def in_child(attempt: Callable[[], str]) -> str:
    """What a function returns in a process of its own, which it may change or break."""
    out, into = os.pipe()
    if (pid := os.fork()) == 0:
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


def _all_judged(reach: Reach, edits: Sequence[machine.Edit], jobs: int) -> Iterator[str]:
    """What each edit fails, in order, by several processes, which inherit what is reached."""
    _inherited[:] = [reach]
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        yield from pool.imap(_judged, edits)


_inherited: list[Reach] = []


def _judged(edit: machine.Edit) -> str:
    return _inherited[0].judged(edit)


def main() -> None:
    """Draw, judge, and print what survived."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n", maxsplit=1)[0])
    parser.add_argument("--n", type=int, default=200, help="mutants (200)")
    parser.add_argument("--seed", type=int, default=1, help="another sample (1)")
    parser.add_argument("--json", type=Path, help="every mutant and what it failed")
    parser.add_argument("--live", action="store_true", help="of the live endpoint")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    args = parser.parse_args()
    reach = Reach(script.rules(), args.live, args.jobs)
    edits = machine.drawn(args.n, args.seed, args.live)
    rows = []
    for edit, failed in zip(edits, _all_judged(reach, edits, args.jobs), strict=True):
        rows.append((edit, failed))
        print(f"\r{len(rows)} of {args.n}", end="", file=sys.stderr, flush=True)
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
    print(f"{args.n} mutants, {len(aside)} as before in every packet of {STORIES} stories")
    print(f"of the other {judged_n} the kit finds {found} ({found / max(judged_n, 1):.0%})")


if __name__ == "__main__":
    main()
