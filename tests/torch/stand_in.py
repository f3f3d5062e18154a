"""A GPU that is none: its memory is memory, and its streams do nothing until they are told to.

A copy fails the test if the host's memory has changed between the call and the copy, or if the
GPU's memory was freed meanwhile without `keep`. Host memory that no copy has filled yet is noise.
"""

from __future__ import annotations

import contextlib
import random
import threading
import weakref
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch

from openmrc.torch.memory import bytes_at

DEVICE = torch.device("cpu")  # what its tensors say


class Event:
    """A point in the work of a stream."""

    device = DEVICE

    def __init__(self, gpu: Gpu) -> None:
        self._gpu, self.is_over = gpu, False

    def query(self) -> bool:
        """Whether the stream has come this far; a look may let the GPU do something."""
        self._gpu.on_look()
        return self.is_over


class Stream:
    """Work that is done in order, one piece at a call of `go_on`."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self.work: deque[Callable[[], None] | Event] = deque()

    def record_event(self) -> Event:
        """An event after the work so far."""
        event = Event(self._gpu)
        self.work.append(lambda: setattr(event, "is_over", True))
        return event

    def wait_event(self, event: Event) -> None:
        """The work that follows waits for an event."""
        self.work.append(event)

    def go_on(self) -> bool:
        """Do one piece of work; False if there is none, or an event has not come."""
        if not self.work:
            return False
        if isinstance(first := self.work[0], Event):
            if first.is_over:
                self.work.popleft()
            return first.is_over
        self.work.popleft()
        first()
        return True


class Gpu:
    """The stand-in: `openmrc.torch.streams.Door`."""

    def __init__(self) -> None:
        self.now = Stream(self)  # the current stream
        self.streams = [self.now]
        self.on_look: Callable[[], None] = lambda: None
        self.wrong: list[str] = []  # also what a thread cannot raise
        self._alive: dict[int, object] = {}  # what is at an address, which serves again
        self._lock = threading.RLock()

    def tensor(self, values: torch.Tensor) -> torch.Tensor:
        """A copy of a tensor in this memory."""
        memory = np.array(bytes_at(values.data_ptr(), values.nbytes))
        if not memory.nbytes:
            return values.clone()
        address, own = memory.ctypes.data, object()
        self._alive[address] = own
        weakref.finalize(memory, self._freed, address, own)
        whole = torch.from_numpy(memory).view(values.dtype)
        return whole.as_strided(values.shape, values.stride())

    def _freed(self, address: int, own: object) -> None:
        if self._alive.get(address) is own:
            del self._alive[address]

    def do(self, work: Callable[[], None]) -> None:
        """Work in the current stream, like a kernel."""
        self.now.work.append(work)

    def finish(self) -> None:
        """Do all work."""
        with self._lock:
            while sum(one.go_on() for one in self.streams):
                pass
            assert not any(one.work for one in self.streams), "a stream waits for ever"
        assert not self.wrong, self.wrong[0]

    def at_random(self, seed: int) -> None:
        """Do some work whenever somebody looks for an event."""
        drawn = random.Random(seed)

        def some() -> None:
            with self._lock:
                for _ in range(drawn.randrange(3)):
                    drawn.choice(self.streams).go_on()

        self.on_look = some

    # --- the door

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is in this memory."""
        return tensor.untyped_storage().data_ptr() in self._alive

    def current(self, device: torch.device) -> Stream:
        """The current stream."""
        return self.now

    def create(self, device: torch.device) -> Stream:
        """A stream."""
        self.streams.append(Stream(self))
        return self.streams[-1]

    def pinned(self, n: int) -> torch.Tensor:
        """Noise."""
        return torch.randint(0, 256, (n,), dtype=torch.uint8)

    def copy(self, into: torch.Tensor, of: torch.Tensor, stream: Stream) -> None:
        """Copy when the stream comes to it, from the memory that is there then."""
        if not of.nbytes:
            return
        host = of if self.holds(into) else into
        there = into if self.holds(into) else of
        address, seen = there.untyped_storage().data_ptr(), _sum(host)
        own = self._alive[address]
        ends = [_unowned(t) if self.holds(t) else t for t in (into, of)]
        if self.holds(of):
            host.view(-1).view(torch.uint8).bitwise_not_()  # what is read too early is wrong
            seen = _sum(host)

        def copy() -> None:
            if self._alive.get(address) is not own:
                self.wrong.append("the GPU's memory was freed before its copy")
            elif _sum(host) != seen:
                self.wrong.append("the host's memory has changed before its copy")
            else:
                ends[0].copy_(ends[1])

        stream.work.append(copy)

    def keep(self, tensor: torch.Tensor, stream: Stream) -> None:
        """Hold the memory until the stream has come this far."""
        held = [tensor]
        stream.work.append(held.clear)

    def replace(self, tensor: Any, total: torch.Tensor, stream: Stream, reader: Stream) -> None:
        """Refuse: sparse tensors cannot be held."""
        raise NotImplementedError

    def future(self, devices: Iterable[torch.device]) -> torch.futures.Future[Any]:
        """A plain one."""
        return torch.futures.Future()

    @contextlib.contextmanager
    def after(self, events: Iterable[Event]) -> Iterator[None]:
        """The current stream is another, which has waited."""
        before, self.now = self.now, self.create(DEVICE)
        for event in events:
            self.now.wait_event(event)
        yield
        self.now = before


def _sum(t: torch.Tensor) -> int:
    return zlib.crc32(bytes_at(t.data_ptr(), t.nbytes).data)


def _unowned(t: torch.Tensor) -> torch.Tensor:
    """The same memory, without holding it."""
    whole = t.untyped_storage()
    there = torch.from_numpy(bytes_at(whole.data_ptr(), whole.nbytes())).view(t.dtype)
    return there.as_strided(t.shape, t.stride(), t.storage_offset())
