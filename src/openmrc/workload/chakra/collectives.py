"""Collectives of a Chakra trace: which nodes form one collective, and its messages.

The k-th collective of a process group on one rank is the k-th of that group on every other; the
nodes are in the order of their files. A group's ranks are those of the file of groups, else those
whose traces name it; collectives without a group are among all ranks.

`comm_size` is what one rank contributes: an all-gather ends with that many bytes of each. Sizes are
rounded up to one byte for each part that the algorithm needs. A barrier is the smallest all-reduce.
A rank sends nothing of a collective before its node begins. The node is complete when the rank has
received all its data, and everything that it sends is acknowledged.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from openmrc.errors import InputError
from openmrc.reading import read_bytes
from openmrc.traffic.traffic import LongArray, Traffic, check_listed, unroll
from openmrc.workload import collectives
from openmrc.workload.operations import NO_MESSAGES, Messages, Pairs

REFUSED = ("REDUCE", "GATHER", "SCATTER")
Place = Callable[[int], str]


class Collective(NamedTuple):
    """One rank's part in a collective: the operations with which it begins and ends."""

    rank: int
    begin: int
    end: int
    what: str
    size: int
    group: str


@dataclass(frozen=True)
class Expansion:
    """How collectives become messages: see `collectives`."""

    all_reduce: str = "ring"  # or "halving-doubling"
    broadcast: str = "chain"  # or "tree"
    channels: int = 1
    chunks: int = 1


EXPANSION = Expansion()


class _Parts(NamedTuple):
    """The messages of one collective among ranks 0 to n - 1."""

    src: LongArray
    dst: LongArray
    channel: LongArray
    size: LongArray
    recv: Pairs
    sent: Pairs


def read_groups(path: str | Path, n_ranks: int) -> dict[str, list[int]]:
    """Return the ranks of each process group of a JSON file: `{"0": [0, 1, 2, 3]}`."""
    data = read_bytes(path, "a JSON file of process groups")
    try:
        groups = json.loads(data)
    except (ValueError, RecursionError):
        raise InputError(f'{path}: not JSON; accepted: {{"NAME": [RANK, ...], ...}}') from None
    if not isinstance(groups, dict):
        raise InputError(f'{path}: no table; accepted: {{"NAME": [RANK, ...], ...}}')
    for name, ranks in groups.items():
        if not isinstance(ranks, list) or not all(_is_rank(rank, n_ranks) for rank in ranks):
            raise InputError(f"{path}: group {name!r}: ranks 0 to {n_ranks - 1} are accepted")
        if len(set(ranks)) != len(ranks) or not ranks:
            raise InputError(f"{path}: group {name!r}: one or more different ranks are accepted")
    return groups


def _is_rank(rank: Any, n_ranks: int) -> bool:
    return isinstance(rank, int) and not isinstance(rank, bool) and 0 <= rank < n_ranks


def expand(
    collectives: Sequence[Collective],
    groups: dict[str, list[int]],
    lines: dict[str, list[int]],
    n_ranks: int,
    expansion: Expansion,
    place: Place,
) -> Messages:
    """Return the messages of all collectives; `InputError` names the node that does not fit.

    The ranks of a process group are those of `groups`, those of a line of the grid of ranks of
    `lines`.
    """
    of_rank: dict[str, dict[int, list[Collective]]] = defaultdict(lambda: defaultdict(list))
    for part in collectives:
        of_rank[part.group][part.rank].append(part)
    made: list[Messages] = []
    known: dict[tuple[str, int, int], _Parts] = {}
    base = 0
    for group, mine in of_rank.items():
        ranks = _members(group, mine, lines if group in lines else groups, n_ranks, place)
        for parts in zip(*(mine[rank] for rank in ranks), strict=True):
            what, size = _agreed(parts, place)
            key = (what, size, len(ranks))
            if key not in known:
                known[key] = _parts(what, size, len(ranks), expansion, place(parts[0].begin))
            made.append(_placed(known[key], parts, base))
            base += len(known[key].src)
            check_listed(base)
    if not made:
        return NO_MESSAGES
    columns: list[Any] = [
        np.concatenate([getattr(m, key) for m in made]) for key in Messages._fields[:4]
    ]
    pairs: list[Any] = [
        tuple(np.concatenate([getattr(m, key)[end] for m in made]) for end in (0, 1))
        for key in Messages._fields[4:]
    ]
    return Messages(*columns, *pairs)


