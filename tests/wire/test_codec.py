"""Frames there and back, cut short, damaged and trimmed; compiled and plain."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.engine import packet
from openmrc.engine.packet import PACKET
from openmrc.jit import interpreted, records
from openmrc.wire import codec, frame, layout
from openmrc.wire.frame import ENVELOPE
from openmrc.wire.walk import walk
from tests.wire import recorded
from tests.wire.frames import (
    DATA,
    SHAPES,
    Draw,
    any_frame,
    around,
    control,
    fields,
    one,
    patched,
    received,
    senders,
    sent,
    trimmed,
    write,
)

ROOT = Path(__file__).resolve().parents[2]
PAYLOAD = bytes(range(1, 252))

# where headers begin in a frame of each shape
INNER = {"ipv6": 14, "ipv4": 14, "srv6": 54, "srh": 78}
UDP = {"ipv6": 54, "ipv4": 34, "srv6": 94, "srh": 118}


def bth(shape: str) -> int:
    return UDP[shape] + 8


# --- there and back


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("opcode", layout.OPCODES, ids=layout.OPCODES.get)
@settings(max_examples=25)
@given(data=st.data())
def test_every_field_comes_back_at_its_full_width(
    opcode: int, shape: str, data: st.DataObject
) -> None:
    p, e = any_frame(lambda least, most: data.draw(st.integers(least, most)), opcode, shape)
    wire = sent(p, e, PAYLOAD)
    back = received(wire, **senders(e))
    assert back.brief == (frame.OK, 0)
    assert fields(back.p) == fields(p)
    assert fields(back.e, "payload_at") == fields(e, "payload_at")
    at, n = int(back.e.payload_at), int(p.payload_len)
    assert wire[at : at + n] == (PAYLOAD * 40)[:n]
    assert wire[at + n : -4] == bytes(-n % 4)


@pytest.mark.parametrize("opcode", layout.OPCODES, ids=layout.OPCODES.get)
@pytest.mark.parametrize("draw", [min, max])
def test_the_extremes_of_every_field_come_back(opcode: int, draw: Draw) -> None:
    for shape in SHAPES:
        p, e = any_frame(draw, opcode, shape)
        back = received(sent(p, e), **senders(e))
        assert fields(back.p) == fields(p)
        assert fields(back.e, "payload_at") == fields(e, "payload_at")


def test_what_a_record_said_before_is_gone() -> None:
    array = np.frombuffer(sent(control(packet.ACKNOWLEDGE), around("ipv6")), np.uint8)
    p, e = records(1, PACKET), records(1, ENVELOPE)
    for record in (p, e):
        record.view(np.uint8)[:] = 0x7F
    e[0].ev_swapped = e[0].ports_from_1 = e[0].dscps = 0
    assert codec.decode(array, len(array), p[0], e[0], 1) == frame.OK
    left = ("src", "dst", "plane")
    assert fields(p[0], *left) == fields(control(packet.ACKNOWLEDGE), *left)
    assert fields(e[0], "payload_at") == fields(around("ipv6"), "payload_at")


def test_addresses_of_the_engine_are_left_to_the_caller() -> None:
    array = np.frombuffer(sent(write(), around("srv6")), np.uint8)
    p = one(PACKET, src=1, dst=2, plane=3)
    assert codec.decode(array, len(array), p, one(ENVELOPE), 1) == frame.OK
    assert (p.src, p.dst, p.plane) == (1, 2, 3)


# --- exact figures


def test_a_frame_of_4096_bytes_takes_4262_on_the_line_as_in_reference_2_1() -> None:
    wire = sent(write(), around("srv6", tseth=1))
    fcs, preamble_and_gap = 4, 20
    assert len(wire) + fcs + preamble_and_gap == 4262
    assert received(wire).e.payload_at == 14 + 40 + 40 + 8 + 12 + 4 + 4 + 16


def test_a_sack_takes_158_bytes_with_fcs_as_in_reference_2_7() -> None:
    assert len(sent(control(packet.SACK), around("srv6"))) + 4 == 158


@pytest.mark.parametrize(
    ("opcode", "extension_bytes"),
    [
        (packet.WRITE_FIRST, 20),
        (packet.WRITE_MIDDLE, 20),
        (packet.WRITE_LAST, 20),
        (packet.WRITE_LAST_IMM, 24),
        (packet.WRITE_ONLY, 20),
        (packet.WRITE_ONLY_IMM, 24),
        (packet.ACKNOWLEDGE, 4),
        (packet.ENDPOINT_REQUEST, 16),
        (packet.ENDPOINT_RESPONSE, 36),
        (packet.SACK, 36),
        (packet.NACK, 20),
        (packet.PROBE, 16),
    ],
)
@pytest.mark.parametrize(
    ("shape", "hops_bytes"), [("ipv6", 54), ("ipv4", 34), ("srv6", 94), ("srh", 118)]
)
def test_a_frame_is_as_long_as_its_headers(
    opcode: int, extension_bytes: int, shape: str, hops_bytes: int
) -> None:
    for tseth in (0, 1):
        wire = sent(one(PACKET, opcode=opcode), around(shape, tseth=tseth))
        time_bytes = 4 * tseth * (opcode in DATA)
        assert len(wire) == hops_bytes + 8 + 12 + time_bytes + extension_bytes + 4


def test_lengths_of_all_layers_agree() -> None:
    for payload_len in range(9):
        wire = sent(write(payload_len=payload_len), around("srh"))
        padded = -(-payload_len // 4) * 4
        outer, inner, udp = (struct.unpack_from(">H", wire, at)[0] for at in (18, 82, 122))
        assert (outer, inner, udp) == (24 + 40 + udp, udp, 8 + 12 + 4 + 16 + padded + 4)
        assert wire[bth("srh") + 1] >> 4 & 3 == padded - payload_len


def test_row_2_and_3_the_ev_is_in_the_source_port_and_in_both_flow_labels() -> None:
    for swapped, port, label in ((0, 0x3344, 0x1122), (1, 0x1122, 0x3344)):
        wire = sent(write(ev=0x1122_3344), around("srv6", ev_swapped=swapped))
        assert struct.unpack_from(">H", wire, UDP["srv6"])[0] == port
        for at in (14, 54):
            assert struct.unpack_from(">I", wire, at)[0] & 0xF_FFFF == label
        wire = patched(wire, 15, b"\xff\xff\xff")  # row 3: the inner label is read
        assert received(wire, ev_swapped=swapped).p.ev == 0x1122_3344


def test_the_high_bits_of_a_flow_label_are_not_of_the_ev() -> None:
    wire = sent(write(ev=0x1122_3344), around("ipv6"))
    wire[15] |= 0x0F
    assert received(wire).p.ev == 0x1122_3344


def test_mrc_2_11_ipv4_carries_half_of_an_ev() -> None:
    for swapped, left in ((0, 0x3344), (1, 0x1122_0000)):
        wire = sent(write(ev=0x1122_3344), around("ipv4", ev_swapped=swapped))
        assert received(wire, ev_swapped=swapped).p.ev == left


def test_row_4_an_operation_is_read_where_others_write_it() -> None:
    wire = sent(control(packet.ENDPOINT_RESPONSE, reason=packet.OP_EV_PROBE), around("ipv6"))
    at = bth("ipv6") + 12 + 1
    assert wire[at] == 0b0000_0100
    assert received(patched(wire, at, b"\x10"), check=0).p.reason == packet.OP_EV_PROBE
    assert received(patched(wire, at, b"\x18"), check=0).p.reason == 2


def test_a_nack_has_the_psn_that_it_refuses_in_both_headers() -> None:
    wire = sent(control(packet.NACK, psn=0x123456), around("ipv6"))
    assert wire[bth("ipv6") + 9 : bth("ipv6") + 12] == b"\x12\x34\x56"
    assert wire[bth("ipv6") + 12 + 13 :][:3] == b"\x12\x34\x56"


def test_row_22_there_is_no_udp_checksum() -> None:
    for shape in SHAPES:
        wire = sent(write(), around(shape))
        assert wire[UDP[shape] + 6 :][:2] == bytes(2)


# --- classes and marks

NO_TRIM, RTX = packet.NO_TRIM, packet.RTX
CONTROL, RETRANSMIT = packet.CLASS_CONTROL, packet.CLASS_RETRANSMIT
FIRST_TIME = packet.CLASS_DATA


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("klass", "flag_bits", "dscp", "ecn"),
    [
        (CONTROL, 0, layout.DSCP_CONTROL, layout.ECN_NOT_ECT),
        (RETRANSMIT, RTX, layout.DSCP_TRIMMABLE_RETX, layout.ECN_ECT0),
        (FIRST_TIME, 0, layout.DSCP_TRIMMABLE, layout.ECN_ECT0),
        (FIRST_TIME, NO_TRIM, layout.DSCP_NO_TRIM, layout.ECN_ECT0),
        (RETRANSMIT, NO_TRIM | RTX, layout.DSCP_NO_TRIM, layout.ECN_ECT0),
        (FIRST_TIME, packet.CE, layout.DSCP_TRIMMABLE, layout.ECN_CE),
    ],
)
def test_a_class_is_a_dscp(shape: str, klass: int, flag_bits: int, dscp: int, ecn: int) -> None:
    wire = sent(write(klass=klass, flag_bits=flag_bits), around(shape))
    assert traffic_class(wire, 14, shape) == (dscp, ecn)
    inside = layout.ECN_ECT0 if ecn == layout.ECN_CE and INNER[shape] != 14 else ecn
    assert traffic_class(wire, INNER[shape], shape) == (dscp, inside)
    back = received(wire).p
    assert (back.klass, back.flag_bits) == (klass, flag_bits)


def traffic_class(wire: bytearray, at: int, shape: str) -> tuple[int, int]:
    """DSCP and ECN of the IP header at `at`."""
    byte = wire[at + 1] if shape == "ipv4" else (wire[at] << 4 | wire[at + 1] >> 4) & 0xFF
    return byte >> 2, byte & 3


def with_dscp(wire: bytearray, at: int, dscp: int) -> bytearray:
    """A frame whose IPv6 header at `at` has another DSCP."""
    word = struct.unpack_from(">H", wire, at)[0] & ~0x0FC0 | dscp << 6
    return patched(wire, at, struct.pack(">H", word))


def test_a_mark_in_either_header_counts() -> None:
    wire = sent(write(), around("srv6"))
    assert received(wire).p.flag_bits == 0
    for at in (14, 54):
        marked = patched(wire, at + 1, bytes([wire[at + 1] | 0x30]))
        assert received(marked).p.flag_bits == packet.CE


def test_a_dscp_that_nobody_knows_is_data() -> None:
    known = set(layout.DSCPS)
    wire = sent(control(packet.SACK), around("ipv6"))
    for dscp in set(range(64)) - known:
        back = received(with_dscp(wire, 14, dscp))
        assert (back.code, back.p.klass, back.p.flag_bits) == (frame.OK, packet.CLASS_DATA, 0)


# --- refusals: every row of the table in `codec`, with its exact place


class Refusal(NamedTuple):
    """Bytes that are written into a good frame, and what is said about it then."""

    name: str
    shape: str
    at: int
    new: bytes
    code: int
    where: int


def u16(value: int) -> bytes:
    return struct.pack(">H", value)


PROBE_BYTES = {shape: UDP[shape] + 8 + 12 + 16 + 4 for shape in SHAPES}  # a whole frame


def probe(shape: str) -> bytearray:
    return sent(control(packet.PROBE), around(shape))


def _refusals() -> list[Refusal]:
    """In the order of the checks, shape by shape; all on the frame of a probe."""
    found = []
    for shape in SHAPES:
        ip, udp, end = INNER[shape], UDP[shape], PROBE_BYTES[shape]

        def add(name: str, at: int, new: bytes, code: int, where: int, shape: str = shape) -> None:
            found.append(Refusal(f"{shape}: {name}", shape, at, new, code, where))

        def ipv6(name: str, at: int, end: int = end, add: Any = add) -> None:
            add(f"{name} version 5", at, b"\x5b", frame.IP_VERSION, at)
            add(f"{name} too long", at + 4, u16(end - at - 40 + 1), frame.IP_LENGTH, at + 4)

        add("ethertype", 12, b"\x86\xdc", frame.ETHERTYPE, 12)
        if shape == "ipv4":
            add("version 6", 14, b"\x65", frame.IP_VERSION, 14)
            add("options", 14, b"\x46", frame.IP_HEADER_LENGTH, 14)
            add("too long", 16, u16(end - 14 + 1), frame.IP_LENGTH, 16)
            add("too short", 16, u16(19), frame.IP_LENGTH, 16)
            add("more fragments", 20, b"\x20\x00", frame.FRAGMENT, 20)
            add("last fragment", 20, b"\x00\x01", frame.FRAGMENT, 20)
            add("TCP", 23, b"\x06", frame.NEXT_HEADER, 23)
            add("checksum", 24, b"\x12\x34", frame.IP_CHECKSUM, 24)
        else:
            ipv6("first", 14)
            add("first is followed by TCP", 20, b"\x06", frame.NEXT_HEADER, 20)
        if shape in ("srv6", "srh"):
            add("carrier", 14 + 24 + 4, bytes(2), frame.CARRIER_EMPTY, 14 + 24)
        if shape == "srh":
            add("SRH is followed by UDP", 54, b"\x11", frame.NEXT_HEADER, 54)
            add("SRH with two segments", 55, b"\x04", frame.ROUTING, 55)
            add("SRH of another type", 56, b"\x02", frame.ROUTING, 56)
            add("SRH with two segments left", 57, b"\x02", frame.ROUTING, 57)
            add("SRH with a last entry", 58, b"\x01", frame.ROUTING, 58)
        if shape in ("srv6", "srh"):
            ipv6("inner", ip)
            add("inner too short", ip + 4, u16(end - ip - 40 - 1), frame.IP_LENGTH, ip + 4)
            add("a third IPv6", ip + 6, b"\x29", frame.NEXT_HEADER, ip + 6)
        add("port", udp + 2, u16(4790), frame.UDP_PORT, udp + 2)
        add("UDP too long", udp + 4, u16(end - udp + 1), frame.UDP_LENGTH, udp + 4)
        add("UDP too short", udp + 4, u16(end - udp - 1), frame.UDP_LENGTH, udp + 4)
        add("SEND_ONLY of RC", udp + 8, b"\x04", frame.OPCODE, udp + 8)
        add("transport version 1", udp + 9, b"\x01", frame.TRANSPORT_VERSION, udp + 9)
        add("ftype 2", udp + 35, b"\x02", frame.FTYPE, udp + 35)
        add("pad without payload", udp + 9, b"\x10", frame.PAD, udp + 9)
        add("iCRC", end - 4, b"\x12\x34", frame.ICRC, end - 4)
    return found


REFUSALS = _refusals()


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda r: r.name)
def test_a_refusal_says_what_and_where(refusal: Refusal) -> None:
    wire = probe(refusal.shape)
    assert len(wire) == PROBE_BYTES[refusal.shape]
    assert received(wire).brief == (frame.OK, 0)
    damaged = received(patched(wire, refusal.at, refusal.new))
    assert damaged.brief == (refusal.code, refusal.where)
    untouched = one(ENVELOPE, error_at=refusal.where)
    assert fields(damaged.p) == fields(one(PACKET))
    assert fields(damaged.e) == fields(untouched)


@pytest.mark.parametrize("shape", SHAPES)
def test_of_two_faults_the_first_of_the_table_is_reported(shape: str) -> None:
    wire = probe(shape)
    for first, second in combinations([r for r in REFUSALS if r.shape == shape], 2):
        both = patched(patched(wire, second.at, second.new), first.at, first.new)
        if both == patched(wire, second.at, second.new) or overlap(first, second):
            continue
        assert received(both).brief == (first.code, first.where), (first.name, second.name)


def overlap(a: Refusal, b: Refusal) -> bool:
    return a.at < b.at + len(b.new) and b.at < a.at + len(a.new)


def test_both_ports_of_row_1_are_accepted() -> None:
    wire = probe("ipv6")
    for port, code in ((4791, frame.OK), (4971, frame.OK), (4792, frame.UDP_PORT)):
        assert received(patched(wire, 56, u16(port)), check=0).code == code


def test_a_carrier_with_one_usid_is_enough() -> None:
    for carrier, code in ((b"\x00\x01", frame.OK), (b"\x10\x00", frame.OK)):
        assert received(patched(probe("srv6"), 42, carrier + bytes(10))).code == code


def test_every_opcode_of_256_is_known_or_refused() -> None:
    wire = probe("ipv6")
    known = {opcode for opcode in range(256) if received_opcode(wire, opcode) != frame.OPCODE}
    assert known == set(layout.OPCODES)


def received_opcode(wire: bytearray, opcode: int) -> int:
    return received(patched(wire, bth("ipv6"), bytes([opcode]))).code


def test_a_payload_may_have_8192_bytes_and_not_one_more() -> None:
    p = write(payload_len=8192)
    wire = sent(p, around("ipv6"), PAYLOAD)
    assert received(wire).p.payload_len == 8192
    longer = resized(wire[:-4] + bytes(8), "ipv6")
    assert received(longer, check=0).brief == (frame.PAYLOAD_LENGTH, UDP["ipv6"] + 40)
    padded = patched(longer, bth("ipv6") + 1, b"\x30")  # 8193 bytes and 3 of pad
    assert received(padded, check=0).brief == (frame.PAYLOAD_LENGTH, UDP["ipv6"] + 40)
    p.payload_len = 8193
    assert refused(p, around("ipv6")) == frame.PAYLOAD_LENGTH


def test_what_is_no_data_carries_no_payload() -> None:
    wire = resized(probe("ipv6")[:-4] + bytes(8), "ipv6")
    assert received(wire, check=0).brief == (frame.PAYLOAD_LENGTH, UDP["ipv6"] + 36)


@pytest.mark.parametrize("payload_len", range(9))
def test_a_pad_is_what_the_payload_needs(payload_len: int) -> None:
    wire = sent(write(payload_len=payload_len), around("ipv6"))
    at = bth("ipv6") + 1
    for pad in range(4):
        back = received(patched(wire, at, bytes([pad << 4])), check=0)
        room = payload_len + -payload_len % 4
        if pad > room:
            assert back.brief == (frame.PAD, at)
        else:
            assert (back.code, back.p.payload_len) == (frame.OK, room - pad)


def resized(wire: bytearray, shape: str) -> bytearray:
    """The frame after all its lengths were set to what it has."""
    wire = bytearray(wire)
    n = len(wire)
    if shape == "ipv4":
        wire[16:18] = u16(n - 14)
        wire[24:26] = bytes(2)
        total = sum(struct.unpack_from(">10H", wire, 14))
        wire[24:26] = u16(0xFFFF - (total % 0xFFFF))
    else:
        for at in {14, INNER[shape]}:
            if n >= at + 40:
                wire[at + 4 : at + 6] = u16(n - at - 40)
    if n >= UDP[shape] + 8:
        wire[UDP[shape] + 4 : UDP[shape] + 6] = u16(n - UDP[shape])
    return wire


# --- hostile bytes


@pytest.mark.parametrize("shape", SHAPES)
def test_a_frame_cut_anywhere_is_refused_at_the_header_that_is_missing(shape: str) -> None:
    wire = sent(write(payload_len=4, opcode=packet.WRITE_ONLY_IMM), around(shape, tseth=1))
    for n in range(FIRST_IP[shape], len(wire) + 1):
        verdict = received(resized(wire[:n], shape), check=0)
        assert verdict.brief == expected_of_a_cut(shape, n), n


FIRST_IP = {"ipv6": 54, "ipv4": 34, "srv6": 54, "srh": 54}  # its end
HOPS: dict[str, tuple[tuple[int, int], ...]] = {  # start and size of the others
    "ipv6": (),
    "ipv4": (),
    "srv6": ((54, 40),),
    "srh": ((54, 24), (78, 40)),
}


def expected_of_a_cut(shape: str, n: int) -> tuple[int, int]:
    """For METH, TSETH, RETH, ImmDt and four bytes of payload; all lengths say `n`."""
    for start, size_bytes in (*HOPS[shape], (UDP[shape], 8), (bth(shape), 12 + 4)):
        if n < start + size_bytes:
            return frame.TOO_SHORT, start
    start, stop = bth(shape) + 12, n - 4
    for size_bytes in (4, 4, 16, 4):
        if stop < start + size_bytes:
            return frame.EXTENSION_LENGTH, start
        start += size_bytes
    return (frame.PAD, bth(shape) + 1) if (stop - start) % 4 else (frame.OK, 0)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("resize", [False, True])
def test_what_is_behind_the_frame_never_counts(shape: str, resize: bool) -> None:
    """At every length; what follows is the frame's own rest, zeros, or ones."""
    wire = sent(write(payload_len=5, opcode=packet.WRITE_ONLY_IMM), around(shape, tseth=1))
    for n in range(len(wire)):
        data = resized(wire[:n], shape) if resize and n >= FIRST_IP[shape] else wire[:n]
        alone = received(data)
        assert alone.code != frame.OK
        for rest in (wire[n:], bytes(300), b"\xff" * 300):
            beside = received(data + rest, n)
            assert beside.brief == alone.brief, n
            assert fields(beside.p) == fields(alone.p)


