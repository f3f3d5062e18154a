"""RoCEv2 on the wire: opcodes, and which of them our NICs send.

From the InfiniBand specification (volume 1, section 9 and annex A17): a packet is Ethernet, IP, UDP
to port 4791, BTH, extension headers, payload, iCRC. An opcode is a service (three bits) and an
operation (five). The simulated NICs send RDMA WRITE on reliable connections and its answers, and
CNPs; all others are read.
"""

from __future__ import annotations

UDP_PORT = 4791
UDP = 17  # the IP protocol

# operations, table 38: of the reliable connection service as they stand
WRITE_FIRST = 0x06
WRITE_MIDDLE = 0x07
WRITE_LAST = 0x08
WRITE_LAST_IMM = 0x09
WRITE_ONLY = 0x0A
WRITE_ONLY_IMM = 0x0B
LAST_DATA = WRITE_ONLY_IMM
READ_REQUEST = 0x0C
READ_RESPONSE_FIRST, READ_RESPONSE_ONLY = 0x0D, 0x10
ACKNOWLEDGE = 0x11
ATOMIC_ACKNOWLEDGE = 0x12
CNP = 0x81  # annex A17.9.2

WRITTEN = (
    WRITE_FIRST,
    WRITE_MIDDLE,
    WRITE_LAST,
    WRITE_LAST_IMM,
    WRITE_ONLY,
    WRITE_ONLY_IMM,
    ACKNOWLEDGE,
    CNP,
)

OPERATION_MASK = 0x1F
RC, UC, RD, UD, XRC = 0x00, 0x20, 0x40, 0x60, 0xA0
SERVICES = {RC: "RC", UC: "UC", RD: "RD", UD: "UD", XRC: "XRC"}
OPERATIONS = {
    0x00: "SEND_FIRST",
    0x01: "SEND_MIDDLE",
    0x02: "SEND_LAST",
    0x03: "SEND_LAST_IMM",
    0x04: "SEND_ONLY",
    0x05: "SEND_ONLY_IMM",
    WRITE_FIRST: "WRITE_FIRST",
    WRITE_MIDDLE: "WRITE_MIDDLE",
    WRITE_LAST: "WRITE_LAST",
    WRITE_LAST_IMM: "WRITE_LAST_IMM",
    WRITE_ONLY: "WRITE_ONLY",
    WRITE_ONLY_IMM: "WRITE_ONLY_IMM",
    READ_REQUEST: "READ_REQUEST",
    READ_RESPONSE_FIRST: "READ_RESPONSE_FIRST",
    0x0E: "READ_RESPONSE_MIDDLE",
    0x0F: "READ_RESPONSE_LAST",
    READ_RESPONSE_ONLY: "READ_RESPONSE_ONLY",
    ACKNOWLEDGE: "ACKNOWLEDGE",
    ATOMIC_ACKNOWLEDGE: "ATOMIC_ACKNOWLEDGE",
    0x13: "COMPARE_SWAP",
    0x14: "FETCH_ADD",
    0x15: "RESYNC",
    0x16: "SEND_LAST_INVALIDATE",
    0x17: "SEND_ONLY_INVALIDATE",
    0x1C: "FLUSH",
    0x1D: "ATOMIC_WRITE",
}
_CONNECTED = [operation for operation in OPERATIONS if operation != 0x15]
OFFERED = {
    RC: _CONNECTED,
    UC: range(WRITE_ONLY_IMM + 1),
    RD: range(0x16),
    UD: (0x04, 0x05),
    XRC: _CONNECTED,
}

# AETH syndromes, tables 44 and 46
AETH_ACK = 0x1F  # no credits counted
AETH_NAK_SEQUENCE = 0x60


def is_response(opcode: int) -> bool:
    """Whether a packet answers: its PSN is that of a request in the opposite direction."""
    return READ_RESPONSE_FIRST <= opcode & OPERATION_MASK <= ATOMIC_ACKNOWLEDGE


def ends_message(opcode: int) -> bool:
    """Whether a packet of a requester is the last one of its message."""
    name = OPERATIONS[opcode & OPERATION_MASK]
    return not name.endswith(("_FIRST", "_MIDDLE"))
