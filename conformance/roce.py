"""Vectors of RoCEv2: the packets of RDMA WRITE on reliable connections, their answers, and CNPs."""

from __future__ import annotations

from conformance.cases import part
from conformance.packer import IPV4, PLAIN, Message, Part, Vector
from openmrc.wire import layout
from openmrc.wire.layout import Header
from openmrc.wire.roce import layout as roce

QPN = 0x00_0123
FIRST, MIDDLE, LAST, LAST_IMM, ONLY, ONLY_IMM = 0x06, 0x07, 0x08, 0x09, 0x0A, 0x0B
ACK, CNP = 0x11, 0x81
DATA_DSCP, CONTROL_DSCP, ECT0, CE = 26, 48, 2, 3
RETH = {"va": 0x7F00_0000_2000, "rkey": 0x0BAD_CAFE, "dma_length": 3000}


def message(opcode: int, *parts: Part, n: int = 0, ecn: int = ECT0, **bth: int) -> Message:
    """Return a packet with `n` bytes of payload 00 01 02 ..."""
    control = opcode in (ACK, CNP)
    values = {"opcode": opcode, "pkey": 0xFFFF, "dest_qpn": QPN, "psn": 0x01_0203, **bth}
    first = Part("BTH", roce.BTH, {"pad": -n % 4, **values})
    payload = bytes(i & 0xFF for i in range(n))
    dscp = CONTROL_DSCP if control else DATA_DSCP
    return Message((first, *parts), payload, dscp, 0 if control else ecn)


def reth(**values: int) -> Part:
    """Return the header of the first packet of a write."""
    return part(layout.RETH, **(RETH | values))


def answer(syndrome: int, msn: int, psn: int) -> Message:
    """Return an ACK or a NAK."""
    return message(ACK, part(layout.AETH, syndrome=syndrome, msn=msn), psn=psn)


def vector(
    name: str, shows: str, message: Message, path: tuple[tuple[str, Header], ...] = IPV4
) -> Vector:
    """Return one vector; RoCEv2's source port spreads flows, and has no meaning of its own."""
    return Vector(f"roce-{name}", shows, message, path, ev=0xC0DE)


IMM = part(layout.IMMDT, imm=0xDEAD_BEEF)
VECTORS = [
    vector("first", "The first packet of a write has the RETH.", message(FIRST, reth(), n=1024)),
    vector("middle", "Those between have none.", message(MIDDLE, n=1024, psn=0x01_0204)),
    vector("last", "The last one carries what is left.", message(LAST, n=952, a=1, psn=0x01_0205)),
    vector("last-imm", "With immediate.", message(LAST_IMM, IMM, n=952, a=1, psn=0x01_0205)),
    vector("only", "One packet.", message(ONLY, reth(dma_length=16), n=16, a=1)),
    vector("only-imm", "One packet, with immediate.",
           message(ONLY_IMM, reth(dma_length=16), IMM, n=16, a=1)),
    vector("padded", "Three bytes of padding behind 13.", message(ONLY, reth(dma_length=13), n=13)),
    vector("empty", "A write of no bytes.", message(ONLY, reth(dma_length=0), a=1)),
    vector("last-psn", "The PSN before it wraps.", message(MIDDLE, n=4, psn=0xFF_FFFF)),
    vector("marked", "Marked by a switch.", message(MIDDLE, n=4, ecn=CE)),
    vector("ipv6", "Over IPv6.", message(ONLY, reth(dma_length=16), n=16), PLAIN),
    vector("ack", "An ACK covers all up to its PSN.", answer(0x1F, 7, 0x01_0205)),
    vector("nak-sequence", "A PSN is missing: go back to it.", answer(0x60, 6, 0x01_0204)),
    vector("nak-access", "The memory may not be written.", answer(0x62, 6, 0x01_0203)),
    vector("cnp", "A congestion notification: BECN, and 16 reserved bytes.",
           message(CNP, part(roce.CNP_BODY), becn=1, psn=0)),
    vector("cnp-ipv6", "The same over IPv6.",
           message(CNP, part(roce.CNP_BODY), becn=1, psn=0), PLAIN),
]  # fmt: skip