@pytest.mark.parametrize("shape", SHAPES)
def test_padding_of_ethernet_is_ignored(shape: str) -> None:
    wire = sent(write(payload_len=3), around(shape))
    assert fields(received(wire + b"\xab" * 17).p) == fields(received(wire).p)


def test_a_length_beyond_the_array_is_the_length_of_the_array() -> None:
    wire = probe("srv6")
    assert received(wire, len(wire) + 1000).brief == (frame.OK, 0)
    assert received(wire[:-1], len(wire) + 1000).brief == (frame.IP_LENGTH, 18)
    for n in (0, -1, -(2**40)):
        assert received(wire, n).brief == (frame.TOO_SHORT, 0)
        assert codec.trim(np.frombuffer(wire, np.uint8), n, 0, 0, 0) == -frame.TOO_SHORT
    short = np.frombuffer(wire[:-1], np.uint8)
    assert codec.trim(short, len(wire) + 1000, 0, 0, 0) == -frame.IP_LENGTH


@settings(max_examples=300)
@given(data=st.data(), shape=st.sampled_from(SHAPES), opcode=st.sampled_from(list(layout.OPCODES)))
def test_damage_ends_in_a_verdict_within_the_frame(
    data: st.DataObject, shape: str, opcode: int
) -> None:
    wire = sent(one(PACKET, opcode=opcode), around(shape, tseth=data.draw(st.integers(0, 1))))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(wire) - 1))
        wire = patched(wire, at, data.draw(st.binary(min_size=1, max_size=4)))
    n = data.draw(st.integers(0, len(wire)))
    for check in (0, 1):
        verdict = received(wire, n, check)
        assert frame.OK <= verdict.code <= frame.ICRC
        assert 0 <= verdict.at <= len(wire)
        if verdict.code == frame.OK:
            assert 0 <= verdict.e.payload_at + verdict.p.payload_len <= n


