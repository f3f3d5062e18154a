"""Packet record and envelope to bytes, and back; compiled, on the caller's buffers.

`encode` writes a frame from its Ethernet header (without FCS) to its iCRC, `decode` reads one,
`trim` cuts one as a switch does. Offsets, shifts and widths come from `layout`. Three guarantees:
`decode` and `trim` never read beyond the first `n` bytes; `decode` accepts every frame that
`encode` made, and returns the same record; a frame that is refused changes nothing but
`e.error_at`.

**The order of the checks.** `decode` walks the headers in the order of the frame and reports the
first error: a code of `frame`, and in `e.error_at` the byte in which the offending field begins.
For each header it first checks whether it fits, then its fields in their order on the wire:

    header    check                                              code               at
    Ethernet  14 bytes fit                                       TOO_SHORT          its start
              ethertype is IPv6 or IPv4                          ETHERTYPE          ethertype
    IPv6,     40 bytes fit                                       TOO_SHORT          its start
    first     version is 6                                       IP_VERSION         version
              payload_length is within the frame, or trimmed     IP_LENGTH          payload_length
              next_header is UDP, IPv6 or Routing                NEXT_HEADER        next_header
              not UDP: bytes 4 and 5 of dst are not both 0       CARRIER_EMPTY      dst
    SRH       24 bytes fit                                       TOO_SHORT          its start
              next_header is IPv6                                NEXT_HEADER        next_header
              hdr_ext_len 2, routing_type 4, segments_left <= 1,
              last_entry 0, in this order                        ROUTING            that field
    IPv6,     40 bytes fit                                       TOO_SHORT          its start
    inner     version is 6                                       IP_VERSION         version
              payload_length ends where the outer packet ends,
              or behind that if trimmed                          IP_LENGTH          payload_length
              next_header is UDP                                 NEXT_HEADER        next_header
    IPv4      20 bytes fit                                       TOO_SHORT          its start
              version is 4                                       IP_VERSION         version
              ihl is 5                                           IP_HEADER_LENGTH   ihl
              total_length is 20 or more, and within the frame,
              or trimmed                                         IP_LENGTH          total_length
              "more fragments" (low bit of ip_flags) is 0,
              fragment_offset is 0                               FRAGMENT           ip_flags
              protocol is UDP                                    NEXT_HEADER        protocol
              the sum of all its words is right                  IP_CHECKSUM        header_checksum
    UDP       8 bytes fit                                        TOO_SHORT          its start
              dst_port is 4791 or 4971                           UDP_PORT           dst_port
              length is what the IP header leaves, or more if
              trimmed                                            UDP_LENGTH         length
    BTH       12 bytes fit before the iCRC                       TOO_SHORT          its start
              opcode is known                                    OPCODE             opcode
              tver is 0                                          TRANSPORT_VERSION  tver
    each      it fits before the iCRC                            EXTENSION_LENGTH   its start
    extension ftype is 1 (TSETH); 1 or 0 (PETH, ERTH; row 31)    FTYPE              ftype
    payload   with its pad a multiple of 4, and not less than
              the pad                                            PAD                BTH.pad
              without the pad at most 8192 bytes, and none
              where the opcode is not that of data               PAYLOAD_LENGTH     its start
    iCRC      right, if `check`                                  ICRC               its start

"Fit" means: before the end of the IP packet, which the first IP header's length gives; bytes after
it (Ethernet padding) are ignored. The iCRC is the last four bytes of the IP packet.

**Trimmed** (row 21) is a frame with the DSCP TRIMMED or TRIMMED_LASTHOP in its first IP header or
in the inner one. It has no iCRC: "before the iCRC" then means before the end of the IP packet, and
the rows of payload and iCRC do not apply: the bytes after the headers are not payload. An ImmDt
may be missing, and `imm` is then 0. Each of its lengths may be that of the whole packet: it then
ends where the frame ends, or the IP header before.

**Classes.** DSCPs are those of the fabric's table, `e.dscps`. A frame is sent with CONTROL in that
class, else with NO_TRIM if that flag is set, else with TRIMMABLE_RETX for retransmissions and
TRIMMABLE for data. The DSCP is read from the first IP header, or from the inner one if only that
says trimmed. TRIMMED and TRIMMED_LASTHOP are the control class, TRIMMABLE_RETX and NO_TRIM with
BTH.rtx are retransmissions, every other value is data. ECN is ECT(0) on all packets outside the
control class; CE is written to the first header alone, where a switch sets it, and read from
either.

**Not checked**: MAC addresses, reserved bits and UET's reserved fields, the high four bits of the
flow label, SRH flags and tag, the UDP checksum, IPv4 identification, `se`, `m` and `r` of the BTH,
`ts` of a packet without data, the PSN in the BTH of a NACK (its `nack_psn` counts), `tsr`,
`cc_type`, and whether a NACK reason, a syndrome or an operation has a name.
"""

