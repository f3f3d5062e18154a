"""`mrc bench torch --steps`: step times of a training, one line per backend, cuts marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from openmrc.report.picture import bare, label_at, style

Steps = Sequence[tuple[float, float]]  # when it ended, and its time, s
Cut = tuple[float, float, str]  # when it began and ended, s, and its label


def draw(steps: Mapping[str, Steps], cuts: Sequence[Cut], title: str) -> Figure:
    """Return the picture; `steps` by the line's label."""
    figure = Figure(figsize=(10, 4.5), dpi=130, layout="constrained")
    axes = figure.add_subplot()
    for number, (words, line) in enumerate(steps.items()):
        ended, took_ms = [at for at, _ in line], [1e3 * took for _, took in line]
        axes.plot(ended, took_ms, label=words, drawstyle="steps-pre", **style(number))
    for begin, end, words in cuts:
        axes.axvspan(begin, end, color="#dddddd", linewidth=0, zorder=0)
        label_at(axes, begin, 0.98, words)
    axes.set_yscale("log")
    axes.set_ylim(top=2 * axes.get_ylim()[1])  # room for labels
    axes.set_xlim(left=0)
    axes.set_xlabel("time, s")
    axes.set_ylabel("time of a step, ms")
    axes.set_title(title, loc="left")
    bare(axes)
    figure.legend(loc="outside upper right", ncols=len(steps), frameon=False, handlelength=3.6)
    return figure
