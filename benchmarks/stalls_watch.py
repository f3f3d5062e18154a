"""What is recorded while `stalls.py` breaks the network: completions, the sender's counters, and
how long the machine kept a core from those who needed it.

All three are rings in files that one process writes and the lab reads. A *watchdog* is a process
for each core, a step above everything that is measured: it wakes each millisecond, and notes when
it woke late. Nothing of the measurement can delay it, so a late one means that the core was gone:
the host of a virtual machine has taken it, or an interrupt, a call of the kernel, or the limit of
real-time priorities (`sched_rt_runtime_us`, 95 % of each second). How long each process waited for
a core, for whatever reason, is known from the kernel (`schedstat`).
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np

RING = 1 << 17  # completions that are remembered
SAMPLES = 1 << 12  # samples of the sender's counters
GAPS = 1 << 12  # late watchdogs, of a core
SAMPLE_S = 0.01
TICK_S, LATE_S = 0.001, 0.001  # of a watchdog; what is less late is the precision of a sleep
COUNTERS = ("rtx", "inferred", "timeouts", "false", "probe", "paths_bad", "paths_revived")
LEVELS = ("cwnd_bytes", "inflight_bytes", "planes_silent", "bad_mask")  # bit i: path i is bad
COLUMNS = ("at_s", *COUNTERS, *LEVELS)
COUNTED = slice(1, 1 + len(COUNTERS))


class Completions:
    """When messages completed, and the sender's counters each 10 ms."""

    def __init__(self, path: Path, mode: str) -> None:
        self.at_s: Any = np.memmap(path, np.float64, mode, shape=(RING + 2,))
        shape = (SAMPLES + 1, len(COLUMNS))
        self.sample: Any = np.memmap(path.with_suffix(".samples"), np.float64, mode, shape=shape)

    def add(self, n: int, paths_bad: int) -> None:
        """`n` more have completed now."""
        total, now_s = int(self.at_s[RING]), time.monotonic()
        for i in range(total, total + n):
            self.at_s[i % RING] = now_s
        self.at_s[RING], self.at_s[RING + 1] = total + n, paths_bad

    def note(self, row: list[float]) -> None:
        """A sample, its values as in `COLUMNS`."""
        total = int(self.sample[SAMPLES, 0])
        self.sample[total % SAMPLES] = row
        self.sample[SAMPLES, 0] = total + 1

    @property
    def total(self) -> int:
        """How many completed."""
        return int(self.at_s[RING])

    @property
    def paths_bad(self) -> int:
        """Paths that the sender has set aside."""
        return int(self.at_s[RING + 1])

    def between(self, first: int, from_s: float, until_s: float) -> Any:
        """When those completed that did so in this time and are number `first` or later."""
        at_s = self.at_s[np.arange(first, self.total) % RING]
        return at_s[(at_s >= from_s) & (at_s < until_s)]

    def samples(self, from_s: float, until_s: float) -> Any:
        """The samples of this time, and the last one before it."""
        total = int(self.sample[SAMPLES, 0])
        rows = self.sample[np.arange(max(0, total - SAMPLES // 2), total) % SAMPLES]
        first = int(np.searchsorted(rows[:, 0], from_s))
        return rows[max(0, first - 1) : int(np.searchsorted(rows[:, 0], until_s))]

    def set_aside(self, from_s: float, until_s: float) -> int:
        """How many times the sender set a path aside in this time, as far as samples tell."""
        counted = self.samples(from_s, until_s)[:, COLUMNS.index("paths_bad")]
        return int(counted[-1] - counted[0]) if len(counted) else 0

    def silenced(self, from_s: float, until_s: float) -> int:
        """How many planes had no path left in this time, at most at once."""
        levels = self.samples(from_s, until_s)[:, COLUMNS.index("planes_silent")]
        return int(levels.max()) if len(levels) else 0


class Gaps:
    """When the watchdog of a core woke late: rows of (due, woken), s."""

    def __init__(self, path: Path, mode: str) -> None:
        self.row: Any = np.memmap(path, np.float64, mode, shape=(GAPS + 1, 2))

    def note(self, due_s: float, woke_s: float) -> None:
        """The watchdog wanted the core at `due_s`, and has it now."""
        if woke_s - due_s > LATE_S:
            n = int(self.row[GAPS, 0])
            self.row[n % GAPS] = due_s, woke_s
            self.row[GAPS, 0] = n + 1
        self.row[GAPS, 1] = woke_s

    def between(self, from_s: float, until_s: float) -> Any:
        """Those that overlap this time; the last is open if the watchdog has not woken since."""
        n = int(self.row[GAPS, 0])
        rows = np.array(self.row[np.arange(max(0, n - GAPS // 2), n) % GAPS])
        woke_s = float(self.row[GAPS, 1])
        if woke_s and until_s - woke_s > LATE_S + TICK_S:
            rows = np.concatenate([rows, [[woke_s + TICK_S, until_s]]])
        return rows[(rows[:, 1] > from_s) & (rows[:, 0] < until_s)]


def covered_s(spans: Any, from_s: float, until_s: float) -> float:
    """How much of a time is covered by spans, rows of (begin, end), s, that may overlap."""
    covered_s, ahead_s = 0.0, from_s
    for begin_s, end_s in np.clip(spans[np.argsort(spans[:, 0])], from_s, until_s).tolist():
        covered_s += max(0.0, end_s - max(begin_s, ahead_s))
        ahead_s = max(ahead_s, end_s)
    return covered_s


def be_a_watchdog(core: int, path: Path) -> None:
    """Wake each millisecond on this core, until killed."""
    os.sched_setaffinity(0, {core})
    gaps = Gaps(path, "r+")
    while True:
        due_s = time.monotonic() + TICK_S
        time.sleep(TICK_S)
        gaps.note(due_s, time.monotonic())


def is_real_time() -> bool:
    """Whether this process has a real-time priority."""
    return os.sched_getscheduler(0) in (os.SCHED_RR, os.SCHED_FIFO)


def priority() -> int:
    """The real-time priority of this process, 0 if it has none."""
    return os.sched_getparam(0).sched_priority


def step_down(steps: int, thread: int = 0) -> None:
    """Run this many steps below the priority of now, if that is real-time and leaves so many: what
    breaks the network must not delay what is measured, and neither of them a watchdog. A process
    in namespaces may lower its priority, and not raise it.
    """
    if is_real_time():
        lower = max(1, os.sched_getparam(thread).sched_priority - steps)
        os.sched_setscheduler(thread, os.SCHED_RR, os.sched_param(lower))


def waited_ms(pid: int) -> float:
    """How long the threads of a process have waited for a core since they began."""
    found = 0.0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            found += int((task / "schedstat").read_text().split()[1]) / 1e6
        except OSError:  # the thread has ended
            continue
    return found


def stolen_ms() -> float:
    """How long the host of this virtual machine has run others on its cores, of all cores."""
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return 1e3 * int(words[8]) / os.sysconf("SC_CLK_TCK")
