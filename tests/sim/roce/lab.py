"""Worlds of RoCEv2 in a line each, and the times and counts that follow from its frames by hand.

At 100 Gb/s a byte lasts 80 ps. From NIC to NIC over a T1 there are four links of 500 ns, and
three switches of 250 ns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from openmrc.engine import state as es
from openmrc.fabric.clos import multiplane
from openmrc.fabric.faults import Fault, compile_faults
from openmrc.fabric.model import Fabric
from openmrc.sim import books
from openmrc.sim.roce.capture import RoceCapture
from openmrc.sim.roce.reader import way_of
from openmrc.sim.roce.side import RoceSide
from openmrc.sim.roce.transport import RoceTransport
from openmrc.sim.transport import Queues
from openmrc.sim.world import World
from openmrc.traffic import Traffic
from openmrc.workload.patterns import stream
from tests.sim.lab import GBPS, NS

BYTE = 80  # ps at 100 Gb/s
HEADERS = 62 + 20  # Ethernet, IPv4, UDP, BTH, iCRC, FCS; preamble and gap
FIRST = (4096 + HEADERS + 16) * BYTE  # with the RETH
FRAME = (4096 + HEADERS) * BYTE
ACK = (HEADERS + 4) * BYTE
WAY = 4 * 500 * NS + 3 * 250 * NS  # of light, and of the switches


def leaf_spine(nics: int = 8, planes: int = 1, down: int = 4, up: int = 4) -> Fabric:
    """Two tiers at 100 Gb/s."""
    return multiplane(nics, planes, 100 * GBPS, down, up, 500 * NS, 250 * NS)


def roce_world(
    fabric: Fabric,
    traffic: Traffic,
    faults: Sequence[Fault] = (),
    *,
    seed: int = 1,
    stop: float | None = None,
    queues: Queues | None = None,
    capture: RoceCapture | None = None,
    **transport: Any,
) -> World:
    """A world with these faults; keywords beyond the named ones go to `RoceTransport`."""
    return World(
        fabric,
        traffic,
        RoceTransport(**transport),
        compile_faults(faults, fabric, seed) if faults else None,
        seed,
        queues,
        None if stop is None else int(stop),
        capture,
    )


def stream_world(packets: int, faults: Sequence[Fault] = (), **more: Any) -> World:
    """One message of so many full packets from the first NIC to the last, over a T1."""
    fabric = leaf_spine()
    return roce_world(fabric, stream(0, 7, packets * 4096), faults, **more)


def side(world: World) -> RoceSide:
    """The RoCE side of a world."""
    assert isinstance(world.side, RoceSide)
    return world.side


def roce(world: World) -> dict[str, int]:
    """Its counters that only RoCEv2 has."""
    return {k.removeprefix("roce."): v for k, v in world.counters().items() if "roce." in k}


def start_of(packet: int) -> int:
    """When the NIC begins to send packet `packet` of a stream that nothing holds up."""
    return 0 if packet == 0 else FIRST + (packet - 1) * FRAME


def lose(where: str, at: int) -> Fault:
    """What begins to be sent within 25 ns of `at` is lost: one packet of a stream."""
    return Fault(at - 25 * NS, "link-loss", where, rate=1.0, for_ps=50 * NS)


def way(world: World, qp: int = 0, part: int = 0) -> list[int]:
    """The directed ports that a QP's data takes now."""
    here = side(world)
    qps = int(here.state.c[0].qps)
    return way_of(world, here, int(here.ends.sender[qp * qps + part]))


def sender(world: World, qp: int = 0) -> Any:
    """RoCE's record of a sending end."""
    return side(world).state.qp[int(side(world).ends.sender[qp])]


def balanced(world: World) -> World:
    """Nothing was lost track of, at any book."""
    assert books.wrong(world) == []
    assert world.bytes_wrong == 0
    return world


def all_complete(world: World) -> World:
    """Run to the end: every message done, every byte verified once."""
    world.run()
    balanced(world)
    flows = world.flows()
    assert (flows["done_ps"] > flows["delivered_ps"]).all()
    assert (flows["delivered_ps"] > flows["start_ps"]).all()
    assert world.qp_errors() == []
    assert world.bytes_verified == flows["bytes"].sum()
    return world


def is_dead(world: World) -> bool:
    """Whether any QP is in error."""
    return bool((np.asarray(world.engine.qp.state) == es.ERROR).any())