def _members(
    group: str,
    mine: dict[int, list[Collective]],
    groups: dict[str, list[int]],
    n_ranks: int,
    place: Place,
) -> list[int]:
    """Return the ranks of a group, each of which has as many collectives in it."""
    if groups and group and group not in groups:
        first = min(mine)
        raise InputError(
            f"{place(mine[first][0].begin)}: attribute pg_name: no group {group!r} in the file of"
            " workload.groups; add it"
        )
    ranks = groups.get(group) or (sorted(mine) if group else list(range(n_ranks)))
    counts = {rank: len(mine[rank]) if rank in mine else 0 for rank in {*ranks, *mine}}
    for rank in mine:
        if rank not in ranks:
            raise InputError(
                f"{place(mine[rank][0].begin)}: attribute pg_name: rank {rank} is not in group"
                f" {group!r}"
            )
    most = max(counts, key=lambda rank: (counts[rank], -rank))
    least = min(counts, key=lambda rank: (counts[rank], rank))
    if counts[most] != counts[least]:
        lone = mine[most][counts[least]]
        raise InputError(
            f"{place(lone.begin)}: rank {least} has {counts[least]} collectives in group"
            f" {group!r}, and this one is rank {most}'s number {counts[least] + 1}"
        )
    return ranks


def _agreed(parts: Sequence[Collective], place: Place) -> tuple[str, int]:
    """Return the kind and size of a collective on which all ranks agree."""
    first = parts[0]
    for part in parts:
        if (part.what, part.size) != (first.what, first.size):
            raise InputError(
                f"{place(part.begin)}: {part.what} of {part.size} B, but rank {first.rank} does"
                f" {first.what} of {first.size} B with it at {place(first.begin)}"
            )
    return first.what, first.size


def _parts(what: str, size: int, n: int, expansion: Expansion, place: str) -> _Parts:
    """Return the messages of a collective among n ranks."""
    if what in REFUSED:
        raise InputError(f"{place}: attribute comm_type: {what} is not supported")
    if n == 1:
        return _Parts(*NO_MESSAGES[:6])
    try:
        traffic = unroll(_collective(what, size, n, expansion))
    except InputError as error:
        raise error.at(place) from None
    entry = np.arange(traffic.n_msgs)
    return _Parts(
        src=traffic.msg_src.astype(np.int64),
        dst=traffic.msg_dst.astype(np.int64),
        channel=traffic.msg_qp.astype(np.int64) // (traffic.n_qps // expansion.channels),
        size=traffic.msg_bytes,
        recv=(np.repeat(entry, np.diff(traffic.recv_first)), traffic.recv_next.astype(np.int64)),
        sent=(np.repeat(entry, np.diff(traffic.sent_first)), traffic.sent_next.astype(np.int64)),
    )


def _collective(what: str, size: int, n: int, how: Expansion) -> Traffic:
    channels, chunks = how.channels, how.chunks
    if what == "ALL_TO_ALL":
        return collectives.all_to_all(n, max(size, n * channels), channels)
    if what == "BROADCAST":
        size = max(size, channels * chunks)
        return collectives.broadcast(n, size, channels, chunks=chunks, shape=how.broadcast)
    least = n * channels * chunks
    if what == "ALL_GATHER":
        return collectives.all_gather(n, max(size * n, least), channels, chunks=chunks)
    if what in ("REDUCE_SCATTER", "REDUCE_SCATTER_BLOCK"):
        return collectives.reduce_scatter(n, max(size, least), channels, chunks=chunks)
    reduce = (
        collectives.ring_all_reduce
        if how.all_reduce == "ring"
        else collectives.halving_doubling_all_reduce
    )
    return reduce(n, max(size, least), channels, chunks=chunks)


def _placed(parts: _Parts, members: Sequence[Collective], base: int) -> Messages:
    """Return a collective's messages among these ranks, the first with number `base`."""
    ranks, begin, end = (
        np.array([getattr(member, key) for member in members], np.int64)
        for key in ("rank", "begin", "end")
    )
    number = base + np.arange(len(parts.src))
    return Messages(
        src=ranks[parts.src],
        dst=ranks[parts.dst],
        channel=parts.channel,
        size=parts.size,
        recv=(parts.recv[0] + base, parts.recv[1] + base),
        sent=(parts.sent[0] + base, parts.sent[1] + base),
        gates=(begin[parts.src], number),
        arrivals=(number, end[parts.dst]),
        completions=(number, end[parts.src]),
    )
