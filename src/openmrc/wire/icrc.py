"""The invariant CRC of RoCEv2: the checksum over all that no hop may change.

CRC-32 with Ethernet's polynomial, as `zlib.crc32` computes it, over eight bytes of ones and the IP
packet up to the iCRC itself, with ones in all fields that change in transit (IBTA A17.3):

    IPv6    traffic class, flow label, hop limit
    IPv4    type of service, time to live, header checksum
    UDP     checksum
    BTH     byte 4, reserved

Under SRv6 this is the inner packet: switches change the outer headers. The value is stored least
significant byte first.

**Why not zlib.** Compiled code that is cached on disk could call zlib's `crc32` only by address:
its symbol is not visible in a Python process, not even in one that has imported `zlib`, and the
library's file name differs between systems. So the CRC is computed here: the headers sixteen bytes
at a time with sixteen tables ("slicing by 16"), the payload by carry-less multiplication if the
processor has it (`jit.instructions.folded`), else also with the tables. `benchmarks/wire.py`
compares its speed with zlib's.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from openmrc.jit import compiled, inlined
from openmrc.jit.instructions import FOLD_BYTES, FOLDS, folded
from openmrc.wire import layout

_POLYNOMIAL = 0xEDB8_8320  # of Ethernet, lowest bit first
_ALL = 0xFFFF_FFFF
_BLOCK = 16
_ICRC_BYTES = layout.ICRC.size_bytes
_MASKED = 64  # the masked bytes lie among this many from the IP header on; whole blocks


def _tables() -> Any:
    """Shape (16, 256): the effect of a byte on the CRC when `row` more bytes follow it."""
    rows = np.zeros((_BLOCK, 256), np.uint32)
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        rows[0, byte] = value
    for row in range(1, _BLOCK):
        rows[row] = rows[row - 1] >> 8 ^ rows[0, rows[row - 1] & 0xFF]
    return rows


def _mask(ip: layout.Header, masked: tuple[str, ...]) -> Any:
    """Shape (64,): ones over the fields of `ip`, UDP and BTH that the CRC takes as ones."""
    bits = np.zeros(_MASKED * 8, np.uint8)
    start = 0
    for header, names in ((ip, masked), (layout.UDP, ("checksum",)), (layout.BTH, ("reserved",))):
        for name in names:
            at = start + header.bit(name)
            bits[at : at + header.field(name).bits] = 1
        start += header.size_bytes * 8
    return np.packbits(bits)


def _power(n: int) -> int:
    """x^n modulo the polynomial, for `folded`: bits reversed, shifted up by one."""
    value = 1 << 31  # lowest bit first, as in _POLYNOMIAL
    for _ in range(n):
        value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
    return value << 1


_FAR, _FAR_HIGH = _power(8 * FOLD_BYTES + 32), _power(8 * FOLD_BYTES - 32)
_NEAR, _NEAR_HIGH = _power(8 * _BLOCK + 32), _power(8 * _BLOCK - 32)
_TABLES = _tables()
MASK_IPV6 = _mask(layout.IPV6, ("dscp", "ecn", "flow_label", "hop_limit"))
MASK_IPV4 = _mask(layout.IPV4, ("dscp", "ecn", "ttl", "header_checksum"))
_NO_MASK = np.zeros(_BLOCK, np.uint8)
_AFTER_ONES = zlib.crc32(bytes([0xFF] * 8)) ^ _ALL  # the CRC before the IP header


@inlined
def _byte(crc, value):
    return crc >> 8 ^ np.int64(_TABLES[0, (crc ^ value) & 0xFF])


@inlined
def _four(d, m, at):
    """What four bytes of a block, from `at` on, add to the CRC after the block."""
    return (
        np.int64(_TABLES[15 - at, d[at] | m[at]])
        ^ _TABLES[14 - at, d[at + 1] | m[at + 1]]
        ^ _TABLES[13 - at, d[at + 2] | m[at + 2]]
        ^ _TABLES[12 - at, d[at + 3] | m[at + 3]]
    )


@inlined
def _block(crc, d, m):
    """The CRC after sixteen bytes of `d` under the mask `m`, both of that length."""
    first = (
        np.int64(d[0] | m[0])
        | np.int64(d[1] | m[1]) << 8
        | np.int64(d[2] | m[2]) << 16
        | np.int64(d[3] | m[3]) << 24
    )
    crc = crc ^ first
    return (
        np.int64(_TABLES[15, crc & 0xFF])
        ^ _TABLES[14, crc >> 8 & 0xFF]
        ^ _TABLES[13, crc >> 16 & 0xFF]
        ^ _TABLES[12, crc >> 24]
        ^ _four(d, m, 4)
        ^ _four(d, m, 8)
        ^ _four(d, m, 12)
    )


@inlined
def _after(low, high):
    """The CRC after sixteen bytes, with nothing before them."""
    crc = np.int64(0)
    for i in range(8):
        crc ^= np.int64(_TABLES[15 - i, low >> 8 * i & 0xFF])
        crc ^= np.int64(_TABLES[7 - i, high >> 8 * i & 0xFF])
    return crc


if FOLDS:

    @inlined
    def _most(crc, data, at, end):
        """The CRC after as much of `data[at:end]` as can be folded, and where that part ends."""
        n = (end - at) // FOLD_BYTES
        if n <= 0:
            return crc, at
        low, high = folded(crc, data.ctypes.data + at, n, _FAR, _FAR_HIGH, _NEAR, _NEAR_HIGH)
        return _after(low, high), at + n * FOLD_BYTES

else:

    @inlined
    def _most(crc, data, at, end):
        """Nothing can be folded here."""
        return crc, at


@compiled
def icrc(data, ip_at, end):
    """The iCRC of `data[ip_at:end]` (uint8): an int64 of 32 bits.

    `ip_at` is the first byte of the inner IP header, of either version; `end` that of the iCRC.
    """
    masks = MASK_IPV6
    if end > ip_at and data[ip_at] >> 4 == 4:
        masks = MASK_IPV4
    crc = np.int64(_AFTER_ONES)
    at = ip_at
    while at + _BLOCK <= end and at < ip_at + _MASKED:
        crc = _block(crc, data[at : at + _BLOCK], masks[at - ip_at : at - ip_at + _BLOCK])
        at += _BLOCK
    if at == ip_at + _MASKED:
        crc, at = _most(crc, data, at, end)
    while at + _BLOCK <= end:
        crc = _block(crc, data[at : at + _BLOCK], _NO_MASK)
        at += _BLOCK
    while at < end:
        mask = masks[at - ip_at] if at < ip_at + _MASKED else 0
        crc = _byte(crc, data[at] | mask)
        at += 1
    return crc ^ _ALL


@inlined
def put_icrc(out, at, crc):
    """Write an iCRC."""
    for i in range(_ICRC_BYTES):
        out[at + i] = crc >> 8 * i & 0xFF


@inlined
def get_icrc(data, at):
    """Read an iCRC, an int64."""
    crc = np.int64(0)
    for i in range(_ICRC_BYTES):
        crc |= np.int64(data[at + i]) << 8 * i
    return crc
