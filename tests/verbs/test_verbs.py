"""Two processes' worth of verbs in one: what an application posts, it gets, byte for byte."""

from __future__ import annotations

import asyncio
import errno
import mmap
import os
import selectors
import threading
from dataclasses import replace
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np
import pytest

from openmrc.engine.qp import STEPS
from openmrc.errors import InputError, OpenMrcError
from openmrc.live.endpoint.limits import Limits
from openmrc.verbs import (
    LOCAL_WRITE,
    EventKind,
    Opcode,
    QpAttributes,
    QpState,
    QueueFullError,
    QueuePair,
    RemoteRegion,
    Status,
    WorkCompletion,
)
from tests.live.two import PATIENCE_S, End, cabled, connected

MB = 1 << 20


def random_bytes(n: int, seed: int = 1) -> Any:
    return np.random.default_rng(seed).integers(0, 256, n, dtype=np.uint8)


def write(a: End, b: End, data: Any, room: Any) -> WorkCompletion:
    """Register both, write all of one to the other, wait."""
    source, sink = a.device.reg_mr(data), b.device.reg_mr(room)
    a.qp.post_write(7, source, remote_addr=sink.addr, rkey=sink.rkey)
    [done] = a.cq.wait(timeout=PATIENCE_S)
    source.dereg()
    sink.dereg()
    return done


# --- data -------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 4095, 4096, 4097, 5 * MB + 3])
def test_what_is_written_arrives(n: int) -> None:
    data, room = random_bytes(n + 1)[:n], np.zeros(max(n, 1), np.uint8)
    with connected() as (a, b):
        source, sink = a.device.reg_mr(random_bytes(n + 1)), b.device.reg_mr(room)
        a.qp.post_write(7, source, 0, n, remote_addr=sink.addr, rkey=sink.rkey)
        [done] = a.cq.wait(timeout=PATIENCE_S)
        assert done == WorkCompletion(7, Status.SUCCESS, Opcode.RDMA_WRITE, a.qp.qp_num, n, None)
    assert (room[:n] == data).all()


def test_every_plane_carries_its_share() -> None:
    with connected(planes=4) as (a, b):
        write(a, b, random_bytes(4 * MB), bytearray(4 * MB))
        sent = [port["tx_packets"] for port in a.device.counters()["ports"]]
        received = [port["rx_bytes"] for port in b.device.counters()["ports"]]
    assert min(sent) > 0.15 * sum(sent)
    assert min(received) > 0.15 * sum(received)


def test_any_writable_memory_will_do() -> None:
    data = random_bytes(10_000)
    shared = SharedMemory(create=True, size=10_000)
    mapped = mmap.mmap(-1, 10_000)
    with connected() as (a, b):
        rooms: list[Any] = [bytearray(10_000), np.zeros(5_000, np.int16), mapped, shared.buf]
        for room in rooms:
            assert write(a, b, data, room).status == Status.SUCCESS
            assert bytes(memoryview(room).cast("B"))[:10_000] == data.tobytes()
            del room
        del rooms
    shared.close()
    shared.unlink()


@pytest.mark.parametrize(
    ("buffer", "why"),
    [
        (b"constant", "bytes: read-only memory"),
        (7, "int: not a buffer"),
        (np.zeros((4, 4))[:, ::2], "ndarray: only contiguous memory"),
    ],
)
def test_other_memory_is_refused(buffer: Any, why: str) -> None:
    with cabled() as (a, _), pytest.raises(InputError, match=why):
        a.reg_mr(buffer)


def test_a_slice_of_a_region_goes_where_it_is_sent() -> None:
    data, room = random_bytes(100_000), np.zeros(100_000, np.uint8)
    with connected() as (a, b):
        source, sink = a.device.reg_mr(data), b.device.reg_mr(room)
        a.qp.post_write(1, source, 500, 70_001, remote_addr=sink.addr + 13, rkey=sink.rkey)
        assert a.cq.wait(timeout=PATIENCE_S)
        with pytest.raises(InputError, match="100001 bytes from 0 on: the region has 100000"):
            a.qp.post_write(1, source, 0, 100_001, remote_addr=sink.addr, rkey=sink.rkey)
    assert (room[13:70_014] == data[500:70_501]).all()
    assert not room[:13].any()
    assert not room[70_014:].any()


# --- immediates -------------------------------------------------------------------------------


