"""The progress bar on standard error: simulated time, flows done, time left."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from openmrc.run import Step
from openmrc.units import US


class Bar:
    """Context manager whose `update` is what `simulate` calls; silent where nobody looks on."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self._task: TaskID | None = None
        self._index = -1
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TextColumn(
                "{task.completed:,.0f} of {task.total:,.0f} flows, {task.fields[sim]} simulated"
            ),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def update(self, step: Step) -> None:
        """Show one step; a new transport gets a bar of its own."""
        now = step.progress
        sim = f"{now.now_ps / US:,.0f} us"
        if step.index != self._index or self._task is None:
            if self._task is not None:
                self._progress.remove_task(self._task)
            label = f"{step.transport} ({step.index + 1} of {step.count})"
            self._task = self._progress.add_task(label, total=now.flows_total, sim=sim)
            self._index = step.index
        self._progress.update(self._task, completed=now.flows_done, sim=sim)
