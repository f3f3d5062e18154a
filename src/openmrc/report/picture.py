"""The picture: goodput over time, one line per transport, the faults marked.

Lines differ in dash and width as well as in colour, so the picture reads in black and white.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from openmrc.report.series import goodput, last_bin_ps
from openmrc.run.results import Result
from openmrc.units import MS, NS, US, S

# Colours that remain distinct for colour-blind readers and in grey (Okabe and Ito), each with a
# dash.
STYLES: tuple[dict[str, Any], ...] = (
    {"color": "#0072B2", "linestyle": "-", "linewidth": 2.2},
    {"color": "#D55E00", "linestyle": (0, (5, 2)), "linewidth": 1.6},
    {"color": "#222222", "linestyle": (0, (1, 1)), "linewidth": 1.6},
    {"color": "#009E73", "linestyle": (0, (6, 2, 1, 2)), "linewidth": 1.6},
    {"color": "#CC79A7", "linestyle": (0, (8, 3)), "linewidth": 1.2},
)
# Dashes of further lines: colours repeat before dashes do, because a print may have no colours.
FURTHER = (
    (0, (6, 2, 1, 2, 1, 2)),
    (0, (1, 4)),
    (0, (11, 2, 5, 2)),
    (0, (3, 5)),
    (0, (9, 2, 1, 2, 1, 2, 1, 2)),
)
LEGEND_COLUMNS = 5


def style(number: int, looks: Sequence[Mapping[str, Any]] = STYLES) -> dict[str, Any]:
    """Return the style of the `number`-th line. The first ten differ without colour, the first 25
    with it: when the dashes repeat, each colour takes the next one.
    """
    dashes = [look["linestyle"] for look in looks] + list(FURTHER)
    dash = dashes[(number + number // len(dashes)) % len(dashes)]
    return {**looks[number % len(looks)], "linestyle": dash}


POINTS_MAX = 200  # bins drawn per line: more would be noise at this size
MARKS_MAX = 12  # faults with labels; the others get a line


def goodput_png(result: Result) -> bytes:
    """Return the picture as PNG."""
    figure = Figure(figsize=(10, 5), dpi=130, layout="constrained")
    axes = figure.add_subplot()
    end_ps = max([last_bin_ps(run) for run in result.transports], default=1)
    scale, unit = _time_scale(end_ps)
    lines = [goodput(run, end_ps, POINTS_MAX) for run in result.transports]
    top = max([float(gbps.max()) for _, gbps in lines], default=0.0) or 1.0
    rate, rate_unit = (1e3, "Tb/s") if top >= 1e4 else (1.0, "Gb/s")
    for number, (run, (t_ps, gbps)) in enumerate(zip(result.transports, lines, strict=True)):
        looks = style(number)
        axes.plot(t_ps / scale, gbps / rate, label=run.name, drawstyle="steps-post", **looks)
    axes.set_ylim(0, top / rate * 1.32)
    axes.set_xlim(0, end_ps / scale * 1.02)
    _mark_faults(axes, result, scale, end_ps)
    axes.set_xlabel(f"simulated time, {unit}")
    axes.set_ylabel(f"goodput of all flows, {rate_unit}")
    scenario = result.scenario
    level = "" if scenario.level == "packet" else f", {scenario.level} level"
    title = f"{scenario.name}: {scenario.workload.kind}, seed {scenario.seed}{level}"
    axes.set_title(title, loc="left")
    bare(axes)
    if result.transports:
        columns = min(len(result.transports), LEGEND_COLUMNS)
        figure.legend(loc="outside upper right", ncols=columns, frameon=False, handlelength=3.6)
    return png(figure)


def bare(axes: Any) -> None:
    """Reduce the frame to what is read: thin horizontal lines, none at the top and at the right."""
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def png(figure: Figure) -> bytes:
    """Return the figure as PNG, the same bytes for the same figure."""
    stream = BytesIO()
    figure.savefig(stream, format="png", metadata={"Software": "openmrc"})
    return stream.getvalue()


def svg(figure: Figure) -> bytes:
    """Return the figure as SVG, the same bytes for the same figure."""
    stream = BytesIO()
    with rc_context({"svg.hashsalt": "openmrc"}):  # seeds the names of clip paths
        figure.savefig(stream, format="svg", metadata={"Creator": "openmrc", "Date": None})
    return stream.getvalue()


def _mark_faults(axes: Any, result: Result, scale: int, end_ps: int) -> None:
    marks = [mark for mark in result.fault_marks if mark[0] <= end_ps]
    for number, (at_ps, label) in enumerate(marks):
        axes.axvline(at_ps / scale, color="#888888", linewidth=0.9, linestyle=(0, (2, 2)), zorder=0)
        if number < MARKS_MAX:
            box = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
            label_at(axes, at_ps / scale, 0.985 - 0.045 * (number % 5), label, bbox=box)


def label_at(axes: Any, at: float, height: float, words: str, **more: Any) -> None:
    """Write a label beside a vertical line `at`, from a `height` (fraction of the axes)
    downwards.
    """
    axes.annotate(
        words,
        (at, height),
        xycoords=("data", "axes fraction"),
        xytext=(3, 0),
        textcoords="offset points",
        fontsize=7.5,
        color="#444444",
        va="top",
        **more,
    )


def _time_scale(end_ps: int) -> tuple[int, str]:
    for scale, unit in ((S, "s"), (MS, "ms"), (US, "us")):
        if end_ps >= scale:
            return scale, unit
    return NS, "ns"
