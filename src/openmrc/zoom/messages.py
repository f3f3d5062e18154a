"""The messages that are under way in a span of time, as htsim's `.cm` file; and which of them one
machine holds packet by packet.

Of a message that began before, what is left counts: the rest of its bytes, as sent evenly. A series
is its messages, one after the other in equal times. Each begins when it did in the results, on a
queue pair of its own: what it waited for is done.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from openmrc.fabric.model import Fabric, LongArray
from openmrc.units import US

MESSAGES_MAX = 20_000  # each is a queue pair: 2 KB
PACKETS_MAX = 1_000_000  # a minute, as `mrc run --estimate` has it


class Messages(NamedTuple):
    """Messages under way; times in ps from the beginning of the span."""

    src: LongArray
    dst: LongArray
    bytes: LongArray
    start_ps: LongArray
    took_ps: LongArray  # from then until the last byte was placed, in the results

    def take(self, chosen: LongArray) -> Messages:
        """Some of them."""
        return Messages(*(column[chosen] for column in self))


def under_way(flows: pl.DataFrame, end_us: float, from_ps: int, until_ps: int) -> Messages:
    """Return the messages of `flows` that are under way between two times of the results."""
    flows = flows.filter(pl.col("start_us").is_not_null() & (pl.col("bytes") > 0))
    count = np.maximum(flows["messages"].to_numpy(), 1)
    start = flows["start_us"].to_numpy() * US
    placed = flows["delivered_us"].fill_null(flows["done_us"]).fill_null(end_us).to_numpy() * US
    each = np.maximum(placed - start, 1) / count  # of one message
    first = np.clip(np.floor((from_ps - start) / each), 0, count).astype(np.int64)
    last = np.clip(np.ceil((until_ps - start) / each), first, count).astype(np.int64)
    row = np.repeat(np.arange(len(count)), last - first)
    number = np.arange(len(row)) - np.repeat(np.cumsum(last - first) - (last - first), last - first)
    begins = start[row] + (first[row] + number) * each[row]
    left = np.clip((begins + each[row] - from_ps) / each[row], 0, 1)
    size = np.ceil(flows["bytes"].to_numpy()[row] / count[row] * left).astype(np.int64)
    start_ps = np.maximum(begins - from_ps, 0).astype(np.int64)
    took_ps = (begins + each[row] - from_ps - start_ps).astype(np.int64)
    src, dst = (flows[end].to_numpy()[row].astype(np.int64) for end in ("src", "dst"))
    return Messages(src, dst, size, start_ps, took_ps).take(np.flatnonzero(size > 0))


def reduced(found: Messages, fabric: Fabric, pmtu: int) -> Messages:
    """Return those that one machine holds: of the T0 with the message that takes longest, and of
    the T0s that have most to do with it, as many as there is room for.
    """
    packets = -(-found.bytes // pmtu)
    if len(packets) <= MESSAGES_MAX and packets.sum() <= PACKETS_MAX:
        return found
    t0 = fabric.port_peer_switch[np.arange(fabric.n_nics) * fabric.n_planes]
    ends = np.stack([t0[found.src], t0[found.dst]])
    slowest = ends[0, np.argmax(found.took_ps)]
    with_it = (ends == slowest).any(axis=0)
    common = np.bincount(ends[:, with_it].ravel(), np.tile(found.bytes[with_it], 2))
    common = np.append(common, np.zeros(max(len(fabric.sw_tier) - len(common), 0)))
    rank = np.empty(len(common), np.int64)
    rank[np.argsort(-common, kind="stable")] = np.arange(len(common))
    order = np.lexsort((found.start_ps, rank[ends].max(axis=0)))
    fits = np.cumsum(packets[order]) <= PACKETS_MAX
    return found.take(np.sort(order[: max(min(int(fits.sum()), MESSAGES_MAX), 1)]))


def as_cm(found: Messages, n_nics: int) -> str:
    """Return the messages as the text of a `.cm` file."""
    lines = [f"Nodes {n_nics}", f"Connections {len(found.src)}"]
    for number, (src, dst, size, start_ps, _) in enumerate(zip(*found, strict=True), 1):
        lines.append(f"{src}->{dst} id {number} start {start_ps} size {size}")
    return "\n".join(lines) + "\n"
