"""Datagrams of plain UDP: what is sent, what goes together, what arrives, and from whom."""

from __future__ import annotations

import ipaddress
import os
import socket
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from openmrc.engine.packet import CE, CLASS_CONTROL, CLASS_DATA, PACKET, SACK, WRITE_MIDDLE
from openmrc.errors import InputError
from openmrc.jit import records
from openmrc.live.endpoint import ip, links, planes, state, udp
from openmrc.live.endpoint.peers import Peers, Reach
from openmrc.wire import codec, frame
from openmrc.wire.frame import ENVELOPE
from openmrc.wire.layout import PKEY_DEFAULT, UDP_PORT
from tests.exposed import exposed

write, restore, told, send = map(exposed, (ip.write, ip.restore, ip.told, ip.send))
PMTU = 1024
DATA = np.arange(PMTU, dtype=np.uint16).astype(np.uint8)
HERE = {0: "192.0.2.1", 1: "2001:db8::1"}  # plane 0 is IPv4, plane 1 IPv6
THERE = {0: "192.0.2.77", 1: "2001:db8::77"}
SOURCE = 50_000


def endpoint(address: dict[int, str] = HERE) -> Any:
    """Two planes at these addresses, and one peer, number 1, at those of THERE."""
    ep = state.new_endpoint(
        planes=2, qps=1, messages=1, receives=1, regions=1, cqs=1, cqes=1, evs=1, peers=2
    )
    ep.ctl[0].n_planes, ep.ctl[0].mode = 2, state.IP
    own = [Reach(one, UDP_PORT, (SOURCE,)) for one in address.values()]
    other = THERE if address is HERE else HERE
    Peers(ep, own).number([Reach(one, UDP_PORT, (SOURCE,)) for one in other.values()], set())
    for plane, e in enumerate(ep.envelope[:2]):
        ep.port[plane].ipv4 = e.ipv4 = plane == 0
        ep.port[plane].segments = 1
        e.inner_src[:] = list(socket_address(address[plane]).ljust(16, b"\0"))
        e.tseth, e.udp_port, e.pkey, e.hop_limit = 1, UDP_PORT, PKEY_DEFAULT, 64
        ep.source[plane, SOURCE - state.SOURCE_BASE] = 0  # a descriptor that nothing is sent on
    return ep


def socket_address(address: str) -> bytes:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.inet_pton(family, address)


def packet(plane: int, n: int, opcode: int = WRITE_MIDDLE) -> Any:
    p = records(1, PACKET)[0]
    p.opcode, p.dst, p.ev, p.plane, p.dst_qpn, p.psn = opcode, 1, SOURCE, plane, 77, 1234
    p.klass = CLASS_CONTROL if opcode == SACK else CLASS_DATA
    if opcode != SACK:
        p.va, p.rkey, p.dma_len, p.payload_len = 1 << 40, 9, 1 << 20, n
    return p


def arrive(tx: Any, slots: list[int], plane: int, ecn: int) -> Any:
    """The kernel's part: datagrams of slots, joined into one, with what it says of them."""
    rx = ip.new_rx()
    at = udp.AT
    for slot in slots:
        n = int(tx.iov[slot].length)
        rx.data[0, at : at + n] = tx.data[slot, udp.AT : udp.AT + n]
        at += n
    rx.message[0].length = at - udp.AT
    name = np.frombuffer(planes.name_of(HERE[plane], SOURCE), np.uint8)
    rx.name[0] = name
    words = rx.control.view(np.int32)
    if plane == 0:
        words[0, :5] = 17, 0, 0, 1, ecn  # IP_TOS: one byte
    else:
        words[0, :5] = 20, 0, 41, 67, ecn  # IPV6_TCLASS
    rx.message[0].control_length = 24
    if len(slots) > 1:
        words[0, 6:11] = 20, 0, 17, 104, int(tx.iov[slots[0]].length)  # UDP_GRO
        rx.message[0].control_length = 48
    return rx


