"""The clock of a lab: carries out a fault schedule in real time, on a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from openmrc.fabric.actions import FaultSchedule
from openmrc.units import S


class Clock:
    """Calls `act` with the EVENT records of each instant of a schedule when it is due.

    Instants that are overdue are handled together, in order.
    """

    def __init__(self, schedule: FaultSchedule, act: Callable[[Any], None]) -> None:
        self._events = schedule.events
        self._act = act
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="faults", daemon=True)

    def start(self) -> None:
        """Start; time 0 is now."""
        self._started = time.monotonic()
        if len(self._events):
            self._thread.start()

    def stop(self) -> None:
        """Stop; later instants do not happen."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        at_ps = self._events["at_ps"]
        first = 0
        while first < len(at_ps):
            wait_s = int(at_ps[first]) / S - (time.monotonic() - self._started)
            if wait_s > 0 and self._stopping.wait(wait_s):
                return
            now_ps = round((time.monotonic() - self._started) * S)
            last = max(first + 1, int(np.searchsorted(at_ps, now_ps, "right")))
            self._act(self._events[first:last])
            first = last
