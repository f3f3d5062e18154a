"""Worlds of RoCEv2 in a line each, and the times and counts that follow from its frames by hand.

At 100 Gb/s a byte lasts 80 ps. From NIC to NIC over a T1 there are four links of 500 ns, and
three switches of 250 ns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from openmrc.engine import state as es
from openmrc.fabric.faults import Fault
from openmrc.fabric.model import Fabric
from openmrc.sim.roce.reader import way_of
from openmrc.sim.roce.side import RoceSide
from openmrc.sim.roce.transport import RoceTransport
from openmrc.sim.watch import books
from openmrc.sim.world import World
from openmrc.traffic.traffic import Traffic
from openmrc.workload.patterns import stream
from tests.sim import lab
from tests.sim.lab import NS

BYTE = 80  # ps at 100 Gb/s
HEADERS = 62 + 20  # Ethernet, IPv4, UDP, BTH, iCRC, FCS; preamble and gap
FIRST = (4096 + HEADERS + 16) * BYTE  # with the RETH
FRAME = (4096 + HEADERS) * BYTE
ACK = (HEADERS + 4) * BYTE
WAY = 4 * 500 * NS + 3 * 250 * NS  # of light, and of the switches


def leaf_spine(nics: int = 8, planes: int = 1, down: int = 4, up: int = 4) -> Fabric:
    """Two tiers at 100 Gb/s."""
    return lab.clos(nics, planes, down, up)


def roce_world(
    fabric: Fabric, traffic: Traffic, faults: Sequence[Fault] = (), **more: Any
) -> World:
    """As `lab.world_of`, with a `RoceTransport`."""
    return lab.world_of(fabric, traffic, faults, kind=RoceTransport, **more)


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
    return way_of(world, int(here.ends.sender[qp * qps + part]))


def sender(world: World, qp: int = 0) -> Any:
    """RoCE's record of a sending end."""
    return side(world).state.qp[int(side(world).ends.sender[qp])]


def balanced(world: World) -> World:
    """Nothing was lost track of, at any book."""
    assert books.wrong(world) == []
    assert world.bytes_wrong == 0
    return world


def every_message_ends(world: World, look_us: int) -> None:
    """Run a world to its end: each message completes or fails, and on the way the books balance."""
    for until in range(0, 400, look_us):
        world.run(until_ps=until * lab.US)
        balanced(world)
    world.run()
    balanced(world)
    flows = world.flows()
    done = flows["done_ps"] >= 0
    assert (done | flows["failed"]).all()
    assert flows["bytes"][done].sum() <= world.bytes_verified


def all_complete(world: World) -> World:
    """As `lab.all_complete`; and the acknowledgement of the last packet took its way."""
    balanced(lab.all_complete(world))
    flows = world.flows()
    assert (flows["done_ps"] > flows["delivered_ps"]).all()
    return world


def is_dead(world: World) -> bool:
    """Whether any QP is in error."""
    return bool((np.asarray(world.engine.qp.state) == es.ERROR).any())
