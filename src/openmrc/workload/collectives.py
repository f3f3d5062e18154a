"""The collectives: what n ranks send each other, cut into blocks, channels and chunks.

The data of a rank is cut into blocks as the algorithm needs them, and each block into `channels *
chunks` parts, one for each *lane*. In each lane the algorithm runs independently: a channel has
queue pairs of its own, a chunk proceeds on those of its channel without waiting for other chunks.
Lane l of block b is part `b * lanes + l`, and lane `channel * chunks + chunk` is that chunk. Parts
differ by one byte at most, the larger ones first.

Every message has an immediate, which tells the receiver that it has arrived. A message is posted
`compute_ps` after the arrival of what it needs: one value, or one per rank.

Rank r is NIC `ranks[r]`; without `ranks` all NICs in order. Sizes in bytes, times in picoseconds.
Wrong numbers raise `InputError` with their key.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from openmrc.errors import InputError
from openmrc.traffic.traffic import (
    NO_EDGES,
    QPS_MAX,
    Edges,
    LongArray,
    Traffic,
    check_listed,
    make_traffic,
)
from openmrc.workload.patterns import parts


class _Lanes(NamedTuple):
    """A collective's ranks and lanes, checked."""

    n_nics: int
    nics: LongArray  # [ranks]
    channels: int
    chunks: int
    compute_ps: LongArray  # [ranks]

    @property
    def n(self) -> int:
        """The number of ranks."""
        return len(self.nics)

    @property
    def n_lanes(self) -> int:
        """The number of lanes."""
        return self.channels * self.chunks


def _lanes(
    n_nics: int,
    ranks: npt.ArrayLike | None,
    channels: int,
    chunks: int,
    compute_ps: npt.ArrayLike,
) -> _Lanes:
    """Check what all collectives have in common."""
    nics = np.arange(n_nics) if ranks is None else np.asarray(ranks, np.int64)
    if len(nics) < 2 or len(np.unique(nics)) != len(nics) or nics.min() < 0 or nics.max() >= n_nics:
        raise InputError(f"workload.ranks: two or more different NICs below {n_nics} are needed")
    for key, number in (("channels", channels), ("chunks", chunks)):
        if number < 1:
            raise InputError(f"workload.{key}: {number}; 1 or more is accepted")
    compute = np.broadcast_to(np.asarray(compute_ps, np.int64), len(nics))
    if (compute < 0).any():
        raise InputError(f"workload.compute: {compute.min()} ps; 0 or more is accepted")
    return _Lanes(n_nics, nics, channels, chunks, compute)


def _collective(algorithm: Callable[..., Traffic]) -> Callable[..., Traffic]:
    """Give an algorithm on lanes the arguments that all collectives take."""

    @wraps(algorithm)
    def collective(
        n_nics: int,
        size: int,
        channels: int = 1,
        ranks: npt.ArrayLike | None = None,
        chunks: int = 1,
        compute_ps: npt.ArrayLike = 0,
        **own: Any,
    ) -> Traffic:
        return algorithm(_lanes(n_nics, ranks, channels, chunks, compute_ps), size, **own)

    return collective


@_collective
def ring_all_reduce(lanes: _Lanes, size: int) -> Traffic:
    """Return a ring all-reduce of `size` bytes per rank: 2(n - 1) steps, each waiting for the last.

    In step s rank r sends block (r - s) mod n to rank r + 1: n - 1 steps in which the receiver adds
    it to its own, n - 1 in which it keeps it. A series per lane and rank: entry `lane * n + rank`.
    """
    steps = 2 * (lanes.n - 1)
    return _ring("ring-all-reduce", lanes, size, lanes.n, np.arange(lanes.n), steps)


@_collective
def reduce_scatter(lanes: _Lanes, size: int) -> Traffic:
    """Return a reduce-scatter of `size` bytes per rank round a ring: rank r ends with the sum of
    block r.

    In step s of n - 1 rank r sends block (r - 1 - s) mod n to rank r + 1, which adds it to its own.
    """
    first = (np.arange(lanes.n) - 1) % lanes.n
    return _ring("reduce-scatter", lanes, size, lanes.n, first, lanes.n - 1)


