"""Captured packets as plain values, and as one line of text each.

`Frames` runs the compiled codec over packets one by one, in its own buffers; `line` summarises one
for people. All fields of all headers are in `wire.view`.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from ipaddress import ip_address
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from openmrc.engine import packet
from openmrc.fabric.dscp import DEFAULT, Dscps
from openmrc.jit import records
from openmrc.wire import addresses, codec, frame, layout, view
from openmrc.wire.layout import BTH, CC_STATE, EETH, ERTH, IMMDT, METH, NETH, PETH, RETH, SETH
from openmrc.wire.pcap import PACKET_BYTES_MAX, Captured
from openmrc.wire.walk import HeaderView, Part, walk_part

ADDRESSES_KEPT = 65_536  # addresses kept as text; two for each NIC's port in a capture
RUNS_SHOWN = 4  # of a SACK's bitmap
BITMAP_BITS = SETH.field("sack_bitmap").bits

# Errors that a healthy packet of another protocol causes; all others are damage.
FOREIGN = {
    frame.ETHERTYPE,
    frame.IP_HEADER_LENGTH,
    frame.FRAGMENT,
    frame.NEXT_HEADER,
    frame.UDP_PORT,
}

FLAGS = {
    packet.ACK_REQ: "ACK_REQ",
    packet.RTX: "RTX",
    packet.NO_TRIM: "NO_TRIM",
    packet.CE: "CE",
    packet.TRIMMED: "TRIMMED",
    packet.TRIMMED_LASTHOP: "TRIMMED_LASTHOP",
    packet.UNSTAMPED: "UNSTAMPED",
}

# by place in `frame.TRIM_LENGTHS_FOUND`
_ADJUSTED = (
    "all lengths adjusted",
    "outer length adjusted",
    "no length adjusted",
    "some lengths adjusted",
)

Missing = tuple[layout.Header, ...]

# A PACKET record as Python's own integers, whose attributes are ten times as fast to read.
Fields = namedtuple("Fields", packet.PACKET.names or ())  # type: ignore[misc]


class Frame(NamedTuple):
    """A decoded packet: the fields of its record, its source and its destination.

    `endpoint` names the destination's row in a summary: a NIC of the project's plan by its address
    on plane 0, every other one by its own address. `missing` are headers that the opcode requires
    and a truncated packet lacks; `trim_lengths` as the envelope has it.
    """

    p: Any  # Fields
    source: str
    destination: str
    endpoint: str
    missing: Missing = ()
    trim_lengths: int = 0


class Frames:
    """Decodes packet by packet, in its own buffers; `ev_swapped` and `ports_from_1` are the
    senders' choices, `dscps` the fabric's table.
    """

    _decode: Callable[..., Any] = staticmethod(codec.decode)

    def __init__(
        self, ev_swapped: bool = False, ports_from_1: bool = False, dscps: Dscps = DEFAULT
    ) -> None:
        self._bytes = np.zeros(PACKET_BYTES_MAX, np.uint8)
        self._window = self._bytes.data
        self._packet = records(1, packet.PACKET)[0]
        self._envelope = records(1, frame.ENVELOPE)[0]
        self._envelope.ev_swapped = ev_swapped
        self._envelope.ports_from_1 = ports_from_1
        self._envelope.dscps, self._dscps = dscps.packed, dscps
        self._swapped, self._from_1 = ev_swapped, ports_from_1

    def read(self, captured: Captured, check: bool = True) -> Frame:
        """Decode one packet, and verify its iCRC if `check`. Raises `WireError`.

        A packet that the capture truncated needs only its headers, and its iCRC is not verified.
        """
        n, length = len(captured.data), captured.original_length
        cut = n < length <= PACKET_BYTES_MAX
        self._window[:n] = captured.data
        if cut:
            self._window[n:length] = bytes(length - n)
        else:
            length = n
        check = check and not cut
        code = self._decode(self._bytes, length, self._packet, self._envelope, int(check))
        envelope = self._envelope
        if cut and (code != frame.OK or envelope.payload_at > n):
            # Zeros may have been read in place of missing bytes: the plain reader detects that.
            self._look(captured.data, length)
        if code != frame.OK:
            raise frame.WireError(code, int(envelope.error_at))
        return self._frame(Fields._make(self._packet.item()), envelope)

    def _frame(self, p: Any, envelope: Any) -> Frame:
        return frame_of(p, envelope)

    def _look(self, data: bytes, length: int) -> None:
        view.decode(data, check=False, length=length, dscps=self._dscps)

    def part(self, captured: Captured) -> Part:
        """Return the complete headers of a packet that `read` refused."""
        kept, length = len(captured.data), captured.original_length
        return walk_part(captured.data, length if length <= PACKET_BYTES_MAX else kept, self._dscps)

    def part_frame(self, part: Part) -> Frame | None:
        """Return what is known of such a packet; None if it has no complete IP header. Fields of
        missing headers are 0, those that are counted None.
        """
        ip, udp = part.header(layout.IPV6, layout.IPV4), part.header(layout.UDP)
        if ip is None:
            return None
        found = _frame_of_part(part, ip)
        if udp is None:
            return found
        found.p.ev = view.ev_of(ip, udp, self._swapped)
        if self._from_1 and part.header(layout.ERTH) is not None:
            found.p.imm >>= 1
        found.p.flag_bits |= _outer_flags(part, self._dscps)
        if part.trim_lengths is None:
            return found
        return found._replace(trim_lengths=frame.TRIM_LENGTHS_FOUND.index(part.trim_lengths))

    def part_line(self, part: Part) -> str:
        """Return the line of such a packet, from its headers down to the last complete one; an
        empty line if it has no complete IP header.
        """
        found, udp = self.part_frame(part), part.header(layout.UDP)
        if found is None:
            return ""
        if udp is None or not (part.has_bth or part.missing):
            return _ends(found)
        if not part.has_bth:
            return f"{_ends(found)}  EV {found.p.ev:#010x}"
        return line(found)


def frame_of(p: Any, envelope: Any) -> Frame:
    """Return a decoded record with the addresses of its envelope."""
    length = addresses.IPV4_BYTES if envelope.ipv4 else addresses.IPV6_BYTES
    source, destination = (envelope[name][:length].tobytes() for name in ("inner_src", "inner_dst"))
    macs = envelope.dst_mac.tobytes() + envelope.src_mac.tobytes()
    ends = _text(source), _text(destination), _endpoint(macs, source, destination)
    return Frame(p, *ends, trim_lengths=int(envelope.trim_lengths))


@lru_cache(ADDRESSES_KEPT)
def _text(address: bytes) -> str:
    return str(ip_address(address))


@lru_cache(ADDRESSES_KEPT)
def _endpoint(macs: bytes, source: bytes, destination: bytes) -> str:
    """The address on plane 0 if the packet is one of the project's own plan, else the destination.

    Both ends are then on one plane. An IPv6 address of the plan is nobody else's, but 10.0.0.0/8 is
    everybody's: over IPv4 the MACs must be those of the same two ports, or of switches.
    """
    to, by = addresses.whose(destination), addresses.whose(source)
    if to is None or by is None or to.plane != by.plane:
        return _text(destination)
    if len(destination) == addresses.IPV6_BYTES:
        return str(addresses.ipv6(to.nic, 0))
    ends = ((macs[: addresses.MAC_BYTES], to), (macs[addresses.MAC_BYTES :], by))
    unknown = bytes(addresses.MAC_BYTES)  # of a cooked capture
    if macs == 2 * unknown or not all(_is_at(mac, port) for mac, port in ends if mac != unknown):
        return _text(destination)
    return str(addresses.ipv4(to.nic, 0))


def _is_at(mac: bytes, port: addresses.Port) -> bool:
    """Whether a MAC of a packet's link is that of a port, or of a switch."""
    switch = bytes((addresses.MAC_PREFIX, addresses.MAC_OF_SWITCH))
    return mac[:2] == switch or addresses.whose(mac) == port


