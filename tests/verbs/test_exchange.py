"""The secret handshake, the exchange of attributes, and a peer that leaves."""

from __future__ import annotations

import contextlib
import hmac
import json
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any, cast

import pytest

from openmrc.errors import InputError
from openmrc.verbs import QpState, Status, door, exchange
from openmrc.verbs import line as line_module
from openmrc.verbs.attributes import QpAttributes
from openmrc.verbs.line import CLIENT, NONCE_BYTES, PROOF_S, SERVER, VERSION, ExchangeError, Line
from tests.live.two import PATIENCE_S, cabled
from tests.verbs.strangers import turns_away

LINGER_NOT = struct.pack("ii", 1, 0)  # closing resets the connection
SECRET, OTHER = bytes(range(32)), bytes(range(1, 33))


def in_background(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    return thread, found


def test_two_ends_meet_write_and_part() -> None:
    with cabled() as (a, b), exchange.Listener(0, SECRET) as listener:
        ca, cb = a.create_cq(), b.create_cq()
        one, two = a.create_qp(ca), b.create_qp(cb)
        room = bytearray(1000)
        sink = b.reg_mr(room)
        thread, found = in_background(lambda: listener.accept(two, [sink], {"rank": 1}))
        with exchange.connect(one, "127.0.0.1", listener.port, SECRET) as peer:
            thread.join(PATIENCE_S)
            assert peer.extra == {"rank": 1}
            [there] = peer.regions
            assert there == sink.remote
            source = a.reg_mr(bytearray(b"x" * 1000))
            one.post_write(1, source, remote_addr=there.addr, rkey=there.rkey)
            assert ca.wait(timeout=PATIENCE_S)[0].status == Status.SUCCESS
            two.post_recv(5)
        # row 28: who only waits learns that the peer is gone
        [flushed] = cb.wait(timeout=PATIENCE_S)
        assert (flushed.wr_id, flushed.status) == (5, Status.WR_FLUSH_ERR)
        assert two.state == QpState.ERROR
        found[0].close()
    assert bytes(room) == b"x" * 1000


def test_who_does_not_know_the_secret_is_turned_away_and_the_next_one_taken() -> None:
    with cabled() as (a, b), exchange.Listener(0, SECRET) as listener:
        one, two = a.create_qp(a.create_cq()), b.create_qp(b.create_cq())
        thread, found = in_background(lambda: listener.accept(two))
        with pytest.raises(ExchangeError, match="the peer"):
            exchange.connect(one, "127.0.0.1", listener.port, OTHER)
        assert one.state == QpState.RESET
        with socket.create_connection(("127.0.0.1", listener.port)) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        with exchange.connect(one, "127.0.0.1", listener.port, SECRET):
            thread.join(PATIENCE_S)
            found[0].close()


def test_nobody_there() -> None:
    with cabled() as (a, _), exchange.Listener(0, SECRET) as listener:
        qp = a.create_qp(a.create_cq())
        with pytest.raises(ExchangeError, match=r"nobody came within 0\.05 s"):
            listener.accept(qp, timeout=0.05)
    with cabled() as (a, _):
        qp = a.create_qp(a.create_cq())
        with pytest.raises(ExchangeError, match="port 9: "):
            exchange.connect(qp, "127.0.0.1", 9, SECRET, timeout=0.01)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (("qp", "mpr", 0), "peer's mpr 0: 1 to 32640 is accepted"),
        (("qp", "psn", 1 << 30), "peer's psn 1073741824: 0 to 16777215 is accepted"),
        (("region", "rkey", -1), "peer's region's rkey -1: 0 to 4294967295 is accepted"),
    ],
)
def test_what_a_peer_says_is_held_against_what_can_be(
    spoil: tuple[str, str, int], why: str
) -> None:
    """The end that refuses names the field; the other one is told the same."""
    which, field, value = spoil
    with cabled() as (a, b), exchange.Listener(0, SECRET) as listener:
        qp = b.create_qp(b.create_cq())

        def accept() -> str:
            with pytest.raises(InputError) as refused:
                listener.accept(qp)
            return str(refused.value)

        thread, found = in_background(accept)
        line = Line(socket.create_connection(("127.0.0.1", listener.port)))
        line.authenticate(SECRET, CLIENT)
        one = a.create_qp(a.create_cq()).attributes.as_dict()
        region = {"addr": 0, "length": 8, "rkey": 7}
        (one if which == "qp" else region)[field] = value
        line.send({"qp": one, "regions": [region], "extra": None})
        line.receive()
        assert line.receive() == {"refused": why}
        thread.join(PATIENCE_S)
        line.close()
        assert found == [why]
        assert qp.state in (QpState.RESET, QpState.INIT)


