"""Bytes that mean harm: both decoders answer with a code and a place, alike, and with nothing else.

`both` holds the compiled decoder against the plain one: the same verdict, the same values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.packer import IPV4, PLAIN, SRV6, SRV6_SRH, Message, Part, Vector, build
from openmrc.engine import packet
from openmrc.jit import records
from openmrc.wire import Packet, WireError, codec, decode, encode, frame, layout
from tests.wire.vectors import ACCEPTED, VECTORS, array, both, compiled, frame_of, values

# one of each form: every opcode's headers, every path, trimmed and whole
FORMS = (
    *("write-only", "write-last-imm", "no-time-stamp", "pad-3", "ack", "sack", "nack-trimmed"),
    *("probe", "ev-probe", "ev-probe-answer", "srh", "plain-ipv6", "ipv4", "trimmed"),
    *("trimmed-srh", "trimmed-short", "trimmed-imm"),
)
# a switch trims data; of a SACK, 128 bytes would not hold all headers
TRIMMABLE = [
    name
    for name, vector in ACCEPTED.items()
    if not vector["trimmed"] and vector["headers"]["BTH"]["opcode"] <= packet.LAST_DATA
]
FRAMES = [frame_of(vector) for vector in VECTORS.values()]


@given(st.binary(max_size=300))
def test_random_bytes_are_refused(data: bytes) -> None:
    assert isinstance(both(data, check=True), tuple)


@given(st.sampled_from([0x86DD, 0x0800]), st.binary(min_size=60, max_size=200))
def test_random_bytes_behind_an_ethernet_header_are_refused(ethertype: int, rest: bytes) -> None:
    assert isinstance(both(bytes(12) + ethertype.to_bytes(2, "big") + rest, check=False), tuple)


@given(st.data())
@settings(max_examples=500)
def test_damaged_vectors_are_read_alike(data: st.DataObject) -> None:
    told = bytearray(data.draw(st.sampled_from(FRAMES)))
    for _ in range(data.draw(st.integers(1, 4)) if told else 0):
        at = data.draw(st.integers(0, len(told) - 1))
        told[at] = data.draw(st.integers(0, 255) | st.sampled_from([0, 1, 0x80, 0xFF]))
    both(bytes(told), check=data.draw(st.booleans()))


@given(st.data())
@settings(max_examples=500)
def test_spliced_vectors_are_read_alike(data: st.DataObject) -> None:
    first, second = (data.draw(st.sampled_from(FRAMES)) for _ in range(2))
    cut, on = data.draw(st.integers(0, len(first))), data.draw(st.integers(0, len(second)))
    both(first[:cut] + second[on:], check=False)


@pytest.mark.parametrize("name", FORMS)
def test_a_frame_that_ends_anywhere_is_refused(name: str) -> None:
    """But that a switch left less of a packet than its lengths say, if all headers are there."""
    whole = frame_of(VECTORS[name])
    for n in range(len(whole)):
        verdict = both(whole[:n], check=False)
        if VECTORS[name]["trimmed"] and not isinstance(verdict, tuple):
            assert n >= verdict.payload_at
            continue
        assert isinstance(verdict, tuple)
        assert verdict[0] in (frame.TOO_SHORT, frame.IP_LENGTH, frame.EXTENSION_LENGTH)
        assert verdict[1] <= n


@pytest.mark.parametrize("name", FORMS)
def test_a_capture_that_ends_anywhere_keeps_all_headers_or_says_which_is_cut(name: str) -> None:
    data = frame_of(VECTORS[name])
    whole = decode(data)
    headers = [view for view in whole.headers if view.header is not layout.ICRC]
    for n in range(len(data)):
        if n < whole.payload_at:
            with pytest.raises(WireError) as caught:
                decode(data[:n], length=len(data))
            cut = [v.offset for v in headers if v.offset <= n][-1]
            assert (caught.value.code, caught.value.offset) == (frame.TOO_SHORT, cut)
        else:
            found = decode(data[:n], length=len(data))
            assert list(found.headers) == headers
            assert values(found.record, packet.PACKET) == values(whole.record, packet.PACKET)


@pytest.mark.parametrize("name", FORMS)
def test_any_value_in_any_field_is_read_alike(name: str) -> None:
    data = frame_of(VECTORS[name])
    for view in decode(data).headers:
        bit = view.offset * 8
        for field in view.header.fields:
            shift = len(data) * 8 - bit - field.bits
            mask = (1 << field.bits) - 1
            old = int.from_bytes(data, "big")
            now = old >> shift & mask
            for value in {0, 1, mask, mask >> 1, now + 1 & mask, now - 1 & mask}:
                changed = old & ~(mask << shift) | value << shift
                both(changed.to_bytes(len(data), "big"), check=False)
            bit += field.bits


@pytest.mark.parametrize("name", [name for name in FORMS if not VECTORS[name]["trimmed"]])
def test_one_wrong_bit_in_what_the_icrc_covers_is_noticed(name: str) -> None:
    found = decode(frame_of(VECTORS[name]))
    for at in range(found["BTH"].offset + layout.BTH.size_bytes, found.ip_end):
        wrong = bytearray(found.frame)
        wrong[at] ^= 0x10
        assert isinstance(both(bytes(wrong), check=True), tuple)


@pytest.mark.parametrize("name", FORMS)
def test_the_compiled_decoder_never_reads_beyond_the_end(name: str) -> None:
    """What stands behind the bytes that it is told of makes no difference to it."""
    whole = frame_of(VECTORS[name])
    for n in range(0, len(whole) + 1, 3):
        told = []
        for filler in (0x00, 0xFF):
            p, e = records(1, packet.PACKET)[0], records(1, frame.ENVELOPE)[0]
            room = np.full(len(whole) + 64, filler, np.uint8)
            room[:n] = array(whole[:n])
            code = codec.decode(room, n, p, e, 0)
            told.append((code, values(p, packet.PACKET), values(e, frame.ENVELOPE)))
        assert told[0] == told[1]


def test_a_length_beyond_the_buffer_is_cut_to_it() -> None:
    p, e = records(1, packet.PACKET)[0], records(1, frame.ENVELOPE)[0]
    data = array(frame_of(VECTORS["write-only"])[:100])
    assert codec.decode(data, 1 << 40, p, e, 0) == frame.IP_LENGTH


def test_a_refused_frame_leaves_the_record_alone() -> None:
    for vector in VECTORS.values():
        if "refused" in vector:
            p, _, code = compiled(frame_of(vector))
            assert code != frame.OK
            assert not any(values(p, packet.PACKET).values())


def test_tunnels_in_tunnels_end_at_the_second() -> None:
    """Twenty IPv6 headers, each with the right length: the third is not looked at."""
    tunnel = decode(frame_of(VECTORS["srv6"]))
    header = tunnel.frame[14:54]
    levels = 20
    data = tunnel.frame[:14]
    for level in range(levels):
        left = 40 * (levels - 1 - level)
        data += header[:4] + left.to_bytes(2, "big") + header[6:]
    assert both(data, check=True) == (frame.NEXT_HEADER, 14 + 40 + 6)


def test_routing_headers_behind_routing_headers_end_at_the_first() -> None:
    found = decode(frame_of(VECTORS["srh"]))
    srh = found["SRH"].offset
    routing = bytes([layout.PROTOCOL_ROUTING]) + found.frame[srh + 1 : srh + 24]
    rest = routing * 50
    data = found.frame[:18] + len(rest).to_bytes(2, "big") + found.frame[20:srh] + rest
    assert both(data, check=True) == (frame.NEXT_HEADER, srh)


def test_the_longest_frame_of_all_is_refused_at_once() -> None:
    data = frame_of(VECTORS["write-only"])[:54].replace(b"\x00\x80", b"\xff\xff", 1)
    data = data[:18] + b"\xff\xff" + data[20:] + bytes(0xFFFF)
    assert both(data, check=True) == (frame.IP_VERSION, 54)


PATHS = (SRV6, SRV6_SRH, PLAIN, IPV4)
FIXED = {"tver": 0, "ftype": 1}


def any_values(header: layout.Header, draw: Any) -> dict[str, int]:
    """Any value at all in every field of a header, but those that have only one."""
    told = {}
    for field in header.fields:
        if field.name == layout.RESERVED:
            continue
        low, high = 0, (1 << field.bits) - 1
        if field.signed:
            low, high = -(1 << field.bits - 1), (1 << field.bits - 1) - 1
        told[field.name] = FIXED.get(field.name, draw(st.integers(low, high)))
    return told


@given(st.data())
@settings(max_examples=500)
def test_every_field_is_read_at_its_full_width(data: st.DataObject) -> None:
    """Any values, packed by the generator of the vectors, come back from both decoders."""
    opcode = data.draw(st.sampled_from(sorted(layout.EXTENSIONS)))
    n = data.draw(st.integers(0, 33)) if opcode <= packet.LAST_DATA else 0
    bth = any_values(layout.BTH, data.draw) | {"opcode": opcode, "pad": -n % 4}
    headers = [h for h in layout.EXTENSIONS[opcode] if h is not layout.TSETH or bth["ts"]]
    parts = [Part(h.name, h, any_values(h, data.draw)) for h in headers]
    payload = data.draw(st.binary(min_size=n, max_size=n))
    dscp, ecn = data.draw(st.sampled_from([0, 4, 8, 46, 63])), data.draw(st.integers(0, 3))
    swapped = data.draw(st.booleans())
    message = Message((Part("BTH", layout.BTH, bth), *parts), payload, dscp, ecn)
    path = data.draw(st.sampled_from(PATHS))
    ev = data.draw(st.integers(0, 0xFFFF_FFFF))
    stated = build(Vector("", "", message, path, ev, ev_swapped=swapped))

    found = both(stated.data, check=True, ev_swapped=swapped)
    assert isinstance(found, Packet)
    for part in (message.parts[0], *parts):
        assert found[part.name].fields == part.values
    assert found.payload == payload
    carried = (0xFFFF_0000 if swapped else 0x0000_FFFF) if path == IPV4 else 0xFFFF_FFFF
    assert found.ev == ev & carried
    assert found[path[0][0]]["dscp"] == dscp

    again = both(
        encode(found.record, found.envelope, found.payload), check=True, ev_swapped=swapped
    )
    assert isinstance(again, Packet)
    assert values(again.record, packet.PACKET) == values(found.record, packet.PACKET)
    assert values(again.envelope, frame.ENVELOPE) == values(found.envelope, frame.ENVELOPE)


@given(st.data())
def test_what_a_switch_trims_still_has_its_headers(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(TRIMMABLE))
    last_hop = data.draw(st.integers(0, 1))
    whole = decode(frame_of(VECTORS[name]))
    room = array(whole.frame)
    n = codec.trim(room, room.size, last_hop, 0, 0)
    cut = both(room[:n].tobytes(), check=True)
    assert isinstance(cut, Packet)
    assert cut.trimmed
    assert cut["BTH"] == whole["BTH"]
    assert [v.fields for v in cut.headers if v.offset > whole["BTH"].offset] == [
        v.fields for v in whole.headers if whole["BTH"].offset < v.offset < whole.payload_at
    ]
