"""`mrc day`: a training job through a day of failures."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from openmrc.ending import EXIT_INTERRUPTED
from openmrc.errors import InputError
from openmrc.newfile import write_whole
from openmrc.planning.reliability import SECONDS_PER_DAY
from openmrc.reading import read_text
from openmrc.say import say

if TYPE_CHECKING:
    from openmrc.day.day import Side
    from openmrc.scenario.scenario import Scenario

SWITCH, TIME = "51.2Tbps", "24h"
DAYS_MAX = 400
RESULTS, PAGE = "day.json", "day.html"
PS_PER_DAY = SECONDS_PER_DAY * 10**12
TOLD_EVERY_S = 0.5


def add_command(commands: Any) -> list[argparse.ArgumentParser]:
    """Add `day`; return the parsers that take --json."""
    day: argparse.ArgumentParser = commands.add_parser(
        "day",
        help="a day of a training job with every failure in it: steps, GPU-hours lost, and to what",
        description="Take the training job of a scenario through a period in which components fail"
        " at published rates, over each of its transports; over hashed paths also on one plane. The"
        " same failures for all. docs/day.md has the model.",
    )
    add = day.add_argument
    add("scenario", metavar="SCENARIO.toml", help='one of kind = "training"')
    add("--time", metavar="TIME", default=TIME, help=f"how long, such as 54d (default: {TIME})")
    add("--seed", metavar="N", default="1", help="of the failures (default: 1)")
    add("--seeds", metavar="N", help="as many draws, from --seed on, on all cores: their spread")
    add("--switch", metavar="RATE", default=SWITCH, help=f"of the one plane (default: {SWITCH})")
    words = "another value of an assumption, such as gpu_hour_usd=2"
    add("--set", metavar="NAME=VALUE", action="append", default=[], help=words)
    add(
        "--assumptions", action="store_true", help="print every assumption with its source, and end"
    )
    add("--out", metavar="DIR", type=Path, help="write day.json and day.html; resumes from there")
    day.set_defaults(run=_day)
    return [day]


def _day(arguments: argparse.Namespace) -> int:
    from openmrc.day.day import sides_of
    from openmrc.day.rates import KNOWN
    from openmrc.planning.assumptions import values_with
    from openmrc.scenario.scenario import load_scenario
    from openmrc.units import parse_rate

    values = values_with(arguments.set, KNOWN)
    if arguments.assumptions:
        return _assumptions(values)
    scenario = load_scenario(arguments.scenario)
    days, seed = _days(arguments.time), _seed(arguments.seed)
    try:
        switch_rate_bps = parse_rate(arguments.switch)
    except InputError as error:
        raise error.at("--switch") from None
    with scenario.naming():
        sides = sides_of(scenario, switch_rate_bps)
    inputs = {
        **{"scenario": scenario.to_toml(), "days": days, "seed": seed},
        **{"switch_rate_bps": switch_rate_bps, "assumptions": values},
    }
    if arguments.seeds is not None:
        return _study(scenario, inputs, _n_seeds(arguments.seeds), arguments)
    return _live(scenario, sides, inputs, arguments)


def _study(
    scenario: Scenario, inputs: dict[str, Any], n: int, arguments: argparse.Namespace
) -> int:
    """Run a day for each of `n` seeds, and print how they spread."""
    from openmrc.day.study import print_study, spread, study
    from openmrc.jit.beside import cores

    out: Path | None = arguments.out
    if out is not None:
        _make(out)
    seeds = [{**inputs, "seed": inputs["seed"] + i} for i in range(n)]
    found: dict[int, list[dict[str, Any]]] = {}
    partial = False
    try:
        for seed, figures in study(scenario, seeds, out, min(cores(), n)):
            found[seed] = figures
            say(f"{len(found)} of {n} seeds")
    except KeyboardInterrupt:
        partial = True
    sides = spread(found)
    if arguments.json:
        print(json.dumps({**inputs, "seeds": len(found), "fabrics": sides}, indent=2))
    elif found:
        print_study(sides, len(found), inputs["days"], sys.stdout)
    return EXIT_INTERRUPTED if partial else 0


def _live(
    scenario: Scenario, sides: list[Side], inputs: dict[str, Any], arguments: argparse.Namespace
) -> int:
    """Run what is not in the results yet; print all, and write it where --out says."""
    from openmrc.day.day import life_of, steps_of
    from openmrc.day.failures import draw
    from openmrc.day.page import timeline
    from openmrc.day.told import print_day, told

    out: Path | None = arguments.out
    values, days, seed = inputs["assumptions"], inputs["days"], inputs["seed"]
    found, partial = _kept(out, inputs), False
    failures = draw([side.design for side in sides], values, days, seed)
    for side, broken in zip(sides, failures, strict=True):
        if partial or any(each["name"] == side.name for each in found):
            continue
        life = life_of(side, steps_of(side, scenario.seed), broken, values, seed)
        try:
            life.run(days * SECONDS_PER_DAY, _Teller(side.name, days * SECONDS_PER_DAY))
        except KeyboardInterrupt:
            partial = True
        of_page = {"timeline": timeline(life)} if out is not None else {}
        found.append(told(side, life, values) | {"partial": partial} | of_page)
        if out is not None:
            _write(out, {**inputs, "fabrics": found})
    if arguments.json:
        figures = [{k: v for k, v in each.items() if k != "timeline"} for each in found]
        print(json.dumps({**inputs, "partial": partial, "fabrics": figures}, indent=2))
    else:
        print_day(found, sys.stdout)
    if partial:
        again = "" if out is None else " Run the same again to resume."
        say(f"Interrupted: this is what there was.{again}")
    return EXIT_INTERRUPTED if partial else 0


class _Teller:
    """Says how far a life is, and how long it takes yet."""

    def __init__(self, name: str, until_s: float) -> None:
        from openmrc.report.progress import TimeLeft, duration

        self._name, self._until_s = name, until_s
        self._left, self._duration = TimeLeft(), duration
        self._next_s = 0.0

    def __call__(self, now_s: float) -> None:
        at_s, share = perf_counter(), now_s / self._until_s
        if at_s >= self._next_s and sys.stderr.isatty():
            self._next_s = at_s + TOLD_EVERY_S
            left_s = self._left.after(at_s, share)
            left = "" if left_s is None else f", {self._duration(left_s)} left"
            say(f"  {self._name}: {share:.0%}{left}", end="", over=True)
            if share >= 1:
                say("", end="", over=True)


def _kept(out: Path | None, inputs: dict[str, Any]) -> list[dict[str, Any]]:
    """The fabrics that are in the results already, whole, of the same inputs."""
    if out is None or not (out / RESULTS).exists():
        return []
    there: dict[str, Any] = json.loads(read_text(out / RESULTS, "--out"))
    if any(there.get(key) != value for key, value in inputs.items()):
        raise InputError(f"--out {out}: has the day of other inputs; name another directory")
    return [each for each in there["fabrics"] if not each["partial"]]


def _write(out: Path, results: dict[str, Any]) -> None:
    from openmrc.day.page import page

    _make(out)
    write_whole(out / RESULTS, json.dumps(results, indent=2) + "\n", "--out")
    write_whole(out / PAGE, page(results), "--out")


def _make(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out {out}: cannot be made ({error.strerror})") from None


def _assumptions(values: Mapping[str, float]) -> int:
    from openmrc.day.rates import KNOWN
    from openmrc.planning.table import print_assumptions

    print_assumptions(values, KNOWN, sys.stdout)
    return 0


def _days(text: str) -> float:
    """Return how many days "54d", "24h" or another time is."""
    from openmrc.units import parse_time

    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)([hd])", text)
    try:
        days = (
            float(found[1]) / {"h": 24, "d": 1}[found[2]]
            if found
            else parse_time(text) / PS_PER_DAY
        )
    except InputError as error:
        raise error.at("--time") from None
    if not 0 < days <= DAYS_MAX:
        raise InputError(f"--time {text}: more than nothing, and at most {DAYS_MAX}d, is accepted")
    return days


def _n_seeds(text: str) -> int:
    if not re.fullmatch(r"[1-9]\d{0,3}", text, re.ASCII):
        raise InputError(f"--seeds {text}: a number from 1 to 9999 is accepted")
    return int(text)


def _seed(text: str) -> int:
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII):
        raise InputError(f"--seed {text}: a whole number is accepted")
    return int(text)
