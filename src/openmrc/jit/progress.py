"""Progress of compilation: which function is being compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import event

from openmrc.jit.decorators import registered

Report = Callable[[str, int, int], None]


class _Counter(event.Listener):  # type: ignore[misc]  # numba has no types
    """Reports each function whose compilation begins."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.seen: set[str] = set()

    def on_start(self, event: Any) -> None:
        """A function is compiled for the first time, or its result read from disk."""
        function = event.data["dispatcher"].py_func
        name = f"{function.__module__.removeprefix('openmrc.')}.{function.__name__}"
        if name not in self.seen:
            self.seen.add(name)
            self.report(name, min(len(self.seen), len(registered)), len(registered))

    def on_end(self, event: Any) -> None:
        """Do nothing: functions are counted when they begin."""


@contextmanager
def reported(report: Report | None) -> Iterator[None]:
    """Within the block, `report(what, step, steps)` is called before each function is compiled."""
    if report is None:
        yield
        return
    with event.install_listener("numba:compile", _Counter(report)):
        yield
    report("done", len(registered), len(registered))
