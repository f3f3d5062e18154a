"""The Wireshark dissector in real tshark, and what tshark makes of our frames without it."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from openmrc.engine import packet
from openmrc.wire import Packet, decode, dissector, encode, frame, generated, layout
from openmrc.wire.layout import Header
from openmrc.wire.lines import Frames, line
from openmrc.wire.outside import unwrap
from openmrc.wire.pcap import Captured, Writer
from openmrc.wire.readers import Readers, Unread
from tests.wire.frames import SHAPES, around, control, sent, trimmed, write
from tests.wire.joined import join, some_data, some_sacks
from tests.wire.test_outside import AROUND
from tests.wire.vectors import ACCEPTED, ELSEWHERE, REFUSED, VECTORS, dscps, frame_of, swapped

TSHARK = shutil.which("tshark")
needs_tshark = pytest.mark.skipif(TSHARK is None, reason="no tshark here: apt install tshark")
ZERO_CHECKSUM = "Illegal checksum value (0)"  # tshark of a UDP checksum of zero over IPv6
BAD, GOOD, UNVERIFIED, NOT_PRESENT = range(4)
UDP_AT = layout.ETHERNET.size_bytes + layout.IPV6.size_bytes  # without SRv6
BEHIND_UDP = {  # what is wrong with BTH and what follows
    *("OPCODE", "TRANSPORT_VERSION", "EXTENSION_LENGTH", "FTYPE"),
    *("PAD", "PAYLOAD_LENGTH", "ICRC"),
}
HIGH_EV = 0x0002_C003  # no protocol's port: tshark asks the dissector of the lower port first

NICS = {"dst_mac": (2, 0, 0, 0, 0, 2), "src_mac": (2, 0, 0, 0, 0, 1)}

Row = dict[str, str]
Shark = Callable[..., list[Row]]


@pytest.fixture
def shark(tmp_path: Path) -> Shark:
    """Runs tshark over frames, and over `cuts` of frames that were so long, with no user's
    configuration; a row of fields for each.
    """

    def run(
        frames: Iterable[bytes],
        *options: str,
        fields: Iterable[str],
        lua: bool = True,
        snap: int = 0,
        cuts: Iterable[tuple[bytes, int]] = (),
    ) -> list[Row]:
        capture = tmp_path / "frames.pcapng"
        kept = [*((data[: snap or None], len(data)) for data in frames), *cuts]
        with capture.open("wb") as stream:
            writer = Writer(stream, ["link"])
            for i, (data, length) in enumerate(kept):
                writer.write(0, i, data, length)
        command = [str(TSHARK), "-n", "-r", str(capture), "-T", "fields", "-E", "aggregator=;"]
        command += ["-X", f"lua_script:{dissector.path()}"] if lua else []
        command += [word for field in fields for word in ("-e", field)]
        done = tshark(tmp_path, *command[1:], *options)
        rows = [text.split("\t") for text in done.stdout.splitlines()]
        return [dict(zip(fields, row, strict=True)) for row in rows]

    return run


def tshark(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run tshark; what it says beside its rows must be about being root only."""
    places = {name: str(home) for name in ("HOME", "XDG_CONFIG_HOME", "WIRESHARK_CONFIG_DIR")}
    done = subprocess.run(
        [str(TSHARK), *arguments],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | places | {"LC_ALL": "C.UTF-8"},
    )
    said = [text for text in done.stderr.splitlines() if "unning as user" not in text]
    assert said == []
    return done


def ours(**values: Any) -> bytes:
    """A data frame over plain IPv6 of an EV that tshark does not take for another protocol."""
    return bytes(
        sent(write(**({"ev": HIGH_EV, "payload_len": 8} | values)), around("ipv6", **NICS))
    )


def every_field() -> list[str]:
    return [
        f"mrc.{header.name.lower()}.{name}"
        for header in dissector.HEADERS
        for name, _, _ in dissector.named_fields(header)
    ]


def expected(found: Packet) -> dict[str, int]:
    """The fields of a decoded packet by their names in Wireshark, reserved ones left out."""
    return {
        f"mrc.{view.name.lower()}.{name}": value
        for view in found.headers
        if view.header in dissector.HEADERS
        for name, value in view.fields.items()
    }


