"""Damaged packets, which switches forward and NICs discard: losses that are certain, and when.

They are missing at no switch. But a NIC counts the packets with a wrong iCRC that each of its ports
gets, so what damages packets is no echo of late ones, and began when they began to arrive.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from openmrc.fabric.model import Fabric, IntArray
from openmrc.ops.balance import LEAST, MOST

if TYPE_CHECKING:
    import polars as pl

FEW = 0.02  # of what arrived damaged: the first and the last of it may be another place's


@dataclass(frozen=True, eq=False)
class Damaged:
    """Packets that arrived damaged in a run."""

    fabric: Fabric
    packets: npt.NDArray[np.float64]  # [ports] by the last link that they crossed
    links: pl.DataFrame  # the same by bin

    def behind(self, routes: IntArray) -> int:
        """Return how many arrived where these routes, [rows, hops], end."""
        return int(self.packets[np.unique(self._last(routes))].sum())

    def accuses(self, routes: IntArray, lost: npt.NDArray[np.int64]) -> bool:
        """Return whether about as many arrived on the last links of paths as these lost, [rows]."""
        by_port = self._by_port(routes, lost)
        return bool(np.minimum(by_port, self.packets).sum() >= LEAST * by_port.sum() > 0)

    def without(self, routes: IntArray, lost: npt.NDArray[np.int64]) -> Damaged:
        """Return the rest if the losses of these paths, [rows], were damage. Senders do not learn
        of all, such as those of packets that are trimmed when they are sent again.
        """
        rest = np.maximum(self.packets - MOST * self._by_port(routes, lost), 0)
        return replace(self, packets=rest)

    def span_us(self, routes: IntArray) -> tuple[float, float] | None:
        """Return when the bins begin and end in which nearly all of those arrived that arrived
        where these routes end, us; None if none did.
        """
        import polars as pl

        mine = self.links.filter(pl.col("port").is_in(np.unique(self._last(routes)).tolist()))
        if not len(mine):
            return None
        rows = mine.sort("from_us")
        upto = rows["damaged"].cum_sum().to_numpy()
        few = FEW * int(upto[-1])
        first, last = (int(np.searchsorted(upto, at)) for at in (few, upto[-1] - few))
        return float(rows["from_us"][first]), float(rows["until_us"][last])

    def _last(self, routes: IntArray) -> IntArray:
        """[rows] the last link of each route."""
        ends = (routes >= 0).sum(axis=1) - 1
        found: IntArray = routes[np.arange(len(routes)), ends]
        return found

    def _by_port(self, routes: IntArray, lost: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """[ports] losses by last link."""
        found = np.bincount(self._last(routes), lost, self.fabric.n_ports)
        return np.asarray(found, np.float64)


def damaged(fabric: Fabric, links: pl.DataFrame) -> Damaged:
    """Return what arrived damaged, from the counts of a run's ports (`links`)."""
    import polars as pl

    some = links.filter(pl.col("damaged") > 0).select("port", "from_us", "until_us", "damaged")
    by_port = np.bincount(some["port"].to_numpy(), some["damaged"].to_numpy(), fabric.n_ports)
    return Damaged(fabric, np.asarray(by_port, np.float64), some)
