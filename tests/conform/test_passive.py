"""Rules of captures: a good one passes, and each wrong packet fails the rule that says so."""

from __future__ import annotations

import json
import re
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from openmrc.cli.command import main
from openmrc.conform import capture, datagram, passive, script
from openmrc.conform.outcome import Outcome
from openmrc.conform.run import FAIL, NOT_APPLICABLE, PASS
from openmrc.conform.script import read
from openmrc.errors import InputError
from openmrc.fabric.dscp import DEFAULT, Dscps
from openmrc.wire import layout
from openmrc.wire.pcap import Writer

REQUESTER, RESPONDER = ("10.0.0.1", 0xA0200), ("10.0.0.2", 0xB0100)
FIRST, LAST, ONLY = 0xC6, 0xC8, 0xCA
DATA = {"rkey": 9, "ev": 50_001, "rtx": 0, "a": 0, "dscp": layout.DSCP_TRIMMABLE, "ecn": 2}
ANSWER = {"dscp": layout.DSCP_CONTROL, "spdcid": 0x0100, "dpdcid": 0x0200, "ev": 50_000}
Fields = dict[str, int]


def data(psn: int, opcode: int, msn: int, va: int, stamp: int, **more: int) -> tuple[str, Fields]:
    whole = 2048 if opcode != ONLY else 100
    length = 1024 if opcode != ONLY else 100
    own = {"opcode": opcode, "psn": psn, "msn": msn, "va": va, "tx_timestamp": stamp}
    return "data", {**DATA, **own, "length": length, "dma_length": whole, **more}


def sack(cack: int, entropy: int, stamp: int, rcvd: int, **more: int) -> tuple[str, Fields]:
    own = {"psn": cack, "cack_psn": cack, "sack_offset": 1, "entropy": entropy}
    return "sack", {**ANSWER, **own, "tx_timestamp": stamp, "rcvd_bytes": rcvd, **more}


RETX = {"rtx": 1, "a": 1, "dscp": layout.DSCP_TRIMMABLE_RETX}
GOOD: list[tuple[str, Fields]] = [
    data(5, FIRST, 0, 0x1000, 10),
    data(6, LAST, 0, 0x1400, 11, a=1, ev=50_002),
    sack(6, 50_002, 11, 9),
    ("ack", {**ANSWER, "psn": 6, "syndrome": 0x1F, "msn": 0}),
    data(7, ONLY, 1, 0x2000, 12, a=1, ev=50_003),
    ("probe", {**DATA, "probe_id": 3, "tx_timestamp": 13, "ev": 50_004, "dscp": 0}),
    sack(6, 50_004, 13, 9, pr=1, ack_psn_offset=3),
    data(7, ONLY, 1, 0x2000, 20, ev=50_002, **{**RETX, "ecn": 3}),
    sack(7, 50_002, 20, 10, m=1),
    data(8, ONLY, 2, 0x2000, 21, a=1),
    ("nack", {**ANSWER, "psn": 8, "nack_psn": 8, "nack_reason": 0x0B, "entropy": 50_001}
     | {"tx_timestamp": 21}),
    ("request", {**ANSWER, "id": 77, "op": 0, "port_status_mask": 3}),
    ("response", {**ANSWER, "id": 77, "op": 0}),
    ("request", {**ANSWER, "id": 78, "op": 1}),
]  # fmt: skip
FROM_RESPONDER = ("sack", "ack", "nack", "response")
# What the packet with this number says instead, and which rule says that it must not.
WRONG = [
    ("capture-a-write-of-one-packet", 5, {"dma_length": 99}),
    ("capture-a-part-is-shorter-than-its-message", 1, {"dma_length": 1024}),
    ("capture-addresses-follow-each-other", 2, {"va": 0x1800}),
    ("capture-one-message-one-key-one-length", 2, {"rkey": 10}),
    ("capture-msn-counts-messages", 5, {"msn": 2}),
    ("capture-a-second-copy-is-marked", 8, {"rtx": 0, "dscp": 4}),
    ("capture-a-retransmission-says-the-same", 8, {"va": 0x3000}),
    ("capture-a-retransmission-asks", 8, {"a": 0}),
    ("capture-the-last-packet-asks", 2, {"a": 0}),
    ("capture-rqmsn-of-plain-writes", 5, {"rqmsn": 1}),
    ("capture-data-is-ecn-capable", 5, {"ecn": 0}),
    ("capture-classes-of-data", 5, {"dscp": layout.DSCP_TRIMMABLE_RETX}),
    ("capture-probes-are-not-trimmed", 6, {"dscp": layout.DSCP_TRIMMABLE}),
    ("capture-psn-of-a-probe", 6, {"psn": 8}),
    ("capture-an-ev-probe-has-no-ports", 14, {"port_status_mask": 1}),
    ("capture-a-port-status-leaves-by-a-port", 12, {"port_status_mask": 0}),
    ("capture-every-packet-has-its-icrc", 1, {"damaged": 1}),
    ("capture-psn-of-a-sack", 3, {"psn": 0}),
    ("capture-psn-of-a-nack", 11, {"psn": 0}),
    ("capture-a-sack-reflects-its-trigger", 3, {"entropy": 50_001}),
    ("capture-the-answer-to-a-probe-reflects-it", 7, {"tx_timestamp": 14}),
    ("capture-a-mark-is-told", 9, {"m": 0}),
    ("capture-snapshots-go-forward", 9, {"cack_psn": 5, "psn": 5, "ack_psn_offset": 2}),
    ("capture-the-same-bytes-the-same-row", 9, {"rcvd_bytes": 8}),
    ("capture-a-nack-reflects-what-it-refuses", 11, {"entropy": 50_003}),
    ("capture-cc-type-of-a-nack", 11, {"cc_type": 1}),
    ("capture-an-ack-ends-a-message", 4, {"psn": 5}),
    ("capture-a-response-repeats-the-request", 13, {"op": 1}),
    ("capture-control-is-in-the-control-class", 3, {"dscp": 0}),
    ("capture-numbers-of-queue-pairs", 3, {"dpdcid": 1}),
    ("capture-answers-have-their-icrc", 3, {"damaged": 1}),
]


