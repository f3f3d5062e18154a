"""Collectives, as generators over sends and receives: each yields the transfers that it waits for.

Ranks are those of the group. What is reduced where, and in which order, depends on sizes and ranks
alone, so a result never depends on timing; and each element is reduced in one place and copied from
there, or in rank order everywhere, so all ranks have the same bits.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from openmrc.errors import InputError
from openmrc.torch.memory import Array, Bytes
from openmrc.torch.operation import Operation, Strand, Transfer
from openmrc.torch.pair import EAGER, Key
from openmrc.torch.progress import Progress

Combine = Callable[[Array, Array], None]

STRAND_BYTES, STRANDS_MAX = 4 << 20, 4  # a large tensor is split into parallel parts
STEPS_PER_STRAND = 1 << 16
CONFIRMING = (1 << 32) - 1  # a step that no algorithm has
VARIABLE = "OPENMRC_ALL_REDUCE"
DIRECT_RANKS_MAX = 8
# Every rank sends all to all others: between two as much as a ring carries, in half the steps.
DIRECT_BYTES_MAX, DIRECT_BYTES_OF_TWO = 3 << 16, 1 << 20
TREE_BYTES_MAX = 1 << 16


@dataclass(slots=True)
class Context:
    """An operation within its group: `ranks[i]` is the peer that is rank i of the group."""

    progress: Progress
    op: Operation
    ranks: Sequence[int]
    me: int
    group: int
    seq: int
    first_step: int = 0

    @property
    def n(self) -> int:
        """The number of ranks."""
        return len(self.ranks)

    def others(self) -> list[int]:
        """All ranks but this one, starting with the next."""
        n = len(self.ranks)
        return [(self.me + i) % n for i in range(1, n)]

    def send(self, to: int, step: int, data: Array) -> Transfer:
        """Send an array to a rank."""
        key = Key(self.group, 0, self.seq, self.first_step + step)
        return self.progress.matching.send(self.op, self.ranks[to], key, as_bytes(data))

    def receive(self, of: int, step: int, data: Array) -> Transfer:
        """Receive an array from a rank."""
        key = Key(self.group, 0, self.seq, self.first_step + step)
        return self.progress.matching.receive(self.op, self.ranks[of], key, as_bytes(data))

    def room(self, like: Array) -> Array:
        """Scratch memory of the same size."""
        return self.progress.running.scratch(self.op, like.nbytes).view(like.dtype)


def as_bytes(data: Array) -> Bytes:
    """The bytes of an array."""
    return data.view(np.uint8)


def share(n: int, of: int, i: int) -> slice:
    """Part i of n elements, split into `of` parts of nearly the same size."""
    return slice(n * i // of, n * (i + 1) // of)


# --- all-reduce


def all_reduce_strands(
    context: Callable[[int], Context], x: Array, combine: Combine
) -> list[tuple[slice, Strand]]:
    """The strands of an in-place all-reduce, each with its part of the array: the algorithm is
    chosen by size and number of ranks, or by `OPENMRC_ALL_REDUCE`. `context(step)` returns a
    context that counts its steps from there.
    """
    first = context(0)
    name = os.environ.get(VARIABLE) or choose(x.nbytes, len(first.ranks))
    if name not in ALL_REDUCE:
        raise InputError(f"{VARIABLE} = {name!r}: {', '.join(ALL_REDUCE)} are accepted")
    if name != "ring":
        return [(slice(None), ALL_REDUCE[name](first, x, combine))]
    strands = min(max(x.nbytes // STRAND_BYTES, 1), STRANDS_MAX)
    parts = [share(len(x), strands, i) for i in range(strands)]
    return [
        (part, all_reduce_ring(context(i * STEPS_PER_STRAND), x[part], combine))
        for i, part in enumerate(parts)
    ]


def choose(n_bytes: int, n: int) -> str:
    """The fastest all-reduce for `n_bytes` bytes among n ranks."""
    most = DIRECT_BYTES_OF_TWO if n == 2 else DIRECT_BYTES_MAX
    if n <= DIRECT_RANKS_MAX and n_bytes * (n - 1) <= most:
        return "direct"
    if n > DIRECT_RANKS_MAX and n_bytes <= TREE_BYTES_MAX:
        return "tree"
    return "ring"


def all_reduce_direct(c: Context, x: Array, combine: Combine) -> Strand:
    """Every rank sends to every other, and adds in rank order: one network traversal, for small
    sizes.
    """
    if x.nbytes > EAGER:
        yield from reduce_scatter(c, x, [x] * c.n, combine)
        return
    key = Key(c.group, 0, c.seq, c.first_step)
    data, n = as_bytes(x), x.nbytes
    messages, op, ranks, others = c.progress.matching, c.op, c.ranks, c.others()
    parts, waits = [x] * len(ranks), []
    for r in others:
        waits.append(messages.send(op, ranks[r], key, data))
    for r in others:
        room = c.progress.running.scratch(op, n)
        parts[r] = room.view(x.dtype)
        waits.append(messages.receive(op, ranks[r], key, room))
    yield waits
    for part in parts[1:]:
        combine(parts[0], part)
    if c.me:
        x[:] = parts[0]


def all_reduce_ring(c: Context, x: Array, combine: Combine) -> Strand:
    """Reduce-scatter, then all-gather, around a ring: each link carries 2 (n - 1) / n of the
    size.
    """
    right, left = (c.me + 1) % c.n, (c.me - 1) % c.n
    parts = [x[share(len(x), c.n, i)] for i in range(c.n)]
    for step in range(c.n - 1):
        out, into = parts[(c.me - step) % c.n], parts[(c.me - step - 1) % c.n]
        room = c.room(into)
        yield [c.receive(left, step, room), c.send(right, step, out)]
        combine(into, room)
    for step in range(c.n - 1):
        out, into = parts[(c.me + 1 - step) % c.n], parts[(c.me - step) % c.n]
        yield [c.receive(left, c.n + step, into), c.send(right, c.n + step, out)]


def all_reduce_tree(c: Context, x: Array, combine: Combine) -> Strand:
    """Up a binomial tree to rank 0 and back down: 2 log2(n) messages, for many ranks."""
    yield from reduce_tree(c, x, combine, 0)
    yield from broadcast(_behind(c), x, 0)


def all_reduce_halving(c: Context, x: Array, combine: Combine) -> Strand:
    """Recursive halving, then doubling: 2 log2(n) messages whose size halves each time. Ranks
    beyond a power of two send their data to another rank, and receive the result.
    """
    power = 1 << (c.n.bit_length() - 1)
    extra = c.n - power
    if c.me >= power:
        yield [c.send(c.me - power, 0, x)]
        yield [c.receive(c.me - power, 1, x)]
        return
    if c.me < extra:
        room = c.room(x)
        yield [c.receive(c.me + power, 0, room)]
        combine(x, room)
    low, high, step, way = 0, len(x), 2, []
    half = power // 2
    while half:
        other, middle = c.me ^ half, (low + high) // 2
        mine, its = (low, middle), (middle, high)
        if c.me & half:
            mine, its = its, mine
        room = c.room(x[slice(*mine)])
        yield [c.receive(other, step, room), c.send(other, step, x[slice(*its)])]
        _in_order(combine, x[slice(*mine)], room, c.me < other)
        way.append((other, mine, its))
        low, high = mine
        half, step = half // 2, step + 1
    for other, mine, its in reversed(way):
        yield [
            c.receive(other, step, x[slice(*its)]),
            c.send(other, step, x[slice(*mine)]),
        ]
        step += 1
    if c.me < extra:
        yield [c.send(c.me + power, 1, x)]


def _in_order(combine: Combine, x: Array, other: Array, first: bool) -> None:
    """`x` first, or second: NaN keeps the same bits at both ends."""
    if first:
        combine(x, other)
    else:
        combine(other, x)
        x[:] = other


ALL_REDUCE: dict[str, Callable[[Context, Array, Combine], Strand]] = {
    "direct": all_reduce_direct,
    "ring": all_reduce_ring,
    "tree": all_reduce_tree,
    "halving": all_reduce_halving,
}


# --- one to all, all to one


def _behind(c: Context) -> Context:
    steps = c.first_step + STEPS_PER_STRAND // 2
    return Context(c.progress, c.op, c.ranks, c.me, c.group, c.seq, steps)


def broadcast(c: Context, x: Array, root: int) -> Strand:
    """Down a binomial tree."""
    me = (c.me - root) % c.n
    bit = 1
    while bit < c.n:
        if me & bit:
            yield [c.receive((me - bit + root) % c.n, 0, x)]
            break
        bit *= 2
    sends = []
    bit //= 2
    while bit:
        if me + bit < c.n:
            sends.append(c.send((me + bit + root) % c.n, 0, x))
        bit //= 2
    yield sends


def reduce_tree(c: Context, x: Array, combine: Combine, root: int) -> Strand:
    """Up a binomial tree, into the root's array; the arrays of others serve as work space."""
    me = (c.me - root) % c.n
    bit = 1
    while bit < c.n:
        if me & bit:
            yield [c.send((me - bit + root) % c.n, 0, x)]
            return
        if me + bit < c.n:
            room = c.room(x)
            yield [c.receive((me + bit + root) % c.n, 0, room)]
            combine(x, room)
        bit *= 2