# The fields that a line shows, by header: fields of the record by those of the header.
_SAID: dict[str, dict[str, str]] = {
    BTH.name: {"opcode": "opcode", "dst_qpn": "dest_qpn", "psn": "psn"},
    METH.name: {"msn": "msn", "rqmsn": "rqmsn"},
    RETH.name: {"va": "va", "dma_len": "dma_length"},
    IMMDT.name: {"imm": "imm"},
    layout.AETH.name: {"reason": "syndrome", "msn": "msn"},
    SETH.name: {
        "cack_psn": "cack_psn",
        "sack_offset": "sack_offset",
        "bitmap": "sack_bitmap",
        "ack_offset": "ack_psn_offset",
        "entropy": "entropy",
        "m": "m",
        "mpr": "mpr",
    },
    CC_STATE.name: {"ooo_count": "ooo_count", "penalty": "rcv_cwnd_pen"},
    NETH.name: {"psn": "nack_psn", "reason": "nack_reason", "entropy": "entropy"},
    PETH.name: {"ack_offset": "probe_id"},
    ERTH.name: {"reason": "op", "m": "vendor", "imm": "port_status_mask"},
    EETH.name: {"reason": "op"},
}


def _frame_of_part(part: Part, ip: HeaderView) -> Frame:
    """The fields of the complete headers; all others are 0."""
    p = SimpleNamespace(**dict.fromkeys(Fields._fields, 0))
    p.payload_len = part.payload_length
    for said in part.headers:
        vars(p).update((name, said[told]) for name, told in _SAID.get(said.name, {}).items())
        p.flag_bits |= _flags_of(said)
        if said.header is EETH:  # row 4
            p.reason = said["op"] or said["op_alternative"]
    if p.opcode <= packet.LAST_DATA and METH in part.missing:
        p.msn = None
    if SETH in part.missing:
        p.cack_psn = None
    if NETH in part.missing or layout.AETH in part.missing:
        p.reason = None
    return Frame(p, *ends_of_part(part, ip), part.missing)