@pytest.mark.parametrize("shape", SHAPES)
def test_one_flipped_bit_is_seen_unless_a_hop_may_have_flipped_it(shape: str) -> None:
    wire = sent(write(payload_len=6), around(shape), PAYLOAD)
    unseen = set()
    for at in range(len(wire)):
        for bit in range(8):
            flipped = patched(wire, at, bytes([wire[at] ^ 1 << bit]))
            if received(flipped).code == frame.OK:
                unseen.add(at)
    ip, udp = INNER[shape], UDP[shape]
    hops = set(range(12))  # MAC addresses
    if shape != "ipv4":
        hops |= {at + i for at in {14, ip} for i in (0, 1, 2, 3, 7)}  # class, flow label, hops
    if shape in ("srv6", "srh"):
        hops |= set(range(22, 54))  # outer addresses
    if shape == "srh":
        hops |= {57, *range(59, 78)}  # segments left, flags, tag, segment
    assert unseen == hops | {udp + 6, udp + 7, udp + 12}  # UDP checksum, reserved byte of the BTH


# --- what cannot be sent


def refused(p: Any, e: Any, room_bytes: int = 9000) -> int:
    out = np.full(room_bytes, 0xEE, np.uint8)
    n = int(codec.encode(p, e, np.zeros(0, np.uint8), out, 1))
    assert n <= 0
    assert (out == 0xEE).all()
    return -n


