"""What came of a day, as the object of `--json` and as a table, whose first two lines are the
answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import IO, Any

from openmrc.day.beside import formulas, print_beside
from openmrc.day.day import Side
from openmrc.day.failures import GPU, RACK, UPDATE
from openmrc.day.life import CAUSES, Life
from openmrc.planning.reliability import FLAP, SECONDS_PER_DAY
from openmrc.say import counted
from openmrc.tabular import Column, print_table

SECONDS_PER_HOUR = 3600
SHARES = {"p50": 0.5, "p99": 0.99, "p100": 1.0}
NOT_OF_THE_NETWORK = (GPU, RACK, UPDATE)
# What tells of a failure that the job does not feel.
BRIEF, LASTING = "in counters: it is over by itself", "as a port that is down"
WORDS = {
    "stall": "stalls",
    "bandwidth": "missing bandwidth",
    "collisions": "collisions",
    "rollback": "rollback",
    "checkpoint": "writing checkpoints",
    "restart": "restarts",
    "spare": "waiting for a spare",
}


def told(side: Side, life: Life, values: Mapping[str, float]) -> dict[str, Any]:
    """Return all figures of one fabric."""
    gpu_hours = {
        cause: life.lost_s[cause] * len(life.job.nics) / SECONDS_PER_HOUR for cause in CAUSES
    }
    lost = sum(gpu_hours.values())
    by_network = {
        kind: n for kind, n in life.interruptions.items() if kind not in NOT_OF_THE_NETWORK
    }
    days, unnoticed = life.now_s / SECONDS_PER_DAY, life.unnoticed()
    return {
        "name": side.name,
        "job": side.job.name,
        "gpus": len(life.job.nics),
        "hours": life.now_s / SECONDS_PER_HOUR,
        "steps": life.steps_done,
        "steps_per_day": life.steps_done / days if days else None,
        "effective_share": life.steps_done * life.steps.ideal_s / life.now_s if days else None,
        "step_s": {
            "undisturbed": life.steps.whole_s,
            **dict(zip(SHARES, life.step_times_s(tuple(SHARES.values())), strict=True)),
        },
        "exposed_share": life.steps.exposed_share,
        "gpu_hours_lost": gpu_hours | {"total": lost},
        "usd_lost": lost * values["gpu_hour_usd"],
        "failures": len(life.done.did),
        "unnoticed": unnoticed.total(),
        "unnoticed_by_kind": dict(unnoticed.most_common()),
        "interruptions": life.interruptions.total(),
        "interruptions_by_network": sum(by_network.values()),
        "interruptions_by_kind": dict(life.interruptions.most_common()),
        "spares": life.spares,
        "formulas": formulas(side, life, values),
    }


def answer(sides: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Return the two lines that come first."""
    best: dict[str, float] = {}  # of each job
    for each in sides:
        best[each["job"]] = max(best.get(each["job"], 0.0), each["steps"])
    steps = ", ".join(
        f"{each['name']} {each['steps']:,.0f} ({each['steps'] / (best[each['job']] or 1):.1%})"
        for each in sides
    )
    lost = ", ".join(
        f"{each['name']} {each['gpu_hours_lost']['total']:,.0f}"
        f" (${each['usd_lost']:,.0f}; the network ended it"
        f" {counted(each['interruptions_by_network'], 'time')})"
        for each in sides
    )
    return f"Steps in {_hours(sides[0]['hours'])}: {steps}.", f"GPU-hours lost: {lost}."


def print_day(sides: Sequence[Mapping[str, Any]], out: IO[str]) -> None:
    """Print the answer, and the figures side by side."""
    for line in answer(sides):
        print(line, file=out)
    columns = [Column("", words=True), *(Column(each["name"]) for each in sides)]
    rows = [
        ["steps a day", *(f"{each['steps_per_day']:,.1f}" for each in sides)],
        ["effective time, %", *(f"{100 * each['effective_share']:.2f}" for each in sides)],
        *(
            [f"step, {share}, s", *(f"{each['step_s'][share]:.4g}" for each in sides)]
            for share in ("undisturbed", *SHARES)
        ),
        *(
            [f"GPU-hours: {words}", *(f"{each['gpu_hours_lost'][key]:,.1f}" for each in sides)]
            for key, words in {**WORDS, "total": "lost in all"}.items()
        ),
        ["lost, USD", *(f"{each['usd_lost']:,.0f}" for each in sides)],
        *(
            [words, *(f"{each[key]:,}" for each in sides)]
            for key, words in (
                ("interruptions", "interruptions"),
                ("interruptions_by_network", "of these by the network"),
                ("failures", "failures"),
                ("unnoticed", "that nobody noticed"),
            )
        ),
    ]
    print_table(None, columns, rows, out, sections=[2, 6, 15])
    _print_unnoticed(sides, out)
    print_beside(sides, out)


def _print_unnoticed(sides: Sequence[Mapping[str, Any]], out: IO[str]) -> None:
    """Print which failures nobody noticed, how many a day, and what tells of them."""
    kinds = dict.fromkeys(kind for each in sides for kind in each["unnoticed_by_kind"])
    if not kinds:
        return
    names = [Column(each["name"]) for each in sides]
    columns = [Column("nobody noticed, a day", words=True), *names, Column("shows", words=True)]
    rows = [
        [
            kind,
            *(
                _count(24 * each["unnoticed_by_kind"].get(kind, 0) / each["hours"])
                for each in sides
            ),
            BRIEF if kind.endswith(FLAP) else LASTING,
        ]
        for kind in kinds
    ]
    print_table(None, columns, rows, out)


def _hours(hours: float) -> str:
    return f"{hours:.4g} h" if hours < 100 else f"{hours / 24:.4g} days"


def _count(number: float) -> str:
    """Three figures at least, and all that a whole number has."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"
