"""How probable it is that what is said to be broken is.

By the model, what explains x nats more than the best other explanation is e^x times as probable.
But packets share fates in more ways than it knows, so as evidence they count for less: a part, as
statistics of counts with more variance than Poisson's divide by a dispersion. And at times what
happened is nothing of what is looked at, however sure the best of that looks. Both numbers are
those under which what was named in drawn runs is most probable (`benchmarks/blind.py --fit`).
"""

from __future__ import annotations

import math

DISPERSION = 6.0
ASIDE = 0.046


def probability(ahead_nats: float) -> float:
    """Return how probable an answer is that explains so much more than the best other one."""
    return (1 - ASIDE) / (1 + math.exp(-ahead_nats / DISPERSION))
