"""A child of fork has a copy of its parent's device, and nothing that drives it: whatever it tries
ends at once, and its parent does not notice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from openmrc.errors import OpenMrcError
from openmrc.verbs import Device, QpState, exchange
from openmrc.verbs.status import Status
from tests.live.two import PATIENCE_S, End, connected
from tests.verbs.forked import forked

SECRET = bytes(range(32))
TRIED: dict[str, Callable[[End], object]] = {
    "register memory": lambda end: end.device.reg_mr(bytearray(8)),
    "create a completion queue": lambda end: end.device.create_cq(),
    "create a queue pair": lambda end: end.device.create_qp(end.cq),
    "post a receive": lambda end: end.qp.post_recv(1),
    "poll": lambda end: end.cq.poll(),
    "wait": lambda end: end.cq.wait(1, 1.0),
    "look": lambda end: end.cq.look(0, 10**9),
    "events": lambda end: end.device.events(),
    "a port": lambda end: end.device.set_port(0, False),
    "end a queue pair": lambda end: end.qp.modify(QpState.ERROR),
    "destroy a queue pair": lambda end: end.qp.destroy(),
    "destroy a completion queue": lambda end: end.device.destroy_cq(end.device.create_cq()),
}


def moves(a: End, b: End) -> None:
    """A write from one end to the other arrives."""
    source, sink = a.device.reg_mr(bytearray(b"x" * 9000)), b.device.reg_mr(bytearray(9000))
    a.qp.post_write(7, source, remote_addr=sink.addr, rkey=sink.rkey)
    [done] = a.cq.wait(timeout=PATIENCE_S)
    assert (done.wr_id, done.status) == (7, Status.SUCCESS)
    assert bytes(sink.buffer) == b"x" * 9000
    for mr in (source, sink):
        mr.dereg()


@pytest.mark.parametrize("what", sorted(TRIED))
def test_a_child_is_told_whose_device_it_is(what: str) -> None:
    with connected() as (a, b):

        def child() -> None:
            with pytest.raises(OpenMrcError, match="opens its own"):
                TRIED[what](a)

        with forked(child):
            moves(a, b)
        moves(b, a)


def test_a_child_posts_and_deregisters_nothing() -> None:
    with connected() as (a, b):
        mr, sink = a.device.reg_mr(bytearray(64)), b.device.reg_mr(bytearray(64))

        def child() -> None:
            with pytest.raises(OpenMrcError, match="opens its own"):
                a.qp.post_write(1, mr, remote_addr=sink.addr, rkey=sink.rkey)
            with pytest.raises(OpenMrcError, match="opens its own"):
                mr.dereg()
            assert mr.open

        with forked(child):
            pass
        assert a.cq.wait(timeout=0.05) == []
        moves(a, b)


def test_a_child_closes_what_it_inherited_and_its_parent_goes_on() -> None:
    with connected() as (a, b):

        def child() -> None:
            a.device.close()
            a.device.close()
            with pytest.raises(OpenMrcError):
                a.device.create_cq()

        with forked(child):
            moves(a, b)
        moves(a, b)


def test_a_child_leaves_an_exchange_to_its_parent() -> None:
    """Its end of the connection is the parent's: closing it there would end the queue pair."""
    with (
        Device.on_network(["127.0.14.1"]) as one,
        Device.on_network(["127.0.14.2"]) as other,
        exchange.Listener(0, SECRET) as listener,
    ):
        qp, cq = one.create_qp(one.create_cq()), other.create_cq()
        there = other.create_qp(cq)
        found: list[exchange.Peer] = []
        accepting = threading.Thread(target=lambda: found.append(listener.accept(there)))
        accepting.start()
        with exchange.connect(qp, "127.0.0.1", listener.port, SECRET) as peer:
            accepting.join()

            def child() -> None:
                peer.close()
                listener.close()
                one.close()

            with forked(child):
                pass
            assert not found[0].wait(0.2)
            assert (qp.state, there.state) == (QpState.RTS, QpState.RTS)
        assert found[0].wait(PATIENCE_S)
        found[0].close()


def test_memory_that_is_sent_from_stays_registered() -> None:
    with connected() as (a, b):
        source, sink = a.device.reg_mr(bytearray(64)), b.device.reg_mr(bytearray(64))
        other = a.device.reg_mr(source.buffer)
        b.qp.modify(QpState.ERROR)  # it answers no more
        a.qp.post_write(1, source, remote_addr=sink.addr, rkey=sink.rkey)
        with pytest.raises(OpenMrcError, match="still sends from it"):
            source.dereg()
        assert source.open
        other.dereg()  # the same bytes, with which nothing was sent
        a.qp.modify(QpState.ERROR)
        source.dereg()
        assert not source.open


def test_memory_is_free_after_its_completion_or_with_its_queue_pair() -> None:
    with connected() as (a, b):
        moves(a, b)
        source, sink = a.device.reg_mr(bytearray(64)), b.device.reg_mr(bytearray(64))
        b.qp.modify(QpState.ERROR)
        a.qp.post_write(1, source, remote_addr=sink.addr, rkey=sink.rkey)
        with pytest.raises(OpenMrcError):
            source.dereg()
        a.qp.destroy()
        source.dereg()