@settings(max_examples=25)
@given(some.integers(0, 1), some.lists(some.integers(0, PMTU), min_size=1, max_size=5))
def test_datagrams_come_back_as_the_packets_that_they_were(plane: int, lengths: list[int]) -> None:
    lengths = [max(lengths)] * (len(lengths) - 1) + [min(lengths)]  # as in a burst
    here, there = endpoint(), endpoint(THERE)
    tx = ip.new_tx(2 * state.TX_SLOTS, PMTU + 160)
    slots = list(range(len(lengths)))
    for slot, n in enumerate(lengths):
        assert write(here, tx, slot, packet(plane, n), here.envelope[plane], DATA)
    rx = arrive(tx, slots, plane, 3)  # a router set CE
    ecn, segment = told(rx, 0)
    assert ecn == 3
    assert segment == (int(tx.iov[0].length) if len(slots) > 1 else 0)
    at = 0
    for slot in slots:
        n = int(tx.iov[slot].length)
        first = restore(there, rx, 0, at, n, plane, ecn)
        got, heard = records(1, PACKET)[0], records(1, ENVELOPE)[0]
        data = rx.data[0, first : udp.AT + at + n]
        assert codec.decode(data, len(data), got, heard, 1) == frame.OK
        p = packet(plane, lengths[slot])
        assert got.flag_bits & CE
        for key in ("opcode", "psn", "dst_qpn", "va", "rkey", "dma_len", "payload_len", "ev"):
            assert got[key] == p[key], key
        begin = int(heard.payload_at)
        assert (data[begin : begin + lengths[slot]] == DATA[: lengths[slot]]).all()
        at += n
    assert at == int(rx.message[0].length)


@pytest.mark.parametrize("plane", [0, 1])
def test_the_icrc_covers_addresses_and_source_port(plane: int) -> None:
    here, there = endpoint(), endpoint(THERE)
    tx = ip.new_tx(2 * state.TX_SLOTS, PMTU + 160)
    assert write(here, tx, 0, packet(plane, 64), here.envelope[plane], DATA)
    length = int(tx.iov[0].length)
    got, heard = records(1, PACKET)[0], records(1, ENVELOPE)[0]
    for spoil in ("", "port", "address", "own"):
        rx = arrive(tx, [0], plane, 0)
        if spoil in ("port", "address"):
            rx.name[0, 3 if spoil == "port" else 7 if plane == 0 else 23] ^= 1
        if spoil == "own":
            there.envelope[plane].inner_src[3] ^= 1
        first = restore(there, rx, 0, 0, length, plane, 0)
        data = rx.data[0, first : udp.AT + length]
        code = codec.decode(data, len(data), got, heard, 1)
        assert code == (frame.ICRC if spoil else frame.OK), spoil


def test_what_goes_together() -> None:
    """One EV, one class, one length but for the last: one call. The rest waits for the next."""
    ep = endpoint()
    tx = ip.new_tx(2 * state.TX_SLOTS, PMTU + 160)
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
    ):
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(5.0)
        port = receiver.getsockname()[1]
        ep.reach[2] = np.frombuffer(planes.name_of("127.0.0.1", port), np.uint8)  # peer 1, plane 0
        ep.source[0, SOURCE - state.SOURCE_BASE] = sender.fileno()
        for slot, n in enumerate((PMTU, PMTU, 100, PMTU)):
            assert write(ep, tx, slot, packet(0, n), ep.envelope[0], DATA)
        assert write(ep, tx, 4, packet(0, 0, SACK), ep.envelope[0], DATA[:0])
        assert send(ep, tx, 0, 0, 5) == 3
        assert send(ep, tx, 0, 3, 2) == 1  # what follows is of another class
        assert send(ep, tx, 0, 4, 1) == 1
        sizes = [len(receiver.recv(2048)) for _ in range(5)]
        assert sizes == [int(tx.iov[slot].length) for slot in range(5)]
        ep.port[0].segments = 0
        assert send(ep, tx, 0, 0, 5) == 1


