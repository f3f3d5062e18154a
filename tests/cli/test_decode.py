"""`mrc decode`: what people and scripts see of a capture, good, damaged or none at all."""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
from ipaddress import IPv6Address
from pathlib import Path
from struct import pack
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from openmrc import wire
from openmrc.cli import decode, decoded
from openmrc.engine import packet as pk
from openmrc.errors import InputError
from openmrc.jit import records, warmup
from openmrc.wire import addresses, frame
from openmrc.wire.pcap import Writer
from tests.wire.joined import join
from tests.wire.test_offload import around_it
from tests.wire.test_pcap import statistics

REPEATABLE = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
LINK = "plane 0 t0 1 - t1 0"
ICRC_BYTES = 4
CLASSES = Path(__file__).parents[2] / "conformance/vectors/classes.json"


def envelope(plane: int = 0, ipv4: bool = False) -> Any:
    """From NIC 0 to NIC 1 over a plane."""
    e = records(1, frame.ENVELOPE)[0]
    e.srv6, e.ipv4, e.tseth = not ipv4, ipv4, 1
    e.hop_limit = e.inner_hop_limit = 64
    e.udp_port, e.pkey = 4791, 0xFFFF
    plan = addresses.ipv4 if ipv4 else addresses.ipv6
    for field, nic in (("inner_src", 0), ("inner_dst", 1)):
        address = plan(nic, plane).packed
        e[field][: len(address)] = np.frombuffer(address, np.uint8)
    carrier = IPv6Address("2001:db8:4000:2000:4001:1001::").packed
    e.carrier[:] = np.frombuffer(carrier, np.uint8)
    return e


def a_packet(opcode: int, e: Any = None, **fields: int) -> bytes:
    p = records(1, pk.PACKET)[0]
    p.opcode, p.dst_qpn, p.ev = opcode, 17, 0x0001_0005
    p.klass = pk.CLASS_DATA if opcode <= pk.LAST_DATA else pk.CLASS_CONTROL
    for name, value in fields.items():
        setattr(p, name, value)
    return wire.encode(p, envelope() if e is None else e)


def data(psn: int, opcode: int = pk.WRITE_MIDDLE, plane: int = 0, **fields: int) -> bytes:
    given = {"va": 0x7F0000, "payload_len": 64, "dma_len": 256, "msn": 3} | fields
    return a_packet(opcode, envelope(plane), psn=psn, **given)


def flipped(packet: bytes, at: int = -1) -> bytes:
    out = bytearray(packet)
    out[at] ^= 0x80
    return bytes(out)


ARP = b"\xff" * 12 + b"\x08\x06" + bytes(46)


class Lab:
    """A place for captures, and the command."""

    def __init__(self, folder: Path, output: pytest.CaptureFixture[str]) -> None:
        self.file = folder / "a.pcapng"
        self.output = output

    def capture(self, *packets: bytes, snap_bytes: int = 4096, name: str = LINK) -> None:
        with self.file.open("wb") as stream:
            writer = Writer(stream, [name], snap_bytes)
            for number, packet in enumerate(packets):
                writer.write(0, 1_500 * number, packet)

    def decode(self, *words: str) -> int:
        parser = argparse.ArgumentParser()
        decode.add_command(parser.add_subparsers())
        arguments = parser.parse_args(["decode", str(self.file), *words])
        status: int = arguments.run(arguments)
        return status

    def lines(self, *words: str) -> list[str]:
        assert self.decode(*words) == 0
        out, err = self.output.readouterr()
        assert err == ""
        return out.splitlines()

    def packets(self, *words: str) -> list[str]:
        """The lines before the tables, without number, time and addresses."""
        named = [line for line in self.lines(*words) if LINK in line]
        return [line.split(LINK + "  ")[1].split("  ", 1)[-1] for line in named]

    def objects(self, *words: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines("--json", *words)]


