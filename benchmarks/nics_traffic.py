"""A transfer over libmrc: a T1 falls silent, is named and denied by MRC's C API, and is healed.

    .venv/bin/python benchmarks/nics_traffic.py [--blocks N] [--trials N] [--seed N]
    .venv/bin/python benchmarks/nics_traffic.py --perftest FILE --shim FILE [--trials N] [--seed N]

The lab of `nics.py`. On two hosts of it this program controls the NIC, as `mrc ops nic` does, and
in the same process a program in C (`nics_traffic.c`) writes from one to the other, by queue pairs
that name the EV profile of the controller. Printed is what the story says:

- the latency of small writes in blocks that take turns: alone, while the profile changes a thousand
  times a second, and while another thread uses as much processor time as that takes, for nothing;
- drawn T1s fall silent, one after the other: how soon each was named, and what else was; whether
  the sender denied its EV and no other, whether the next queue pair used it, whether that one used
  it again once it was healed; and what the running transfer noticed;
- the controller is killed: the transfer goes on, as fast as before.

With `--perftest` and `--shim` (`interop.py` says what these are) the running transfer is that of
`ib_write_bw`. This program is then a thread of perftest's processes, and controls profile 0, which
queue pairs use that know nothing of profiles.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from mapper import PERIOD_MS
from nics import SETTLE_S, Nics, in_lab, trial, trials

from openmrc.capi import build, entry
from openmrc.live.lab.topology import MANAGEMENT_ROUTER
from openmrc.nics.agent import PROFILE, NicAgent
from openmrc.nics.library import Library
from openmrc.nics.run import run
from openmrc.ops import evs
from openmrc.ops.mapper import words
from openmrc.ops.mapper.command import HTTP_PORT, PORT
from openmrc.ops.mapper.link import Link
from openmrc.say import say
from openmrc.units import MS, NS
from openmrc.verbs import QpAttributes, hostfile
from openmrc.verbs.advised import Follower
from openmrc.wire import addresses

FROM, TO = 0, 2  # NICs of two T0s
ROOM, SMALL, LARGE = 1 << 16, 64, 1 << 14  # bytes
WRITES = 400  # of a block of small ones
PROOF = 100  # large ones, of a queue pair that is to use an EV or not
CHANGES_PER_S = 1000
ALONE, CHANGES, BURNS = range(3)  # what goes on beside small writes
PROGRAM = Path(__file__).with_suffix(".c")
PATIENCE_S = 60.0
WRITE_BW = f"-d mrc0 -x 0 -m 4096 -s {LARGE} -F --run_infinitely -D 1"
ANSWERS = 3  # where a process of perftest answers
LISTENS = re.compile(r":4853 \S+ 0A ")  # perftest's port, 18515, in /proc/net/tcp
# Python imports a module of this name when libmrc starts it in the process of a program.
# It waits for libmrc: two threads that import the same modules would meet half-way.
INSIDE = """\
import ctypes, os, threading
from pathlib import Path

def begin():
    ctypes.CDLL(os.environ["VMRC_LIBMRC_SO"]).openmrc_absent()
    __import__("nics_traffic").inside(Path({directory!r}))

