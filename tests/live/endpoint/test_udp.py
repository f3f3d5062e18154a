"""Datagrams of the udp mode: what is sent, what the switches make of the address, what arrives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from openmrc.engine.packet import CE, CLASS_DATA, PACKET, SACK, WRITE_MIDDLE, WRITE_ONLY
from openmrc.errors import InputError
from openmrc.fabric.clos import fat_tree, multiplane
from openmrc.jit import compiled, records
from openmrc.live.endpoint import udp
from openmrc.live.syscalls import Batch
from openmrc.wire import addresses, codec, frame, srv6
from openmrc.wire.frame import ENVELOPE
from openmrc.wire.layout import PKEY_DEFAULT, UDP_PORT

FABRIC = multiplane(8, 4, 10**9, 4, 4, 0, 0)
TABLES, SPELLER = srv6.of_fabric(FABRIC)
ROOM = 4096 + 200
DATA = np.arange(4096, dtype=np.uint16).astype(np.uint8)


@compiled
def write(tx, slot, p, e, payload, headend):  # type: ignore[no-untyped-def]
    return udp.write(tx, slot, p, e, payload, headend)


@compiled
def restore(rx, i, length):  # type: ignore[no-untyped-def]
    return udp.restore(rx, i, length)


@compiled
def accept(e, p, headend, nic):  # type: ignore[no-untyped-def]
    return udp.accept(e, p, headend, nic)


@compiled
def step(address, tables, switch):  # type: ignore[no-untyped-def]
    return srv6.step(address, 0, tables, switch)


def packet(src: int, dst: int, ev: int, n: int = 4096) -> Any:
    p = records(1, PACKET)[0]
    p.opcode, p.src, p.dst, p.ev, p.dst_qpn, p.psn = WRITE_MIDDLE, src, dst, ev, 77, 1234
    p.va, p.rkey, p.dma_len, p.payload_len, p.klass = 1 << 40, 9, 1 << 20, n, CLASS_DATA
    return p


def envelope(src: int, plane: int) -> Any:
    e = records(1, ENVELOPE)[0]
    addresses.write_ipv6(e.inner_src, 0, src, plane)
    e.tseth, e.udp_port, e.pkey, e.hop_limit, e.inner_hop_limit = 1, UDP_PORT, PKEY_DEFAULT, 64, 64
    return e


def travel(name: Any, src: int, plane: int) -> tuple[int, Any]:
    """What the fabric does with the destination: the NIC reached, and the address it sees there."""
    address = name[8:24].copy()
    switch = int(FABRIC.port_peer_switch[FABRIC.nic_port(src, plane)])
    while switch >= 0:
        port = step(address, TABLES, switch)
        assert port >= 0
        nic = int(FABRIC.port_peer_nic[port])
        switch = int(FABRIC.port_peer_switch[port])
    return nic, address


def arrive(
    tx: Batch, slot: int, address: Any, source: Any, traffic_class: int
) -> tuple[Batch, int]:
    """The kernel's part: datagram, source, destination and traffic class into a receive batch."""
    rx = udp.new_rx(1, ROOM)
    length = int(tx.iov[slot].length)
    rx.data[0, udp.AT : udp.AT + length] = tx.data[slot, udp.AT : udp.AT + length]
    rx.name[0, 8:24] = source
    words = rx.control.view(np.int32)
    words[0, [0, 2, 3]] = 36, 41, 50  # IPV6_PKTINFO: 16 + 16 + 4 bytes
    rx.control[0, 16:32] = address
    words[0, [10, 12, 13, 14]] = 20, 41, 67, traffic_class  # IPV6_TCLASS, 40 bytes on
    rx.message[0].control_length = 64
    return rx, length


