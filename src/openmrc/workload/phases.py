"""A training step as phases: what all ranks of a stage do at once, and what each phase waits for.

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

Messages between stages stand before the phases that post them, since the stage that waits for one
may come first; of all other phases what they wait for stands before them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np

from openmrc.errors import InputError
from openmrc.traffic.traffic import LongArray
from openmrc.workload.layout import Layout
from openmrc.workload.model import Sizes
from openmrc.workload.pipeline import BACKWARD, FORWARD, one_forward_one_backward

SEED_COMPUTE = 1  # the purpose of a random stream, apart from that of the workload itself
ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER = "all-reduce", "reduce-scatter", "all-gather"
ALL_TO_ALL = "all-to-all"
# The groups in which ranks act together, and the dimensions in which their members differ.
GROUPS = {"tp": ("tp",), "ep": ("ep",), "dense": ("ep", "dp"), "expert": ("dp",)}
# Messages, series and computations of a job: a fifth of a kilobyte each while it is built.
ENTRIES_MAX = 16_000_000


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


class Compute(NamedTuple):
    """All ranks of a stage compute, each for its own time."""

    stage: int
    ps: LongArray  # [ranks of the stage]
    after: tuple[int, ...]  # numbers of phases
    step: int | None  # which it ends, if it ends one


class Collective(NamedTuple):
    """Every group of a stage runs a collective; each rank begins with its own computation."""

    stage: int
    group: str  # of `GROUPS`
    kind: str
    size: int
    after: int


class Message(NamedTuple):
    """Each rank of a stage sends to the same rank of the next one, or of the one before."""

    way: str
    stage: int
    microbatch: int


class Post(NamedTuple):
    """A message is sent after a computation."""

    message: int
    after: int


Phase = Compute | Collective | Message | Post
# (pass, stage that sends, microbatch) -> its message
Passed = dict[tuple[str, int, int], int]


def phases(layout: Layout, work: Work, seed: int = 1) -> Iterator[Phase]:
    """All phases of a job, in order; raises `InputError` for what cannot be divided."""
    _check(layout, work)
    draw = np.random.default_rng([seed, SEED_COMPUTE])
    made: list[Phase] = []
    n_stages = layout.size("pp")
    stages = [_Stage(made, layout, work, i, draw) for i in range(n_stages)]
    told = 0
    for step in range(work.steps):
        passed: Passed = {}
        for way, stage in ways(n_stages):
            for microbatch in range(work.microbatches):
                passed[way, stage, microbatch] = len(made)
                made.append(Message(way, stage, microbatch))
        for each in stages:
            each.step(passed, step)
            yield from made[told:]
            told = len(made)


def ways(n_stages: int) -> Iterator[tuple[str, int]]:
    """Which stages send, and in which pass: to the next stage, and from that one back."""
    return chain.from_iterable(((FORWARD, i), (BACKWARD, i + 1)) for i in range(n_stages - 1))


class _Stage:
    """One stage of the pipeline: the actions of its ranks, in sequence."""

    def __init__(
        self, made: list[Phase], layout: Layout, work: Work, stage: int, draw: np.random.Generator
    ) -> None:
        self._made, self._work, self._stage, self._draw = made, work, stage, draw
        self._n_stages = layout.size("pp")
        self._layers = work.layers // self._n_stages
        self._n = layout.n_ranks // self._n_stages
        self._members = {name: layout.size(*which) for name, which in GROUPS.items()}
        self._pending_ps = 0  # computed since the last point
        self._waits: list[int] = []  # for the next computation
        self._aside: list[int] = []  # sums of gradients in progress

    def step(self, passed: Passed, number: int) -> None:
        """Add one step."""
        self._buckets = {"dense": 0, "expert": 0}
        self._gathered = {"dense": 0, "expert": 0}
        order = one_forward_one_backward(self._n_stages, self._stage, self._work.microbatches)
        for way, microbatch in order:
            if way == FORWARD:
                self._forward(passed, microbatch)
            else:
                self._backward(passed, microbatch)
        self._point()
        self._waits += self._aside
        self._aside = []
        self._pending_ps = self._work.optimizer_ps
        if self._work.dp_collective == REDUCE_SCATTER and any(self._gathered.values()):
            updated = self._compute()
            gathers = [
                self._collective(name, ALL_GATHER, size, updated)
                for name, size in self._gathered.items()
                if size
            ]
            self._waits = [updated, *gathers]
        self._compute(number)

    def _forward(self, passed: Passed, microbatch: int) -> None:
        self._receive(passed.get((FORWARD, self._stage - 1, microbatch)))
        for _ in range(self._layers):
            first, second = _halves(self._work.forward_ps)
            self._part(first)
            self._part(second, experts=True)
        self._send(passed.get((FORWARD, self._stage, microbatch)))

    def _backward(self, passed: Passed, microbatch: int) -> None:
        self._receive(passed.get((BACKWARD, self._stage + 1, microbatch)))
        last = microbatch == self._work.microbatches - 1
        for layer in reversed(range(self._layers)):
            first, second = _halves(self._work.backward_ps)
            self._part(second, experts=True)
            self._part(first)
            if last:
                self._gradients("dense", self._work.sizes.dp, layer == 0)
                self._gradients("expert", self._work.sizes.expert, layer == 0)
        self._send(passed.get((BACKWARD, self._stage, microbatch)))

    def _part(self, compute_ps: int, experts: bool = False) -> None:
        """Half a layer: communication before, the computation, communication after."""
        sizes = self._work.sizes
        gathers = self._work.tp_collective == REDUCE_SCATTER
        if gathers:
            self._together("tp", ALL_GATHER, sizes.tp)
        if experts:
            self._together("ep", ALL_TO_ALL, sizes.ep)
        self._pending_ps += compute_ps
        if experts:
            self._together("ep", ALL_TO_ALL, sizes.ep)
        self._together("tp", REDUCE_SCATTER if gathers else ALL_REDUCE, sizes.tp)

    def _gradients(self, name: str, size: int, last: bool) -> None:
        """Gradients of one more layer are complete; a full bucket is sent."""
        if self._members[name] == 1:
            return
        self._buckets[name] += size
        if self._buckets[name] and (last or self._buckets[name] >= self._work.bucket_bytes):
            bucket, self._buckets[name] = self._buckets[name], 0
            self._gathered[name] += bucket
            self._aside.append(
                self._collective(name, self._work.dp_collective, bucket, self._point())
            )

    def _compute(self, step: int | None = None) -> int:
        """Add the pending computation of all ranks, after what they wait for."""
        mean, self._pending_ps = self._pending_ps, 0
        ps = np.broadcast_to(np.int64(mean), self._n)
        if self._work.jitter:
            change = 1 + self._work.jitter * self._draw.uniform(-1, 1, self._n)
            ps = np.rint(mean * change).astype(np.int64)
        number = self._add(Compute(self._stage, ps, tuple(self._waits), step))
        self._waits = [number]
        return number

    def _point(self) -> int:
        """Return the computation after which everything up to here is done."""
        alone = len(self._waits) == 1 and isinstance(self._made[self._waits[0]], Compute)
        return self._compute() if self._pending_ps or not alone else self._waits[0]

    def _receive(self, message: int | None) -> None:
        if message is not None:
            self._point()
            self._waits.append(message)

    def _send(self, message: int | None) -> None:
        if message is not None:
            self._add(Post(message, self._point()))

    def _together(self, name: str, kind: str, size: int) -> None:
        """Add a collective for which the ranks wait."""
        if self._members[name] > 1:
            begun = self._point()
            self._waits = [begun, self._collective(name, kind, size, begun)]

    def _collective(self, name: str, kind: str, size: int, begun: int) -> int:
        return self._add(Collective(self._stage, name, kind, size, begun))

    def _add(self, phase: Phase) -> int:
        self._made.append(phase)
        return len(self._made) - 1


def _halves(ps: int) -> tuple[int, int]:
    return ps // 2, ps - ps // 2


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
