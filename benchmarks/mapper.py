"""The mapper in a lab: faults on real frames, who is named for them, how soon, and at what cost.

    .venv/bin/python benchmarks/mapper.py [--switch openmrc|linux] [--trials N] [--seed N] [--json]

8 hosts on 4 planes, a T0 for four hosts, two T1s: an agent on every host, a controller, all of them
processes of their own; 20 ms a period, ten probes across each directed link. Each trial breaks one
link, drawn from all: cut, silent in one direction, or losing a tenth in one direction. It counts as
right if just that link and direction (for a cut: both) are named within 50 ms of the first lost
probe, and nothing else. A NIC that sees its port go down says so, perhaps before a probe is lost,
so the time since the link was broken is printed too. Between two trials the link is healed until
the controller says so.

`cost` is the CPU time of agents and controller in 10 quiet seconds, share of one core; with Linux's
switches it holds all forwarding, which the kernel does on the sender's account. `killed` kills the
controller and starts it again, then an agent: nothing may be named.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from openmrc.live.lab import Lab, run_lab
from openmrc.live.lab.namespaces import ROOT
from openmrc.live.lab.topology import MANAGEMENT_ROUTER
from openmrc.ops.mapper.command import PORT
from openmrc.run.lab.spec import lab_spec
from openmrc.scenario.scenario import load_lab

MRC = [sys.executable, "-m", "openmrc.cli"]
SCHEDULE = ["--period", "20ms", "--load", "1%"]
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


class Bench:
    """A lab with its agents and its controller."""

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
                [*MRC, "controller", str(self.scenario), "--history", str(self.history), *SCHEDULE],
                env={**os.environ, "OPENMRC_SECRET": self.lab.spec.secret},
                stdout=self.log,
                stderr=self.log,
            )

    def start_agent(self, nic: int) -> None:
        every = range(self.fabric.n_nics)
        with self.lab.namespaces.inside(self.lab.topology.hosts[nic]):
            self.agents[nic] = subprocess.Popen(
                [*MRC, "mapper", "--controller", f"{MANAGEMENT_ROUTER}:{PORT}", *SCHEDULE],
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


def trial(bench: Bench, kind: str, rng: np.random.Generator) -> dict[str, Any]:
    """Break a link, see who is named, heal it."""
    fabric = bench.fabric
    port = int(rng.integers(fabric.n_ports))
    (before,) = bench.rows("SELECT coalesce(max(id), 0) FROM place")[0]
    time.sleep(float(rng.uniform(0, 0.1)))
    broke_us = time.time_ns() // 1000
    if kind == "cut":
        truth = {fabric.port_name(port), fabric.port_name(int(fabric.port_reverse[port]))}
        bench.lab.fail(fabric.link_name(port), "link-down")
    else:
        truth = {fabric.port_name(port)}
        rate = 1.0 if kind == "one way" else 0.1
        bench.lab.fail(fabric.port_name(port), "link-loss", rate=rate)
    sql = f"SELECT place, since_us, named_us FROM place WHERE id > {before}"
    bench.wait(sql, len(truth), WAIT_S)
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
        "right": found == truth and took_ms <= LIMIT_MS,
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


def one_switch(switch: str, trials: int, seed: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        scenario = directory / "lab.toml"
        scenario.write_text(SCENARIO.format(switch=switch))
        out = directory / "result.json"

        def work(lab: Lab) -> int:
            lab.begin()
            bench = Bench(lab, directory, scenario)
            try:
                out.write_text(json.dumps(measure(bench, trials, seed)))
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
    arguments = parser.parse_args()
    results = {}
    for switch in arguments.switch or ["openmrc", "linux"]:
        found = results[switch] = one_switch(switch, arguments.trials, arguments.seed)
        if arguments.json:
            continue
        print(
            f"{switch}: {found['joined']} agents, cost {found['cost']:.1%} of a core, load"
            f" {found['load']:.1f} to {found['load_after']:.1f}; named while nothing was broken:"
            f" {found['alarms_quiet'] or 'nothing'}"
        )
        for kind in KINDS:
            took = sorted(one["ms"] for one in found[kind] if one["ms"] is not None)
            right = sum(one["right"] for one in found[kind])
            whole = sorted(one["since_broken_ms"] for one in found[kind] if one["ms"] is not None)
            times = "never"
            if took:
                times = f"{took[len(took) // 2]} ms, {took[-1]} ms at most; since it broke "
                times += f"{whole[len(whole) // 2]} ms, {whole[-1]} ms at most"
            print(f"  {kind:8} {right} of {len(found[kind])} right, {times}")
            for one in found[kind]:
                if not one["right"]:
                    print(f"    {one}")
        print(f"  killed   {found['killed']}")
    if arguments.json:
        print(json.dumps(results, indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