@pytest.fixture
def lab(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Lab:
    # else the first decoding says so
    monkeypatch.setattr(warmup, "is_cached", lambda world: True)
    return Lab(tmp_path, capsys)


# Lines


def test_a_line_says_when_where_who_and_what(lab: Lab) -> None:
    lab.capture(data(0), data(1, plane=2, flag_bits=pk.CE))
    assert lab.lines()[:2] == [
        "     1  0.000000000  plane 0 t0 1 - t1 0  fd6d:7263::1 -> fd6d:7263::2  QP 0x11"
        "  RDMA_WRITE_MIDDLE  PSN 0  EV 0x00010005  msn 3, va 0x7f0000, 64 of 256 B",
        "     2  0.000001500  plane 0 t0 1 - t1 0  fd6d:7263:2::1 -> fd6d:7263:2::2  QP 0x11"
        "  RDMA_WRITE_MIDDLE  PSN 1  EV 0x00010005  CE  msn 3, va 0x7f0000, 64 of 256 B",
    ]


EVERY_OPCODE = {
    "QP 0x11  RDMA_WRITE_FIRST  PSN 9  EV 0x00010005  NO_TRIM  msn 3, va 0x7f0000, 64 of 256 B": (
        data(9, pk.WRITE_FIRST, flag_bits=pk.NO_TRIM)
    ),
    "QP 0x11  RDMA_WRITE_MIDDLE  PSN 9  EV 0x00010005  ACK_REQ RTX  msn 3, rqmsn 2, va"
    " 0xffffffffffffffff, 64 of 256 B": data(
        9, rqmsn=2, va=-1, flag_bits=pk.RTX | pk.ACK_REQ, klass=pk.CLASS_RETRANSMIT
    ),
    "QP 0x11  RDMA_WRITE_LAST  PSN 9  EV 0x00010005  TRIMMED  msn 3, va 0x7f0000, 0 of 256 B,"
    " all lengths adjusted": data(9, pk.WRITE_LAST, flag_bits=pk.TRIMMED),
    "QP 0x11  RDMA_WRITE_LAST_IMM  PSN 9  EV 0x00010005  msn 3, va 0x7f0000, 64 of 256 B,"
    " imm 0xa1": data(9, pk.WRITE_LAST_IMM, imm=0xA1),
    "QP 0x11  RDMA_WRITE_ONLY  PSN 9  EV 0x00010005  TRIMMED_LASTHOP  msn 3, va 0x7f0000, 0 of"
    " 256 B, all lengths adjusted": data(9, pk.WRITE_ONLY, flag_bits=pk.TRIMMED_LASTHOP),
    "QP 0x11  RDMA_WRITE_ONLY_IMM  PSN 9  EV 0x00010005  msn 3, va 0x7f0000, 64 of 256 B,"
    " imm 0x0": data(9, pk.WRITE_ONLY_IMM),
    "QP 0x11  ACKNOWLEDGE  EV 0x00010005  ACK, msn 7": (
        a_packet(pk.ACKNOWLEDGE, reason=pk.AETH_ACK, msn=7)
    ),
    "QP 0x11  ACKNOWLEDGE  EV 0x00010005  syndrome 0x40, msn 0": (
        a_packet(pk.ACKNOWLEDGE, reason=0x40)
    ),
    "QP 0x2  ENDPOINT_REQUEST  id 9  EV 0x00010005  PORT_STATUS_UPDATE, ports 0xff": (
        a_packet(pk.ENDPOINT_REQUEST, dst_qpn=2, psn=9, imm=0xFF)
    ),
    "QP 0x2  ENDPOINT_RESPONSE  id 9  EV 0x00010005  EV_PROBE": (
        a_packet(pk.ENDPOINT_RESPONSE, dst_qpn=2, psn=9, reason=pk.OP_EV_PROBE)
    ),
    "QP 0x11  RELIABILITY_SACK  EV 0x00010005  cack 16777214, received 16777215-1 3, for PSN 1,"
    " of EV 0x00000007, SKIP_ONCE, 2 out of order, window 512, penalty 3/128": a_packet(
        pk.SACK,
        cack_psn=pk.PSN_MASK - 1,
        sack_offset=1,
        bitmap=0b10111,
        ack_offset=3,
        entropy=7,
        m=pk.M_SKIP_ONCE,
        ooo_count=2,
        mpr=4,
        penalty=3,
    ),
    "QP 0x11  RELIABILITY_SACK  EV 0x00010005  cack 4, probe 65535, of EV 0x00000000": (
        a_packet(pk.SACK, cack_psn=4, ack_offset=-1, flag_bits=pk.PROBE_ANSWER)
    ),
    "QP 0x11  RELIABILITY_NACK  PSN 9  EV 0x00010005  TRIMMED, of EV 0x00000007": (
        a_packet(pk.NACK, psn=9, reason=pk.NACK_TRIMMED, entropy=7)
    ),
    "QP 0x11  RELIABILITY_NACK  PSN 9  EV 0x00010005  reason 0x33, of EV 0x00000000": (
        a_packet(pk.NACK, psn=9, reason=0x33)
    ),
    "QP 0x11  RELIABILITY_PROBE_REQ  EV 0x00010005  probe 8": a_packet(pk.PROBE, ack_offset=8),
}


def test_each_opcode_says_what_matters_of_it(lab: Lab) -> None:
    lab.capture(*EVERY_OPCODE.values())
    assert lab.packets() == list(EVERY_OPCODE)


def test_a_long_bitmap_ends_in_dots(lab: Lab) -> None:
    lab.capture(a_packet(pk.SACK, bitmap=0b1010101011, sack_offset=1))
    assert "received 1-2 4 6 8 ..., for" in lab.packets()[0]


def test_damaged_packets_are_named_and_the_rest_is_shown(lab: Lab) -> None:
    wrong_opcode = flipped(data(2), at=14 + 40 + 40 + 8)
    lab.capture(data(1), flipped(data(2)), ARP, wrong_opcode, data(3)[:60], data(4))
    lines = lab.lines()
    shown = [line.split(LINK + "  ")[1] for line in lines if LINK in line]
    assert shown[1:5] == [
        "fd6d:7263::1 -> fd6d:7263::2  QP 0x11  RDMA_WRITE_MIDDLE  PSN 2  EV 0x00010005"
        "  msn 3, va 0x7f0000, 64 of 256 B  [wrong iCRC]",
        "not MRC: not IPv6 or IPv4",
        "fd6d:7263::1 -> fd6d:7263::2  QP 0x11  RD_WRITE_MIDDLE  PSN 2  port 5  76 B  [wrong iCRC]",
        "cut copy  :: -> 2001:db8:4000:2000:4001:1001::  BAD byte 54: the frame ends within a"
        f" header (60 of {len(data(3))} bytes were captured)",
    ]
    assert "  PSN 1  " in shown[0]
    assert "  PSN 4  " in shown[5]
    assert lines[-1] == (
        "6 packets, 1 cut copy, 1 cut before they say what they are, 2 damaged (wrong iCRC 2),"
        " 1 not MRC (not IPv6 or IPv4 1)"
    )


def test_a_packet_whose_tail_never_came_is_a_cut_copy(lab: Lab) -> None:
    """A mirror keeps the beginning of a frame, and its IP length says the whole."""
    lab.capture(data(1)[:-30])
    lines = lab.lines()
    [shown] = [line.split("  QP 0x11  ")[1] for line in lines if LINK in line]
    assert shown == "RDMA_WRITE_MIDDLE  PSN 1  EV 0x00010005  msn 3, va 0x7f0000, 64 of 256 B"
    assert lines[-1] == "1 packet, 1 cut copy"
    [told, _] = [json.loads(line) for line in lab.lines("--json")]
    assert told["headers"]["BTH"]["psn"] == 1
    assert (told["length"], told["captured"]) == (len(data(1)), len(data(1)) - 30)
    assert lab.decode("--strict") == 0


def test_lengths_that_do_not_agree_are_damage(lab: Lab) -> None:
    length_of_udp = 14 + 40 + 40 + 4
    lab.capture(flipped(data(1), at=length_of_udp)[:-30])
    assert lab.decode("--strict") == 1


def test_damage_fails_if_that_is_asked_for_and_icrcs_need_not_be_looked_at(lab: Lab) -> None:
    wrong = flipped(data(2))
    lab.capture(data(1), ARP, wrong)
    assert lab.decode() == 0
    assert lab.decode("--strict") == 1
    assert "1 damaged packets, which --strict does not allow\n" in lab.output.readouterr().err
    assert lab.decode("--strict", "--no-icrc") == 0
    lab.output.readouterr()
    assert lab.lines("--no-icrc")[-1].startswith("3 packets, 1 not MRC")


def test_a_tag_is_named_and_ports_may_count_from_1(lab: Lab) -> None:
    status = bytes(a_packet(pk.ENDPOINT_REQUEST, dst_qpn=2, psn=9, imm=0b1110))
    lab.capture(status[:12] + bytes.fromhex("8100 0064") + status[12:])
    assert "  VLAN 100  fd6d:" in lab.lines()[0]
    assert lab.lines()[0].endswith("ports 0xe")
    assert lab.lines("--ports-from-1")[0].endswith("ports 0x7")
    assert json.loads(lab.lines("--json")[0])["outside"] == ["VLAN 100"]


def test_a_packet_that_was_cut_by_the_capture_is_shown_if_its_headers_are_there(lab: Lab) -> None:
    headers = len(data(1)) - 64 - ICRC_BYTES
    lab.capture(data(1), data(2), snap_bytes=headers)
    assert [line.split("  ")[2] for line in lab.packets()] == ["PSN 1", "PSN 2"]
    lab.capture(data(1), ARP, data(2), snap_bytes=headers - 1)
    whole = len(data(1))
    shown = [line.split(LINK + "  ")[1] for line in lab.lines() if LINK in line]
    assert shown[1] == "not MRC: not IPv6 or IPv4"
    assert [text.split("  QP 0x11  ")[1] for text in shown[::2]] == [
        f"RDMA_WRITE_MIDDLE  PSN {psn}  EV 0x00010005  msn 3"
        "  [the frame ends within a header: RETH missing]"
        for psn in (1, 2)
    ]
    told = lab.objects()[0]
    assert (told["missing"], told["captured"]) == (["RETH"], headers - 1)
    lab.capture(data(1), snap_bytes=60)
    bad = f"BAD byte 54: the frame ends within a header (60 of {whole} bytes were captured)"
    assert lab.lines()[0].endswith(bad)


def test_a_wrong_icrc_is_not_missed_in_a_whole_packet_after_one_that_was_cut(lab: Lab) -> None:
    with lab.file.open("wb") as stream:
        writer = Writer(stream, [LINK])
        writer.write(0, 0, data(1)[:-20], original_length=len(data(1)))
        writer.write(0, 0, flipped(data(2)))
        writer.write(0, 0, data(3)[:-20], original_length=10**9)  # nobody sends that
    assert ["  [" in line for line in lab.lines() if LINK in line] == [False, True, True]


def test_packets_without_time_and_before_1970_have_a_line(lab: Lab) -> None:
    packet = data(1)
    size, padding = len(packet), bytes(-len(packet) % 4)
    length = 16 + size + len(padding)
    with lab.file.open("wb") as stream:
        writer = Writer(stream, [])
        two_seconds_early = b"\x09\0\1\0\x09\0\0\0" + pack("<HHq", 14, 8, -2)
        stream.write(pack("<IIHHI", 1, 40, 1, 0, 0) + two_seconds_early + pack("<I", 40))
        stream.write(pack("<III", 3, length, size) + packet + padding + pack("<I", length))
        writer.write(0, 500_000_000, packet)
    assert [line.split("  fd")[0] for line in lab.lines()[:2]] == [
        "     1            -",
        "     2  -1.500000000",
    ]


def test_ipv4_has_addresses_too(lab: Lab) -> None:
    e = envelope(plane=3, ipv4=True)
    lab.capture(a_packet(pk.WRITE_ONLY, e, psn=1, payload_len=64, dma_len=64))
    lines = lab.lines()
    assert "10.3.0.1 -> 10.3.0.2" in lines[0]
    assert [row for row in lines if row.startswith("│ 10.3.0.2")]


def over_planes(macs: bool) -> list[bytes]:
    """PSNs 1 to 4 to one QP number, over the addresses of four planes; with the plan's MACs?"""
    out = []
    for plane in range(4):
        e = envelope(plane, ipv4=True)
        if macs:
            addresses.write_nic_mac(e.src_mac, 0, 0, plane)
            addresses.write_switch_mac(e.dst_mac, 0, 9)
        out.append(a_packet(pk.WRITE_ONLY, e, psn=1 + plane, payload_len=64, dma_len=64))
    return out


def test_planes_are_one_host_where_that_is_known(lab: Lab) -> None:
    def rows(*words: str) -> list[list[str]]:
        return [cells(line)[:3] for line in lab.lines(*words) if line.startswith("│ 10")]

    apart = [[f"10.{plane}.0.2", "0x11", "1"] for plane in range(4)]
    lab.capture(*over_planes(macs=True))
    assert rows() == [["10.0.0.2", "0x11", "4"]]
    lab.capture(*over_planes(macs=False))
    assert rows() == apart
    assert rows("--host", "10.3.0.2,10.1.0.2", "--host", "10.0.0.2, 10.2.0.2") == [
        ["10.0.0.2", "0x11", "2"],
        ["10.3.0.2", "0x11", "2"],
    ]
    with pytest.raises(InputError, match="--host a,b: is no list of addresses, such as 10"):
        lab.decode("--host", "a,b")


def test_rows_that_may_be_planes_of_one_host_are_named_with_the_option(lab: Lab) -> None:
    lab.capture(*over_planes(macs=False), *over_planes(macs=False)[:2])
    assert "planes of one host" not in "".join(lab.lines())
    strangers = [
        a_packet(pk.WRITE_ONLY, envelope(plane, True), psn=psn, payload_len=64, dma_len=64)
        for plane, psn in ((1, 1), (2, 2), (1, 3), (2, 4))
    ]
    lab.capture(*strangers)
    remedy = (
        "QP 0x11 is at 10.1.0.2 and 10.2.0.2: if these are planes of one host,"
        " --host 10.1.0.2,10.2.0.2 makes them one row"
    )
    assert remedy in lab.lines()
    assert remedy not in lab.lines("--host", "10.1.0.2,10.2.0.2")


def test_what_the_capture_lost_itself_is_not_missing(lab: Lab) -> None:
    """Statistics of the file say that two frames were lost, of which each may hold one packet."""
    lab.capture(data(1), data(2), data(6))
    assert "Missing at fd6d:7263::2 QP 0x11: PSN 3-5" in lab.lines()
    with lab.file.open("ab") as file:
        file.write(statistics("<", 0, [(5, 2)]))
    lines = lab.lines()
    assert "Missing at fd6d:7263::2 QP 0x11: 1 of PSN 3-5" in lines
    assert lines[-1] == "2 frames more, which the program that captured lost: it was too slow"
    assert lab.objects()[-1]["summary"]["dropped"] == 2


# The summary


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("│").split("│")]


