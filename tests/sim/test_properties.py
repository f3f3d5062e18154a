"""What holds in every world, whatever is lost, trimmed, reordered, cut or silent.

A failing example prints its recipe: `Recipe(...).world().run()` is the same run again.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from openmrc.sim.mrc import loop
from openmrc.sim.net import messages
from openmrc.sim.net import state as ss
from openmrc.sim.world import World
from tests.sim.lab import (
    US,
    books_balance,
    conserved,
    data_under_way,
    evs,
    plane_turns,
    sender,
    stream_world,
)
from tests.sim.random_worlds import STOP, Recipe, recipes

repeatable = settings(max_examples=200, suppress_health_check=list(HealthCheck))


def ended_well(world: World) -> None:
    """All bytes are right; every message is done, or a QP error says why, or time was up."""
    assert world.bytes_wrong == 0
    conserved(world)
    m, flows = world.net.message, world.flows()
    fate = np.asarray(m.fate)
    done = flows["done_ps"] >= 0
    assert (done == (fate == ss.COMPLETED)).all()
    assert (flows["delivered_ps"][done] <= flows["done_ps"][done]).all()
    assert (flows["start_ps"][done] < flows["delivered_ps"][done]).all()
    # completed messages lie in memory whole and were counted once
    whole = flows["bytes"][flows["delivered_ps"] >= 0].sum()
    assert whole <= world.bytes_verified <= flows["bytes"].sum()
    for mi in np.flatnonzero(flows["delivered_ps"] >= 0):
        assert units_left(world, int(mi)) == 0
    errors, lines = world.errors(), world.qp_errors()
    for mi in np.flatnonzero(fate == ss.FAILED):
        assert errors[mi] not in ("", "no error")
    assert all(errors[mi] == "" for mi in np.flatnonzero(fate != ss.FAILED))
    assert bool(lines) == bool((fate == ss.FAILED).any())
    for line in lines:
        assert line.startswith("QP 0x")
        assert " us" in line
    ended = done | (fate == ss.FAILED) | (fate == ss.ORPHAN)
    assert ended.all() or world.now_ps == STOP


def units_left(world: World, message: int) -> int:
    """Payload units of a message that were sent and never placed."""
    end = int(world.net.message.qp[message])
    lq, q = world.net.qp[end], world.engine.qp[end]
    queue = world.engine.message[int(q.msg0) : int(q.msg0 + min(q.msg_end, q.msg_mask + 1))]
    mine = queue[queue.wr_id == message]
    assert len(mine)
    left = 0
    for m in mine:
        seq = np.arange(m.first_seq, m.first_seq + m.n_packets)
        noted = world.net.unit[lq.unit0 + (seq & lq.unit_mask)]
        turn = np.where(seq & (lq.unit_mask + 1), messages.SECOND_TURN, 0)
        left += int(((noted != 0) & (noted & messages.SECOND_TURN == turn)).sum())
    return left


@repeatable
@given(recipes())
def test_everything_completes_or_an_error_says_why(recipe: Recipe) -> None:
    world = recipe.world()
    world.run()
    ended_well(world)


@settings(repeatable, max_examples=60)
@given(recipes(max_size=100_000))
def test_the_books_balance_all_the_way(recipe: Recipe) -> None:
    """Every 64 events: window of PSNs, bytes in flight, queues and packets are what is counted."""
    world = recipe.world()
    world.run(until_ps=0)
    for step in range(150):
        if loop.advance(world.net, world.engine, STOP, 1) != ss.BUDGET:
            break
        if step % 3 == 0:
            books_balance(world)
    world.run()
    books_balance(world)
    ended_well(world)


@settings(repeatable, max_examples=100)
@given(recipes(faults=False))
def test_without_a_fault_all_is_done_and_nothing_is_lost_to_one(recipe: Recipe) -> None:
    world = recipe.world()
    world.run()
    ended_well(world)
    assert (world.flows()["done_ps"] >= 0).all()
    assert world.bytes_verified == world.flows()["bytes"].sum()
    c = world.counters()
    assert c["dropped_fault"] == 0
    if c["ecn_marked"] == c["trimmed"] == c["dropped_queue"] == c["inferred"] == 0:
        paths_are_used_equally(world)


def paths_are_used_equally(world: World) -> None:
    """Row 13, where nothing was marked: EVs of a plane to within one, planes as near as busy ports
    allow.
    """
    if world.transport.paths == "single" or world.counters()["timeouts"]:
        return
    for qp in range(world.traffic.n_qps):
        e = evs(world, qp)
        for plane in range(world.fabric.n_planes):
            used = e.used[(e.plane == plane) & (e.active == 1)]
            assert used.max() - used.min() <= 1
        if world.traffic.kind == "stream":  # its ports carry nothing else, and equal packets
            turns = plane_turns(world, qp)
            assert max(turns) - min(turns) <= max(2, 0.01 * sum(turns))
            q = sender(world, qp)
            assert sum(turns) == int(q.nxt + q.n_rtx)


# --- the check of bytes would notice ----------------------------------------------------------


@pytest.mark.parametrize("what", ["address", "length", "payload"])
def test_a_packet_that_is_not_what_was_sent_is_noticed(what: str) -> None:
    world = stream_world(size=1_000_000)
    world.run(until_ps=6 * US)
    n, other = data_under_way(world)[:2]
    if what == "address":
        world.net.packet[n].va += 4096
    elif what == "length":
        world.net.packet[n].payload_len = 4000
    else:  # two packets whose payloads were exchanged
        tag = int(world.net.hop[n].tag)
        world.net.hop[n].tag = world.net.hop[other].tag
        world.net.hop[other].tag = tag
    world.run()
    assert world.bytes_wrong == {"address": 4096, "length": 4000, "payload": 2 * 4096}[what]
    assert world.bytes_verified < 1_000_000


def test_what_was_placed_a_window_ago_is_not_placed_again() -> None:
    """The ring of units has turned: the same place, another unit."""
    world = stream_world(size=20_000_000)
    world.run(until_ps=100 * US)
    ring = int(world.net.qp[int(world.ends.sender[0])].unit_mask) + 1
    n = data_under_way(world)[0]
    assert world.net.hop[n].tag > 2 * ring
    world.net.hop[n].tag -= ring
    world.net.packet[n].va -= ring * 4096
    world.run()
    assert world.bytes_wrong == 4096
    assert world.bytes_verified == 20_000_000 - 4096


def test_an_address_outside_its_region_is_an_error_and_nothing_is_written() -> None:
    world = stream_world(size=1_000_000)
    world.run(until_ps=6 * US)
    world.net.packet[data_under_way(world)[0]].va += 1 << 40
    world.run()
    assert world.bytes_wrong == 0
    assert world.errors() == ["access outside a memory region by the peer"]
    assert world.flows()["failed"].tolist() == [True]
