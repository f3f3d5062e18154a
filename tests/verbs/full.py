"""A process without descriptors, as after a flood of connections or a leak."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def without_descriptors(left: int = 0) -> Iterator[None]:
    """Within, the system gives this process only so many more descriptors."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.open(os.devnull, os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken[0] + 64, before[1]))
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(taken[0]))
        for _ in range(left):
            os.close(taken.pop())
        yield
    finally:
        for one in taken:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