def test_the_tables_sum_up_each_qp_over_all_planes(lab: Lab) -> None:
    lab.capture(
        data(5, plane=0),
        data(6, plane=1, flag_bits=pk.CE),
        data(9, plane=2, flag_bits=pk.TRIMMED),
        data(8, plane=3, flag_bits=pk.RTX, klass=pk.CLASS_RETRANSMIT, ev=9),
        data(5, dst_qpn=18),
        a_packet(pk.SACK, cack_psn=6, m=pk.M_SKIP_ONCE),
        a_packet(pk.NACK, reason=pk.NACK_TRIMMED),
        a_packet(pk.NACK, reason=pk.NACK_TRIMMED),
        a_packet(pk.NACK, reason=pk.NACK_NO_BITMAP),
        a_packet(pk.PROBE),
    )
    lines = lab.lines()[10:]
    assert [cells(line) for line in lines if line.startswith("│")] == [
        ["fd6d:7263::2", "0x11", "4", "192", "1", "5", "9", "2", "1", "0", "1", "0", "1", "2"],
        ["fd6d:7263::2", "0x12", "1", "64", "1", "5", "5", "0", "0", "0", "0", "0", "0", "1"],
        [
            "fd6d:7263::2",
            "0x11",
            "1",
            "1",
            "6",
            "TRIMMED 2, NO_BITMAP 1",
            "0",
            "0",
            "1",
            "0",
            "0",
            "0",
        ],
    ]
    assert lines[-2:] == ["Missing at fd6d:7263::2 QP 0x11: PSN 7, 9", "10 packets"]


