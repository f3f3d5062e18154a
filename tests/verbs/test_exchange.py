"""The secret handshake, the exchange of attributes, and a peer that leaves."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from openmrc.errors import InputError
from openmrc.verbs import QpState, Status, exchange
from openmrc.verbs.attributes import QpAttributes
from openmrc.verbs.exchange import ExchangeError
from tests.live.two import PATIENCE_S, cabled

SECRET = b"of the job"


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
            exchange.connect(one, "127.0.0.1", listener.port, b"another")
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
        line = exchange.Line(socket.create_connection(("127.0.0.1", listener.port)))
        line.authenticate(SECRET, exchange.CLIENT)
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
    """Version 1 had no capabilities and no planes; what version 3 has, this one does not know."""
    for version in (1, 3):
        with cabled() as (_, b), exchange.Listener(0, SECRET) as listener:
            qp = b.create_qp(b.create_cq())

            def accept(listener: Any = listener, qp: Any = qp) -> str:
                with pytest.raises(ExchangeError) as refused:
                    listener.accept(qp)
                return str(refused.value)

            thread, found = in_background(accept)
            line = exchange.Line(socket.create_connection(("127.0.0.1", listener.port)))
            line.send({"openmrc": version, "nonce": "mine"})
            theirs = str(line.receive()["nonce"])
            line.send({"proof": exchange._proof(SECRET, exchange.CLIENT, theirs, "mine")})
            assert (
                "proof" in line.receive()
            )  # the version is spoken of only to who knows the secret
            told = line.receive()
            thread.join(PATIENCE_S)
            line.close()
        why = (
            f"the peer speaks version {version} of the wire, this end version 2:"
            " install the same openmrc at both ends"
        )
        assert told["refused"] == why
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{why}'"):  # of version 1
            QpAttributes(**told["qp"])
        assert found == [why]
        assert qp.state == QpState.RESET


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
        line = exchange.Line(socket.create_connection(server.getsockname()))
        there, _ = server.accept()

    def authenticate() -> None:
        with pytest.raises(ExchangeError):
            line.authenticate(b"s", exchange.CLIENT)

    thread, _ = in_background(authenticate)
    hello = json.loads(there.makefile("rb").readline())
    there.close()
    thread.join(PATIENCE_S)
    line.close()
    assert (hello["openmrc"], len(hello["nonce"])) == (exchange.VERSION, 64)


@pytest.mark.parametrize(
    "said",
    [
        b'{"openmrc": 2, "nonce": "\\ud800"}\n{"proof": "\\ud800"}\n',
        b'{"openmrc": 2, "nonce": ' + b"[" * 100_000 + b"\n",
        b"[]\n",
    ],
)
def test_a_stranger_that_speaks_nonsense_does_not_know_the_secret(said: bytes) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as stranger,
        contextlib.closing(exchange.Line(server.accept()[0])) as line,
    ):
        stranger.sendall(said)
        with pytest.raises(ExchangeError):
            line.authenticate(SECRET, exchange.SERVER)
