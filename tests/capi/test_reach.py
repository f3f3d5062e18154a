"""How an end of libmrc on an ordinary network finds its peer by the GID."""

from __future__ import annotations

import contextlib
import errno
import json
import socket
import threading
import time
from collections.abc import Callable

import pytest

from openmrc.capi import reach
from openmrc.capi.places import Refused
from openmrc.live.endpoint.peers import Reach
from openmrc.verbs.line import VERSION
from tests.verbs.full import without_descriptors


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_a_gid_says_where_to_ask_for_the_planes() -> None:
    planes = Reach("127.0.0.1", free_port(), (50_000,)), Reach("127.0.0.2", 4791, (50_001, 50_002))
    answering = reach.Answering(planes)
    gid = reach.gid_of(planes[0])
    assert reach.where(gid) == ("127.0.0.1", planes[0].port)
    assert reach.ask(gid) == planes
    answering.close()
    with pytest.raises(Refused) as refused:
        reach.ask(gid)
    assert refused.value.code == errno.ECONNREFUSED


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ([], "no end of libmrc"),
        ("x" * 5, "no end of libmrc"),
        ({"openmrc": VERSION}, "no end of libmrc"),
        (
            {"openmrc": VERSION + 1, "planes": []},
            f"speaks version {VERSION + 1} of the wire, this end version {VERSION}: install the",
        ),
    ],
)
def test_who_speaks_otherwise_is_refused_by_what_it_says(told: object, words: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            asking, _ = server.accept()
            with asking:
                asking.sendall(json.dumps(told).encode() + b"\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(Refused, match=words) as refused:
            reach.ask(reach.gid_of(Reach("127.0.0.1", server.getsockname()[1], ())))
        thread.join()
    assert refused.value.code == errno.EPROTO


def told_by(work: Callable[[socket.socket], None]) -> int:
    """The errno of asking an end that does this with who asks."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            asking, _ = server.accept()
            with asking, contextlib.suppress(OSError):
                work(asking)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(Refused) as refused:
            reach.ask(reach.gid_of(Reach("127.0.0.1", server.getsockname()[1], ())))
        thread.join()
    return refused.value.code


@pytest.mark.parametrize(
    "said",
    [
        b"[" * 200_000 + b"\n",
        b'{"openmrc": ' + b"9" * 5000 + b"}\n",
        b'{"openmrc": 3, "planes": ' + b'{"a":' * 100_000 + b"\n",
        '{"openmrc": 3}\n'.encode("utf-16"),
        b"{}" * 600_000,
        b'{"openmrc": 3, "planes": []}',
    ],
)
def test_whatever_an_end_answers_is_refused_as_no_end(said: bytes) -> None:
    assert told_by(lambda asking: asking.sendall(said)) == errno.EPROTO


def test_an_end_that_drips_is_given_up_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "PATIENCE_S", 0.3)

    def drip(asking: socket.socket) -> None:
        while True:
            asking.sendall(b" ")
            time.sleep(0.02)

    began = time.monotonic()
    assert told_by(drip) == errno.ETIMEDOUT
    assert time.monotonic() - began < 20.0  # and not for ever


def test_who_asks_and_does_not_read_delays_nobody() -> None:
    planes = (Reach("127.0.0.1", free_port(), tuple(range(50_000, 50_064))),)
    with contextlib.closing(reach.Answering(planes)) as answering, contextlib.ExitStack() as held:
        for _ in range(50):
            held.enter_context(socket.create_connection(("127.0.0.1", planes[0].port)))
        began = time.monotonic()
        assert reach.ask(reach.gid_of(planes[0])) == planes
        assert time.monotonic() - began < reach.PATIENCE_S  # of each of the fifty
        assert answering._thread.is_alive()


def test_without_descriptors_for_a_while_it_answers_again() -> None:
    """The system's own refusal, of the thread that accepts."""
    planes = (Reach("127.0.0.1", free_port(), (50_000,)),)
    with contextlib.closing(reach.Answering(planes)) as answering:
        with socket.socket() as asking, without_descriptors():
            asking.connect(("127.0.0.1", planes[0].port))
            time.sleep(0.1)
        assert reach.ask(reach.gid_of(planes[0])) == planes
        assert answering._thread.is_alive()
