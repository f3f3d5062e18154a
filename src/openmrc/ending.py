"""What asks a command to end: Ctrl-C, SIGTERM and SIGHUP.

SIGTERM and SIGHUP, as schedulers, containers and lost terminals send them, call the handler of
SIGINT that is in force, so whoever handles Ctrl-C handles all three: results so far are kept. Only
the exit status differs: 128 and the number of the signal.
"""

from __future__ import annotations

import signal
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EXIT_INTERRUPTED = 128 + signal.SIGINT
_arrived = [int(signal.SIGINT)]  # the last of them


def alike() -> None:
    """From now on let SIGTERM and SIGHUP do what Ctrl-C does, unless they are ignored (`nohup`)."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _as_interrupt)


def note(number: int) -> None:
    """Record which signal arrived, where a handler of one's own takes it."""
    _arrived.append(number)
    del _arrived[:-1]


def awaited() -> list[int]:
    """From now on put the exit status of each signal that arrives into the list that this returns,
    instead of raising: for what is ended in order. An ignored SIGINT stays ignored.
    """
    asked: list[int] = []
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN

    def heard(number: int, frame: FrameType | None) -> None:
        if number != signal.SIGINT or not ignored:
            note(number)
            asked.append(status())

    signal.signal(signal.SIGINT, heard)  # and so of SIGTERM and SIGHUP
    return asked


def last() -> int:
    """Return the signal that arrived last; SIGINT without any."""
    return _arrived[-1]


def status() -> int:
    """Return the exit status of what that signal ended."""
    return 128 + _arrived[-1]


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    note(number)
    handler = signal.getsignal(signal.SIGINT)
    # Where Ctrl-C is ignored, as in a shell's background, these two still end the command.
    (handler if callable(handler) else signal.default_int_handler)(number, frame)
