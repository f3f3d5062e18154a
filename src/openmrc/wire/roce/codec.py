"""RoCEv2 packets to bytes, and back; compiled, on the caller's buffers, as `codec` does for MRC.

They share the packet record and the envelope. Of the record RoCEv2 uses `opcode` (one of
`wire.roce`), `psn`, `dst_qpn`, `payload_len`, `va`, `rkey`, `dma_len`, `imm`, `reason` (the AETH's
syndrome), `msn` (the AETH's), `klass`, `flag_bits` (ACK_REQ, CE), and `ev`: the UDP source port.
What only other headers say (of datagrams, atomics, flushes) is in `view`.

**The order of the checks.** Ethernet to UDP as in `codec`; then, with codes of `frame`:

    header    check                                              code               at
    UDP       dst_port is 4791                                   UDP_PORT           dst_port
    BTH       12 bytes fit before the iCRC                       TOO_SHORT          its start
              opcode is one of `roce_layout`                     OPCODE             opcode
              tver is 0                                          TRANSPORT_VERSION  tver
    each      it fits before the iCRC                            EXTENSION_LENGTH   its start
    extension
    payload   with its pad a multiple of 4, and not less than
              the pad                                            PAD                BTH.pad
              without the pad at most what the opcode allows:
              8192 bytes, 8 or none                              PAYLOAD_LENGTH     its start
    iCRC      right, if `check`                                  ICRC               its start

Not checked, in addition to the list of `codec`: FECN, BECN, and the reserved bytes of a CNP. The
DSCP gives the class only; nothing is trimmed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from openmrc.engine import packet as pk
from openmrc.engine.packet import CE, CLASS_CONTROL, CLASS_DATA
from openmrc.jit import compiled, inlined
from openmrc.wire import checks, frame, layout
from openmrc.wire.checks import IP
from openmrc.wire.extensions import get_aeth, get_reth, get_target, put_aeth, put_reth
from openmrc.wire.hops import get_ce, get_hops, put_ethernet, put_ipv4, put_one_ipv6
from openmrc.wire.icrc import icrc, put_icrc
from openmrc.wire.roce import layout as roce_layout
from openmrc.wire.roce import opcodes
from openmrc.wire.words import ICRC, IMMDT, IPV4, IPV6, UDP, add, get, slots, zero

BTH = slots(roce_layout.BTH)
_STEPS = 4  # the largest number of extension headers in a packet
_ABSENT = -1


def _extensions() -> Any:
    """Shape (256, 4): bytes of each extension header by opcode and place, else 0."""
    table = np.zeros((256, _STEPS), np.int64)
    for opcode, headers in roce_layout.EXTENSIONS.items():
        table[opcode, : len(headers)] = [header.size_bytes for header in headers]
    return table


def _known(opcodes: Iterable[int]) -> Any:
    """Shape (256,): 1 for each of these opcodes."""
    known = np.zeros(256, np.int64)
    known[list(opcodes)] = 1
    return known


def _most() -> Any:
    """Shape (256,): bytes of payload that a packet may carry."""
    most = np.zeros(256, np.int64)
    for opcode in roce_layout.EXTENSIONS:
        most[opcode] = roce_layout.payload_bytes_max(opcode)
    return most


def _places(wanted: layout.Header) -> Any:
    """Shape (256,): bytes between the BTH and an extension header, by opcode, or `_ABSENT`."""
    places = np.full(256, _ABSENT, np.int64)
    for opcode, headers in roce_layout.EXTENSIONS.items():
        if wanted in headers:
            before = headers[: headers.index(wanted)]
            places[opcode] = sum(header.size_bytes for header in before)
    return places


_BYTES = _extensions()
_KNOWN = _known(roce_layout.EXTENSIONS)
_WRITTEN = _known(opcodes.WRITTEN)
_MOST = _most()
_ALL_BYTES = _BYTES.sum(axis=1)
_RETH_AT, _ATOMIC_AT = _places(layout.RETH), _places(roce_layout.ATOMIC)
_IMMDT_AT, _AETH_AT = _places(layout.IMMDT), _places(layout.AETH)


@compiled
def encode(p, e, ect, out):
    """Write a frame over IPv4 or IPv6 into `out` (uint8); return the bytes written, or -code of
    `frame`.

    `p` is a PACKET and `e` an ENVELOPE record, of which the addresses, `ipv4`, `hop_limit` and
    `pkey` are used; the opcode is one of `WRITTEN`. Data is ECT(0) if `ect`; CE is taken from
    `p.flag_bits`. The payload is zeros.
    """
    opcode, payload_bytes = int(p.opcode), int(p.payload_len)
    if _WRITTEN[opcode] == 0:
        return -frame.OPCODE
    if payload_bytes < 0 or payload_bytes > _MOST[opcode]:
        return -frame.PAYLOAD_LENGTH
    udp = IP + (IPV4.size_bytes if e.ipv4 else IPV6.size_bytes)
    bth = udp + UDP.size_bytes
    first = bth + BTH.size_bytes
    pad = -payload_bytes & 3
    crc_at = first + _ALL_BYTES[opcode] + payload_bytes + pad
    end = crc_at + ICRC.size_bytes
    if end > out.shape[0]:
        return -frame.TOO_SHORT
    zero(out[:end])
    put_ethernet(out, e, layout.ETHERTYPE_IPV4 if e.ipv4 else layout.ETHERTYPE_IPV6)
    dscp = roce_layout.DSCP_CONTROL if p.klass == CLASS_CONTROL else roce_layout.DSCP_DATA
    ecn = layout.ECN_NOT_ECT
    if p.flag_bits & CE:
        ecn = layout.ECN_CE
    elif ect and p.klass != CLASS_CONTROL:
        ecn = layout.ECN_ECT0
    if e.ipv4:
        put_ipv4(out, e, dscp, ecn, end)
    else:
        put_one_ipv6(out, e, dscp, ecn, end)
    add(out, udp, UDP.src_port, int(p.ev))
    add(out, udp, UDP.dst_port, opcodes.UDP_PORT)
    add(out, udp, UDP.length, end - udp)
    add(out, bth, BTH.opcode, opcode)
    add(out, bth, BTH.pad, pad)
    add(out, bth, BTH.pkey, e.pkey)
    add(out, bth, BTH.becn, 1 if opcode == opcodes.CNP else 0)
    add(out, bth, BTH.dest_qpn, p.dst_qpn)
    add(out, bth, BTH.a, 1 if p.flag_bits & pk.ACK_REQ else 0)
    add(out, bth, BTH.psn, p.psn)
    _put_extensions(out, first, p, opcode)
    put_icrc(out, crc_at, icrc(out, IP, crc_at))
    return end


@inlined
def _put_extensions(out, first, p, opcode):
    if _RETH_AT[opcode] != _ABSENT:
        put_reth(out, first + _RETH_AT[opcode], p)
    if _IMMDT_AT[opcode] != _ABSENT:
        add(out, first + _IMMDT_AT[opcode], IMMDT.imm, p.imm)
    if _AETH_AT[opcode] != _ABSENT:
        put_aeth(out, first + _AETH_AT[opcode], p)


@compiled
def decode(data, n, p, e, check):
    """Read the frame `data[:n]` (uint8) into `p` and `e`; return OK or a code of `frame`.

    As `codec.decode`: fields that an opcode does not use are zero, the payload is
    `data[e.payload_at:][:p.payload_len]`, a frame that is refused changes only `e.error_at`;
    `check` 0 does not verify the iCRC.
    """
    code, at, srh, ip, udp, end = checks.headers(data, min(n, data.shape[0]), False)
    payload_at, payload_bytes = 0, 0
    bth = udp + UDP.size_bytes
    stop = end - ICRC.size_bytes
    if code == frame.OK:
        code, at = _transport(data, udp, bth, stop)
    if code == frame.OK:
        payload_at = at
        most = _MOST[get(data, bth, BTH.opcode)]
        code, at, payload_bytes = checks.payload(data, ip, bth, at, stop, most, check)
    if code != frame.OK:
        e.error_at = at
        return code

    get_hops(data, srh, ip, udp, payload_at, p, e)
    p.payload_len = payload_bytes
    e.tseth = 0
    e.udp_port = opcodes.UDP_PORT
    e.pkey = get(data, bth, BTH.pkey)
    p.ev = get(data, udp, UDP.src_port)
    p.opcode = get(data, bth, BTH.opcode)
    p.dst_qpn = get(data, bth, BTH.dest_qpn)
    p.psn = get(data, bth, BTH.psn)
    p.flag_bits = pk.ACK_REQ if get(data, bth, BTH.a) else 0
    if get_ce(data, ip, e):
        p.flag_bits |= CE
    dscp = get(data, IP, IPV4.dscp) if e.ipv4 else get(data, IP, IPV6.dscp)
    control = dscp == roce_layout.DSCP_CONTROL
    p.klass = CLASS_CONTROL if control else CLASS_DATA
    _get_extensions(data, bth + BTH.size_bytes, p)
    return frame.OK


@inlined
def _transport(data, udp, bth, stop):
    """Check UDP port, BTH and extensions: (code, offset of the error or end of these headers)."""
    if get(data, udp, UDP.dst_port) != opcodes.UDP_PORT:
        return frame.UDP_PORT, udp + UDP.dst_port.byte
    at = bth + BTH.size_bytes
    if stop < at:
        return frame.TOO_SHORT, bth
    opcode = get(data, bth, BTH.opcode)
    if _KNOWN[opcode] == 0:
        return frame.OPCODE, bth + BTH.opcode.byte
    if get(data, bth, BTH.tver) != 0:
        return frame.TRANSPORT_VERSION, bth + BTH.tver.byte
    for step in range(_STEPS):
        if at + _BYTES[opcode, step] > stop:
            return frame.EXTENSION_LENGTH, at
        at += _BYTES[opcode, step]
    return frame.OK, at


@inlined
def _get_extensions(data, first, p):
    opcode = int(p.opcode)
    if _RETH_AT[opcode] != _ABSENT:
        get_reth(data, first + _RETH_AT[opcode], p)
    elif _ATOMIC_AT[opcode] != _ABSENT:  # it begins as a RETH does
        get_target(data, first + _ATOMIC_AT[opcode], p)
    if _IMMDT_AT[opcode] != _ABSENT:
        p.imm = get(data, first + _IMMDT_AT[opcode], IMMDT.imm)
    if _AETH_AT[opcode] != _ABSENT:
        get_aeth(data, first + _AETH_AT[opcode], p)
