"""A collective on a small tensor between two ranks of two hosts, over MRC and over Gloo in turn.

The hosts are network namespaces, joined by a virtual Ethernet for each plane; Gloo uses the first.
Every call is timed at both ranks; of each pair of times the longer counts. Beside them: CPU time of
the calling thread and of the process, and changes of threads, for a call; and what the process
takes while nobody asks for anything.

    .venv/bin/python benchmarks/small.py [--collective all_reduce] [--size 1024] [--planes 2]
        [--rounds 20] [--calls 200]
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import resource
import subprocess
import sys
import time
from typing import Any

from openmrc.live.lab.isolation import run_isolated
from openmrc.torch.bench.command import COLLECTIVES
from openmrc.torch.bench.network import Network

BACKENDS = ("mrc", "gloo")
COSTS = ("caller", "cpu", "changes")  # of all calls: CPU time in us, and changes of threads
REST_S = 3.0
WARM = 50


def rank(options: argparse.Namespace) -> None:
    """One rank: rank 0 prints what both found."""
    import torch
    import torch.distributed as dist

    from openmrc.torch.bench.cases import CASES, count_of

    torch.set_num_threads(1)
    dist.init_process_group("mrc")
    groups: dict[str, Any] = {"mrc": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
    me, n, case = dist.get_rank(), dist.get_world_size(), CASES[options.collective]
    jobs = {
        name: case.make(group, me, n, count_of(options.size, n), case.in_place)
        for name, group in groups.items()
    }
    found: dict[str, Any] = {name: {"us": [], **dict.fromkeys(COSTS, 0)} for name in groups}
    for job in jobs.values():
        job.fill()
        for _ in range(WARM):
            job.call()
    profile = cProfile.Profile() if options.profile else None
    for _ in range(options.rounds):
        for name, job in jobs.items():
            job.fill()
            dist.barrier(group=groups["gloo"])
            if profile is not None and name == "mrc":
                profile.enable()
            _round(options.calls, job.call, found[name])
            if profile is not None:
                profile.disable()
    before = time.process_time()
    time.sleep(REST_S)
    found["rest_cpu_share"] = (time.process_time() - before) / REST_S
    both: list[Any] = [None, None]
    dist.all_gather_object(both, found, group=groups["gloo"])
    dist.destroy_process_group()
    if dist.is_initialized() or int(os.environ["RANK"]) != 0:
        return
    print(json.dumps(both))
    if profile is not None:
        import pstats

        pstats.Stats(profile, stream=sys.stderr).sort_stats("tottime").print_stats(45)


def _round(calls: int, call: Any, found: dict[str, Any]) -> None:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cpu, caller = time.process_time(), time.thread_time()
    for _ in range(calls):
        started = time.perf_counter_ns()
        call()
        found["us"].append((time.perf_counter_ns() - started) / 1e3)
    now = resource.getrusage(resource.RUSAGE_SELF)
    found["caller"] += (time.thread_time() - caller) * 1e6
    found["cpu"] += (time.process_time() - cpu) * 1e6
    found["changes"] += now.ru_nvcsw + now.ru_nivcsw - usage.ru_nvcsw - usage.ru_nivcsw


def summary(both: list[dict[str, Any]]) -> dict[str, Any]:
    """Of each backend, times in us of the slower rank; the rest a call, of the busier rank."""
    rows: dict[str, Any] = {}
    for name in BACKENDS:
        us = sorted(max(pair) for pair in zip(*(one[name]["us"] for one in both), strict=True))
        rows[name] = {
            **{f"p{p:g}": us[min(int(len(us) * p / 100), len(us) - 1)] for p in (10, 50, 99, 100)},
            "mean": sum(us) / len(us),
            **{k: max(one[name][k] for one in both) / len(us) for k in COSTS},
        }
    for of in ("p50", "mean"):
        rows[f"ratio_{of}"] = rows["mrc"][of] / rows["gloo"][of]
    rows["rest_cpu_share"] = max(one["rest_cpu_share"] for one in both)
    return rows


def work(options: argparse.Namespace) -> int:
    """Both hosts, and a rank on each."""
    shape = {"mtu": options.mtu, "version": options.ip, "rate_mbps": options.rate_mbps}
    network = Network(2, options.planes, **shape)
    command = [sys.executable, __file__, *sys.argv[1:], "--rank"]
    ranks = [network.rank(number, command, stdout=subprocess.PIPE) for number in range(2)]
    said, _ = ranks[0].communicate()
    ranks[1].communicate()
    if not said:
        return 1
    rows = summary(json.loads(said.splitlines()[-1]))
    rows["load"] = os.getloadavg()[0]
    if options.json:
        print(json.dumps(rows))
        return 0
    for name in BACKENDS:
        row = rows[name]
        print(
            f"{name:5}"
            + "".join(f"  {p} {row[p]:8.1f} us" for p in ("p10", "p50", "mean", "p99", "p100"))
            + f"  caller {row['caller']:6.1f} us, process {row['cpu']:6.1f} us,"
            f" {row['changes']:.2f} changes of threads a call"
        )
    print(
        f"median: {rows['ratio_p50']:.2f} times Gloo's, mean: {rows['ratio_mean']:.2f}; at rest"
        f" {100 * rows['rest_cpu_share']:.2f} % of a core; load {rows['load']:.1f}"
    )
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--collective", choices=COLLECTIVES, default=COLLECTIVES[0])
    parser.add_argument("--size", type=int, default=1024, help="bytes")
    parser.add_argument("--planes", type=int, default=2)
    parser.add_argument("--mtu", type=int, default=9000)
    parser.add_argument("--ip", type=int, default=4, choices=(4, 6))
    parser.add_argument("--rate-mbps", type=int, default=0, help="of each plane; 0: no limit")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--calls", type=int, default=200, help="of a round, of each backend")
    parser.add_argument("--profile", action="store_true", help="Python's profile of rank 0")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        rank(options)
        return 0
    return run_isolated(lambda: work(options))


if __name__ == "__main__":
    sys.exit(main())