def numbers_of(found: Packet) -> tuple[str, str]:
    """`mrc.psn` and `mrc.request_id`: what `mrc decode` calls PSN and id."""
    bth = found["BTH"]
    if bth["opcode"] <= packet.LAST_DATA:
        return str(bth["psn"]), ""
    if bth["opcode"] == packet.NACK:
        return str(found["NETH"]["nack_psn"]), ""
    asks = bth["opcode"] in (packet.ENDPOINT_REQUEST, packet.ENDPOINT_RESPONSE)
    return "", str(bth["psn"]) if asks else ""


def number(text: str) -> int:
    return int(text, 0)


# --- the file


def test_the_tables_are_those_of_the_layout() -> None:
    text = dissector.path().read_text(encoding="utf-8")
    assert dissector.tables() in text
    assert text == generated.replace_parts(text, {"tables": dissector.tables()})


def test_the_module_names_the_file_for_a_command_line() -> None:
    command = [sys.executable, "-m", "openmrc.wire.dissector"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()) == dissector.path()
    assert dissector.path().is_file()


@needs_tshark
def test_every_field_of_the_layout_can_be_filtered(tmp_path: Path) -> None:
    told = tshark(tmp_path, "-G", "fields", "-X", f"lua_script:{dissector.path()}").stdout
    rows = [text.split("\t") for text in told.splitlines()]
    known = {row[2] for row in rows if row[0] == "F" and row[4] == "mrc"}
    short = {f"mrc.{name}" for name in dissector.SHORT_FORMS}
    own = {"ev", "trimmed", "payload", "payload_length", "padding", "remainder"}
    own |= {"psn", "request_id", "joined"}
    icrc = {"mrc.icrc.status", "mrc.icrc.calculated"}
    errors = {name for name in known if name.startswith("mrc.error.")}
    assert known - errors == {*every_field(), *short, *(f"mrc.{name}" for name in own), *icrc}


# --- the vectors


@needs_tshark
@pytest.mark.parametrize("order", [False, True], ids=["EV as in row 2", "EV swapped"])
def test_a_vector_has_the_same_values_in_wireshark(shark: Shark, order: bool) -> None:
    names = [name for name in ACCEPTED if swapped(VECTORS[name]) == order]
    frames = [frame_of(VECTORS[name]) for name in names]
    fields = [
        *every_field(),
        *("mrc.ev", "mrc.opcode", "mrc.psn", "mrc.qpn", "mrc.rtx", "mrc.trimmed"),
        "mrc.request_id",
        *("mrc.payload", "mrc.icrc.status", "_ws.malformed", "_ws.expert.message"),
    ]
    rows = shark(frames, "-o", f"mrc.ev_swapped:{order}", fields=fields)
    assert len(rows) == len(names) > 1
    for name, data, row in zip(names, frames, rows, strict=True):
        found = decode(data, ev_swapped=order)
        bth = found["BTH"]
        values = expected(found)
        told = {field: text for field, text in row.items() if field in values and text}
        assert {field: number(text) for field, text in told.items()} == values, name
        assert number(row["mrc.ev"]) == found.ev, name
        short = [number(row[f"mrc.{field}"]) for field in ("opcode", "qpn", "rtx")]
        assert short == [bth["opcode"], bth["dest_qpn"], bth["rtx"]], name
        assert (row["mrc.psn"], row["mrc.request_id"]) == numbers_of(found), name
        assert bool(row["mrc.trimmed"]) == found.trimmed, name
        assert bytes.fromhex(row["mrc.payload"]) == found.payload, name
        assert number(row["mrc.icrc.status"]) == (NOT_PRESENT if found.trimmed else GOOD), name
        if "trim_lengths" not in VECTORS[name]:  # Wireshark's own readers want all lengths adjusted
            assert row["_ws.malformed"] == "", name
            assert row["_ws.expert.message"] in ("", ZERO_CHECKSUM), name


