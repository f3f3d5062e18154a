"""What `mrc why` says where senders keep no account: what ports count, and honestly no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from openmrc.ops.finding import Finding
from openmrc.ops.records import read
from openmrc.ops.why import Answer, why
from openmrc.report.result import simulate

BASE: dict[str, Any] = {
    "seed": 5,
    "fabric": {"nics": 16, "planes": 2, "t0_down": 4, "port_rate": "100Gbps"},
    "workload": {"kind": "permutation", "size": "4MB"},
}
OBLIVIOUS, ROCE = {"paths": "oblivious"}, {"kind": "roce"}
CHOSEN = {"srv6": False, "routing": "adaptive"}  # by switches, for each packet
UP = "plane 1 t0 1 > t1 3"


def asked(directory: Path, transport: dict[str, Any], **more: Any) -> Answer:
    simulate(BASE | {"transport": [transport]} | more, sampled=True).save(directory)
    (record,) = read(directory)
    assert record.account is None
    return why(record)


def named(directory: Path, transport: dict[str, Any], kind: str, where: str, **how: Any) -> Finding:
    fault = {"at": "60us", "kind": kind, "where": where, **how}
    answer = asked(directory, transport, fault=[fault])
    assert not answer.knows
    assert "keep no account of paths" in answer.text
    (one,) = answer.findings
    assert one.began_us[0] <= 60 <= one.began_us[1]
    return one


@pytest.mark.parametrize("transport", [OBLIVIOUS, ROCE, CHOSEN])
def test_a_cut_cable_was_down_as_its_ports_saw(transport: dict[str, Any], tmp_path: Path) -> None:
    where = "plane 1 t0 1 - t1 3"
    one = named(tmp_path, transport, "link-down", where)
    assert (one.where, one.dead, one.downs, one.over, one.one_of) == (where, True, 1, False, ())


def test_what_is_missing_on_a_link_was_lost_there(tmp_path: Path) -> None:
    one = named(tmp_path, OBLIVIOUS, "link-loss", UP, rate=0.2)
    assert (one.where, one.dead, one.downs, one.one_of) == (UP, False, 0, ())
    assert 0.1 < one.rate < 0.3


def test_a_switch_that_was_silent_for_a_time_is_named_or_all_links_into_it(tmp_path: Path) -> None:
    one = named(tmp_path, OBLIVIOUS, "switch-silent", "plane 1 t1 2", **{"for": "60us"})
    assert (one.where, one.dead) == ("plane 1 t1 2", True)
    assert one.ended_us[1] is not None
    assert one.ended_us[0] <= 120 <= one.ended_us[1]


def test_where_packets_were_damaged_is_one_of_the_links_of_their_ways(tmp_path: Path) -> None:
    one = named(tmp_path, OBLIVIOUS, "link-corrupt", "nic 9 plane 1 < t0", rate=0.1)
    assert "nic 9 plane 1 < t0" in (one.where, *one.one_of)
    assert not one.dead


def test_full_queues_break_nothing(tmp_path: Path) -> None:
    incast = {"kind": "incast", "n": 8, "size": "1MB"}
    answer = asked(tmp_path, OBLIVIOUS, workload=incast)
    assert answer.findings == ()
    assert "No port was down, and no link lost packets." in answer.text
    assert "queues were full there, which is congestion and no damage" in answer.text
