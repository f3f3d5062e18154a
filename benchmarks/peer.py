"""openmrc and htsim on the same files, in turns: link traversals per second of both, and the ratio.

    .venv/bin/python benchmarks/peer.py --htsim PATH --topo X.topo --cm Y.cm [--repeat 3]

PATH is a binary of htsim's `htsim_uec` that you built; nothing of it is here. openmrc counts its
link traversals. htsim prints packets, not traversals: they are worked out as packets times the
links of a flow's path, averaged over the flows by size, unless --peer-traversals gives a counted
number.

Both event loops are compared, without set-up: openmrc's own `loop_s`; for htsim the time of the run
less that of one that ends after a simulated microsecond. The best run of each counts.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from openmrc.scenario.scenario import peer_scenario

TOTALS = re.compile(r"New: (\d+) Rtx: (\d+) RTS: (\d+).*?ACKs: (\d+) NACKs: (\d+)")
FINISHED = re.compile(r"finished at ([0-9.]+)")
END_US = 20_000


def links_of_a_packet(topo: str, cm: str) -> float:
    """Links on the way of a packet, averaged over the flows by their size."""
    fabric, traffic, _ = peer_scenario(topo, cm).build()
    links = 2 * (fabric.uplinks(traffic.msg_src, traffic.msg_dst) + 1)
    return float(np.average(links, weights=traffic.msg_bytes))


def traversals_of(output: str, links: float) -> int:
    """Link traversals of a run of htsim, from its last line of totals."""
    totals = TOTALS.findall(output)
    if not totals:
        raise SystemExit("peer: the output has no line of totals; give --peer-traversals")
    return round(sum(int(number) for number in totals[-1]) * links)


def run_peer(command: list[str], end_us: int, directory: str) -> tuple[float, str]:
    """Seconds of one run, and what it printed."""
    full = [*command, "-end", str(end_us), "-o", str(Path(directory) / "log")]
    started = time.perf_counter()
    done = subprocess.run(
        full,
        cwd=directory,  # htsim leaves files where it runs
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    seconds = time.perf_counter() - started
    if done.returncode:
        raise SystemExit(f"peer: {' '.join(full)} ended with status {done.returncode}")
    return seconds, done.stdout


def run_openmrc(topo: str, cm: str) -> dict[str, Any]:
    """One run in a fresh process: its object in summary.json."""
    command = [sys.executable, "-m", "openmrc.cli", "run", "--topo", topo, "--cm", cm, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"openmrc ended with status {done.returncode}: {done.stderr.strip()}")
    run: dict[str, Any] = json.loads(done.stdout)["transports"]["mrc"]
    return run


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--htsim", required=True, metavar="PATH", help="the binary htsim_uec")
    parser.add_argument("--topo", required=True, metavar="FILE")
    parser.add_argument("--cm", required=True, metavar="FILE")
    parser.add_argument("--repeat", type=int, default=3, metavar="N")
    parser.add_argument("--peer-traversals", type=int, metavar="N")
    arguments = parser.parse_args(argv)
    fabric, _, _ = peer_scenario(arguments.topo, arguments.cm).build()
    mbps = int(fabric.port_rate_bps[0]) // 10**6
    htsim, cm, topo = (
        str(Path(path).resolve()) for path in (arguments.htsim, arguments.cm, arguments.topo)
    )
    command = [htsim, "-tm", cm, "-topo", topo]
    command += ["-linkspeed", str(mbps), "-paths", "64", "-load_balancing_algo", "mixed"]

    theirs_s: list[float] = []
    ours: list[dict[str, Any]] = []
    output = ""
    with tempfile.TemporaryDirectory() as directory:
        set_up_s = min(run_peer(command, 1, directory)[0] for _ in range(2))
        for turn in range(arguments.repeat):
            seconds, output = run_peer(command, END_US, directory)
            theirs_s.append(seconds - set_up_s)
            ours.append(run_openmrc(arguments.topo, arguments.cm))
            print(
                f"{turn + 1}: htsim {theirs_s[-1]:.2f} s, openmrc {ours[-1]['loop_s']:.2f} s",
                file=sys.stderr,
            )
    links = links_of_a_packet(arguments.topo, arguments.cm)
    traversals = arguments.peer_traversals or traversals_of(output, links)
    peer_per_s = traversals / min(theirs_s)
    best = max(ours, key=lambda run: float(run["link_traversals_per_s"]))
    per_s = float(best["link_traversals_per_s"])
    fct = sorted(float(us) for us in FINISHED.findall(output))
    print(f"{'':10}{'traversals':>12}{'loop s':>9}{'M/s':>8}{'last flow us':>14}")
    for name, n, seconds, rate, last in (
        ("htsim", traversals, min(theirs_s), peer_per_s, fct[-1] if fct else float("nan")),
        (
            "openmrc",
            best["link_traversals"],
            best["loop_s"],
            per_s,
            best["flows"]["fct_us"]["p100"] or float("nan"),
        ),
    ):
        print(f"{name:10}{n:12,}{seconds:9.2f}{rate / 1e6:8.2f}{last:14.1f}")
    print(f"ratio of link traversals per second: {per_s / peer_per_s:.1f}")


if __name__ == "__main__":
    main()
