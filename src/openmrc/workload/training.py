"""Training steps as a workload: compute, and the communication that goes with it.

Each rank processes its microbatches in the order of `pipeline`. In every layer it computes the
attention, then the feed-forward part. After each of the two, tensor-parallel ranks run an
all-reduce; expert-parallel ranks send tokens to the experts before the second part (dispatch) and
back after it (combine). The backward pass does the same in reverse. Activations and their gradients
go from stage to stage. When the last microbatch has passed back through a layer, the gradients of
that layer are complete: they are collected into buckets, and each bucket is summed over the
replicas while the backward pass continues. A rank ends its step when it has all sums and has
updated its weights; then it begins the next. Ranks are synchronised by nothing else.

Dense weights have replicas in all ranks that differ in ep or dp, experts in those that differ in
dp: the data-parallel size of other frameworks is ep * dp here.

Computations are computations of the DAG (`traffic`), collectives those of `collectives`, one series
for each rank if they go round a ring; queue pairs serve all steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import numpy.typing as npt

from openmrc.errors import InputError
from openmrc.traffic.traffic import LongArray, Traffic
from openmrc.workload.collectives import all_gather, all_to_all, reduce_scatter, ring_all_reduce
from openmrc.workload.dag import Codes, Dag, all_calcs, calc_numbers
from openmrc.workload.layout import Layout
from openmrc.workload.model import Sizes
from openmrc.workload.pipeline import FORWARD, one_forward_one_backward

SEED_COMPUTE = 1  # the purpose of a random stream, apart from that of the workload itself
ALL_REDUCE, REDUCE_SCATTER = "all-reduce", "reduce-scatter"
# Messages, series and computations of a job: a fifth of a kilobyte each while it is built.
ENTRIES_MAX = 16_000_000

RINGS: dict[str, Callable[[int, int], Traffic]] = {
    ALL_REDUCE: ring_all_reduce,
    REDUCE_SCATTER: reduce_scatter,
    "all-gather": all_gather,
}


@dataclass(frozen=True)
class Work:
    """The work of a job; times in picoseconds, sizes in bytes."""

    steps: int
    microbatches: int  # of each replica in a step
    layers: int  # of the model; each stage has an equal share
    forward_ps: int  # of one layer and microbatch on one rank
    backward_ps: int
    optimizer_ps: int
    jitter: float  # each computation is shorter or longer by up to this fraction
    sizes: Sizes
    bucket_bytes: int  # gradients are summed when this many are complete
    tp_collective: str = ALL_REDUCE  # or REDUCE_SCATTER: with an all-gather before each part
    dp_collective: str = ALL_REDUCE  # or REDUCE_SCATTER: with an all-gather after the update


def training(
    n_nics: int, layout: Layout, work: Work, seed: int = 1, nics: npt.ArrayLike | None = None
) -> Traffic:
    """Return the steps of a job on `n_nics` NICs, of which rank r is `nics[r]`, or NIC r.

    Its `step_ends` are the computations that end each rank's steps; the first error of a queue pair
    ends the job. Raises `InputError` for what cannot be divided.
    """
    ranks = np.arange(layout.n_ranks) if nics is None else np.asarray(nics, np.int64)
    _check(layout, work)
    dag = Dag()
    draw = np.random.default_rng([seed, SEED_COMPUTE])
    n_stages = layout.size("pp")
    stages = [_Stage(dag, layout, work, ranks, i, draw) for i in range(n_stages)]
    qps = _between(dag, layout, ranks)
    ends = np.zeros((work.steps, layout.n_ranks), np.int64)
    for step in range(work.steps):
        passed = _messages(dag, layout, work, qps)
        for stage in stages:
            stage.step(passed)
            ends[step, layout.stage(stage.stage)] = calc_numbers(stage.ended)
    traffic = dag.traffic("training", n_nics)
    return replace(traffic, step_ends=ends, ends_on_error=True)


# (pass, stage that sends, microbatch) -> one message for each rank of the stage
Passed = dict[tuple[str, int, int], Codes]


def _between(dag: Dag, layout: Layout, nics: LongArray) -> dict[tuple[str, int], LongArray]:
    """Queue pairs from each stage to the next, and back."""
    qps: dict[tuple[str, int], LongArray] = {}
    for stage in range(layout.size("pp") - 1):
        here, there = nics[layout.stage(stage)], nics[layout.stage(stage + 1)]
        qps[FORWARD, stage] = dag.qps(here, there)
        qps["backward", stage + 1] = dag.qps(there, here)
    return qps


def _messages(
    dag: Dag, layout: Layout, work: Work, qps: dict[tuple[str, int], LongArray]
) -> Passed:
    """The messages between stages in one step; who posts them is set later."""
    return {
        (way, stage, microbatch): dag.messages(qp, work.sizes.pp)
        for (way, stage), qp in qps.items()
        for microbatch in range(work.microbatches)
    }


class _Stage:
    """One stage of the pipeline: all its ranks at once, each at its own index of the arrays."""

    def __init__(
        self,
        dag: Dag,
        layout: Layout,
        work: Work,
        nics: LongArray,
        stage: int,
        draw: np.random.Generator,
    ) -> None:
        self.dag, self.work, self.stage, self._draw = dag, work, stage, draw
        self._n_stages = layout.size("pp")
        self._layers = work.layers // self._n_stages
        ranks = layout.stage(stage)
        self.n = len(ranks)
        self._everyone = np.arange(self.n)
        self._groups = {
            name: self._places(layout.groups(*dimensions), ranks)
            for name, dimensions in (
                ("tp", ("tp",)),
                ("ep", ("ep",)),
                ("dense", ("ep", "dp")),
                ("expert", ("dp",)),
            )
        }
        self._nics = nics[ranks]
        self._qps: dict[tuple[bytes, bool], LongArray] = {}
        self._pending_ps = 0  # computed since the last point
        self._waits: list[tuple[Codes, LongArray]] = []  # for the next computation
        self._aside: list[tuple[Codes, LongArray]] = []  # sums of gradients in progress
        self.ended: Codes = np.zeros(0, np.int64)

    @staticmethod
    def _places(groups: LongArray, ranks: LongArray) -> LongArray:
        """The groups that are in this stage, as indices of its ranks."""
        place = {int(rank): i for i, rank in enumerate(ranks)}
        mine = [[place[int(rank)] for rank in group] for group in groups if int(group[0]) in place]
        return np.array(mine, np.int64)

    # ---- the actions of a rank, in sequence

    def step(self, passed: Passed) -> None:
        """Build one step."""
        self._buckets = {"dense": 0, "expert": 0}
        self._gathered = {"dense": 0, "expert": 0}
        order = one_forward_one_backward(self._n_stages, self.stage, self.work.microbatches)
        for way, microbatch in order:
            if way == FORWARD:
                self._forward(passed, microbatch)
            else:
                self._backward(passed, microbatch)
        self._point()
        self._waits += self._aside
        self._aside = []
        self._pending_ps = self.work.optimizer_ps
        if self.work.dp_collective == REDUCE_SCATTER and any(self._gathered.values()):
            updated = self._compute()
            gathers = [
                self._collective(name, "all-gather", size, updated)
                for name, size in self._gathered.items()
                if size
            ]
            self._waits = [(updated, self._everyone), *gathers]
        self.ended = self._compute()

    def _forward(self, passed: Passed, microbatch: int) -> None:
        self._receive(passed.get((FORWARD, self.stage - 1, microbatch)))
        for _ in range(self._layers):
            first, second = _halves(self.work.forward_ps)
            self._part(first)
            self._part(second, experts=True)
        self._send(passed.get((FORWARD, self.stage, microbatch)))

    def _backward(self, passed: Passed, microbatch: int) -> None:
        self._receive(passed.get(("backward", self.stage + 1, microbatch)))
        last = microbatch == self.work.microbatches - 1
        for layer in reversed(range(self._layers)):
            first, second = _halves(self.work.backward_ps)
            self._part(second, experts=True)
            self._part(first)
            if last:
                self._gradients("dense", self.work.sizes.dp, layer == 0)
                self._gradients("expert", self.work.sizes.expert, layer == 0)
        self._send(passed.get(("backward", self.stage, microbatch)))

    def _part(self, compute_ps: int, experts: bool = False) -> None:
        """Half a layer: communication before, the computation, communication after."""
        sizes = self.work.sizes
        gathers = self.work.tp_collective == REDUCE_SCATTER
        if gathers:
            self._together("tp", "all-gather", sizes.tp)
        if experts:
            self._together("ep", "all-to-all", sizes.ep)
        self._pending_ps += compute_ps
        if experts:
            self._together("ep", "all-to-all", sizes.ep)
        self._together("tp", REDUCE_SCATTER if gathers else ALL_REDUCE, sizes.tp)

    def _gradients(self, name: str, size: int, last: bool) -> None:
        """Gradients of one more layer are complete; a full bucket is sent."""
        if self._groups[name].shape[1] == 1:
            return
        self._buckets[name] += size
        if self._buckets[name] and (last or self._buckets[name] >= self.work.bucket_bytes):
            bucket, self._buckets[name] = self._buckets[name], 0
            self._gathered[name] += bucket
            self._aside.append(
                self._collective(name, self.work.dp_collective, bucket, self._point())
            )

    # ---- their conversion to a DAG

    def _compute(self) -> Codes:
        """Add the pending computation of all ranks, after what they wait for."""
        mean, self._pending_ps = self._pending_ps, 0
        change = 1 + self.work.jitter * self._draw.uniform(-1, 1, self.n)
        calc = self.dag.compute(np.rint(mean * change).astype(np.int64))
        for giving, place in self._waits:
            self.dag.release(giving, calc[place])
        self._waits = [(calc, self._everyone)]
        return calc

    def _point(self) -> Codes:
        """Return the computation after which everything up to here is done."""
        if self._pending_ps or len(self._waits) != 1 or not all_calcs(self._waits[0][0]):
            return self._compute()
        return self._waits[0][0]

    def _receive(self, message: Codes | None) -> None:
        if message is not None:
            self._point()
            self._waits.append((message, self._everyone))

    def _send(self, message: Codes | None) -> None:
        if message is not None:
            self.dag.release(self._point(), message)

    def _together(self, name: str, kind: str, size: int) -> None:
        """Add a collective for which the ranks wait."""
        if self._groups[name].shape[1] > 1:
            begun = self._point()
            done = self._collective(name, kind, size, begun)
            self._waits = [(begun, self._everyone), done]

    def _collective(self, name: str, kind: str, size: int, begun: Codes) -> tuple[Codes, LongArray]:
        """Add a collective of every group, each rank from `begun` on; return its messages, and by
        index the ranks that have the result with them.
        """
        groups = self._groups[name]
        made = _collective(kind, groups.shape[1], size)
        key = groups.tobytes(), kind == "all-to-all"
        if key not in self._qps:
            ends = (self._nics[groups[:, qps]].ravel() for qps in (made.qp_src, made.qp_dst))
            self._qps[key] = self.dag.qps(*ends)
        entries = self.dag.copies(made, self._qps[key], len(groups))
        self.dag.release(begun[groups[:, made.msg_src].ravel()], entries)
        return entries, groups[:, made.msg_dst].ravel()


def _halves(ps: int) -> tuple[int, int]:
    return ps // 2, ps - ps // 2


@cache
def _collective(kind: str, n: int, size: int) -> Traffic:
    """One collective among n ranks."""
    return all_to_all(n, size) if kind == "all-to-all" else RINGS[kind](n, size)


def _check(layout: Layout, work: Work) -> None:
    stages, sizes = layout.size("pp"), work.sizes
    if work.layers % stages:
        raise InputError(
            f"workload.layers: {work.layers} cannot be divided among pp = {stages} stages"
        )
    if stages > 1 and sizes.pp < 1:
        raise InputError("workload.pp_size: 0 B; with pp above 1, at least 1 byte is needed")
    for key, size, dimensions in (
        ("tp_size", sizes.tp, ("tp",)),
        ("ep_size", sizes.ep, ("ep",)),
        ("dp_size", sizes.dp, ("ep", "dp")),
        ("expert_size", sizes.expert, ("dp",)),
    ):
        n = layout.size(*dimensions)
        if n > 1 and size < n and (size or key in ("tp_size", "ep_size")):
            raise InputError(
                f"workload.{key}: {size} B cannot be cut into {n} parts, one for each rank of a"
                f" group; {n} B or more can"
            )
    per_step = 2 * work.microbatches * work.layers // stages * (8 + 2 * layout.size("ep"))
    if work.steps * per_step * layout.n_ranks > ENTRIES_MAX:
        raise InputError(
            f"workload.steps: {work.steps} steps of {layout.n_ranks} ranks are about"
            f" {work.steps * per_step * layout.n_ranks} messages, series and computations; at most"
            f" {ENTRIES_MAX} are accepted, take fewer steps, layers or microbatches"
        )
