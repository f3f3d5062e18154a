"""The assumptions on which a figure of a plan rests: those that change it.

They are found by changing each, so that no list can be out of date.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from openmrc.planning.prices import bill
from openmrc.planning.reliability import failures, interruptions_per_day
from openmrc.planning.restarts import lost
from openmrc.planning.sizing import Design

Values = Mapping[str, float]
MOVED_BY = 1.01
# An assumption that changes a figure by less than this fraction does not support it.
NEGLIGIBLE = 1e-9
POWER, COST, INTERRUPTIONS = "power_w", "cost_usd", "interruptions_per_day"
LOST = "time_lost."  # prefix of the names of `restarts.Lost.as_dict`


def grounds(designs: Sequence[Design], values: Values) -> dict[str, list[str]]:
    """Return the assumptions behind each figure of any of the designs.

    Figures are `POWER`, `COST`, `INTERRUPTIONS`, those of `restarts.Lost` with the prefix `LOST`,
    and the rate of each kind of failure by its name.
    """
    found: dict[str, list[str]] = {}
    for design in designs:
        for figure, names in _of_one(partial(_figures, design), values).items():
            found[figure] = [*dict.fromkeys([*found.get(figure, []), *names])]
    return found


def _of_one(figures: Callable[[Values], dict[str, float]], values: Values) -> dict[str, list[str]]:
    before = figures(values)
    found: dict[str, list[str]] = {figure: [] for figure in before}
    for name, value in values.items():
        after = figures({**values, name: value / MOVED_BY if value else 1.0})
        for figure, was in before.items():
            if abs(after[figure] - was) > NEGLIGIBLE * max(abs(was), abs(after[figure])):
                found[figure].append(name)
    return found


def _figures(design: Design, values: Values) -> dict[str, float]:
    money, broken = bill(design, values), failures(design, values)
    shares = lost(broken, values).as_dict()
    return {
        POWER: money.power_w,
        COST: money.cost_usd,
        INTERRUPTIONS: interruptions_per_day(broken),
        **{LOST + name: share for name, share in shares.items()},
    } | {failure.kind: failure.per_day for failure in broken}
