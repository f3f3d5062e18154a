"""Expectation and maximisation, compiled: in rounds, which share of each row's losses each suspect
caused. A handful of rows takes as long as NumPy needs to be called once.
"""

from __future__ import annotations

import math

from openmrc.jit import compiled


@compiled
def settle(pattern, lost, through, crossed, free, p, total, log_through, certain, settled, rounds):
    """Move `p` [suspects] to the probabilities of greatest likelihood, those that are `free`, in so
    many rounds at most; `total` and `log_through`, [suspects], are room.

    `pattern` [rows, width]: the suspects of each row, -1 for none; `lost` [rows]; `through` [rows]:
    the logarithm of what chance lets through.
    """
    n_rows, width = pattern.shape
    n = p.shape[0]
    for _ in range(rounds):
        for i in range(n):
            total[i] = 0.0
            log_through[i] = math.log1p(-p[i])
        for row in range(n_rows):
            log_came = through[row]
            for k in range(width):
                if pattern[row, k] >= 0:
                    log_came += log_through[pattern[row, k]]
            each = lost[row] / -math.expm1(log_came)
            for k in range(width):
                if pattern[row, k] >= 0:
                    total[pattern[row, k]] += p[pattern[row, k]] * each
        moved = False
        for i in range(n):
            if free[i]:
                new = min(total[i] / crossed[i], certain)
                moved = moved or abs(new - p[i]) > settled * max(new, 1e-12)
                p[i] = new
        if not moved:
            return
