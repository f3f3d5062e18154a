"""How the figures look: one size, and lines that differ in dash and marker as well as in colour."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from openmrc.report.picture import STYLES

MARKERS = ("o", "s", "^", "D", "v", "x", "P")
DPI = 90
GREY = "#777777"
# More lines than the picture of a run has: MRC and RoCEv2 with 1 to 16 QPs.
LINES = (
    *STYLES,
    {"color": "#7A5195", "linestyle": (0, (3, 1, 1, 1)), "linewidth": 1.4},
    {"color": "#8C6D31", "linestyle": (0, (2, 2)), "linewidth": 1.4},
)


def figure(columns: int = 1, width: float = 8.0, height: float = 3.4) -> tuple[Figure, list[Axes]]:
    """Return a figure with so many axes side by side."""
    fig = Figure(figsize=(width, height), dpi=DPI, layout="constrained")
    axes = list(fig.subplots(1, columns, squeeze=False)[0])
    for each in axes:
        each.grid(axis="y", color="#dddddd", linewidth=0.6)
        each.set_axisbelow(True)
        for side in ("top", "right"):
            each.spines[side].set_visible(False)
    return fig, axes


def line(number: int, marked: bool = False) -> dict[str, Any]:
    """Return the looks of the `number`-th line; with a marker where points are few."""
    style = dict(LINES[number % len(LINES)])
    if marked:
        style |= {"marker": MARKERS[number % len(MARKERS)], "markersize": 5, "linewidth": 1.4}
    return style


def level(axes: Axes, value: float, words: str) -> None:
    """Draw a published or expected level: grey, dotted, with its words at the left."""
    axes.axhline(value, color=GREY, linewidth=1.0, linestyle=(0, (1, 2)), zorder=1)
    axes.annotate(
        words,
        (0.01, value),
        xycoords=("axes fraction", "data"),
        xytext=(0, 2),
        textcoords="offset points",
        fontsize=7.5,
        color="#444444",
    )


def event(axes: Axes, at: float, words: str, height: float = 0.98) -> None:
    """Mark an instant: a grey dashed line, and its words at a share of the height."""
    axes.axvline(at, color=GREY, linewidth=0.9, linestyle=(0, (4, 3)), zorder=0)
    axes.annotate(
        words,
        (at, height),
        xycoords=("data", "axes fraction"),
        xytext=(3, 0),
        textcoords="offset points",
        fontsize=7.5,
        color="#444444",
        va="top",
    )


def legend(axes: Axes, **more: Any) -> None:
    """Draw the legend of an axes; its lines are long enough to tell the dashes."""
    axes.legend(frameon=False, fontsize=8, handlelength=3.4, **more)


def png(fig: Figure) -> bytes:
    """Return the figure as PNG, the same bytes for the same figure."""
    stream = BytesIO()
    fig.savefig(stream, format="png", metadata={"Software": "openmrc"})
    return stream.getvalue()