def test_immediates_come_in_order_with_what_was_before_them() -> None:
    """MRC 1.3: the receive completion of an immediate says that all before it is there."""
    room = np.zeros(64 * 40_000, np.uint8)
    with connected(planes=4) as (a, b):
        source, sink = a.device.reg_mr(np.ones(40_000, np.uint8)), b.device.reg_mr(room)
        for i in range(64):
            b.qp.post_recv(1000 + i)
        for i in range(64):
            at = sink.addr + i * 40_000
            a.qp.post_write_imm(
                i, source, remote_addr=at, rkey=sink.rkey, imm_data=i, signaled=i == 63
            )
        for i in range(64):
            [got] = b.cq.wait(timeout=PATIENCE_S)
            assert (got.wr_id, got.imm_data, got.byte_len) == (1000 + i, i, 40_000)
            assert got.opcode == Opcode.RECV_RDMA_WITH_IMM
            assert room[: (i + 1) * 40_000].all()
        [sent] = a.cq.wait(timeout=PATIENCE_S)
        assert sent.wr_id == 63  # the others were not signaled


def test_an_immediate_without_a_receive_ends_both() -> None:
    """MRC 1.2: receives must be posted before."""
    with connected() as (a, b):
        source, sink = a.device.reg_mr(bytearray(100)), b.device.reg_mr(bytearray(100))
        a.qp.post_write_imm(3, source, remote_addr=sink.addr, rkey=sink.rkey, imm_data=1)
        [done] = a.cq.wait(timeout=PATIENCE_S)
        assert (done.wr_id, done.status) == (3, Status.REM_INV_REQ_ERR)
        [event] = b.device.events(PATIENCE_S)
        assert event.kind == EventKind.QP_ERROR
        assert event.error == b.qp.error == "no receive posted for an immediate"
        assert a.qp.state == b.qp.state == QpState.ERROR


# --- what a peer may not ------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["rkey", "bounds", "right", "withdrawn"])
def test_memory_that_is_not_offered_is_not_written(what: str) -> None:
    room = np.zeros(10_000, np.uint8)
    with connected(rto_exponent=10) as (a, b):
        source = a.device.reg_mr(np.ones(5_000, np.uint8))
        sink = b.device.reg_mr(room, LOCAL_WRITE if what == "right" else 3)
        if what == "withdrawn":
            sink.dereg()
        rkey = sink.rkey ^ (1 << 31) if what == "rkey" else sink.rkey
        at = sink.addr + (5_001 if what == "bounds" else 0)
        a.qp.post_write(9, source, remote_addr=at, rkey=rkey)
        [done] = a.cq.wait(timeout=PATIENCE_S)
        assert done.status == Status.REM_ACCESS_ERR
        refused = sum(
            port["refused"].get("wrong rkey, out of bounds or no write right", 0)
            for port in b.device.counters()["ports"]
        )
        assert refused >= 3
    assert not room[5_001:].any() or what == "bounds"
    assert not room[:5_000].any()


# --- queues -----------------------------------------------------------------------------------


def test_a_full_queue_says_so_and_loses_nothing() -> None:
    with connected() as (a, b):
        small = b.device.create_qp(b.cq, max_send_wr=2, max_recv_wr=2)
        with pytest.raises(OpenMrcError, match="in RESET"):
            small.post_recv(1)
        shallow = a.device.create_cq(depth=3)
        qp = a.device.create_qp(shallow, a.cq, max_recv_wr=2)
        peer = b.device.create_qp(b.cq)
        qp.connect(peer.attributes)
        peer.connect(qp.attributes)
        source, sink = a.device.reg_mr(bytearray(8)), b.device.reg_mr(bytearray(8))
        for i in range(3):
            qp.post_write(i, source, remote_addr=sink.addr, rkey=sink.rkey)
        with pytest.raises(QueueFullError, match="completion queue: 3 completions may come"):
            qp.post_write(3, source, remote_addr=sink.addr, rkey=sink.rkey)
        assert [c.wr_id for c in shallow.wait(3, timeout=PATIENCE_S)] == [0, 1, 2]
        qp.post_write(3, source, remote_addr=sink.addr, rkey=sink.rkey)
        assert shallow.wait(1, timeout=PATIENCE_S)
        qp.post_recv(1)
        qp.post_recv(2)
        with pytest.raises(QueueFullError, match="2 receives are posted"):
            qp.post_recv(3)