def frame(kind: str, fields: Fields) -> bytes:
    """An Ethernet frame of IPv4, as it leaves one of both."""
    ends = [RESPONDER, REQUESTER] if kind in FROM_RESPONDER else [REQUESTER, RESPONDER]
    (own, _), (there, qpn) = ends
    src, dst = ip_address(own), ip_address(there)
    qpn = 2 if kind in ("request", "response") else qpn
    body = datagram.build(kind, fields, qpn, bytes(fields.get("length", 0)))
    crc = datagram.icrc(src, fields["ev"], dst, body)
    body += bytes(4) if fields.get("damaged") else crc
    ports = {"src_port": fields["ev"], "dst_port": 4791, "length": 8 + len(body)}
    whole = {"version": 4, "ihl": 5, "ip_flags": 2, "ttl": 64, "protocol": 17}
    whole |= {"total_length": 28 + len(body), "src": int(src), "dst": int(dst)}
    whole |= {"dscp": fields["dscp"], "ecn": fields.get("ecn", 0)}
    total = sum(
        int.from_bytes(datagram.pack(layout.IPV4, whole)[i : i + 2]) for i in range(0, 20, 2)
    )
    whole["header_checksum"] = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    ethernet = datagram.pack(layout.ETHERNET, {"ethertype": 0x0800})
    return ethernet + datagram.pack(layout.IPV4, whole) + datagram.pack(layout.UDP, ports) + body


def written(path: Path, packets: list[tuple[str, Fields]]) -> Path:
    with path.open("wb") as stream:
        writer = Writer(stream, ["a"])
        for number, (kind, fields) in enumerate(packets):
            writer.write(0, 1000 * number, frame(kind, fields))
    return path


def held(path: Path) -> dict[str, Outcome]:
    rules = script.rules(kind=script.OF_CAPTURES)
    return {one.rule: one for one in passive.hold(rules, capture.load(path))}


def test_row_37_rules_of_classes_follow_the_table_of_the_fabric(tmp_path: Path) -> None:
    """Every packet in the class that it had, by other DSCPs."""
    own = Dscps(
        no_trim=10, trimmable=18, trimmable_retx=26, trimmed=11, trimmed_lasthop=21, control=48
    )
    to = dict(zip(DEFAULT, own, strict=True))
    moved = [(kind, {**fields, "dscp": to[fields["dscp"]]}) for kind, fields in GOOD]
    path = written(tmp_path / "a.pcapng", moved)
    rules = script.rules(kind=script.OF_CAPTURES)
    for table, failing in ((own, 0), (DEFAULT, 2)):
        found = passive.hold(rules, capture.load(path, dscps=table))
        assert sum(one.outcome == FAIL for one in found) == failing


def test_a_good_capture_passes_and_nearly_every_rule_is_held(tmp_path: Path) -> None:
    found = held(written(tmp_path / "a.pcapng", GOOD))
    assert [one.rule for one in found.values() if one.outcome == FAIL] == []
    other = [one.rule for one in found.values() if one.outcome == NOT_APPLICABLE]
    assert other == [
        "capture-full-packets-but-the-last",
        "capture-both-flow-labels-agree",
        "capture-answers-have-one-flow-label",
    ]


