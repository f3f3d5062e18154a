"""Compile everything that a run of RoCEv2 needs, saying how far it is."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO

import numpy as np

from openmrc.compiling import reported
from openmrc.engine.packet import PACKET
from openmrc.fabric.clos import multiplane
from openmrc.jit import records
from openmrc.sim.roce.capture import RoceCapture
from openmrc.sim.roce.transport import RoceTransport
from openmrc.sim.world import World
from openmrc.wire import roce_codec
from openmrc.wire.frame import ENVELOPE
from openmrc.workload.patterns import stream


def compile_all(report: Callable[[str, int, int], None]) -> None:
    """Run a world of two NICs with a capture, and read a frame: that compiles all there is."""
    fabric = multiplane(2, 2, 100 * 10**9, 1, 2, 500_000, 250_000)
    with reported(report):
        capture = RoceCapture(BytesIO(), fabric, ["everywhere"])
        world = World(fabric, stream(0, 1, 100_000), RoceTransport(), capture=capture)
        world.sample(0, 20)
        world.run()
        nothing, record, envelope = np.zeros(0, np.uint8), records(1, PACKET), records(1, ENVELOPE)
        roce_codec.decode(nothing, 0, record[0], envelope[0], 1)
