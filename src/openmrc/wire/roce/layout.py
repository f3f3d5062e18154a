"""The headers of RoCEv2 that MRC lacks or defines differently, field by field as in `layout`.

Ethernet, IP and UDP, the RETH, ImmDt, AETH and iCRC are those of `layout`; the BTH is InfiniBand's
own, and of a WRITE only the first packet has a RETH.
"""

from __future__ import annotations

from collections.abc import Iterator

from openmrc.wire.layout import AETH, BTH_START, IMMDT, PAYLOAD_BYTES_MAX, RETH, Header, tables
from openmrc.wire.roce import opcodes as roce

OPCODES = {
    **{
        service | operation: f"{name}_{roce.OPERATIONS[operation]}"
        for service, name in roce.SERVICES.items()
        for operation in roce.OFFERED[service]
    },
    roce.CNP: "CNP",
}

# Tables 44 to 46: three bits are the kind; five are credits, a time or a reason.
SYNDROMES = {
    roce.AETH_ACK: "ACK",
    roce.AETH_NAK_SEQUENCE: "NAK_PSN_SEQUENCE_ERROR",
    0x61: "NAK_INVALID_REQUEST",
    0x62: "NAK_REMOTE_ACCESS_ERROR",
    0x63: "NAK_REMOTE_OPERATIONAL_ERROR",
}

# Values that operators of RoCEv2 commonly set: AF31 for data, in the lossless priority, and CS6, in
# a strict one, for CNPs; the simulated network gives that class to ACKs and NAKs too.
DSCP_DATA, DSCP_CONTROL = 26, 48

BTH, CNP_BODY, RDETH, DETH, XRCETH, ATOMIC, ATOMIC_ACK, IETH, FETH = tables(
    f"""
BTH | Base transport header | IBTA 9.2, A17.9.2
{BTH_START}
    fecn                1  congestion ahead: of InfiniBand; 0
    becn                1  congestion, said to the sender: 1 in a CNP
    reserved            6
    dest_qpn           24  QP that it is for
    a                   1  acknowledge request
    reserved            7
    psn                24  sequence number of the packet, of an ACK the last one that it covers

CNP | What a congestion notification packet reserves | IBTA A17.9.2
    reserved          128

RDETH | Reliable datagram header | IBTA 9.3.1
    reserved            8
    ee_context         24  end-to-end context that it is for

DETH | Datagram header | IBTA 9.3.2
    q_key              32  key of the queue
    reserved            8
    src_qpn            24  QP that sent it

XRCETH | Extended reliable connection header | IBTA A14
    reserved            8
    xrcsrq             24  shared receive queue that it is for

AtomicETH | Atomic header | IBTA 9.3.4
    va                 64  address operated on
    rkey               32  key of the memory region
    swap_or_add        64  value to write or to add
    compare            64  value to compare with

AtomicAckETH | Atomic acknowledgement header | IBTA 9.3.5
    original           64  value before the operation

IETH | Invalidate header | IBTA 9.3.7
    rkey               32  key to invalidate

FETH | Flush header | IBTA A19
    reserved           26
    selectivity         2  what to flush
    placement           4  how far
""",
    {"opcode": OPCODES},
)


def _of_operation(operation: int) -> Iterator[Header]:
    """The headers of an operation on a reliable connection."""
    name = roce.OPERATIONS[operation]
    if name == "FLUSH":
        yield FETH
    if name in ("WRITE_FIRST", "WRITE_ONLY", "WRITE_ONLY_IMM", "READ_REQUEST"):
        yield RETH
    if name in ("FLUSH", "ATOMIC_WRITE"):
        yield RETH
    if name in ("COMPARE_SWAP", "FETCH_ADD"):
        yield ATOMIC
    if roce.is_response(operation) and name != "READ_RESPONSE_MIDDLE":
        yield AETH
    if operation == roce.ATOMIC_ACKNOWLEDGE:
        yield ATOMIC_ACK
    if name.endswith("_IMM"):
        yield IMMDT
    if name.endswith("_INVALIDATE"):
        yield IETH


def _of(opcode: int) -> tuple[Header, ...]:
    """The headers that follow the BTH."""
    if opcode == roce.CNP:
        return (CNP_BODY,)
    operation = opcode & roce.OPERATION_MASK
    service, answers = opcode - operation, roce.is_response(operation)
    first: tuple[Header, ...] = ()
    if service == roce.RD:
        first = (RDETH,) if answers else (RDETH, DETH)
    elif service == roce.UD:
        first = (DETH,)
    elif service == roce.XRC and not answers:
        first = (XRCETH,)
    return (*first, *_of_operation(operation))


EXTENSIONS = {opcode: _of(opcode) for opcode in OPCODES}


def payload_bytes_max(opcode: int) -> int:
    """Bytes of payload that a packet may carry."""
    if opcode == roce.CNP:
        return 0
    name = roce.OPERATIONS[opcode & roce.OPERATION_MASK]
    if name == "ATOMIC_WRITE":
        return 8
    return PAYLOAD_BYTES_MAX if name.startswith(("SEND", "WRITE", "READ_RESPONSE")) else 0
