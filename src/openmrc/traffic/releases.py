"""The order of a workload's entries, given by which entry waits for which.

Releases are pairs of entries, or compressed (first, next) rows of them. An entry is a message, a
series of messages, or a computation; see `traffic`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int32]
LongArray = npt.NDArray[np.int64]
Places = npt.NDArray[np.intp]

FEW = 16  # messages of a wave that are released one by one


def waves(rows: Sequence[tuple[IntArray, IntArray]], deps: IntArray) -> Iterator[Places]:
    """Yield the messages in waves, in the order of their release: first those that need none.

    `rows` are compressed (first, next) tables. A message is in the wave that brings its `deps`-th
    release; messages that are never released are in none.
    """
    waiting = deps.astype(np.int64)
    wave = np.flatnonzero(waiting <= 0)
    while wave.size:
        yield wave
        if len(wave) < FEW:
            wave = _next_of_few(wave, rows, waiting)
            continue
        released = np.concatenate([released_by(wave, first, nxt)[1] for first, nxt in rows])
        targets, arrivals = np.unique(released, return_counts=True)
        before = waiting[targets]
        waiting[targets] = before - arrivals
        wave = targets[(before > 0) & (before <= arrivals)].astype(np.intp)


def _next_of_few(
    wave: Places, rows: Sequence[tuple[IntArray, IntArray]], waiting: LongArray
) -> Places:
    """Return the wave after this one, which is too small for arrays to pay off: a long chain is a
    hundred thousand such waves.
    """
    found = []
    for message in wave.tolist():
        for first, nxt in rows:
            for released in nxt[first[message] : first[message + 1]].tolist():
                waiting[released] -= 1
                if waiting[released] == 0:
                    found.append(released)
    return np.array(sorted(found), np.intp)


def released_by(messages: Places, first: IntArray, nxt: IntArray) -> tuple[Places, IntArray]:
    """Return one pair per release that these messages give.

    The pair is (position of the giving message in `messages`, released message).
    """
    counts = (first[messages + 1] - first[messages]).astype(np.int64)
    begin = np.repeat(first[messages] - (np.cumsum(counts) - counts), counts)
    position = np.repeat(np.arange(len(messages)), counts)
    return position, nxt[begin + np.arange(len(begin))]


def mixed_waves(
    giving: npt.NDArray[np.integer],
    released: npt.NDArray[np.integer],
    deps: npt.NDArray[np.integer],
    counts: npt.NDArray[np.integer],
) -> Iterator[Places]:
    """Yield the entries in waves, in the order of their release, if series and others release each
    other.

    `counts` is how often each entry happens. Series that release each other, such as those round a
    ring, are in one wave: that in which the gates of all of them are open.
    """
    many = counts > 1
    inner = many[giving] & many[released]
    unit = _units(giving[inner], released[inner], len(counts))
    n_units = int(unit.max()) + 1
    by, to = unit[giving[~inner]], unit[released[~inner]]
    weight = np.where(many[released[~inner]], 1, counts[giving[~inner]])
    waiting = np.zeros(n_units, np.int64)
    np.add.at(waiting, to[many[released[~inner]]], 1)
    waiting[unit[~many]] = deps[~many]
    order = np.argsort(by, kind="stable")
    to, weight = to[order], weight[order]
    first = np.searchsorted(by[order], np.arange(n_units + 1))
    members = np.argsort(unit, kind="stable")
    member0 = np.searchsorted(unit[members], np.arange(n_units + 1))
    wave = np.flatnonzero(waiting <= 0)
    while wave.size:
        yield members[_ranges(member0, wave)]
        edges = _ranges(first, wave)
        targets, which = np.unique(to[edges], return_inverse=True)
        arrivals = np.bincount(which.reshape(-1), weight[edges], len(targets)).astype(np.int64)
        before = waiting[targets]
        waiting[targets] = before - arrivals
        wave = targets[(before > 0) & (before <= arrivals)]


def _ranges(first: npt.NDArray[np.integer], which: Places) -> Places:
    """The positions `first[w]` to `first[w + 1]` of each of `which`, concatenated."""
    counts = first[which + 1] - first[which]
    begin = np.repeat(first[which] - (np.cumsum(counts) - counts), counts)
    places: Places = begin + np.arange(len(begin))
    return places


def _units(giving: npt.NDArray[np.integer], released: npt.NDArray[np.integer], n: int) -> LongArray:
    """Number the entries so that those that release each other, each by one at most, share a
    number.

    From every entry one hop leads back to the entry that releases it. Hops of 1, 2, 4 ... at once
    lead to the root, or onto the cycle, that all of a unit share; its least number stands for it.
    """
    hop = np.arange(n)
    hop[released] = giving
    least = np.arange(n)
    for _ in range(n.bit_length()):
        least = np.minimum(least, least[hop])
        hop = hop[hop]
    _, unit = np.unique(least[hop], return_inverse=True)
    return unit.reshape(-1).astype(np.int64)