def test_a_long_list_of_missing_psns_ends_in_dots(lab: Lab) -> None:
    lab.capture(*(data(2 * n) for n in range(20)))
    assert lab.lines()[-2] == "Missing at fd6d:7263::2 QP 0x11: PSN 1, 3, 5, 7, 9, 11, 13, 15, ..."


def test_more_rows_than_people_read_are_counted(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoded, "ROWS_SHOWN", 2)
    lab.capture(*(data(1, dst_qpn=qpn) for qpn in (3, 4, 5)))
    lines = lab.lines()
    assert [cells(line)[1] for line in lines if line.startswith("│")] == ["0x3", "0x4"]
    assert "and 1 more; --qp N shows one, --json shows all" in lines
    assert len(lab.objects()[-1]["summary"]["qps"]) == 3


def test_an_empty_capture_has_no_packets(lab: Lab) -> None:
    lab.capture()
    assert lab.lines() == ["0 packets"]
    assert lab.objects()[-1]["summary"]["packets"] == 0


def test_standard_input_is_a_capture_too(lab: Lab) -> None:
    lab.capture(data(1), data(2))
    whole = lab.lines()
    kept = os.dup(0)
    try:
        with lab.file.open("rb") as stream:
            os.dup2(stream.fileno(), 0)
        lab.file = Path("-")
        assert lab.lines() == whole
        os.close(0)
        with pytest.raises(InputError, match=r"standard input: .*Bad file descriptor"):
            lab.decode()
    finally:
        os.dup2(kept, 0)
        os.close(kept)


