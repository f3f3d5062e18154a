"""The mapper in a lab: faults on real frames, who is named for them, how soon, and at what cost.

    .venv/bin/python benchmarks/mapper.py [--switch openmrc|linux] [--trials N] [--seed N] [--json]
    .venv/bin/python benchmarks/mapper.py --stop S [--seed N]

8 hosts on 4 planes, a T0 for four hosts, two T1s: an agent on every host, a controller, all of them
processes of their own; 20 ms a period, ten probes across each directed link. Each trial breaks one
link, drawn from all: cut, silent in one direction, or losing a tenth in one direction. It counts as
right if just that link and direction (for a cut: both) are named within 50 ms of the first lost
probe, and nothing else. A NIC that sees its port go down says so, perhaps before a probe is lost,
so the time since the link was broken is printed too. Between two trials the link is healed until
the controller says so.

The cost is processor time as a share of one core, in 10 quiet seconds: that of the processes of
agents and controller, and how much of it is the switches'. The kernel forwards on the account of
who sends, so what Linux's switches do is charged to the agents. Before there are agents a bare
sender on each host (`--carry`) sends the same frames at the same pace: for 10 seconds to where the
switches take them, with nobody who listens there, and for 10 to a MAC address nobody has, which
the first switch drops as they arrive, two seconds each in turn. The difference is the switches'.
What another process than the sender forwards, as with openmrc's switches, is in neither.

`busy` is the share of the machine's cores that was busy during a trial, with all that it does else.
`killed` kills the controller and starts it again, then an agent: nothing may be named.

`--stop S` breaks nothing: for S seconds it stops the process of openmrc's switches again and again,
for 10 to 40 ms, as where another process has its core. The agents run: nothing may be named.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from openmrc.jit.bound import Bound
from openmrc.live.lab import Lab, run_lab
from openmrc.live.lab.namespaces import ROOT
from openmrc.live.lab.topology import MANAGEMENT_ROUTER
from openmrc.live.syscalls import Batch
from openmrc.ops import schedule
from openmrc.ops.mapper import agent, loop, probe
from openmrc.ops.mapper.command import PORT
from openmrc.ops.mapper.live import SegmentRouting
from openmrc.run.lab.spec import lab_spec
from openmrc.scenario.scenario import load_lab
from openmrc.units import MS
from openmrc.verbs import hostfile

MRC = [sys.executable, "-m", "openmrc.cli"]
PERIOD_MS = 20
SCHEDULE = ["--period", f"{PERIOD_MS}ms", "--load", "1%"]
SCENARIO = """
[fabric]
nics = 8
planes = 4
port_rate = "100Mbps"
t0_down = 4
t0_up = 2
link_delay = "0us"
switch_delay = "0us"