def test_a_frame_that_does_not_fit_is_refused_and_leaves_no_trace() -> None:
    for shape in SHAPES:
        p, e = write(payload_len=100), around(shape)
        n = len(sent(p, e))
        assert refused(p, e, n - 1) == frame.TOO_SHORT
        assert codec.encode(p, e, np.zeros(0, np.uint8), np.zeros(n, np.uint8), 1) == n


@pytest.mark.parametrize(
    ("p", "e", "code"),
    [
        (write(opcode=0x04), around("ipv6"), frame.OPCODE),
        (write(payload_len=-1), around("ipv6"), frame.PAYLOAD_LENGTH),
        (control(packet.SACK, payload_len=1), around("ipv6"), frame.PAYLOAD_LENGTH),
        (write(), around("ipv6", udp_port=4790), frame.UDP_PORT),
        (write(), around("srv6", ipv4=1), frame.NEXT_HEADER),
        (write(), around("ipv6", srh=1), frame.ROUTING),
        (write(), around("srh", segments_left=2), frame.ROUTING),
        (write(), around("srv6", carrier=[0x20, 1, 0xD, 0xB8, *[0] * 12]), frame.CARRIER_EMPTY),
    ],
)
def test_what_would_be_refused_is_not_sent(p: Any, e: Any, code: int) -> None:
    assert refused(p, e) == code


