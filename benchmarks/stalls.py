"""How long a live transfer stands still after a fault, fault after fault, as a histogram.

    chrt -r 1 .venv/bin/python benchmarks/stalls.py [--kind KIND ...] [--faults N]
        [--switch openmrc|linux]

A lab of eight hosts on four planes. One QP from NIC 0 to NIC 7, each end a process of its own,
writes 16 KiB messages without a pause and notes when each completes: one every 0.35 ms. A fault is
drawn, carried out, and healed after 250 ms; no endpoint is told. Of each fault:

    stall    the longest gap between completions in these 250 ms, less the median of the longest
             gaps in five stretches of 250 ms before it
    share    goodput of the last 200 ms, over what the planes that the fault leaves whole carry

Endpoints and switches are programs: with other work on the machine they stand still until they get
a core. Real-time priority (`chrt -r 1`, as root) keeps most of that out of the figures; `nothing`,
which breaks nothing, shows what is left. `flapping` takes a NIC's link down and up again at a rate
between 1 and 1,000 Hz (even on a logarithmic scale), as far as the lab follows.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from openmrc.live.lab import Lab, run_lab
from openmrc.run.lab.spec import lab_spec
from openmrc.scenario.scenario import load_lab
from openmrc.verbs import Device, exchange

PLANES, SRC, DST = 4, 0, 7
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
AFTER_S, SETTLED_S, STRETCHES = 0.25, 0.05, 5
HEALED_S = 10.0  # for all paths to be back
RING = 1 << 17  # completions that are remembered
EDGES_MS = (1, 2, 5, 10, 20, 50, 100, 200)


class Kind(NamedTuple):
    """A kind of fault: how it is carried out, and how many planes it leaves whole."""

    begin: Callable[[Lab, np.random.Generator, int], str]  # returns what to heal
    whole: int
    faults: int  # that are drawn by default


def middle(plane: int) -> str:
    """All links between the switches of a plane."""
    return f"plane {plane} t0 * - t1 *"


def own_link(rng: np.random.Generator, plane: int) -> str:
    """The link of one of the two NICs to a plane."""
    return f"nic {(SRC, DST)[rng.integers(2)]} plane {plane}"


def lose_in(lab: Lab, where: str, rate: float) -> str:
    lab.fail(where, "link-loss", rate=rate)
    return where


def nothing(lab: Lab, rng: np.random.Generator, plane: int) -> str:
    return ""


def silent_plane(lab: Lab, rng: np.random.Generator, plane: int) -> str:
    return lose_in(lab, middle(plane), 1.0)


def silent_t1(lab: Lab, rng: np.random.Generator, plane: int) -> str:
    where = f"plane {plane} t1 {rng.integers(2)}"
    lab.fail(where, "switch-silent")
    return where


def one_way(lab: Lab, rng: np.random.Generator, plane: int) -> str:
    where = f"plane {plane} t0 {rng.integers(2)} {'<>'[rng.integers(2)]} t1 *"
    return lose_in(lab, where, 1.0).replace("<", "-").replace(">", "-")


def nic_link(lab: Lab, rng: np.random.Generator, plane: int) -> str:
    where = own_link(rng, plane)
    lab.fail(where, "link-down")
    return where


def flapping(lab: Lab, rng: np.random.Generator, plane: int) -> str:
    where = own_link(rng, plane)
    half_s = 0.5 / 10 ** rng.uniform(0, 3)
    began = time.monotonic()
    changes = 0
    while (left_s := began + AFTER_S - time.monotonic()) > 0:
        if changes % 2:
            lab.heal(where)
        else:
            lab.fail(where, "link-down")
        changes += 1
        time.sleep(max(0.0, min(left_s, began + changes * half_s - time.monotonic())))
    return where


def lossy_plane(lab: Lab, rng: np.random.Generator, plane: int) -> str:
    return lose_in(lab, middle(plane), float(0.01 * 30 ** rng.uniform()))


def all_but_one(lab: Lab, rng: np.random.Generator, plane: int) -> str:
    for other in range(PLANES):
        if other != plane:
            lose_in(lab, middle(other), 1.0)
    return "everywhere"


KINDS = {
    "nothing": Kind(nothing, PLANES, 100),
    "silent plane": Kind(silent_plane, PLANES - 1, 1000),
    "silent T1": Kind(silent_t1, PLANES - 1, 100),
    "one way": Kind(one_way, PLANES - 1, 100),
    "NIC link down": Kind(nic_link, PLANES - 1, 100),
    "flapping": Kind(flapping, PLANES - 1, 100),
    "1 to 30 % loss": Kind(lossy_plane, PLANES - 1, 100),
    "all but one": Kind(all_but_one, 1, 100),
}


class Completions:
    """When messages completed: a ring in a file that the sender writes and the lab reads."""

    def __init__(self, path: Path, mode: str) -> None:
        self.at_s: Any = np.memmap(path, np.float64, mode, shape=(RING + 2,))

    def add(self, n: int, paths_bad: int) -> None:
        """`n` more have completed now."""
        total, now_s = int(self.at_s[RING]), time.monotonic()
        for i in range(total, total + n):
            self.at_s[i % RING] = now_s
        self.at_s[RING], self.at_s[RING + 1] = total + n, paths_bad

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


def longest_gap_ms(at_s: Any, from_s: float, until_s: float) -> float:
    """The longest time without a completion."""
    return 1e3 * float(np.diff(np.concatenate([[from_s], at_s, [until_s]])).max())


def one_fault(lab: Lab, seen: Completions, kind: Kind, rng: np.random.Generator) -> dict[str, Any]:
    """Break something, heal it, wait until all paths are back."""
    first, from_s = seen.total, time.monotonic()
    time.sleep(STRETCHES * AFTER_S + float(rng.uniform(0, 0.02)))
    plane, at_s = int(rng.integers(PLANES)), time.monotonic()
    healing = kind.begin(lab, rng, plane)
    took_s = time.monotonic() - at_s
    time.sleep(max(0.0, at_s + AFTER_S - time.monotonic()))
    until_s = at_s + AFTER_S
    if healing:
        lab.heal(healing)
    before = [
        longest_gap_ms(seen.between(first, start, start + AFTER_S), start, start + AFTER_S)
        for start in (from_s + i * AFTER_S for i in range(STRETCHES))
    ]
    steady = len(seen.between(first, from_s, at_s)) / (at_s - from_s)
    late = len(seen.between(first, at_s + SETTLED_S, until_s)) / (AFTER_S - SETTLED_S)
    gap_ms = longest_gap_ms(seen.between(first, at_s, until_s), at_s, until_s)
    patience = time.monotonic() + HEALED_S
    while seen.paths_bad and time.monotonic() < patience:
        time.sleep(0.02)
    return {
        "plane": plane,
        "stall_ms": round(max(0.0, gap_ms - float(np.median(before))), 2),
        "share": round(late / (steady * kind.whole / PLANES), 4),
        "before_ms": round(float(np.median(before)), 2),
        "steady_mbps": round(8e-6 * MESSAGE_BYTES * steady, 1),
        "told_ms": round(1e3 * took_s, 2),
    }


def be_an_end(number: int, path: Path) -> int:
    """The receiver (0) or the sender (1) of the transfer; both until they are killed."""
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
            seen = Completions(path, "r+")
            for _ in range(DEPTH):
                qp.post_write(0, memory, remote_addr=there.addr, rkey=there.rkey)
            looked_s, bad = 0.0, 0
            while True:
                done = qp.send_cq.wait(1, 0.1) + qp.send_cq.poll()
                assert all(one.status.name == "SUCCESS" for one in done), done
                if time.monotonic() > looked_s + SETTLED_S:
                    looked_s = time.monotonic()
                    bad = sum(ev["state"] == "ASSUMED_BAD" for ev in qp.evs())
                seen.add(len(done), bad)
                for _ in done:
                    qp.post_write(0, memory, remote_addr=there.addr, rkey=there.rkey)


def measure(lab: Lab, path: Path, options: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """All kinds, one after the other, over one queue pair."""
    Completions(path, "w+")
    seen, ends = Completions(path, "r"), []
    chosen = (DST, SRC)
    for rank, nic in enumerate(chosen):
        with lab.namespaces.inside(lab.topology.hosts[nic]):
            words = [sys.executable, __file__, "--end", str(rank), "--ring", str(path)]
            environment = {**os.environ, **lab.environment(chosen, rank)}
            ends.append(subprocess.Popen(words, env=environment))
    try:
        while seen.total < RING // 64:
            if any(end.poll() is not None for end in ends):
                raise SystemExit("an end of the transfer is gone")
            time.sleep(0.1)
        rng, found = np.random.default_rng(options.seed), {}
        for name in options.kind or KINDS:
            n = KINDS[name].faults if options.faults is None else options.faults
            found[name] = []
            for i in range(n):
                found[name].append(one_fault(lab, seen, KINDS[name], rng))
                print(f"\r{name}: {i + 1} of {n} ", end="", file=sys.stderr, flush=True)
            print(file=sys.stderr)
            print(line(name, found[name]), flush=True)
        return found
    finally:
        for end in ends:
            end.kill()
            end.wait()


def line(name: str, found: list[dict[str, Any]]) -> str:
    """One kind's row: percentiles of the stall, of the share, and the histogram."""
    stall = np.array([one["stall_ms"] for one in found])
    share = np.array([one["share"] for one in found])
    counts = np.histogram(stall, (0, *EDGES_MS, math.inf))[0]
    p50, p99, p100 = np.percentile(stall, (50, 99, 100))
    low, mid = np.percentile(share, (1, 50))
    figures = f"{p50:.1f} | {p99:.1f} | {p100:.1f} | {mid:.2f} | {low:.2f} | {share.min():.2f}"
    return f"| {name} | {len(found)} | {figures} | {' | '.join(map(str, counts))} |"