def ends_of_part(part: Part, ip: HeaderView) -> tuple[str, str, str]:
    """Source, destination and endpoint of a packet of which only headers are there."""
    n_bytes = ip.header.field("src").bits // 8
    source, destination = (ip[name].to_bytes(n_bytes, "big") for name in ("src", "dst"))
    ethernet = part.headers[0]
    macs = b"".join(ethernet[name].to_bytes(6, "big") for name in ("dst_mac", "src_mac"))
    return _text(source), _text(destination), _endpoint(macs, source, destination)


def _flags_of(said: HeaderView) -> int:
    """The flags that a header after UDP sets."""
    if said.header is BTH:
        return packet.ACK_REQ * said["a"] | packet.RTX * said["rtx"]
    if said.header is SETH:
        return packet.PROBE_ANSWER * said["pr"]
    unstamped = said.header in (PETH, ERTH) and said["ftype"] == layout.FTYPE_NONE
    return packet.UNSTAMPED * unstamped


def _outer_flags(part: Part, dscps: Dscps) -> int:
    """The flags that DSCP and ECN set, from a header that says trimmed if there is one, else the
    first.
    """
    hops = [said for said in part.headers if "dscp" in said.fields]
    said_by = next((said for said in hops if said["dscp"] in dscps.trims), hops[0])
    flags = {
        dscps.trimmed: packet.TRIMMED,
        dscps.trimmed_lasthop: packet.TRIMMED_LASTHOP,
        dscps.no_trim: packet.NO_TRIM,
    }
    marked = any(said["ecn"] == layout.ECN_CE for said in hops)
    return flags.get(said_by["dscp"], 0) | packet.CE * marked


def _ends(found: Frame) -> str:
    return f"{found.source} -> {found.destination}"


def line(found: Frame) -> str:
    """Return one line that summarises a packet."""
    p, missing = found.p, found.missing
    opcode = p.opcode
    number = "" if opcode in NO_PSN else f"id {p.psn}" if opcode in ENDPOINT else f"PSN {p.psn}"
    details: Iterable[str] = ()
    if opcode not in DETAILS or NETH in missing:
        number = ""
    if opcode in DETAILS and layout.EXTENSIONS[opcode][0] not in missing:
        details = DETAILS[opcode](p, missing)
    parts = [
        _ends(found),
        f"QP {p.dst_qpn:#x}",
        layout.OPCODES.get(opcode, f"opcode {opcode:#04x}"),
        number,
        f"EV {p.ev:#010x}",
        " ".join(name for bit, name in FLAGS.items() if p.flag_bits & bit),
        ", ".join([*details, *_lengths(found)]),
    ]
    return "  ".join(part for part in parts if part)


