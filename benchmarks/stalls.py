"""How long a live transfer stands still after a fault, fault after fault, as a histogram.

    chrt -r 3 .venv/bin/python benchmarks/stalls.py [--kind KIND ...] [--faults N]
        [--switch openmrc|linux] [--busy] [--rows FILE]
    .venv/bin/python benchmarks/stalls.py --table FILE ...

A lab of eight hosts on four planes. One QP from NIC 0 to NIC 7, each end a process of its own,
writes 16 KiB messages without a pause and notes when each completes: one every 0.35 ms. A fault is
drawn, carried out, and healed after 250 ms; no endpoint is told. Of each fault:

    stall    the longest gap between completions from the fault to its healing, less the median of
             the longest gaps in five stretches of 250 ms before it
    share    goodput of the last 200 ms, over what the planes that the fault leaves whole carry
    away     how much of these 200 ms one core or more was gone: endpoints and planes are programs,
             so what the planes could carry is less by that part (the columns `there`)

Endpoints and switches are programs: with other work on the machine they stand still until they get
a core. Real-time priority (`chrt -r 3`, as root) keeps most of that out of the figures; `nothing`,
which breaks nothing, shows what is left. What measures runs at this priority, what is measured one
step below it, and what breaks the network, commands of Linux for the most part, two steps below
(with `chrt -r 1` all run at the same, and wait for each other). Nothing keeps the host of a virtual
machine from taking a core away; `stalls_watch.py` notes it, and the table shows such faults apart.

Each fault is a line of FILE as soon as it is over, with a trace if it misses a bar. A run goes on
where the file ends, so it may be interrupted at any time; `--table` is made of any number of files.

`--busy` keeps each core busy with other work. The kinds of faults are in `stalls_kinds.py`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import stalls_rows as rows
import stalls_watch as watch
from stalls_kinds import AFTER_S, DST, KINDS, PLANES, SRC, Kind

from openmrc.live.lab import Lab, run_lab
from openmrc.run.lab.spec import lab_spec
from openmrc.scenario.scenario import load_lab
from openmrc.verbs import Device, QueuePair, exchange

SCENARIO = """
[fabric]
nics = 8
planes = {planes}
port_rate = "{rate_mbps}Mbps"
t0_down = 4
t0_up = 2
link_delay = "0us"
switch_delay = "0us"

