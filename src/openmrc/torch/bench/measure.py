"""One rank's part of `mrc bench torch`: the backends in turn, round by round, on the same tensor
sizes, so that other load on the machine affects all.

`through_a_cut` makes enough calls for a plane to go silent and return meanwhile.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from openmrc.torch.bench import congestion
from openmrc.torch.bench.cases import CASES, ELEMENT_BYTES, ROOT, Case, Job, count_of
from openmrc.torch.bench.network import CUT_AFTER_S, CUT_S

# Requests that a plane be cut; the function that it returns waits until the plane is repaired.
Cut = Callable[[], Callable[[], None]]

OURS, GLOO, CUBIC = "mrc", "gloo", "gloo_cubic"
WARM, ROUNDS = 3, 5
ROUND_S = 0.1  # of one backend's calls, as far as `CALLS` allows
CALLS = (2, 200)  # of a round: minimum, maximum
THROUGH = (4, 20_000)  # the same through a cut
BEHIND_S = 0.5  # of calls after a cut, at least
REST_S = 0.3  # after it, before the next measurement

Row = dict[str, Any]


def groups() -> dict[str, Any]:
    """The backends among all ranks, MRC's being the default group. Gloo is also present with CUBIC,
    if that is not the kernel's default and may be chosen.
    """
    found = {OURS: dist.group.WORLD, GLOO: dist.new_group(backend="gloo")}
    if congestion.default() != congestion.CUBIC and not congestion.refusal(congestion.CUBIC):
        found[CUBIC] = congestion.gloo_group(congestion.CUBIC)
    return found


def measure(
    collectives: Sequence[str],
    sizes_bytes: Sequence[int],
    by_name: dict[str, Any],
    on_row: Callable[[Row], None] = lambda row: None,
    cut: Cut | None = None,
) -> list[Row]:
    """Return a row for each collective and size; the same at all ranks. Without `cut` none is
    measured.
    """
    rows = []
    for name in collectives:
        for size_bytes in sizes_bytes:
            rows.append(_row(name, size_bytes, by_name, cut))
            on_row(rows[-1])
    return rows


def _row(
    name: str,
    size_bytes: int,
    by_name: dict[str, Any],
    cut: Cut | None,
) -> Row:
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
    if cut is not None:
        row["cut"] = {}
    for place in ("out_of_place", "in_place"):
        for part in (row, row["cut"]) if cut is not None else (row,):
            part[place] = {} if place == "out_of_place" or case.in_place else None
        if row[place] is None:
            continue
        jobs = {
            backend: case.make(group, me, n, count, place == "in_place")
            for backend, group in by_name.items()
        }
        times_s = _times(jobs, by_name)
        for backend, job in jobs.items():
            told = _slowest(by_name, times_s[backend], float(job.wrong()))
            row[place][backend] = _figures(case, count, *told)
            if cut is not None:
                calls = through_a_cut(told[0], job, by_name, cut)
                mean_s, longest_s, wrong = _slowest(
                    by_name, statistics.fmean(calls), max(calls), float(job.wrong())
                )
                figures = _figures(case, count, mean_s, wrong)
                row["cut"][place][backend] = {**figures, "longest_us": longest_s * 1e6}
    return row


def _figures(case: Case, count: int, time_s: float, wrong: float) -> dict[str, Any]:
    algbw = count * ELEMENT_BYTES / time_s / 1e9
    return {
        "time_us": time_s * 1e6,
        "algbw_gbytes_per_s": algbw,
        "busbw_gbytes_per_s": algbw * case.links(dist.get_world_size()),
        "wrong": int(wrong),
    }


def _slowest(by_name: dict[str, Any], *values: float) -> list[float]:
    """The largest of each value at any rank."""
    told = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(told, dist.ReduceOp.MAX, group=by_name[GLOO])
    return list(told.tolist())


def through_a_cut(healthy_s: float, job: Job, by_name: dict[str, Any], cut: Cut) -> list[float]:
    """Times of all calls, s: as many as, at a healthy call's time, fill the period from before a
    cut to after it, however long they then take.
    """
    calls = math.ceil((CUT_AFTER_S + CUT_S + BEHIND_S) / healthy_s)
    dist.barrier(group=by_name[GLOO])
    whole = cut()
    times = _round(job, min(max(calls, THROUGH[0]), THROUGH[1]))
    whole()
    dist.barrier(group=by_name[GLOO])
    time.sleep(REST_S)
    return times


def _times(jobs: dict[str, Job], by_name: dict[str, Any]) -> dict[str, float]:
    """The median time of a call, s, by backend."""
    calls = {}
    for backend, job in jobs.items():
        job.fill()
        for _ in range(WARM):
            job.call()
        started = time.perf_counter()
        job.call()
        [took] = _slowest(by_name, time.perf_counter() - started)  # the same for all ranks
        calls[backend] = int(min(max(ROUND_S / took, CALLS[0]), CALLS[1]))
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
    job.fill()  # in place, repeated sums would overflow
    found = []
    for call in range(calls):
        if call % 32 == 31:
            job.fill()
        started = time.perf_counter()
        job.call()
        found.append(time.perf_counter() - started)
    return found