def test_a_payload_that_is_shorter_than_said_ends_in_zeros() -> None:
    p, e = write(payload_len=10), around("ipv6")
    out = np.full(200, 0xEE, np.uint8)
    n = codec.encode(p, e, np.array([1, 2, 3], np.uint8), out, 1)
    assert received(out[:n].tobytes()).code == frame.OK
    assert out[n - 4 - 12 : n - 4].tolist() == [1, 2, 3, *[0] * 9]


def test_without_check_the_icrc_is_zero_and_nobody_looks() -> None:
    wire = sent(write(), around("srv6"), check=0)
    assert wire[-4:] == bytes(4)
    assert received(wire, check=0).code == frame.OK
    assert received(wire, check=1).brief == (frame.ICRC, len(wire) - 4)


# --- trimming: row 21


@pytest.mark.parametrize(
    ("shape", "tseth", "payload_len", "before", "after"),
    [
        ("srv6", 1, 4096, 4238, 14 + 128),
        ("srh", 1, 4096, 4262, 14 + 256),
        ("ipv6", 1, 4096, 4198, 14 + 128),
        ("ipv4", 1, 4096, 4178, 14 + 128),
        ("srv6", 0, 8, 146, 142),
        ("srv6", 0, 4, 142, 138),  # 128 bytes: whole, but for its iCRC
        ("srv6", 0, 0, 138, 134),
        ("srh", 0, 108, 270, 266),
        ("srh", 0, 112, 274, 270),
        ("ipv4", 0, 0, 78, 74),
    ],
)
@pytest.mark.parametrize("last_hop", [0, 1])
def test_row_21_exact_lengths(
    shape: str, tseth: int, payload_len: int, before: int, after: int, last_hop: int
) -> None:
    p = write(payload_len=payload_len, psn=0xABCDEF, va=1 << 62, flag_bits=packet.CE, ev=7)
    e = around(shape, tseth=tseth)
    wire = sent(p, e, PAYLOAD)
    assert len(wire) == before
    cut = trimmed(wire, last_hop)
    assert len(cut) == after

    p.payload_len = 0
    p.klass = packet.CLASS_CONTROL
    p.flag_bits |= packet.TRIMMED_LASTHOP if last_hop else packet.TRIMMED
    back = received(cut)
    assert back.brief == (frame.OK, 0)
    assert fields(back.p) == fields(p)
    assert fields(back.e, "payload_at") == fields(e, "payload_at")