@_collective
def all_gather(lanes: _Lanes, size: int) -> Traffic:
    """Return an all-gather round a ring: rank r contributes block r of `size` bytes, all end with
    all.

    In step s of n - 1 rank r sends block (r - s) mod n to rank r + 1.
    """
    return _ring("all-gather", lanes, size, lanes.n, np.arange(lanes.n), lanes.n - 1)


@_collective
def send_recv(lanes: _Lanes, size: int, steps: int = 1) -> Traffic:
    """Return `steps` exchanges between neighbours: each time rank r sends `size` bytes to r + 1.

    It sends again when the last exchange has arrived from rank r - 1.
    """
    if steps < 1:
        raise InputError(f"workload.steps: {steps}; 1 or more is accepted")
    return _ring("send-recv", lanes, size, 1, np.zeros(lanes.n, np.int64), steps)


def _ring(
    kind: str, lanes: _Lanes, size: int, n_blocks: int, first: LongArray, steps: int
) -> Traffic:
    """Each rank sends to the next: block `first[rank]`, then in each step one less, modulo
    `n_blocks`, when the message of the step before has arrived from the previous rank.
    """
    n, count = lanes.n, lanes.n_lanes
    _check_size(size, n_blocks * count)
    lane, rank = np.divmod(np.arange(count * n), n)
    entry = np.arange(count * n)
    previous = entry - rank + (rank - 1) % n
    more = size % (n_blocks * count)  # that many parts are a byte longer
    longer = np.maximum(-(-(more - lane) // count), 0)
    return make_traffic(
        kind,
        lanes.n_nics,
        qp_src=np.tile(lanes.nics, lanes.channels),
        qp_dst=np.tile(np.roll(lanes.nics, -1), lanes.channels),
        msg_qp=lane // lanes.chunks * n + rank,
        msg_bytes=size // (n_blocks * count),
        recv=(previous, entry) if steps > 1 else NO_EDGES,
        deps=0,
        imm=True,
        compute_ps=lanes.compute_ps[rank],
        count=steps,
        blocks=(first[rank], n_blocks, longer),
    )


@_collective
def broadcast(lanes: _Lanes, size: int, shape: str = "chain") -> Traffic:
    """Return a broadcast of `size` bytes from rank 0 along a `chain` or a binomial `tree`.

    In a chain rank r receives from r - 1; in a tree from r without its highest bit. Each chunk is
    passed on when it has arrived: one series of `chunks` messages per channel and receiving rank,
    entry `channel * (n - 1) + rank - 1`.
    """
    n, channels, chunks = lanes.n, lanes.channels, lanes.chunks
    _check_size(size, lanes.n_lanes)
    if shape not in ("chain", "tree"):
        raise InputError(f"workload.shape: {shape!r}; accepted: chain, tree")
    child = np.arange(1, n)
    parent = child - 1
    if shape == "tree":
        parent = child - (1 << (np.ceil(np.log2(child + 1)).astype(np.int64) - 1))
    edges = n - 1
    channel, edge = np.divmod(np.arange(channels * edges), edges)
    above = channel * edges + parent[edge] - 1  # the series by which the parent receives
    waits = parent[edge] > 0
    in_channel = parts(size, channels)[channel]
    return make_traffic(
        "broadcast",
        lanes.n_nics,
        qp_src=lanes.nics[parent[edge]],
        qp_dst=lanes.nics[child[edge]],
        msg_qp=np.arange(channels * edges),
        msg_bytes=in_channel // chunks,
        recv=(above[waits], np.flatnonzero(waits)),
        deps=np.where(waits, 1, 1 - chunks),  # rank 0 has all of them from the start
        imm=True,
        compute_ps=lanes.compute_ps[parent[edge]],
        count=chunks,
        blocks=(chunks - 1, chunks, in_channel % chunks),
    )


@_collective
def halving_doubling_all_reduce(lanes: _Lanes, size: int) -> Traffic:
    """Return an all-reduce by recursive halving and doubling; the ranks must be a power of two.

    With n = 2^m, in step s < m rank r exchanges with rank r xor n / 2^(s+1): it sends the half of
    the blocks it still works on that the other will keep, adds what it gets to its own half, and
    ends with the sum of block r. In steps m to 2m - 1 the same ranks exchange what they have in the
    opposite order, so it doubles. A message waits for all that its sender received in the steps
    before. Entry `(lane * 2m + step) * n + rank`.
    """
    n, count = lanes.n, lanes.n_lanes
    m = n.bit_length() - 1
    if n != 1 << m:
        raise InputError(
            f"workload.ranks: {n} is no power of two, which halving and doubling needs;"
            f" {1 << m} and {2 << m} are"
        )
    _check_size(size, n * count)
    check_listed(2 * m * n * count)
    lane, step, rank = np.unravel_index(np.arange(count * 2 * m * n), (count, 2 * m, n))
    bit = np.where(step < m, m - 1 - step, step - m)  # the bit of the rank's number that differs
    distance = 1 << bit
    other = rank ^ distance
    # Halving, the other keeps the blocks that share its upper bits; doubling, those are ours.
    first = np.where(step < m, other, rank) & -distance
    below = np.zeros((n + 1, count), np.int64)  # bytes of the blocks below, by lane
    np.cumsum(parts(size, n * count).reshape(n, count), axis=0, out=below[1:])
    channel = lane // lanes.chunks
    return make_traffic(
        "halving-doubling-all-reduce",
        lanes.n_nics,
        # a pair of ranks meets twice, on the same QP
        qp_src=np.tile(np.repeat(lanes.nics, m), lanes.channels),
        qp_dst=np.tile(
            lanes.nics[np.arange(n)[:, None] ^ (1 << np.arange(m))].ravel(), lanes.channels
        ),
        msg_qp=(channel * n + rank) * m + bit,
        msg_bytes=below[first + distance, lane] - below[first, lane],
        recv=_all_before(lane, step, other, 2 * m, n),
        imm=True,
        compute_ps=lanes.compute_ps[rank],
    )


def _all_before(lane: LongArray, step: LongArray, receiver: LongArray, steps: int, n: int) -> Edges:
    """Each message, received in some step, releases all that its receiver sends in later steps."""
    later = steps - 1 - step
    giving = np.repeat(np.arange(len(step)), later)
    ahead = np.arange(len(giving)) - np.repeat(np.cumsum(later) - later, later) + 1
    released = ((lane * steps + step)[giving] + ahead) * n + receiver[giving]
    return giving, released


def all_to_all(
    n_nics: int,
    size: int,
    channels: int = 1,
    ranks: npt.ArrayLike | None = None,
    at_once: int | None = None,
) -> Traffic:
    """Return an all-to-all: each rank has `size` bytes, one block of them for every rank.

    Rank r sends to r + 1, r + 2 ... r + n - 1, its own block stays. All transfers begin at once,
    or `at_once` of them, and one more whenever the first of those is acknowledged. Each pair has
    queue pairs of its own. Entry `(channel * (n - 1) + distance - 1) * n + rank`.
    """
    lanes = _lanes(n_nics, ranks, channels, 1, 0)
    n = lanes.n
    _check_size(size, n * channels)
    if n * (n - 1) * channels > QPS_MAX:
        raise InputError(
            f"workload.ranks: {n} ranks need {n * (n - 1) * channels} queue pairs; at most"
            f" {QPS_MAX} are accepted, take fewer ranks or channels"
        )
    if at_once is not None and at_once < 1:
        raise InputError(f"workload.at_once: {at_once}; 1 or more is accepted")
    channel, distance, rank = np.unravel_index(
        np.arange(channels * (n - 1) * n), (channels, n - 1, n)
    )
    to = (rank + distance + 1) % n
    message = np.arange(len(rank))
    waits = distance >= (n if at_once is None else at_once)
    ahead = message - n * (at_once or 0)
    return make_traffic(
        "all-to-all",
        n_nics,
        qp_src=lanes.nics[rank],
        qp_dst=lanes.nics[to],
        msg_qp=message,
        msg_bytes=parts(size, n * channels).reshape(n, channels)[to, channel],
        sent=(ahead[waits], message[waits]),
        imm=True,
    )


def _check_size(size: int, least: int) -> None:
    if size < least:
        raise InputError(
            f"workload.size: {size} B cannot be cut into {least} parts; {least} B or more can"
        )
