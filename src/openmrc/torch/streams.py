"""What staging asks of torch.cuda. Tests put a stand-in in its place (`door`)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import torch

from openmrc.errors import InputError


class Event(Protocol):
    """A point in the work of a stream."""

    device: torch.device

    def query(self) -> bool:
        """Whether all work before it is over."""


class Stream(Protocol):
    """Work of a GPU, one after the other."""

    def record_event(self) -> Any:
        """An `Event` after the work so far."""

    def wait_event(self, event: Any) -> None:
        """Let the work that follows wait for an event."""


class Door(Protocol):
    """Streams, events and copies of GPUs. Nothing here waits for one."""

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is in a GPU's memory."""

    def current(self, device: torch.device) -> Stream:
        """The stream in which this thread posts work."""

    def create(self, device: torch.device) -> Stream:
        """A new stream."""

    def pinned(self, n: int) -> torch.Tensor:
        """`n` bytes of host memory that a GPU copies from and to by itself."""

    def copy(self, into: torch.Tensor, of: torch.Tensor, stream: Stream) -> None:
        """Copy in a stream, between the memories of a GPU and the host."""

    def keep(self, tensor: torch.Tensor, stream: Stream) -> None:
        """The tensor's memory serves no other before the stream has come this far."""

    def replace(
        self, tensor: torch.Tensor, total: torch.Tensor, stream: Stream, reader: Stream
    ) -> None:
        """Replace what a sparse tensor holds, which `reader` will read."""

    def future(self, devices: Iterable[torch.device]) -> torch.futures.Future[Any]:
        """A future whose callbacks run in streams that wait for its value."""

    def after(self, events: Iterable[Event]) -> contextlib.AbstractContextManager[None]:
        """Within it, current streams are such that have waited for these events."""


class Cuda:
    """torch.cuda."""

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is in a GPU's memory."""
        return tensor.is_cuda

    def current(self, device: torch.device) -> Stream:
        """The stream in which this thread posts work; `InputError` if it is recorded as a graph."""
        if torch.cuda.is_current_stream_capturing():
            raise InputError(
                "a CUDA graph records this collective, which passes through the host: call it"
                " outside of the graph"
            )
        return torch.cuda.current_stream(device)

    def create(self, device: torch.device) -> Stream:
        """A new stream, whose copies go before other work."""
        return torch.cuda.Stream(device, priority=-1)

    def pinned(self, n: int) -> torch.Tensor:
        """`n` bytes of pinned memory."""
        return torch.empty(n, dtype=torch.uint8, pin_memory=True)

    def copy(self, into: torch.Tensor, of: torch.Tensor, stream: Stream) -> None:
        """Copy in a stream; what is not plain memory goes through a copy on the GPU."""
        with torch.no_grad(), torch.cuda.stream(stream):
            if of.is_cuda:
                of = of.resolve_conj().resolve_neg().contiguous()
            elif not into.is_contiguous() or into.is_conj() or into.is_neg():
                of = of.to(into.device, non_blocking=True)
            into.copy_(of, non_blocking=True)

    def keep(self, tensor: torch.Tensor, stream: Stream) -> None:
        """`record_stream`."""
        tensor.record_stream(stream)

    def replace(
        self, tensor: torch.Tensor, total: torch.Tensor, stream: Stream, reader: Stream
    ) -> None:
        """Replace what a sparse tensor holds; it has new memory then."""
        with torch.no_grad(), torch.cuda.stream(stream):
            tensor.copy_(total.to(tensor.device))
            for part in (tensor._indices(), tensor._values()):
                part.record_stream(reader)

    def future(self, devices: Iterable[torch.device]) -> torch.futures.Future[Any]:
        """torch's own future of CUDA tensors."""
        return torch.futures.Future(devices=list(devices))

    @contextlib.contextmanager
    def after(self, events: Iterable[Event]) -> Iterator[None]:
        """Within it, current streams are new ones that have waited for these events."""
        with contextlib.ExitStack() as stack:
            for event in events:
                stream = torch.cuda.Stream(event.device)
                stream.wait_event(event)
                stack.enter_context(torch.cuda.stream(stream))
            yield


door: Door = Cuda()