@needs_tshark
def test_the_info_column_is_the_line_of_mrc_decode(shark: Shark) -> None:
    frames = [frame_of(v) for v in ACCEPTED.values() if not swapped(v)]
    rows = shark(frames, fields=["_ws.col.Protocol", "_ws.col.Info"])
    reader = Frames()
    for data, row in zip(frames, rows, strict=True):
        _, _, said = line(reader.read(Captured(0, "", 0, data, len(data)))).partition("  ")
        assert row == {"_ws.col.Protocol": "MRC", "_ws.col.Info": said}


@needs_tshark
def test_a_damaged_or_wrapped_packet_has_the_same_line_too(shark: Shark) -> None:
    frames = [
        frame_of(vector)
        for name, vector in REFUSED.items()
        if vector["refused"]["code"] in BEHIND_UDP and name != "opcode-roce"
    ]
    assert len(frames) > 14
    frames += [data for data, _ in AROUND.values()]
    rows = shark(frames, fields=["_ws.col.Info"])
    readers = Readers()
    for data, row in zip(frames, rows, strict=True):
        found = readers.read(Captured(0, "", 0, unwrap(data).data, len(data)))
        assert row["_ws.col.Info"] == found.line().partition("  ")[2]


def every_cut() -> Iterator[tuple[bytes, int]]:
    """Packets that end anywhere behind their UDP header, and how long each was: of every opcode,
    cut by the capture or without their tail, and with lengths that agree with what there is.
    """
    for opcode in layout.OPCODES:
        for shape in ("ipv6", "ipv4", "srv6"):
            p = control(opcode, ev=HIGH_EV, psn=5)
            if opcode <= packet.LAST_DATA:
                p = write(opcode=opcode, ev=HIGH_EV, psn=5, payload_len=6, va=-1, imm=77, msn=3)
            elif opcode == packet.SACK:
                p.bitmap, p.mpr, p.penalty, p.ooo_count = 0b1011, 3, 5, 7
            whole = bytes(sent(p, around(shape, tseth=opcode <= packet.LAST_DATA, **NICS)))
            body_at = UDP_AT + layout.UDP.size_bytes
            body_at += {"ipv6": 0, "ipv4": -20, "srv6": 40}[shape]
            for end in range(body_at + 1, len(whole)):
                yield whole[:end], len(whole)
                yield whole[:end], end
                if shape == "ipv6":
                    yield with_lengths(whole[:end]), end


def with_lengths(data: bytes) -> bytes:
    """A frame over plain IPv6 whose IP and UDP lengths say where it ends."""
    length = (len(data) - UDP_AT).to_bytes(2, "big")
    told = bytearray(data)
    ip_at = layout.ETHERNET.size_bytes + layout.IPV6.byte("payload_length")
    udp_at = UDP_AT + layout.UDP.byte("length")
    told[ip_at : ip_at + 2] = told[udp_at : udp_at + 2] = length
    return bytes(told)


@needs_tshark
def test_a_packet_that_is_cut_anywhere_has_the_same_line_too(shark: Shark) -> None:
    cuts = [*every_cut()]
    assert len(cuts) > 3000
    rows = shark([], cuts=cuts, fields=["_ws.col.Info"])
    readers, seen = Readers(), Counter[str]()
    for (data, length), row in zip(cuts, rows, strict=True):
        [(_, found)] = readers.packets(Captured(0, "", 0, data, length))
        if isinstance(found, Unread) and not found.protocol and not found.is_cut:
            continue  # too little to be sure of; Wireshark goes by the first byte
        said = found.line().partition("  ")[2]
        assert row["_ws.col.Info"] == said, (data, length)
        seen[said.partition("  [")[2].partition(":")[0]] += 1
    assert {"the frame ends within a header", "the packet ends within its headers"} <= set(seen)


