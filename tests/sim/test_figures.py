"""Figures as checked-in text: any change of behaviour shows as a difference of numbers.

To accept new ones: OPENMRC_SNAPSHOTS=write python -m pytest tests/sim/test_figures.py
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from openmrc.fabric.faults import Fault
from openmrc.fabric.model import Fabric
from openmrc.sim.world import World
from tests.sim.lab import (
    BIN,
    DIP,
    MS,
    STEADY_FROM,
    bins,
    clos,
    evs,
    evs_over,
    faulty_ports,
    first_loss,
    goodput_gbps,
    in_service,
    rtt,
    stream_world,
    tree,
)

SNAPSHOTS = Path(__file__).parent / "snapshots"
CUT = 1 * MS


def compare(name: str, text: str) -> None:
    """With the file of that name, or write it."""
    path = SNAPSHOTS / name
    if os.environ.get("OPENMRC_SNAPSHOTS") == "write":
        path.write_text(text)
    assert text == path.read_text(), f"see {__name__.rpartition('.')[2]}.py for how to accept this"


def test_goodput_by_loss_rate_and_paths() -> None:
    """Every T0-T1 link of eight planes loses packets at one rate; a stream of 8 x 100G, 3 ms."""
    rates = (0.0, 0.0001, 0.001, 0.01, 0.05)
    lines = ["Goodput, Gb/s, 1 to 3 ms after the start of one stream over 8 x 100G", ""]
    lines.append("paths per plane" + "".join(f"{f'{rate:.2%}':>10}" for rate in rates))
    for up in (1, 2, 4, 8, 16):
        row = f"{up:>15}"
        for rate in rates:
            loss = Fault(0, "link-loss", "plane * t0 * - t1 *", rate=rate)
            world = stream_world(clos(up=up), [loss] if rate else [], stop=3 * MS)
            world.run()
            assert world.bytes_wrong == 0
            row += f"{goodput_gbps(world, 1 * MS, 3 * MS):>10.1f}"
        lines.append(row)
    compare("goodput_by_loss.txt", "\n".join(lines) + "\n")


def stall(fabric: Fabric, kind: str, where: str, rate: float | None = None) -> str:
    """In base round trips: from the first lost packet until no EV over the fault is in service,
    and for how long goodput stays below 95 % of what it is in the end.
    """
    world = stream_world(fabric, [Fault(CUT, kind, where, rate=rate)], stop=3 * MS)
    world.run(until_ps=CUT)
    dead = dead_paths(world)
    now, step = CUT, rtt(world) // 100
    while in_service(world)[dead].any() and now < 2 * MS:
        now += step
        world.run(until_ps=now)
    world.run()
    found = max(now - first_loss(world), 0) / rtt(world)  # a NIC sees its own port at once
    after = goodput_gbps(world, 2 * MS, 3 * MS)
    low = (bins(world, CUT, 2 * MS) * 8000 / BIN < DIP * after).sum() * BIN / rtt(world)
    before = goodput_gbps(world, STEADY_FROM, CUT)
    return f"{dead.sum():>4} of {len(dead):<4}{found:>8.2f}{low:>8.1f}{before:>9.1f}{after:>9.1f}"


def dead_paths(world: World) -> np.ndarray:
    """EVs that lead over something faulty; all of a plane whose port went down."""
    up = int(world.engine.nic.up_mask[0]) & int(world.engine.nic.up_mask[-1])
    down = (up >> np.asarray(evs(world).plane, np.int64)) & 1 == 0
    dead: np.ndarray = evs_over(world, faulty_ports(world)) | down
    return dead


def test_stall_after_a_fault() -> None:
    flat, tall = clos(), tree()
    stories: list[tuple[str, Fabric, str, str, float | None]] = [
        ("two tiers, link cut", flat, "link-down", "plane 0 t0 0 - t1 1", None),
        ("two tiers, link loses all", flat, "link-loss", "plane 0 t0 0 > t1 1", 1.0),
        ("two tiers, link loses 20 %", flat, "link-loss", "plane 0 t0 0 > t1 1", 0.2),
        ("two tiers, T1 silent", flat, "switch-silent", "plane 0 t1 1", None),
        ("two tiers, far T0 silent", flat, "switch-silent", "plane 0 t0 1", None),
        ("two tiers, own T0 down", flat, "switch-down", "plane 0 t0 0", None),
        ("two tiers, own port down", flat, "port-down", "nic 0 plane 0", None),
        ("two tiers, far port down", flat, "port-down", "nic 7 plane 0", None),
        ("two tiers, a T1 silent in every plane", flat, "switch-silent", "plane * t1 0", None),
        ("three tiers, link cut", tall, "link-down", "plane 0 t0 0 - t1 1", None),
        ("three tiers, T1 silent", tall, "switch-silent", "plane 0 t1 1", None),
        ("three tiers, T2 silent", tall, "switch-silent", "plane 0 t2 6", None),
    ]
    head = f"{'One stream, fault at 1 ms':<38}{'paths lost':<12}{'found':>8}{'low':>8}"
    units = f"{'':<50}{'RTT':>8}{'RTT':>8}{'Gb/s':>9}{'Gb/s':>9}"
    lines = [f"{head}{'before':>9}{'after':>9}", units]
    for name, fabric, kind, where, rate in stories:
        lines.append(f"{name:<38}{stall(fabric, kind, where, rate)}")
    compare("stall_after_a_fault.txt", "\n".join(lines) + "\n")
