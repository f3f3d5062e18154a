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
TINY_US = 1e-9  # not to divide by zero


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
        part = (at_us - edges[at]) / np.maximum(np.diff(edges)[at], TINY_US)
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


def split(seen: Observed, *counts: FloatArray) -> tuple[FloatArray, ...]:
    """Return the edges of bins, and the counts in them, with bins split where NICs said that ports
    of their own went down or came back: nothing crossed these meanwhile.
    """
    told = seen.lost.take(seen.lost.ev < 0)
    edges_us = np.unique(np.append(seen.edges_us, told.sent_us))
    of = seen.bin_of(edges_us[:-1])
    up_us = np.repeat(np.diff(edges_us)[:, None], seen.sent.shape[1], axis=1)
    for port in np.unique(told.routes[:, 0]).tolist():
        at_us = told.sent_us[told.routes[:, 0] == port]  # down, up, down, ...
        up_us[np.searchsorted(at_us, edges_us[:-1], side="right") % 2 == 1, port] = 0
    total_us = np.zeros_like(seen.sent)
    np.add.at(total_us, of, up_us)
    part = up_us / np.maximum(total_us, TINY_US)[of]
    return edges_us, *(each[of] * part for each in counts)


def crossed(
    seen: Observed,
    edges_us: FloatArray,
    gates: Sequence[int],
    came: FloatArray,
    through: FloatArray | None = None,
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
    room = total * np.diff(edges_us) / np.maximum(busy_us, TINY_US)
    return Crossed(edges_us, total, room)
