"""The same period with many draws of failures: what a fabric loses in most of them, and in all.

Each seed is a day of its own, computed by one process; all cores work at once. Where results go to
a directory, a seed that is there already, whole and of the same inputs, is not computed again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import IO, TYPE_CHECKING, Any

from openmrc.day.day import Side, life_of, sides_of, steps_of
from openmrc.day.failures import draw
from openmrc.day.steps import Steps
from openmrc.day.told import told
from openmrc.errors import InputError
from openmrc.newfile import write_whole
from openmrc.planning.reliability import SECONDS_PER_DAY
from openmrc.reading import read_text
from openmrc.scenario.scenario import parse_scenario
from openmrc.tabular import Column, print_table

if TYPE_CHECKING:
    from openmrc.scenario.scenario import Scenario

Figures = dict[str, Any]


def lives(scenario: Scenario, inputs: Mapping[str, Any]) -> list[Figures]:
    """The figures of all fabrics through the failures of one seed."""
    known = _known(scenario.to_toml(), inputs["switch_rate_bps"])
    values, seed = inputs["assumptions"], inputs["seed"]
    found = []
    failures = draw([side.design for side, _ in known], values, inputs["days"], seed)
    for (side, steps), broken in zip(known, failures, strict=True):
        life = life_of(side, steps, broken, values, seed)
        life.run(inputs["days"] * SECONDS_PER_DAY)
        found.append(told(side, life, values))
    return found


@lru_cache(1)  # the seeds of a process share the times of all steps that one of them has met
def _known(scenario_toml: str, switch_rate_bps: int) -> list[tuple[Side, Steps]]:
    scenario = parse_scenario(scenario_toml)
    return [(side, steps_of(side, scenario.seed)) for side in sides_of(scenario, switch_rate_bps)]


def study(
    scenario: Scenario, inputs: Sequence[Mapping[str, Any]], out: Path | None, workers: int
) -> Iterator[tuple[int, list[Figures]]]:
    """Yield each seed's figures as they are known; `inputs` has one entry for each seed."""
    missing = []
    for each in inputs:
        kept = None if out is None else _kept(_file(out, each), each)
        if kept is None:
            missing.append(each)
        else:
            yield each["seed"], kept
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        running = {pool.submit(lives, scenario, each): each for each in missing}
        try:
            for done in as_completed(running):
                each = running[done]
                if out is not None:
                    text = json.dumps({**each, "fabrics": done.result()}, indent=2)
                    write_whole(_file(out, each), text + "\n", "--out")
                yield each["seed"], done.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _file(out: Path, inputs: Mapping[str, Any]) -> Path:
    return out / f"seed-{inputs['seed']}.json"


def _kept(path: Path, inputs: Mapping[str, Any]) -> list[Figures] | None:
    """The fabrics of a seed that was computed before."""
    if not path.exists():
        return None
    there = json.loads(read_text(path, "--out"))
    if any(there.get(key) != value for key, value in inputs.items()):
        raise InputError(f"--out {path.parent}: has other inputs; name another directory")
    fabrics: list[Figures] = there["fabrics"]
    return fabrics


def spread(found: Mapping[int, list[Figures]]) -> list[Figures]:
    """By fabric the least, the median and the most of each figure over the seeds."""
    sides = []
    for of_side in zip(*(found[seed] for seed in sorted(found)), strict=True):
        figures = {
            key: _three([of(each) for each in of_side]) for key, (_, of, _) in FIGURES.items()
        }
        sides.append({"name": of_side[0]["name"], **figures})
    return sides


def _three(values: list[float]) -> dict[str, float]:
    return {"least": min(values), "median": median(values), "most": max(values)}


def _share_lost(figures: Figures, *causes: str) -> float:
    """Of all GPU-hours, per cent."""
    lost, hours = figures["gpu_hours_lost"], figures["hours"] * figures["gpus"]
    share: float = 100 * sum(lost[cause] for cause in causes) / hours
    return share


# of each figure: its words, how it comes from those of a day, and its digits
FIGURES: dict[str, tuple[str, Any, int]] = {
    "effective": ("effective time, %", lambda f: 100 * f["effective_share"], 2),
    "stalls": ("lost to stalls, %", lambda f: _share_lost(f, "stall"), 3),
    "bandwidth": ("to missing bandwidth, %", lambda f: _share_lost(f, "bandwidth"), 3),
    "collisions": ("to collisions, %", lambda f: _share_lost(f, "collisions"), 2),
    "interruptions": (
        "to interruptions, %",
        lambda f: _share_lost(f, "rollback", "restart", "spare"),
        2,
    ),
    "p99": ("step, p99, s", lambda f: f["step_s"]["p99"], 5),
    "by_network": ("interruptions by the network", lambda f: f["interruptions_by_network"], 0),
    "in_all": ("interruptions in all", lambda f: f["interruptions"], 0),
    "unnoticed": ("failures that nobody noticed", lambda f: f["unnoticed"], 0),
}


def print_study(sides: Sequence[Figures], seeds: int, days: float, out: IO[str]) -> None:
    """Print the median of each figure, and the least and the most of all seeds."""
    best = max(sides, key=lambda side: side["effective"]["median"])
    shares = ", ".join(f"{side['name']} {side['effective']['median']:.2f} %" for side in sides)
    print(f"Effective time of {days:g} days, the median of {seeds} draws: {shares}.", file=out)
    print(f"The most has {best['name']}.", file=out)
    columns = [Column("", words=True), *(Column(side["name"]) for side in sides)]
    rows = [
        [words, *(_written(side[key], digits) for side in sides)]
        for key, (words, _, digits) in FIGURES.items()
    ]
    print_table(None, columns, rows, out)


def _written(three: Mapping[str, float], digits: int) -> str:
    least, middle, most = (f"{three[key]:,.{digits}f}" for key in ("least", "median", "most"))
    return f"{middle} ({least} to {most})"
