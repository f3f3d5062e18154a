"""One rank's part of `mrc bench torch`: both backends in turn, round by round, on the same tensors'
sizes, so what else the machine does happens to both.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from openmrc.torch.bench.cases import CASES, ELEMENT_BYTES, ROOT, Job, count_of

OURS, GLOO = "mrc", "gloo"
WARM, ROUNDS = 3, 5
ROUND_S = 0.1  # of one backend's calls, as far as `CALLS` allow
CALLS = (2, 200)  # of a round: at least, at most

Row = dict[str, Any]


def groups() -> dict[str, Any]:
    """Both backends among all ranks, MRC's being the default group."""
    return {OURS: dist.group.WORLD, GLOO: dist.new_group(backend="gloo")}


def measure(
    collectives: Sequence[str],
    sizes_bytes: Sequence[int],
    by_name: dict[str, Any],
    on_row: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """A row for each collective and size; the same at all ranks."""
    rows = []
    for name in collectives:
        for size_bytes in sizes_bytes:
            rows.append(_row(name, size_bytes, by_name))
            on_row(rows[-1])
    return rows


def _row(name: str, size_bytes: int, by_name: dict[str, Any]) -> Row:
    case, n, me = CASES[name], dist.get_world_size(), dist.get_rank()
    count = count_of(size_bytes, n)
    row: Row = {
        "collective": name,
        "ranks": n,
        "size_bytes": count * ELEMENT_BYTES,
        "count": count,
        "type": "float32",
        "redop": "sum" if case.reduces else None,
        "root": ROOT if case.rooted else None,
    }
    for place in ("out_of_place", "in_place"):
        if place == "in_place" and not case.in_place:
            row[place] = None
            continue
        jobs = {
            backend: case.make(group, me, n, count, place == "in_place")
            for backend, group in by_name.items()
        }
        times_s = _times(jobs, by_name)
        row[place] = {}
        for backend, job in jobs.items():
            told = torch.tensor([times_s[backend], float(job.wrong())], dtype=torch.float64)
            dist.all_reduce(told, dist.ReduceOp.MAX, group=by_name[GLOO])  # the slowest rank's
            time_s = float(told[0])
            algbw = count * ELEMENT_BYTES / time_s / 1e9
            row[place][backend] = {
                "time_us": time_s * 1e6,
                "algbw_gbytes_per_s": algbw,
                "busbw_gbytes_per_s": algbw * case.links(n),
                "wrong": int(told[1]),
            }
    return row


def _times(jobs: dict[str, Job], by_name: dict[str, Any]) -> dict[str, float]:
    """The median time of a call, s, by backend."""
    calls = {}
    for backend, job in jobs.items():
        job.fill()
        for _ in range(WARM):
            job.call()
        started = time.perf_counter()
        job.call()
        took = torch.tensor([time.perf_counter() - started], dtype=torch.float64)
        dist.all_reduce(took, dist.ReduceOp.MAX, group=by_name[GLOO])  # all ranks call as often
        calls[backend] = int(min(max(ROUND_S / float(took[0]), CALLS[0]), CALLS[1]))
    times: dict[str, list[float]] = {backend: [] for backend in jobs}
    gc.collect()
    gc.disable()
    try:
        for _ in range(ROUNDS):
            for backend, job in jobs.items():
                dist.barrier(group=by_name[GLOO])
                times[backend] += _round(job, calls[backend])
    finally:
        gc.enable()
    return {backend: statistics.median(all_) for backend, all_ in times.items()}


def _round(job: Job, calls: int) -> list[float]:
    job.fill()  # in place, what is added again and again would grow beyond all numbers
    found = []
    for call in range(calls):
        if call % 32 == 31:
            job.fill()
        started = time.perf_counter()
        job.call()
        found.append(time.perf_counter() - started)
    return found
