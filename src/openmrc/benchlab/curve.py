"""What was delivered over time: goodput between two instants, and the outage after a cut.

A curve is a list of (time, ns; bytes so far). Between two points it is straight.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from openmrc.errors import InputError

Curve = Sequence[tuple[int, int]]

SHARE = 0.7  # of what was delivered before: less is an outage
WINDOW_NS = 20_000_000
NS_PER_S = 1_000_000_000


def goodput_bps(curve: Curve, from_ns: int, to_ns: int) -> float:
    """Return bits per second between two instants; `InputError` if the curve does not reach both.

    A curve ends with its last delivery: what comes after it is nothing.
    """
    if not curve or from_ns >= to_ns:
        raise InputError(f"a curve of {len(curve)} points, from {from_ns} to {to_ns} ns: no time")
    times, counts = np.array(curve, np.int64).T
    begin, end = np.interp([from_ns, to_ns], times, counts)
    return float(end - begin) * 8 * NS_PER_S / (to_ns - from_ns)


def windows_bps(curve: Curve, from_ns: int, to_ns: int) -> list[float]:
    """Return the goodput of each whole window of `WINDOW_NS` between two instants."""
    edges = range(from_ns, to_ns - WINDOW_NS + 1, WINDOW_NS)
    return [goodput_bps(curve, edge, edge + WINDOW_NS) for edge in edges]


def outage_ns(windows: Sequence[float], healthy_bps: float) -> int | None:
    """Return the time from the cut, where the first window begins, to the end of the first window
    that carries `SHARE` of the healthy goodput again; never below one window. None: none does.
    """
    for number, bps in enumerate(windows):
        if bps >= SHARE * healthy_bps:
            return (number + 1) * WINDOW_NS
    return None


def below_ns(windows: Sequence[float], healthy_bps: float) -> int:
    """Return how long, of all windows together, less than `SHARE` was delivered."""
    return WINDOW_NS * sum(bps < SHARE * healthy_bps for bps in windows)
