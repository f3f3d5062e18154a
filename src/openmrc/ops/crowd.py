"""How crowded it was when and where a path lost packets: the part of the packets that was trimmed.

Behind a queue that trims, headers, answers and probes are late or dropped, and count as lost. Such
a queue fills and empties within a run, and most often it is that of one port. So the losses of a
path are judged by the link on it with the largest part of trimmed packets, in their bin and the one
before: a loss is noticed up to a timeout later than a trim.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from openmrc.fabric.model import IntArray
from openmrc.ops.columns import bin_us

if TYPE_CHECKING:
    import polars as pl

UNEVEN = 4.0  # times the mean of a run: what a place behind full queues may lose by chance


def trimmed(paths: pl.DataFrame, routes: IntArray, links: pl.DataFrame) -> npt.NDArray[np.float64]:
    """Return for each row of `paths`, which cross the directed ports `routes` [rows, hops], the
    part of the packets that was trimmed around its losses.
    """
    most = np.zeros(len(paths))
    for share in _shares(paths, routes, links, "trimmed"):
        np.maximum(most, share, out=most)
    return most


def dropped(paths: pl.DataFrame, routes: IntArray, links: pl.DataFrame) -> npt.NDArray[np.float64]:
    """Return for each row of `paths`, which cross the directed ports `routes` [rows, hops], the
    part of the packets that full queues on it dropped around its losses, as switches counted them.
    """
    total = np.zeros(len(paths))
    for share in _shares(paths, routes, links, "dropped"):
        total += share
    return np.minimum(total, 1)


def undropped(
    paths: pl.DataFrame, routes: IntArray, links: pl.DataFrame, judged_us: float
) -> npt.NDArray[np.float64]:
    """Return for each row of `paths`, which cross the directed ports `routes` [rows, hops], how
    many of its losses are left if these are all that full queues dropped: each port's drops in the
    bin of a row and in the `judged_us` before, by which a loss may be noticed late.
    """
    left = paths["lost"].to_numpy().astype(np.float64)
    if not len(paths) or not len(links):
        return left
    lost, mine, [drops] = left.copy(), *_by_bin(paths, links, ("dropped",))
    before = np.concatenate([np.zeros((1, drops.shape[1])), np.cumsum(drops, axis=0)])
    first = np.maximum(np.arange(len(drops)) - math.ceil(judged_us / bin_us(links)), 0)
    drops = before[1:] - before[first]
    for column in routes.T:
        port = np.where(column < 0, drops.shape[1] - 1, np.minimum(column, drops.shape[1] - 1))
        here = mine * drops.shape[1] + port
        across = np.bincount(here, lost, drops.size)
        left *= 1 - np.minimum(drops[mine, port] / np.maximum(across[here], 1), 1)
    return left


def _shares(
    paths: pl.DataFrame, routes: IntArray, links: pl.DataFrame, what: str
) -> Iterator[npt.NDArray[np.float64]]:
    """For each hop, [rows] the part of the packets across it that this count has in the bin of the
    row and the one before.
    """
    if not len(paths) or not len(links):
        return
    mine, (packets, counted) = _by_bin(paths, links, ("packets", what))
    for total in (packets, counted):
        total[1:] += total[:-1].copy()  # with those of the bin before
    share = np.minimum(counted / np.maximum(packets, 1), 1)
    for column in routes.T:
        yield share[mine, np.minimum(column, share.shape[1] - 1)]


def _by_bin(
    paths: pl.DataFrame, links: pl.DataFrame, names: Sequence[str]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """The bin of each row, and counts of links as [names, bins, ports]; the last port, which is
    also that of index -1, is none, and nothing was sent across it.
    """
    width_us = bin_us(links)
    bins, ports, mine = _bins(links, width_us), links["port"].to_numpy(), _bins(paths, width_us)
    shape = (len(names), int(max(bins.max(), mine.max())) + 2, int(ports.max()) + 2)
    counts = np.zeros(shape)
    for total, name in zip(counts, names, strict=True):
        np.add.at(total, (bins, ports), links[name].to_numpy())
    return mine, counts


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
