"""Planes of one host are found by how PSNs are dealt; hosts that only number alike stay apart."""

from __future__ import annotations

import random

import pytest

from openmrc.engine import packet as pk
from openmrc.wire.hosts import Hosts
from openmrc.wire.summary import LISTED_MAX, QpSummary, Summary
from tests.wire.test_summary import data, record

QPN = 0x11


def addresses(host: int, planes: int) -> list[str]:
    return [f"10.9.{plane}.{host}" for plane in range(planes)]


def dealt(n: int, planes: int, seed: int, first_psn: int = 0) -> Summary:
    """A whole capture of a queue pair whose sender sprays: every 50th packet goes twice."""
    draw, seen = random.Random(seed), Summary()
    here, there = addresses(1, planes), addresses(2, planes)
    for i in range(n):
        plane, psn = draw.randrange(planes), first_psn + i & pk.PSN_MASK
        seen.add(data(psn, msn=i // 8, dst_qpn=QPN, payload_len=9), there[plane], here[plane])
        if i % 50 == 0:
            plane = draw.randrange(planes)
            seen.add(data(psn, pk.RTX, msn=i // 8, dst_qpn=QPN), there[plane], here[plane])
    seen.settle()
    return seen


@pytest.mark.parametrize(
    ("n", "planes", "first_psn"), [(200, 2, 0), (1000, 4, 2**24 - 700), (2500, 8, 5)]
)
def test_a_queue_pair_over_planes_is_one_row_of_which_nothing_is_missing(
    n: int, planes: int, first_psn: int
) -> None:
    seen = dealt(n, planes, planes, first_psn)
    (row,) = seen.rows()
    again = len(range(0, n, 50))
    assert (row.destination, row.packets, row.payload_bytes) == ("10.9.0.2", n + again, 9 * n)
    assert (row.retransmitted, row.duplicates, row.messages) == (again, again, -(-n // 8))
    assert (row.psn_first, row.psns_missing) == (first_psn, 0)
    assert seen.hosts.all() == [addresses(1, planes), addresses(2, planes)]


def test_what_none_of_the_planes_has_is_missing() -> None:
    seen = Summary()
    for psn in range(1000):
        if psn % 100 != 7:
            seen.add(data(psn, dst_qpn=QPN), f"10.{psn % 2}.0.1", "10.0.0.9")
    (row,) = seen.rows()
    assert [ends[0] for ends in row.missing()] == [*range(7, 1000, 100)]


@pytest.mark.parametrize("lost", [0.0, 0.05, 0.5])
@pytest.mark.parametrize("second_psn", [0, 200, 1000])
def test_two_hosts_whose_numbers_are_alike_stay_two(lost: float, second_psn: int) -> None:
    draw, seen = random.Random(3), Summary()
    for i in range(600):
        for host, first in enumerate((0, second_psn)):
            if draw.random() >= lost:
                seen.add(data(first + i, dst_qpn=QPN), f"10.{host}.0.5", "10.0.0.9")
    seen.settle()
    assert [row.destination for row in seen.rows()] == ["10.0.0.5", "10.1.0.5"]
    assert seen.hosts.all() == []


def test_all_rows_of_a_host_are_joined_and_those_that_follow() -> None:
    seen = Summary()
    for address in ("10.0.0.1", "10.1.0.1"):
        seen.add(record(pk.PROBE, dst_qpn=5), address)
    for psn in range(200):
        seen.add(data(psn, dst_qpn=QPN), f"10.{psn % 2}.0.1", f"10.{psn % 2}.0.9")
    for address in ("10.0.0.9", "10.1.0.9"):
        seen.add(record(pk.SACK, dst_qpn=6, cack_psn=3), address)
    told = [(row.destination, row.qpn, row.probes, row.sacks) for row in seen.rows()]
    assert told == [("10.0.0.1", 5, 2, 0), ("10.0.0.1", QPN, 0, 0), ("10.0.0.9", 6, 0, 2)]


def test_counts_of_two_rows_add_up() -> None:
    """Each field that counts is in `COUNTS`: a new one cannot be forgotten."""
    a, b = QpSummary("10.0.0.1", 1), QpSummary("10.1.0.1", 1)
    counts = [name for name, value in vars(a).items() if value == 0 and name[0] != "_"]
    counts = [name for name in counts if name not in ("psn_highest", "unlooked")]
    for one in (a, b):
        for name in counts:
            setattr(one, name, 2)
        one.nacks["TRIMMED"] = one.naks["odd"] = 1
    a.join(b)
    assert [getattr(a, name) for name in counts] == [4] * len(counts)
    assert a.nacks["TRIMMED"] == a.naks["odd"] == 2


def test_a_host_is_named_by_its_lowest_address() -> None:
    hosts = Hosts()
    assert hosts.join(["10.0.0.10", "10.0.0.9"])
    assert hosts.join(["10.0.0.9", "fd00::1"])
    assert not hosts.join(["fd00::1", "10.0.0.10"])
    assert hosts.all() == [["10.0.0.9", "10.0.0.10", "fd00::1"]]
    assert [hosts.name(one) for one in ("fd00::1", "10.0.0.1")] == ["10.0.0.9", "10.0.0.1"]


def test_sources_of_a_row_are_limited() -> None:
    seen = Summary()
    for i in range(2 * LISTED_MAX):
        seen.add(data(i, dst_qpn=QPN), "10.0.0.1", f"10.0.1.{i}")
    assert len(seen.rows()[0].sources) == LISTED_MAX
