"""The published test vectors as the tests use them, and how both decoders answer to bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from openmrc.engine import packet
from openmrc.fabric.dscp import DEFAULT, Dscps
from openmrc.jit import records
from openmrc.wire import Packet, WireError, codec, decode, frame, layout

ROOT = Path(__file__).resolve().parents[2]
CODES = {name: getattr(frame, name) for name in dir(frame) if name.isupper() and name != "OK"}
CODES = {name: code for name, code in CODES.items() if isinstance(code, int)}
GROUPS = ("data", "answers", "endpoints", "paths", "trimmed", "classes", "refused")

Verdict = tuple[int, int]  # a code of `frame`, and where


def _load() -> dict[str, dict[str, Any]]:
    vectors: dict[str, dict[str, Any]] = {}
    for group in GROUPS:
        for vector in json.loads((ROOT / f"conformance/vectors/{group}.json").read_text()):
            assert vector["name"] not in vectors, f"two vectors are called {vector['name']}"
            vectors[vector["name"]] = vector
    return vectors


VECTORS = _load()
ACCEPTED = {name: v for name, v in VECTORS.items() if not {"refused", "dscps"} & set(v)}
ELSEWHERE = {name: v for name, v in VECTORS.items() if "dscps" in v}  # with DSCPs of their fabric
REFUSED = {name: v for name, v in VECTORS.items() if "refused" in v}


def frame_of(vector: dict[str, Any]) -> bytes:
    return bytes.fromhex(vector["frame"])


def swapped(vector: dict[str, Any]) -> bool:
    return bool(vector.get("ev_swapped", False))


def dscps(vector: dict[str, Any]) -> Dscps:
    return Dscps(**vector.get("dscps", {}))


def array(data: bytes) -> Any:
    """The bytes as the compiled functions take them."""
    return np.frombuffer(bytearray(data), np.uint8)


def compiled(
    data: bytes, *, check: bool = True, ev_swapped: bool = False, dscps: Dscps = DEFAULT
) -> tuple[Any, Any, int]:
    """What the compiled decoder makes of a frame: PACKET, ENVELOPE, code."""
    p, e = records(1, packet.PACKET)[0], records(1, frame.ENVELOPE)[0]
    e.ev_swapped, e.dscps = ev_swapped, dscps.packed
    return p, e, int(codec.decode(array(data), len(data), p, e, int(check)))


def plain(
    data: bytes, *, check: bool = True, ev_swapped: bool = False, dscps: Dscps = DEFAULT
) -> Packet | Verdict:
    """What the plain decoder makes of a frame."""
    try:
        return decode(data, check=check, ev_swapped=ev_swapped, dscps=dscps)
    except WireError as error:
        return error.code, error.offset


def both(
    data: bytes, *, check: bool, ev_swapped: bool = False, dscps: Dscps = DEFAULT
) -> Packet | Verdict:
    """What both decoders say of a frame; asserts that they say the same, value for value."""
    p, e, code = compiled(data, check=check, ev_swapped=ev_swapped, dscps=dscps)
    found = plain(data, check=check, ev_swapped=ev_swapped, dscps=dscps)
    verdict = code, int(e.error_at)
    if not isinstance(found, Packet):
        assert verdict == found, data.hex()
        return found
    assert verdict == (frame.OK, 0), data.hex()
    assert values(p, packet.PACKET) == expected_packet(found), data.hex()
    assert values(e, frame.ENVELOPE) == expected_envelope(found), data.hex()
    return found


def values(record: Any, dtype: np.dtype[Any]) -> dict[str, int | bytes]:
    """A record's fields as plain integers, addresses as bytes."""
    told: dict[str, int | bytes] = {}
    for name in dtype.names or ():
        value = getattr(record, name)
        told[name] = value.tobytes() if isinstance(value, np.ndarray) else int(value)
    return told


# Which field of the PACKET record holds which field of a header
_PACKET_FIELDS = {
    ("BTH", "opcode"): "opcode",
    ("BTH", "dest_qpn"): "dst_qpn",
    ("BTH", "psn"): "psn",
    ("METH", "rqmsn"): "rqmsn",
    ("METH", "msn"): "msn",
    ("TSETH", "tx_timestamp"): "timestamp",
    ("RETH", "va"): "va",
    ("RETH", "rkey"): "rkey",
    ("RETH", "dma_length"): "dma_len",
    ("ImmDt", "imm"): "imm",
    ("AETH", "syndrome"): "reason",
    ("AETH", "msn"): "msn",
    ("SETH", "m"): "m",
    ("SETH", "ack_psn_offset"): "ack_offset",
    ("SETH", "entropy"): "entropy",
    ("SETH", "cack_psn"): "cack_psn",
    ("SETH", "mpr"): "mpr",
    ("SETH", "sack_offset"): "sack_offset",
    ("SETH", "sack_bitmap"): "bitmap",
    ("CC_STATE", "tx_timestamp"): "timestamp",
    ("CC_STATE", "ooo_count"): "ooo_count",
    ("CC_STATE", "rcv_cwnd_pen"): "penalty",
    ("CC_STATE", "rcvd_bytes"): "rcvd_units",
    ("NETH", "nack_reason"): "reason",
    ("NETH", "entropy"): "entropy",
    ("NETH", "nack_psn"): "psn",
    ("NETH", "tx_timestamp"): "timestamp",
    ("PETH", "probe_id"): "ack_offset",
    ("PETH", "tx_timestamp"): "timestamp",
    ("ERTH", "op"): "reason",
    ("ERTH", "vendor"): "m",
    ("ERTH", "port_status_mask"): "imm",
    ("ERTH", "tx_timestamp"): "timestamp",
    ("EETH", "op"): "reason",
    ("EETH", "tx_timestamp"): "timestamp",
}
_SIGNED_IN_THE_RECORD = {"va": 64, "ack_offset": 16}
_CLASSES = {
    "CONTROL": packet.CLASS_CONTROL,
    "TRIMMED": packet.CLASS_CONTROL,
    "TRIMMED_LASTHOP": packet.CLASS_CONTROL,
    "TRIMMABLE_RETX": packet.CLASS_RETRANSMIT,
}
_DSCP_FLAGS = {
    "NO_TRIM": packet.NO_TRIM,
    "TRIMMED": packet.TRIMMED,
    "TRIMMED_LASTHOP": packet.TRIMMED_LASTHOP,
}


