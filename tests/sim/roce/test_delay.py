"""A loop by round trips and late marks: its rule in exact figures, and in a network."""

from __future__ import annotations

from typing import Any

import pytest

from openmrc.jit import compiled, records
from openmrc.sim.roce import dcqcn, delay
from openmrc.sim.roce.profiles import dcqcn_config, profile_named
from openmrc.workload.patterns import incast, stream
from tests.sim.lab import GBPS, US
from tests.sim.roce.lab import all_complete, leaf_spine, roce, roce_world, stream_world

LINE = 100 * GBPS
BASE = 8 * US


@compiled
def on_sent(s: Any, seq: int, now: int) -> None:
    delay.on_sent(s, seq, now)


@compiled
def on_lost(s: Any) -> None:
    delay.on_lost(s)


def started() -> tuple[Any, Any, Any]:
    """What a QP times, its limiter, and the settings."""
    s, r = records(1, delay.SAMPLE)[0], records(1, dcqcn.LIMITER)[0]
    c = dcqcn_config(profile_named("default"), LINE)[0]
    dcqcn.start(r, c)
    on_lost(s)
    return s, r, c


@pytest.mark.parametrize(
    ("delay_rtts", "marked", "gbps"),
    [
        (0.0, False, 62.5),  # an eighth of the line more
        (0.375, False, 56.25),  # half of that at half of the target
        (0.375, True, 50.0),
        (0.75, False, 50.390625),  # 1/256 of the line
        (0.75, True, 50.0),
        (1.0, True, 40.0),  # 0.8 of a quarter less
        (9.0, True, 25.0),  # by half at most
    ],
)
def test_delay_and_mark_decide_together(delay_rtts: float, marked: bool, gbps: float) -> None:
    found = delay.rate_after(50.0 * GBPS, float(LINE), delay_rtts, marked)
    assert found == pytest.approx(gbps * GBPS)


def test_one_packet_is_timed_in_a_round_trip_and_its_mark_counts_once() -> None:
    s, r, c = started()
    on_sent(s, 5, 1 * US)
    on_sent(s, 6, 2 * US)
    s.marked = 1
    delay.on_ack(s, r, c, BASE, 5, 9 * US)  # everything below 5: not 5 itself
    assert (s.seq, r.rate_bps) == (5, LINE)
    delay.on_ack(s, r, c, BASE, 8, 17 * US)  # twice the base round trip: 0.8 of a quarter less
    assert (s.seq, s.marked, r.limited, r.rate_bps) == (-1, 0, 1, pytest.approx(0.8 * LINE))
    on_sent(s, 9, 20 * US)
    delay.on_ack(s, r, c, BASE, 10, 28 * US)
    on_sent(s, 10, 30 * US)
    delay.on_ack(s, r, c, BASE, 11, 38 * US)
    assert (r.limited, r.rate_bps) == (0, LINE)


def test_what_is_sent_again_is_not_timed() -> None:
    s, r, c = started()
    on_sent(s, 0, 0)
    s.marked = 1
    on_lost(s)
    delay.on_ack(s, r, c, BASE, 1, 100 * US)
    assert r.rate_bps == LINE


def test_alone_it_is_as_fast_as_without_a_loop() -> None:
    of = {cc: all_complete(stream_world(200, cc=cc)).flows() for cc in ("rtt", "none")}
    assert of["rtt"]["done_ps"] == of["none"]["done_ps"]


def test_an_incast_keeps_its_port_busy_with_fewer_pauses() -> None:
    """Seven NICs to one: the switch pauses them while their rates fall, and hardly later."""
    took, pauses = {}, {}
    for cc in ("rtt", "none"):
        world = all_complete(roce_world(leaf_spine(), incast(8, 7, 8_000_000), cc=cc))
        took[cc], pauses[cc] = int(world.flows()["done_ps"].max()), roce(world)["pauses"]
    assert took["none"] <= took["rtt"] < 1.1 * took["none"]
    assert 3 * pauses["rtt"] < pauses["none"]


def test_a_stream_over_several_planes() -> None:
    world = roce_world(leaf_spine(planes=2), stream(0, 7, 100 * 4096), cc="rtt", routing="adaptive")
    all_complete(world)
