"""What `mrc decode` makes of RoCEv2 and of pause frames, beside MRC in one file."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openmrc.cli import decode
from openmrc.engine import packet
from openmrc.jit import warmup
from openmrc.wire import frame, lines
from openmrc.wire.lines import Frames
from openmrc.wire.meant import MRC, ROCE
from openmrc.wire.pcap import Captured, Writer
from openmrc.wire.readers import PFC, Found, Readers, Unread
from openmrc.wire.roce import opcodes as roce
from openmrc.wire.roce import pause
from tests.wire.frames import SHAPES, around, sent, trimmed, write
from tests.wire.roce.refused import BTH_AT, REFUSED
from tests.wire.roce.roce_frames import a_frame
from tests.wire.vectors import ACCEPTED, VECTORS, frame_of

LINKS = ["nic 0 plane 0 > t0", "nic 0 plane 0 < t0"]
FORWARD, BACK = 0, 1


def paused(quanta: int) -> bytes:
    out = np.zeros(60, np.uint8)
    pause.write(out, np.arange(6, dtype=np.uint8), 3, quanta)
    return out.tobytes()


def mrc() -> bytes:
    return bytes(sent(write(psn=3, payload_len=8), around("ipv6")))


def roce_data(psn: int, opcode: int = roce.WRITE_MIDDLE, **more: int) -> bytes:
    return a_frame(opcode, **({"psn": psn, "payload_len": 64, "flag_bits": 0, "dst_qpn": 7} | more))


def answer(opcode: int, **more: int) -> bytes:
    return a_frame(opcode, **({"dst_qpn": 8, "psn": 9, "reason": roce.AETH_ACK, "msn": 1} | more))


ONE_OF_EACH = {
    "QP 0x7  RC_WRITE_FIRST  PSN 9  port 49374  va 0x1000, 64 of 130 B": roce_data(
        9, roce.WRITE_FIRST, va=0x1000, dma_len=130
    ),
    "QP 0x7  RC_WRITE_MIDDLE  PSN 10  port 49374  CE  64 B": roce_data(10, flag_bits=packet.CE),
    "QP 0x7  RC_WRITE_LAST  PSN 11  port 49374  ACK_REQ  2 B": roce_data(
        11, roce.WRITE_LAST, payload_len=2, flag_bits=packet.ACK_REQ
    ),
    "QP 0x7  RC_WRITE_LAST_IMM  PSN 11  port 49374  64 B, imm 0xa1": roce_data(
        11, roce.WRITE_LAST_IMM, imm=0xA1
    ),
    "QP 0x7  RC_WRITE_ONLY  PSN 12  port 49374  va 0xffffffffffffffff, 64 of 64 B": roce_data(
        12, roce.WRITE_ONLY, va=-1, dma_len=64
    ),
    "QP 0x7  RC_WRITE_ONLY_IMM  PSN 12  port 49374  va 0x0, 64 of 64 B, imm 0x1": roce_data(
        12, roce.WRITE_ONLY_IMM, va=0, dma_len=64, imm=1
    ),
    "QP 0x8  RC_ACKNOWLEDGE  PSN 9  port 49374  ACK, msn 1": answer(roce.ACKNOWLEDGE),
    "QP 0x8  RC_ACKNOWLEDGE  PSN 9  port 49374  NAK_PSN_SEQUENCE_ERROR, msn 1": answer(
        roce.ACKNOWLEDGE, reason=roce.AETH_NAK_SEQUENCE
    ),
    "QP 0x8  RC_ACKNOWLEDGE  PSN 9  port 49374  RNR_NAK, msn 1": answer(
        roce.ACKNOWLEDGE, reason=0x2E
    ),
    "QP 0x8  RC_ACKNOWLEDGE  PSN 9  port 49374  syndrome 0x6f, msn 1": answer(
        roce.ACKNOWLEDGE, reason=0x6F
    ),
    "QP 0x8  CNP  port 49374": answer(roce.CNP),
}


def captured(data: bytes, length: int | None = None) -> Captured:
    return Captured(1, LINKS[0], 0, data, len(data) if length is None else length)


class Lab:
    """A place for captures, and the command."""

    def __init__(self, folder: Path, output: pytest.CaptureFixture[str]) -> None:
        self.file, self.output = folder / "a.pcapng", output

    def capture(self, *frames: tuple[int, bytes]) -> None:
        with self.file.open("wb") as stream:
            writer = Writer(stream, LINKS)
            for number, (link, data) in enumerate(frames):
                writer.write(link, 1000 * number, data)

    def lines(self, *words: str, said: str = "") -> list[str]:
        parser = argparse.ArgumentParser()
        decode.add_command(parser.add_subparsers())
        arguments = parser.parse_args(["decode", str(self.file), *words])
        assert arguments.run(arguments) == 0
        out, err = self.output.readouterr()
        assert err == said
        return out.splitlines()


@pytest.fixture
def lab(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.setattr(warmup, "is_cached", lambda world: True)
    return Lab(tmp_path, capsys)


def test_a_line_says_what_a_packet_is() -> None:
    readers = Readers()
    for line, data in ONE_OF_EACH.items():
        found = readers.read(captured(data))
        assert isinstance(found, Found)
        assert (found.protocol, found.line()) == (ROCE, f"10.0.0.4 -> 10.0.2.189  {line}")


def test_each_protocol_has_its_reader() -> None:
    readers = Readers()
    found = [readers.read(captured(data)) for data in (mrc(), roce_data(1), paused(9))]
    assert [each.protocol for each in found] == [MRC, ROCE, PFC]
    arp = readers.read(captured(b"\xff" * 12 + b"\x08\x06" + bytes(46)))
    assert arp == Unread(None, 12, "not IPv6 or IPv4", code=frame.ETHERTYPE)
    cut = readers.read(captured(paused(9)[:30]))
    assert cut == Unread(PFC, 14, "the frame ends within a header")


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_is_wrong_with_rocev2_is_said(name: str) -> None:
    data, _, at = REFUSED[name]
    bad = Readers().read(captured(data))
    assert isinstance(bad, Unread)
    assert bad.protocol == {"reserved": MRC, "the other port of MRC": MRC, "no BTH": MRC}.get(
        name, ROCE
    )
    assert (bad.found is not None) == (name == "iCRC")
    assert bad.protocol == MRC or bad.offset == at


def test_what_is_there_of_a_packet_has_the_line_of_a_whole_one() -> None:
    """The plain reader of packets that are cut, held against the codec."""
    for order in (False, True):
        frames = Frames(ev_swapped=order, ports_from_1=order)
        for name, vector in ACCEPTED.items():
            one = captured(frame_of(vector))
            assert frames.part_line(frames.part(one)) == lines.line(frames.read(one)), name


def test_json_of_a_packet_that_is_cut_has_the_headers_that_are_whole() -> None:
    whole = frame_of(VECTORS["write-last-imm"])
    end = whole.index(bytes.fromhex("0badcafe"))  # of the RETH
    readers, one = Readers(), captured(whole[:end], len(whole))
    found = readers.read(one)
    assert isinstance(found, Unread)
    assert found.line().endswith(
        "  msn 7, rqmsn 3  [the frame ends within a header: RETH, ImmDt missing]"
    )
    assert found.part is not None
    told = readers.part_fields(one, found.part)
    assert [*told["headers"]][-3:] == ["BTH", "METH", "TSETH"]
    assert told["headers"]["METH"]["msn"] == 7
    assert (told["missing"], told["length"]) == (["RETH", "ImmDt"], len(whole))


def test_a_packet_that_ends_before_its_bth_says_how_far_it_goes() -> None:
    data = frame_of(VECTORS["plain-ipv6"])
    said = [Readers().read(captured(data[:end], len(data))).line() for end in (53, 54, 61, 62, 73)]
    ends = "fd00::107 -> fd00::209"
    assert said == [
        "BAD byte 14: the frame ends within a header",
        *[f"{ends}  BAD byte 54: the frame ends within a header"] * 2,
        *[f"{ends}  EV 0x01234567  [the frame ends within a header: BTH missing]"] * 2,
    ]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("lengths", "said"),
    [
        ("all", "all lengths adjusted"),
        ("outer", "outer length adjusted"),
        ("none", "no length adjusted"),
    ],
)
def test_a_trimmed_packet_is_one_packet_whatever_its_lengths_say(
    shape: str, lengths: str, said: str
) -> None:
    """Neither damaged, nor a mirror's cut copy, nor several that a host joined."""
    place = frame.TRIM_LENGTHS_FOUND.index(lengths)
    whole = sent(write(psn=7, payload_len=4096, dma_len=8192), around(shape))
    data = bytes(trimmed(whole, lengths=place))
    captured = Captured(0, "", 0, data, len(data))
    ((same, found),) = Readers().packets(captured)
    assert isinstance(found, Found)
    assert same == captured
    assert found.line().endswith(f"0 of 8192 B, {said}")


