"""What NICs saw of their own ports: how much of it is one thing, and what it explains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest

from openmrc.fabric import Fabric, multiplane
from openmrc.ops import downs
from openmrc.ops.records import Record
from openmrc.ops.why import why

FABRIC = multiplane(64, 8, 100 * 10**9, 8, 8, 0, 0)
END_US = 400.0
OVER = 300.0


def saw(
    ports: Sequence[tuple[int, int, float, float | None]],
    lost: Sequence[tuple[int, int, float, int]] = (),
) -> Record:
    """NIC, plane, down when, up when; of `lost` NIC, plane, when, how many packets to NIC 63."""
    shift = FABRIC.ev_plane_shift
    told = [(down, -1, n, n, p << shift, downs.DOWN) for n, p, down, _ in ports]
    told += [(up, -1, n, n, p << shift, downs.UP) for n, p, _, up in ports if up is not None]
    names = ["t_us", "qp", "src", "dst", "ev", "event"]
    kinds = dict(zip(names, [pl.Float64, *[pl.Int64] * 4, pl.String], strict=True))
    rows = [(0.0, END_US, n, n, 63, FABRIC.ev(p, 0), 9, at, at, k) for n, p, at, k in lost]
    columns = ["from_us", "until_us", "qp", "src", "dst", "ev", "sent", "first_us", "last_us"]
    types: dict[str, Any] = dict.fromkeys(columns, pl.Int64)
    types |= dict.fromkeys(("from_us", "until_us", "first_us", "last_us"), pl.Float64)
    paths = pl.DataFrame(rows, schema=types | {"lost": pl.Int64}, orient="row").with_columns(
        narrow_bytes=pl.lit(0)
    )
    links = pl.DataFrame({"port": [0], "packets": [9], "trimmed": [0], "from_us": [0.0]})
    links = links.with_columns(until_us=END_US)
    flows = pl.DataFrame({"qp": [0], "dst": [63], "bytes": [4096], "retransmitted": [0]})
    flows = flows.with_columns(failed=False, done_us=END_US, start_us=0.0, job=None)
    summary = {"sim_time_us": END_US, "qp_errors": [], "packets": {"trimmed": 0, "data": 9}}
    events = pl.DataFrame(told, schema=kinds, orient="row")
    return Record("mrc", FABRIC, summary, flows, None, events, paths, links)


def spanned(fabric: Fabric, ports: Sequence[tuple[int, int]], at: float = 50.0) -> Record:
    return saw([(nic, plane, at, OVER) for nic, plane in ports])


@pytest.mark.parametrize(
    ("ports", "where"),
    [
        ([(20, 3)], "nic 20 plane 3 - t0"),
        ([(20, plane) for plane in range(4)], "nic 20 transceiver 0"),
        ([(20, plane) for plane in range(8)], "nic 20"),
        ([(nic, 5) for nic in range(16, 24)], "plane 5 t0 2"),
        ([(nic, 5) for nic in range(16, 20)], "plane 5 t0 2 transceiver 0"),
    ],
)
def test_ports_that_go_down_at_once_are_the_largest_thing_that_they_are(
    ports: Sequence[tuple[int, int]], where: str
) -> None:
    answer = why(spanned(FABRIC, ports))
    (found,) = answer.findings
    assert (found.where, found.since_us, found.until_us) == (where, 50.0, OVER)
    assert "was down from 50us to 300us, as its NICs saw" in answer.text


def test_two_ports_at_different_times_are_two() -> None:
    record = saw([(20, 3, 50.0, OVER), (21, 3, 80.0, None)])
    found = {it.where: (it.since_us, it.until_us, it.back_us) for it in why(record).findings}
    assert found == {
        "nic 20 plane 3 - t0": (50.0, OVER, OVER),
        "nic 21 plane 3 - t0": (80.0, END_US, None),
    }


def test_a_port_that_flaps_is_told_of_once() -> None:
    answer = why(saw([(20, 3, at, at + 20) for at in (50.0, 100.0, 150.0)]))
    (found,) = answer.findings
    assert (found.downs, found.since_us, found.until_us) == (3, 50.0, 170.0)
    assert "down 3 times from 50us to 170us" in answer.text


def test_it_explains_what_was_lost_of_it_and_nothing_else() -> None:
    lost = [(20, 3, 55.0, 30), (20, 2, 55.0, 1), (20, 3, 10.0, 1)]
    record = saw([(20, 3, 50.0, 70.0)], lost)
    spans = downs.spans(record)
    assert downs.explained(record, spans).tolist() == [True, False, False]  # before it went down
    assert downs.explained(record, []).tolist() == [False] * 3
    later = saw([(20, 3, 200.0, 220.0)], lost)
    assert downs.explained(later, downs.spans(later)).tolist() == [False] * 3
    assert downs.findings(record, spans)[0].lost == 30
