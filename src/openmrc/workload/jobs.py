"""Several jobs on one fabric: each a workload of its own, placed on some of the NICs.

    job = Job("training", ring_all_reduce(8, 10**6), read_nics("even", 16), start_ps=0)
    traffic = several_jobs([job, other], n_nics=16)

A job's workload knows only its own ranks, 0 to n - 1; its placement says which NIC each is. Jobs
may share NICs. Their messages keep their order, those of the first job come first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np

from openmrc.errors import InputError
from openmrc.traffic.traffic import IntArray, LongArray, Traffic

NICS_WORDS = 'accepted: "all", "even", "odd", "every 4 from 2", "0-15", "3, 8-11", or a list'
_EVERY = re.compile(r"every ([0-9]+)(?: from ([0-9]+))?", re.ASCII)
_RUN = re.compile(r"([0-9]+)(?:-([0-9]+))?", re.ASCII)


@dataclass(frozen=True)
class Job:
    """One job: `traffic` for `len(nics)` ranks, of which rank r is NIC `nics[r]`."""

    name: str
    traffic: Traffic
    nics: LongArray
    start_ps: int = 0


def several_jobs(jobs: Sequence[Job], n_nics: int) -> Traffic:
    """Return one workload of all jobs; `msg_job` is the job of each message."""
    if not jobs:
        raise InputError("workload.job: there is none; at least one is needed")
    each = [job.traffic for job in jobs]
    qps = _starts([t.n_qps for t in each])
    msgs = _starts([t.n_msgs for t in each])

    def joined(column: str) -> Any:
        return np.concatenate([getattr(t, column) for t in each])

    # Entry e of a job is entry `place[e]` of all: messages of all jobs first, then computations.
    calcs = _starts([sum(t.n_msgs for t in each), *(t.n_calcs for t in each)])[1:]
    places = [
        np.concatenate([np.arange(t.n_msgs) + m, np.arange(t.n_calcs) + c])
        for t, m, c in zip(each, msgs, calcs, strict=True)
    ]

    def rows(kind: str) -> tuple[IntArray, IntArray]:
        nexts = [getattr(t, f"{kind}_next") for t in each]
        lengths = [np.diff(getattr(t, f"{kind}_first")) for t in each]
        giving = [np.repeat(place, n) for place, n in zip(places, lengths, strict=True)]
        order = np.argsort(np.concatenate(giving), kind="stable")
        nxt = np.concatenate([place[nxt] for place, nxt in zip(places, nexts, strict=True)])
        first = np.zeros(sum(map(len, places)) + 1, np.int32)
        np.cumsum(np.bincount(np.concatenate(giving), minlength=len(first) - 1), out=first[1:])
        return first, nxt[order].astype(np.int32)

    recv_first, recv_next = rows("recv")
    sent_first, sent_next = rows("sent")
    start_ps = np.repeat([job.start_ps for job in jobs], [t.n_msgs for t in each])
    calc_start_ps = np.repeat([job.start_ps for job in jobs], [t.n_calcs for t in each])
    cores = _starts([int(t.calc_core.max(initial=0)) for t in each])  # core 0 means no core
    core = [np.where(t.calc_core > 0, t.calc_core + c, 0) for t, c in zip(each, cores, strict=True)]
    derived = ("msg_qp", "msg_start_ps", "msg_job", "calc_start_ps", "calc_core")
    same = {
        column: joined(column)
        for column in vars(each[0])
        if column.startswith(("msg_", "calc_")) and column not in derived
    }
    return replace(
        each[0],
        **same,
        kind="jobs",
        n_nics=n_nics,
        qp_src=np.concatenate([job.nics[job.traffic.qp_src] for job in jobs]).astype(np.int32),
        qp_dst=np.concatenate([job.nics[job.traffic.qp_dst] for job in jobs]).astype(np.int32),
        msg_qp=np.concatenate([t.msg_qp + q for t, q in zip(each, qps, strict=True)]).astype(
            np.int32
        ),
        msg_start_ps=joined("msg_start_ps") + start_ps,
        calc_start_ps=joined("calc_start_ps") + calc_start_ps,
        calc_core=np.concatenate(core).astype(np.int32),
        recv_first=recv_first,
        recv_next=recv_next,
        sent_first=sent_first,
        sent_next=sent_next,
        msg_job=np.repeat(np.arange(len(jobs)), [t.n_msgs for t in each]).astype(np.int32),
        jobs=tuple(job.name for job in jobs),
    )


def read_nics(text: str, n_nics: int) -> LongArray:
    """Return the NICs that a placement names, in its order, which is the order of ranks.

    "all", "even", "odd", "every 4 from 2", or numbers and ranges: "3, 8-11". `InputError` says what
    is wrong with it; the caller adds the place.
    """
    words = {"all": "every 1", "even": "every 2", "odd": "every 2 from 1"}
    if every := _EVERY.fullmatch(words.get(text.strip(), text.strip())):
        stride, first = int(every[1]), int(every[2] or 0)
        if stride < 1:
            raise InputError(f"{text!r}: 1 or more apart is accepted")
        nics = list(range(first, n_nics, stride))
    else:
        nics = []
        for part in text.split(","):
            run = _RUN.fullmatch(part.strip())
            if run is None:
                raise InputError(f"{text!r} is refused; {NICS_WORDS}")
            first, last = int(run[1]), int(run[2] or run[1])
            if not first <= last < n_nics:
                raise InputError(
                    f"{part.strip()!r}: NICs 0 to {n_nics - 1} exist, and a range goes upwards"
                )
            nics += range(first, last + 1)
    if len(nics) < 2 or len(set(nics)) != len(nics):
        raise InputError(f"{text!r}: two or more different NICs below {n_nics} are needed")
    return np.array(nics, np.int64)


def _starts(sizes: Sequence[int]) -> list[int]:
    return [0, *accumulate(sizes)][:-1]
