"""The invariant CRC, held against zlib and against scapy."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from openmrc.engine import packet
from openmrc.wire.icrc import icrc
from tests.wire.frames import around, sent, write

# by byte of the inner packet, the bits that are taken as ones: stated here once more (IBTA A17.3)
MASKED = {
    "ipv6": {0: 0x0F, 1: 0xFF, 2: 0xFF, 3: 0xFF, 7: 0xFF, 46: 0xFF, 47: 0xFF, 52: 0xFF},
    "ipv4": {1: 0xFF, 8: 0xFF, 10: 0xFF, 11: 0xFF, 26: 0xFF, 27: 0xFF, 32: 0xFF},
}


def by_zlib(inner: bytearray, masked: dict[int, int]) -> int:
    bits = bytearray(inner)
    for at, ones in masked.items():
        if at < len(bits):
            bits[at] |= ones
    return zlib.crc32(b"\xff" * 8 + bytes(bits))


def random_packet(shape: str, size_bytes: int) -> bytearray:
    data = bytearray(np.random.default_rng(size_bytes).bytes(size_bytes))
    if data:
        data[0] = (0x60 if shape == "ipv6" else 0x40) | data[0] & 0xF
    return data


def whole(data: bytes | bytearray) -> int:
    return int(icrc(np.frombuffer(bytearray(data), np.uint8), 0, len(data)))


@pytest.mark.parametrize("shape", MASKED)
def test_it_is_the_crc32_of_zlib_over_ones_and_the_masked_packet(shape: str) -> None:
    for size_bytes in (*range(200), 4096 + 76):
        data = random_packet(shape, size_bytes)
        assert whole(data) == by_zlib(data, MASKED[shape]), size_bytes


@pytest.mark.parametrize("shape", MASKED)
def test_only_bits_that_change_under_way_do_not_count(shape: str) -> None:
    data = random_packet(shape, 90)
    for bit in range(4, 8 * len(data)):  # the first four are the version
        at, flip = bit // 8, 0x80 >> bit % 8
        data[at] ^= flip
        same = whole(data) == by_zlib(random_packet(shape, 90), MASKED[shape])
        assert same == bool(MASKED[shape].get(at, 0) & flip), (at, flip)
        data[at] ^= flip


@pytest.mark.parametrize("shape", MASKED)
def test_nothing_outside_the_packet_counts(shape: str) -> None:
    for size_bytes in range(1, 100):
        data = random_packet(shape, size_bytes)
        for around_it in (0x00, 0x45, 0xFF):
            room = np.full(size_bytes + 64, around_it, np.uint8)
            room[32 : 32 + size_bytes] = data
            assert icrc(room, 32, 32 + size_bytes) == whole(data)


@pytest.mark.parametrize("shape", MASKED)
@pytest.mark.parametrize("payload_len", [0, 1, 2, 3, 4, 100, 4096])
def test_scapy_computes_the_same_of_our_frames(shape: str, payload_len: int) -> None:
    roce = pytest.importorskip("scapy.contrib.roce", reason="scapy is not installed: no comparison")
    from scapy.layers.inet import UDP
    from scapy.layers.l2 import Ether

    p = write(payload_len=payload_len, ev=0xBEEF_1234, flag_bits=packet.CE | packet.RTX, va=-2)
    data = sent(p, around(shape), b"any payload.")
    udp = Ether(bytes(data))[UDP]
    layer = roce.BTH(bytes(udp.payload))  # whatever other layers are bound to the port
    udp.remove_payload()
    udp.add_payload(layer)
    assert layer.compute_icrc(b"") == data[-4:]


@pytest.mark.parametrize("shape", ["srv6", "srh"])
def test_under_srv6_it_is_that_of_the_inner_packet(shape: str) -> None:
    p = write(payload_len=100)
    assert sent(p, around(shape, inner_hop_limit=9))[-4:] == sent(p, around("ipv6"))[-4:]
