"""`mrc sweep --plot`: a figure of the data set over the first swept key, as a picture.

A line is a transport at one combination of the other keys; over seeds its points are means, with
the interval in which the mean of all seeds lies with 95 % confidence (Student's t).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from openmrc.errors import InputError
from openmrc.report.picture import LEGEND_COLUMNS, bare, png, style

if TYPE_CHECKING:
    import polars as pl

FIGURE = "flows.fct_us.p100"
# How a heading says what a figure is; the others are named as in the summary.
HEADINGS = {FIGURE: "flow completion time, p100, us"}
SEED = "seed"
MARKERS = ("o", "s", "^", "D", "v")
AXES = ("x", "y", "xy")  # that may be logarithmic
# Student's t of 97.5 % for 1 to 10 degrees of freedom; beyond, 1.96 + 2.5 / n is closer than 1 %.
T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


def refuse(keys: Sequence[str], figure: str = FIGURE) -> None:
    """Raise `InputError` for a sweep without a key that can be an axis, or an unknown figure."""
    from openmrc.run.tables import FIGURES
    from openmrc.scenario.toml import meant

    if set(keys) == {SEED}:
        raise InputError("--plot: only seeds are swept over; name another key with --over")
    known = [name for name, kind in FIGURES.items() if kind.is_numeric()]
    if figure not in known:
        raise InputError(
            f"--figure {figure}: there is none; {meant(figure, known)}accepted: {', '.join(known)}"
        )


def plot_png(
    table: pl.DataFrame, keys: Sequence[str], title: str, figure: str = FIGURE, log: str = ""
) -> bytes:
    """Return the picture of a sweep's rows as PNG; `keys` are those swept over, in their order, and
    `log` the axes that are logarithmic: "x", "y" or "xy".
    """
    over, *others = [key for key in keys if key != SEED]
    drawn = table.drop_nulls(figure) if figure in table.columns else table.clear()
    picture = Figure(figsize=(10, 5), dpi=130, layout="constrained")
    axes = picture.add_subplot()
    values = drawn[over].unique(maintain_order=True).to_list()
    numeric = all(isinstance(value, int | float) for value in values)
    at: dict[Any, float] = {v: v if numeric else float(i) for i, v in enumerate(values)}
    lines = drawn.partition_by("transport", *others, as_dict=True, maintain_order=True)
    for number, (line, rows) in enumerate(lines.items()):
        name, *of_others = line
        said = ", ".join(f"{k} {v}" for k, v in zip(others, of_others, strict=True))
        x, middle, half = _points(rows, over, at, figure)
        looks = style(number) | {"marker": MARKERS[number % len(MARKERS)], "markersize": 5}
        axes.plot(x, middle, label=f"{name}, {said}" if said else name, **looks)
        low = [max(m - h, 0.0) for m, h in zip(middle, half, strict=True)]
        high = [m + h for m, h in zip(middle, half, strict=True)]
        axes.fill_between(x, low, high, color=looks["color"], alpha=0.15, linewidth=0)
    if not numeric:
        axes.set_xticks(list(at.values()), [str(value) for value in at])
    found = drawn[figure].to_list() if lines else []
    if "y" in log:
        axes.set_yscale(**_logarithmic(found))
    else:
        axes.set_ylim(0, 1.08 * max(found, default=1.0) or 1.0)  # room for a marker
    if "x" in log and numeric:
        axes.set_xscale(**_logarithmic(values))
    axes.set_xlabel(over)
    axes.set_ylabel(HEADINGS.get(figure, figure))
    axes.set_title(title, loc="left")
    bare(axes)
    if lines:
        columns = min(len(lines), LEGEND_COLUMNS)
        picture.legend(loc="outside upper right", ncols=columns, frameon=False, handlelength=3.6)
    return png(picture)


def _logarithmic(values: Sequence[float]) -> dict[str, Any]:
    """The scale of an axis on which these values lie; with a zero among them it begins linearly."""
    above = [value for value in values if value > 0]
    if len(above) == len(values) or not above:
        return {"value": "log"}
    return {"value": "symlog", "linthresh": min(above)}


def _points(
    rows: pl.DataFrame, over: str, at: dict[Any, float], figure: str
) -> tuple[list[float], ...]:
    """Where each value is drawn, the mean of the figure there, and half its interval."""
    import polars as pl

    found = rows.group_by(over).agg(
        n=pl.len(), mean=pl.mean(figure), deviation=pl.std(figure).fill_null(0.0)
    )
    points = sorted(
        (at[value], mean, _t_975(n - 1) * deviation / sqrt(n))
        for value, n, mean, deviation in found.iter_rows()
    )
    return tuple(map(list, zip(*points, strict=True)))


def _t_975(freedom: int) -> float:
    return T_975[freedom - 1] if freedom <= len(T_975) else 1.96 + 2.5 / freedom