[lab]
switch = "{switch}"
"""
KINDS = ("cut", "one way", "lossy")
LIMIT_MS = 50.0
QUIET_S = 10.0
WAIT_S = 3.0  # for a name that does not come
COME_S = 180.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SOMEBODY, NOBODY = range(2)  # takes what a bare sender sends
NO_MAC = bytes.fromhex("02ffffffff01")
PERIODS_IN_TURN = 100


class Bench:
    """A lab with its agents and its controller."""

    controller_words: Sequence[str] = ()

    def __init__(self, lab: Lab, directory: Path, scenario: Path) -> None:
        self.lab, self.fabric = lab, lab.spec.fabric
        self.history, self.scenario = directory / "history.sqlite", scenario
        self.log = (directory / "log").open("ab")
        self.agents: dict[int, Any] = {}
        self.start_controller()
        for nic in range(self.fabric.n_nics):
            self.start_agent(nic)

    def start_controller(self) -> None:
        with self.lab.namespaces.inside(ROOT):
            self.controller = subprocess.Popen(
                [
                    *(*MRC, "ops", "controller", str(self.scenario), *self.controller_words),
                    *SCHEDULE,
                    *("--listen", str(MANAGEMENT_ROUTER), "--history", str(self.history)),
                ],
                env={**os.environ, "OPENMRC_SECRET": self.lab.spec.secret},
                stdout=self.log,
                stderr=self.log,
            )

    def agent_words(self) -> list[str]:
        """What follows `mrc ops` to start an agent."""
        return ["agent", "--controller", f"{MANAGEMENT_ROUTER}:{PORT}"]

    def start_agent(self, nic: int) -> None:
        every = range(self.fabric.n_nics)
        with self.lab.namespaces.inside(self.lab.topology.hosts[nic]):
            self.agents[nic] = subprocess.Popen(
                [*MRC, "ops", *self.agent_words(), *SCHEDULE],
                env={**os.environ, **self.lab.environment(every, nic)},
                stdout=self.log,
                stderr=self.log,
            )

    def rows(self, sql: str) -> list[Any]:
        with contextlib.closing(sqlite3.connect(f"file:{self.history}?mode=ro", uri=True)) as db:
            return db.execute(sql).fetchall()

    def wait(self, sql: str, n: int, timeout_s: float) -> list[Any]:
        """The rows as soon as there are `n`, or those that are there after the time."""
        until = time.monotonic() + timeout_s
        while True:
            with contextlib.suppress(sqlite3.OperationalError):
                if len(rows := self.rows(sql)) >= n or time.monotonic() > until:
                    return rows
            if time.monotonic() > until:
                return []
            time.sleep(0.02)

    def joined(self, n: int) -> int:
        return len(self.wait("SELECT nic FROM agent WHERE joined", n, COME_S))

    def cpu_s(self) -> float:
        total = 0
        for process in (self.controller, *self.agents.values()):
            if process.poll() is None:
                words = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
                total += int(words[11]) + int(words[12])
        return total / TICKS_PER_S

    def close(self) -> None:
        for process in (self.controller, *self.agents.values()):
            process.kill()
            process.wait()
        self.log.close()


def carry() -> None:
    """Send this host's probes by themselves, for `QUIET_S` to where switches take them and for as
    long to nobody, in turns. Prints a line when ready, waits for one, and prints the processor
    time that the first took more, as a share of one core.
    """
    host = hostfile.read()
    _, fabric = hostfile.section(host)
    nic, probes = host["nic"], schedule.make(fabric, period_ps=PERIOD_MS * MS, load_max=0.01)
    wire, batches = SegmentRouting(fabric, host), list[list[Batch]]([[], []])
    wire.socket.close()
    deaf = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    for turn in range(schedule.TURNS):
        order = agent.order(probes, nic, turn)
        numbers = range(len(order.planes))
        payloads = probe.payloads(probe.SCHEDULED, nic, order.planes, turn, numbers)
        for each in batches:
            each.append(wire.batch(order.planes, np.array(order.routes), payloads))
        batches[NOBODY][-1].data[:, : len(NO_MAC)] = np.frombuffer(NO_MAC, np.uint8)
    wires = loop.new_wires(batches[0][0], batches[0][0], deaf.fileno(), wire.at, 0)
    put = Bound(loop.put, (wires,), 2)
    print(flush=True)
    sys.stdin.readline()
    began, used_s = time.monotonic(), [0.0, 0.0]
    for period in range(2 * round(QUIET_S * 1000 / PERIOD_MS)):
        where, before = period // PERIODS_IN_TURN % 2, time.process_time()
        batch = batches[where][period % schedule.TURNS]
        put.call(batch.message.ctypes.data, len(batch.message))
        time.sleep(max(began + (period + 1) * PERIOD_MS / 1000 - time.monotonic(), 0))
        used_s[where] += time.process_time() - before
    print((used_s[SOMEBODY] - used_s[NOBODY]) / QUIET_S)


def forwarding(lab: Lab) -> float:
    """How much of a core the switches take for the probes of all hosts, on the senders' account."""
    every, senders = range(lab.spec.fabric.n_nics), []
    for nic in every:
        with lab.namespaces.inside(lab.topology.hosts[nic]):
            one = subprocess.Popen(
                [sys.executable, __file__, "--carry"],
                env={**os.environ, **lab.environment(every, nic)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            senders.append(one)
    for one in senders:
        assert one.stdout is not None
        one.stdout.readline()
    # Not at one instant, as agents are not.
    for one in senders:
        assert one.stdin is not None
        one.stdin.write(b"\n")
        one.stdin.flush()
        time.sleep(PERIOD_MS / 1000 / len(senders))
    return sum(float(one.communicate()[0]) for one in senders)


def busy_s() -> float:
    """Processor time that all cores have been busy for."""
    words = [int(word) for word in Path("/proc/stat").read_text().partition("\n")[0].split()[1:9]]
    return (sum(words) - words[3] - words[4]) / TICKS_PER_S


def trial(bench: Bench, kind: str, rng: np.random.Generator) -> dict[str, Any]:
    """Break a link, see who is named, heal it."""
    fabric = bench.fabric
    port = int(rng.integers(fabric.n_ports))
    (before,) = bench.rows("SELECT coalesce(max(id), 0) FROM place")[0]
    time.sleep(float(rng.uniform(0, 0.1)))
    broke_us, began, busy = time.time_ns() // 1000, time.monotonic(), busy_s()
    if kind == "cut":
        truth = {fabric.port_name(port), fabric.port_name(int(fabric.port_reverse[port]))}
        bench.lab.fail(fabric.link_name(port), "link-down")
    else:
        truth = {fabric.port_name(port)}
        rate = 1.0 if kind == "one way" else 0.1
        bench.lab.fail(fabric.port_name(port), "link-loss", rate=rate)
    sql = f"SELECT place, since_us, named_us FROM place WHERE id > {before}"
    bench.wait(sql, len(truth), WAIT_S)
    busy = (busy_s() - busy) / (time.monotonic() - began) / (os.cpu_count() or 1)
    time.sleep(0.3)  # what is wrong may come after what is right
    rows = bench.rows(sql)
    bench.lab.heal(fabric.link_name(port))
    bench.wait(f"{sql} AND until_us IS NOT NULL", len(rows), 10)
    found = {place for place, _, _ in rows}
    first = min((since for _, since, _ in rows), default=0)
    last = max((named for place, _, named in rows if place in truth), default=0)
    took_ms = (last - first) / 1e3
    return {
        "truth": sorted(truth),
        "found": sorted(found),
        "ms": round(took_ms, 1) if truth <= found else None,
        "since_broken_ms": round((last - broke_us) / 1e3, 1) if truth <= found else None,
        "exact": found == truth,
        "right": found == truth and took_ms <= LIMIT_MS,
        "busy": round(busy, 2),
    }


def measure(bench: Bench, trials: int, seed: int) -> dict[str, Any]:
    n = bench.fabric.n_nics
    result: dict[str, Any] = {"joined": bench.joined(n), "load": os.getloadavg()[0]}
    time.sleep(2)
    before, began = bench.cpu_s(), time.monotonic()
    time.sleep(QUIET_S)
    result["cost"] = round((bench.cpu_s() - before) / (time.monotonic() - began), 4)
    result["alarms_quiet"] = bench.rows("SELECT place, lost, crossed FROM place")
    rng = np.random.default_rng(seed)
    for kind in KINDS:
        result[kind] = [trial(bench, kind, rng) for _ in range(trials)]
    result["killed"] = killed(bench)
    result["load_after"] = os.getloadavg()[0]
    return result


def killed(bench: Bench) -> dict[str, Any]:
    """The controller, then an agent: nothing may be named; agents come back by themselves."""
    n = bench.fabric.n_nics
    (before,) = bench.rows("SELECT coalesce(max(id), 0) FROM place")[0]
    (agents,) = bench.rows("SELECT count(*) FROM agent WHERE joined")[0]
    began = time.monotonic()
    bench.controller.send_signal(signal.SIGKILL)
    bench.controller.wait()
    bench.start_controller()
    bench.joined(agents + n)
    back_s = time.monotonic() - began
    bench.agents[0].kill()
    time.sleep(5)
    bench.start_agent(0)
    bench.joined(agents + n + 1)
    time.sleep(2)
    named = [row[0] for row in bench.rows(f"SELECT place FROM place WHERE id > {before}")]
    return {"controller_back_s": round(back_s, 1), "alarms": named}


def stopped(bench: Bench, seconds: float, seed: int) -> dict[str, Any]:
    """Stop the switches, which are a thread of this process, and see who is named."""
    bench.joined(bench.fabric.n_nics)
    time.sleep(2)
    rng, switches, until = np.random.default_rng(seed), os.getpid(), time.monotonic() + seconds
    stops = os.memfd_create("stops")
    if (child := os.fork()) == 0:
        while time.monotonic() < until:
            time.sleep(float(rng.uniform(0.05, 0.25)))
            os.kill(switches, signal.SIGSTOP)
            time.sleep(float(rng.uniform(0.01, 0.04)))
            os.kill(switches, signal.SIGCONT)
            os.write(stops, b".")
        os._exit(0)
    os.waitpid(child, 0)
    time.sleep(1)
    named = sorted({row[0] for row in bench.rows("SELECT place FROM place")})
    return {"stops": os.fstat(stops).st_size, "named": named}


def one_switch(switch: str, trials: int, seed: int, stop_s: float = 0.0) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        scenario = directory / "lab.toml"
        scenario.write_text(SCENARIO.format(switch=switch))
        out = directory / "result.json"

        def work(lab: Lab) -> int:
            lab.begin()
            forwarded = 0.0 if stop_s else forwarding(lab)
            bench = Bench(lab, directory, scenario)
            try:
                if stop_s:
                    result = stopped(bench, stop_s, seed)
                else:
                    result = measure(bench, trials, seed)
                    result["switches"] = round(forwarded, 4)
                out.write_text(json.dumps(result))
            finally:
                bench.close()
                if not out.exists():
                    sys.stderr.write((directory / "log").read_text())
            return 0

        spec = lab_spec(load_lab(str(scenario), []))
        run_lab(spec, work)
        return dict(json.loads(out.read_text()))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--switch", choices=("openmrc", "linux"), action="append")
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--stop", type=float, default=0.0, metavar="S")
    parser.add_argument("--carry", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.carry:
        carry()
        return 0
    if arguments.stop:
        found = one_switch("openmrc", 0, arguments.seed, arguments.stop)
        print(f"{found['stops']} stops; named: {found['named'] or 'nothing'}")
        return 0
    results = {}
    for switch in arguments.switch or ["openmrc", "linux"]:
        found = results[switch] = one_switch(switch, arguments.trials, arguments.seed)
        if arguments.json:
            continue
        print(
            f"{switch}: {found['joined']} agents, load {found['load']:.1f} to"
            f" {found['load_after']:.1f}; named while nothing was broken:"
            f" {found['alarms_quiet'] or 'nothing'}"
        )
        own = found["cost"] - found["switches"]
        print(
            f"  cost     agents and controller {own:.1%} of a core, switches on their account"
            f" {found['switches']:.1%}, together {found['cost']:.1%}"
        )
        for kind in KINDS:
            took = sorted(one["ms"] for one in found[kind] if one["ms"] is not None)
            right = sum(one["right"] for one in found[kind])
            whole = sorted(one["since_broken_ms"] for one in found[kind] if one["ms"] is not None)
            times = "never"
            if took:
                times = f"{took[len(took) // 2]} ms, {took[-1]} ms at most; since it broke "
                times += f"{whole[len(whole) // 2]} ms, {whole[-1]} ms at most"
            exact = sum(one["exact"] for one in found[kind])
            busy = sum(one["busy"] for one in found[kind]) / len(found[kind])
            print(
                f"  {kind:8} {exact} of {len(found[kind])} exact, {right} in time, {times};"
                f" busy {busy:.0%}"
            )
            for one in found[kind]:
                if not one["right"]:
                    print(f"    {one}")
        print(f"  killed   {found['killed']}")
    if arguments.json:
        print(json.dumps(results, indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
