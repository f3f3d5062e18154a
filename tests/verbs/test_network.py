"""Devices on an ordinary network: loopback has as many addresses as one likes."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from openmrc.errors import InputError, OpenMrcError
from openmrc.live.endpoint import planes
from openmrc.verbs import Device, QpState, QueuePair, Status, exchange
from openmrc.verbs.attributes import QpAttributes
from tests.live.two import PATIENCE_S

ONE, OTHER = ("127.0.1.1", "127.0.1.2"), ("127.0.2.1", "127.0.2.2")
LIMITS: dict[str, Any] = {"qps": 2, "base_rtt_ps": 500_000_000}
SIZE = 3_000_001
SO_ATTACH_FILTER = 26


@contextmanager
def on_network(
    one: Any = ONE, other: Any = OTHER, **limits: Any
) -> Iterator[tuple[Device, Device]]:
    limits = {**LIMITS, **limits}
    with Device.on_network(one, **limits) as a, Device.on_network(other, **limits) as b:
        yield a, b


def joined(a: Device, b: Device) -> tuple[QueuePair, QueuePair]:
    """A queue pair from one to the other; attributes go the way of JSON."""
    pair = a.create_qp(a.create_cq()), b.create_qp(b.create_cq())
    for mine, other in (pair, pair[::-1]):
        mine.connect(QpAttributes(**other.attributes.as_dict()))
    return pair


def write(a: Device, b: Device, qp: QueuePair) -> None:
    """Every byte arrives."""
    data = np.random.default_rng(1).integers(0, 256, SIZE, dtype=np.uint8)
    room = np.zeros(SIZE, np.uint8)
    source, sink = a.reg_mr(data), b.reg_mr(room)
    qp.post_write(1, source, remote_addr=sink.addr, rkey=sink.rkey)
    [done] = qp.send_cq.wait(timeout=PATIENCE_S)
    assert done.status == Status.SUCCESS
    assert (room == data).all()


def test_planes_are_addresses_and_evs_source_ports() -> None:
    with on_network() as (a, b):
        there, back = joined(a, b)
        assert a.mode == "ip"
        assert (a.pmtu, a.probe_bytes) == (8192, 60)
        assert (there.attributes.trim_nack, there.attributes.svc_time) == (False, False)
        for qp in (there, back):  # 16 source ports of each plane are in use, 8 spare
            evs = qp.evs()
            assert len({(ev["plane"], ev["ev"]) for ev in evs}) == len(evs) == 48
            assert sum(ev["active"] for ev in evs) == 32
            own = [set(plane.sources) for plane in qp.attributes.planes]
            assert all(ev["ev"] in own[ev["plane"]] for ev in evs)
        write(a, b, there)
        write(b, a, back)
        for device, qp in ((a, there), (b, back)):
            refused = [set(port["refused"]) for port in device.counters()["ports"]]
            assert set.union(*refused) <= {"received before"}  # on a busy machine, sent again
            evs = qp.evs()
            used = [sum(ev["packets"] for ev in evs if ev["plane"] == k) for k in range(2)]
            assert sum(used) == qp.counters()["tx_packets"] >= -(-SIZE // 8192)
            assert abs(used[0] - used[1]) <= 0.3 * sum(used)


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6")
def test_over_ipv6_and_one_packet_at_a_time() -> None:
    """Both ends on one address: their ports tell them apart."""
    with on_network(["::1"], ["::1"], burst=1, pmtu=1024) as (a, b):
        ports = [int(device.planes[0].split()[-1]) for device in (a, b)]
        assert len(set(ports)) == 2
        assert a.probe_bytes == 80
        there, back = joined(a, b)
        write(a, b, there)
        write(b, a, back)


def test_a_plane_that_goes_down_takes_nothing_with_it() -> None:
    with on_network() as (a, b):
        there, _ = joined(a, b)
        a.set_port(1, False)
        write(a, b, there)
        evs = there.evs()
        assert not any(ev["packets"] for ev in evs if ev["plane"] == 1)
        a.set_port(1, True)
        write(a, b, there)
        assert there.state == QpState.RTS


def test_processes_of_one_host_are_told_apart() -> None:
    """Three devices, two of them on one address; requests to the endpoint name no queue pair."""
    with (
        on_network(["127.0.3.1"], ["127.0.3.2"]) as (a, b),
        Device.on_network(["127.0.3.2"], **LIMITS) as c,
    ):
        first, _ = joined(a, b)
        second, _ = joined(a, c)
        assert int(first._q.peer_nic) != int(second._q.peer_nic)
        assert first.measure_rtt() is not None
        assert second.measure_rtt() is not None
        write(a, b, first)
        write(a, c, second)


def test_bad_planes_are_refused_with_the_remedy() -> None:
    for names, why in (
        ([], "name an interface or an address for each"),
        (["127.0.1.1", "127.0.1.1"], "127.0.1.1 is named twice"),
        (["nowhere0"], "plane nowhere0: no interface with an address; those with one are"),
        (["198.51.100.1"], "plane 198.51.100.1: no interface of this host has it"),
    ):
        with pytest.raises(InputError) as refused:
            Device.on_network(names, **LIMITS)
        assert why in str(refused.value)
    with pytest.raises(InputError, match="65 source ports of a plane; up to 64 are accepted"):
        Device.on_network(["127.0.1.1"], evs_active=64, evs_backup=1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.1.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=rf"UDP port {port} of 127\.0\.1\.1 is in use"):
            Device.on_network(["127.0.1.1"], port=port, **LIMITS)


def test_nothing_is_left_open(tmp_path: Any) -> None:
    import os

    before = len(os.listdir("/proc/self/fd"))
    threads = threading.active_count()
    with on_network():
        pass
    with pytest.raises(InputError):
        Device.on_network(["127.0.1.1"], qps=2, pmtu=1000)
    assert len(os.listdir("/proc/self/fd")) == before
    assert threading.active_count() == threads


@pytest.mark.parametrize(("theirs", "size"), [({}, 1428), ({"pmtu": 1024}, 1024)])
def test_packets_fill_an_mtu_of_1500(
    monkeypatch: pytest.MonkeyPatch, theirs: dict[str, Any], size: int
) -> None:
    """Row 20: unless the peer wants a certain PMTU."""
    real = planes.find
    narrow = lambda names: [replace(one, mtu=1500) for one in real(names)]  # noqa: E731
    monkeypatch.setattr(planes, "find", narrow)
    with (
        Device.on_network(ONE, **LIMITS) as a,
        Device.on_network(OTHER, **LIMITS, **theirs) as b,
    ):
        assert a._host.limits.burst == 43, "of 1500 bytes, in a datagram"
        there, back = joined(a, b)
        assert (a.pmtu, b.pmtu) == (size, size)
        there.check_path_mtu()
        write(a, b, there)
        write(b, a, back)
        assert there.counters()["tx_packets"] >= -(-SIZE // size)


@pytest.mark.parametrize(("pmtu", "packets"), [(8192, 7), (4096, 15), (1024, 59)])
def test_a_burst_fills_a_datagram(pmtu: int, packets: int) -> None:
    with Device.on_network(["127.0.3.1"], **LIMITS, pmtu=pmtu) as device:
        assert device._host.limits.burst == packets
        assert device._host.ep.ctl[0].tx_most == max(packets, 16)


def narrowed(device: Device) -> None:
    """What comes to it is dropped above 1,300 bytes of UDP, as on a path with a smaller MTU."""
    length, none = (0x80, 0, 0, 0), (0x06, 0, 0, 0)  # classic BPF: A = length; return 0
    words = [length, (0x25, 0, 1, 1_300), none, (0x06, 0, 0, 0xFFFF_FFFF)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in words))
    filter_of = struct.pack("HP", len(words), ctypes.addressof(program))
    for fd in device._owned_fds:
        with socket.socket(fileno=os.dup(fd)) as end:
            end.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, filter_of)


@pytest.mark.parametrize("narrow", [(0,), (1,), (0, 1)])
def test_where_filled_packets_do_not_pass_both_ends_send_smaller_ones(
    monkeypatch: pytest.MonkeyPatch, narrow: tuple[int, ...]
) -> None:
    """Row 20: whichever end finds out, and a second queue pair begins with what is known."""
    real = planes.find
    monkeypatch.setattr(
        planes, "find", lambda names: [replace(one, mtu=1500) for one in real(names)]
    )
    secret = bytes(range(32))
    with (
        Device.on_network(ONE, **LIMITS, burst=1) as a,
        Device.on_network(OTHER, **LIMITS, burst=1) as b,
        exchange.Listener(0, secret) as listener,
    ):
        assert (a.pmtu, b.pmtu) == (1428, 1428)
        for each in narrow:
            narrowed((a, b)[each])
        peers = []
        for _ in range(2):
            there, back = (one.create_qp(one.create_cq()) for one in (a, b))
            thread = threading.Thread(target=lambda qp=back: peers.append(listener.accept(qp)))
            thread.start()
            peers.append(exchange.connect(there, "127.0.0.1", listener.port, secret))
            thread.join(PATIENCE_S)
            assert (a.pmtu, b.pmtu) == (1024, 1024)
        notes = {a.pmtu_note, b.pmtu_note}
        assert notes == {"PMTU 1024 B in place of 1428: a path has room for no more"}
        write(a, b, there)
        write(b, a, back)
        for peer in peers:
            peer.close()


def test_the_pmtu_is_lowered_only_where_every_other_end_lowers_its_own() -> None:
    with on_network(pmtu=4096) as (a, b):
        (one, _), (two, _) = joined(a, b), joined(a, b)
        with pytest.raises(InputError, match="pmtu 1000: 1024 and more are accepted"):
            one.lower_pmtu(1000)
        why = "this device's queue pairs use 4096: open it with pmtu=2048"
        with pytest.raises(OpenMrcError, match=why):
            one.lower_pmtu(2048)
        assert a.pmtu == 4096
        for qp in b.queue_pairs:
            qp.lower_pmtu(2048, b.queue_pairs)
        one.lower_pmtu(2048, [two])
        one.lower_pmtu(4096)  # no more than that anyway
        assert (a.pmtu, b.pmtu) == (2048, 2048)
        write(a, b, two)
        assert two.counters()["tx_packets"] >= -(-SIZE // 2048)
        with pytest.raises(OpenMrcError, match="use 2048"):
            one.lower_pmtu(1024, [two])