def test_a_packet_that_was_cut_short_is_read_as_far_as_its_headers_go() -> None:
    data = roce_data(5, roce.WRITE_FIRST, payload_len=1024)
    readers = Readers()
    for kept in range(14, len(data), 5):
        found = readers.read(captured(data[:kept], len(data)))
        whole = kept >= BTH_AT + 12 + 16
        assert isinstance(found, Found) == whole, kept
        if isinstance(found, Found):
            assert found.frame.p.psn == 5
            assert readers.fields(captured(data[:kept], len(data)), ROCE)["icrc_ok"] is None


def told(lab: Lab, *words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lab.lines("--json", *words)]


def test_json_has_every_header(lab: Lab) -> None:
    bad = REFUSED["iCRC"][0]
    lab.capture((FORWARD, roce_data(9, roce.WRITE_FIRST)), (BACK, paused(65_535)), (BACK, bad))
    data, stop, damaged, summary = told(lab)
    assert [*data["headers"]] == ["Ethernet", "IPv4", "UDP", "BTH", "RETH", "iCRC"]
    assert data["headers"]["BTH"]["opcode_name"] == "RC_WRITE_FIRST"
    assert data["headers"]["UDP"]["dst_port"] == 4791
    assert data["icrc_ok"] is True
    assert stop["headers"]["PFC"] == {
        "src_mac": "00:01:02:03:04:05",
        "dst_mac": "01:80:c2:00:00:01",
        "class_enable_vector": 8,
        "quanta": {"3": 65_535},
    }
    assert damaged["error"] == {
        "offset": len(bad) - 4,
        "reason": "wrong iCRC",
        "mrc": False,
        "protocol": "RoCEv2",
    }
    assert damaged["headers"]["AETH"]["syndrome"] == roce.AETH_NAK_SEQUENCE
    assert summary["summary"]["damaged"] == {"wrong iCRC": 1}
    assert summary["summary"]["not_mrc"] == {}