@needs_tshark
@pytest.mark.parametrize("shape", ["ipv4", "ipv6", "srv6", "srh"])
def test_joined_packets_are_dissected_each(shark: Shark, shape: str) -> None:
    frames = [join(some_data(shape, 7)), join(some_sacks(shape, 3)), some_data(shape, 1)[0]]
    fields = ["mrc.joined", "mrc.psn", "mrc.icrc.status", "_ws.col.Info", "_ws.malformed"]
    data, sacks, one = shark(frames, fields=fields)
    readers = Readers()
    first = [next(readers.packets(Captured(0, "", 0, f, len(f))))[1].line() for f in frames]
    assert data == {
        "mrc.joined": "7",
        "mrc.psn": "5;6;7;8;9;10;11",
        "mrc.icrc.status": "1;1;1;1;1;1;1",
        "_ws.col.Info": f"7 packets: {first[0].partition('  ')[2]}",
        "_ws.malformed": "",
    }
    assert (sacks["mrc.joined"], sacks["mrc.icrc.status"]) == ("3", "1;1;1")
    assert (one["mrc.joined"], one["_ws.col.Info"]) == ("", first[2].partition("  ")[2])


TOO_SHORT = ("trimmed-too-short", "trimmed-too-short-none")  # in the line, not as an expert's word


@needs_tshark
def test_what_is_refused_behind_udp_is_said(shark: Shark) -> None:
    rows = shark(
        [frame_of(v) for v in REFUSED.values()], fields=["_ws.expert.message", "mrc.trimmed"]
    )
    seen = set()
    for (name, vector), row in zip(REFUSED.items(), rows, strict=True):
        code = vector["refused"]["code"]
        if code in BEHIND_UDP and name not in ("opcode-roce", *TOO_SHORT):
            seen.add(code)
            assert frame.REASONS[getattr(frame, code)] in row["_ws.expert.message"], name
    assert seen == BEHIND_UDP


@needs_tshark
def test_the_filters_on_the_page_are_understood(shark: Shark) -> None:
    page = generated.PAGE.read_text(encoding="utf-8")
    filters = re.findall(r"^\| `(mrc\.[^`]*)` \|[^|]*\|$", page, re.MULTILINE)
    assert len(filters) > 8
    shark([ours()], "-Y", " || ".join(f"({text})" for text in filters), fields=["frame.number"])


@needs_tshark
def test_row_37_the_dscps_of_a_fabric_are_preferences(shark: Shark) -> None:
    vectors = [*ELSEWHERE.values()]
    table = dscps(vectors[0])
    options = [
        word
        for name in ("no_trim", "trimmed", "trimmed_lasthop")
        for word in ("-o", f"mrc.dscp_{name}:{getattr(table, name)}")
    ]
    rows = shark(map(frame_of, vectors), *options, fields=["_ws.col.Info", "mrc.trimmed"])
    reader = Frames(dscps=table)
    for vector, row in zip(vectors, rows, strict=True):
        data = frame_of(vector)
        _, _, said = line(reader.read(Captured(0, "", 0, data, len(data)))).partition("  ")
        assert row["_ws.col.Info"] == said
        assert bool(row["mrc.trimmed"]) == vector["trimmed"]


# --- trimmed, damaged and cut short


@needs_tshark
@pytest.mark.parametrize("shape", SHAPES)
def test_row_21_a_trimmed_frame_is_shown_as_such(shark: Shark, shape: str) -> None:
    whole = sent(write(ev=HIGH_EV, psn=5, payload_len=1024), around(shape, **NICS))
    frames = [bytes(trimmed(whole, last_hop)) for last_hop in (0, 1)]
    fields = ["mrc.trimmed", "mrc.psn", "mrc.icrc.status", "mrc.payload", "_ws.expert.message"]
    rows = shark(frames, fields=fields)
    assert [row["mrc.trimmed"] for row in rows] == ["12", "16"]
    assert {row["mrc.psn"] for row in rows} == {"5"}
    assert {row["mrc.icrc.status"] for row in rows} == {str(NOT_PRESENT)}
    assert {row["mrc.payload"] for row in rows} == {""}
    assert {row["_ws.expert.message"] for row in rows} == {"" if shape == "ipv4" else ZERO_CHECKSUM}
    assert shark([*frames, bytes(whole)], "-Y", "!mrc.trimmed", fields=["frame.number"]) == [
        {"frame.number": "3"}
    ]


