"""A line per second on standard error: the traffic of the ports, and the state of the paths; and
one when paths turn out to be too narrow for full packets.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from openmrc.perf.ends import End
from openmrc.verbs.tally import too_narrow

SECOND = 1.0


@dataclass(frozen=True)
class Look:
    """Counts at one time; lists have one entry per plane."""

    at: float
    payload_out: int
    payload_in: int
    lost: int  # packets that went again, without those that only tried a path
    port_bytes: list[int]
    evs: list[int]
    evs_bad: list[int]
    narrow: list[list[int]]  # `narrow_bytes` of the paths that are too narrow
    probe_bytes: int  # which pass there


def look(end: End) -> Look:
    """Read the counters of an end."""
    ports = end.device.counters()["ports"]
    counters = [qp.counters() for qp in end.qps]
    n = end.device.n_planes
    evs, bad = [0] * n, [0] * n
    narrow: list[list[int]] = [[] for _ in range(n)]
    for qp in end.qps:
        for ev in qp.evs():
            evs[ev["plane"]] += 1
            bad[ev["plane"]] += ev["state"] == "ASSUMED_BAD"
            narrow[ev["plane"]] += [ev["narrow_bytes"]] if ev["narrow_bytes"] else []
    return Look(
        time.perf_counter(),
        sum(c["tx_bytes"] for c in counters),
        sum(c["rx_bytes"] for c in counters),
        sum(c["rtx"] - c["trial"] for c in counters),
        [port["tx_bytes"] + port["rx_bytes"] for port in ports],
        evs,
        bad,
        narrow,
        end.device.probe_bytes,
    )


def line(before: Look, now: Look, elapsed_s: float) -> str:
    """The line for the time between two readings. Planes count all bytes of frames, in both
    directions.
    """
    seconds = now.at - before.at

    def gbps(n_bytes: int) -> str:
        return f"{n_bytes * 8 / seconds / 1e9:.2f}"

    rates = [gbps(b - a) for a, b in zip(before.port_bytes, now.port_bytes, strict=True)]
    bad = [f"{b}/{n}" for b, n in zip(now.evs_bad, now.evs, strict=True)]
    return (
        f"{elapsed_s:4.0f} s  {gbps(now.payload_out - before.payload_out)} Gb/s out"
        f"  {gbps(now.payload_in - before.payload_in)} in"
        f"  lost {now.lost - before.lost}"
        f"  planes {' '.join(rates)}  EVs bad {' '.join(bad)}"
    )


def notices(before: Look, now: Look) -> list[str]:
    """What is new about planes whose paths are too narrow: a line for each."""
    return [
        too_narrow(f"plane {plane}", narrow, now.evs[plane], now.probe_bytes)
        for plane, narrow in enumerate(now.narrow)
        if narrow and not before.narrow[plane]
    ]


class Watch:
    """Context manager: calls `say(line)` every second."""

    def __init__(self, end: End, say: Callable[[str], None], period_s: float = SECOND) -> None:
        self._end, self._say, self._period_s = end, say, period_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mrc perf watch", daemon=True)

    def _run(self) -> None:
        first = before = look(self._end)
        while not self._over.wait(self._period_s):
            now = look(self._end)
            self._say(line(before, now, now.at - first.at))
            for notice in notices(before, now):
                self._say(notice)
            before = now

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
