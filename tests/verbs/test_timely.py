"""Connections of an HTTP server that are slow in any way: each is cut at its deadline."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from openmrc.verbs import timely
from openmrc.verbs.timely import TimelyRequest, TimelyServer
from tests.verbs.full import without_descriptors

WAIT_S = 60.0


class Hello(TimelyRequest):
    def do_GET(self) -> None:  # noqa: N802  # named by http.server
        self.server.allow(self.connection, WAIT_S, known=True)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello")

    def do_POST(self) -> None:  # noqa: N802
        self.rfile.read(9)


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(timely, "REQUEST_S", 0.4)
    server = TimelyServer(("127.0.0.1", 0), Hello)
    thread = threading.Thread(target=server.serve)
    thread.start()
    yield int(server.server_address[1])
    server.shutdown()
    server.server_close()
    thread.join(WAIT_S)


def asked(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as one:
        one.sendall(b"GET / HTTP/1.0\r\n\r\n")
        with one.makefile("rb") as answer:
            return answer.read()


@pytest.mark.parametrize(
    ("first", "drop"),
    [
        (b"", b""),  # silent
        (b"", b"G"),  # in the first line
        (b"GET / HTTP/1.0\r\n", b"a"),  # in a header
        (b"GET / HTTP/1.0\r\n", b"a: b\r\n"),  # between headers
        (b"POST / HTTP/1.0\r\n\r\n", b""),  # before the body
    ],
)
def test_a_request_is_whole_in_time_or_is_cut(port: int, first: bytes, drop: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as one:
        began = time.monotonic()
        one.sendall(first)
        one.settimeout(0.05)
        while time.monotonic() - began < WAIT_S:
            try:
                if drop:
                    one.sendall(drop)
                if one.recv(1 << 12) == b"":
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        assert 0.3 < time.monotonic() - began < WAIT_S
        assert asked(port).endswith(b"hello")


def test_who_says_nothing_has_no_place_that_another_needs(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timely, "REQUEST_S", WAIT_S)
    monkeypatch.setattr(timely, "OPEN_MAX", 4)
    before = threading.active_count()
    with contextlib.ExitStack() as held:
        for _ in range(40):
            held.enter_context(socket.create_connection(("127.0.0.1", port)))
        assert asked(port).endswith(b"hello")
        assert threading.active_count() - before < 20


def test_without_descriptors_it_goes_on(port: int) -> None:
    with socket.socket() as one:
        with without_descriptors():
            one.connect(("127.0.0.1", port))
            time.sleep(0.2)
        assert asked(port).endswith(b"hello")
