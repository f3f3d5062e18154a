"""Compile everything that a run needs, saying how far it is."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np
from numba.core import event

from openmrc import jit
from openmrc.engine.packet import PACKET
from openmrc.fabric.clos import multiplane
from openmrc.jit import records
from openmrc.sim.capture import Capture
from openmrc.sim.transport import Transport
from openmrc.sim.world import World
from openmrc.wire import codec
from openmrc.wire.frame import ENVELOPE
from openmrc.workload.patterns import stream


class _Counter(event.Listener):  # type: ignore[misc]  # numba has no types
    """Reports each function whose compilation begins."""

    def __init__(self, report: Callable[[str, int, int], None]) -> None:
        self.report = report
        self.seen: set[str] = set()

    def on_start(self, event: Any) -> None:
        """A function is compiled for the first time, or its result read from disk."""
        function = event.data["dispatcher"].py_func
        name = f"{function.__module__.removeprefix('openmrc.')}.{function.__name__}"
        if name not in self.seen:
            self.seen.add(name)
            self.report(name, min(len(self.seen), len(jit.registered)), len(jit.registered))

    def on_end(self, event: Any) -> None:
        """Nothing to say: functions are counted as they begin."""


def compile_all(report: Callable[[str, int, int], None]) -> None:
    """Run a world of two NICs with a capture, and read a frame: that compiles all there is."""
    fabric = multiplane(2, 2, 100 * 10**9, 1, 2, 500_000, 250_000)
    with event.install_listener("numba:compile", _Counter(report)):
        capture = Capture(BytesIO(), fabric, ["everywhere"])
        World(fabric, stream(0, 1, 100_000), Transport(), capture=capture).run()
        nothing, record, envelope = np.zeros(0, np.uint8), records(1, PACKET), records(1, ENVELOPE)
        codec.decode(nothing, 0, record[0], envelope[0], 1)
    report("done", len(jit.registered), len(jit.registered))
