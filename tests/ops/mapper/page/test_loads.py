"""What a run's ports counted, as the page shows it: by step of time and directed link."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from openmrc.fabric import multiplane
from openmrc.ops.mapper.page import loads as counted
from openmrc.ops.mapper.page.loads import loads
from openmrc.ops.records import Record
from openmrc.run.ports import TICK

FABRIC = multiplane(4, 1, 10**11, 2, 1, 0, 0)  # links 0 to 3 of NICs, 4 and 5 of T0s
DOWN = int(FABRIC.port_reverse[0])  # the port that sends to NIC 0


def record(*rows: dict[str, Any]) -> Record:
    """A run of which ports counted this; what a row does not say is 0."""
    nothing = dict.fromkeys(TICK, 0)
    frame = pl.DataFrame([{"transport": "a", **nothing, **row} for row in rows])
    return Record("a", FABRIC, {}, pl.DataFrame(), None, None, pl.DataFrame(), port_counts=frame)


def tick(n: int, port: int, **counts: int) -> dict[str, Any]:
    return {"from_us": 10.0 * n, "until_us": 10.0 * (n + 1), "port": port, **counts}


SENT = (
    tick(0, 0, packets_out=40),
    tick(1, 0, packets_out=10, trimmed_here=2),
    tick(1, DOWN, packets_out=80),
)


def test_a_step_has_the_share_of_each_directed_link_and_the_run_its_totals() -> None:
    found = loads(record(*SENT))
    assert found is not None
    assert found["ends_us"] == [10.0, 20.0]
    assert [row[:3] for row in found["share"]] == [[500, 0, 0], [125, 1000, 0]]
    assert {words: row[:3] for words, row in found["totals"].items()} == {
        "packets sent": [50, 80, 0],
        "trimmed, as queues were full": [2, 0, 0],
    }


def test_where_ports_say_how_long_they_sent_a_share_is_of_the_rate_and_bytes_are_known() -> None:
    found = loads(record(tick(0, 0, packets_out=9, marked=2, busy_ns=4000), tick(1, DOWN, down=1)))
    assert found is not None
    assert (found["of"], [row[0] for row in found["share"]]) == ("of its rate", [400, 0])
    assert found["totals"]["bytes sent"][0] == 50_000  # 4 us at 100 Gb/s
    assert found["totals"]["marked"][0] == 2


def test_steps_are_joined_so_that_the_page_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counted, "CELLS_MAX", 2 * FABRIC.n_ports)
    found = loads(record(*SENT, tick(2, 0, packets_out=40)))
    assert found is not None
    assert found["ends_us"] == [20.0, 30.0]
    assert [row[:2] for row in found["share"]] == [[625, 1000], [1000, 0]]


def test_where_ports_do_not_count_what_senders_put_on_paths_is_told() -> None:
    found = loads(record(tick(0, 0, packets=7)))
    assert found is not None
    assert found["totals"] == {"packets put on paths across it": [7, *[0] * 11]}


@pytest.mark.parametrize("nothing", [(tick(0, 0, dropped=1),), ()])
def test_who_counted_nothing_knows_no_load(nothing: tuple[dict[str, Any], ...]) -> None:
    assert loads(record(*nothing)) is None