@pytest.mark.parametrize(("rule", "number", "change"), WRONG, ids=lambda value: str(value)[:44])
def test_a_wrong_packet_fails_the_rule_that_says_so(
    rule: str, number: int, change: Fields, tmp_path: Path
) -> None:
    packets = list(GOOD)
    kind, fields = packets[number - 1]
    packets[number - 1] = kind, {**fields, **change}
    found = held(written(tmp_path / "a.pcapng", packets))[rule]
    assert found.outcome == FAIL
    assert re.match(r"packet \d+ ", found.came)
    assert " after " in found.why or " answers " in found.why or not found.sent


def test_a_packet_that_two_interfaces_saw_is_one(tmp_path: Path) -> None:
    path = written(tmp_path / "a.pcapng", [one for one in GOOD for _ in range(2)])
    assert len(capture.load(path).packets) == len(GOOD)
    assert FAIL not in {one.outcome for one in held(path).values()}


def test_peers_are_known_by_what_they_reflect_and_else_by_spdcid(tmp_path: Path) -> None:
    requester, responder = REQUESTER[1], RESPONDER[1]
    assert capture.load(written(tmp_path / "a", GOOD)).peers == {requester: responder}
    strange = [(kind, {**fields, "entropy": 1}) for kind, fields in GOOD]
    assert capture.load(written(tmp_path / "b", strange)).peers == {requester: responder}


def test_a_damaged_packet_is_believed_in_nothing(tmp_path: Path) -> None:
    packets = [(kind, dict(fields)) for kind, fields in GOOD]
    packets[4][1].update(dma_length=99, damaged=1)
    found = held(written(tmp_path / "a", packets))
    failed = [one.rule for one in found.values() if one.outcome == FAIL]
    assert failed == ["capture-every-packet-has-its-icrc"]


def test_an_empty_capture_says_nothing(tmp_path: Path) -> None:
    assert {one.outcome for one in held(written(tmp_path / "a", [])).values()} == {NOT_APPLICABLE}


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "a.pcapng", GOOD)
    assert main(["conformance", "--capture", str(path), "--role", "responder"]) == 0
    assert "capture-2-responder" in capsys.readouterr().out
    bad = [(kind, {**fields, "psn": 0}) for kind, fields in GOOD[:3]]
    written(path, bad)
    rule = ["--rule", "capture-psn-of-a-sack"]
    assert main(["conformance", "--capture", str(path), *rule, "--json"]) == 1
    [told] = json.loads(capsys.readouterr().out)["rules"]
    assert (told["line"], told["came"][:9]) == (7, "packet 3 ")
    assert main(["conformance", "--capture", str(tmp_path / "none")]) == 2
    capsys.readouterr()
    assert main(["conformance", "--capture", str(written(tmp_path / "empty", []))]) == 2
    assert "empty: has no packet of MRC; mrc decode shows why" in capsys.readouterr().err
    assert main(["conformance", "--capture", str(path), "--interface", "lo"]) == 2


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("each sack psn=cack_psn", "each KIND CONDITIONS"),
        ("each sack: psn", "'psn' is no condition"),
        ("each sack: psn=a*b", "'a*b' is no sum"),
    ],
)
def test_a_statement_that_says_nothing_is_refused(statement: str, says: str) -> None:
    [rule] = read("capture-x", f"role responder\nrule r\nSays.\nsource: MRC 2.6\n{statement}")
    with pytest.raises(InputError, match=re.escape(says)):
        passive.hold([rule], capture.Capture([], {}))


def outcome_of(statement: str, packets: list[tuple[str, Any]], tmp_path: Path) -> str:
    [rule] = read("capture-x", f"role responder\nrule r\nSays.\nsource: MRC 2.6\n{statement}")
    return passive.hold([rule], capture.load(written(tmp_path / "a", packets)))[0].outcome


@pytest.mark.parametrize(
    ("statement", "outcome"),
    [
        ("each data psn=5: msn=0 va=4096", PASS),
        ("each data psn=5: msn=0 va!=4096", FAIL),
        ("each data psn=99: msn=0", NOT_APPLICABLE),
        ("each data psn=6 after data psn=$.psn-1: va+length=$.va", PASS),
        ("each data psn=5 after data psn=$.psn-1: va=0", NOT_APPLICABLE),
        ("each data psn=6 after data psn<$.psn: $.psn-psn=1", PASS),
        ("each data psn=7 rtx=1 after data psn=$.psn: tx_timestamp=12", PASS),
        ("each sack answers data psn<=$.cack_psn: psn=5", PASS),
        ("each sack answers data psn<=$.cack_psn: psn=9", FAIL),
    ],
)
def test_what_a_statement_means(statement: str, outcome: str, tmp_path: Path) -> None:
    assert outcome_of(statement, GOOD, tmp_path) == outcome
