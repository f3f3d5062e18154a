"""A capture as events: the fields of each packet, named as in rules, and its queue pair.

A packet that several interfaces saw is one packet. No packet says which two queue pairs are peers;
a SACK or NACK that reflects EV and time stamp of data shows it, else `spdcid` does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from openmrc.conform import datagram
from openmrc.conform.events import KINDS, Event
from openmrc.fabric.dscp import DEFAULT, MASK, Dscps
from openmrc.wire import layout
from openmrc.wire.frame import WireError
from openmrc.wire.pcap import read
from openmrc.wire.view import Packet, decode
from openmrc.wire.walk import OUTER

PACKETS_MAX = 2_000_000  # kept in memory
_IPS = (OUTER, layout.IPV6.name, layout.IPV4.name, "UDP", "Ethernet", "SRH", "iCRC")
_VARIES = {"trimmed", "icrc_ok", "length", "dscp", "ecn", "ce", "flow_label", "outer_flow_label"}


@dataclass(frozen=True)
class Seen:
    """A packet of a capture."""

    number: int
    event: Event
    flow: int  # its destination queue pair

    def __str__(self) -> str:
        return f"packet {self.number}  {self.event}"


@dataclass(frozen=True)
class Capture:
    """The packets of MRC, in order; `peers` has the queue pair that answers for each."""

    packets: list[Seen]
    peers: dict[int, int]


def load(path: Path, ev_swapped: bool = False, dscps: Dscps = DEFAULT) -> Capture:
    """Read a capture. `InputError` if the file is not one."""
    with read(path) as reader:
        found: list[Seen] = []
        known: set[tuple[object, ...]] = set()
        for captured in reader:
            if len(found) == PACKETS_MAX:
                break
            try:
                packet = decode(
                    captured.data,
                    check=False,
                    length=captured.original_length,
                    ev_swapped=ev_swapped,
                    dscps=dscps,
                )
            except WireError:
                continue
            fields = fields_of(packet)
            kind = KINDS[fields["opcode"]]
            same = (kind, *((n, v) for n, v in fields.items() if n not in _VARIES))
            if same in known and not fields["trimmed"]:
                continue
            known.add(same)
            event = Event((captured.time_ns or 0) * 1000, kind, dict(fields))
            found.append(Seen(captured.number, event, fields["dest_qpn"]))
    return Capture(found, peers_of(found))


def fields_of(packet: Packet) -> dict[str, int]:
    """Return the fields of a packet, named as in rules."""
    ip = next(h for h in packet.headers if h.name in (layout.IPV6.name, layout.IPV4.name))
    fields = dict(packet["BTH"].fields)
    del fields["m"]  # that of the SETH counts
    for header in packet.headers:
        if header.name not in (*_IPS, "BTH"):
            fields |= header.fields
    tunnel = any(header.name == OUTER for header in packet.headers)
    outer = packet[OUTER] if tunnel else ip
    fields |= {
        "dscp": _as_default(outer["dscp"], packet.dscps),
        "ecn": outer["ecn"],
        "ce": int(layout.ECN_CE in (outer["ecn"], ip["ecn"])),
        "ev": packet.ev,
        "trimmed": int(packet.trimmed),
        "length": packet.payload_length,
        "icrc_ok": int(_icrc_ok(packet)),
        "tunnel": int(tunnel),
        "flow_label": ip.fields.get("flow_label", 0) & 0xFFFF,
        "outer_flow_label": outer.fields.get("flow_label", 0) & 0xFFFF,
    }
    if fields["opcode"] in (_REQUEST, _RESPONSE):
        fields["id"] = fields["psn"] & 0xFFFF
    return fields


def _as_default(dscp: int, dscps: Dscps) -> int:
    """Return the default DSCP of this DSCP's class, by which the rules name it; unchanged if the
    fabric has no such class.
    """
    return DEFAULT[dscps.index(dscp)] if dscp in dscps else _OF_NO_CLASS


_OF_NO_CLASS = max(set(range(MASK + 1)) - set(DEFAULT))
_REQUEST = next(opcode for opcode, kind in KINDS.items() if kind == "request")
_RESPONSE = next(opcode for opcode, kind in KINDS.items() if kind == "response")


def _icrc_ok(packet: Packet) -> bool:
    """Whether the iCRC is right, or there is none to check; on an ordinary network the kernel
    writes IPv4's identification, which counts as 0 there.
    """
    if packet.icrc_ok is not False or "IPv4" not in (header.name for header in packet.headers):
        return packet.icrc_ok is not False
    from ipaddress import ip_address

    ip, bth = packet["IPv4"], packet["BTH"]
    data = packet.frame[bth.offset : packet.ip_end]
    end = len(data) - datagram.ICRC_BYTES
    src, dst = ip_address(ip["src"]), ip_address(ip["dst"])
    return datagram.icrc(src, packet["UDP"]["src_port"], dst, data[:end]) == data[end:]


def peers_of(packets: Iterable[Seen]) -> dict[int, int]:
    """Return, for each queue pair that receives SACKs and NACKs, the queue pair that sends them."""
    data: dict[tuple[int, int, int], int] = {}
    flows: set[int] = set()
    votes: dict[int, Counter[int]] = {}
    told: dict[int, Counter[int]] = {}
    for seen in packets:
        says = seen.event.fields
        if seen.event.kind == "data":
            flows.add(seen.flow)
            data[says["psn"], says["ev"], says.get("tx_timestamp", 0)] = seen.flow
        elif seen.event.kind in ("sack", "nack"):
            psn = says.get("nack_psn", says.get("cack_psn", 0) + says.get("ack_psn_offset", 0))
            about = data.get((psn & 0xFF_FFFF, says["entropy"], says["tx_timestamp"]))
            if about is not None:
                votes.setdefault(seen.flow, Counter())[about] += 1
            told.setdefault(seen.flow, Counter())[says["spdcid"]] += 1
    found = {flow: count.most_common(1)[0][0] for flow, count in votes.items()}
    for flow, count in told.items():
        low = count.most_common(1)[0][0]
        fitting = [one for one in flows if one & 0xFFFF == low] or list(flows)
        if flow not in found and len(fitting) == 1:
            found[flow] = fitting[0]
    return found
