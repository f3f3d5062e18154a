"""Ctrl-C waits for a good moment, and is not forgotten."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

from openmrc import ending
from openmrc.jit.interrupts import held_back


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_it_arrives_where_it_is_let_through() -> None:
    steps = []
    with pytest.raises(KeyboardInterrupt), held_back() as let_through:  # noqa: PT012
        let_through()
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        steps.append("after the signal")
        let_through()
        steps.append("never")
    assert steps == ["after the signal"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_it_arrives_at_the_end_of_the_block_at_the_latest() -> None:
    steps = []
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        with held_back():
            signal.raise_signal(signal.SIGINT)
            steps.append("in the block")
        steps.append("never")
    assert steps == ["in the block"]


def test_whoever_handles_it_otherwise_still_does() -> None:
    handled = []

    def handler(number: int, frame: FrameType | None) -> None:
        handled.append(number)

    signal.signal(signal.SIGINT, handler)
    with held_back() as let_through:
        signal.raise_signal(signal.SIGINT)
        assert handled == []
        let_through()
        assert handled == [signal.SIGINT]
        let_through()
    assert handled == [signal.SIGINT]
    assert signal.getsignal(signal.SIGINT) is handler


def test_who_ignores_it_goes_on_ignoring_it() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with held_back() as let_through:
        signal.raise_signal(signal.SIGINT)
        let_through()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_sigterm_waits_as_well_also_where_ctrl_c_is_ignored() -> None:
    usual = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ending.alike()
    try:
        for handler in (signal.default_int_handler, signal.SIG_IGN):
            signal.signal(signal.SIGINT, handler)
            steps = []
            with pytest.raises(KeyboardInterrupt), held_back() as let_through:  # noqa: PT012
                signal.raise_signal(signal.SIGTERM)
                steps.append("in the block")
                let_through()
            assert steps == ["in the block"]
    finally:
        signal.signal(signal.SIGTERM, usual)
        ending.note(signal.SIGINT)


def test_other_threads_have_nothing_to_hold_back() -> None:
    seen = []

    def work() -> None:
        with held_back() as let_through:
            seen.append(signal.getsignal(signal.SIGINT))
            let_through()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]