threading.Thread(target=begin, daemon=True).start()
"""


class Peer(ctypes.Structure):
    """`struct peer` of the program."""

    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("qpn", "psn", "rkey", "own_psn")),
        ("address", ctypes.c_uint64),
        ("gid", ctypes.c_uint8 * 16),
    )


class Beside(ctypes.Structure):
    """`struct beside` of the program."""

    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("what", "n")),
        *((name, ctypes.c_uint64) for name in ("cpu_ns", "each_ns")),
    )


def wait_for(what: Callable[[], Any]) -> Any:
    until = time.monotonic() + PATIENCE_S
    while not (found := what()):
        if time.monotonic() > until:
            raise SystemExit(f"not within {PATIENCE_S:g} s")
        time.sleep(0.005)
    return found


# --- on a host


class Host:
    """A NIC with its agent, and the queue pairs of this process."""

    def __init__(self, directory: Path, profile: int) -> None:
        self.directory = directory
        about = hostfile.read(None)
        _, fabric = hostfile.section(about, None)
        schedule = evs.make(fabric, 10, PERIOD_MS * MS, 0.01)
        self.nic, self.api = int(about["nic"]), Library(directory / build.LIBMRC)
        gids = [addresses.ipv6(nic, 0).packed for nic in range(fabric.n_nics)]
        self.agent = NicAgent(
            self.api, schedule, self.nic, gids, say, lambda: time.monotonic_ns() * NS, profile
        )
        self.agent.start()
        secret = hostfile.secret(None)
        url = f"http://{MANAGEMENT_ROUTER}:{HTTP_PORT}"
        self.follower = Follower(self.agent, url, secret)
        link = Link(str(MANAGEMENT_ROUTER), PORT, secret, words.join(schedule, self.nic), say)
        threading.Thread(
            target=run, args=(self.agent, link, lambda _: None, lambda: False), daemon=True
        ).start()
        assert entry.verbs.nic is not None
        self.device = entry.verbs.nic.device

    def said(self, name: str, content: Any = None) -> Any:
        """Write a file that the other host reads, or wait for one."""
        file = self.directory / name
        if content is None:
            wait_for(file.exists)
            return json.loads(file.read_text())
        file.with_suffix(".new").write_text(json.dumps(content))
        file.with_suffix(".new").rename(file)
        return None


def receive(there: Host, told: Any) -> None:
    """Accept every queue pair that the sender makes."""
    memory = there.device.reg_mr(bytearray(ROOM))
    cq = there.device.create_cq()
    print(json.dumps("ready"), file=told, flush=True)
    for number in range(1 << 30):
        while not (there.directory / f"{number}.from").exists():
            time.sleep(0.01)
        pair = there.device.create_qp(cq)
        pair.connect(QpAttributes(**there.said(f"{number}.from")))
        about = [asdict(pair.attributes), memory.addr, memory.rkey]
        there.said(f"{number}.to", about)


class Sender:
    """Queue pairs of the program in C, by number; each method is a command."""

    def __init__(self, there: Host) -> None:
        self.there, self.pairs = there, list[tuple[int, Peer, int]]()
        self.c = ctypes.CDLL(str(there.directory / "traffic.so"))
        self.c.transfer_new.restype = ctypes.c_void_p
        self.written, self.failed, self.longest_ns = 0, 0, 0
        self._beside = Beside()
        threading.Thread(target=self._work_beside, daemon=True).start()

    def new(self) -> int:
        """Connect one more queue pair; return its number."""
        number, pair = len(self.pairs), self.c.transfer_new(ROOM)
        qpn = self.c.transfer_qpn(ctypes.c_void_p(pair))
        [own] = [one.attributes for one in self.there.device.queue_pairs if one.qp_num == qpn]
        self.there.said(f"{number}.from", asdict(own))
        about, address, rkey = self.there.said(f"{number}.to")
        gid = (ctypes.c_uint8 * 16)(*addresses.ipv6(TO, 0).packed)
        peer = Peer(about["qp_num"], about["psn"], rkey, own.psn, address, gid)
        code = self.c.transfer_meet(
            ctypes.c_void_p(pair), ctypes.byref(peer), ctypes.c_uint64(self.there.agent.profile)
        )
        if code:
            raise SystemExit(f"transfer_meet: {os.strerror(code)}")
        self.pairs.append((pair, peer, qpn))
        return number

    def write(self, number: int, size: int, n: int) -> list[int]:
        """Write `n` times; return how long each took, ns."""
        pair, peer, _ = self.pairs[number]
        took = (ctypes.c_uint64 * n)()
        code = self.c.transfer_write(ctypes.c_void_p(pair), ctypes.byref(peer), size, n, took)
        if code:
            raise SystemExit(f"transfer_write: {os.strerror(code)}")
        return list(took)

    def flow(self, number: int) -> None:
        """Write on and on."""

        def forever() -> None:
            while True:
                took = self.write(number, LARGE, 10)
                self.written += len(took)
                self.longest_ns = max(self.longest_ns, *took)

        threading.Thread(target=forever, daemon=True).start()

    def seen(self) -> list[float]:
        """How many writes there were since the last call, and the longest of them in ms."""
        found = [self.written, self.longest_ns / 1e6]
        self.written = self.longest_ns = 0
        return found

    def packets(self, number: int) -> dict[str, int]:
        """How many packets each EV has carried."""
        qpn = self.pairs[number][2]
        [pair] = [one for one in self.there.device.queue_pairs if one.qp_num == qpn]
        return {f"{one['plane']} {one['ev']}": one["packets"] for one in pair.evs()}

    def carried(self, ev: str) -> int:
        """How many packets of all queue pairs an EV has carried."""
        pairs = self.there.device.queue_pairs
        found = (one for pair in pairs for one in pair.evs())
        return sum(one["packets"] for one in found if f"{one['plane']} {one['ev']}" == ev)

    def denied(self) -> list[str]:
        """The EVs that are DENIED."""
        return [
            f"{ev.port - 1} {int.from_bytes(ev.value[:4], 'big')}" for ev in self.there.agent.denied
        ]

    def beside(self, what: int) -> list[int]:
        """What the other thread does from now on. Return how many changes there were since the
        last call, and their processor time in ns.
        """
        b = self._beside
        b.what = what
        found = [b.n, b.cpu_ns]
        if b.n:
            b.each_ns = b.cpu_ns // b.n
        b.n = b.cpu_ns = 0
        return found

    def _work_beside(self) -> None:
        pair, own = self.c.transfer_new(ROOM), self.there.agent.evs[-1]
        code = self.c.transfer_beside(
            ctypes.c_void_p(pair), ctypes.c_uint64(self.there.agent.profile), own.value, own.port,
            10**9 // CHANGES_PER_S, ctypes.byref(self._beside),
        )  # fmt: skip
        raise SystemExit(f"transfer_beside: {os.strerror(code)}")


def on_host(directory: Path, profile: int, told: Any) -> None:
    """Receive, or obey commands, a line each."""
    there = Host(directory, profile)
    if there.nic == TO:
        receive(there, told)
    sender = Sender(there)
    print(json.dumps("ready"), file=told, flush=True)
    for line in sys.stdin:
        name, *given = json.loads(line)
        print(json.dumps(getattr(sender, name)(*given)), file=told, flush=True)


def inside(directory: Path) -> None:
    """`on_host` in a process of perftest, which has its standard output; it ends with us."""
    try:
        on_host(directory, 0, os.fdopen(ANSWERS, "w"))
    finally:
        os._exit(1)


# --- beside the lab


class Traffic(Nics):
    """The agents of two NICs are this program."""

    since = 0.0  # of what the transfer was last asked

    @staticmethod
    def build(directory: Path) -> None:
        """The library, and the program in C."""
        Nics.build(directory)
        words_ = [build.compiler(), "-O2", "-shared", "-fPIC", "-I", directory / "include", PROGRAM]
        words_ += ["-o", directory / "traffic.so", "-L", directory, "-lmrc", "-libverbs"]
        subprocess.run([*words_, f"-Wl,-rpath,{directory}"], check=True)

    def start_agent(self, nic: int) -> None:
        if nic not in (FROM, TO):
            super().start_agent(nic)
            return
        every = range(self.fabric.n_nics)
        with self.lab.namespaces.inside(self.lab.topology.hosts[nic]):
            self.agents[nic] = subprocess.Popen(
                self.program(nic),
                env={**os.environ, **self.lab.environment(every, nic), **self.variables()},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.log,
                text=True,
            )

    def program(self, nic: int) -> list[str]:
        """The process on a host."""
        return [sys.executable, __file__, "--host", str(self.scenario.parent)]

    def variables(self) -> dict[str, str]:
        """Of its environment."""
        return {}

    def ask(self, *words_: Any) -> Any:
        """What the sender answers to a command."""
        at = self.agents[FROM]
        if words_:
            at.stdin.write(json.dumps(words_) + "\n")
            at.stdin.flush()
        return json.loads(at.stdout.readline())

    def begin(self) -> None:
        """Let a transfer run."""
        self.ask("flow", self.ask("new"))
        time.sleep(SETTLE_S)
        self.seen()

    def seen(self) -> str:
        """What it did since the last call."""
        (writes, longest_ms), began = self.ask("seen"), self.since
        self.since = time.monotonic()
        rate = writes / (self.since - began)
        return f"{rate:.0f} writes of 16 KiB a second, of at most {longest_ms:.0f} ms"


class Perftest(Traffic):
    """The transfer is that of `ib_write_bw`."""

    perftest, shim = Path(), Path()

    def __init__(self, lab: Any, directory: Path, scenario: Path) -> None:
        inside_ = directory / "inside"
        inside_.mkdir()
        (inside_ / "sitecustomize.py").write_text(INSIDE.format(directory=str(directory)))
        self.rows_read = 0
        super().__init__(lab, directory, scenario)

    def program(self, nic: int) -> list[str]:
        server = self.lab.environment(range(self.fabric.n_nics), TO)["OPENMRC_HOSTS"].split(",")[TO]
        more = f"exec stdbuf -oL {self.perftest} {WRITE_BW}"
        more = more if nic == TO else f"{more} {server}"
        return ["sh", "-c", f"exec {ANSWERS}>&1 >{self.scenario.parent / f'perftest{nic}'}; {more}"]

    def variables(self) -> dict[str, str]:
        directory = self.scenario.parent
        path = [str(directory / "inside"), str(Path(__file__).parent), *filter(None, sys.path)]
        return {
            "PYTHONPATH": os.pathsep.join(path),
            "LD_PRELOAD": str(self.shim),
            "LD_LIBRARY_PATH": str(directory),
            "VMRC_LIBMRC_SO": str(directory / build.LIBMRC),
            "VMRC_LIBIBVERBS_SO": str(directory / build.LIBIBVERBS),
        }

    def start_agent(self, nic: int) -> None:
        if nic != FROM:
            super().start_agent(nic)
        if nic == TO:
            wait_for(self._listens)
            super().start_agent(FROM)

    def _listens(self) -> bool:
        net = Path(f"/proc/{self.agents[TO].pid}/net")
        return any(LISTENS.search((net / name).read_text()) for name in ("tcp", "tcp6"))

    def begin(self) -> None:
        wait_for(self._rates)

    def seen(self) -> str:
        rates = self._rates()
        low, high = min(rates, default=0), max(rates, default=0)
        return f"ib_write_bw in {len(rates)} seconds that it tells: {low} to {high} MiB/s"

    def _rates(self) -> list[float]:
        """MiB/s of each second since the last call."""
        said = (self.scenario.parent / f"perftest{FROM}").read_text()
        rates = [float(one) for one in re.findall(rf"^ *{LARGE} +\d+ +\S+ +(\S+)", said, re.M)]
        new, self.rows_read = rates[self.rows_read :], len(rates)
        return new


def tell(bench: Traffic, n_trials: int, seed: int) -> None:
    bench.begin()
    time.sleep(SETTLE_S)
    print(f"named while all is well: {bench.rows('SELECT place FROM place') or 'nothing'}")
    print(f"healthy: {bench.seen()}")
    denied_ms, used, still, back = list[float](), list[int](), list[int](), list[int]()

    def one(where: str) -> tuple[float | None, list[str]]:
        _, plane, _, up = where.split()
        own = f"{plane} {bench.fabric.ev(int(plane), int(up))}"
        began, later = time.monotonic(), 0

        def meanwhile() -> None:
            nonlocal later
            wait_for(lambda: bench.ask("denied") == [own])
            denied_ms.append(1e3 * (time.monotonic() - began))
            before = bench.ask("carried", own)
            later = bench.ask("new")
            bench.ask("write", later, LARGE, PROOF)
            used.append(bench.ask("packets", later)[own])
            still.append(bench.ask("carried", own) - before)

        found = trial(bench, where, meanwhile)
        wait_for(lambda: not bench.ask("denied"))
        bench.ask("write", later, LARGE, PROOF)
        back.append(bench.ask("packets", later)[own])
        return found

    trials(bench, n_trials, seed, one)
    print(f"its EV alone is DENIED after {max(denied_ms):.0f} ms at most", end="; ")
    print(f"the transfer went on: {bench.seen()}")
    print(f"of the next queue pair {sum(used)} packets in {len(used)} trials took it, ", end="")
    print(f"of all {sum(still)}; ", end="")
    print(f"healed, at least {min(back)} in each, of some {PROOF * LARGE // 4096}")
    bench.controller.kill()
    bench.controller.wait()
    bench.seen()
    time.sleep(2 * SETTLE_S)
    print(f"controller killed: {bench.seen()}")


def latency(bench: Traffic, blocks: int) -> None:
    pair = bench.ask("new")
    bench.ask("beside", CHANGES)
    bench.ask("write", pair, SMALL, WRITES)
    bench.ask("beside", ALONE)
    found: dict[int, list[np.ndarray]] = {ALONE: [], CHANGES: [], BURNS: []}
    n, cpu_ns, took_s = 0, 0, 0.0
    for block in range(blocks):
        for what in list(found)[:: 1 if block % 2 else -1]:  # none is always first
            bench.ask("beside", what)
            began = time.monotonic()
            found[what].append(np.array(bench.ask("write", pair, SMALL, WRITES)))
            took_s += (time.monotonic() - began) * (what == CHANGES)
            done, used_ns = bench.ask("beside", ALONE)
            n, cpu_ns = n + done, cpu_ns + used_ns
    p99 = {what: np.array([np.percentile(one, 99) for one in own]) for what, own in found.items()}
    for what, words_ in (
        (ALONE, "alone"),
        (CHANGES, f"at {n / took_s:.0f} changes a second of {cpu_ns / n / 1e3:.0f} us"),
        (BURNS, "while another thread uses as much processor time"),
    ):
        p50_us, p99_us = np.percentile(np.concatenate(found[what]), [50, 99]) / 1e3
        print(f"{SMALL} B {words_}: median {p50_us:.0f} us, p99 {p99_us:.0f} us")
    for what, beside, words_ in (
        (CHANGES, ALONE, "changes by alone"),
        (BURNS, ALONE, "processor time by alone"),
        (CHANGES, BURNS, "changes by as much processor time"),
    ):
        ratios = np.sort(p99[what] / p99[beside])
        low, middle, high = np.percentile(ratios, [25, 50, 75])
        print(f"p99 of {blocks} pairs of blocks, {words_}: {middle:.2f} ({low:.2f} to {high:.2f})")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--blocks", type=int, default=10, help="of 400 small writes, of each kind")
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=["story", "latency"], help="one part")
    for name in ("perftest", "shim"):
        parser.add_argument(f"--{name}", type=Path, metavar="FILE", help="for the story alone")
    parser.add_argument("--host", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.host:
        on_host(arguments.host, PROFILE, sys.stdout)
        return 0
    kind: type[Traffic] = Traffic
    if bool(arguments.perftest) != bool(arguments.shim):
        parser.error("--perftest and --shim: both or none")
    if arguments.perftest:
        kind, arguments.only = Perftest, "story"
        kind.perftest, kind.shim = arguments.perftest.resolve(), arguments.shim.resolve()

    def work(bench: Traffic) -> None:
        bench.ask()  # it is ready
        if arguments.only != "story":
            latency(bench, arguments.blocks)
        if arguments.only != "latency":
            tell(bench, arguments.trials, arguments.seed)

    return in_lab(kind, work)


if __name__ == "__main__":
    raise SystemExit(main())
