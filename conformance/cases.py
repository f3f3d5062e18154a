"""What the vectors are: one entry a vector, every value stated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from conformance.packer import (
    EV,
    IPV4,
    PLAIN,
    SEGMENT,
    SRV6,
    SRV6_SRH,
    Message,
    Part,
    Values,
    Vector,
)
from openmrc.fabric.dscp import Dscps
from openmrc.wire import layout
from openmrc.wire.layout import Header

# MRC 2.3
FIRST, MIDDLE, LAST, LAST_IMM, ONLY, ONLY_IMM = 0xC6, 0xC7, 0xC8, 0xC9, 0xCA, 0xCB
ACK, REQUEST, RESPONSE, SACK, NACK, PROBE = 0xD1, 0xD8, 0xD9, 0xDC, 0xDD, 0xDE
# MRC 2.13, the defaults of this project
NO_TRIM, TRIMMABLE, TRIMMABLE_RETX, TRIMMED, TRIMMED_LASTHOP, CONTROL = 0, 4, 8, 12, 16, 46
NOT_ECT, ECT0, CE = 0, 2, 3

QPN = 0x00_ABCD
ALL_ONES = -1  # a field takes as many as it is wide


# Messages: what stands behind the UDP header


def part(header: Header, **values: int) -> Part:
    """Return one header with the values given."""
    return Part(header.name, header, values)


def message(
    opcode: int,
    *parts: Part,
    payload: bytes = b"",
    dscp: int = CONTROL,
    ecn: int = NOT_ECT,
    **bth: int,
) -> Message:
    """Return a message: a BTH, with more of its values in `bth`, and `parts` behind it."""
    values = {"opcode": opcode, "pkey": 0xFFFF, "dest_qpn": QPN, **bth}
    return Message((part(layout.BTH, **values), *parts), payload, dscp, ecn)


def write(
    opcode: int = ONLY,
    n: int = 16,
    imm: int | None = None,
    stamp: bool = True,
    dscp: int = TRIMMABLE,
    ecn: int = ECT0,
    **bth: int,
) -> Message:
    """Return a packet of a write with `n` bytes of payload 00 01 02 ...; `stamp`: with TSETH."""
    parts = [part(layout.METH, rqmsn=0 if imm is None else 3, msn=7)]
    if stamp:
        parts.append(part(layout.TSETH, tx_timestamp=0x1234, ftype=1))
    parts.append(part(layout.RETH, va=0x7F00_0000_1000, rkey=0x0BAD_CAFE, dma_length=n))
    if imm is not None:
        parts.append(part(layout.IMMDT, imm=imm))
    bth = {"psn": 0x01_0203, "pad": -n % 4, "ts": int(stamp)} | bth
    payload = bytes(i & 0xFF for i in range(n))
    return message(opcode, *parts, payload=payload, dscp=dscp, ecn=ecn, **bth)


def ack(syndrome: int = 0x1F, msn: int = 7, psn: int = 0x01_0203) -> Message:
    """Return an acknowledgement of the transport; the PSN is that of the last packet of message
    `msn`, or the one refused.
    """
    return message(ACK, part(layout.AETH, syndrome=syndrome, msn=msn), psn=psn)


def sack(state: Values | None = None, psn: int | None = None, **values: int) -> Message:
    """Return a SACK; `state` holds values of its CC_STATE, `psn` is cack_psn unless given."""
    seth = {"entropy": 0x0089_00AB, "spdcid": 0x1111, "dpdcid": 0xABCD, "cack_psn": 0x01_0200}
    seth |= {"ack_psn_offset": 3, "sack_offset": 1, "sack_bitmap": 0b110} | values
    cc = {"tx_timestamp": 0x1234, "ooo_count": 2, "rcvd_bytes": 0x04_5678} | (state or {})
    psn = seth["cack_psn"] if psn is None else psn
    return message(SACK, part(layout.SETH, **seth), part(layout.CC_STATE, **cc), psn=psn)


def nack(reason: int, psn: int = 0x01_0203) -> Message:
    """Return a NACK of the packet 0x010203, whose PSN its BTH repeats."""
    values = {"entropy": 0x0089_00AB, "spdcid": 0x1111, "dpdcid": 0xABCD, "nack_psn": 0x01_0203}
    values |= {"nack_reason": reason, "cc_type": 2, "tx_timestamp": 0x1234}
    return message(NACK, part(layout.NETH, **values), psn=psn)


def probe(**stamp: int) -> Message:
    """Return a reliability probe; `stamp` replaces values of its time stamp."""
    values = {"probe_id": 0x4EEF, "spdcid": 0x1111, "dpdcid": 0xABCD}
    values |= {"tx_timestamp": 0x1234, "ftype": 1} | stamp
    return message(PROBE, part(layout.PETH, **values), dscp=NO_TRIM, ecn=ECT0)


def request(op: int, mask: int = 0, **stamp: int) -> Message:
    """Return a request of one endpoint to another; the PSN is its id."""
    values = {"op": op, "port_status_mask": mask, "tx_timestamp": 0x1234, "ftype": 1} | stamp
    return message(REQUEST, part(layout.ERTH, **values), dest_qpn=2, psn=0x00_4242)


def response(**ops: int) -> Message:
    """Return an endpoint's answer; the PSN is the request's id."""
    eeth = part(layout.EETH, tx_timestamp=0x1234, **ops)
    return message(RESPONSE, eeth, dest_qpn=2, psn=0x00_4242)


def receive_only(name: str, shows: str, message: Message, **rest: Any) -> Vector:
    """Return a vector in a form that a receiver takes and this project does not send."""
    return Vector(name, shows, message, canonical=False, **rest)


# Vectors

DATA = [
    Vector("write-first", "The first packet of a write.", write(FIRST)),
    Vector("write-middle", "A middle packet: METH and RETH are in every packet.", write(MIDDLE)),
    Vector("write-last", "The last packet of a write without immediate.", write(LAST)),
    Vector(
        "write-last-imm",
        "The last packet of a write with immediate: ImmDt is the last header.",
        write(LAST_IMM, imm=0xDEAD_BEEF),
    ),
    Vector("write-only", "A write in one packet.", write()),
    Vector(
        "write-only-imm",
        "A write with immediate in one packet.",
        write(ONLY_IMM, imm=0xDEAD_BEEF),
    ),
    Vector("no-time-stamp", "BTH.ts is 0, and there is no TSETH.", write(stamp=False)),
    Vector(
        "no-time-stamp-imm",
        "Without TSETH, with ImmDt.",
        write(LAST_IMM, imm=0xDEAD_BEEF, stamp=False),
    ),
    Vector(
        "retransmission",
        "BTH.rtx is set, and the DSCP is the one of retransmissions.",
        write(rtx=1, dscp=TRIMMABLE_RETX),
    ),
    Vector("acknowledge-request", "BTH.a asks for a SACK at once.", write(a=1)),
    Vector(
        "retransmission-acknowledge-request",
        "Every retransmission of this project asks for a SACK (row 5).",
        write(rtx=1, a=1, dscp=TRIMMABLE_RETX),
    ),
    Vector("psn-largest", "The last PSN before the numbers wrap.", write(psn=0xFF_FFFF)),
    Vector("psn-zero", "The PSN after 0xffffff is 0.", write(psn=0)),
    Vector("pad-0", "8 bytes of payload need no padding.", write(n=8)),
    Vector("pad-1", "7 bytes of payload are followed by 1 byte of padding.", write(n=7)),
    Vector("pad-2", "6 bytes of payload are followed by 2 bytes of padding.", write(n=6)),
    Vector("pad-3", "5 bytes of payload are followed by 3 bytes of padding.", write(n=5)),
    Vector("no-payload", "A write of no bytes: the iCRC follows the RETH.", write(n=0)),
    Vector("payload-256", "A payload of 256 bytes; the trimmed vectors cut this.", write(n=256)),
    Vector(
        "no-trim", "DSCP NO_TRIM: a switch drops this rather than trim it.", write(dscp=NO_TRIM)
    ),
    Vector(
        "congestion-experienced",
        "A switch has set CE in the outer header; the inner one keeps ECT(0).",
        write(),
        change={"outer IPv6.ecn": CE},
    ),
    Vector(
        "widest",
        "Every field of a packet of data at its full width.",
        write(LAST_IMM, imm=0xFFFF_FFFF, psn=0xFF_FFFF, a=1),
        ev=0xFFFF_FFFF,
        change={
            "BTH.pkey": 0xFFFF,
            "BTH.dest_qpn": 0xFF_FFFF,
            "METH.rqmsn": 0xFFFF,
            "METH.msn": 0xFFFF,
            "TSETH.tx_timestamp": 0xFFFF,
            "RETH.va": 0xFFFF_FFFF_FFFF_FFFF,
            "RETH.rkey": 0xFFFF_FFFF,
            "RETH.dma_length": 0xFFFF_FFFF,
        },
    ),
    Vector(
        "write-middle-imm",
        "A middle packet of a write with immediate: the RQMSN stands in all its packets (row 33).",
        write(MIDDLE),
        change={"METH.rqmsn": 3},
    ),
    Vector(
        "write-only-rqmsn",
        "An RQMSN in a write without immediate, where this project sends 0; ignored (row 33).",
        write(),
        change={"METH.rqmsn": 3},
    ),
    Vector(
        "partition",
        "A partition key that is not the default one.",
        write(),
        change={"BTH.pkey": 0x8001},
    ),
    Vector(
        "on-the-way",
        "After two switches: uSIDs shifted, hop limit lower, CE set; the iCRC is the same as ever.",
        write(),
        change={
            "outer IPv6.dst": 0x2001_0DB8_4002_1009_0000_0000_0000_0000,
            "outer IPv6.hop_limit": 62,
            "outer IPv6.ecn": CE,
        },
    ),
    receive_only(
        "congestion-experienced-inner",
        "CE in the inner header counts as well: a tunnel's end copies it there.",
        write(ecn=CE),
    ),
    receive_only("solicited-event", "BTH.se is set; it is ignored.", write(se=1)),
    receive_only("migrated", "BTH.m and BTH.r are set; they are ignored.", write(m=1, r=1)),
    receive_only(
        "time-stamp-own-unit",
        "TSETH.tsr says that the unit of the time stamp is the sender's own.",
        write(),
        change={"TSETH.tsr": 1},
    ),
    receive_only(
        "reserved-bits",
        "All reserved bits of BTH and TSETH are set; they are ignored.",
        write(),
        change={"BTH.reserved": ALL_ONES, "TSETH.reserved": ALL_ONES},
    ),
    receive_only(
        "udp-checksum",
        "A UDP checksum is not looked at, and the iCRC takes it as ones.",
        write(),
        change={"UDP.checksum": 0x1234},
    ),
    receive_only(
        "bytes-behind",
        "Bytes behind the IP packet, such as the padding of short Ethernet frames, are ignored.",
        write(),
        behind=b"\xaa" * 6,
    ),
]

ANSWERS = [
    Vector("ack", "The transport acknowledges messages up to 7.", ack()),
    Vector("ack-widest", "The AETH's MSN has 24 bits.", ack(msn=0xFF_FFFF)),
    Vector("nak-invalid-request", "Too many immediates are under way (row 18).", ack(0x61)),
    Vector("nak-access-error", "The remote key or address is wrong.", ack(0x62)),
    Vector("ack-other-syndrome", "A syndrome without a name is still a syndrome.", ack(0x7F)),
    Vector("sack", "m = NONE: the path of the packet answered is good.", sack()),
    Vector("sack-skip-once", "m = SKIP_ONCE: that packet came with CE.", sack(m=1)),
    Vector("sack-always-skip", "m = ALWAYS_SKIP: that path is bad for long.", sack(m=2)),
    Vector(
        "sack-probe-answer",
        "pr is set: ack_psn_offset holds the probe_id, here 0x4eef.",
        sack(pr=1, ack_psn_offset=0x4EEF),
    ),
    Vector(
        "sack-probe-answer-high",
        "A probe_id of 0xbeef reads as a negative ack_psn_offset.",
        sack(pr=1, ack_psn_offset=0xBEEF - 0x1_0000),
    ),
    Vector(
        "sack-negative-offsets",
        "A duplicate from below cack_psn triggered this, and the bitmap begins below it too.",
        sack(ack_psn_offset=-5, sack_offset=-63),
    ),
    Vector(
        "sack-wrap",
        "cack_psn is close to the wrap: bit 2 of the bitmap is PSN 0.",
        sack(cack_psn=0xFF_FFFD, sack_offset=1, ack_psn_offset=3, sack_bitmap=0b101),
    ),
    Vector(
        "sack-psn-zero",
        "BTH.psn is 0, where this project sends cack_psn; it is ignored (row 30).",
        sack(psn=0),
    ),
    Vector("sack-mpr", "A dynamic window of 32 x 128 PSNs.", sack(mpr=32)),
    Vector(
        "sack-widest",
        "Every field of SETH and CC_STATE at its full width, offsets at their lowest.",
        sack(
            {
                "tx_timestamp": 0xFFFF,
                "ooo_count": 0x7FFF,
                "restore_cwnd": 1,
                "rcv_cwnd_pen": 0x7F,
                "rcvd_bytes": 0xFF_FFFF,
            },
            m=2,
            ack_psn_offset=-0x8000,
            entropy=0xFFFF_FFFF,
            spdcid=0xFFFF,
            dpdcid=0xFFFF,
            cack_psn=0xFF_FFFF,
            mpr=0xFF,
            sack_offset=-0x8000,
            sack_bitmap=0xFFFF_FFFF_FFFF_FFFF,
        ),
        ev=0xFFFF_FFFF,
    ),
    Vector("nack-trimmed", "Trimmed in the fabric.", nack(0x01)),
    Vector("nack-trimmed-lasthop", "Trimmed by the last switch.", nack(0x02)),
    Vector("nack-no-bitmap", "No room to track it.", nack(0x06)),
    Vector("nack-no-pkt-buffer", "No buffer for it.", nack(0x07)),
    Vector("nack-no-resource", "No other resource for it.", nack(0x0A)),
    Vector("nack-psn-oor-window", "Its PSN is above the window.", nack(0x0B)),
    Vector("nack-unexp-event", "The QP is broken; do not retry.", nack(0x19)),
    Vector("nack-other-reason", "A reason without a name is still a reason.", nack(0xE0)),
    Vector("probe", "A reliability probe travels as data that is not trimmed (row 7).", probe()),
    Vector(
        "probe-unstamped",
        "ftype 0: there is no time stamp (row 31).",
        probe(tx_timestamp=0, ftype=0),
    ),
    receive_only(
        "probe-unstamped-remains",
        "With ftype 0 the 16 bits of the time stamp are no time stamp.",
        probe(ftype=0),
    ),
    receive_only(
        "nack-psn-zero",
        "BTH.psn is 0; nack_psn says which packet is refused (row 30).",
        nack(0x01, psn=0),
    ),
    receive_only(
        "sack-reserved-bits",
        "All reserved bits and UET's own fields are set; they are ignored.",
        sack(type=0xF, nxt=0x1F, cc_type=0xF, cc_flags=0xF),
        change={"SETH.reserved": ALL_ONES, "CC_STATE.reserved": ALL_ONES},
    ),
    receive_only(
        "nack-vendor",
        "The vendor's byte and reserved bits of a NACK are ignored.",
        nack(0x06),
        change={"NETH.vendor": 0x55, "NETH.reserved": ALL_ONES},
    ),
]

ENDPOINTS = [
    Vector(
        "port-status",
        "Ports 0 to 6 can be reached, port 7 cannot.",
        request(op=0, mask=0b0111_1111),
    ),
    Vector("port-status-widest", "All 32 ports.", request(op=0, mask=0xFFFF_FFFF)),
    Vector("port-status-four", "Four ports, all of which can be reached.", request(op=0, mask=0xF)),
    Vector("ev-probe", "An endpoint asks whether this path works: no mask.", request(op=1)),
    Vector(
        "ev-probe-mask",
        "A mask in an EV probe, where this project sends 0; it is ignored (row 32).",
        request(op=1, mask=0xF),
    ),
    Vector(
        "port-status-unstamped",
        "ftype 0: there is no time stamp (row 31).",
        request(op=0, mask=0xF, tx_timestamp=0, ftype=0),
    ),
    Vector("port-status-answer", "The answer to a port status has op 0.", response()),
    Vector("ev-probe-answer", "op 1 in bits 3:2 of the second byte (row 4).", response(op=1)),
    receive_only(
        "ev-probe-answer-alternative",
        "op 1 in bits 5:4, where others write it (row 4).",
        response(op_alternative=1),
    ),
    receive_only(
        "endpoint-reserved-bits",
        "All reserved bits of the ERTH are set; they are ignored.",
        request(op=1),
        change={"ERTH.reserved": ALL_ONES, "ERTH.vendor": 0xFF},
    ),
]


def hop(number: int, at_usid: int, carrier: int, came_from: str) -> Vector:
    """Return what the uN switch `at_usid`, the `number`th on the way, makes of a frame."""
    return Vector(
        f"un-{number}",
        f"Behind switch {at_usid:04x}: its uSID is gone, the others moved up, one hop is used.",
        write(),
        change={"outer IPv6.dst": carrier, "outer IPv6.hop_limit": 64 - number},
        switched_from=came_from,
        at_usid=at_usid,
    )


def link(number: int, at_usid: int, link_usid: int, carrier: int, came_from: str) -> Vector:
    """Return what the switch `at_usid`, the `number`th on the way, makes of a frame whose carrier
    names its link `link_usid`.
    """
    return Vector(
        f"ua-{number}",
        f"Behind switch {at_usid:04x}, out of its link {link_usid:04x}, whose uSID is gone.",
        write(),
        change={"outer IPv6.dst": carrier, "outer IPv6.hop_limit": 64 - number},
        switched_from=came_from,
        at_usid=at_usid,
        link_usid=link_usid,
    )


_BLOCK = 0x2001_0DB8 << 96
_LAST_USID = {"outer IPv6.dst": _BLOCK | 0x2003 << 80}
PATHS = [
    hop(1, 0x4000, _BLOCK | 0x2003_4002_1009 << 48, "srv6"),
    hop(2, 0x2003, _BLOCK | 0x4002_1009 << 64, "un-1"),
    hop(3, 0x4002, _BLOCK | 0x1009 << 80, "un-2"),
    Vector(
        "srv6-ua",
        "The carrier names links: the first switch, its uplink 3, a downlink of the next, the NIC.",
        write(),
        change={"outer IPv6.dst": _BLOCK | 0x4000_F003_E002_1009 << 32},
    ),
    link(1, 0x4000, 0xF003, _BLOCK | 0xE002_1009 << 64, "srv6-ua"),
    link(2, 0x2003, 0xE002, _BLOCK | 0x1009 << 80, "ua-1"),
    Vector(
        "srh-last-usid",
        "The carrier ends at the next switch, and a segment is left.",
        write(),
        SRV6_SRH,
        change=_LAST_USID,
    ),
    Vector(
        "srh-next-segment",
        "Behind switch 2003: the segment is the destination now, and none is left.",
        write(),
        SRV6_SRH,
        change={"outer IPv6.dst": SEGMENT, "outer IPv6.hop_limit": 63, "SRH.segments_left": 0},
        switched_from="srh-last-usid",
        at_usid=0x2003,
    ),
    Vector("srv6", "IPv6 in IPv6; the outer destination is a carrier of uSIDs.", write(), SRV6),
    Vector("srh", "With a segment routing header, whose segment follows.", write(), SRV6_SRH),
    Vector(
        "srh-copy",
        "segments_left 0: the segment is a copy of the path for debugging.",
        write(),
        SRV6_SRH,
        change={"SRH.segments_left": 0, "SRH.segment": 0x2001_0DB8_4000_2003_4002_1009 << 32},
    ),
    Vector("plain-ipv6", "IPv6 without SRv6.", write(), PLAIN),
    Vector("ipv4", "IPv4: the high half of the EV is not carried.", write(), IPV4, ev=0x4567),
    Vector("srv6-swapped", "EV[15:0] in the flow label.", write(), SRV6, ev_swapped=True),
    Vector(
        "ipv4-swapped",
        "EV[31:16] in the source port: the low half is not carried.",
        write(),
        IPV4,
        ev=0x0123_0000,
        ev_swapped=True,
    ),
    Vector("sack-plain-ipv6", "A SACK without SRv6.", sack(), PLAIN),
    Vector("sack-srh", "A SACK behind a segment routing header.", sack(), SRV6_SRH),
    Vector("sack-ipv4", "A SACK over IPv4.", sack(), IPV4, ev=0x4567),
    Vector("sack-swapped", "A SACK with the halves of the EV swapped.", sack(), ev_swapped=True),
    Vector("ipv4-pad", "Padding over IPv4.", write(n=5), IPV4, ev=0x4567),
    Vector(
        "ipv4-congestion-experienced",
        "CE over IPv4: the header checksum knows, the iCRC does not.",
        write(ecn=CE),
        IPV4,
        ev=0x4567,
    ),
    Vector("ev-zero", "EV 0.", write(), ev=0),
    Vector("ev-high", "Only bits of the upper half.", write(), ev=0x8001_0000),
    Vector("ev-low", "Only bits of the lower half.", write(), ev=0x0000_8001),
    Vector(
        "carrier-full",
        "Six uSIDs, as many as a carrier holds.",
        write(),
        change={"outer IPv6.dst": 0x2001_0DB8_4000_2003_8001_2005_4002_1009},
    ),
    Vector(
        "carrier-last",
        "Behind the last switch: the NIC's own uSID is in front.",
        write(),
        change={"outer IPv6.dst": 0x2001_0DB8_1009 << 80, "outer IPv6.hop_limit": 61},
    ),
    Vector(
        "port-4971",
        "The UDP port that the specification prints (row 1).",
        write(),
        change={"UDP.dst_port": 4971},
    ),
    receive_only(
        "flow-labels-differ",
        "The inner flow label counts, and only its low 16 bits.",
        write(),
        change={"outer IPv6.flow_label": 0xF_9999, "IPv6.flow_label": 0xE_0123},
    ),
    receive_only(
        "srh-tag",
        "Tag and flags of a segment routing header are ignored.",
        write(),
        path=SRV6_SRH,
        change={"SRH.tag": 0xFFFF, "SRH.srh_flags": 0xFF},
    ),
    receive_only(
        "ipv4-identification",
        "Identification and a missing do-not-fragment are ignored.",
        write(),
        path=IPV4,
        ev=0x4567,
        change={"IPv4.identification": 0x1234, "IPv4.ip_flags": 0},
    ),
]

_LONG = write(n=256)
_LONG_IMM = write(LAST_IMM, n=256, imm=0xDEAD_BEEF)
_WHOLE = [
    Vector("long-srh", "Untrimmed: with SRH.", _LONG, SRV6_SRH),
    Vector("long-ipv4", "Untrimmed: over IPv4.", _LONG, IPV4, ev=0x4567),
    Vector("long-plain-ipv6", "Untrimmed: without SRv6.", _LONG, PLAIN),
    Vector("long-imm", "Untrimmed: with an immediate.", _LONG_IMM),
    Vector("short-ipv4", "Untrimmed: shorter than what trimming leaves.", write(n=5), IPV4, ev=9),
]
_OUTER, _V4 = "outer IPv6.dscp", "IPv4.dscp"
LENGTHS = {
    "outer": "The length of the first IP header is adjusted, the others are not.",
    "none": "No length is adjusted.",
}


def _claiming(path: tuple[tuple[str, Header], ...], lengths: str) -> tuple[str, ...]:
    """Return the headers whose length a switch with this choice leaves."""
    names = [name for name, header in path if header is not layout.SRH] + ["UDP"]
    return tuple(names[1:] if lengths == "outer" else names)


TRIMS = [
    *_WHOLE,
    Vector(
        "trimmed",
        "128 B of the IP packet are left: all headers, and 4 bytes that are not payload.",
        _LONG,
        change={_OUTER: TRIMMED},
        cut=128,
        trimmed_from="payload-256",
    ),
    Vector(
        "trimmed-lasthop",
        "Trimmed by the switch before the receiver.",
        _LONG,
        change={_OUTER: TRIMMED_LASTHOP},
        cut=128,
        trimmed_from="payload-256",
    ),
    Vector(
        "trimmed-srh",
        "With SRH, 256 B are left.",
        _LONG,
        SRV6_SRH,
        change={_OUTER: TRIMMED},
        cut=256,
        trimmed_from="long-srh",
    ),
    Vector(
        "trimmed-lasthop-srh",
        "Trimmed by the last switch, with SRH.",
        _LONG,
        SRV6_SRH,
        change={_OUTER: TRIMMED_LASTHOP},
        cut=256,
        trimmed_from="long-srh",
    ),
    Vector(
        "trimmed-ipv4",
        "Over IPv4: the header checksum is right again.",
        _LONG,
        IPV4,
        ev=0x4567,
        change={_V4: TRIMMED},
        cut=128,
        trimmed_from="long-ipv4",
    ),
    Vector(
        "trimmed-lasthop-ipv4",
        "Trimmed by the last switch, over IPv4.",
        _LONG,
        IPV4,
        ev=0x4567,
        change={_V4: TRIMMED_LASTHOP},
        cut=128,
        trimmed_from="long-ipv4",
    ),
    Vector(
        "trimmed-plain-ipv6",
        "Without SRv6 the only IP header says it.",
        _LONG,
        PLAIN,
        change={"IPv6.dscp": TRIMMED},
        cut=128,
        trimmed_from="long-plain-ipv6",
    ),
    Vector(
        "trimmed-imm",
        "With ImmDt the headers fill the 128 B to the last byte.",
        _LONG_IMM,
        change={_OUTER: TRIMMED},
        cut=128,
        trimmed_from="long-imm",
    ),
    Vector(
        "trimmed-short",
        "A short packet loses only its iCRC.",
        write(n=5),
        IPV4,
        ev=9,
        change={_V4: TRIMMED},
        cut=76,
        trimmed_from="short-ipv4",
    ),
    *(
        Vector(
            f"trimmed-{lengths}-{name}",
            f"{LENGTHS[lengths]} {shows}",
            _LONG,
            path,
            ev=0x4567 if path == IPV4 else EV,
            change={f"{path[0][0]}.dscp": TRIMMED},
            cut=256 if path == SRV6_SRH else 128,
            kept=_claiming(path, lengths),
            trimmed_from=whole,
        )
        for lengths in ("outer", "none")
        for name, shows, path, whole in (
            ("srv6", "With SRv6.", SRV6, "payload-256"),
            ("srh", "With SRH.", SRV6_SRH, "long-srh"),
            ("ipv4", "Over IPv4; the header checksum is right again.", IPV4, "long-ipv4"),
            ("plain-ipv6", "Without SRv6.", PLAIN, "long-plain-ipv6"),
        )
    ),
    *(
        Vector(
            f"trimmed-{lengths}-to-{cut}",
            f"{LENGTHS[lengths]} {cut} B of {whole} are left, as platforms can be told.",
            write(n=payload, psn=cut),
            change={_OUTER: TRIMMED_LASTHOP},
            cut=cut,
            kept=_claiming(SRV6, lengths),
        )
        for lengths, cut, whole, payload in (
            ("outer", 256, 400, 272),
            ("none", 256, 3000, 2872),
            ("none", 4084, 5000, 4872),
        )
    ),
    Vector(
        "trimmed-inner",
        "The tunnel's end copied the DSCP into the inner header; that counts as well.",
        write(n=256, dscp=TRIMMED),
        PLAIN,
        cut=128,
    ),
]


# values of SONiC's and Cumulus' own examples
_ELSEWHERE = Dscps(
    no_trim=10, trimmable=18, trimmable_retx=26, trimmed=11, trimmed_lasthop=21, control=48
)
_LONG_ELSEWHERE = write(n=256, dscp=_ELSEWHERE.trimmable)
CLASSES = [
    Vector(
        "classes-trimmable",
        "Another fabric's DSCPs: what switches may cut.",
        _LONG_ELSEWHERE,
        dscps=_ELSEWHERE,
    ),
    Vector(
        "classes-trimmable-retx",
        "Another fabric's DSCPs: a retransmission.",
        write(rtx=1, dscp=_ELSEWHERE.trimmable_retx),
        dscps=_ELSEWHERE,
    ),
    Vector(
        "classes-no-trim",
        "Another fabric's DSCPs: what switches may not cut.",
        write(dscp=_ELSEWHERE.no_trim),
        dscps=_ELSEWHERE,
    ),
    Vector(
        "classes-control",
        "Another fabric's DSCPs: an ACK.",
        replace(ack(), dscp=_ELSEWHERE.control),
        dscps=_ELSEWHERE,
    ),
    Vector(
        "classes-trimmed",
        "Another fabric's DSCPs: trimmed.",
        _LONG_ELSEWHERE,
        change={_OUTER: _ELSEWHERE.trimmed},
        cut=128,
        trimmed_from="classes-trimmable",
        dscps=_ELSEWHERE,
    ),
    Vector(
        "classes-trimmed-lasthop",
        "Another fabric's DSCPs: trimmed by the last switch.",
        _LONG_ELSEWHERE,
        change={_OUTER: _ELSEWHERE.trimmed_lasthop},
        cut=128,
        trimmed_from="classes-trimmable",
        dscps=_ELSEWHERE,
    ),
    receive_only(
        "classes-not-trimmed",
        "Another fabric's DSCPs: what is TRIMMED by default is a whole packet of data there.",
        write(dscp=TRIMMED),
        dscps=_ELSEWHERE,
    ),
]


def refuse(name: str, shows: str, code: str, at: str, **rest: Any) -> Vector:
    """Return a vector that a decoder refuses with `code` at `at`."""
    return Vector(name, shows, rest.pop("message", write()), refused=(code, at), **rest)


def wrong(name: str, shows: str, code: str, at: str, value: int, **rest: Any) -> Vector:
    """Return a vector that is refused for the value of one field."""
    return refuse(name, shows, code, at, change={at: value}, **rest)


REFUSED = [
    refuse("empty", "Nothing at all.", "TOO_SHORT", "Ethernet", keep=0),
    refuse("ends-in-ethernet", "13 bytes.", "TOO_SHORT", "Ethernet", keep=13),
    refuse("ends-in-outer", "Less than an IPv6 header.", "TOO_SHORT", "outer IPv6", keep=53),
    refuse("ends-in-ipv4", "Less than an IPv4 header.", "TOO_SHORT", "IPv4", keep=33, path=IPV4),
    refuse(
        "ends-in-srh", "The IP packet ends in the SRH.", "TOO_SHORT", "SRH", cut=63, path=SRV6_SRH
    ),
    refuse("ends-in-inner", "The outer packet is too short.", "TOO_SHORT", "IPv6", cut=79),
    refuse("ends-in-udp", "The IP packet ends in the UDP header.", "TOO_SHORT", "UDP", cut=87),
    refuse("ends-in-bth", "No room for BTH and iCRC.", "TOO_SHORT", "BTH", cut=103),
    wrong("ethertype", "A VLAN tag.", "ETHERTYPE", "Ethernet.ethertype", 0x8100),
    wrong(
        "outer-version",
        "IP version 4 behind IPv6's EtherType.",
        "IP_VERSION",
        "outer IPv6.version",
        4,
    ),
    wrong("inner-version", "IP version 5 in the tunnel.", "IP_VERSION", "IPv6.version", 5),
    wrong(
        "ipv4-version",
        "Version 6 behind IPv4's EtherType.",
        "IP_VERSION",
        "IPv4.version",
        6,
        path=IPV4,
    ),
    wrong("ipv4-options", "IPv4 options.", "IP_HEADER_LENGTH", "IPv4.ihl", 6, path=IPV4),
    wrong("ipv4-short-header", "Less than 20 bytes.", "IP_HEADER_LENGTH", "IPv4.ihl", 4, path=IPV4),
    wrong("outer-length", "Longer than the frame.", "IP_LENGTH", "outer IPv6.payload_length", 125),
    wrong("inner-length", "Shorter than the outer packet.", "IP_LENGTH", "IPv6.payload_length", 67),
    wrong("ipv4-length", "Longer than the frame.", "IP_LENGTH", "IPv4.total_length", 89, path=IPV4),
    wrong(
        "ipv4-length-small",
        "Shorter than its header.",
        "IP_LENGTH",
        "IPv4.total_length",
        19,
        path=IPV4,
    ),
    refuse(
        "truncated",
        "A frame of which one byte is missing.",
        "IP_LENGTH",
        "outer IPv6.payload_length",
        keep=137,
    ),
    wrong(
        "ipv4-checksum",
        "A wrong header checksum.",
        "IP_CHECKSUM",
        "IPv4.header_checksum",
        0x1234,
        path=IPV4,
    ),
    wrong("more-fragments", "A first fragment.", "FRAGMENT", "IPv4.ip_flags", 1, path=IPV4),
    refuse(
        "later-fragment",
        "A later fragment.",
        "FRAGMENT",
        "IPv4.ip_flags",
        change={"IPv4.fragment_offset": 1},
        path=IPV4,
    ),
    wrong("outer-next-header", "TCP.", "NEXT_HEADER", "outer IPv6.next_header", 6),
    wrong("ipv4-in-ipv6", "IPv4 in an SRv6 tunnel.", "NEXT_HEADER", "outer IPv6.next_header", 4),
    wrong("inner-next-header", "A tunnel in the tunnel.", "NEXT_HEADER", "IPv6.next_header", 41),
    wrong(
        "srh-next-header", "UDP behind an SRH.", "NEXT_HEADER", "SRH.next_header", 17, path=SRV6_SRH
    ),
    wrong("ipv4-protocol", "TCP over IPv4.", "NEXT_HEADER", "IPv4.protocol", 6, path=IPV4),
    wrong("srh-two-segments", "Two segments.", "ROUTING", "SRH.hdr_ext_len", 4, path=SRV6_SRH),
    wrong("srh-type", "Another routing type.", "ROUTING", "SRH.routing_type", 3, path=SRV6_SRH),
    wrong(
        "srh-segments-left",
        "More left than there are.",
        "ROUTING",
        "SRH.segments_left",
        2,
        path=SRV6_SRH,
    ),
    wrong(
        "srh-last-entry",
        "A second segment is named.",
        "ROUTING",
        "SRH.last_entry",
        1,
        path=SRV6_SRH,
    ),
    wrong(
        "carrier-empty", "A carrier of zeros.", "CARRIER_EMPTY", "outer IPv6.dst", 0x2001_0DB8 << 96
    ),
    wrong("destination-zero", "The address ::.", "CARRIER_EMPTY", "outer IPv6.dst", 0),
    wrong("udp-port", "VXLAN.", "UDP_PORT", "UDP.dst_port", 4789),
    wrong(
        "udp-length-short",
        "One byte less than the IP length says.",
        "UDP_LENGTH",
        "UDP.length",
        67 - 8,
    ),
    wrong("udp-length-zero", "Length 0, as of a jumbogram.", "UDP_LENGTH", "UDP.length", 0),
    wrong("opcode-roce", "RDMA WRITE Only of RoCEv2's RC.", "OPCODE", "BTH.opcode", 0x0A),
    wrong("opcode-unused", "An opcode between those of MRC.", "OPCODE", "BTH.opcode", 0xDF),
    wrong("transport-version", "Transport version 1.", "TRANSPORT_VERSION", "BTH.tver", 1),
    refuse(
        "ends-in-reth",
        "The packet ends within its RETH.",
        "EXTENSION_LENGTH",
        "RETH",
        cut=40 + 40 + 8 + 12 + 4 + 4 + 12 + 4,
    ),
    refuse(
        "ends-in-cc-state",
        "A SACK without CC_STATE.",
        "EXTENSION_LENGTH",
        "CC_STATE",
        message=sack(),
        cut=40 + 40 + 8 + 12 + 28 + 4,
    ),
    refuse(
        "trimmed-too-short",
        "A trimmed packet must keep its headers.",
        "EXTENSION_LENGTH",
        "RETH",
        change={_OUTER: TRIMMED},
        cut=123,
    ),
    refuse(
        "trimmed-too-short-none",
        "It must keep them whatever its lengths say.",
        "EXTENSION_LENGTH",
        "RETH",
        change={_OUTER: TRIMMED},
        cut=123,
        kept=_claiming(SRV6, "none"),
    ),
    refuse(
        "trimmed-length-short",
        "A trimmed packet may claim more than is there, not less.",
        "UDP_LENGTH",
        "UDP.length",
        message=write(n=256),
        change={_OUTER: TRIMMED, "UDP.length": 47},
        cut=128,
    ),
    *(
        refuse(
            f"untrimmed-{lengths}-{name}",
            f"{LENGTHS[lengths]} The DSCP is that of a whole packet.",
            code,
            place,
            message=write(n=256),
            path=path,
            cut=128,
            kept=_claiming(path, lengths),
        )
        for lengths, name, path, code, place in (
            ("outer", "srv6", SRV6, "IP_LENGTH", "IPv6.payload_length"),
            ("none", "srv6", SRV6, "IP_LENGTH", "outer IPv6.payload_length"),
            ("outer", "ipv4", IPV4, "UDP_LENGTH", "UDP.length"),
            ("none", "ipv4", IPV4, "IP_LENGTH", "IPv4.total_length"),
        )
    ),
    refuse(
        "trim-mark-lost",
        "What a switch has trimmed, with the DSCP of a whole packet: a wrong iCRC.",
        "ICRC",
        "payload",
        message=write(n=256),
        cut=128,
    ),
    wrong("tseth-ftype", "Another type of time stamp.", "FTYPE", "TSETH.ftype", 2),
    wrong("tseth-ftype-none", "A TSETH without time stamp.", "FTYPE", "TSETH.ftype", 0),
    wrong("peth-ftype", "Another type in a probe.", "FTYPE", "PETH.ftype", 2, message=probe()),
    wrong("erth-ftype", "Another type in a request.", "FTYPE", "ERTH.ftype", 2, message=request(1)),
    wrong(
        "pad-too-large",
        "More padding than there are bytes.",
        "PAD",
        "BTH.pad",
        1,
        message=write(n=0),
    ),
    refuse(
        "pad-missing", "11 bytes and no padding.", "PAD", "BTH.pad", cut=40 + 40 + 8 + 36 + 11 + 4
    ),
    refuse(
        "payload-of-sack",
        "Bytes behind the headers of a SACK.",
        "PAYLOAD_LENGTH",
        "payload",
        message=Message(sack().parts, bytes(4), CONTROL, NOT_ECT),
    ),
    wrong("icrc", "A wrong iCRC.", "ICRC", "iCRC.icrc", 0x1234_5678),
    wrong("icrc-zero", "No iCRC: zeros.", "ICRC", "iCRC.icrc", 0),
    wrong("icrc-ipv4", "A wrong iCRC over IPv4.", "ICRC", "iCRC.icrc", 0, path=IPV4),
]

GROUPS = {
    "data": DATA,
    "answers": ANSWERS,
    "endpoints": ENDPOINTS,
    "paths": PATHS,
    "trimmed": TRIMS,
    "classes": CLASSES,
    "refused": REFUSED,
}
