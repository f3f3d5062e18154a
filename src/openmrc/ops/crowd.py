"""How crowded it was when and where a path lost packets: the part of the packets that was trimmed.

Behind a queue that trims, headers, answers and probes are late or dropped, and count as lost. Such
a queue fills and empties within a run, and most often it is that of one port. So the losses of a
path are judged by the link on it with the largest part of trimmed packets, in their bin and the one
before: a loss is noticed up to a timeout later than a trim.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from openmrc.fabric.model import IntArray

if TYPE_CHECKING:
    import polars as pl

UNEVEN = 4.0  # times the mean of a run: what a place behind full queues may lose by chance ...
UNEVEN_DROPS = 16.0  # ... where these drop, and nothing shows which are full


def trimmed(paths: pl.DataFrame, routes: IntArray, links: pl.DataFrame) -> npt.NDArray[np.float64]:
    """Return for each row of `paths`, which cross the directed ports `routes` [rows, hops], the
    part of the packets that was trimmed around its losses.
    """
    most = np.zeros(len(paths))
    if not len(paths) or not len(links):
        return most
    width_us = float((links["until_us"] - links["from_us"]).max())  # type: ignore[arg-type]
    bins, ports = _bins(links, width_us), links["port"].to_numpy()
    shape = (int(max(bins.max(), _bins(paths, width_us).max())) + 2, int(ports.max()) + 2)
    packets, trims = np.zeros((2, *shape))
    for total, name in ((packets, "packets"), (trims, "trimmed")):
        np.add.at(total, (bins, ports), links[name].to_numpy())
        total[1:] += total[:-1].copy()  # with those of the bin before
    share = np.minimum(trims / np.maximum(packets, 1), 1)
    mine = _bins(paths, width_us)
    for column in routes.T:  # -1, after the last: nothing was sent across the last port here
        np.maximum(most, share[mine, np.minimum(column, shape[1] - 1)], out=most)
    return most


def behind(links: pl.DataFrame) -> float:
    """Return how many packets of a run were behind full queues: those behind one that trims a part
    count with the square of that part.
    """
    packets, trims = (links[name].to_numpy() for name in ("packets", "trimmed"))
    return float(packets @ np.minimum(trims / np.maximum(packets, 1), 1) ** 2)


def lost_part(lost: int, behind: float, uneven: float, most: float) -> float:
    """Return the part of the packets behind full queues that may count as lost, `most` or less: no
    more than `uneven` times the mean of the run.
    """
    return min(most, uneven * (lost + 2 * math.sqrt(lost) + 3) / max(behind, 1.0))


def _bins(rows: pl.DataFrame, width_us: float) -> npt.NDArray[np.int64]:
    return np.rint(rows["from_us"].to_numpy() / width_us).astype(np.int64)