def test_unsignaled_requests_leave_no_trace_in_the_queue() -> None:
    with connected() as (a, b):
        cq = a.device.create_cq(depth=4)
        qp, peer = a.device.create_qp(cq), b.device.create_qp(b.cq)
        qp.connect(peer.attributes)
        peer.connect(qp.attributes)
        source, sink = a.device.reg_mr(bytearray(8)), b.device.reg_mr(bytearray(8))
        for i in range(20):
            if i % 4 == 3:  # by then the three before it are complete as well
                qp.post_write(i, source, remote_addr=sink.addr, rkey=sink.rkey)
                assert [c.wr_id for c in cq.wait(timeout=PATIENCE_S)] == [i]
            else:
                qp.post_write(i, source, remote_addr=sink.addr, rkey=sink.rkey, signaled=False)


def test_a_selector_and_asyncio_wait_for_completions() -> None:
    with connected() as (a, b):
        source, sink = a.device.reg_mr(bytearray(8)), b.device.reg_mr(bytearray(8))
        with selectors.DefaultSelector() as selector:
            selector.register(a.cq, selectors.EVENT_READ)
            assert selector.select(0) == []
            a.qp.post_write(1, source, remote_addr=sink.addr, rkey=sink.rkey)
            assert selector.select(PATIENCE_S)
            assert [c.wr_id for c in a.cq.poll()] == [1]
            assert selector.select(0) == []

        async def two() -> list[int]:
            for i in (2, 3):
                a.qp.post_write(i, source, remote_addr=sink.addr, rkey=sink.rkey)
            found = []
            async for completion in a.cq:
                found.append(completion.wr_id)
                if len(found) == 2:
                    break
            return found

        assert asyncio.run(asyncio.wait_for(two(), PATIENCE_S)) == [2, 3]


# --- the life of a queue pair -----------------------------------------------------------------


def assert_no_other_step(qp: QueuePair) -> None:
    """Only what the table allows can be asked for; ERROR always can."""
    for to in set(QpState) - {*STEPS[qp.state], QpState.ERROR}:
        with pytest.raises(OpenMrcError, match=f"{qp.state.name} -> {to.name} is no step"):
            qp.modify(to)


def test_states_come_one_after_the_other() -> None:
    with cabled() as (a, b):
        qp = a.create_qp(a.create_cq())
        other = b.create_qp(b.create_cq())
        assert qp.state.name == "RESET"
        assert_no_other_step(qp)
        mr = a.reg_mr(bytearray(8))
        with pytest.raises(OpenMrcError, match="is in RESET: connect it first"):
            qp.post_write(1, mr, remote_addr=0, rkey=0)
        qp.modify(QpState.INIT)
        assert_no_other_step(qp)
        with pytest.raises(OpenMrcError, match="RTR needs the peer's attributes"):
            qp.modify(QpState.RTR)
        qp.modify(QpState.RTR, other.attributes)
        assert_no_other_step(qp)
        qp.modify(QpState.RTS)
        assert qp.state.name == "RTS"
        assert_no_other_step(qp)


def test_an_error_flushes_what_is_posted() -> None:
    with connected() as (a, b):
        for i in range(3):
            a.qp.post_recv(i)
        b.qp.destroy()  # nobody answers any more
        source = a.device.reg_mr(bytearray(100_000))
        for i in range(10, 13):
            a.qp.post_write(i, source, remote_addr=0, rkey=0)
        a.qp.modify(QpState.ERROR)
        flushed = a.cq.wait(6, timeout=PATIENCE_S)
        assert [c.wr_id for c in flushed] == [10, 11, 12, 0, 1, 2]
        assert {c.status for c in flushed} == {Status.WR_FLUSH_ERR}
        a.qp.post_write(99, source, remote_addr=0, rkey=0)  # too late, and said so
        [late] = a.cq.wait(timeout=PATIENCE_S)
        assert (late.wr_id, late.status) == (99, Status.WR_FLUSH_ERR)


