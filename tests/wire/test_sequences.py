"""The published sequences: frames of both directions, and what they show."""

from __future__ import annotations

import json
from typing import Any

import pytest

from openmrc.wire import decode
from openmrc.wire.view import Packet
from tests.wire.vectors import ROOT

SEQUENCES = {
    one["name"]: one for one in json.loads((ROOT / "conformance/sequences.json").read_text())
}


def packets(name: str) -> list[tuple[str, str, Packet]]:
    """Who sends, what it is, and the frame."""
    steps = [step for step in SEQUENCES[name]["steps"] if "frame" in step]
    return [(s["from"], s["packet"], decode(bytes.fromhex(s["frame"]))) for s in steps]


@pytest.mark.parametrize("name", SEQUENCES)
def test_each_frame_is_one_and_time_goes_forward(name: str) -> None:
    steps: list[dict[str, Any]] = SEQUENCES[name]["steps"]
    assert packets(name)
    assert [step["at_us"] for step in steps] == sorted(step["at_us"] for step in steps)
    for sender, kind, packet in packets(name):
        qpn = packet["BTH"]["dest_qpn"]
        assert qpn == (2 if kind in ("request", "response") else 0x10 + (sender == "target"))


def test_out_of_the_window() -> None:
    (_, kind, data), (sender, answer, nack) = packets("above-the-window-is-nacked")
    assert (kind, sender, answer) == ("data", "target", "nack")
    assert (nack["NETH"]["nack_reason"], nack["NETH"]["nack_psn"]) == (0x0B, data["BTH"]["psn"])
    assert nack["NETH"]["entropy"] == data.ev


def test_trim_nack_retransmission() -> None:
    found = packets("a-trimmed-packet-is-not-received")
    assert [kind for _, kind, _ in found][:4] == ["data", "nack", "data", "sack"]
    assert found[0][2].trimmed
    again = packets("a-trim-nack-brings-the-packet-again")
    nack = next(packet for _, kind, packet in again if kind == "nack")
    last = [packet for _, kind, packet in again if kind == "data"][-1]
    assert last["BTH"]["psn"] == nack["NETH"]["nack_psn"]
    assert (last["BTH"]["rtx"], last["outer IPv6"]["dscp"]) == (1, 8)


def test_port_down() -> None:
    [(sender, kind, request)] = packets("a-port-that-goes-down-is-told")[:1]
    assert (sender, kind, request["ERTH"]["port_status_mask"]) == ("target", "request", 0b01)


def test_what_an_application_sees_stands_between() -> None:
    steps = SEQUENCES["immediates-come-in-order"]["steps"]
    assert [s["imm"] for s in steps if s.get("application") == "receive"] == [1, 2, 3]
