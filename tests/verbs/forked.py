"""A child of fork beside a test."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator

from tests.live.two import PATIENCE_S


@contextlib.contextmanager
def forked(work: Callable[[], object]) -> Iterator[None]:
    """Run this in a child, which has to end soon, without an error."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    yield
    until = time.monotonic() + PATIENCE_S
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < until:
        time.sleep(0.01)
    if ended[0] == 0:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert ended == (child, 0)