def test_a_peer_that_is_gone_is_an_error_within_the_retry_time() -> None:
    """Row 9 with t = 5: 4 x (T + target) is longer, 3.5 ms; 2 + 1 epochs of that and twice that."""
    with connected(rto_exponent=5, linear_cnt=2, exp_cnt=1) as (a, b):
        b.qp.destroy()
        source = a.device.reg_mr(bytearray(100_000))
        for i in range(3):
            a.qp.post_write(i, source, remote_addr=0, rkey=0)
        done = a.cq.wait(3, timeout=PATIENCE_S)
        assert [c.status for c in done] == [
            Status.RETRY_EXC_ERR,
            Status.WR_FLUSH_ERR,
            Status.WR_FLUSH_ERR,
        ]
        errors = [e for e in a.device.events(PATIENCE_S) if e.kind == EventKind.QP_ERROR]
        assert [e.error for e in errors] == ["retry counter exceeded"]


def test_row_28_a_qpn_rests_before_it_is_used_again() -> None:
    """Row 28: a QPN is not used again for a minute."""
    with cabled(qps=2) as (a, _):
        cq = a.create_cq()
        for _ in range(2):
            a.create_qp(cq).destroy()
        with pytest.raises(OpenMrcError, match="a number rests 60 s after use"):
            a.create_qp(cq)


@pytest.mark.parametrize(("mine", "theirs"), [(4096, 1024), (2048, 8192)])
def test_the_smaller_pmtu_is_used(mine: int, theirs: int) -> None:
    """Row 20."""
    with cabled(pmtu=mine) as (a, _), cabled(pmtu=theirs) as (_, b):
        one, two = a.create_qp(a.create_cq()), b.create_qp(b.create_cq())
        first, second = one.attributes, two.attributes
        one.connect(second)
        two.connect(first)
        assert a.pmtu == b.pmtu == min(mine, theirs)
        larger, smaller = (a, b) if mine > theirs else (b, a)
        assert larger.pmtu_note == (
            f"PMTU {smaller.pmtu} B in place of {max(mine, theirs)}: the peer has room for no more"
        )
        assert smaller.pmtu_note == ""


@pytest.mark.parametrize(("mtu", "pmtu"), [(1500, 1024), (1156, 1024), (4227, 2048), (4228, 4096)])
def test_what_fits_the_network_is_used_and_said(mtu: int, pmtu: int) -> None:
    """Row 20: on links of 1500 bytes it works at 1024."""
    with cabled(mtu=mtu) as (a, b):
        assert a.pmtu == b.pmtu == pmtu
        note = (
            f"PMTU {pmtu} B in place of 4096: a port has an MTU of {mtu}, 4096 needs 4228 on the"
            " whole path (ip link set DEVICE mtu 4228)"
        )
        assert a.pmtu_note == ("" if pmtu == 4096 else note)
    with (
        pytest.raises(InputError, match="MTU 1155 has no room for 1024 B of data; set it to 1156"),
        cabled(mtu=1155),
    ):
        pass


def test_status_opcode_and_state_have_the_numbers_of_ibverbs() -> None:
    """As libibverbs' verbs.h has had them since its first version."""
    assert {s.name: s.value for s in Status} == {
        "SUCCESS": 0,
        "WR_FLUSH_ERR": 5,
        "REM_INV_REQ_ERR": 9,
        "REM_ACCESS_ERR": 10,
        "REM_OP_ERR": 11,
        "RETRY_EXC_ERR": 12,
        "GENERAL_ERR": 21,
    }
    assert (Opcode.RDMA_WRITE, Opcode.RECV_RDMA_WITH_IMM) == (1, 129)
    assert [state.value for state in QpState] == [0, 1, 2, 3, 6]


GOOD = QpAttributes(
    nic=1, qp_num=77, psn=0, pmtu=4096, mpr=512, max_wimm=128, send_depth=256, trim_nack=True
)