def test_another_version_is_refused_and_hears_why() -> None:
    """Version 1 had no capabilities and no planes; what version 4 has, this one does not know."""
    for version in (1, VERSION + 1):
        with cabled() as (_, b), exchange.Listener(0, SECRET) as listener:
            qp = b.create_qp(b.create_cq())

            def accept(listener: Any = listener, qp: Any = qp) -> str:
                with pytest.raises(ExchangeError) as refused:
                    listener.accept(qp)
                return str(refused.value)

            thread, found = in_background(accept)
            line = Line(socket.create_connection(("127.0.0.1", listener.port)))
            mine = "ab" * NONCE_BYTES
            line.send({"openmrc": version, "nonce": mine})
            theirs = str(line.receive()["nonce"])
            text = f"client {theirs} {mine}".encode()
            line.send({"proof": hmac.new(SECRET, text, "sha256").hexdigest()})
            # the version is spoken of only to who knows the secret
            assert line.receive().keys() == {"proof"}
            told = line.receive()
            thread.join(PATIENCE_S)
            line.close()
        why = (
            f"the peer speaks version {version} of the wire, this end version {VERSION}:"
            " install the same openmrc at both ends"
        )
        assert told["refused"] == why
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{why}'"):  # of version 1
            QpAttributes(**told["qp"])
        assert found == [why]
        assert qp.state == QpState.RESET


LONG = {
    "text": "9" * 200_000,
    "number": 10**4000,
    "negative": -(10**3900),
    "control": "\x1b]0;x\x07" * 40,
}


@pytest.mark.parametrize("version", LONG.values(), ids=LONG)
def test_a_version_is_repeated_to_nobody_at_length(version: int | str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    hello = json.dumps({"openmrc": version, "nonce": "ab" * NONCE_BYTES})
    thread = threading.Thread(target=theirs.sendall, args=[hello.encode() + b"\n"])
    thread.start()
    line = Line(ours)
    with pytest.raises(ExchangeError) as refused:
        line.authenticate(SECRET, CLIENT)
    line.close()
    thread.join(PATIENCE_S)
    theirs.close()
    assert len(str(refused.value)) < 100
    assert str(refused.value).isprintable()


def test_an_end_that_is_refused_hears_why() -> None:
    """Send queues of different depth: the shallower one refuses, both ends know."""
    with (
        cabled() as (a, _),
        cabled(send_depth=16) as (_, b),
        exchange.Listener(0, SECRET) as listener,
    ):
        one, two = a.create_qp(a.create_cq()), b.create_qp(b.create_cq(), None, 16)

        def accept() -> str:
            with pytest.raises(InputError) as refused:
                listener.accept(two)
            return str(refused.value)

        thread, found = in_background(accept)
        with pytest.raises(ExchangeError, match="the peer refuses this end's attributes: peer's"):
            exchange.connect(one, "127.0.0.1", listener.port, SECRET)
        thread.join(PATIENCE_S)
        assert found == ["peer's send_depth is 256, this device tracks 16: open both with the same"]


def test_the_version_is_the_first_thing_that_an_end_says() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        line = Line(socket.create_connection(server.getsockname()))
        there, _ = server.accept()

    def authenticate() -> None:
        with pytest.raises(ExchangeError):
            line.authenticate(SECRET, CLIENT)

    thread, _ = in_background(authenticate)
    hello = json.loads(there.makefile("rb").readline())
    there.close()
    thread.join(PATIENCE_S)
    line.close()
    assert (hello["openmrc"], len(hello["nonce"])) == (VERSION, 64)


@pytest.mark.parametrize(
    "said",
    [
        b'{"openmrc": 3, "nonce": "\\ud800"}\n{"proof": "\\ud800"}\n',
        b'{"openmrc": 3, "nonce": "' + b"0" * 64 + b'"}\n{"proof": "\\ud800"}\n',
        b'{"openmrc": 3, "nonce": "' + b"0" * 64 + b'"}\n{"proof": 5}\n',
        b'{"openmrc": 3, "nonce": ' + b"[" * 100_000 + b"\n",
        b'{"openmrc": ' + b"9" * 4000 + b"}\n",
        b'{"openmrc": NaN, "nonce": "' + b"0" * 64 + b'"}\n',
        '{"openmrc": 3}\n'.encode("utf-16"),
        b"\xff\xfe\n",
        b"[]\n",
        b"",
    ],
)
def test_a_stranger_that_speaks_nonsense_does_not_know_the_secret(said: bytes) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as stranger,
        contextlib.closing(Line(server.accept()[0])) as line,
    ):
        stranger.sendall(said)
        stranger.shutdown(socket.SHUT_WR)
        with pytest.raises(ExchangeError):
            line.authenticate(SECRET, SERVER)


def hello_of(port: int) -> Line:
    """A client that has said hello, and not proven anything."""
    line = Line(socket.create_connection(("127.0.0.1", port)))
    line.send({"openmrc": VERSION, "nonce": "ab" * NONCE_BYTES})
    return line


def test_a_server_proves_nothing_to_who_has_not_proven_itself() -> None:
    """A proof is what guesses are tested with: a nonce is all that a stranger gets."""
    with exchange.Listener(0, SECRET) as listener:
        thread, _ = in_background(lambda: turns_away(listener._door, 1))
        line = hello_of(listener.port)
        assert line.receive().keys() == {"openmrc", "nonce"}
        line.send({"proof": "00" * 32})
        assert line.receive() == {"refused": "the secrets of both ends differ"}
        with pytest.raises(ExchangeError):
            line.receive()
        line.close()
        thread.join(PATIENCE_S)


