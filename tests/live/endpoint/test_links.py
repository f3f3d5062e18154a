"""Who asks the kernel about links: no loop that carries packets, since answers may take long."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterator

import pytest

from openmrc.live.endpoint import links
from openmrc.live.endpoint.links import Lookout, States, Watch

PATIENCE_S = 10.0


def n_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_lookout_reports_when_asked_and_leaves_nothing_open() -> None:
    before = n_descriptors()
    told: queue.Queue[States] = queue.Queue()
    lookout = Lookout([None, "lo", "nowhere0"], told.put)
    lookout.start()
    lookout.ask()
    [(first, _), (second, up)] = told.get(timeout=PATIENCE_S)
    assert (first, second, up) == (1, 2, False)  # no port without an interface
    lookout.close()
    assert n_descriptors() == before


def test_who_asks_and_who_closes_need_not_wait_for_the_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Somebody takes a link down, and the kernel answers nobody until that is done."""
    asked, done = threading.Event(), threading.Event()
    told: queue.Queue[States] = queue.Queue()

    def wait(_: Watch) -> Iterator[tuple[int, bool]]:
        asked.set()
        assert done.wait(PATIENCE_S)
        yield 0, False

    monkeypatch.setattr(Watch, "states", wait)
    monkeypatch.setattr(links, "CLOSE_S", 0.01)
    lookout = Lookout(["lo"], told.put)
    lookout.start()
    lookout.ask()
    assert asked.wait(PATIENCE_S)
    lookout.ask()  # returns at once, and so does this:
    lookout.close()
    assert told.empty()
    done.set()
    assert told.get(timeout=PATIENCE_S) == [(0, False)]
    assert lookout._thread is not None
    lookout._thread.join(PATIENCE_S)
    assert not lookout._thread.is_alive()


def test_without_interfaces_there_is_no_thread() -> None:
    before = n_descriptors()
    lookout = Lookout([None, None], lambda _: None)
    lookout.start()
    lookout.ask()
    assert lookout._thread is None
    lookout.close()
    assert n_descriptors() == before