LENGTHS = {"outer IPv6": "payload_length", "IPv6": "payload_length", "IPv4": "total_length"}


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=40)
@given(data=st.data())
def test_row_21_each_length_of_a_trimmed_packet_may_be_that_of_the_whole(
    shape: str, data: st.DataObject
) -> None:
    """Any of them, by any amount: it is read as if all were right, and not if it claims less."""
    cut = trimmed(sent(write(payload_len=300, psn=0xABCDEF, ev=7), around(shape), PAYLOAD))
    views = {view.name: view for view in walk(bytes(cut), len(cut)).headers}
    said, kept = bytearray(cut), []
    for name, field in (LENGTHS | {"UDP": "length"}).items():
        more = data.draw(st.integers(0, 9000), label=name) if name in views else 0
        if more:
            kept.append(name)
            said = patched(said, views[name].at(field), to16(views[name][field] + more))
    if "IPv4" in views:
        at = views["IPv4"].at("header_checksum")
        said = patched(said, at, bytes(2))
        words = int.from_bytes(said[14:34], "big")
        said = patched(said, at, to16(0xFFFF - words % 0xFFFF))
    found, told = received(said), walk(bytes(said), len(said))
    assert found.brief == (frame.OK, 0)
    assert fields(found.p) == fields(received(cut).p)
    assert list(told.kept) == kept
    assert frame.TRIM_LENGTHS_FOUND[int(found.e.trim_lengths)] == told.trim_lengths
    less = patched(cut, views["UDP"].at("length"), to16(views["UDP"]["length"] - 1))
    assert received(less).code == frame.UDP_LENGTH