def test_a_line_is_closed_before_its_peer_sees_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that was sent away comes back at once, and finds its place free."""
    seen: list[bool] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        line = Line(socket.create_connection(server.getsockname()))
    end = line_module.end

    def ended(*given: Any) -> None:
        seen.append(line.closed)
        end(*given)

    monkeypatch.setattr(line_module, "end", ended)
    line.close()
    assert seen == [True]


def test_a_client_proves_itself_to_no_reflection() -> None:
    """What repeats a client's own nonce gets no proof of it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        line = Line(socket.create_connection(server.getsockname()))
        there = Line(server.accept()[0])

    def reflect() -> list[Any]:
        there.send(there.receive())
        with pytest.raises(ExchangeError):
            there.receive()
        return []

    thread, _ = in_background(reflect)
    with pytest.raises(ExchangeError, match="does not know the secret"):
        line.authenticate(SECRET, CLIENT)
    line.close()
    thread.join(PATIENCE_S)
    there.close()


@pytest.mark.parametrize("weak", [b"", b"short", b"x" * 64, bytes(range(15))])
def test_a_secret_that_can_be_guessed_is_refused_at_both_ends(weak: bytes) -> None:
    for use in (
        lambda: exchange.Listener(0, weak),
        lambda: exchange.connect(cast(Any, None), "127.0.0.1", 9, weak),
    ):
        with pytest.raises(InputError, match="make one with: mrc secret"):
            use()


def drip(port: int, stop: threading.Event) -> threading.Thread:
    """A stranger that says a little and a little more, for as long as it is heard."""

    def work() -> None:
        with (
            socket.create_connection(("127.0.0.1", port)) as stranger,
            contextlib.suppress(OSError),
        ):
            while not stop.wait(0.05):
                stranger.send(b" ")

    thread = threading.Thread(target=work)
    thread.start()
    return thread


@pytest.mark.parametrize("attack", ["silent", "drip"])
def test_strangers_delay_neither_the_true_peer_nor_the_deadline(attack: str) -> None:
    stop = threading.Event()
    with cabled() as (a, b), exchange.Listener(0, SECRET) as listener:
        one, two = a.create_qp(a.create_cq()), b.create_qp(b.create_cq())
        silent = [socket.create_connection(("127.0.0.1", listener.port)) for _ in range(100)]
        drips = [drip(listener.port, stop) for _ in range(3 if attack == "drip" else 0)]
        began = time.monotonic()
        with pytest.raises(ExchangeError, match=r"nobody came within 0\.5 s"):
            listener.accept(two, timeout=0.5)
        assert time.monotonic() - began < PATIENCE_S
        thread, found = in_background(lambda: listener.accept(two))
        began = time.monotonic()
        with exchange.connect(one, "127.0.0.1", listener.port, SECRET):
            assert time.monotonic() - began < 10 * PROOF_S  # in turn, it would be a hundred
            thread.join(PATIENCE_S)
            found[0].close()
        stop.set()
        for each in silent:
            each.close()
        for work in drips:
            work.join(PATIENCE_S)


def test_a_stranger_is_given_up_at_its_deadline_however_often_it_speaks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(door, "PROOF_S", 0.3)
    stop = threading.Event()
    with exchange.Listener(0, SECRET) as listener:
        work = drip(listener.port, stop)
        turns_away(listener._door, 1)
        work.join(PATIENCE_S)  # it was sent away: it did not stop by itself
    assert not work.is_alive()


@pytest.mark.parametrize("after", range(3))
def test_a_peer_with_the_secret_that_leaves_or_stops_is_a_line_and_no_error_of_the_system(
    after: int,
) -> None:
    """At any point of the exchange; what it does not say ends at `accept`'s own deadline."""
    with cabled() as (a, b), exchange.Listener(0, SECRET) as listener:
        said: list[dict[str, Any]] = [
            {"qp": a.create_qp(a.create_cq()).attributes.as_dict(), "regions": [], "extra": None},
            {"connected": True},
        ]
        for leaves in (True, False):
            two = b.create_qp(b.create_cq())

            def accept(two: Any = two, leaves: bool = leaves) -> tuple[str, float]:
                began = time.monotonic()
                with pytest.raises(ExchangeError) as error:
                    listener.accept(two, timeout=PATIENCE_S if leaves else 2.0)
                return str(error.value), time.monotonic() - began

            thread, found = in_background(accept)
            line = Line.to("127.0.0.1", listener.port, PATIENCE_S)
            line.authenticate(SECRET, CLIENT)
            line.send(*said[:after])
            if leaves:
                line._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
                line.close()
            thread.join(PATIENCE_S)
            line.close()
            [(why, took_s)] = found
            assert why.startswith("the peer closed" if leaves else "the peer says nothing more")
            assert took_s < PATIENCE_S
            two.destroy()
