"""The handle of an operation, for which a caller waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from openmrc.torch.operation import Flag, Operation, nothing
from openmrc.torch.profile import Event
from openmrc.torch.progress import Progress


class MrcWork(dist.Work):
    """The handle of an operation. It keeps the memory that the operation uses."""

    def __init__(
        self,
        op: Operation,
        result: list[torch.Tensor],
        keep: Sequence[Any],
        progress: Progress,
        event: Event | None = None,
    ) -> None:
        super().__init__()
        self._progress = progress
        self._op, self._result = op, result
        op.keep = keep
        self._over = Flag()
        self._event: threading.Event | None = None  # of a thread that waits while another drives
        self._lock = threading.Lock()
        self._base: torch.futures.Future[Any] | None = None
        self._future: torch.futures.Future[Any] | None = None
        self.at_end: Callable[[], None] = nothing
        self.devices: Collection[torch.device] = ()  # GPUs whose tensors it fills
        self.left: Mapping[torch.device, Any] = {}  # on each, the event after its copies back
        op.on_finish = self._finish if event is None else partial(event.end, self._finish)

    def _finish(self) -> None:
        """The operation is complete."""
        with self._lock:
            if self._op.error is None:
                try:
                    self.at_end()
                except BaseException as error:
                    self._op.error = error
            self._over.up = True
            event, base = self._event, self._base
        self._op.keep = ()
        if event is not None:
            event.set()
        if base is not None:
            self._progress.callbacks.call(partial(self._tell, base))
        self._progress.finished()

    def _raise(self) -> None:
        error = self._op.error
        if error is not None:
            raise dist.DistBackendError(str(error)) from error

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until it is complete, and raise its error. C++ passes 0 for no timeout. With tensors
        of a GPU the current stream waits for the copies back, and the caller does not.
        """
        asked = timeout.total_seconds() if timeout else 0.0
        seconds = asked if asked > 0 else None
        if not self._over.up and self._progress.forked:
            raise dist.DistBackendError(f"{self._op.name}: it is the parent's, not this process's")
        if not self._over.up:
            started = time.monotonic()
            self._progress.drive(self._over, seconds)
            left_s = None if seconds is None else max(started + seconds - time.monotonic(), 0.0)
            if not (self._over.up or self._told().wait(left_s)):
                raise dist.DistBackendError(f"{self._op.name}: not over within {asked:g} s")
        self._raise()
        for device, event in self.left.items():
            self._progress.staging.door.current(device).wait_event(event)
        return True

    synchronize = wait

    def _told(self) -> threading.Event:
        """The event that is set at the end, created on demand: few threads ever sleep on it."""
        with self._lock:
            if self._event is None:
                self._event = threading.Event()
            if self._over.up:
                self._event.set()
            return self._event

    def is_completed(self) -> bool:
        """Whether it is complete."""
        return self._over.up

    def is_success(self) -> bool:
        """Whether it completed without an error."""
        return self._over.up and self._op.error is None

    def exception(self) -> BaseException | None:
        """Its error."""
        return self._op.error

    def result(self) -> list[torch.Tensor]:
        """The tensors that it filled."""
        return self._result

    def source_rank(self) -> int:
        """The sender of a received message."""
        return -1 if self._op.source is None else self._op.source

    _source_rank = source_rank

    def get_future(self) -> torch.futures.Future[Any]:
        """A future of the tensors.

        An error is raised inside `then`: DDP's reducer takes a future that holds an exception for
        a list of tensors, and crashes.
        """
        with self._lock:
            if self._future is None:
                base: torch.futures.Future[Any] = (
                    self._progress.staging.door.future(self.devices)
                    if self.devices
                    else torch.futures.Future()
                )
                self._base = base
                self._future = base.then(self._outcome)
                if not self._over.up:
                    return self._future
            else:
                return self._future
        self._tell(base)
        return self._future

    def _tell(self, base: torch.futures.Future[Any]) -> None:
        """Complete the future. That of a GPU's tensors takes its events from current streams, for
        the tensors that it is given.
        """
        if not self.left:
            base.set_result(None)
            return
        with self._progress.staging.door.after(self.left.values()):
            base.set_result(self._result)

    def _outcome(self, _: Any) -> list[torch.Tensor]:
        self._raise()
        return self._result
