"""From what senders of a lab tell to the tables that `mrc why` reads."""

from __future__ import annotations

from typing import Any

import numpy as np

from openmrc.engine import account, ev
from openmrc.run.lab.account import add_drops
from openmrc.run.lab.account import testimony as joined
from openmrc.run.ports import TICK
from openmrc.run.ports import Testimony as Told
from openmrc.run.witness import BECAME, EVENTS
from openmrc.scenario.scenario import make_scenario

MS = 10**9
SCENARIO = {
    "fabric": {"nics": 4, "planes": 2, "t0_down": 2},
    "workload": {"kind": "permutation", "size": "1MB"},
}
FABRIC, TRAFFIC, _ = make_scenario(SCENARIO).build()
SRC, DST = int(TRAFFIC.qp_src[0]), int(TRAFFIC.qp_dst[0])
ONE, OTHER = FABRIC.ev(0, 0), FABRIC.ev(1, 0)


def row(what: int, at_ms: float, sent_ms: float, path: int = ONE, why: int = 0) -> list[int]:
    return [what, why, int(at_ms * MS), int(sent_ms * MS), 0, path]


def told(*rows: list[int], **more: list[Any]) -> Told:
    """What the sender of queue pair 0 told of a run of 100 ms, whose round trip is 2 ms."""
    found = joined(FABRIC, TRAFFIC, {SRC: {"told": list(rows), **more}}, 100 * MS, 2 * MS)
    assert found is not None
    return found


def became(seen: Told) -> list[tuple[int, int, int, str]]:
    columns = (seen.account[name].tolist() for name in ("sent_ps", "known_ps", "ev"))
    names = [BECAME[it] for it in seen.account["became"].tolist()]
    return [(s // MS, k // MS, e, name) for s, k, e, name in zip(*columns, names, strict=True)]


def test_each_loss_and_each_probe_is_a_row_with_its_path() -> None:
    seen = told(
        row(account.LOST, 14, 10),
        row(account.PROBE_MISSED, 30, 20, OTHER),
        row(account.PROBE_ANSWERED, 42, 40),
    )
    assert became(seen) == [
        *((10, 14, ONE, "lost"), (20, 30, OTHER, "probe lost"), (40, 42, ONE, "probe answered")),
    ]
    assert set(seen.account["src"].tolist()) == {SRC}
    assert set(seen.account["dst"].tolist()) == {DST}


def test_what_only_came_late_is_none_however_late_that_is_known() -> None:
    seen = told(*(row(account.LOST, 14, at) for at in (10, 11)), row(account.LATE, 120, 10))
    assert [name for *_, name in became(seen)] == ["late", "lost"]
    assert seen.lossy["lost"].tolist() == [1]


def test_what_came_twice_was_not_lost_whatever_its_sender_believes() -> None:
    """A packet comes twice soon after it is judged lost and sent again."""
    lost = [row(account.LOST, at, at - 5) for at in (14, 41, 42, 90)]
    seen = told(*lost, twice=[[20 * MS, 0, 0], [60 * MS, 0, 2], [95 * MS, 0, 2]])
    assert [(known, name) for _, known, _, name in became(seen)] == [
        *((14, "lost"), (41, "late"), (42, "late"), (90, "lost")),
    ]


def test_what_came_twice_and_late_is_one_false_alarm() -> None:
    lost = [row(account.LOST, at, at - 5) for at in (40, 41)]
    seen = told(*lost, row(account.LATE, 50, 36), twice=[[60 * MS, 0, 1]])
    assert [name for *_, name in became(seen)] == ["lost", "late"]


def test_what_was_before_the_start_or_after_the_end_is_no_part_of_the_run() -> None:
    seen = told(row(account.LOST, 2, -1), row(account.LOST, 101, 99))
    assert became(seen) == []
    assert len(seen.lossy["lost"]) == 0


def test_a_path_that_lost_packets_tells_how_many_it_sent_and_when_the_answers_were_due() -> None:
    paths = [[0, ONE, 500, 0], [0, OTHER, 70, 2048]]
    seen = told(row(account.LOST, 14, 10), row(account.PROBE_MISSED, 30, 20, OTHER), paths=paths)
    assert dict(zip(seen.lossy["ev"].tolist(), seen.lossy["sent"].tolist(), strict=True)) == {
        ONE: 500,
        OTHER: 70,
    }
    assert seen.lossy["narrow_bytes"].tolist() == [0, 2048]
    assert seen.lossy["first_ps"].tolist() == [14 * MS, 22 * MS]


def test_paths_that_change_and_ports_that_go_down_are_events() -> None:
    own = [account.PORT_DOWN, 0, 5 * MS, 5 * MS, -1, OTHER]
    seen = told(own, row(account.EV_CHANGED, 14, 14, why=ev.LOSS))
    names = [EVENTS[it] for it in seen.events["event"].tolist()]
    assert names == ["port down", "avoided"]
    assert seen.events["qp"].tolist() == [-1, 0]
    assert seen.events["src"].tolist() == [SRC, SRC]
    assert seen.events["ev"].tolist() == [OTHER, ONE]


def test_counters_grow_evenly_between_two_readings() -> None:
    port = FABRIC.nic_port(SRC, 0)
    counts = [[0, port, 0, 0], [50 * MS, port, 100, 40], [100 * MS, port, 100, 100]]
    seen = told(counts=counts)
    assert seen.tick_ends_ps.tolist() == [at * MS for at in (20, 40, 60, 80, 100)]
    packets, answered = (seen.ticks[:, TICK.index(it), port] for it in ("packets", "answered"))
    assert packets.tolist() == [40, 40, 20, 0, 0]
    assert answered.sum() == 100
    others = np.delete(seen.ticks, port, axis=2)
    assert not others.any()


def test_what_queues_dropped_is_spread_over_the_run() -> None:
    seen, dropped = told(), np.zeros(FABRIC.n_ports, np.int64)
    dropped[3] = 10
    add_drops(seen, dropped)
    assert seen.ticks[:, TICK.index("dropped"), 3].tolist() == [2, 2, 2, 2, 2]
    assert seen.ticks.sum() == 10


def test_without_an_account_nothing_is_told() -> None:
    assert joined(FABRIC, TRAFFIC, {}, 100 * MS, 2 * MS) is None