[lab]
switch = "{switch}"
"""
MESSAGE_BYTES, DEPTH, PORT = 16 * 1024, 64, 7471
SETTLED_S, STRETCHES = 0.05, 5
HEALED_S = 10.0  # for all paths to be back
BIN_S = 0.01  # of a trace
LOST = 3  # status of a lab whose queue pair has ended


def longest_gap_ms(at_s: Any, from_s: float, until_s: float) -> float:
    """The longest time without a completion."""
    return 1e3 * float(np.diff(np.concatenate([[from_s], at_s, [until_s]])).max())


def one_fault(lab: Lab, ends: Ends, kind: Kind, rng: np.random.Generator) -> rows.Row:
    """Break something, heal it, wait until all paths are back."""
    seen = ends.seen
    first, from_s = seen.total, time.monotonic()
    time.sleep(STRETCHES * AFTER_S + float(rng.uniform(0, 0.02)))
    plane, at_s = int(rng.integers(PLANES)), time.monotonic()
    waited, stolen_ms = ends.waited_ms(), watch.stolen_ms()
    healing = kind.begin(lab, rng, plane)
    took_s = time.monotonic() - at_s
    broken_s = at_s if kind.lasts else at_s + took_s
    until_s = broken_s + AFTER_S
    time.sleep(max(0.0, until_s - time.monotonic()))
    waited = {name: ms - waited[name] for name, ms in ends.waited_ms().items()}
    stolen_ms = watch.stolen_ms() - stolen_ms
    gaps = ends.gaps(at_s, until_s)
    if healing:
        lab.heal(healing)
    before = [
        longest_gap_ms(seen.between(first, start, start + AFTER_S), start, start + AFTER_S)
        for start in (from_s + i * AFTER_S for i in range(STRETCHES))
    ]
    steady = len(seen.between(first, from_s, at_s)) / (at_s - from_s)
    judged_s = broken_s + SETTLED_S
    late = len(seen.between(first, judged_s, until_s)) / (until_s - judged_s)
    gap_ms = longest_gap_ms(seen.between(first, at_s, until_s), at_s, until_s)
    row = {
        "plane": plane,
        "stall_ms": round(max(0.0, gap_ms - float(np.median(before))), 2),
        "share": round(late / (steady * kind.whole / PLANES), 4),
        "before_ms": round(float(np.median(before)), 2),
        "steady_mbps": round(8e-6 * MESSAGE_BYTES * steady, 1),
        "told_ms": round(1e3 * took_s, 2),
        "gone_ms": max((ms for _, _, ms in gaps), default=0.0),
        "away": round(ends.away_ms(judged_s, until_s) / (1e3 * (until_s - judged_s)), 4),
        "set_aside": seen.set_aside(from_s, until_s),
        "silent_before": seen.silenced(from_s, at_s),
        "silent": seen.silenced(at_s, until_s),
        "stolen_ms": stolen_ms,
        "waited_ms": {name: round(ms, 2) for name, ms in waited.items()},
        "load": round(os.getloadavg()[0], 1),
    }
    if rows.is_bad(row):
        row["trace"] = trace(seen, gaps, first, at_s, until_s)
    patience = time.monotonic() + HEALED_S
    while seen.paths_bad and time.monotonic() < patience:
        time.sleep(0.02)
    row["healed"] = not seen.paths_bad
    return row


def trace(
    seen: watch.Completions, gaps: list[list[float]], first: int, at_s: float, until_s: float
) -> dict[str, Any]:
    """What happened in a fault that misses a bar: goodput, the sender's counters and levels, and
    the times (core, from, ms) when a core was gone; in ms after it.
    """
    edges = np.arange(at_s, until_s, BIN_S)
    counts = np.histogram(seen.between(first, at_s, until_s), edges)[0]
    samples = seen.samples(at_s, until_s)
    since = np.zeros(len(watch.COLUMNS))
    if len(samples):
        since[0] = at_s
        since[watch.COUNTED] = samples[0][watch.COUNTED]
    told = samples - since
    told[:, 0] *= 1e3
    return {
        "mbps": np.round(counts * MESSAGE_BYTES * 8e-6 / BIN_S).astype(int).tolist(),
        "columns": ["at_ms", *watch.COLUMNS[1:]],
        "samples": np.round(told).astype(int).tolist(),
        "gone": gaps,
    }


class Ends:
    """The processes of one lab: both ends of the transfer, and the watchdogs."""

    def __init__(self, lab: Lab, path: Path) -> None:
        self._made: list[subprocess.Popen[bytes]] = []
        watch.Completions(path, "w+")
        self.seen = watch.Completions(path, "r")
        self._watched = []
        for core in sorted(os.sched_getaffinity(0)):
            own = path.with_suffix(f".{core}")
            watch.Gaps(own, "w+")
            self._watched.append((core, watch.Gaps(own, "r")))
            self._start(["--watchdog", str(core), "--ring", str(own)], {})
        chosen = (DST, SRC)
        for rank, nic in enumerate(chosen):
            with lab.namespaces.inside(lab.topology.hosts[nic]):
                words = ["--end", str(rank), "--ring", str(path)]
                self._start(words, lab.environment(chosen, rank))

    def _start(self, words: list[str], environment: dict[str, str]) -> None:
        command = [sys.executable, __file__, *words]
        self._made.append(subprocess.Popen(command, env={**os.environ, **environment}))

    def wait(self) -> None:
        """Wait until the transfer is under way."""
        while self.seen.total < watch.RING // 64:
            self.check()
            time.sleep(0.1)

    def check(self) -> None:
        """Raise `Ended` if one of them has ended."""
        if any(one.poll() is not None for one in self._made):
            raise Ended("an end of the transfer, or a watchdog, is gone")

    def waited_ms(self) -> dict[str, float]:
        """How long each process has waited for a core since it began, and the lab's own, in which
        openmrc's switches run.
        """
        receiver, sender = self._made[-2:]
        pids = {"sender": sender.pid, "receiver": receiver.pid, "lab": os.getpid()}
        return {name: watch.waited_ms(pid) for name, pid in pids.items()}

    def gaps(self, from_s: float, until_s: float) -> list[list[float]]:
        """The times when a core was gone: the core, ms after `from_s`, and for how many ms."""
        return [
            [core, round(1e3 * (due_s - from_s), 2), round(1e3 * (woke_s - due_s), 2)]
            for core, gaps in self._watched
            for due_s, woke_s in gaps.between(from_s, until_s).tolist()
        ]

    def away_ms(self, from_s: float, until_s: float) -> float:
        """For how long one core or more was gone in this time."""
        gaps = [gaps.between(from_s, until_s) for _, gaps in self._watched]
        return 1e3 * watch.covered_s(np.concatenate(gaps), from_s, until_s)

    def kill(self) -> None:
        """End all of them."""
        for one in self._made:
            one.kill()
            one.wait()


class Ended(Exception):
    """A process of the measurement has ended by itself."""


def be_an_end(number: int, path: Path) -> int:
    """The receiver (0) or the sender (1) of the transfer; both until they are killed."""
    watch.step_down(1)
    secret = bytes.fromhex(os.environ["OPENMRC_SECRET"])
    with Device.open() as device:
        qp = device.create_qp(device.create_cq())
        memory = device.reg_mr(np.zeros(MESSAGE_BYTES, np.uint8))
        if number == 0:
            with exchange.Listener(PORT, secret) as listener, listener.accept(qp, [memory]) as peer:
                peer.wait()
            return 0
        with exchange.connect(qp, os.environ["OPENMRC_HOSTS"].split(",")[0], PORT, secret) as peer:
            [there] = peer.regions
            seen = watch.Completions(path, "r+")
            for _ in range(DEPTH):
                qp.post_write(0, memory, remote_addr=there.addr, rkey=there.rkey)
            looked_s, bad = 0.0, 0
            while True:
                done = qp.send_cq.wait(1, 0.1) + qp.send_cq.poll()
                assert all(one.status.name == "SUCCESS" for one in done), done
                seen.add(len(done), bad)
                for _ in done:
                    qp.post_write(0, memory, remote_addr=there.addr, rkey=there.rkey)
                if time.monotonic() > looked_s + watch.SAMPLE_S:
                    looked_s = time.monotonic()
                    aside = set_aside(qp)
                    bad = aside["bad_mask"].bit_count()
                    counted = {**qp.counters(), **aside}
                    seen.note([looked_s, *(counted[name] for name in watch.COLUMNS[1:])])


def set_aside(qp: QueuePair) -> dict[str, int]:
    """The paths that the sender has set aside, and how many planes have no other."""
    evs = qp.evs()
    bad = [ev["state"] == "ASSUMED_BAD" for ev in evs]
    heard = {ev["plane"] for ev, is_bad in zip(evs, bad, strict=True) if not is_bad}
    return {
        "bad_mask": sum(is_bad << i for i, is_bad in enumerate(bad)),
        "planes_silent": len({ev["plane"] for ev in evs} - heard),
    }


def lower_all_threads() -> None:
    """Of the lab's process: the switches' thread to what is measured, this one below it."""
    for thread in map(int, os.listdir("/proc/self/task")):
        watch.step_down(2 if thread == threading.get_native_id() else 1, thread)


def measure(lab: Lab, switch: str, path: Path, options: argparse.Namespace) -> int:
    """All faults that the file of rows does not have yet, kind after kind, over one queue pair.
    Returns `LOST` after the fault in which that ended.
    """
    ends = Ends(lab, path)
    try:
        lower_all_threads()
        ends.wait()
        for name in options.kind or KINDS:
            for number in missing(switch, name, options):
                rng = np.random.default_rng([options.seed, list(KINDS).index(name), number])
                try:
                    row = one_fault(lab, ends, KINDS[name], rng)
                    ends.check()
                except Ended:
                    row = lost_row()
                rows.append(options.rows, {**key(switch, name, number, options), **row})
                tell(f"{switch}, {name}: {number + 1} of {wanted(name, options)}", row)
                if row.get("lost"):
                    return LOST
        return 0
    finally:
        ends.kill()


def lost_row() -> rows.Row:
    """The row of a fault in which the queue pair ended: nothing came any more."""
    load = round(os.getloadavg()[0], 1)
    stood_still = {"stall_ms": 1e3 * AFTER_S, "share": 0.0, "gone_ms": 0.0, "away": 0.0}
    return {**stood_still, "load": load, "lost": True}


def key(switch: str, name: str, number: int, options: argparse.Namespace) -> rows.Row:
    """What a fault is drawn from, and the world in which it happens."""
    return {
        "switch": switch,
        "kind": name,
        "rate_mbps": options.rate_mbps,
        "busy": options.busy,
        "priority": options.priority,
        "seed": options.seed,
        "number": number,
    }


def wanted(name: str, options: argparse.Namespace) -> int:
    """How many faults of a kind are asked for."""
    return KINDS[name].faults if options.faults is None else int(options.faults)


def missing(switch: str, name: str, options: argparse.Namespace) -> list[int]:
    """The numbers of a kind's faults that the file does not have, at whatever priority."""
    of_world = {**key(switch, name, 0, options), "priority": None, "number": None}
    there = {
        row["number"]
        for row in rows.read([options.rows])
        if {**{word: row.get(word) for word in of_world}, "priority": None, "number": None}
        == of_world
    }
    return [number for number in range(wanted(name, options)) if number not in there]


