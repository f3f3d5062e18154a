"""Expectation maximisation, compiled: iterates over the share of each row's losses that each
suspect caused. A handful of rows takes as long as one call of NumPy.
"""

from __future__ import annotations

import math

from openmrc.jit import compiled


@compiled
def settle(pattern, lost, through, crossed, free, p, total, log_through, certain, settled, rounds):
    """Move those of `p` [suspects] that are `free` to their maximum-likelihood values, in at most
    `rounds` iterations; `total` and `log_through`, [suspects], are work arrays.

    `pattern` [rows, width]: the suspects of each row, -1 for none; `lost` [rows]; `through` [rows]:
    the logarithm of the probability that chance lets a packet through.
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