def to16(value: int) -> bytes:
    return value.to_bytes(2, "big")


def test_trimming_changes_lengths_and_dscp_and_nothing_else() -> None:
    wire = sent(write(payload_len=4000), around("srv6", tseth=1), PAYLOAD)
    cut = trimmed(wire)
    changed = {at for at in range(len(cut)) if cut[at] != wire[at]}
    assert changed == {14, 18, 19, 58, 59, 98, 99}  # DSCP, two IPv6 lengths, that of UDP
    assert traffic_class(cut, 14, "srv6") == (layout.DSCP_TRIMMED, layout.ECN_ECT0)
    assert traffic_class(cut, 54, "srv6") == (layout.DSCP_TRIMMABLE, layout.ECN_ECT0)
    lengths = [struct.unpack_from(">H", cut, at)[0] for at in (18, 58, 98)]
    assert lengths == [128 - 40, 128 - 80, 128 - 80]


def test_a_packet_is_trimmed_once() -> None:
    for payload_len in (0, 4096):
        cut = trimmed(sent(write(payload_len=payload_len), around("srv6")))
        again = trimmed(cut, last_hop=1)
        assert len(again) == len(cut)
        assert received(again).p.flag_bits == packet.TRIMMED_LASTHOP


def test_a_cut_packet_is_known_by_the_inner_dscp_too() -> None:
    wire = with_dscp(sent(write(), around("srv6")), 54, layout.DSCP_TRIMMED)
    back = received(wire)
    assert (back.code, back.p.flag_bits, back.p.payload_len) == (frame.OK, packet.TRIMMED, 0)
    both = with_dscp(wire, 14, layout.DSCP_TRIMMED_LASTHOP)
    assert received(both).p.flag_bits == packet.TRIMMED_LASTHOP