def test_a_summary_by_queue_pair(lab: Lab) -> None:
    lab.capture(
        (FORWARD, mrc()),
        (FORWARD, roce_data(0xFF_FFFF, roce.WRITE_FIRST)),
        (FORWARD, roce_data(0)),
        (FORWARD, roce_data(2, flag_bits=packet.CE)),
        (FORWARD, roce_data(0)),
        (FORWARD, roce_data(3, roce.WRITE_LAST)),
        (FORWARD, roce_data(3, roce.WRITE_LAST, ev=50_000)),
        (BACK, answer(roce.ACKNOWLEDGE)),
        (BACK, answer(roce.ACKNOWLEDGE, reason=roce.AETH_NAK_SEQUENCE)),
        (BACK, answer(roce.CNP)),
        (BACK, paused(65_535)),
        (BACK, paused(0)),
        (BACK, paused(7)),
    )
    summary = told(lab)[-1]["summary"]
    assert summary["packets"] == 13
    assert len(summary["qps"]) == 1
    destination = "10.0.2.189"
    assert summary["roce"] == {
        "packets": 12,
        "unlisted": 0,
        "qps": [
            {
                "destination": destination,
                "dest_qpn": 7,
                "data": {
                    "packets": 6,
                    "payload_bytes": 384,
                    "messages": 1,
                    "psn_first": 0xFF_FFFF,
                    "psn_last": 3,
                    "psns_missing": 1,
                    "psns_hidden": 0,
                    "again": 2,
                    "ecn_marked": 1,
                    "source_ports": [49_374, 50_000],
                },
                "control": {
                    "ack": 0,
                    "nak": {},
                    "cnp": 0,
                    "read_response": 0,
                    "read_response_bytes": 0,
                },
            },
            {
                "destination": destination,
                "dest_qpn": 8,
                "data": {
                    "packets": 0,
                    "payload_bytes": 0,
                    "messages": 0,
                    "psn_first": None,
                    "psn_last": None,
                    "psns_missing": 0,
                    "psns_hidden": 0,
                    "again": 0,
                    "ecn_marked": 0,
                    "source_ports": [],
                },
                "control": {
                    "ack": 1,
                    "nak": {"NAK_PSN_SEQUENCE_ERROR": 1},
                    "cnp": 1,
                    "read_response": 0,
                    "read_response_bytes": 0,
                },
            },
        ],
        "paused": [{"interface": LINKS[BACK], "pauses": 2, "resumes": 1}],
    }
    text = "\n".join(lab.lines())
    assert "RoCEv2: data, by destination" in text
    assert "RoCEv2: control, by destination" in text
    assert "PFC at nic 0 plane 0 < t0: 2 frames that pause, 1 that let go on" in text
    assert text.splitlines()[-1] == "13 packets"


def test_one_qp_of_rocev2(lab: Lab) -> None:
    lab.capture((FORWARD, roce_data(1)), (BACK, answer(roce.CNP)), (BACK, paused(1)))
    shown = told(lab, "--qp", "8")
    assert [row["headers"]["BTH"]["opcode_name"] for row in shown[:-1]] == ["CNP"]
    assert [row["dest_qpn"] for row in shown[-1]["summary"]["roce"]["qps"]] == [8]
    assert "PFC" not in "\n".join(lab.lines("--qp", "8"))
    missing = "No packet for QP 0x9; there are packets for 0x7, 0x8\n"
    assert lab.lines("--qp", "9", said=missing)[-1] == "3 packets"


def test_without_rocev2_nothing_is_said_of_it(lab: Lab) -> None:
    lab.capture((FORWARD, mrc()))
    assert "roce" not in told(lab)[-1]["summary"]


def test_the_first_rocev2_packet_says_that_it_compiles(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warmup, "is_cached", lambda world: world == "sim")
    lab.capture((FORWARD, mrc()), (FORWARD, roce_data(1)), (FORWARD, roce_data(2)))
    words = "Compiling the decoder, once for this version: some seconds.\n"
    assert len(lab.lines(said=words)) > 3
    lab.capture((FORWARD, mrc()))
    lab.lines()
