"""Compile everything that a run of RoCEv2 needs, saying how far it is."""

from __future__ import annotations

from collections.abc import Callable

from openmrc.compiling import reported
from openmrc.fabric.clos import multiplane
from openmrc.sim.roce.transport import RoceTransport
from openmrc.sim.world import World
from openmrc.workload.patterns import stream


def compile_all(report: Callable[[str, int, int], None]) -> None:
    """Run a world of two NICs."""
    fabric = multiplane(2, 2, 100 * 10**9, 1, 2, 500_000, 250_000)
    with reported(report):
        world = World(fabric, stream(0, 1, 100_000), RoceTransport())
        world.sample(0, 20)
        world.run()
