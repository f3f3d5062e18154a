"""An operation that an application posted, and the sends and receives that it waits for."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable
from typing import Any

from openmrc.torch.memory import Bytes
from openmrc.torch.pair import Key
from openmrc.verbs.region import MemoryRegion


class Flag:
    """Whether something is complete."""

    __slots__ = ("up",)

    def __init__(self) -> None:
        self.up = False


class Transfer:
    """One send or receive of an operation."""

    __slots__ = ("data", "done", "exposed", "key", "op", "peer", "strand")

    def __init__(self, op: Operation, peer: int, key: Key, data: Bytes) -> None:
        self.op, self.peer, self.key, self.data = op, peer, key, data
        self.done = False
        self.strand = -1  # the operation's strand that waits for this
        self.exposed: MemoryRegion | None = None  # where the peer writes


Strand = Generator[Iterable[Transfer], None, None]


class Operation:
    """An operation that an application posted; `strands` proceed in parallel.

    `call` says what it is, to be compared with its peers'; `number` is a collective's group and
    number there, None for a message between two ranks.
    """

    def __init__(
        self,
        name: str,
        ranks: Iterable[int],
        timeout_s: float,
        call: bytes,
        group: int,
        seq: int | None,
    ) -> None:
        self.name, self.ranks = name, frozenset(ranks)
        self.call, self.group = call, group
        self.number = None if seq is None else (group, seq)
        self.asked = False  # whether peers were asked what they call
        self.strands: list[Strand] = []
        self.timeout_s = timeout_s
        self.posted_at = time.monotonic()
        self.live: set[Transfer] = set()
        self.waits: dict[int, int] = {}  # strand -> number of transfers that it waits for
        self.running = 0  # strands that have not ended
        self.scratch: list[Bytes] = []
        self.keep: Any = ()  # what owns the memory that it uses
        self.error: BaseException | None = None
        self.over = False
        self.source: int | None = None  # of a receive from any rank
        self.on_finish: Callable[[], None] = nothing


def nothing() -> None:
    """A callback that does nothing."""
