"""Expectation maximisation, compiled: iterates over the share of each row's losses that each
suspect caused. A handful of rows takes as long as one call of NumPy.
"""

from __future__ import annotations

import math

from openmrc.jit import compiled, inlined
from openmrc.ops.weigh import row_loss


@inlined
def _settle(
    pattern, rows, n_rows, lost, through, crossed, free, p, total, log_through, certain, settled,
    rounds,
):  # fmt: skip
    n = p.shape[0]
    for _ in range(rounds):
        for i in range(n):
            total[i] = 0.0
            log_through[i] = math.log1p(-p[i])
        for at in range(n_rows):
            row = rows[at]
            log_came = through[row]
            for k in range(pattern.shape[1]):
                if pattern[row, k] >= 0:
                    log_came += log_through[pattern[row, k]]
            each = lost[row] / -math.expm1(log_came)
            for k in range(pattern.shape[1]):
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


@compiled
def settle(
    pattern, rows, lost, through, crossed, free, p, total, log_through, certain, settled, rounds
):
    """Move those of `p` [suspects] that are `free` to their maximum-likelihood values, in at most
    `rounds` iterations; `total` and `log_through`, [suspects], are work arrays.

    `pattern` [rows, width]: the suspects of each row, -1 for none; `rows`: those that count; `lost`
    [rows]; `through` [rows]: the logarithm of the probability that chance lets a packet through.
    """
    _settle(
        pattern, rows, len(rows), lost, through, crossed, free, p, total, log_through, certain,
        settled, rounds,
    )  # fmt: skip


@inlined
def _near(pattern, suspect, near):
    """Mark the other suspects that share a row with this one; return whether there are any."""
    for i in range(len(near)):
        near[i] = False
    for row in range(pattern.shape[0]):
        here = False
        for k in range(pattern.shape[1]):
            here = here or pattern[row, k] == suspect
        for k in range(pattern.shape[1] if here else 0):
            if pattern[row, k] >= 0:
                near[pattern[row, k]] = True
    near[suspect] = False
    return near.any()


@compiled
def needed(
    pattern, lost, through, crossed, arrived, p, first, last, near, rows, innocent, total,
    log_through, certain, settled, rounds, nats,
):  # fmt: skip
    """Write to `nats`, for the suspects from `first` to `last`, by how many nats the likelihood
    falls if each is innocent, and those that share losses with it explain them as well as they can.

    `arrived` [suspects]: packets that crossed each and were not lost; `near` to `log_through` are
    work arrays, `rows` [rows] and the others [suspects]; the rest as above.
    """
    for suspect in range(first, last):
        any_near = _near(pattern, suspect, near)
        n = 0
        for row in range(pattern.shape[0]):
            counts = False
            for k in range(pattern.shape[1]):
                i = pattern[row, k]
                counts = counts or i == suspect or (i >= 0 and near[i])
            if counts:
                rows[n] = row
                n += 1
        for i in range(len(p)):
            innocent[i] = p[i] if i != suspect else 0.0
        if any_near:
            _settle(
                pattern, rows, n, lost, through, crossed, near, innocent, total, log_through,
                certain, settled, rounds,
            )  # fmt: skip
        gain = 0.0
        for at in range(n):
            row = rows[at]
            before = row_loss(pattern, row, through[row], p, -1)
            after = row_loss(pattern, row, through[row], innocent, -1)
            gain += lost[row] * math.log(before / after)
        for i in range(len(p)):
            if near[i] or i == suspect:
                gain += arrived[i] * (math.log1p(-p[i]) - math.log1p(-innocent[i]))
        nats[suspect - first] = gain
