"""How probable it is that what is said to be broken is.

By the model, what explains x nats more than chance is e^x times as probable; what explains nearly
as much is said along with it.
But in some runs what happened is nothing of what is looked at, however sure the best of that looks.
How often is what held in drawn runs that the code had not seen (`benchmarks/blind.py --fit`), as is
the part for which nats count if packets share fates that the model does not know: all of it.
"""

from __future__ import annotations

import math

ASIDE = 0.04


def probability(ahead_nats: float) -> float:
    """Return how probable an answer is that explains so much more than chance."""
    return (1 - ASIDE) / (1 + math.exp(-ahead_nats))
