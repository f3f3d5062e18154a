"""The collectives of the table: what is called, on what, and the expected result.

Sizes are those of nccl-tests: of a rank's tensor, or, where each rank has a part of it, of all
parts together. `busbw` is `algbw` times what a link carries for each byte of that size, so it can
be compared with the link's rate whatever the collective and the number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

ELEMENT_BYTES = 4  # of float32
ROOT = 0
PERIOD = 8  # of the pattern: sums of it are exact


def pattern(rank: int, count: int, first: int = 0) -> torch.Tensor:
    """A rank's data: element i is `rank + (first + i) % PERIOD`."""
    return (torch.arange(first, first + count) % PERIOD + rank).float()


def summed(n: int, count: int, first: int = 0) -> torch.Tensor:
    """The sum of all ranks' patterns."""
    return pattern(0, count, first) * n + n * (n - 1) // 2


@dataclass(frozen=True)
class Job:
    """One collective on tensors of one size, at one rank."""

    call: Callable[[], Any]
    result: torch.Tensor
    want: torch.Tensor | None  # None: nothing is specified at this rank
    fill: Callable[[], Any]  # writes what a call needs

    def wrong(self) -> int:
        """The number of wrong elements after one call on fresh data."""
        self.fill()
        self.call()
        return 0 if self.want is None else int((self.result != self.want).sum())


Make = Callable[[Any, int, int, int, bool], Job]


@dataclass(frozen=True)
class Case:
    """A kind of row. `make(group, rank, n, count, in_place)` for `count` elements in all."""

    make: Make
    links: Callable[[int], float]  # of busbw
    in_place: bool = True
    reduces: bool = False
    rooted: bool = False


def _all_reduce(group: Any, me: int, n: int, count: int, in_place: bool) -> Job:
    return _in_one(lambda x: dist.all_reduce(x, group=group), me, n, count, in_place, True)


def _broadcast(group: Any, me: int, n: int, count: int, in_place: bool) -> Job:
    x, own = torch.zeros(count), pattern(ROOT, count)

    def call() -> None:
        if not in_place and me == ROOT:
            x.copy_(own)
        dist.broadcast(x, ROOT, group=group)

    return Job(call, x, own, lambda: x.copy_(own if me == ROOT else torch.zeros(count)))


def _reduce(group: Any, me: int, n: int, count: int, in_place: bool) -> Job:
    whole = me == ROOT
    return _in_one(lambda x: dist.reduce(x, ROOT, group=group), me, n, count, in_place, whole)


def _in_one(
    collective: Callable[[torch.Tensor], Any],
    me: int,
    n: int,
    count: int,
    in_place: bool,
    whole: bool,
) -> Job:
    """torch reduces in place; out of place is a copy followed by that."""
    own, x = pattern(me, count), torch.zeros(count)

    def call() -> None:
        if not in_place:
            x.copy_(own)
        collective(x)

    return Job(call, x, summed(n, count) if whole else None, lambda: x.copy_(own))


def _all_gather(group: Any, me: int, n: int, count: int, in_place: bool) -> Job:
    part, out = count // n, torch.zeros(count)
    own = out[me * part : (me + 1) * part] if in_place else torch.zeros(part)
    want = torch.cat([pattern(r, part) for r in range(n)])
    return Job(
        lambda: dist.all_gather_single(out, own, group=group),
        out,
        want,
        lambda: own.copy_(pattern(me, part)),
    )


def _reduce_scatter(group: Any, me: int, n: int, count: int, in_place: bool) -> Job:
    part, given = count // n, torch.zeros(count)
    own = given[me * part : (me + 1) * part] if in_place else torch.zeros(part)
    return Job(
        lambda: dist.reduce_scatter_single(own, given, group=group),
        own,
        summed(n, part, me * part),
        lambda: given.copy_(pattern(me, count)),
    )


def _all_to_all(group: Any, me: int, n: int, count: int, in_place: bool) -> Job:
    part, out, given = count // n, torch.zeros(count), torch.zeros(count)
    want = torch.cat([pattern(r, part, me * part) for r in range(n)])
    return Job(
        lambda: dist.all_to_all_single(out, given, group=group),
        out,
        want,
        lambda: given.copy_(pattern(me, count)),
    )


def _gather(group: Any, me: int, n: int, count: int, in_place: bool) -> Job:
    part, out = count // n, torch.zeros(count)
    own, parts = pattern(me, part), list(out.view(n, part).unbind(0)) if me == ROOT else None
    want = torch.cat([pattern(r, part) for r in range(n)]) if me == ROOT else None
    return Job(lambda: dist.gather(own, parts, ROOT, group=group), out, want, out.zero_)


def _scatter(group: Any, me: int, n: int, count: int, in_place: bool) -> Job:
    part = count // n
    given, out = pattern(ROOT, count), torch.zeros(part)
    parts = list(given.view(n, part).unbind(0)) if me == ROOT else None
    want = pattern(ROOT, part, me * part)
    return Job(lambda: dist.scatter(out, parts, ROOT, group=group), out, want, out.zero_)


def _send_recv(group: Any, me: int, n: int, count: int, in_place: bool) -> Job:
    own, out = pattern(me, count), torch.zeros(count)
    right, left = (me + 1) % n, (me - 1) % n

    def call() -> None:
        sent = dist.isend(own, right, group=group)
        dist.recv(out, left, group=group)
        sent.wait()

    return Job(call, out, pattern(left, count), out.zero_)


def _shared(n: int) -> float:
    return (n - 1) / n


def _once(n: int) -> float:
    return 1.0


CASES = {
    "all_reduce": Case(_all_reduce, lambda n: 2 * _shared(n), reduces=True),
    "all_gather": Case(_all_gather, _shared),
    "reduce_scatter": Case(_reduce_scatter, _shared, reduces=True),
    "all_to_all": Case(_all_to_all, _shared, in_place=False),
    "broadcast": Case(_broadcast, _once, rooted=True),
    "reduce": Case(_reduce, _once, reduces=True, rooted=True),
    "gather": Case(_gather, _shared, in_place=False, rooted=True),
    "scatter": Case(_scatter, _shared, in_place=False, rooted=True),
    "send_recv": Case(_send_recv, _once, in_place=False),
}


def count_of(size_bytes: int, n: int) -> int:
    """Elements of a size: rounded to equal parts for all ranks, at least one each."""
    return max(size_bytes // ELEMENT_BYTES // n, 1) * n
