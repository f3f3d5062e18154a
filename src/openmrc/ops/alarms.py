"""How often a healthy place would be named: computed, because nobody can wait for it.

A place is named if it lost so many of the packets that crossed it in a window that chance, with `b`
per packet, explains this worse than damage by `alarm` nats. The probability of that is a binomial
tail. It is at most e^-alarm whatever the number of packets and `b` (Chernoff's bound); this module
computes the exact value, and the number of losses from which a place is named. Windows do not
overlap, so each is one test.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from openmrc.ops.fit import evidence_against
from openmrc.units import S

HOUR_S = 3600
LOSSES_MAX = 4096


class Alarm(NamedTuple):
    """The number of losses in a window from which a place is named, and its probability by
    chance.
    """

    losses: int
    chance: float


def alarm(packets: int, background: float, nats: float) -> Alarm:
    """Return the fewest losses of so many packets that are named, and the probability of as
    many.
    """
    losses = np.arange(1, min(packets, LOSSES_MAX) + 1, dtype=np.float64)
    found = evidence_against(losses, losses * math.log(background), np.full(len(losses), packets))
    enough = np.flatnonzero(found >= nats)
    if not len(enough):
        return Alarm(packets + 1, 0.0)
    fewest = int(losses[enough[0]])
    return Alarm(fewest, tail(packets, background, fewest))


def tail(n: int, p: float, least: int) -> float:
    """Return the probability of at least `least` successes in `n` trials, each with probability
    `p`.
    """
    total, term = 0.0, 0.0
    for x in range(least, n + 1):
        log_term = math.lgamma(n + 1) - math.lgamma(x + 1) - math.lgamma(n - x + 1)
        term = math.exp(log_term + x * math.log(p) + (n - x) * math.log1p(-p))
        total += term
        if term < 1e-18 * total:
            break
    return total


def windows_an_hour(window_ps: int) -> float:
    """Return the number of windows of this width in an hour."""
    return HOUR_S * S / window_ps


def background_at_most(sent: int, lost: int, doubt: float = 0.05) -> float:
    """Return the upper confidence limit of the loss rate by chance if `lost` of `sent` packets were
    lost, at a confidence of 1 - `doubt`: with none lost, 3 / sent.
    """
    low, high = lost / sent, 1.0
    while high - low > 1e-3 * high:
        middle = math.sqrt(max(low, 1e-18) * high)
        less_or_equal = 1 - tail(sent, middle, lost + 1) if lost else (1 - middle) ** sent
        low, high = (middle, high) if less_or_equal > doubt else (low, middle)
    return high
