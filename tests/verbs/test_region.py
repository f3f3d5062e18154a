"""Memory is registered and withdrawn by the thread that asks, whatever the device is doing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from openmrc.errors import InputError
from tests.live.two import PATIENCE_S, connected

N, TURNS = 100_000, 40


def test_no_other_thread_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(function: Callable[[], Any]) -> Any:
        raise AssertionError("the device's thread was asked")

    with connected() as (a, b):
        source = a.device.reg_mr(bytearray(b"x" * N))
        with monkeypatch.context() as held:
            held.setattr(b.device._host, "call", refuse)
            for _ in range(TURNS):
                sink = b.device.reg_mr(bytearray(N))
                a.qp.post_write(0, source, remote_addr=sink.addr, rkey=sink.rkey)
                assert a.cq.wait(1, PATIENCE_S)
                assert sink.buffer == source.buffer
                sink.dereg()


def test_threads_that_register_neither_wait_for_ever_nor_take_each_others_place() -> None:
    with connected(regions=64) as (a, b):
        source, room = a.device.reg_mr(bytearray(b"x" * N)), b.device.reg_mr(bytearray(N))
        keys: list[int] = []

        def register() -> None:
            for _ in range(TURNS):
                some = [b.device.reg_mr(bytearray(64)) for _ in range(4)]
                keys.extend(one.rkey for one in some)
                for one in some:
                    one.dereg()

        threads = [threading.Thread(target=register, daemon=True) for _ in range(4)]
        for one in threads:
            one.start()
        alive = True
        while alive:  # both devices have enough to do
            alive = any(one.is_alive() for one in threads)
            a.qp.post_write(0, source, remote_addr=room.addr, rkey=room.rkey)
            (done,) = a.cq.wait(1, PATIENCE_S)
            assert done.status.name == "SUCCESS"
        assert len(keys) == 4 * 4 * TURNS
        assert len(set(keys)) > len(keys) - 3  # of 2^26, drawn: two of these runs' may be alike
        assert room.buffer == source.buffer


def test_what_a_peer_writes_late_goes_to_other_memory() -> None:
    with connected() as (a, b):
        source = a.device.reg_mr(bytearray(b"x" * N))
        first, second = bytearray(N), bytearray(N)
        sink = b.device.reg_mr(first)
        there = sink.remote
        with pytest.raises(InputError, match=r"100000 bytes, never sent from"):
            sink.rereg(bytearray(N - 1))
        sink.rereg(second)
        a.qp.post_write(0, source, remote_addr=there.addr, rkey=there.rkey)
        assert a.cq.wait(1, PATIENCE_S)
        assert first == bytes(N)
        assert second == b"x" * N
