"""Delivery over time: goodput between two instants, and the outage after a cut.

A curve is a list of (time, ns; bytes so far), interpolated linearly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from openmrc.errors import InputError

Curve = Sequence[tuple[int, int]]

SHARE = 0.7  # of the goodput before: less is an outage
WINDOW_NS, STEP_NS = 20_000_000, 5_000_000
NS_PER_S = 1_000_000_000


def goodput_bps(curve: Curve, from_ns: int, to_ns: int) -> float:
    """Return bits per second between two instants; `InputError` if the curve does not reach both.

    A curve ends with its last delivery: nothing arrives after it.
    """
    if not curve or from_ns >= to_ns:
        raise InputError(f"a curve of {len(curve)} points, from {from_ns} to {to_ns} ns: no time")
    times, counts = np.array(curve, np.int64).T
    begin, end = np.interp([from_ns, to_ns], times, counts)
    return float(end - begin) * 8 * NS_PER_S / (to_ns - from_ns)


def outage_ns(curve: Curve, cut_ns: int, to_ns: int, healthy_bps: float) -> int | None:
    """Return the time, ns, without `SHARE` of the healthy goodput: from a cut to the start of the
    first window of `WINDOW_NS` that carries it, searched every `STEP_NS`. None: there is none.
    """
    for begin in range(cut_ns, to_ns - WINDOW_NS + 1, STEP_NS):
        if goodput_bps(curve, begin, begin + WINDOW_NS) >= SHARE * healthy_bps:
            return begin - cut_ns
    return None