def test_no_source_port_no_datagram() -> None:
    ep = endpoint()
    tx = ip.new_tx(2 * state.TX_SLOTS, PMTU + 160)
    for ev, to in ((SOURCE + 1, 1), (80, 1), (SOURCE, 2), (1 << 31, 1)):
        p = packet(0, 64)
        p.ev, p.dst = ev, to
        assert not write(ep, tx, 0, p, ep.envelope[0], DATA)


@given(some.binary(min_size=48, max_size=48), some.integers(0, 48))
def test_strange_control_messages_do_no_harm(control: bytes, length: int) -> None:
    rx = ip.new_rx()
    rx.control[0] = np.frombuffer(control, np.uint8)
    rx.message[0].control_length = length
    ecn, segment = told(rx, 0)
    assert 0 <= ecn <= 3
    assert 0 <= segment <= 0xFFFF


def test_a_number_for_each_peer_and_none_too_many() -> None:
    ep = endpoint()
    own = [Reach("192.0.2.1", 4791, (SOURCE,))] * 2
    peers = Peers(ep, own)

    def at(port: int) -> list[Reach]:
        return [Reach("192.0.2.2", port, (SOURCE,))] * 2

    assert peers.number(at(1), set()) == peers.number(at(1), {1}) == 1
    with pytest.raises(Exception, match="no room for another peer: the device has 1"):
        peers.number(at(2), {1})
    assert peers.number(at(2), set()) == 1  # nobody uses the first one any more
    with pytest.raises(InputError, match="peer's planes: 1, this device has 2"):
        peers.check(at(1)[:1])
    with pytest.raises(InputError, match=r"plane 1: 192\.0\.2\.1 here, ::1 there"):
        peers.check([at(1)[0], Reach("::1", 1, (SOURCE,))])
    with pytest.raises(InputError, match="this device itself"):
        peers.check(own)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"address": "host"}, "peer's address 'host': an IP address is accepted"),
        ({"address": 5}, "peer's address 5: an IP address is accepted"),
        ({"port": 0}, "peer's port 0: 1 to 65535 is accepted"),
        ({"port": True}, "peer's port True: 1 to 65535 is accepted"),
        ({"sources": []}, "1 to 64 ports of 49152 to 65535 are accepted"),
        ({"sources": [49_151]}, "1 to 64 ports of 49152 to 65535 are accepted"),
        ({"more": 1}, "an address, a port and sources are accepted"),
    ],
)
def test_what_a_peer_says_of_its_planes(change: dict[str, Any], why: str) -> None:
    told_of = {"address": "192.0.2.1", "port": 4791, "sources": [49_152]}
    assert Reach.of(told_of) == Reach("192.0.2.1", 4791, (49_152,))
    with pytest.raises(InputError) as refused:
        Reach.of({**told_of, **change})
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("hardware", "chosen"), [({"eth1", "eth0"}, ["eth0", "eth1"]), (set(), ["br0", "eth0", "eth1"])]
)
def test_planes_that_nobody_names_are_interfaces_of_hardware(
    hardware: set[str], chosen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of those with an address that others can reach; loopback is none."""
    known = [
        ("lo", "127.0.0.1"),
        ("eth1", "192.0.2.2"),
        ("eth0", "192.0.2.1"),
        ("br0", "192.0.2.3"),
    ]
    known += [("eth2", "fe80::1")]
    monkeypatch.setattr(
        links, "addresses", lambda: [(name, ipaddress.ip_address(a)) for name, a in known]
    )
    there = {f"/sys/class/net/{name}/device" for name in hardware}
    monkeypatch.setattr(os.path, "exists", lambda path: path in there)
    assert planes.ordinary() == chosen


def test_no_two_planes_send_from_one_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer names the path by it alone."""
    numbers = iter([7, 7, 8, 8, 7, 9, 10])
    monkeypatch.setattr("random.randrange", lambda _: next(numbers))
    two = planes.find(["127.0.3.1", "127.0.3.2"])
    with planes.opened(two, 2, 0) as opened:
        ports = [source - state.SOURCE_BASE for one in opened for source, _ in one.sends]
        assert ports == [7, 8, 9, 10]
        for one in opened:
            for each in (one.hears, *(sends for _, sends in one.sends)):
                each.close()