from __future__ import annotations

from openmrc.engine.packet import LAST_DATA
from openmrc.fabric.dscp import TRIM_LENGTHS
from openmrc.jit import compiled, inlined
from openmrc.wire import checks, classes, frame, layout
from openmrc.wire.checks import IP, dscp_of, ipv4_sum, is_ipv4
from openmrc.wire.ev import from_wire, to_wire
from openmrc.wire.extensions import get_answer, get_bth, get_data, put_answer, put_bth, put_data
from openmrc.wire.hops import get_class, get_hops, put_hops
from openmrc.wire.icrc import icrc, put_icrc
from openmrc.wire.words import BTH, ICRC, IPV4, IPV6, SRH, UDP, add, get, put, put_bytes, zero

KEPT_BYTES = 128  # row 21: what trimming leaves of an IP packet
KEPT_BYTES_SRH = 256
LENGTHS_ALL, LENGTHS_NONE = TRIM_LENGTHS.index("all"), TRIM_LENGTHS.index("none")


@compiled
def encode(p, e, payload, out, check):
    """Write a frame into `out` (uint8); return the bytes written, or -code of `frame` if that
    cannot be.

    `p` is a PACKET and `e` an ENVELOPE record; the payload is `payload[:p.payload_len]` (uint8),
    followed by zeros if that array is shorter. `check` 0 leaves the iCRC zero, for hardware that
    computes it. `out` may be larger; bytes after the frame are not changed.
    """
    code = _refused(p, e)
    if code != frame.OK:
        return -code
    opcode, payload_bytes = int(p.opcode), int(p.payload_len)
    ts = 1 if e.tseth and opcode <= LAST_DATA else 0
    ip = IP
    if e.srv6:
        ip += IPV6.size_bytes + (SRH.size_bytes if e.srh else 0)
    udp = ip + (IPV4.size_bytes if e.ipv4 else IPV6.size_bytes)
    bth = udp + UDP.size_bytes
    first = bth + BTH.size_bytes
    payload_at = first + checks.EXTENSIONS_BYTES[ts, opcode]
    pad = -payload_bytes & 3
    crc_at = payload_at + payload_bytes + pad
    end = crc_at + ICRC.size_bytes
    if end > out.shape[0]:
        return -frame.TOO_SHORT

    zero(out[:payload_at])
    put_hops(out, p, e, ip, end)
    ports = to_wire(p.ev, e.ev_swapped)
    add(out, udp, UDP.src_port, ports >> 16)
    add(out, udp, UDP.dst_port, e.udp_port)
    add(out, udp, UDP.length, end - udp)
    put_bth(out, bth, p, e.pkey, pad, ts)
    if opcode <= LAST_DATA:
        put_data(out, first, p, ts)
    else:
        put_answer(out, first, p, e)
    _put_payload(out[payload_at:crc_at], payload, payload_bytes)
    crc = icrc(out, ip, crc_at) if check else 0
    put_icrc(out, crc_at, crc)
    return end


@inlined
def _refused(p, e):
    """Why `decode` would refuse this frame: the first error in the order of its checks, or OK."""
    if e.srv6 and e.ipv4:
        return frame.NEXT_HEADER
    if e.srv6 and e.carrier[checks.USID] == 0 and e.carrier[checks.USID + 1] == 0:
        return frame.CARRIER_EMPTY
    if e.srh and (not e.srv6 or e.segments_left > 1):
        return frame.ROUTING
    if e.udp_port != layout.UDP_PORT and e.udp_port != layout.UDP_PORT_ALTERNATIVE:
        return frame.UDP_PORT
    if checks.EXTENSIONS_BYTES[0, p.opcode] == 0:
        return frame.OPCODE
    most = layout.PAYLOAD_BYTES_MAX if p.opcode <= LAST_DATA else 0
    if p.payload_len < 0 or p.payload_len > most:
        return frame.PAYLOAD_LENGTH
    return frame.OK