def test_a_cut_immediate_is_read_if_it_is_there() -> None:
    p = write(opcode=packet.WRITE_ONLY_IMM, imm=0x1234_5678)
    cut = trimmed(sent(p, around("srv6", tseth=1)))
    assert received(cut).p.imm == 0x1234_5678  # its last byte is the 128th
    assert received(cut).e.payload_at == len(cut) == 142
    for missing in (1, 4):
        shorter = received(resized(cut[:-missing], "srv6"))
        assert (shorter.code, shorter.p.imm, shorter.e.payload_at) == (frame.OK, 0, 138)
    assert received(resized(cut[:-5], "srv6")).brief == (frame.EXTENSION_LENGTH, 122)


def test_what_is_left_of_a_payload_is_not_payload() -> None:
    cut = trimmed(sent(write(payload_len=4093), around("ipv4")))
    assert len(cut) - received(cut).e.payload_at == 142 - 34 - 40
    assert received(cut).p.payload_len == 0
    assert received(resized(cut[:-1], "ipv4")).code == frame.OK  # no whole words are asked for


def test_a_trimmed_frame_never_counts_what_is_behind_it() -> None:
    wire = trimmed(sent(write(opcode=packet.WRITE_ONLY_IMM, imm=5), around("srv6", tseth=1)))
    for n in range(54, len(wire)):
        data = resized(wire[:n], "srv6")
        alone = received(data)
        for rest in (wire[n:], bytes(300), b"\xff" * 300):
            assert received(data + rest, n).brief == alone.brief
            assert fields(received(data + rest, n).p) == fields(alone.p)


def test_padding_of_ethernet_is_not_kept() -> None:
    wire = sent(write(payload_len=0), around("ipv4"))
    assert trimmed(wire + bytes(30)) == trimmed(wire)


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_no_frame_is_not_trimmed(shape: str) -> None:
    wire = sent(write(payload_len=300), around(shape))
    for n in range(len(wire)):
        out = np.frombuffer(bytearray(wire), np.uint8)
        assert codec.trim(out, n, 0, 0, 0) < 0
        assert out.tobytes() == wire
    hops = UDP[shape] + 8
    bare = resized(wire[:hops], shape)  # nothing behind UDP: there is no iCRC to lose
    assert len(trimmed(bare)) == hops


# --- plain and compiled


@pytest.mark.skipif(interpreted(), reason="this run is plain already")
def test_plain_and_compiled_agree_on_recorded_frames_whole_cut_and_damaged() -> None:
    """Plain Python reads arrays of exactly the frame's length: a byte too far is an error there."""
    plain = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.wire.recorded"],
        cwd=ROOT,
        env=os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert plain.returncode == 0, plain.stderr
    assert plain.stdout.splitlines() == recorded.run()


def test_limits_are_those_of_the_reference() -> None:
    assert (layout.PAYLOAD_BYTES_MAX, codec.KEPT_BYTES, codec.KEPT_BYTES_SRH) == (8192, 128, 256)


# --- what others write otherwise


def test_row_32_a_port_mask_may_count_ports_from_1() -> None:
    """Bit 1 is port 0 then."""
    status = control(packet.ENDPOINT_REQUEST, imm=0b1011)
    wire = sent(status, around("ipv6", ports_from_1=1))
    assert received(wire).p.imm == 0b10110
    assert received(wire, ports_from_1=1).p.imm == 0b1011


def test_row_31_ftype_0_is_no_time_stamp_in_probes_and_requests() -> None:
    for opcode in (packet.PROBE, packet.ENDPOINT_REQUEST):
        wire = sent(control(opcode, timestamp=77, flag_bits=packet.UNSTAMPED), around("srv6"))
        back = received(wire)
        assert (back.code, int(back.p.timestamp)) == (frame.OK, 0)
        assert back.p.flag_bits & packet.UNSTAMPED
