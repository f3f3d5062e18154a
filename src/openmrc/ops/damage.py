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
from openmrc.ops.columns import number

if TYPE_CHECKING:
    import polars as pl


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

    def span_us(self, routes: IntArray, rows: pl.DataFrame) -> tuple[float, float] | None:
        """Return when the bins begin and end, us, from the first to the last in which about as many
        arrived where these routes end as were lost on their paths, `rows`; None if there is none.
        """
        import polars as pl

        ends = pl.col("port").is_in(np.unique(self._last(routes)).tolist())
        by_bin = (
            self.links.filter(ends).group_by("from_us", "until_us").agg(pl.col("damaged").sum())
        )
        lost = rows.group_by("from_us").agg(pl.min_horizontal("lost", "sent").sum())
        both = by_bin.join(lost, on="from_us").filter(pl.col("damaged") >= LEAST * pl.col("lost"))
        if not len(both):
            return None
        return number(both["from_us"].min()), number(both["until_us"].max())

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
