"""The published vectors of RoCEv2: both decoders find every value in them."""

from __future__ import annotations

import ipaddress
import json
from pathlib import Path
from typing import Any

import pytest

from openmrc.wire.view import DecodedFrame
from tests.wire.roce.roce_frames import both

FILE = Path(__file__).resolve().parents[3] / "conformance/roce.json"
VECTORS = {vector["name"]: vector for vector in json.loads(FILE.read_text())}


def number(value: int | str) -> int:
    if isinstance(value, int):
        return value
    if value.startswith("0x"):
        return int(value, 16)
    mac = value.count(":") == 5 and "::" not in value
    return int(value.replace(":", ""), 16) if mac else int(ipaddress.ip_address(value))


@pytest.mark.parametrize("name", VECTORS)
def test_every_value_is_found(name: str) -> None:
    vector: dict[str, Any] = VECTORS[name]
    found = both(bytes.fromhex(vector["frame"]))
    assert isinstance(found, DecodedFrame)
    assert found.icrc_ok is vector["icrc_ok"] is True
    assert (found.payload_at, found.payload_length) == (
        vector["payload_at"],
        vector["payload_length"],
    )
    for header, fields in vector["headers"].items():
        assert found[header].fields == {key: number(value) for key, value in fields.items()}


def test_each_packet_of_a_write_and_its_answers_are_there() -> None:
    opcodes = {vector["headers"]["BTH"]["opcode"] for vector in VECTORS.values()}
    assert opcodes == {*range(0x06, 0x0C), 0x11, 0x81}
