"""What a capture says about a QP: stories of a few packets that end in exact figures."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import settings

from openmrc.engine import packet as pk
from openmrc.jit import records
from openmrc.wire import seen, summary
from openmrc.wire.summary import QpSummary, Summary

REPEATABLE = settings(derandomize=True, database=None, deadline=None)
LAST_PSN = pk.PSN_MASK


def record(opcode: int, **fields: int) -> Any:
    p = records(1, pk.PACKET)[0]
    p.opcode = opcode
    for name, value in fields.items():
        setattr(p, name, value)
    return p


def data(psn: int, flag_bits: int = 0, **fields: int) -> Any:
    return record(pk.WRITE_MIDDLE, psn=psn, flag_bits=flag_bits, **fields)


def row_of(*packets: Any) -> QpSummary:
    row = QpSummary("fd00::2", 17)
    for p in packets:
        row.add(p)
    return row


def of_psns(*psns: int) -> QpSummary:
    return row_of(*(data(psn) for psn in psns))


# PSNs


def test_what_is_missing_lies_between_the_first_and_the_last_psn() -> None:
    row = of_psns(10, 11, 14, 13, 20)
    assert (row.psn_first, row.psn_last) == (10, 20)
    assert list(row.missing()) == [(12, 12), (15, 19)]
    assert row.psns_missing == 6


def test_psns_in_a_part_that_was_not_captured_are_not_missing() -> None:
    row = of_psns(10)
    row.hide(3)
    for psn in (16, 17, 20):
        row.add(data(psn))
    assert list(row.missing()) == [(14, 15), (18, 19)]
    assert (row.psns_missing, row.psns_hidden) == (4, 3)
    row.add(data(11))  # it came in another frame
    assert (row.psns_missing, row.psns_hidden) == (6, 0)


def test_frames_of_a_size_that_the_next_psn_follows_hold_one_packet() -> None:
    """A PMTU that is no power of two looks as several packets do: losses stay losses."""
    row = row_of()
    for psn in (10, 11, 20, 30):
        row.add(data(psn))
        row.hide(5, size=3000)
    assert (row.psns_missing, row.psns_hidden) == (17, 0)
    joined = row_of()
    for psn in (10, 13, 20):
        joined.add(data(psn))
        joined.hide(5, size=8240)
    assert (joined.psns_missing, joined.psns_hidden) == (1, 7)


def test_an_early_psn_that_comes_late_is_the_first_one() -> None:
    row = of_psns(10, 8)
    assert (row.psn_first, row.psn_last, list(row.missing())) == (8, 10, [(9, 9)])


def test_psns_go_round_their_24_bits() -> None:
    row = of_psns(LAST_PSN - 2, LAST_PSN, 2, 0)
    assert (row.psn_first, row.psn_last) == (LAST_PSN - 2, 2)
    assert list(row.missing()) == [(LAST_PSN - 1, LAST_PSN - 1), (1, 1)]
    assert row.psns_missing == 2


def test_a_range_that_is_missing_may_itself_go_round() -> None:
    assert list(of_psns(LAST_PSN - 1, 1).missing()) == [(LAST_PSN, 0)]


def test_psns_go_round_backwards_too() -> None:
    row = of_psns(1, LAST_PSN)
    assert (row.psn_first, row.psn_last, list(row.missing())) == (LAST_PSN, 1, [(0, 0)])


def test_a_row_without_data_has_no_psns() -> None:
    row = row_of(record(pk.PROBE, psn=5))
    assert (row.psn_first, row.psn_last, row.psns_missing) == (None, None, 0)
    assert list(row.missing()) == []


def test_a_trimmed_packet_is_missing_until_it_is_sent_again() -> None:
    row = row_of(data(1), data(2, pk.TRIMMED), data(3, pk.TRIMMED | pk.TRIMMED_LASTHOP), data(4))
    assert list(row.missing()) == [(2, 3)]
    assert (row.trimmed, row.trimmed_lasthop, row.duplicates) == (1, 1, 0)
    row.add(data(2, pk.RTX))
    assert list(row.missing()) == [(3, 3)]
    assert (row.packets, row.retransmitted, row.duplicates) == (5, 1, 0)


def test_a_trimmed_packet_may_be_the_first_and_the_last() -> None:
    row = row_of(data(7, pk.TRIMMED))
    assert (row.psn_first, row.psn_last, list(row.missing())) == (7, 7, [(7, 7)])


def test_a_psn_seen_twice_is_a_duplicate_and_a_flagged_one_a_retransmission() -> None:
    row = row_of(data(1), data(1, pk.RTX), data(1, pk.RTX), data(2))
    assert (row.packets, row.duplicates, row.retransmitted, row.psns_missing) == (4, 2, 2, 0)


def test_one_hostile_psn_costs_a_range_and_no_memory() -> None:
    row = of_psns(0, 0x7F_FFFF)
    assert row.psns_missing == 0x7F_FFFE
    assert list(row.missing()) == [(1, 0x7F_FFFE)]


def test_beyond_the_limit_of_runs_the_lowest_hole_is_counted_and_not_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(seen, "RUNS_MAX", 3)
    row = of_psns(0, 2, 4, 6, 8)
    assert list(row.missing()) == [(5, 5), (7, 7)]
    assert row.psns_missing == 4
    assert len(row._psns._bounds) == 6


# Everything else


def test_what_data_packets_add_up_to() -> None:
    row = row_of(
        data(1, msn=0xFFFF, payload_len=4096, ev=0x8000_0001),
        data(2, pk.CE, msn=0xFFFF, payload_len=4096, ev=7),
        data(3, pk.CE | pk.RTX, msn=0, payload_len=100, ev=7),
        data(4, pk.TRIMMED, msn=2, ev=9),
    )
    assert row.as_dict() == {
        "destination": "fd00::2",
        "dest_qpn": 17,
        "data": {
            "packets": 4,
            "payload_bytes": 8292,
            "messages": 3,
            "psn_first": 1,
            "psn_last": 4,
            "psns_missing": 1,
            "psns_hidden": 0,
            "missing": [[4, 4]],
            "retransmitted": 1,
            "duplicates": 0,
            "trimmed": 1,
            "trimmed_lasthop": 0,
            "ecn_marked": 2,
            "evs_seen": 3,
            "evs": [7, 9, 0x8000_0001],
        },
        "control": {
            "sack": 0,
            "skip_once": 0,
            "always_skip": 0,
            "cack_psn": None,
            "nack": {},
            "ack": 0,
            "nak": {},
            "probe": 0,
            "endpoint_request": 0,
            "endpoint_response": 0,
            "unstamped": 0,
        },
    }


def test_what_answers_add_up_to() -> None:
    row = row_of(
        record(pk.SACK, cack_psn=LAST_PSN, m=pk.M_SKIP_ONCE),
        record(pk.SACK, cack_psn=3, m=pk.M_ALWAYS_SKIP),
        record(pk.SACK, cack_psn=1),
        record(pk.NACK, reason=pk.NACK_TRIMMED),
        record(pk.NACK, reason=pk.NACK_TRIMMED),
        record(pk.NACK, reason=0x33),
        record(pk.ACKNOWLEDGE, reason=pk.AETH_ACK),
        record(pk.ACKNOWLEDGE, reason=pk.AETH_NAK_ACCESS_ERROR),
        record(pk.PROBE),
        record(pk.ENDPOINT_REQUEST),
        record(pk.ENDPOINT_REQUEST),
        record(pk.ENDPOINT_RESPONSE),
    )
    assert row.as_dict()["control"] == {
        "sack": 3,
        "skip_once": 1,
        "always_skip": 1,
        "cack_psn": 3,
        "nack": {"TRIMMED": 2, "0x33": 1},
        "ack": 1,
        "nak": {"NAK_ACCESS_ERROR": 1},
        "probe": 1,
        "endpoint_request": 2,
        "endpoint_response": 1,
        "unstamped": 0,
    }
    assert (row.packets, row.control) == (0, 12)


def test_lists_end_and_counts_do_not() -> None:
    row = row_of(*(data(2 * n, ev=1000 - n) for n in range(100)))
    out = row.as_dict()["data"]
    assert (out["psns_missing"], out["evs_seen"]) == (99, 100)
    assert out["missing"] == [[2 * n + 1] * 2 for n in range(summary.LISTED_MAX)]
    assert out["evs"] == list(range(901, 901 + summary.LISTED_MAX))


def test_evs_are_kept_up_to_their_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summary, "EVS_MAX", 3)
    assert row_of(*(data(n, ev=n) for n in range(9))).evs_seen == 3


def test_a_row_is_a_destination_and_a_qpn() -> None:
    whole = Summary()
    for destination, qpn in (("b", 2), ("a", 3), ("a", 1), ("a", 3)):
        whole.add(data(0, dst_qpn=qpn), destination)
    rows = whole.rows()
    assert [(r.destination, r.qpn, r.packets) for r in rows] == [
        ("a", 1, 1),
        ("a", 3, 2),
        ("b", 2, 1),
    ]
    assert [r.qpn for r in whole.rows(3)] == [3]
    assert whole.rows(9) == []
    assert [r["dest_qpn"] for r in whole.as_dict(2)["qps"]] == [2]


def test_packets_without_a_row_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summary, "QPS_MAX", 2)
    whole = Summary()
    for qpn in (1, 2, 3, 1, 4):
        whole.add(data(0, dst_qpn=qpn), "a")
    whole.add_damaged("wrong iCRC")
    whole.add_damaged("wrong iCRC")
    whole.add_foreign("not IPv6 or IPv4")
    out = whole.as_dict()
    assert [row["data"]["packets"] for row in out.pop("qps")] == [2, 1]
    assert out == {
        "packets": 8,
        "damaged": {"wrong iCRC": 2},
        "not_mrc": {"not IPv6 or IPv4": 1},
        "cut": 0,
        "cut_copies": 0,
        "joined_frames": 0,
        "hidden_packets": 0,
        "unlisted": 2,
        "hosts": [],
    }


def test_a_sprayed_stream_in_any_order_within_its_window_is_whole() -> None:
    """10,000 PSNs around the wrap, each up to 200 places from its turn."""
    draw = random.Random(1)
    order = sorted(range(10_000), key=lambda n: n + draw.randrange(200))
    start = LAST_PSN - 5_000
    row = of_psns(*((start + n) & pk.PSN_MASK for n in order))
    assert (row.psns_missing, row.duplicates) == (0, 0)
    assert (row.psn_first, row.psn_last) == (start, (start + 9_999) & pk.PSN_MASK)
    assert len(row._psns._bounds) == 2
