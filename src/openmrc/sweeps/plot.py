"""`mrc sweep --plot`: the longest flow completion time over the first swept key, as a picture.

A line is a transport at one combination of the other keys; over seeds its points are medians, with
the range between the shortest and the longest of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from openmrc.errors import InputError
from openmrc.report.picture import LEGEND_COLUMNS, bare, png, style

if TYPE_CHECKING:
    import polars as pl

FIGURE, HEADING = "flows.fct_us.p100", "flow completion time, p100, us"
SEED = "seed"
MARKERS = ("o", "s", "^", "D", "v")


def refuse(keys: Sequence[str]) -> None:
    """Raise `InputError` for a sweep without a key that can be an axis."""
    if set(keys) == {SEED}:
        raise InputError("--plot: only seeds are swept over; name another key with --over")


def plot_png(table: pl.DataFrame, keys: Sequence[str], title: str) -> bytes:
    """Return the picture of a sweep's rows as PNG; `keys` are those swept over, in their order."""
    over, *others = [key for key in keys if key != SEED]
    drawn = table.drop_nulls(FIGURE)
    figure = Figure(figsize=(10, 5), dpi=130, layout="constrained")
    axes = figure.add_subplot()
    values = drawn[over].unique(maintain_order=True).to_list()
    numeric = all(isinstance(value, int | float) for value in values)
    at: dict[Any, float] = {v: v if numeric else float(i) for i, v in enumerate(values)}
    lines = drawn.partition_by("transport", *others, as_dict=True, maintain_order=True)
    for number, (line, rows) in enumerate(lines.items()):
        name, *of_others = line
        said = ", ".join(f"{k} {v}" for k, v in zip(others, of_others, strict=True))
        x, low, middle, high = _points(rows, over, at)
        looks = style(number) | {"marker": MARKERS[number % len(MARKERS)], "markersize": 5}
        axes.plot(x, middle, label=f"{name}, {said}" if said else name, **looks)
        axes.fill_between(x, low, high, color=looks["color"], alpha=0.15, linewidth=0)
    if not numeric:
        axes.set_xticks(list(at.values()), [str(value) for value in at])
    axes.set_ylim(0, 1.08 * max(drawn[FIGURE].to_list(), default=1.0))  # room for a marker
    axes.set_xlabel(over)
    axes.set_ylabel(HEADING)
    axes.set_title(title, loc="left")
    bare(axes)
    if lines:
        columns = min(len(lines), LEGEND_COLUMNS)
        figure.legend(loc="outside upper right", ncols=columns, frameon=False, handlelength=3.6)
    return png(figure)


def _points(rows: pl.DataFrame, over: str, at: dict[Any, float]) -> tuple[list[float], ...]:
    """Where each value is drawn, and the smallest, the median and the largest figure there."""
    import polars as pl

    found = rows.group_by(over).agg(
        low=pl.min(FIGURE), middle=pl.median(FIGURE), high=pl.max(FIGURE)
    )
    points = sorted((at[value], *rest) for value, *rest in found.iter_rows())
    return tuple(map(list, zip(*points, strict=True)))
