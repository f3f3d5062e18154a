"""Calls Python when a future is done, with the thread-local state of the thread that requested it.

TorchScript does this; its import compiles, so it is imported late. Annotations are not postponed
here: TorchScript reads the types.
"""

from collections.abc import Callable
from typing import Any

import torch

_then: dict[int, Callable[[], None]] = {}


def when(over: torch.futures.Future, number: int, then: Callable[[], None]) -> None:
    """Call `then` in a thread of torch's once `over` is done, whose value is `number`.

    TorchScript records its own functions in the profiler, and ends those records after `then`: the
    waiting thread may have closed the profiler by that time, and torch crashes. So its functions
    are not recorded; records that the caller has begun end as usual.
    """
    _then[number] = then
    torch.autograd._enable_record_function(False)
    try:
        _launch(over)
    finally:
        torch.autograd._enable_record_function(True)


def _call_now(number: int) -> int:
    _then.pop(number)()
    return number


def _call_later(over: torch.jit.Future[int]) -> int:
    return _call(torch.jit.wait(over))


def _begin(over: torch.jit.Future[int]) -> torch.jit.Future[int]:
    return torch.jit.fork(_later, over)


_call: Any = torch.jit.ignore(_call_now)
_later: Any = torch.jit.script(_call_later)
_launch: Any = torch.jit.script(_begin)