def head() -> str:
    """The table's first two lines."""
    edges = [f"< {edge}" for edge in EDGES_MS] + [f">= {EDGES_MS[-1]}"]
    words = ["fault", "n", "stall p50", "p99", "p100", "share p50", "p1", "least", *edges]
    return f"| {' | '.join(words)} |\n|{'---|' * len(words)}"


def one_switch(switch: str, options: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """A lab with one kind of switches."""
    with tempfile.TemporaryDirectory() as name:
        scenario, out = Path(name) / "lab.toml", Path(name) / "result.json"
        words = {"planes": PLANES, "rate_mbps": options.rate_mbps, "switch": switch}
        scenario.write_text(SCENARIO.format(**words))

        def work(lab: Lab) -> int:
            lab.begin()
            out.write_text(json.dumps(measure(lab, Path(name) / "ring", options)))
            return 0

        run_lab(lab_spec(load_lab(str(scenario), [])), work)
        return dict(json.loads(out.read_text()))


def machine() -> str:
    """What decides whether programs get a core when they need one."""
    real_time = os.sched_getscheduler(0) in (os.SCHED_RR, os.SCHED_FIFO)
    return f"{'real-time' if real_time else 'normal'} priority, load {os.getloadavg()[0]:.1f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kind", nargs="+", choices=KINDS, help="default: all")
    parser.add_argument("--faults", type=int, help="of each kind (1,000 silent planes, 100 others)")
    parser.add_argument("--switch", choices=("openmrc", "linux"), action="append")
    parser.add_argument("--rate-mbps", type=int, default=100, help="of each plane")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="JSON file for every single fault's figures")
    parser.add_argument("--end", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--ring", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.end is not None:
        return be_an_end(options.end, options.ring)
    found = {}
    for switch in options.switch or ("openmrc", "linux"):
        print(f"{switch}'s switches, {machine()}; ms\n\n{head()}", flush=True)
        found[switch] = one_switch(switch, options)
    if options.keep is not None:
        options.keep.write_text(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
