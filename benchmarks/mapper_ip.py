"""The mapper on an ordinary network: plain UDP between namespaces, and which host's link is named.

    .venv/bin/python benchmarks/mapper_ip.py [--hosts N] [--ip 4|6] [--trials N] [--json]

Hosts with two planes, each a bridge, and a third for the controller; an agent on each, 20 ms a
period. Each trial breaks one host's link on one plane: its cable is cut (the host sees no carrier),
or a direction silently loses everything. It counts as right if just that link and direction (for a
cut: both) are named. Without root and without a trace.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from openmrc.live.lab.isolation import run_isolated
from openmrc.live.lab.namespaces import ROOT, Batch
from openmrc.ops.mapper.command import PORT
from openmrc.torch.bench.network import Network, address
from openmrc.verbs import secret as secrets

MRC = [sys.executable, "-m", "openmrc.cli"]
SCHEDULE = ["--period", "20ms", "--load", "1%"]
PLANES, MANAGEMENT = 2, 2
CONTROLLER = f"10.77.{MANAGEMENT}.254"
KINDS = ("cut", "sends nothing", "hears nothing")
COME_S, WAIT_S, OVER_S = 120.0, 10.0, 30.0


class Bench:
    """The network with its agents and its controller."""

    def __init__(self, hosts: int, version: int, directory: Path) -> None:
        self.network = Network(hosts, PLANES + 1)
        self.history = directory / "history.sqlite"
        planes, run = range(PLANES), self.network.namespaces.run
        if version == 6:
            lines = [[f"address add {address(h, p, 6)}/64 dev e{p} nodad" for p in planes]
                     for h in range(hosts)]  # fmt: skip
            run(Batch(f"h{h}", "ip", own) for h, own in enumerate(lines))
        run([Batch(ROOT, "ip", [f"address add {CONTROLLER}/24 dev b{MANAGEMENT}"])])
        table = {"hosts": [[address(h, p, version) for p in planes] for h in range(hosts)]}
        self.file = directory / "network.toml"
        self.file.write_text(f'[network]\nrate = "100Mbps"\nhosts = {json.dumps(table["hosts"])}\n')
        self.log = (directory / "log").open("ab")
        common = {
            "env": {**os.environ, "OPENMRC_SECRET": secrets.new().hex()},
            "stdout": self.log,
            "stderr": self.log,
        }
        words = [
            "ops",
            "controller",
            self.file,
            "--listen",
            CONTROLLER,
            "--history",
            self.history,
            *SCHEDULE,
        ]
        with self.network.namespaces.inside(ROOT):
            self.processes = [subprocess.Popen([*MRC, *map(str, words)], **common)]
        words = ["ops", "agent", "--network", self.file, "--controller", f"{CONTROLLER}:{PORT}"]
        self.processes += [
            self.network.start(host, [*MRC, *map(str, words), *SCHEDULE], **common)
            for host in range(hosts)
        ]

    def rows(self, sql: str) -> list[Any]:
        with contextlib.closing(sqlite3.connect(f"file:{self.history}?mode=ro", uri=True)) as db:
            return db.execute(sql).fetchall()

    def wait(self, sql: str, n: int, timeout_s: float) -> list[Any]:
        """The rows as soon as there are `n`, or those that are there after the time."""
        until, rows = time.monotonic() + timeout_s, list[Any]()
        while len(rows) < n and time.monotonic() < until:
            time.sleep(0.02)
            with contextlib.suppress(sqlite3.OperationalError):
                rows = self.rows(sql)
        return rows

    def trial(self, kind: str, host: int, plane: int) -> dict[str, Any]:
        """Break a link, see who is named, heal it."""
        (before,) = self.rows("SELECT coalesce(max(id), 0) FROM place")[0]
        ways = {"cut": "<>", "sends nothing": ">", "hears nothing": "<"}[kind]
        truth = {f"nic {host} plane {plane} {way} t0" for way in ways}
        end, cable = f"h{host}", f"p{plane}h{host}"
        where, device = (end, f"e{plane}") if kind == "hears nothing" else (ROOT, cable)
        drop = f"type filter hook ingress device {device} priority 0; policy drop;"
        broken, mended = (
            (("ip", f"link set {cable} down"), ("ip", f"link set {cable} up"))
            if kind == "cut"
            else (
                ("nft", f"table netdev x {{ chain c {{ {drop} }}; }}"),
                ("nft", "delete table netdev x"),
            )
        )
        broke_us = time.time_ns() // 1000
        self.network.namespaces.run([Batch(where, broken[0], [broken[1]])])
        sql = f"SELECT place, named_us FROM place WHERE id > {before}"
        self.wait(sql, len(truth), WAIT_S)
        time.sleep(0.3)  # what is wrong may come after what is right
        rows = self.rows(sql)
        self.network.namespaces.run([Batch(where, mended[0], [mended[1]])])
        self.wait(f"{sql} AND until_us IS NOT NULL", len(rows), OVER_S)
        found = {place for place, _ in rows}
        last_us = max((named for place, named in rows if place in truth), default=0)
        return {
            "kind": kind,
            "truth": sorted(truth),
            "found": sorted(found),
            "right": found == truth,
            "since_broken_ms": round((last_us - broke_us) / 1e3, 1) if truth <= found else None,
        }

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        self.log.close()


def measure(arguments: argparse.Namespace, directory: Path) -> list[dict[str, Any]]:
    bench = Bench(arguments.hosts, arguments.ip, directory)
    try:
        joined = bench.wait("SELECT nic FROM agent WHERE joined", arguments.hosts, COME_S)
        if len(joined) < arguments.hosts:
            raise SystemExit((directory / "log").read_text())
        time.sleep(1)
        rng = np.random.default_rng(arguments.seed)
        alarms = [row[0] for row in bench.rows("SELECT place FROM place")]
        rows = [{"kind": "quiet", "truth": [], "found": alarms, "right": not alarms}]
        for kind in KINDS:
            for _ in range(arguments.trials):
                host, plane = int(rng.integers(arguments.hosts)), int(rng.integers(PLANES))
                rows.append(bench.trial(kind, host, plane))
        return rows
    finally:
        bench.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--ip", type=int, choices=(4, 6), default=4)
    parser.add_argument("--trials", type=int, default=10, help="of each kind (default: 10)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    arguments = parser.parse_args()

    def work() -> int:
        with tempfile.TemporaryDirectory() as name:
            rows = measure(arguments, Path(name))
        if arguments.json:
            print(json.dumps(rows))
            return 0
        for row in rows:
            print(row)
        print(f"{sum(row['right'] for row in rows)} of {len(rows)} right; load {os.getloadavg()}")
        return 0

    return run_isolated(work)


if __name__ == "__main__":
    raise SystemExit(main())
