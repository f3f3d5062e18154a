"""Progress of compilation: which function is being compiled, and what share of the work is done.

The work of a function is the length of its bytecode. That is what the first part of the compiler
reads, once for each function; the second makes machine code of an entry with all that it calls, in
one step that tells nothing, so it counts as the entry's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import CodeType, ModuleType
from typing import Any

from numba.core import event

Report = Callable[[str, int, int], None]
Tell = Callable[[str, str], None]
DONE = "done"
MACHINE_CODE = 0.5  # time of the second part, per byte, in times of the first


def name_of(function: Any) -> str:
    """Return the name of a plain function, as progress shows it."""
    return f"{function.__module__.removeprefix('openmrc.')}.{function.__name__}"


def reached(entry: Any) -> dict[str, int]:
    """Return the name and size, in bytes of bytecode, of a compiled function and all those that it
    calls.
    """
    found: dict[str, int] = {}
    waiting = [entry]
    while waiting:
        function = waiting.pop().py_func
        if (name := name_of(function)) in found:
            continue
        names = _names(function.__code__)
        known = [function.__globals__[each] for each in names if each in function.__globals__]
        modules = [each for each in known if isinstance(each, ModuleType)]
        known += [getattr(module, each, None) for module in modules for each in names]
        waiting += [each for each in known if hasattr(each, "py_func")]
        found[name] = len(function.__code__.co_code)
    return found


def _names(code: CodeType) -> set[str]:
    """The global names and attributes that code uses, and the functions within it."""
    inside = (_names(each) for each in code.co_consts if isinstance(each, CodeType))
    return set(code.co_names).union(*inside)


class Work:
    """What is to be compiled, and what of it is done, in bytes."""

    def __init__(self, entries: Iterable[Any]) -> None:
        """Each entry is compiled for itself, with all that it calls."""
        self._left: dict[str, list[int]] = defaultdict(list)
        self.total = self.done = 0
        for entry in entries:
            sizes = reached(entry)
            sizes[name_of(entry.py_func)] += int(MACHINE_CODE * sum(sizes.values()))
            for name, size in sizes.items():
                self._left[name].append(size)
            self.total += sum(sizes.values())

    def ended(self, name: str) -> None:
        """Record that a function was compiled; one that was not expected does not count."""
        if sizes := self._left[name]:
            self.done += sizes.pop()


class _Listener(event.Listener):  # type: ignore[misc]  # numba has no types
    """Tells which function was compiled, and which is compiled after it."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._within: list[str] = []

    def on_start(self, event: Any) -> None:
        """A function is compiled, in the middle of its caller."""
        self._within.append(name_of(event.data["dispatcher"].py_func))
        self._tell("", self._within[-1])

    def on_end(self, event: Any) -> None:
        """Its caller is next."""
        ended = self._within.pop()
        self._tell(ended, self._within[-1] if self._within else ended)


@contextmanager
def told(tell: Tell) -> Iterator[None]:
    """Within the block, `tell(ended, now)` is called before and after each function is compiled:
    the one that ended, or "", and the one that is compiled now.
    """
    with event.install_listener("numba:compile", _Listener(tell)):
        yield


@contextmanager
def reported(report: Report | None, entries: Iterable[Any] = ()) -> Iterator[Tell]:
    """Within the block, `report(what, step, steps)` is called whenever a function is compiled:
    first with "", last with `DONE`. Without entries, it is not known how much is to be done, and
    `steps` is 0. Call the function that this yields with what other processes tell.
    """
    if report is None:
        yield lambda ended, now: None
        return
    work = Work(entries)

    def tell(ended: str, now: str) -> None:
        work.ended(ended)
        report(now, work.done, work.total)

    report("", 0, work.total)
    with told(tell):
        yield tell
    report(DONE, work.total, work.total)