def gather(c: Context, x: Array, parts: Sequence[Array], root: int) -> Strand:
    """Every rank's array to the root."""
    if c.me != root:
        yield [c.send(root, 0, x)]
        return
    parts[root][:] = x
    yield [c.receive(r, 0, parts[r]) for r in c.others()]


def scatter(c: Context, x: Array, parts: Sequence[Array], root: int) -> Strand:
    """One array of the root to each rank."""
    if c.me != root:
        yield [c.receive(root, 0, x)]
        return
    x[:] = parts[root]
    yield [c.send(r, 0, parts[r]) for r in c.others()]


# --- all to all


def all_gather(c: Context, x: Array, parts: Sequence[Array]) -> Strand:
    """Every rank's array to all others."""
    yield [
        *[c.receive(r, 0, parts[r]) for r in reversed(c.others())],
        *[c.send(r, 0, x) for r in c.others()],
    ]
    parts[c.me][:] = x


def reduce_scatter(c: Context, x: Array, parts: Sequence[Array], combine: Combine) -> Strand:
    """Part r of all ranks, reduced in rank order, to rank r."""
    own = parts[c.me]
    rooms = {r: c.room(own) for r in c.others()}
    yield [
        *[c.receive(r, 0, rooms[r]) for r in reversed(c.others())],
        *[c.send(r, 0, parts[r]) for r in c.others()],
    ]
    rooms[c.me] = own
    total = rooms[0] if c.me else c.room(own)
    if not c.me:
        total[:] = own
    for r in range(1, c.n):
        combine(total, rooms[r])
    x[:] = total


def all_to_all(c: Context, out: Sequence[Array], into: Sequence[Array]) -> Strand:
    """Array r of each rank to rank r."""
    yield [
        *[c.receive(r, 0, into[r]) for r in reversed(c.others())],
        *[c.send(r, 0, out[r]) for r in c.others()],
    ]
    into[c.me][:] = out[c.me]


def confirmed(c: Context, strands: Sequence[Strand]) -> Strand:
    """Do these, one after the other, once all ranks have said that they do the same: each message
    has its operation with it.
    """
    nothing = np.empty(0, np.uint8)
    yield [
        *[c.receive(r, CONFIRMING, nothing) for r in c.others()],
        *[c.send(r, CONFIRMING, nothing) for r in c.others()],
    ]
    for strand in strands:
        yield from strand


def barrier(c: Context) -> Strand:
    """Dissemination: after log2(n) rounds every rank has heard from every other, directly or
    not.
    """
    nothing = np.empty(0, np.uint8)
    distance, step = 1, 0
    while distance < c.n:
        yield [
            c.receive((c.me - distance) % c.n, step, nothing),
            c.send((c.me + distance) % c.n, step, nothing),
        ]
        distance, step = 2 * distance, step + 1
