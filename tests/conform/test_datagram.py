"""Packets as rules name their fields, to bytes and back; held against the vectors."""

from __future__ import annotations

import json
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from openmrc.conform import datagram
from openmrc.wire import layout

VECTORS = Path(__file__).resolve().parents[2] / "conformance/vectors"
IPV4 = ("Ethernet", "IPv4", "UDP", "BTH")


def vectors() -> list[dict[str, Any]]:
    files = ("data", "answers", "endpoints", "paths")
    every = [one for name in files for one in json.loads((VECTORS / f"{name}.json").read_text())]
    return [one for one in every if one["icrc_ok"]]


def from_bth(vector: dict[str, Any]) -> tuple[bytes, int]:
    """What follows the UDP header, and where it begins."""
    data, at = bytes.fromhex(vector["frame"]), 0
    for name in vector["headers"]:
        if name == "BTH":
            break
        at += next(h for h in layout.HEADERS if h.name == name.removeprefix("outer ")).size_bytes
    inner = vector["headers"].get("IPv6", vector["headers"].get("IPv4"))
    length = int(inner.get("payload_length", inner.get("total_length", 0) - 20)) - 8
    return data[at : at + length], at


@pytest.mark.parametrize("vector", vectors(), ids=lambda vector: vector["name"])
def test_a_vector_is_read_field_by_field(vector: dict[str, Any]) -> None:
    data, _ = from_bth(vector)
    found = datagram.read(data)
    assert found is not None
    kind, fields = found
    assert fields["length"] == vector["payload_length"]
    for name, header in vector["headers"].items():
        if name in ("TSETH", "METH", "RETH", "ImmDt", "AETH", "SETH", "NETH", "PETH", "ERTH"):
            for field, value in header.items():
                assert fields[field] == (int(value, 16) if isinstance(value, str) else value)
    assert fields["psn"] == vector["headers"]["BTH"]["psn"]
    assert (kind == "data") == ("METH" in vector["headers"])


def test_what_is_built_is_read() -> None:
    given = {"opcode": 0xCA, "psn": 7, "msn": 3, "a": 1, "va": 1 << 40, "rkey": 5, "dma_length": 3}
    data = datagram.build("data", given, 0xBEEF, b"abc") + bytes(4)
    kind, fields = datagram.read(data) or ("", {})
    assert kind == "data"
    assert {name: fields[name] for name in given} == given
    assert (fields["length"], fields["dest_qpn"], data[-5:-4]) == (3, 0xBEEF, b"\0")


def test_a_sack_has_its_own_m_and_a_psn() -> None:
    data = datagram.build("sack", {"cack_psn": 9, "m": 2, "sack_offset": -1}, 5) + bytes(4)
    _, fields = datagram.read(data) or ("", {})
    assert (fields["psn"], fields["m"], fields["sack_offset"], data[1] & 0x40) == (9, 2, -1, 0)


@pytest.mark.parametrize("data", [b"", bytes(15), bytes(64), b"\xdc" + bytes(15)])
def test_what_is_no_packet_of_mrc(data: bytes) -> None:
    assert datagram.read(data) is None


def test_the_icrc_is_that_of_a_vector_without_a_tunnel() -> None:
    held = 0
    for vector in vectors():
        names = tuple(vector["headers"])[:4]
        if names not in (IPV4, ("Ethernet", "IPv6", "UDP", "BTH")):
            continue
        ip, udp = vector["headers"][names[1]], vector["headers"]["UDP"]
        if udp["dst_port"] != layout.UDP_PORT or ip.get("identification", 0):
            continue
        data, _ = from_bth(vector)
        src, dst = ip_address(ip["src"]), ip_address(ip["dst"])
        assert datagram.icrc(src, udp["src_port"], dst, data[:-4]) == data[-4:], vector["name"]
        held += 1
    assert held >= 2
