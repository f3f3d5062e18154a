"""Training steps as a workload: the phases of a job (`phases`), written out for every rank.

Computations are computations of the DAG (`traffic`), collectives those of `collectives`, one series
for each rank if they go round a ring; queue pairs serve all steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import numpy.typing as npt

from openmrc.errors import InputError
from openmrc.traffic.traffic import LongArray, Traffic
from openmrc.workload.collectives import all_gather, all_to_all, reduce_scatter, ring_all_reduce
from openmrc.workload.dag import Codes, Dag, calc_numbers
from openmrc.workload.layout import Layout
from openmrc.workload.phases import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    ENTRIES_MAX,
    GROUPS,
    REDUCE_SCATTER,
    Collective,
    Compute,
    Message,
    Phase,
    Post,
    Work,
    phases,
    ways,
)
from openmrc.workload.pipeline import FORWARD

COLLECTIVES: dict[str, Callable[[int, int], Traffic]] = {
    ALL_REDUCE: ring_all_reduce,
    REDUCE_SCATTER: reduce_scatter,
    ALL_GATHER: all_gather,
    ALL_TO_ALL: all_to_all,
}


def training(
    n_nics: int, layout: Layout, work: Work, seed: int = 1, nics: npt.ArrayLike | None = None
) -> Traffic:
    """Return the steps of a job on `n_nics` NICs, of which rank r is `nics[r]`, or NIC r.

    Its `step_ends` are the computations that end each rank's steps; the first error of a queue pair
    ends the job. Raises `InputError` for what cannot be divided.
    """
    ranks = np.arange(layout.n_ranks) if nics is None else np.asarray(nics, np.int64)
    _check_room(layout, work)
    written = _Written(layout, work, ranks)
    for phase in phases(layout, work, seed):
        written.add(phase)
    traffic = written.dag.traffic("training", n_nics)
    return replace(traffic, step_ends=written.ends, ends_on_error=True)


class _Written:
    """What has been written out: of each phase its entries, and by index the ranks of its stage
    that have its result with them.
    """

    def __init__(self, layout: Layout, work: Work, nics: LongArray) -> None:
        self.dag = Dag()
        self._layout, self._work = layout, work
        n_stages = layout.size("pp")
        self._stages = [layout.stage(i) for i in range(n_stages)]
        self._nics = [nics[ranks] for ranks in self._stages]
        self._everyone = np.arange(len(self._stages[0]))
        self._groups = {
            (stage, name): layout.groups_of_stage(stage, *dimensions)
            for stage in range(n_stages)
            for name, dimensions in GROUPS.items()
        }
        self._between = {
            (way, i): self.dag.qps(self._nics[i], self._nics[i + (1 if way == FORWARD else -1)])
            for way, i in ways(n_stages)
        }
        self._qps: dict[tuple[int, bytes, bool], LongArray] = {}
        self._made: list[tuple[Codes, LongArray]] = []
        self.ends = np.zeros((work.steps, layout.n_ranks), np.int64)

    def add(self, phase: Phase) -> None:
        """Write out one more phase."""
        if isinstance(phase, Compute):
            entries = self._compute(phase), self._everyone
        elif isinstance(phase, Collective):
            entries = self._collective(phase)
        elif isinstance(phase, Message):
            qps = self._between[phase.way, phase.stage]
            entries = self.dag.messages(qps, self._work.sizes.pp), self._everyone
        else:
            entries = self._post(phase), self._everyone
        self._made.append(entries)

    def _compute(self, phase: Compute) -> Codes:
        calc = self.dag.compute(phase.ps)
        for giving, place in (self._made[number] for number in phase.after):
            self.dag.release(giving, calc[place])
        if phase.step is not None:
            self.ends[phase.step, self._stages[phase.stage]] = calc_numbers(calc)
        return calc

    def _post(self, phase: Post) -> Codes:
        message, _ = self._made[phase.message]
        self.dag.release(self._made[phase.after][0], message)
        return message

    def _collective(self, phase: Collective) -> tuple[Codes, LongArray]:
        groups = self._groups[phase.stage, phase.group]
        made = _collective(phase.kind, groups.shape[1], phase.size)
        key = phase.stage, groups.tobytes(), phase.kind == ALL_TO_ALL
        if key not in self._qps:
            nics = self._nics[phase.stage]
            ends = (nics[groups[:, qps]].ravel() for qps in (made.qp_src, made.qp_dst))
            self._qps[key] = self.dag.qps(*ends)
        entries = self.dag.copies(made, self._qps[key], len(groups))
        begun = self._made[phase.after][0]
        self.dag.release(begun[groups[:, made.msg_src].ravel()], entries)
        return entries, groups[:, made.msg_dst].ravel()


@cache
def _collective(kind: str, n: int, size: int) -> Traffic:
    """One collective among n ranks."""
    return COLLECTIVES[kind](n, size)


def _check_room(layout: Layout, work: Work) -> None:
    stages = layout.size("pp")
    per_step = 2 * work.microbatches * work.layers // stages * (8 + 2 * layout.size("ep"))
    if work.steps * per_step * layout.n_ranks > ENTRIES_MAX:
        raise InputError(
            f"workload.steps: {work.steps} steps of {layout.n_ranks} ranks are about"
            f" {work.steps * per_step * layout.n_ranks} messages, series and computations; at most"
            f" {ENTRIES_MAX} are accepted, take fewer steps, layers or microbatches"
        )
