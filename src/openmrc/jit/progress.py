"""Progress of compilation: which function is being compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import event

from openmrc.jit.decorators import registered

Report = Callable[[str, int, int], None]
Tell = Callable[[str], None]


class _Listener(event.Listener):  # type: ignore[misc]  # numba has no types
    """Reports the name of each function whose compilation begins."""

    def __init__(self, tell: Tell) -> None:
        self.tell = tell

    def on_start(self, event: Any) -> None:
        """A function is compiled for the first time, or its result is read from disk."""
        function = event.data["dispatcher"].py_func
        self.tell(f"{function.__module__.removeprefix('openmrc.')}.{function.__name__}")

    def on_end(self, event: Any) -> None:
        """Do nothing: functions are counted when they begin."""


@contextmanager
def told(tell: Tell) -> Iterator[None]:
    """Within the block, `tell(name)` is called before each function is compiled."""
    with event.install_listener("numba:compile", _Listener(tell)):
        yield


@contextmanager
def reported(report: Report | None) -> Iterator[Tell]:
    """Within the block, `report(what, step, steps)` is called before each function is compiled for
    the first time. Call the function that this yields with the names of those that other processes
    compile.
    """
    if report is None:
        yield lambda name: None
        return
    seen: set[str] = set()

    def tell(name: str) -> None:
        if name not in seen:
            seen.add(name)
            report(name, min(len(seen), len(registered)), len(registered))

    with told(tell):
        yield tell
    report("done", len(registered), len(registered))