def test_a_capture_that_gzip_compressed_is_read(lab: Lab) -> None:
    lab.capture(data(1), data(2))
    whole = lab.lines()
    zipped = gzip.compress(lab.file.read_bytes())
    lab.file.write_bytes(zipped)
    assert lab.lines() == whole
    lab.file.write_bytes(zipped[:-30])
    assert lab.decode() == 0
    assert "is cut off" in lab.output.readouterr().err
    lab.file.write_bytes(zipped[:40] + bytes(9) + zipped[49:])
    with pytest.raises(InputError, match=r"a\.pcapng: byte \d+: "):
        lab.decode()


# One QP


@pytest.mark.parametrize("word", ["18", "0x12", "0X12", "018"])
def test_one_qp_can_be_shown(word: str, lab: Lab) -> None:
    lab.capture(data(1), data(2, dst_qpn=18), ARP, flipped(data(3)), data(4, dst_qpn=18))
    lines = lab.lines("--qp", word)
    assert [line.split()[0] for line in lines if LINK in line] == ["2", "5"]
    assert [cells(line)[1] for line in lines if line.startswith("│")] == ["0x12"]
    assert lines[-1].startswith("5 packets, 1 damaged")
    shown = lab.objects("--qp", word)
    assert [o.get("number") for o in shown] == [2, 5, None]
    assert [row["dest_qpn"] for row in shown[-1]["summary"]["qps"]] == [18]


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_qp_that_never_occurs_is_said_to(more: list[str], lab: Lab) -> None:
    lab.capture(data(1), data(1, dst_qpn=18))
    assert lab.decode("--qp", "99", *more) == 0
    assert lab.output.readouterr().err == (
        "No packet for QP 0x63; there are packets for 0x11, 0x12\n"
    )
    lab.capture(*(data(1, dst_qpn=qpn) for qpn in range(20, 30)))
    lab.decode("--qp", "99", *more)
    assert lab.output.readouterr().err.endswith("0x1a, 0x1b, ...\n")
    lab.capture(ARP)
    lab.decode("--qp", "99", *more)
    assert lab.output.readouterr().err.endswith("there are no packets for any QP\n")


