"""Python that is called when a future is done, with the thread-local state of where it was asked.

That is TorchScript's doing; its import compiles, so it is imported late. Annotations are not those
of the future here: TorchScript reads the types.
"""

from collections.abc import Callable

import torch

_then: dict[int, Callable[[], None]] = {}


def when(over: torch.futures.Future, number: int, then: Callable[[], None]) -> None:
    """Call `then` in a thread of torch's once `over` is done, whose value is `number`."""
    _then[number] = then
    _launch(over)


@torch.jit.ignore  # type: ignore[untyped-decorator,unused-ignore]
def _call(number: int) -> int:
    _then.pop(number)()
    return number


@torch.jit.script  # type: ignore[untyped-decorator,unused-ignore]
def _ended(over: torch.jit.Future[int]) -> int:
    return _call(torch.jit.wait(over))


@torch.jit.script  # type: ignore[untyped-decorator,unused-ignore]
def _launch(over: torch.jit.Future[int]) -> torch.jit.Future[int]:
    return torch.jit.fork(_ended, over)