def tell(where: str, row: rows.Row) -> None:
    """One line of progress, which stays if the fault misses a bar."""
    text = f"{where}: stall {row['stall_ms']:.1f} ms, goodput {row['share']:.2f}"
    bad = rows.is_bad(row)
    if bad:
        text += f"; a core gone for {row['gone_ms']:.1f} ms"
    print(f"\r{text:<79}", end="\n" if bad else "", file=sys.stderr, flush=True)


def one_switch(switch: str, options: argparse.Namespace) -> int:
    """A lab with one kind of switches, and another one after a queue pair was lost."""
    with tempfile.TemporaryDirectory() as name:
        scenario = Path(name) / "lab.toml"
        words = {"planes": PLANES, "rate_mbps": options.rate_mbps, "switch": switch}
        scenario.write_text(SCENARIO.format(**words))

        def work(lab: Lab) -> int:
            lab.begin()
            return measure(lab, switch, Path(name) / "ring", options)

        while (status := run_lab(lab_spec(load_lab(str(scenario), [])), work)) == LOST:
            print("\nthe queue pair has ended; with another one", file=sys.stderr, flush=True)
        return status


@contextlib.contextmanager
def other_work(busy: bool) -> Iterator[None]:
    """A program without a pause for each core, at normal priority."""
    n = len(os.sched_getaffinity(0)) if busy else 0
    command = ["chrt", "-o", "0", sys.executable, "-c", "while True: pass"]
    burning = [subprocess.Popen(command) for _ in range(n)]
    try:
        yield
    finally:
        for one in burning:
            one.kill()
            one.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kind", nargs="+", choices=KINDS, help="default: all")
    parser.add_argument("--faults", type=int, help="of each kind (1,000 silent planes, 100 others)")
    parser.add_argument("--switch", choices=("openmrc", "linux"), action="append")
    parser.add_argument("--rate-mbps", type=int, default=100, help="of each plane")
    parser.add_argument("--busy", action="store_true", help="keep all cores busy with other work")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rows", type=Path, default=Path("build/stalls.jsonl"), metavar="FILE")
    parser.add_argument("--table", type=Path, nargs="+", metavar="FILE", help="measure nothing")
    parser.add_argument("--end", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--watchdog", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--ring", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.end is not None:
        return be_an_end(options.end, options.ring)
    if options.watchdog is not None:
        watch.be_a_watchdog(options.watchdog, options.ring)
    if options.table:
        print(rows.table(rows.read(options.table)))
        return 0
    options.priority = watch.priority()  # before any step down
    options.rows.parent.mkdir(parents=True, exist_ok=True)
    options.rows.touch()
    status = 0
    with other_work(options.busy):
        for switch in options.switch or ("openmrc", "linux"):
            status = status or one_switch(switch, options)
    print(f"\n{rows.table(rows.read([options.rows]))}", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
