"""Tensors of GPUs, staged through pinned memory of the host.

A posting thread only records an event in its current stream. For each GPU there is a stream of
copies to the host and one of copies from it; both wait for that event, so that they see what was
asked of the GPU before the posting, and overwrite nothing that is still read. A strand of an
operation begins when its part has arrived, which is looked up and never waited for, and ends by
asking for the copy back: strands are parallel, so copies, messages and reductions overlap. Pinned
memory is used again when the event after its last copy has come.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import torch

from openmrc.torch.memory import bytes_at
from openmrc.torch.operation import Operation, Strand, Transfer
from openmrc.torch.pair import Key
from openmrc.torch.span import DTYPES, WHOLE, Span
from openmrc.torch.streams import Door, Event, Stream

LEAST = 1 << 12  # bytes of a piece of pinned memory
SPIN_S = 100e-6  # a copy of little takes less
PAUSE_S = 1e-3  # the longest between two looks for a copy
NO_KEY = Key(0, 0, 0, 0)


@dataclass
class Side:
    """The streams of one GPU, and what is on its way to the host, in order."""

    to_host: Stream
    from_host: Stream
    arriving: deque[tuple[Event, Transfer]] = field(default_factory=deque)


class Staging:
    """All staged tensors of one process. `over` is told of copies that have arrived."""

    def __init__(self, door: Door, over: Callable[[Transfer], None]) -> None:
        self.door, self._over = door, over
        self._sides: dict[torch.device, Side] = {}
        self._free: dict[int, deque[tuple[torch.Tensor, Sequence[Event]]]] = {}
        self._since = 0.0

    def span(self, tensor: torch.Tensor) -> Span:
        """The memory that an operation uses for a tensor."""
        return Staged(self, tensor) if self.door.holds(tensor) else Span(tensor)

    def side(self, device: torch.device) -> Side:
        """The streams of a GPU."""
        if device not in self._sides:
            self._sides[device] = Side(self.door.create(device), self.door.create(device))
        return self._sides[device]

    def fill(
        self, tensor: torch.Tensor, total: torch.Tensor, posted: Event, reader: Stream
    ) -> Event:
        """Replace a sparse tensor of a GPU; return the event after that."""
        stream = self.side(tensor.device).from_host
        stream.wait_event(posted)
        self.door.replace(tensor, total, stream, reader)
        event: Event = stream.record_event()
        return event

    # --- arrivals

    def arrival(self, op: Operation, side: Side) -> Transfer:
        """What a strand waits for: the copies to the host that were asked for until now."""
        t = Transfer(op, -1, NO_KEY, bytes_at(0, 0))
        if not side.arriving:
            self._since = time.monotonic()
        side.arriving.append((side.to_host.record_event(), t))
        return t

    def take(self) -> bool:
        """Report what has arrived; False if nothing has. Copies of a GPU arrive in order."""
        came = False
        for side in self._sides.values():
            while side.arriving and side.arriving[0][0].query():
                self._over(side.arriving.popleft()[1])
                came = True
        if came:
            self._since = time.monotonic()
        return came

    @property
    def is_due(self) -> bool:
        """Whether a copy is on its way to the host."""
        for side in self._sides.values():  # noqa: SIM110  most processes have none
            if side.arriving:
                return True
        return False

    def pause_s(self) -> float:
        """How long to do something else until the next look: the more, the longer copies take."""
        if not self.is_due:
            return float("inf")
        waited_s = time.monotonic() - self._since
        return 0.0 if waited_s < SPIN_S else min(waited_s / 8, PAUSE_S)

    # --- pinned memory

    def pinned(self, n: int) -> torch.Tensor:
        """At least `n` bytes of pinned memory that no copy uses."""
        size = max(LEAST, 1 << max(n - 1, 1).bit_length())
        free = self._free.setdefault(size, deque())
        try:
            memory, events = free.popleft()
        except IndexError:
            return self.door.pinned(size)
        if all(event.query() for event in events):
            return memory
        free.appendleft((memory, events))
        return self.door.pinned(size)

    def leave(self, spans: Iterable[Staged]) -> dict[torch.device, Event]:
        """An operation has ended well: all its copies back were asked for. Return the event after
        them of each GPU. (One that fails gives its memory up: peers may still write there.)
        """
        spans = list(spans)
        devices = {span.tensor.device for span in spans}
        events: dict[torch.device, Event]
        events = {device: self.side(device).from_host.record_event() for device in devices}
        for span in spans:
            memory = span.memory
            self._free[len(memory)].append((memory, [events[span.tensor.device]]))
        return events


class Staged(Span):
    """The pinned memory of a GPU's tensor: empty until it is asked for (`arrive`)."""

    def __init__(self, staging: Staging, tensor: torch.Tensor) -> None:
        self.tensor, self.is_copy, self._there = tensor, False, tensor.detach()
        self._staging, self._side = staging, staging.side(tensor.device)
        self._posted = staging.door.current(tensor.device).record_event()
        self.memory = staging.pinned(tensor.nbytes)
        self._flat = self.memory[: tensor.nbytes].view(tensor.dtype)
        self.array = bytes_at(self._flat.data_ptr(), tensor.nbytes).view(
            DTYPES.get(tensor.dtype, bytes_at(0, 0).dtype)
        )
        self._in_parts = tensor.is_contiguous() and not (tensor.is_conj() or tensor.is_neg())
        self._asked = False
        self._missing = len(self._flat)  # elements that are not filled yet

    def flatten(self) -> torch.Tensor:
        """The elements in this memory."""
        return self._flat

    def arrive(self, op: Operation, part: slice = WHOLE) -> list[Transfer]:
        """Ask for a part's copy to the host; return what to wait for."""
        stream = self._side.to_host
        stream.wait_event(self._posted)
        if self._in_parts:
            self._copy(self._flat[part], self._there.view(-1)[part], stream)
        elif not self._asked:
            self._copy(self._flat.view(self._there.shape), self._there, stream)
        self._asked = True
        return [self._staging.arrival(op, self._side)]

    def put(self, part: slice = WHOLE) -> None:
        """Ask for a part's copy back to the GPU."""
        stream = self._side.from_host
        stream.wait_event(self._posted)
        self._missing -= len(self._flat[part])
        if self._in_parts:
            self._copy(self._there.view(-1)[part], self._flat[part], stream)
        elif self._missing == 0:
            self._copy(self._there, self._flat.view(self._there.shape), stream)

    def _copy(self, into: torch.Tensor, of: torch.Tensor, stream: Stream) -> None:
        self._staging.door.copy(into, of, stream)
        self._staging.door.keep(self._there, stream)


def around(
    op: Operation,
    strand: Strand,
    read: Sequence[Span],
    filled: Sequence[Span],
    part: slice = WHOLE,
) -> Strand:
    """A strand that begins when parts of spans are there, and ends with copies of others back."""
    if not any(isinstance(span, Staged) for span in (*read, *filled)):
        return strand
    return _around(op, strand, read, filled, part)


def _around(
    op: Operation, strand: Strand, read: Sequence[Span], filled: Sequence[Span], part: slice
) -> Strand:
    waits: list[Transfer] = []
    for span in read:
        waits += span.arrive(op, part)
    yield waits
    yield from strand
    for span in filled:
        span.put(part)
