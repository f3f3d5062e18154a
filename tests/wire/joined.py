"""Frames as hosts capture them: packets joined by a kernel, lengths left to a NIC."""

from __future__ import annotations

from typing import Any

from openmrc.engine import packet
from openmrc.wire.offload import layers
from tests.wire.frames import around, control, sent, write

PAYLOAD = 256


def some_data(
    shape: str, n: int, psn: int = 5, payload: int = PAYLOAD, **fields: Any
) -> list[bytes]:
    """Consecutive packets of a message, as long as each other but the last."""
    e = around(shape)
    out = []
    for i in range(n):
        opcode = packet.WRITE_FIRST if i == 0 else packet.WRITE_MIDDLE
        length = payload
        if i == n - 1 > 0:
            opcode, length = packet.WRITE_LAST, payload // 2
        p = write(opcode=opcode, psn=psn + i & packet.PSN_MASK, va=i * payload, dma_len=n * payload)
        p.payload_len, p.dst_qpn, p.ev = length, 0x11, 0xC005
        for name, value in fields.items():
            setattr(p, name, value)
        out.append(bytes(sent(p, e, bytes(range(251)))))
    return out


def some_sacks(shape: str, n: int) -> list[bytes]:
    """SACKs to several QPs."""
    return [
        bytes(sent(control(packet.SACK, dst_qpn=7 + i % 2, cack_psn=i, ev=0xC005), around(shape)))
        for i in range(n)
    ]


def join(packets: list[bytes], zero: bool = False) -> bytes:
    """One frame of the packets, as the kernel joins them; its IP lengths are 0 if `zero`."""
    first = packets[0]
    found = layers(first, len(first))
    assert found is not None
    body = b"".join(each[found.bth :] for each in packets)
    return with_lengths(first[: found.bth], found.ips, found.udp, len(body), zero) + body


def with_lengths(front: bytes, ips: tuple[int, ...], udp: int, n: int, zero: bool) -> bytes:
    """The headers of a frame with `n` bytes behind UDP."""
    out, end = bytearray(front), len(front) + n
    for at in ips:
        if out[at] >> 4 == 4:
            out[at + 2 : at + 4] = (0 if zero else end - at & 0xFFFF).to_bytes(2, "big")
            out[at + 10 : at + 12] = bytes(2)
            out[at + 10 : at + 12] = (-int.from_bytes(out[at : at + 20], "big") % 0xFFFF).to_bytes(
                2
            )
        else:
            out[at + 4 : at + 6] = (0 if zero else end - at - 40 & 0xFFFF).to_bytes(2, "big")
    out[udp + 4 : udp + 6] = (end - udp & 0xFFFF).to_bytes(2, "big")
    return bytes(out)