@pytest.mark.parametrize("word", ["-1", "0x1000000", "seventeen", "", "0x"])
def test_what_is_no_qp_number_is_refused_with_the_remedy(word: str, lab: Lab) -> None:
    with pytest.raises(InputError, match="is no QP number; 0 to 0xffffff, such as 17 or 0x11"):
        lab.decode(f"--qp={word}")


# JSON


def test_json_has_every_header_and_the_summary_at_the_end(lab: Lab) -> None:
    packet = data(7, pk.WRITE_LAST_IMM, imm=5)
    lab.capture(packet, ARP, flipped(packet))
    shown = lab.objects()
    assert len(shown) == 4
    expected = wire.decode(packet).as_dict()
    assert shown[0] == expected | {
        "number": 1,
        "time_ns": 0,
        "interface": LINK,
        "captured": len(packet),
    }
    assert [*shown[0]["headers"]] == (
        ["Ethernet", "outer IPv6", "IPv6", "UDP", "BTH", "METH", "TSETH", "RETH", "ImmDt", "iCRC"]
    )
    assert shown[0]["headers"]["BTH"]["psn"] == 7
    assert shown[1] == {
        "number": 2,
        "time_ns": 1500,
        "interface": LINK,
        "captured": 60,
        "length": 60,
        "error": {"offset": 12, "reason": "not IPv6 or IPv4", "mrc": False},
    }
    assert shown[2]["error"] == {
        "offset": len(packet) - ICRC_BYTES,
        "reason": "wrong iCRC",
        "mrc": True,
    }
    assert shown[2]["headers"]["BTH"]["psn"] == 7  # the rest may be right: judge for yourself
    assert shown[2]["icrc_ok"] is False
    summary = shown[3]["summary"]
    assert summary.pop("qps")[0]["data"]["packets"] == 1
    assert summary == {
        "packets": 3,
        "damaged": {"wrong iCRC": 1},
        "not_mrc": {"not IPv6 or IPv4": 1},
        "cut": 0,
        "cut_copies": 0,
        "joined_frames": 0,
        "hidden_packets": 0,
        "unlisted": 0,
        "hosts": [],
        "cut_at": None,
        "dropped": 0,
    }


def test_halves_of_an_ev_in_the_other_order(lab: Lab) -> None:
    lab.capture(data(1))
    assert "EV 0x00010005" in lab.lines()[0]
    assert "EV 0x00050001" in lab.lines("--ev-swapped")[0]
    assert lab.objects()[0]["ev"] == 0x0001_0005
    assert lab.objects("--ev-swapped")[0]["ev"] == 0x0005_0001


def test_the_first_decoding_says_that_it_compiles(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warmup, "is_cached", lambda world: False)
    lab.capture(data(1))
    assert lab.decode() == 0
    assert lab.output.readouterr().err == (
        "Compiling the decoder, once for this version: some seconds.\n"
    )


def test_json_says_how_much_of_a_packet_was_captured(lab: Lab) -> None:
    lab.capture(data(1), snap_bytes=150)
    shown = lab.objects()[0]
    assert (shown["captured"], shown["length"]) == (150, len(data(1)))
    assert shown["headers"]["BTH"]["psn"] == 1


