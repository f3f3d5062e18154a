"""The published sequences: frames of both directions, and what they show."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from openmrc.wire import decode, layout
from openmrc.wire.view import Packet
from tests.wire.vectors import ROOT, VECTORS

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


def test_row_07_a_sack_echoes_the_time_of_the_copy_that_triggered_it() -> None:
    found = [packet for _, _, packet in packets("sack-reflects-the-time-stamp")]
    first, _, again, _ = found
    assert first["BTH"]["psn"] == again["BTH"]["psn"]
    assert (first["BTH"]["rtx"], again["BTH"]["rtx"]) == (0, 1)
    for data, sack in zip(found[::2], found[1::2], strict=True):
        assert sack["CC_STATE"]["tx_timestamp"] == data["TSETH"]["tx_timestamp"]


def test_rows_08_and_17_a_probe_asks_about_the_tail_and_for_an_ack() -> None:
    for name in ("silence-brings-a-probe", "a-missing-ack-is-asked-for"):
        asked = [one for one in packets(name) if one[1] == "probe"]
        assert {(sender, probe["BTH"]["psn"]) for sender, _, probe in asked} == {("target", 0)}
        assert {probe["outer IPv6"]["dscp"] for _, _, probe in asked} == {layout.DSCP_NO_TRIM}


def test_row_23_always_skip_leaves_the_path() -> None:
    found = packets("always-skip-leaves-the-path")
    at, sack = next((i, packet) for i, (_, kind, packet) in enumerate(found) if kind == "sack")
    left = sack["SETH"]["entropy"]
    assert sack["SETH"]["m"] == 2
    assert left in [packet.ev for _, _, packet in found[:at]]
    assert left not in [packet.ev for _, _, packet in found[at + 1 :]]


def test_whatever_readers_read_differently_has_a_vector_and_a_test() -> None:
    page = (ROOT / "conformance/README.md").read_text(encoding="utf-8")
    choices = "".join(
        (ROOT / f"docs/{name}.md").read_text(encoding="utf-8") for name in ("wire", "protocol")
    )
    rows = re.findall(r"^\| \[(\d+)\]\(\S+\) \| [^|]+ \| ([^|]+) \|$", page, re.MULTILINE)
    for row, names in rows:
        shown = re.findall("`([^`]+)`", names)
        assert shown, row
        assert set(shown) <= {*VECTORS, *SEQUENCES}, row
        section = re.search(rf"^### Row {row}: .*?(?=^#|\Z)", choices, re.MULTILINE | re.DOTALL)
        assert section is not None, row
        assert re.search(r"`test_\w+`", section[0]), row
    assert {int(row) for row, _ in rows} == {4, 7, 8, 15, 16, 17, 23, *range(30, 36), 37}


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