@needs_tshark
def test_a_trimmed_frame_that_lost_a_header_is_not_malformed(shark: Shark) -> None:
    data = frame_of(VECTORS["trimmed-too-short"])
    (row,) = shark(
        [data], fields=["mrc.trimmed", "mrc.bth.psn", "_ws.malformed", "_ws.expert.message"]
    )
    assert number(row["mrc.trimmed"]) == layout.DSCP_TRIMMED
    assert (row["_ws.malformed"], row["_ws.expert.message"]) == ("", ZERO_CHECKSUM)
    assert row["mrc.bth.psn"] != ""


@needs_tshark
def test_a_wrong_icrc_is_found_unless_it_is_not_to_be_checked(shark: Shark) -> None:
    good = ours()
    bad = good[:-1] + bytes([good[-1] ^ 1])
    fields = ["mrc.icrc.status"]
    assert shark([good, bad], fields=fields) == [
        {"mrc.icrc.status": str(GOOD)},
        {"mrc.icrc.status": str(BAD)},
    ]
    unchecked = shark([good, bad], "-o", "mrc.check_icrc:FALSE", fields=fields)
    assert unchecked == [{"mrc.icrc.status": str(UNVERIFIED)}] * 2


@needs_tshark
def test_the_icrc_of_a_large_packet(shark: Shark) -> None:
    p, e = write(ev=HIGH_EV, payload_len=4095), around("srv6", **NICS)
    data = encode(p, e, random.Random(1).randbytes(4095))
    (row,) = shark([data], fields=["mrc.icrc.status", "mrc.payload_length", "mrc.padding"])
    assert list(row.values()) == [str(GOOD), "4095", "00"]


@needs_tshark
@pytest.mark.parametrize("snap", range(UDP_AT, 150, 7))
def test_a_capture_that_was_cut_short_is_shown_as_far_as_it_goes(shark: Shark, snap: int) -> None:
    data = ours(psn=5, payload_len=100)
    fields = ["mrc.psn", "mrc.icrc.status", "_ws.expert.message"]
    (row,) = shark([data], fields=fields, snap=snap)
    bth_end = UDP_AT + layout.UDP.size_bytes + layout.BTH.size_bytes
    assert row["mrc.psn"] == ("5" if snap >= bth_end else "")
    assert row["mrc.icrc.status"] == (str(UNVERIFIED) if snap >= bth_end else "")
    assert "MRC" not in row["_ws.expert.message"]
    assert "Lua" not in row["_ws.expert.message"]


@needs_tshark
def test_no_bytes_make_the_dissector_fail(shark: Shark) -> None:
    """Behind a healthy UDP header: every length, and bits turned over."""
    dice = random.Random(7)
    frames = []
    for opcode in layout.OPCODES:
        p = write(opcode=opcode, ev=HIGH_EV, payload_len=8)
        if opcode > packet.LAST_DATA:
            p = control(opcode, ev=HIGH_EV)
        whole = bytes(sent(p, around("ipv6", **NICS)))
        body_at = UDP_AT + layout.UDP.size_bytes
        for end in range(body_at, len(whole)):
            body = bytearray(whole[body_at:end])
            if body and dice.random() < 0.5:
                body[dice.randrange(len(body))] ^= 1 << dice.randrange(8)
            frames.append(with_lengths(whole[:body_at] + bytes(body)))
    rows = shark(frames, fields=["frame.protocols", "_ws.expert.message", "_ws.col.Info"])
    assert len(rows) == len(frames) > 300
    assert [row for row in rows if "Lua" in "".join(row.values())] == []
    assert sum("mrc" in row["frame.protocols"] for row in rows) > len(rows) * 0.8


# --- ports and other protocols


@needs_tshark
def test_row_01_ports_are_a_preference(shark: Shark) -> None:
    to = {port: around("ipv6", udp_port=port, **NICS) for port in (4791, 4971)}
    frames = [bytes(sent(write(ev=HIGH_EV), e)) for e in to.values()]
    port_at = UDP_AT + layout.UDP.byte("dst_port")
    other = frames[0][:port_at] + (6000).to_bytes(2, "big") + frames[0][port_at + 2 :]
    fields = ["udp.dstport"]
    assert shark([*frames, other], "-Y", "mrc", fields=fields) == [
        {"udp.dstport": "4791"},
        {"udp.dstport": "4971"},
    ]
    chosen = shark([*frames, other], "-o", "mrc.ports:4971,5999-6001", "-Y", "mrc", fields=fields)
    assert chosen == [{"udp.dstport": "4971"}, {"udp.dstport": "6000"}]


