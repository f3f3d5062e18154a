"""Collectives in torch's profiler: an event from posting to the end, as Gloo and NCCL have.

torch keeps the profiler's state in thread-local storage of the posting thread, and an operation
ends on another thread: `suspended` carries the state there. It is loaded when something is posted
under a profiler, and costs nothing otherwise.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

_numbers = itertools.count(1)


class Event:
    """The profiler's event of one operation."""

    def __init__(self, title: str, tensors: Sequence[torch.Tensor]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # TorchScript is deprecated; nothing else does this
            from openmrc.torch import suspended
        record: Any = torch._C._profiler._RecordFunctionFast(title, list(tensors), {})
        self._over: torch.futures.Future[int] = torch.futures.Future()
        self._number = next(_numbers)
        self._then: Callable[[], None] = lambda: None

        def end() -> None:
            record.__exit__(None, None, None)
            self._then()

        record.__enter__()
        suspended.when(self._over, self._number, end)

    def end(self, then: Callable[[], None]) -> None:
        """End the event, and then call `then`."""
        self._then = then
        self._over.set_result(self._number)


def enabled() -> bool:
    """Whether this thread is profiled: then an `Event` begins with each posting."""
    return torch.autograd._profiler_enabled()
