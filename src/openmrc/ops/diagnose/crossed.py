"""How many packets crossed a component and arrived, by when they left.

What was sent and not lost arrived. Bins tell how much was sent, and not when in the bin. Of those
in which a fault begins or ends as much may have crossed before or after it as links carry: where
much was sent for a moment in a long bin, all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from openmrc.fabric.model import LongArray
from openmrc.ops.diagnose.observed import FloatArray, Observed
from openmrc.ops.records import PMTU_BYTES
from openmrc.units import US, S

BITS = 8


@dataclass(frozen=True, eq=False)
class Crossed:
    """Packets of data, or of all sorts, that crossed a component."""

    edges_us: FloatArray  # [bins + 1]
    arrived: FloatArray  # [bins]
    room: FloatArray  # [bins] how many its links carry, shared as these are

    def evenly(self, at_us: FloatArray) -> FloatArray:
        """Return how many had crossed by these times, if those of a bin did so evenly."""
        return np.asarray(np.interp(at_us, self.edges_us, self._upto()), np.float64)

    def at_most(self, at_us: FloatArray) -> FloatArray:
        """Return how many may have crossed by these times."""
        at, part = self._part(at_us)
        return np.asarray(self._upto()[at] + np.minimum(self.arrived[at], self.room[at] * part))

    def at_least(self, at_us: FloatArray) -> FloatArray:
        """Return how many had crossed by these times, if the others did so as late as they may."""
        at, part = self._part(at_us)
        later = np.minimum(self.arrived[at], self.room[at] * (1 - part))
        return np.asarray(self._upto()[at + 1] - later)

    def _upto(self) -> FloatArray:
        return np.append(0.0, np.cumsum(self.arrived))

    def _part(self, at_us: FloatArray) -> tuple[LongArray, FloatArray]:
        """Bins of these times, and the part of each that has passed."""
        edges = self.edges_us
        at = np.clip(np.searchsorted(edges, at_us, side="right") - 1, 0, len(edges) - 2)
        part = (at_us - edges[at]) / np.maximum(np.diff(edges)[at], 1e-9)
        return at, np.clip(part, 0, 1)


def arrived(seen: Observed) -> FloatArray:
    """Return [bins, ports] packets of data that left in each bin, across each port, and arrived: no
    more, in all, than were answered, for of the others nobody knows yet.
    """
    lost, n = np.zeros_like(seen.sent), seen.sent.shape[1]
    data = seen.lost.take(~seen.lost.probe)
    for column in data.routes.T:
        there = column >= 0
        np.add.at(lost, (seen.bin_of(data.sent_us[there]), column[there]), 1)
    upto = np.cumsum(np.maximum(seen.sent - lost, 0), axis=0)
    return np.diff(np.minimum(upto, seen.answers.sum(axis=0)), axis=0, prepend=np.zeros((1, n)))


def crossed(
    seen: Observed, came: FloatArray, gates: Sequence[int], through: FloatArray | None = None
) -> Crossed:
    """Return what crossed these links, which every packet across a component crosses once, of what
    `came`, as `arrived` tells; with what surely went `through` [bins, ports], packets of all sorts.
    """
    links = list(gates)
    data = came[:, links]
    each = data if through is None else np.maximum(data, through[:, links])
    per_us = seen.fabric.port_rate_bps[links] * (US / S) / BITS / PMTU_BYTES
    # Beside a packet of data there is room for an answer.
    busy_us = (np.maximum(data, each / 2) / per_us).max(axis=1)
    total = each.sum(axis=1)
    room = total * np.diff(seen.edges_us) / np.maximum(busy_us, 1e-9)
    return Crossed(seen.edges_us, total, room)
