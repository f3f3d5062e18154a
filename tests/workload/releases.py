"""What releases what in a list of entries."""

from __future__ import annotations

import numpy as np

from openmrc.traffic.traffic import Traffic


def edges(traffic: Traffic) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """The releases by arrival, and those when sent, as pairs of entries."""
    found = []
    for first, nxt in (
        (traffic.recv_first, traffic.recv_next),
        (traffic.sent_first, traffic.sent_next),
    ):
        giving = np.repeat(np.arange(traffic.n_entries), np.diff(first))
        found.append(sorted(zip(giving.tolist(), nxt.tolist(), strict=True)))
    return found[0], found[1]
