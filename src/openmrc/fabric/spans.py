"""When a fault lasts: once, every period, or at random, as spans from `begin` to `end`.

Times are picoseconds. A span without a known end ends at `NEVER`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from openmrc.fabric.model import LongArray

NEVER = 2**62
DRAWS_AT_ONCE = 1 << 20  # bounds the memory of drawing, not the number of spans


class Spans(NamedTuple):
    """Thing `thing[i]` is struck from `begin[i]` to before `end[i]`."""

    thing: LongArray
    begin: LongArray
    end: LongArray


def once(things: LongArray, at: int, end: int) -> Spans:
    """Return one span for each of the things."""
    return Spans(things, np.full(len(things), at), np.full(len(things), end))


def periodic(things: LongArray, at: int, until: int, period: int, lasts: int) -> Spans:
    """Return spans of length `lasts` every `period`, all things together, none after `until`."""
    begin = np.arange(at, until, period)
    end = np.minimum(begin + lasts, until)
    n = len(begin)
    return Spans(np.repeat(things, n), np.tile(begin, len(things)), np.tile(end, len(things)))


def drawn(
    rng: np.random.Generator,
    things: LongArray,
    at: int,
    until: int,
    means: tuple[int, int],
    steady: bool = False,
) -> Spans:
    """Return spans at random: each thing alternates between working and failed, for independent
    exponential times with these `means`. All spans end by `until`.

    All work at the start; with `steady` as many have failed as on average later.
    """
    mean_up, mean_down = means
    n = len(things)
    found = [Spans(*(np.zeros(0, np.int64) for _ in range(3)))]
    now = np.full(n, float(at))
    failed = rng.random(n) < mean_down / (mean_up + mean_down) if steady else np.zeros(n, bool)
    while n := len(things):
        expected = (until - float(now.min())) / (mean_up + mean_down)
        turns = int(min(max(8, 1.2 * expected + 8), max(DRAWS_AT_ONCE // n, 8)))
        lengths = np.empty((n, 2 * turns))
        lengths[:, 0::2] = rng.exponential(mean_up, (n, turns))
        lengths[:, 1::2] = rng.exponential(mean_down, (n, turns))
        lengths[failed, 0] = 0
        times = now[:, None] + np.cumsum(lengths, axis=1)
        at_ps = np.minimum(np.minimum(times, float(until)).astype(np.int64), until)
        begin, end = at_ps[:, 0::2].ravel(), at_ps[:, 1::2].ravel()
        taken = (begin < until) & (begin < end)
        found.append(Spans(np.repeat(things, turns)[taken], begin[taken], end[taken]))
        going_on = times[:, -1] < until
        things, now = things[going_on], times[going_on, -1]
        failed = np.zeros(len(things), bool)
    return Spans(*(np.concatenate(columns) for columns in zip(*found, strict=True)))