@pytest.mark.parametrize(
    ("field", "value", "accepted"),
    [
        ("nic", 2, "another of 0 to 1 is accepted"),
        ("nic", -1, "0 to 2147483647 is accepted"),
        ("qp_num", 2, "3 to 16777215 is accepted"),
        ("qp_num", 1 << 24, "3 to 16777215 is accepted"),
        ("psn", -1, "0 to 16777215 is accepted"),
        ("psn", 1 << 24, "0 to 16777215 is accepted"),
        ("pmtu", 512, "1024 to 8192 is accepted"),
        ("pmtu", 5000, "1024, 2048, 4096, 8192 are accepted (row 20)"),
        ("mpr", 0, "1 to 32640 is accepted"),
        ("mpr", 12.5, "1 to 32640 is accepted"),
        ("mpr", "many", "1 to 32640 is accepted"),
        ("max_wimm", 0, "1 to 32640 is accepted"),
        ("send_depth", 0, "is accepted"),
        ("send_depth", 257, "open both with the same"),
        ("send_depth", True, "is accepted"),
        ("trim_nack", 1, "true or false is accepted"),
        ("dynamic_mpr", "no", "true or false is accepted"),
        ("svc_time", None, "true or false is accepted"),
    ],
)
def test_attributes_that_no_peer_has_are_refused(field: str, value: Any, accepted: str) -> None:
    """Nothing of a peer is believed as it comes; with an MPR of 0 nothing would ever be sent."""
    with cabled() as (a, _):
        qp = a.create_qp(a.create_cq())
        with pytest.raises(InputError, match=f"^peer's {field} ") as refused:
            qp.connect(replace(GOOD, **{field: value}))
        assert accepted in str(refused.value)
        assert qp.state.name == "INIT"
        qp.connect(GOOD)
        assert qp.state.name == "RTS"


@pytest.mark.parametrize(
    ("region", "why"),
    [
        (RemoteRegion(-1, 10, 1), "peer's region's addr -1: "),
        (RemoteRegion(0, -10, 1), "peer's region's length -10: "),
        (RemoteRegion(0, 10, 1 << 32), "peer's region's rkey 4294967296: 0 to 4294967295"),
        (RemoteRegion((1 << 64) - 5, 10, 1), "peer's region's length 10: it ends behind all"),
    ],
)
def test_regions_that_cannot_be_are_refused(region: RemoteRegion, why: str) -> None:
    with pytest.raises(InputError, match=why):
        region.check()


# --- a loop that ends ---------------------------------------------------------------------------


def test_a_loop_that_fails_tells_whoever_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for ever: requests are flushed, calls raise with the reason, closing works."""

    def fail() -> None:
        raise ValueError("of a test")

    with connected() as (a, b):
        host = a.device._host
        source, sink = a.device.reg_mr(bytearray(100)), b.device.reg_mr(bytearray(100))
        a.qp.post_recv(5)
        monkeypatch.setattr(host, "_look_at_links", fail)
        host.wake()
        host.ep.ctl[0].attention = 1
        host._thread.join(PATIENCE_S)
        assert not host._thread.is_alive()
        [flushed] = a.cq.wait(timeout=PATIENCE_S)
        assert (flushed.wr_id, flushed.status) == (5, Status.WR_FLUSH_ERR)
        assert a.qp.state == QpState.ERROR
        why = r"nic 0: the device's loop has ended: ValueError\('of a test'\)"
        with pytest.raises(OpenMrcError, match=why) as raised:
            a.device.reg_mr(bytearray(8))
        assert isinstance(raised.value.__cause__, ValueError)
        with pytest.raises(OpenMrcError, match=why):
            a.qp.post_write(1, source, remote_addr=sink.addr, rkey=sink.rkey)
        with pytest.raises(OpenMrcError, match=why):
            a.qp.destroy()
    assert host.closed


def test_a_call_that_waits_while_the_loop_fails_hears_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with cabled() as (a, _):
        host, between_turns = a._host, threading.Event()

        def fail() -> None:
            between_turns.set()
            while not host._calls:  # somebody has asked, and waits
                pass
            raise ValueError("of a test")

        monkeypatch.setattr(host, "_look_at_links", fail)
        host.ep.ctl[0].attention = 1
        host.wake()
        assert between_turns.wait(PATIENCE_S)
        with pytest.raises(OpenMrcError, match="the device's loop has ended"):
            host.call(lambda: 1)


# --- ports ------------------------------------------------------------------------------------


def test_a_port_that_goes_down_leaves_the_turn_at_both_ends() -> None:
    """MRC 3.10: the other end is told, and sends nothing there any more."""
    room = bytearray(20 * MB)
    with connected(planes=4) as (a, b):
        source, sink = a.device.reg_mr(random_bytes(MB)), b.device.reg_mr(room)
        b.device.set_port(2, up=False)
        [down] = b.device.events(PATIENCE_S)
        assert (down.kind, down.plane) == (EventKind.PORT_DOWN, 2)
        a.qp.post_write(0, source, remote_addr=sink.addr, rkey=sink.rkey)
        assert a.cq.wait(timeout=PATIENCE_S)
        before = a.device.counters()["ports"][2]["tx_packets"]
        for i in range(10):
            at = sink.addr + i * MB
            a.qp.post_write(i, source, remote_addr=at, rkey=sink.rkey)
        assert {c.status for c in a.cq.wait(10, timeout=PATIENCE_S)} == {Status.SUCCESS}
        sent = [port["tx_packets"] for port in a.device.counters()["ports"]]
        assert sent[2] - before <= 10  # probes, if any
        assert min(sent[:2]) > 500
        b.device.set_port(2, up=True)
        assert b.device.events(PATIENCE_S)[0].kind == EventKind.PORT_UP
        for i in range(10):
            a.qp.post_write(i, source, remote_addr=sink.addr, rkey=sink.rkey)
        assert len(a.cq.wait(10, timeout=PATIENCE_S)) == 10
        assert a.device.counters()["ports"][2]["tx_packets"] > sent[2] + 100
    assert bytes(room[:MB]) == random_bytes(MB).tobytes()


def test_a_loop_carries_on_while_the_kernel_is_asked_about_a_port(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The kernel may answer only after a second, if somebody configures a network meanwhile."""
    asked, answered = threading.Event(), threading.Event()
    with connected(planes=4) as (a, b):
        host = a.device._host
        source, sink = a.device.reg_mr(random_bytes(MB)), b.device.reg_mr(bytearray(MB))

        def wait() -> None:
            assert answered.wait(PATIENCE_S)
            host._hear_of_links([(2, False)])

        kernel = threading.Thread(target=wait)
        kernel.start()
        monkeypatch.setattr(host._lookout, "ask", asked.set)
        host.ep.port[2].failed = errno.ENOBUFS
        host.wake()
        assert asked.wait(PATIENCE_S)
        a.qp.post_write(0, source, remote_addr=sink.addr, rkey=sink.rkey)
        assert a.cq.wait(timeout=PATIENCE_S)
        assert EventKind.PORT_DOWN not in {event.kind for event in a.device.events(0)}
        answered.set()
        kernel.join()
        down = [one for one in a.device.events(PATIENCE_S) if one.kind == EventKind.PORT_DOWN]
        assert [one.plane for one in down] == [2]
        assert host.ep.port[2].failed == 0
    host._hear_of_links([(2, True)])  # too late for a device that is closed
    assert host.ep.port[2].down