def expected_packet(found: Packet) -> dict[str, int | bytes]:
    """The PACKET record that the headers of a frame amount to; what they do not say is zero."""
    told: dict[str, int | bytes] = dict.fromkeys(packet.PACKET.names or (), 0)
    for view in found.headers:
        for name, value in view.fields.items():
            if field := _PACKET_FIELDS.get((view.name, name)):
                wide = _SIGNED_IN_THE_RECORD.get(field, 0)
                told[field] = value - (1 << wide) if wide and value >> wide - 1 == 1 else value
        if view.name == "CC_STATE" and view["restore_cwnd"]:
            told["penalty"] = view["rcv_cwnd_pen"] | packet.RESTORE
        if view.name == "EETH":  # row 4
            told["reason"] = view["op"] or view["op_alternative"]
    told["payload_len"], told["ev"] = found.payload_length, found.ev
    ips = [view for view in found.headers if "dscp" in view.fields]
    names = [found.dscps.names.get(view["dscp"], "") for view in ips]
    name = [*(each for each in names if "TRIMMED" in each), names[0]][0]
    bth = found["BTH"]
    flags = bth["rtx"] * packet.RTX | bth["a"] * packet.ACK_REQ | _DSCP_FLAGS.get(name, 0)
    if any(view["ecn"] == layout.ECN_CE for view in ips):
        flags |= packet.CE
    if any(view.name == "SETH" and view["pr"] for view in found.headers):
        flags |= packet.PROBE_ANSWER
    if any(v.header in (layout.PETH, layout.ERTH) and not v["ftype"] for v in found.headers):
        flags |= packet.UNSTAMPED  # row 31
        told["timestamp"] = 0
    told["flag_bits"] = flags
    told["klass"] = _CLASSES.get(name, packet.CLASS_DATA)
    if name == "NO_TRIM" and bth["rtx"]:
        told["klass"] = packet.CLASS_RETRANSMIT
    return told


def expected_envelope(found: Packet) -> dict[str, int | bytes]:
    """The ENVELOPE record that the headers of a frame amount to."""
    headers = {view.name: view.fields for view in found.headers}
    ethernet, outer, srh = (headers.get(n, {}) for n in ("Ethernet", "outer IPv6", "SRH"))
    v4 = "IPv4" in headers
    inner = headers["IPv4" if v4 else "IPv6"]
    hops = inner["ttl" if v4 else "hop_limit"]
    said = headers.get("SETH", headers.get("NETH", headers.get("PETH", {})))

    def address(value: int) -> bytes:
        return value.to_bytes(4, "big") + bytes(12) if v4 else value.to_bytes(16, "big")

    return {
        "dst_mac": ethernet["dst_mac"].to_bytes(6, "big"),
        "src_mac": ethernet["src_mac"].to_bytes(6, "big"),
        "outer_src": outer.get("src", 0).to_bytes(16, "big"),
        "carrier": outer.get("dst", 0).to_bytes(16, "big"),
        "segment": srh.get("segment", 0).to_bytes(16, "big"),
        "inner_src": address(inner["src"]),
        "inner_dst": address(inner["dst"]),
        "srv6": int(bool(outer)),
        "srh": int(bool(srh)),
        "ipv4": int(v4),
        "tseth": int("TSETH" in headers),
        "ev_swapped": int(found.ev_swapped),
        "ports_from_1": 0,
        "dscps": found.dscps.packed,
        "trim_lengths": frame.TRIM_LENGTHS_FOUND.index(found.trim_lengths or "all"),
        "hop_limit": outer.get("hop_limit", hops),
        "inner_hop_limit": hops if outer else 0,
        "segments_left": srh.get("segments_left", 0),
        "udp_port": headers["UDP"]["dst_port"],
        "pkey": headers["BTH"]["pkey"],
        "spdcid": said.get("spdcid", 0),
        "dpdcid": said.get("dpdcid", 0),
        "payload_at": found.payload_at,
        "error_at": 0,
    }
