"""The style of the figures: one size, and lines that differ in dash and marker as well as in
colour.
"""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from openmrc.report.picture import STYLES, bare, label_at, style

MARKERS = ("o", "s", "^", "D", "v", "x", "P")
DPI = 90
GREY = "#777777"
# Published values: black and dash-dotted as a line, a diamond as a point. No measured line is.
PUBLISHED: dict[str, Any] = {
    "color": "black",
    "linestyle": (0, (5, 1.5, 1, 1.5)),
    "linewidth": 1.1,
    "zorder": 3,
}
POINT: dict[str, Any] = {"linestyle": "none", "marker": "D", "color": "black", "zorder": 4}
LEGEND: dict[str, Any] = {  # white background: lines that mark an instant end at it
    "facecolor": "white",
    "edgecolor": "none",
    "framealpha": 1,
    "fontsize": 8,
    "handlelength": 3.4,
}
# More lines than the picture of a run has: MRC and RoCEv2 with 1 to 16 QPs.
LINES = (
    *STYLES,
    {"color": "#7A5195", "linestyle": (0, (3, 1, 1, 1)), "linewidth": 1.4},
    {"color": "#8C6D31", "linestyle": (0, (2, 2)), "linewidth": 1.4},
)


def figure(columns: int = 1, width: float = 8.0, height: float = 3.4) -> tuple[Figure, list[Axes]]:
    """Return a figure with `columns` axes side by side."""
    fig = Figure(figsize=(width, height), dpi=DPI, layout="constrained")
    axes = list(fig.subplots(1, columns, squeeze=False)[0])
    for each in axes:
        bare(each)
    return fig, axes


def line(number: int, marked: bool = False) -> dict[str, Any]:
    """Return the style of the `number`-th line; with a marker where points are few."""
    looks = style(number, LINES)
    if marked:
        looks |= {"marker": MARKERS[number % len(MARKERS)], "markersize": 5, "linewidth": 1.4}
    return looks


def steps(axes: Axes, x: Any, y: Any, number: int = 0, **more: Any) -> None:
    """Draw the `number`-th line as steps."""
    axes.plot(x, y, **line(number), drawstyle="steps-post", **more)


def expected(axes: Axes, x: Any, y: Any, words: str) -> None:
    """Draw published values over time, beside the measured ones."""
    axes.plot(x, y, **PUBLISHED, label=f"published: {words}")


def published(axes: Axes, value: float, words: str) -> None:
    """Draw a published level. Its label is in the legend, where it covers nothing."""
    axes.axhline(value, **PUBLISHED, label=f"published: {words}")


def level(axes: Axes, value: float, words: str) -> None:
    """Draw a level that follows from arithmetic: grey, dotted; its label is in the legend."""
    axes.axhline(value, color=GREY, linewidth=1.0, linestyle=(0, (1, 2)), zorder=1, label=words)


def event(axes: Axes, at: float, words: str, height: float = 0.98) -> None:
    """Mark an instant: a grey dashed line, and its label at a fraction of the height."""
    axes.axvline(at, color=GREY, linewidth=0.9, linestyle=(0, (4, 3)), zorder=0)
    label_at(axes, at, height, words)


def legend(axes: Axes, **more: Any) -> None:
    """Draw the legend of an axes; its lines are long enough to distinguish the dashes."""
    axes.legend(**LEGEND, **more)