def test_a_host_whose_kernel_numbers_its_packets_is_not_damaged(lab: Lab) -> None:
    """In an ordinary network the sender does not know IPv4's identification."""
    packet = bytearray(a_packet(pk.WRITE_ONLY, envelope(0, True), psn=1, payload_len=8, dma_len=8))
    packet[18:20], packet[24:26] = b"\x03\x84", bytes(2)
    packet[24:26] = (-int.from_bytes(packet[14:34], "big") % 0xFFFF).to_bytes(2, "big")
    lab.capture(bytes(packet))
    assert lab.decode("--strict") == 0
    lab.output.readouterr()
    shown = lab.objects()[0]
    assert shown["headers"]["IPv4"]["identification"] == 900
    assert (shown["icrc_ok"], shown["notes"]) == (True, ["its iCRC counts the identification as 0"])


def test_a_frame_of_a_host_is_counted_by_its_packets(lab: Lab) -> None:
    """The number of a line is that of the frame, as in Wireshark; the part is said behind it."""
    wire = [data(psn) for psn in (5, 6, 7)]
    lab.capture(join(wire), data(8))
    lines = lab.lines()
    assert [line.split()[0] for line in lines if LINK in line] == ["1", "1", "1", "2"]
    assert ["  3 of 3  " in line for line in lines if LINK in line] == [False, False, True, False]
    assert lines[-1] == "4 packets, 1 frame held several of them"
    shown = lab.objects("--strict")
    assert [o["headers"]["BTH"]["psn"] for o in shown[:-1]] == [5, 6, 7, 8]
    assert shown[2]["outside"] == ["3 of 3"]
    assert shown[2]["length"] == len(wire[2])
    summary = shown[-1]["summary"]
    assert (summary["packets"], summary["joined_frames"], summary["damaged"]) == (4, 1, {})
    assert summary["qps"][0]["data"]["psns_missing"] == 0


def test_what_was_cut_off_a_hosts_frame_is_counted_as_such(lab: Lab) -> None:
    frames = [join([data(psn + i, payload_len=4096) for i in range(3)]) for psn in (5, 8)]
    lab.capture(*frames, data(11, payload_len=4096), snap_bytes=150)
    lines = lab.lines("--strict")
    assert "[several packets in one frame, which cannot be told apart]" in lines[0]
    assert "At fd6d:7263::2 QP 0x11 4 PSNs are not called missing" in "".join(lines)
    row = lab.objects()[-1]["summary"]["qps"][0]["data"]
    assert (row["packets"], row["psns_missing"], row["psns_hidden"]) == (3, 0, 4)


def test_psns_that_frames_cut_too_early_may_have_are_not_missing(lab: Lab) -> None:
    """Frames end before the BTH, where a longer header stands before it."""
    shown, cut = data(5, payload_len=0), around_it(data(6), 2)
    last = [data(psn, payload_len=0) for psn in (8, 12)]
    lab.capture(shown, cut, last[0], snap_bytes=128)
    row = lab.objects("--strict")[-1]["summary"]["qps"][0]["data"]
    assert (row["psns_missing"], row["psns_hidden"], row["missing"]) == (1, 1, [[6, 7]])
    assert "Missing at fd6d:7263::2 QP 0x11: 1 of PSN 6-7" in lab.lines()
    lab.capture(shown, cut, cut, last[0], snap_bytes=128)
    lines = lab.lines()
    assert not [line for line in lines if line.startswith("Missing")]
    assert lines[-1] == "4 packets, 2 cut before they say what they are"
    lab.capture(shown, last[0], snap_bytes=128)
    assert "Missing at fd6d:7263::2 QP 0x11: PSN 6-7" in lab.lines()


# Files that end early, and files that are none


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_an_interrupted_capture_is_shown_and_said_to_be_one(more: list[str], lab: Lab) -> None:
    lab.capture(data(1), data(2))
    whole = lab.file.read_bytes()
    lab.file.write_bytes(whole[:-5])
    last = len(whole) - 32 - (len(data(2)) + 3 & ~3)
    assert lab.decode(*more) == 0
    out, err = lab.output.readouterr()
    assert err == (f"{lab.file}: is cut off: what begins at byte {last} is left out\n")
    if more:
        assert json.loads(out.splitlines()[-1])["summary"]["cut_at"] == last
    else:
        assert out.splitlines()[-1] == "1 packet"


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_what_comes_before_a_broken_block_is_summed_up_and_the_file_refused(
    more: list[str], lab: Lab
) -> None:
    lab.capture(data(1), data(2))
    good = lab.file.read_bytes()
    lab.file.write_bytes(good + bytes(12) + good)
    with pytest.raises(InputError, match=f"byte {len(good)}: a block of 0 bytes"):
        lab.decode(*more)
    out = lab.output.readouterr().out.splitlines()
    assert (json.loads(out[-1])["summary"]["packets"] == 2) if more else (out[-1] == "2 packets")