@needs_tshark
def test_any_port_can_be_decoded_as_mrc(shark: Shark) -> None:
    data, port_at = ours(), UDP_AT + layout.UDP.byte("dst_port")
    other = data[:port_at] + (6000).to_bytes(2, "big") + data[port_at + 2 :]
    rows = shark([other], "-d", "udp.port==6000,mrc", "-Y", "mrc.psn", fields=["udp.dstport"])
    assert rows == [{"udp.dstport": "6000"}]


@needs_tshark
def test_an_ev_that_looks_like_the_port_of_another_protocol_is_no_matter(shark: Shark) -> None:
    ports = [53, 123, 161, 319, 443, 2152, 4789, 4791, 65535]  # DNS, NTP, SNMP, PTP, QUIC ...
    rows = shark([ours(ev=port) for port in ports], fields=["frame.protocols", "mrc.ev"])
    assert [number(row["mrc.ev"]) for row in rows] == ports
    assert {row["frame.protocols"] for row in rows} == {"eth:ethertype:ipv6:udp:mrc"}


@needs_tshark
def test_roce_on_the_same_port_stays_roce(shark: Shark) -> None:
    data = frame_of(VECTORS["opcode-roce"])
    rows = shark([data, ours()], fields=["frame.protocols"])
    assert ":udp:infiniband" in rows[0]["frame.protocols"]
    assert rows[1]["frame.protocols"].endswith(":udp:mrc")


# --- without the dissector


def every_frame() -> list[bytes]:
    """Every opcode in every encapsulation, data with and without time stamp, whole and trimmed."""
    frames = []
    for opcode in layout.OPCODES:
        for shape in SHAPES:
            if opcode > packet.LAST_DATA:
                frames.append(bytes(sent(control(opcode, ev=HIGH_EV), around(shape, **NICS))))
                continue
            for tseth in (0, 1):
                p = write(opcode=opcode, ev=HIGH_EV, payload_len=1021)
                whole = sent(p, around(shape, tseth=tseth, **NICS))
                frames += [bytes(whole), *(bytes(trimmed(whole, last)) for last in (0, 1))]
    return frames


@needs_tshark
def test_without_the_dissector_nothing_is_malformed(shark: Shark) -> None:
    """The one complaint is about UDP checksums of zero over IPv6, which MRC sends (row 22)."""
    fields = ["frame.protocols", "_ws.malformed", "_ws.expert.message"]
    frames = every_frame()
    rows = shark(frames, fields=fields, lua=False)
    assert len(rows) == len(frames) == 4 * (6 * 6 + 6)
    for row in rows:
        over_ipv4 = "ipv6" not in row["frame.protocols"]
        assert row["frame.protocols"].endswith(":udp:infiniband")
        assert row["_ws.malformed"] == ""
        assert row["_ws.expert.message"] == ("" if over_ipv4 else ZERO_CHECKSUM)


@needs_tshark
def test_with_the_dissector_every_frame_is_right(shark: Shark) -> None:
    rows = shark(every_frame(), fields=["mrc.icrc.status", "mrc.trimmed", "_ws.expert.message"])
    for row in rows:
        assert row["_ws.expert.message"] in ("", ZERO_CHECKSUM)
        assert number(row["mrc.icrc.status"]) == (NOT_PRESENT if row["mrc.trimmed"] else GOOD)


def test_reserved_fields_have_numbers() -> None:
    header = Header(
        "X", "", "", tuple(layout.Field(name, 8) for name in ("reserved", "a", "reserved"))
    )
    names = [(name, bit) for name, bit, _ in dissector.named_fields(header)]
    assert names == [("reserved1", 0), ("a", 8), ("reserved2", 16)]
