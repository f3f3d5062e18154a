"""How many packets crossed a component and arrived, by a time, as their answers tell.

Bins tell how many answers came, and not when in the bin. Of those in which a fault begins or ends
as many may have crossed before or after it as links carry: where much was sent for a moment in a
long bin, all of them.
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


def crossed(seen: Observed, gates: Sequence[int], through: FloatArray | None = None) -> Crossed:
    """Return what crossed these links, which every packet across a component crosses once; with
    what surely went `through` [bins, ports], packets of all sorts.
    """
    links = list(gates)
    data = seen.answers[:, links]
    each = data if through is None else np.maximum(data, through[:, links])
    per_us = seen.fabric.port_rate_bps[links] * (US / S) / BITS / PMTU_BYTES
    # Beside a packet of data there is room for an answer.
    busy_us = (np.maximum(data, each / 2) / per_us).max(axis=1)
    arrived = each.sum(axis=1)
    room = arrived * np.diff(seen.edges_us) / np.maximum(busy_us, 1e-9)
    return Crossed(seen.edges_us, arrived, room)