def test_what_is_no_capture_is_refused_before_anything_is_printed(lab: Lab) -> None:
    lab.capture(data(1))
    not_ethernet = flipped(lab.file.read_bytes(), at=28 + 16 + 8)
    assert not_ethernet[52] == 0x81
    for bytes_of_file, words in (
        (b"", "is empty"),
        (b"{} is JSON", "is not a capture"),
        (not_ethernet, "has link type 129; only Ethernet, Linux cooked and raw IP are read"),
    ):
        lab.file.write_bytes(bytes_of_file)
        with pytest.raises(InputError, match=words):
            lab.decode()
    lab.file.unlink()
    with pytest.raises(InputError, match=r"\(No such file or directory\); name a capture file"):
        lab.decode()
    assert lab.output.readouterr().out == ""


def test_row_37_the_dscps_of_a_fabric_are_told(lab: Lab) -> None:
    own = {v["name"]: bytes.fromhex(v["frame"]) for v in json.loads(CLASSES.read_text())}
    table = (
        "no_trim=10, trimmable=18, trimmable_retx=26, trimmed=11, trimmed_lasthop=21, control=48"
    )
    lab.capture(own["classes-no-trim"], own["classes-trimmed"], own["classes-trimmed-lasthop"])
    first, second, third = lab.packets("--dscp", table)
    assert "  NO_TRIM  " in first
    assert ("  TRIMMED  " in second, "  TRIMMED_LASTHOP  " in third) == (True, True)
    objects = lab.objects("--dscp", table)[:3]
    names = [each["headers"]["outer IPv6"]["dscp_name"] for each in objects]
    assert names == ["NO_TRIM", "TRIMMED", "TRIMMED_LASTHOP"]
    assert "TRIMMED" not in "".join(lab.packets())
    with pytest.raises(InputError, match="--dscp: 'trimmed=64': a DSCP is 0 to 63"):
        lab.decode("--dscp", "trimmed=64")


# Hostile bytes


@REPEATABLE
@given(
    which=st.integers(0, len(EVERY_OPCODE) - 1),
    changes=st.lists(st.tuples(st.integers(0, 250), st.integers(0, 255)), max_size=3),
    end=st.integers(0, 300),
    more=st.integers(0, 100),
)
@example(which=5, changes=[(90, 0x55)], end=300, more=0)  # whole: only its iCRC is wrong
@example(which=0, changes=[], end=138, more=0)  # shorter than its IP header says
def test_lines_and_objects_give_the_same_verdict(
    lab: Lab, which: int, changes: list[tuple[int, int]], end: int, more: int
) -> None:
    packet = bytearray([*EVERY_OPCODE.values()][which])
    for at, value in changes:
        packet[at % len(packet)] = value
    packet = packet[:end]
    with lab.file.open("wb") as stream:
        writer = Writer(stream, [LINK])
        writer.write(0, 0, bytes(packet), original_length=len(packet) + more)
        writer.write(0, 0, data(1))
    (line, after), objects = lab.lines()[:2], lab.objects()
    assert "PSN 1" in after
    assert len(objects) == 3
    error = objects[0].get("error")
    if error is None:
        assert f"QP {objects[0]['headers']['BTH']['dest_qpn']:#x}" in line
    elif "BTH" in objects[0].get("headers", {}):  # the line has them, too
        missing = ", ".join(objects[0].get("missing", []))
        why = f"{error['reason']}: {missing} missing" if missing else error["reason"]
        assert line.endswith(f"  [{why}]")
        assert f"QP {objects[0]['headers']['BTH']['dest_qpn']:#x}" in line
    elif objects[0].get("missing") == ["BTH"]:
        assert line.endswith(f"  [{error['reason']}: BTH missing]")
    elif error["mrc"] or error.get("protocol") == "RoCEv2" or error.get("cut"):
        assert f"BAD byte {error['offset']}: {error['reason']}" in line
    else:
        assert f"not MRC: {error['reason']}" in line


# The command


def test_nothing_heavy_is_imported_before_a_capture_is_read() -> None:
    code = (
        "import openmrc.cli.decode, sys;"
        "print({'numpy', 'numba', 'rich', 'openmrc.wire'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "set()\n"


def test_who_waits_at_a_terminal_sees_a_bar_and_the_file_does_not(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.capture(data(1), data(2))
    plain = lab.lines()
    monkeypatch.setattr(decode, "PROGRESS_PACKETS", 1)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert lab.decode() == 0
    out, err = lab.output.readouterr()
    assert out.splitlines() == plain
    assert f"/{lab.file.stat().st_size} bytes" in err
