"""Who waits for a completion goes round the device's loop itself, beside all other threads."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from openmrc.errors import InputError
from openmrc.live.endpoint.loop import CAME, ELSEWHERE, NOTHING, OTHER
from openmrc.live.endpoint.state import OTHERS_MAX
from openmrc.verbs import Status
from tests.live.two import PATIENCE_S, End, connected

PATIENCE_NS = int(PATIENCE_S * 1e9)


def write(a: End, b: End, n: int) -> None:
    """Post `n` writes of a page to the other end."""
    source = a.device.reg_mr(np.zeros(4096, np.uint8))
    sink = b.device.reg_mr(np.zeros(4096, np.uint8))
    for i in range(n):
        a.qp.post_write(i, source, remote_addr=sink.addr, rkey=sink.rkey)


@contextmanager
def looking(a: End) -> Iterator[list[int]]:
    """Another thread waits for a completion that never comes, until the end; what it was told."""
    fd = os.eventfd(0)
    a.cq.watch([fd])
    told: list[int] = []
    thread = threading.Thread(target=lambda: told.append(a.cq.look(0, PATIENCE_NS)))
    thread.start()
    looked: Any = a.device._host.ep.ctl
    while not looked[0].looked:
        assert thread.is_alive()
    yield told
    os.eventfd_write(fd, 1)
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    a.cq.watch([])
    os.close(fd)


def test_each_completion_is_taken_once_whoever_hears_the_ports() -> None:
    """In turn by the waiting thread and by the device's own, at both ends."""
    with connected() as (a, b):
        for _ in range(20):
            for one, other in ((a, b), (b, a)):
                write(one, other, 3)
                seen: list[int] = []
                while len(seen) < 3:
                    assert one.cq.look(0, PATIENCE_NS) == CAME
                    seen += [done.wr_id for done in one.cq.take()]
                assert seen == [0, 1, 2]
                write(other, one, 1)
                [done] = other.cq.wait(1, PATIENCE_S)  # the thread at `one` must hear
                assert done.status == Status.SUCCESS


def test_another_thread_ends_the_wait_by_a_descriptor() -> None:
    with connected() as (a, _):
        with looking(a) as told:
            assert told == []
        assert told == [OTHER]
        fds = list(range(OTHERS_MAX + 1))
        with pytest.raises(InputError, match=rf"{OTHERS_MAX + 1} descriptors"):
            a.cq.watch(fds)


def test_while_one_thread_waits_others_post_call_and_wait() -> None:
    with connected() as (a, b):
        with looking(a) as told:
            assert a.cq.look(0, PATIENCE_NS) == ELSEWHERE
            write(b, a, 2)
            assert len(b.cq.wait(2, PATIENCE_S)) == 2
            assert a.device.counters()  # asks the device's thread
            assert told == []
        write(a, b, 1)
        assert a.cq.look(0, PATIENCE_NS) == CAME


def test_a_signal_ends_the_wait() -> None:
    came: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: came.append(number))
    over = threading.Event()
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        while not over.wait(0.001):
            signal.pthread_kill(main, signal.SIGUSR1)

    thread = threading.Thread(target=interrupt)
    try:
        with connected() as (a, _):
            thread.start()
            assert a.cq.look(0, PATIENCE_NS) == NOTHING
            over.set()
            thread.join()
    finally:
        over.set()
        signal.signal(signal.SIGUSR1, before)
    assert came
