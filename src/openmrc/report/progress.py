"""Progress on standard error: of compiling, of a run, of a sweep."""

from __future__ import annotations

import sys
from collections import deque
from pathlib import Path
from time import monotonic, perf_counter
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.text import Text

from openmrc.jit.progress import DONE
from openmrc.jit.warmup import announcement
from openmrc.printable import printable
from openmrc.run.simulation import Step
from openmrc.say import say
from openmrc.units import US

BAR_WIDTH_MIN = 100  # columns of a window
RECENT_S = 5.0  # the rate of a run is that of so many last seconds,
SEEN_S = 1.0  # and known after so many ...
BEGUN = 0.01  # ... since this share was done: packets first fill the network, and little arrives
LINE_EVERY_S = 5.0
STEP_EVERY_S = 30.0  # lines of a run, where there is no bar
FAILURES_SAID = 5  # printed; the others are in the data set


class Compiling:
    """What is called with the progress of a first compilation: on a terminal it shows a line that
    changes, elsewhere one every few seconds.
    """

    def __init__(self) -> None:
        self._next_s = 0.0

    def __call__(self, what: str, step: int, steps: int) -> None:
        """`step` of `steps` are done, or an unknown share if `steps` is 0; `what` is next."""
        on_terminal, now_s = sys.stderr.isatty(), monotonic()
        share = f"{100 * step // steps} %: " if steps else ""
        if not what:
            say(announcement("the simulator", "up to a minute"))
            self._next_s = now_s + LINE_EVERY_S
        elif on_terminal:
            say("" if what == DONE else f"  {share}{what}", end="", over=True)
        elif what != DONE and now_s >= self._next_s:
            say(f"  {share}{what}")
            self._next_s = now_s + LINE_EVERY_S


compiling = Compiling()


class TimeLeft:
    """How long a run still takes at the rate of its last seconds; nothing while it begins."""

    def __init__(self) -> None:
        self._steps: deque[tuple[float, float]] = deque()

    def after(self, at_s: float, share: float) -> float | None:
        """Record that a share of the run was done at a time; return what the rest takes, s, or None
        as long as no rate is known.
        """
        if share < BEGUN:
            return None
        steps = self._steps
        steps.append((at_s, share))
        while len(steps) > 2 and at_s - steps[1][0] >= RECENT_S:
            steps.popleft()
        since_s, before = steps[0]
        if share <= before or at_s - since_s < SEEN_S:
            return None
        return (1 - share) * (at_s - since_s) / (share - before)


class Bar:
    """Context manager whose `update` is what `simulate` calls; without a terminal a line every half
    minute.
    """

    def __init__(self) -> None:
        console = Console(stderr=True)
        self._task: TaskID | None = None
        self._index = -1
        self._left = TimeLeft()
        self._next_s = perf_counter() + STEP_EVERY_S
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            # In a narrow window the numbers stay, and the bar and the name shrink.
            *([BarColumn(bar_width=30)] if console.width >= BAR_WIDTH_MIN else []),
            TextColumn("{task.fields[words]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> Self:
        self._progress.start()
        self._task = self._progress.add_task("building", total=None, words="")
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def update(self, step: Step) -> None:
        """Show one step; a new transport gets a bar of its own."""
        now = step.progress
        words = (
            f"{now.flows_done:,} of {now.flows_total:,} flows, {now.now_ps / US:,.0f} us simulated"
        )
        if step.index != self._index or self._task is None:
            if self._task is not None:
                self._progress.remove_task(self._task)
            name = Text(printable(step.transport))
            name.truncate(self._progress.console.width // 8, overflow="ellipsis")
            label = f"{name.plain} ({step.index + 1} of {step.count})"
            self._task = self._progress.add_task(label, total=1.0, words=words)
            self._index = step.index
            self._left = TimeLeft()
        now_s = perf_counter()
        left_s = self._left.after(now_s, step.share)
        words += "" if left_s is None else f", {duration(left_s)} left"
        self._progress.update(self._task, completed=step.share, words=words)
        if self._progress.disable and now_s >= self._next_s:
            say(f"  {self._progress.tasks[0].description}: {100 * step.share:.0f} %, {words}")
            self._next_s = now_s + STEP_EVERY_S


class SweepBar:
    """Context manager whose `update` is called after each run: a line that changes on a terminal,
    elsewhere a line for each tenth. `total` runs, of which `todo` are not in `out` yet.
    """

    def __init__(self, total: int, todo: int, out: Path, loud: bool = True) -> None:
        self._total, self._todo, self._out, self._loud = total, todo, out, loud
        self._done = self._failed = 0
        self._on_terminal = sys.stderr.isatty()

    def __enter__(self) -> Self:
        self._started = perf_counter()
        if 0 < self._todo < self._total:
            self._say(f"{self._total - self._todo:,} of {self._total:,} runs are in {self._out}.")
        if self._todo:
            self._show()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        kept = self._total - self._todo + self._done - self._failed
        if self._loud and self._on_terminal:
            say("", end="", over=True)
        if kind is KeyboardInterrupt:
            self._say(
                f"Interrupted: {kept:,} of {self._total:,} runs are in {self._out};"
                " resume by running the same again."
            )
        elif kind is None:
            failed = f", {self._failed:,} failed" if self._failed else ""
            self._say(f"{kept:,} of {self._total:,} runs are in {self._out}{failed}.")

    def update(self, run: str, error: str) -> None:
        """Record that a run ended, with an error if it failed."""
        self._done += 1
        if error:
            self._failed += 1
            if self._failed <= FAILURES_SAID:
                self._say(f"FAILED: {run}: {error}")
            if self._failed == FAILURES_SAID + 1:
                self._say("More failed; the column error says which, and why.")
        if self._done < self._todo:
            self._show()

    def _show(self) -> None:
        tenth = self._done and 10 * self._done // self._todo > 10 * (self._done - 1) // self._todo
        if self._loud and self._on_terminal:
            say(self._state(), end="", over=True)
        elif self._loud and tenth:
            say(self._state())

    def _state(self) -> str:
        state = f"{self._done:,} of {self._todo:,} runs"
        if self._failed:
            state += f", {self._failed:,} failed"
        if self._done:
            left_s = (perf_counter() - self._started) * (self._todo - self._done) / self._done
            state += f", {duration(left_s)} left"
        return state

    def _say(self, words: str) -> None:
        if self._loud:
            say(words, over=self._on_terminal)


def duration(seconds: float) -> str:
    """An approximate duration, in a suitable unit."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.0f} h"
