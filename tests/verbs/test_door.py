"""Strangers at a door, side by side: who is slow, many, or leaves delays nobody."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

from openmrc.verbs.door import Door
from openmrc.verbs.line import CLIENT, NONCE_BYTES, VERSION, ExchangeError, Line
from tests.live.two import PATIENCE_S
from tests.verbs.full import without_descriptors
from tests.verbs.strangers import turns_away

SECRET = bytes(range(32))


@contextlib.contextmanager
def opened(strangers_max: int = 8) -> Iterator[tuple[Door, int]]:
    server = socket.create_server(("127.0.0.1", 0))
    with Door(server, lambda _: SECRET, strangers_max) as door:
        yield door, int(server.getsockname()[1])


def knocking(port: int, about: dict[str, Any] | None = None) -> tuple[threading.Thread, list[str]]:
    """A true peer, and what became of it."""
    found: list[str] = []

    def work() -> None:
        with contextlib.closing(Line.to("127.0.0.1", port, PATIENCE_S)) as line:
            try:
                line.authenticate(SECRET, CLIENT, about)
                found.append("proven")
            except ExchangeError as error:
                found.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    return thread, found


def let_in(door: Door, port: int) -> Line:
    thread, found = knocking(port, {"nic": 3})
    line = door.next(time.monotonic() + PATIENCE_S)
    assert line is not None
    thread.join(PATIENCE_S)
    assert found == ["proven"]
    return line


def test_who_has_proven_the_secret_is_let_in_with_its_first_words() -> None:
    with opened() as (door, port), contextlib.closing(let_in(door, port)) as line:
        assert (line.hello["nic"], line.hello["openmrc"]) == (3, VERSION)
        assert door.turned_away == 0


def test_nobody_is_waited_for_beyond_the_callers_time() -> None:
    with opened() as (door, port), socket.create_connection(("127.0.0.1", port)):
        began = time.monotonic()
        assert door.next(began + 0.2) is None
        assert 0.2 <= time.monotonic() - began < PATIENCE_S


def test_the_oldest_stranger_makes_room_and_no_other() -> None:
    with opened(strangers_max=3) as (door, port), contextlib.ExitStack() as held:
        strangers = []
        for _ in range(5):
            stranger = socket.create_connection(("127.0.0.1", port))
            strangers.append(held.enter_context(stranger))
            assert door.next(time.monotonic() + 0.05) is None
        assert door.turned_away == 2
        for number, stranger in enumerate(strangers):
            stranger.settimeout(0.05)
            assert stranger.recv(1 << 12).endswith(b"\n")  # the hello
            try:
                assert (stranger.recv(1), number < 2) == (b"", True)
            except TimeoutError:
                assert number >= 2


def test_without_descriptors_a_strangers_is_taken_for_the_next_caller() -> None:
    with opened() as (door, port), contextlib.ExitStack() as held:
        strangers = [
            held.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(2)
        ]
        assert door.next(time.monotonic() + 0.05) is None
        caller = held.enter_context(socket.socket())
        with without_descriptors(left=1):  # which the wait itself needs nothing of
            held.enter_context(socket.socket())
            caller.connect(("127.0.0.1", port))
            assert door.next(time.monotonic() + 0.05) is None
        assert door.turned_away == 1
        assert caller.recv(1 << 12).endswith(b"\n")
        with strangers[0].makefile("rb") as said:
            assert said.read().count(b"\n") == 1  # a hello, and the end
        let_in(door, port).close()


def test_without_any_descriptor_it_waits_and_goes_on() -> None:
    with opened() as (door, port), socket.socket() as caller:
        with without_descriptors():
            caller.connect(("127.0.0.1", port))
            began = time.process_time()
            assert door.next(time.monotonic() + 0.3) is None
            assert time.process_time() - began < 0.15  # it does not spin
        assert door.next(time.monotonic() + 0.2) is None
        assert caller.recv(1 << 12).endswith(b"\n")


def test_a_proof_is_for_its_own_nonces_alone() -> None:
    """One that was overheard opens nothing, whichever nonce it is sent with."""
    with opened() as (door, port):
        heard: list[dict[str, Any]] = []

        def overheard() -> None:
            with contextlib.closing(Line.to("127.0.0.1", port, PATIENCE_S)) as line:
                mine = Line.send

                def send(self: Line, *messages: Any) -> None:
                    heard.extend(messages)
                    mine(self, *messages)

                line.send = send.__get__(line)  # type: ignore[method-assign]  # a wire tap
                line.authenticate(SECRET, CLIENT)

        thread = threading.Thread(target=overheard)
        thread.start()
        line = door.next(time.monotonic() + PATIENCE_S)
        assert line is not None
        line.close()
        thread.join(PATIENCE_S)
        hello, proof = heard
        for first in (hello, {"openmrc": VERSION, "nonce": "ab" * NONCE_BYTES}):
            with contextlib.closing(Line.to("127.0.0.1", port, PATIENCE_S)) as again:
                again.send(first, proof)
                turns_away(door, door.turned_away + 1)
                again.receive()
                assert "refused" in again.receive()
