"""The published vectors: reproduced to the byte, decoded to the field, refused at the byte."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from openmrc.engine import packet
from openmrc.wire import codec, decode, encode, frame, layout
from tests.wire.vectors import (
    ACCEPTED,
    CODES,
    ELSEWHERE,
    REFUSED,
    ROOT,
    VECTORS,
    array,
    both,
    compiled,
    dscps,
    frame_of,
    swapped,
    values,
)

EVERY = ACCEPTED | ELSEWHERE
UNTRIMMED = {name: v for name, v in EVERY.items() if not v["trimmed"]}
CANONICAL = {name: v for name, v in UNTRIMMED.items() if v["canonical"]}
TRIMMED_FROM = {name: v for name, v in EVERY.items() if "trimmed_from" in v}


def test_the_generator_writes_the_files_byte_for_byte() -> None:
    script = ROOT / "conformance" / "generate.py"
    run = subprocess.run(
        [sys.executable, script, "--check"], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.parametrize("name", EVERY)
def test_a_vector_decodes_to_its_fields(name: str) -> None:
    vector = EVERY[name]
    told = decode(frame_of(vector), ev_swapped=swapped(vector), dscps=dscps(vector)).as_dict()
    for fields in told["headers"].values():
        for field in [field for field in fields if field.endswith("_name")]:
            del fields[field]
    for key in ("headers", "ev", "trimmed", "icrc_ok", "payload_at", "payload_length"):
        assert told[key] == vector[key]
    assert list(told["headers"]) == list(vector["headers"])  # in the order on the wire


@pytest.mark.parametrize("name", EVERY)
def test_both_decoders_read_the_same_values(name: str) -> None:
    vector = EVERY[name]
    for check in (True, False):
        found = both(frame_of(vector), check=check, ev_swapped=swapped(vector), dscps=dscps(vector))
        assert not isinstance(found, tuple)


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_frame_is_refused_where_it_is_bad(name: str) -> None:
    wrong = REFUSED[name]["refused"]
    verdict = both(frame_of(REFUSED[name]), check=True)
    assert verdict == (CODES[wrong["code"]], wrong["offset"])


@pytest.mark.parametrize("name", CANONICAL)
def test_the_encoder_sends_the_canonical_bytes(name: str) -> None:
    vector = CANONICAL[name]
    found = decode(frame_of(vector), ev_swapped=swapped(vector), dscps=dscps(vector))
    assert encode(found.record, found.envelope, found.payload).hex() == vector["frame"]


@pytest.mark.parametrize("name", [name for name in UNTRIMMED if name not in CANONICAL])
def test_what_is_not_canonical_is_sent_otherwise_and_means_the_same(name: str) -> None:
    found = decode(frame_of(UNTRIMMED[name]), dscps=dscps(UNTRIMMED[name]))
    sent = encode(found.record, found.envelope, found.payload)
    assert sent.hex() != UNTRIMMED[name]["frame"]
    p, e, code = compiled(sent, dscps=found.dscps)
    assert code == frame.OK
    assert values(p, packet.PACKET) == values(found.record, packet.PACKET)
    assert values(e, frame.ENVELOPE) == values(found.envelope, frame.ENVELOPE)


@pytest.mark.parametrize("name", TRIMMED_FROM)
def test_a_switch_trims_to_the_vector(name: str) -> None:
    vector = TRIMMED_FROM[name]
    whole = array(frame_of(VECTORS[vector["trimmed_from"]]))
    first = next(fields for fields in vector["headers"].values() if "dscp" in fields)
    last_hop = int(first["dscp"] == dscps(vector).trimmed_lasthop)
    lengths = frame.TRIM_LENGTHS_FOUND.index(vector.get("trim_lengths", "all"))
    length = codec.trim(whole, whole.size, last_hop, dscps(vector).packed, lengths)
    assert whole[:length].tobytes().hex() == vector["frame"]


def test_row_34_se_stands_before_m() -> None:
    first = {name: frame_of(ACCEPTED[name]) for name in ("solicited-event", "migrated")}
    flags = {name: data[decode(data)["BTH"].offset + 1] >> 6 for name, data in first.items()}
    assert flags == {"solicited-event": 0b10, "migrated": 0b01}


def test_a_switch_on_the_way_changes_no_icrc() -> None:
    sent, later = UNTRIMMED["write-only"], UNTRIMMED["on-the-way"]
    assert later["headers"]["outer IPv6"] != sent["headers"]["outer IPv6"]
    assert later["headers"]["iCRC"] == sent["headers"]["iCRC"]


def told(header: str, field: str) -> set[Any]:
    """All values that a field has in the vectors that are accepted."""
    headers = [v["headers"][header] for v in ACCEPTED.values() if header in v["headers"]]
    return {fields[field] for fields in headers}


def test_every_opcode_header_flag_and_name_has_a_vector() -> None:
    headers = {name for v in ACCEPTED.values() for name in v["headers"]}
    assert headers == {h.name for h in layout.HEADERS} | {"outer IPv6"}
    for header in layout.HEADERS[layout.HEADERS.index(layout.BTH) :]:
        for field in header.fields:
            if field.names:
                missing = set(field.names) - told(header.name, field.name)
                assert not missing, f"no vector with {header.name}.{field.name} = {missing}"
    assert set(layout.DSCPS) <= told("outer IPv6", "dscp")
    for flag in ("se", "m", "a", "r", "rtx", "ts"):
        assert told("BTH", flag) == {0, 1}
    assert told("BTH", "pad") == {0, 1, 2, 3}
    assert told("SETH", "pr") == {0, 1}
    assert told("CC_STATE", "restore_cwnd") == {0, 1}
    assert told("UDP", "dst_port") == {layout.UDP_PORT, layout.UDP_PORT_ALTERNATIVE}
    assert told("SRH", "segments_left") == {0, 1}
    assert {swapped(v) for v in ACCEPTED.values()} == {False, True}
    assert {0, 0xFF_FFFF} <= told("BTH", "psn")


def test_every_reason_to_refuse_has_a_vector() -> None:
    assert {v["refused"]["code"] for v in REFUSED.values()} == set(CODES)
    assert len(CODES) == len(frame.REASONS) - 1


def test_every_vector_says_in_a_sentence_what_it_shows() -> None:
    for vector in VECTORS.values():
        assert vector["shows"].endswith(".")