def _lengths(found: Frame) -> Iterator[str]:
    """What the switch that trimmed a packet did to its lengths."""
    if found.p.flag_bits & (packet.TRIMMED | packet.TRIMMED_LASTHOP) and not found.missing:
        yield _ADJUSTED[found.trim_lengths]


def _data(p: Any, missing: Missing) -> Iterator[str]:
    yield f"msn {p.msn}"
    if p.rqmsn:
        yield f"rqmsn {p.rqmsn}"
    if RETH in missing:
        return
    yield f"va {p.va & (1 << 64) - 1:#x}"
    yield f"{p.payload_len} of {p.dma_len} B"
    if IMMDT in layout.EXTENSIONS[p.opcode] and IMMDT not in missing:
        yield f"imm {p.imm:#x}"


def _sack(p: Any, missing: Missing) -> Iterator[str]:
    yield f"cack {p.cack_psn}"
    if p.bitmap:
        yield f"received {received(p.bitmap, p.cack_psn + p.sack_offset)}"
    if p.flag_bits & packet.PROBE_ANSWER:
        yield from _probe(p, missing)
    else:
        yield f"for PSN {p.cack_psn + p.ack_offset & packet.PSN_MASK}"
    yield _answered(p)
    if p.m:
        yield layout.SKIPS.get(p.m, f"m {p.m}")
    if CC_STATE in missing:
        return
    if p.ooo_count:
        yield f"{p.ooo_count} out of order"
    if p.mpr:
        yield f"window {p.mpr * packet.MPR_UNIT}"
    if level := int(p.penalty) & packet.PENALTY_MAX:
        yield f"penalty {level}/128"


def _nack(p: Any, missing: Missing) -> Iterator[str]:
    yield layout.NACK_REASONS.get(p.reason, f"reason {p.reason:#04x}")
    yield _answered(p)


def _acknowledge(p: Any, missing: Missing) -> Iterator[str]:
    yield layout.SYNDROMES.get(p.reason, f"syndrome {p.reason:#04x}")
    yield f"msn {p.msn}"


def _endpoint_request(p: Any, missing: Missing) -> Iterator[str]:
    yield from _operation(p, missing)
    yield f"ports {p.imm:#x}"


def _probe(p: Any, missing: Missing) -> Iterator[str]:
    yield f"probe {p.ack_offset & 0xFFFF}"


def _answered(p: Any) -> str:
    return f"of EV {p.entropy:#010x}"


def _operation(p: Any, missing: Missing) -> Iterator[str]:
    yield layout.ENDPOINT_OPS.get(p.reason, f"op {p.reason}")


def received(bitmap: int, base: int) -> str:
    """Return the PSNs of a SACK's bitmap as ranges: "20-22 25", with "..." after the fourth."""
    runs: list[list[int]] = []
    for psn in (base + bit for bit in range(BITMAP_BITS) if bitmap >> bit & 1):
        if runs and psn == runs[-1][1] + 1:
            runs[-1][1] = psn
        else:
            runs.append([psn, psn])
    text = " ".join(span(first, last) for first, last in runs[:RUNS_SHOWN])
    return f"{text} ..." if len(runs) > RUNS_SHOWN else text


def span(first: int, last: int) -> str:
    """Return a range of PSNs as on the wire: "20-22", or "25" for a single one."""
    first, last = first & packet.PSN_MASK, last & packet.PSN_MASK
    return f"{first}" if first == last else f"{first}-{last}"


ENDPOINT = {packet.ENDPOINT_REQUEST, packet.ENDPOINT_RESPONSE}
NO_PSN = {packet.SACK, packet.ACKNOWLEDGE, packet.PROBE}  # opcodes whose BTH.psn has no meaning
DETAILS: dict[int, Callable[[Any, Missing], Iterator[str]]] = {
    **{opcode: _data for opcode in layout.OPCODES if opcode <= packet.LAST_DATA},
    packet.ACKNOWLEDGE: _acknowledge,
    packet.ENDPOINT_REQUEST: _endpoint_request,
    packet.ENDPOINT_RESPONSE: _operation,
    packet.SACK: _sack,
    packet.NACK: _nack,
    packet.PROBE: _probe,
}