@given(
    some.integers(0, 7),
    some.integers(0, 7),
    some.integers(0, 3),
    some.integers(0, 3),
    some.integers(0, 4096),
)
def test_a_datagram_comes_back_as_the_packet_it_was(
    src: int, dst: int, plane: int, up: int, n: int
) -> None:
    if src == dst:
        dst = (src + 1) % 8
    paths = FABRIC.n_paths(src, dst, plane)
    p = packet(src, dst, FABRIC.ev_of_path(src, dst, plane, up % paths), n)
    e = envelope(src, plane)
    tx = udp.new_tx(2, ROOM)
    assert write(tx, 1, p, e, DATA, SPELLER)
    nic, address = travel(tx.name[1], src, plane)
    assert nic == dst
    data_class = int(tx.control[1, 16])
    rx, length = arrive(tx, 1, address, e.inner_src, data_class | 3)  # a switch set CE
    got, heard = records(1, PACKET)[0], records(1, ENVELOPE)[0]
    whole = restore(rx, 0, length)
    assert whole == udp.AT + length
    assert codec.decode(rx.data[0], whole, got, heard, 1) == frame.OK
    assert accept(heard, got, SPELLER, dst)
    for nic in range(8):  # a uSID names a NIC of one T0; no other of the four there takes it
        assert accept(heard, got, SPELLER, nic) == (nic % 4 == dst % 4)
    assert got.ev == p.ev
    assert got.flag_bits & CE
    for key in ("opcode", "psn", "dst_qpn", "va", "rkey", "dma_len", "payload_len"):
        assert got[key] == p[key], key
    at = int(heard.payload_at)
    assert (rx.data[0, at : at + n] == DATA[:n]).all()


def test_the_icrc_covers_where_it_was_meant_for() -> None:
    """A datagram that arrives at another NIC's address does not pass for its own."""
    p, e = packet(0, 5, FABRIC.ev_of_path(0, 5, 1, 2)), envelope(0, 1)
    tx = udp.new_tx(1, ROOM)
    assert write(tx, 0, p, e, DATA, SPELLER)
    _, address = travel(tx.name[0], 0, 1)
    got, heard = records(1, PACKET)[0], records(1, ENVELOPE)[0]
    for at, source in ((5, e.inner_src), (9, e.inner_src), (-1, envelope(1, 1).inner_src)):
        changed = address.copy()
        if at >= 0:
            changed[at] ^= 1
        rx, length = arrive(tx, 0, changed, source, 0)
        whole = restore(rx, 0, length)
        assert codec.decode(rx.data[0], whole, got, heard, 1) == frame.ICRC


def test_what_the_kernel_does_not_tell_is_not_made_up() -> None:
    p, e = packet(0, 5, FABRIC.ev_of_path(0, 5, 0, 0)), envelope(0, 0)
    tx = udp.new_tx(1, ROOM)
    assert write(tx, 0, p, e, DATA, SPELLER)
    rx, length = arrive(tx, 0, tx.name[0, 8:24], e.inner_src, 0)
    for control_length in (0, 15, 40, 59):
        rx.message[0].control_length = control_length
        assert restore(rx, 0, length) == 0


@given(some.binary(min_size=64, max_size=64), some.integers(0, 64))
def test_strange_control_messages_do_no_harm(control: bytes, length: int) -> None:
    rx = udp.new_rx(1, ROOM)
    rx.control[0] = np.frombuffer(control, np.uint8)
    rx.message[0].control_length = length
    assert restore(rx, 0, 100) in (0, udp.AT + 100)


def test_control_packets_travel_the_same_way() -> None:
    p = records(1, PACKET)[0]
    p.opcode, p.src, p.dst, p.ev, p.dst_qpn = SACK, 6, 1, FABRIC.ev_of_path(6, 1, 3, 1), 5
    tx = udp.new_tx(1, ROOM)
    assert write(tx, 0, p, envelope(6, 3), DATA[:0], SPELLER)
    assert travel(tx.name[0], 6, 3)[0] == 1
    assert int(tx.control[0, 16]) >> 2 == 46  # DSCP of the control class
    assert int(tx.iov[0].length) == 12 + 36 + 4


def test_three_tiers_leave_no_room_for_the_ev() -> None:
    udp.check(FABRIC)
    tree = fat_tree(16, 10**9, 2, 2, 0, 0, tiers=3)
    with pytest.raises(InputError, match='mode "udp" has room for paths of two tiers'):
        udp.check(tree)


def test_an_empty_write_is_a_datagram_too() -> None:
    p, e = packet(0, 5, FABRIC.ev_of_path(0, 5, 0, 0), 0), envelope(0, 0)
    p.opcode = WRITE_ONLY
    tx = udp.new_tx(1, ROOM)
    assert write(tx, 0, p, e, DATA[:0], SPELLER)
    assert int(tx.iov[0].length) == 12 + 4 + 4 + 16 + 4
