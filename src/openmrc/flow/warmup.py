"""Compiles what runs at the flow level need, reporting progress."""

from __future__ import annotations

from openmrc.fabric.clos import multiplane
from openmrc.flow import loop
from openmrc.flow.world import FlowWorld
from openmrc.jit.warmup import once
from openmrc.sim.mrc.transport import Transport
from openmrc.traffic.earliest import no_cost
from openmrc.workload.patterns import stream


@once("flow", entries=(loop.advance,))
def warm_up_flows() -> None:
    """Compile the loop of flows, and what changes pools."""
    fabric = multiplane(2, 2, 100 * 10**9, 1, 2, 500_000, 250_000)
    traffic = stream(0, 1, 100_000)
    FlowWorld(fabric, traffic, Transport(), cost=no_cost(traffic)).run()
