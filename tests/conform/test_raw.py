"""Whole frames of the kit, held against the vectors; files of ways; the frames that it hears."""

from __future__ import annotations

import json
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any

import pytest

from openmrc.conform import raw
from openmrc.conform.raw import Way
from openmrc.errors import InputError
from openmrc.fabric.dscp import DEFAULT
from openmrc.wire import decode, layout

ROOT = Path(__file__).resolve().parents[2] / "conformance/vectors"
VECTORS = {
    one["name"]: one
    for group in ("data", "answers", "paths", "trimmed")
    for one in json.loads((ROOT / f"{group}.json").read_text())
}
DATA, RETX = (layout.DSCP_TRIMMABLE << 2) + 2, (layout.DSCP_TRIMMABLE_RETX << 2) + 2
CONTROL = layout.DSCP_CONTROL << 2


def way_of(vector: dict[str, Any]) -> Way:
    """The way that a frame of a vector has gone."""
    headers = vector["headers"]
    macs = [
        bytes.fromhex(headers["Ethernet"][name].replace(":", "")) for name in ("dst_mac", "src_mac")
    ]
    ends = [IPv6Address(headers["IPv6"][name]) for name in ("src", "dst")]
    outer = headers.get("outer IPv6")
    carriers = () if outer is None else (IPv6Address(outer["dst"]),)
    return Way(macs[0], macs[1], ends[0], ends[1], (vector["ev"],), carriers)


def told(vector: dict[str, Any]) -> bytes:
    """BTH to padding."""
    frame = bytes.fromhex(vector["frame"])
    return frame[decode(frame)["BTH"].offset : -4]


@pytest.mark.parametrize(
    ("name", "traffic_class"),
    [
        ("write-only", DATA),
        ("payload-256", DATA),
        ("retransmission", RETX),
        ("sack", CONTROL),
        ("plain-ipv6", DATA),
    ],
)
def test_a_frame_is_that_of_the_vector(name: str, traffic_class: int) -> None:
    vector = VECTORS[name]
    assert raw.frame(way_of(vector), 0, told(vector), traffic_class).hex() == vector["frame"]


@pytest.mark.parametrize(
    ("name", "dscp"), [("trimmed", DEFAULT.trimmed), ("trimmed-lasthop", DEFAULT.trimmed_lasthop)]
)
def test_row_21_a_frame_is_cut_to_the_vector(name: str, dscp: int) -> None:
    whole = VECTORS[VECTORS[name]["trimmed_from"]]
    assert raw.frame(way_of(whole), 0, told(whole), DATA, dscp).hex() == VECTORS[name]["frame"]


def test_a_short_frame_loses_its_icrc_alone() -> None:
    vector = VECTORS["ack"]
    found = decode(raw.frame(way_of(vector), 0, told(vector), CONTROL, DEFAULT.trimmed))
    assert found.trimmed
    assert found["AETH"].fields == vector["headers"]["AETH"]
    assert found.length == len(bytes.fromhex(vector["frame"])) - 4


def heard(data: bytes, own: str = "fd00::209") -> tuple[str, dict[str, int]] | None:
    return raw.heard(data, IPv6Address(own), DEFAULT)


def test_what_comes_for_the_kit_is_heard_with_ev_and_class() -> None:
    for name, kind, traffic_class in (("write-only", "data", DATA), ("sack", "sack", CONTROL)):
        frame = bytes.fromhex(VECTORS[name]["frame"])
        assert heard(frame, "fd00::208") is None
        assert heard(frame[:-1] + bytes([frame[-1] ^ 1])) is None
        found = heard(frame + bytes(7))  # Ethernet's own padding
        assert found is not None
        assert found[0] == kind
        assert found[1]["ev"] == VECTORS[name]["ev"]
        assert found[1]["traffic_class"] == traffic_class


def test_of_a_trimmed_packet_its_headers_are_heard() -> None:
    found = heard(bytes.fromhex(VECTORS["trimmed"]["frame"]))
    assert found is not None
    assert (found[0], found[1]["psn"]) == ("data", VECTORS["trimmed"]["headers"]["BTH"]["psn"])
    assert found[1]["traffic_class"] >> 2 == DEFAULT.trimmed


PLANE = {
    "interface": "eth0",
    "gateway_mac": "02:00:00:00:00:02",
    "mac": "02:00:00:00:00:01",
    "source": "fd00::107",
    "destination": "fd00::209",
    "evs": ["0x01234567", "7"],
    "carriers": ["2001:db8:4000:2003:4002:1009::", "2001:db8:4000:2004:4002:1009::"],
}


def test_a_file_of_ways_says_how_a_target_is_reached(tmp_path: Path) -> None:
    path = tmp_path / "ways.json"
    path.write_text(json.dumps({"planes": [PLANE], "nic": 3}))
    [(name, way)], nic = raw.read(path)
    assert (name, nic, way.evs) == ("eth0", 3, (0x0123_4567, 7))
    vector = VECTORS["write-only"]
    assert raw.frame(way, 0, told(vector), DATA).hex() == vector["frame"]
    other = decode(raw.frame(way, 1, told(vector), DATA))
    assert (other.ev, str(IPv6Address(other["outer IPv6"]["dst"]))) == (7, PLANE["carriers"][1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"carriers": ["2001:db8::"]}, "1 carriers for 2 EVs"),
        ({"evs": []}, "evs: one or more of 32 bits are accepted"),
        ({"evs": ["0x100000000", "1"]}, "evs: one or more of 32 bits are accepted"),
        ({"mac": "02:00"}, "'02:00' is no MAC address"),
        ({"source": "10.0.0.1"}, "no file of ways .*10.0.0.1"),
    ],
)
def test_what_is_no_way_is_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "ways.json"
    path.write_text(json.dumps({"planes": [PLANE | change]}))
    with pytest.raises(InputError, match=message):
        raw.read(path)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"ways.json: cannot be read \(No such file or directory\)"
    ):
        raw.read(tmp_path / "ways.json")
    for text, said in (
        ("[]", "a value is of no use"),
        ("[" * 100_000, "it nests too deeply"),
        ('{"nic": 3}', "'planes' is missing"),
        ('{"planes": [], "nic": 1e999}', "cannot convert float infinity to integer"),
    ):
        (tmp_path / "ways.json").write_text(text)
        with pytest.raises(InputError, match=rf"ways.json: is no file of ways \({said}\)"):
            raw.read(tmp_path / "ways.json")