@inlined
def _put_payload(room, payload, payload_bytes):
    """Write the payload, followed by zeros, over the whole of `room`."""
    given = min(payload_bytes, payload.shape[0])
    put_bytes(room, 0, payload[:given])
    zero(room[given:])


@compiled
def decode(data, n, p, e, check):
    """Read the frame `data[:n]` (uint8) into `p` and `e`; return OK or a code of `frame`.

    Fields that an opcode does not use are zero in the record, addresses that the frame lacks are
    zero in the envelope; the payload is `data[e.payload_at:][:p.payload_len]`. `e.ev_swapped`,
    `e.ports_from_1` and `e.dscps` are inputs, all else in `e` is written; the caller sets `p.src`,
    `p.dst` and `p.plane`. `check` 0 does not verify the iCRC.
    """
    n = min(n, data.shape[0])
    trimmed = checks.trimmed(data, n, e.dscps)
    code, at, srh, ip, udp, end = checks.headers(data, n, trimmed)
    if code != frame.OK:
        e.error_at = at
        return code
    dscp = dscp_of(data, ip, udp, e.dscps)
    bth = udp + UDP.size_bytes
    stop = end if trimmed else end - ICRC.size_bytes
    code, at = checks.transport(data, bth, stop, trimmed)
    payload_bytes = 0
    payload_at = at
    if code == frame.OK and not trimmed:
        most = layout.PAYLOAD_BYTES_MAX if get(data, bth, BTH.opcode) <= LAST_DATA else 0
        code, at, payload_bytes = checks.payload(data, ip, bth, at, stop, most, check)
    if code != frame.OK:
        e.error_at = at
        return code

    get_hops(data, srh, ip, udp, payload_at, p, e)
    if trimmed:
        e.trim_lengths = checks.trim_lengths(data, ip, udp, end)
    p.payload_len = payload_bytes
    label = 0 if e.ipv4 else get(data, ip, IPV6.flow_label)
    p.ev = from_wire(get(data, udp, UDP.src_port), label, e.ev_swapped)
    e.udp_port = get(data, udp, UDP.dst_port)
    get_bth(data, bth, p, e)
    get_class(data, ip, dscp, p, e)
    if p.opcode <= LAST_DATA:
        get_data(data, bth + BTH.size_bytes, payload_at, p, e)
    else:
        get_answer(data, bth + BTH.size_bytes, p, e)
    return frame.OK


@compiled
def trim(out, n, last_hop, dscps, lengths):
    """Trim the frame `out[:n]` (uint8) in place; return its new length in bytes, or -code of
    `frame`.

    Row 21: the first IP header's DSCP becomes TRIMMED, or TRIMMED_LASTHOP if `last_hop`; 128 bytes
    of the IP packet remain, 256 with an SRH. A shorter packet keeps its length, except for its
    iCRC, which would be wrong. `lengths`, a place in `fabric.dscp.TRIM_LENGTHS`, says which
    are adjusted. The switch has checked before that the packet may be trimmed. `dscps` is the
    fabric's table.
    """
    n = min(n, out.shape[0])
    trimmed = checks.trimmed(out, n, dscps)
    code, _, srh, ip, udp, end = checks.headers(out, n, trimmed)
    if code != frame.OK:
        return -code
    kept = IP + (KEPT_BYTES_SRH if srh else KEPT_BYTES)
    if end > kept:
        end = kept
    elif not trimmed:
        end = max(udp + UDP.size_bytes, end - ICRC.size_bytes)
    dscp = classes.dscp(dscps, classes.TRIMMED_LASTHOP if last_hop else classes.TRIMMED)
    if lengths == LENGTHS_ALL:
        put(out, udp, UDP.length, end - udp)
    if is_ipv4(ip, udp):
        put(out, IP, IPV4.dscp, dscp)
        if lengths != LENGTHS_NONE:
            put(out, IP, IPV4.total_length, end - IP)
        put(out, IP, IPV4.header_checksum, 0)
        put(out, IP, IPV4.header_checksum, 0xFFFF - ipv4_sum(out))
        return end
    put(out, IP, IPV6.dscp, dscp)
    if lengths == LENGTHS_ALL:
        put(out, ip, IPV6.payload_length, end - ip - IPV6.size_bytes)
    if lengths != LENGTHS_NONE:
        put(out, IP, IPV6.payload_length, end - IP - IPV6.size_bytes)
    return end
