"""One stream at a time between two hosts of a lab: its goodput, and the effect of a cut on it."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from openmrc.bench.lab import curve
from openmrc.bench.lab.curve import NS_PER_S, Curve
from openmrc.errors import OpenMrcError
from openmrc.live.lab import Lab, commands
from openmrc.say import say

COME_S = 60.0  # for both ends to load their code, and to connect
LOOK_S = 0.02
END_S = 30.0  # for both ends to be done, after the last second of sending
SILENT = "link-loss"  # of every link between T0s and T1s: no port goes down, nobody is notified


@dataclass(frozen=True)
class Times:
    """Seconds of a stream: until it counts, until the cut, and from there to the end."""

    warm: float
    healthy: float
    after: float

    @property
    def total(self) -> float:
        """How long a stream with a cut sends."""
        return self.warm + self.healthy + self.after


@dataclass(frozen=True)
class Delivered:
    """Results of one stream: healthy goodput and, if a plane was cut, ms without 70 % of it."""

    bps: float
    cut: bool = False
    outage_ms: float | None = None  # None: to the end


class Stream:
    """A command on two hosts, its output lines, and a plane that goes silent meanwhile."""

    def __init__(self, lab: Lab, nics: Sequence[int], words: Sequence[str]) -> None:
        self.said: dict[str, Any] = {}
        self._lab = lab
        self._started = threading.Event()
        self._over = threading.Event()
        self._commands = [
            lab.command(
                nics, rank, [sys.executable, "-m", *words], self._hearer(rank), self._hearer(rank)
            )
            for rank in (0, 1)
        ]
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def run(self, times: Times, plane: int | None) -> int | None:
        """Wait for its end; return when plane `plane` was cut in the middle, ns of
        CLOCK_MONOTONIC.
        """
        cut_ns = None
        try:
            self._wait(self._started, COME_S)
            until = self.said["started"] + (times.warm + times.healthy) * NS_PER_S
            time.sleep(max(until - time.monotonic_ns(), 0) / NS_PER_S)
            if plane is not None:
                self._lab.fail(f"plane {plane} t0 * - t1 *", SILENT, rate=1.0)
                cut_ns = time.monotonic_ns()
                time.sleep(times.after)
                self._lab.heal(f"plane {plane} t0 * - t1 *")
            self._watcher.join(END_S)
        finally:
            if plane is not None:
                self._lab.heal(f"plane {plane} t0 * - t1 *")
            self._over.set()
            self._watcher.join()
        self._check()
        return cut_ns

    def _watch(self) -> None:
        commands.watch(self._commands, lambda: int(self._over.is_set()))
        self._started.set()

    def _wait(self, event: threading.Event, seconds: float) -> None:
        if not event.wait(seconds):
            raise OpenMrcError(f"bench live: hosts were not ready within {seconds:g} s")
        self._check()
        if "started" not in self.said:
            raise OpenMrcError(f"bench live: hosts ended before they began: {self.said}")

    def _check(self) -> None:
        if "error" in self.said:
            raise OpenMrcError(f"bench live: {self.said['error']}")

    def _hearer(self, rank: int) -> commands.Write:
        def hear(data: bytes) -> None:
            for line in data.splitlines():
                self._note(rank, line.partition(b"| ")[2])

        return hear

    def _note(self, rank: int, line: bytes) -> None:
        try:
            told = json.loads(line)
        except ValueError:
            told = None
        if not isinstance(told, dict):  # text for people
            say(f"rank {rank}: {line.decode(errors='replace')}")
            return
        for key, value in told.items():
            if isinstance(value, list):  # a curve is sent in pieces
                self.said.setdefault(key, []).extend(value)
            else:
                self.said[key] = value
        if "started" in self.said:
            self._started.set()


def delivered(of: Curve, started_ns: int, cut_ns: int | None, times: Times) -> Delivered:
    """Return the results of one stream, computed from its curve."""
    begin = started_ns + int(times.warm * NS_PER_S)
    end = started_ns + int((times.warm + times.healthy) * NS_PER_S)
    healthy = curve.goodput_bps(of, begin, end)
    if cut_ns is None:
        return Delivered(healthy)
    outage = curve.outage_ns(of, cut_ns, cut_ns + int(times.after * NS_PER_S), healthy)
    return Delivered(healthy, True, None if outage is None else outage / 1e6)