# --- counters, and what is left behind ---------------------------------------------------------


def test_counters_tell_what_happened() -> None:
    with connected() as (a, b):
        write(a, b, random_bytes(MB), bytearray(MB))
        mine, theirs = a.qp.counters(), b.qp.counters()
        assert mine["tx_packets"] - mine["rtx"] == 256
        assert theirs["rx_packets"] == 256
        assert theirs["rx_bytes"] == MB
        assert sum(ev["packets"] for ev in a.qp.evs()) == mine["tx_packets"]
        assert {ev["plane"] for ev in a.qp.evs()} == {0, 1}
        port = b.device.counters()["ports"][0]
        assert port["up"]
        assert port["rx_bytes"] > MB // 4


def test_a_closed_device_leaves_nothing_open() -> None:
    with connected() as (a, b):
        write(a, b, random_bytes(10), bytearray(10))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with connected() as (a, b):
            write(a, b, random_bytes(10), bytearray(10))
    assert len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(OpenMrcError, match="the device is closed"):
        a.device.reg_mr(bytearray(8))


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({"pmtu": 1500}, "pmtu 1500: 1024, 2048, 4096, 8192 are accepted"),
        ({"mpr": 0}, "mpr 0: 1 to 32640 are accepted"),
        ({"max_wimm": 0}, "max_wimm 0: 1 to 32640 are accepted"),
    ],
)
def test_impossible_devices_are_refused(limits: dict[str, int], why: str) -> None:
    with pytest.raises(InputError, match=why), cabled(**limits):
        pass


def test_an_idle_device_sleeps() -> None:
    with connected() as (a, b):
        write(a, b, random_bytes(10), bytearray(10))
        a.cq.wait(1, timeout=0.2)  # probes of the paths back come to an end
        before = a.device.counters()["loops"]
        a.cq.wait(1, timeout=0.3)
        assert a.device.counters()["loops"] - before < 200


def test_limits_are_documented_as_they_are() -> None:
    assert Limits().rto_exponent == 14  # row 9
