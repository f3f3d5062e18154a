"""From overlapping holds to the visible changes of state.

A hold is the effect of a fault on one target from `begin` to before `end`. Any number of holds may
overlap on a target. Two rules combine them:

* *While any lasts* (`counted`): a target is cut, dead, silent or denied from the begin of the first
  hold to the end of the last one.
* *The latest begun decides* (`latest`): a rate has one value at a time, that of the hold that began
  last of those that still last; of two that began together, that of the later fault.

Only the state at the end of each instant counts: if one hold ends when another begins, nothing
changes. Schedules may have millions of events, so the code works on columns, not rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from openmrc.fabric.model import LongArray
from openmrc.fabric.spans import NEVER

HOLD = np.dtype(
    [
        ("begin", "i8"),
        ("end", "i8"),
        ("target", "i8"),
        ("fault", "i4"),
        ("state", "i4"),  # of the target; 0 is the state without any hold
    ]
)
Holds = npt.NDArray[Any]  # of dtype HOLD


class Changes(NamedTuple):
    """From time `at[i]` on `target[i]` has state `state[i]`, which differs from its state
    before.
    """

    at: LongArray
    target: LongArray
    state: LongArray


def edges(holds: Holds, step: int = 1) -> Changes:
    """Return the begins and ends of holds as steps: +`step` and -`step`."""
    ended = holds[holds["end"] < NEVER]
    steps = np.concatenate([np.full(len(holds), step), np.full(len(ended), -step)])
    return Changes(
        np.concatenate([holds["begin"], ended["end"]]),
        np.concatenate([holds["target"], ended["target"]]),
        steps,
    )


def counted(
    steps: Changes, state_of: Callable[[LongArray], LongArray] = lambda level: np.minimum(level, 1)
) -> Changes:
    """Sum the steps of each target, and return the changes of `state_of` the sum; the sum is 0 at
    time 0.
    """
    order = np.lexsort((steps.at, steps.target))
    at, target, step = (column[order] for column in steps)
    first = np.flatnonzero(_begins(target))
    level = np.cumsum(step)
    level -= np.repeat((level - step)[first], np.diff(np.append(first, len(at))))
    return _seen(at, target, state_of(level))


def latest(holds: Holds) -> Changes:
    """Return the changes of the state in which each target is held; 0 is the state without any
    hold.
    """
    holds = holds[np.lexsort((holds["fault"], holds["begin"], holds["target"]))]
    number = np.arange(len(holds))
    ends = number[holds["end"] < NEVER]
    hold = np.concatenate([number, ends])
    at = np.concatenate([holds["begin"], holds["end"][ends]])
    order = np.lexsort((hold, at, holds["target"][hold]))
    hold, is_end, at = hold[order], (np.arange(len(at)) >= len(holds))[order], at[order]
    target = holds["target"][hold]
    state = np.zeros(len(hold), np.int64)
    held = holds["state"].tolist()
    over = bytearray(len(holds))
    lasting: list[int] = []  # holds of one target by their begins; some may have ended
    rows = zip(hold.tolist(), is_end.tolist(), _begins(target).tolist(), strict=True)
    for row, (one, ended, fresh) in enumerate(rows):
        if fresh:
            lasting.clear()
        if ended:
            over[one] = 1
        else:
            lasting.append(one)
        while lasting and over[lasting[-1]]:
            lasting.pop()
        if lasting:
            state[row] = held[lasting[-1]]
    return _seen(at, target, state)


def _begins(column: LongArray) -> npt.NDArray[np.bool_]:
    """Return where a run of equal values begins."""
    return np.append(True, column[1:] != column[:-1])[: len(column)]


def _seen(at: LongArray, target: LongArray, state: LongArray) -> Changes:
    """Return the changes from instant to instant, of rows sorted by target and time."""
    last = np.append(_begins(at)[1:] | _begins(target)[1:], True)[: len(at)]  # row of an instant
    at, target, state = at[last], target[last], state[last]
    before = np.append(0, state)[: len(state)]
    before[_begins(target)] = 0
    changed = state != before
    return Changes(at[changed], target[changed], state[changed])
