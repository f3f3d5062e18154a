"""`[workload]` of a scenario file: every kind with its keys, their limits and defaults.

The rules are those of `sections`. docs/scenario.md says the same in prose.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from openmrc._toml import File, Files, Size, Time, write_table
from openmrc.errors import InputError
from openmrc.sections import Count, Label, NicId, Nics, Section, Share, WorkloadSection
from openmrc.training_section import Training

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from openmrc.traffic import Traffic

# Up to so many messages the results list each; a run needs about 200 B of memory for one.
LISTED_MAX = 1_000_000
SEED_COMPUTE = 1  # the purpose of a random stream beside that of the workload itself

Placement = Annotated[str, Meta(min_length=1)]  # of a job; a list of numbers becomes such a text


class Permutation(WorkloadSection, frozen=True, kw_only=True):
    """Every NIC sends to one other, and receives from one other."""

    kind: ClassVar[str] = "permutation"
    size: Size = Size.parse("2MB")
    channels: Count = 1

    def build(self, n_nics: int, seed: int) -> Traffic:
        from openmrc.workload import patterns

        return patterns.permutation(n_nics, self.size, seed, channels=self.channels)


class Incast(WorkloadSection, frozen=True, kw_only=True):
    """`n` NICs send to `target`; with `victim`, one of them also sends to an idle neighbour."""

    kind: ClassVar[str] = "incast"
    size: Size = Size.parse("2MB")
    n: Count = 8
    target: NicId = 0
    victim: bool = False

    def build(self, n_nics: int, seed: int) -> Traffic:
        from openmrc.workload import patterns

        return patterns.incast(n_nics, self.n, self.size, target=self.target, victim=self.victim)


class Stream(WorkloadSection, frozen=True, kw_only=True):
    """One long transfer."""

    kind: ClassVar[str] = "stream"
    size: Size = Size.parse("1GB")
    src: NicId = 0
    dst: NicId | None = None

    def build(self, n_nics: int, seed: int) -> Traffic:
        from openmrc.workload import patterns

        dst = n_nics - 1 if self.dst is None else self.dst
        return patterns.stream(self.src, dst, self.size, n_nics)


class HtsimWorkload(WorkloadSection, frozen=True, kw_only=True):
    """Messages and triggers of an htsim `.cm` file."""

    kind: ClassVar[str] = "htsim"
    cm: File

    def build(self, n_nics: int, seed: int) -> Traffic:
        from openmrc.workload.cm import load_cm

        return load_cm(self.cm, n_nics)


Scale = Annotated[float, Meta(ge=0, le=1e6)]


class EtFiles(Files):
    """Chakra traces."""

    __slots__ = ()
    SUFFIX = ".et"


class Trace(WorkloadSection, frozen=True, kw_only=True):
    """What the traces have in common: where their ranks are, and how fast they compute.

    The ranks are on the first NICs by their numbers, or at random ones (drawn from the seed).
    """

    compute_scale: Scale = 1.0
    order: Literal["nic", "random"] = "nic"

    def _nics(self, n_nics: int, seed: int) -> npt.NDArray[np.int64]:
        import numpy as np

        nics = np.arange(n_nics)
        if self.order == "random":
            np.random.default_rng(seed).shuffle(nics)
        return nics


class GoalWorkload(Trace, frozen=True, kw_only=True):
    """A GOAL schedule."""

    kind: ClassVar[str] = "goal"
    file: File
    rank_nics: Count = 1

    def build(self, n_nics: int, seed: int) -> Traffic:
        from openmrc.workload.goal import load_goal

        nics = self._nics(n_nics, seed)
        return load_goal(self.file, n_nics, nics, self.compute_scale, self.rank_nics)


class ChakraWorkload(Trace, frozen=True, kw_only=True):
    """MLCommons Chakra execution traces, one file for each rank."""

    kind: ClassVar[str] = "chakra"
    traces: EtFiles
    groups: File | None = None
    all_reduce: Literal["ring", "halving-doubling"] = "ring"
    broadcast: Literal["chain", "tree"] = "chain"
    channels: Count = 1
    chunks: Count = 1

    def build(self, n_nics: int, seed: int) -> Traffic:
        from openmrc.workload.chakra import load_chakra
        from openmrc.workload.chakra_collectives import Expansion

        return load_chakra(
            self.traces.paths(),
            n_nics,
            self._nics(n_nics, seed),
            self.compute_scale,
            Expansion(self.all_reduce, self.broadcast, self.channels, self.chunks),
            self.groups,
        )


class Collective(WorkloadSection, frozen=True, kw_only=True):
    """What all collectives have in common.

    The ranks are the first `ranks` NICs by their numbers, so that most neighbours are below one
    T0, or at random (drawn from the seed), so that most steps cross the fabric. With `group`, so
    many ranks in a row do it among themselves, all groups at the same time.
    """

    size: Size = Size.parse("16MB")
    ranks: Nics | None = None
    group: Nics | None = None
    order: Literal["nic", "random"] = "nic"
    channels: Count = 1

    def build(self, n_nics: int, seed: int) -> Traffic:
        from openmrc.workload.jobs import Job, several_jobs

        nics = self._nics(n_nics, seed)
        if self.group is None:
            return self._listed(self._collective(n_nics, nics, seed))
        if len(nics) % self.group:
            raise InputError(
                f"workload.group: {len(nics)} ranks cannot be divided into groups of {self.group}"
            )
        groups = [nics[i : i + self.group] for i in range(0, len(nics), self.group)]
        each = [
            Job(f"{i}", self._collective(self.group, None, seed + i), group)
            for i, group in enumerate(groups)
        ]
        return self._listed(several_jobs(each, n_nics).as_one(self.kind))

    def _nics(self, n_nics: int, seed: int) -> npt.NDArray[np.int64]:
        import numpy as np

        count = n_nics if self.ranks is None else self.ranks
        if count > n_nics:
            raise InputError(f"workload.ranks: {count} ranks on {n_nics} NICs; at most {n_nics}")
        nics = np.arange(count)
        if self.order == "random":
            np.random.default_rng(seed).shuffle(nics)
        return nics

    def _collective(self, n_nics: int, nics: npt.NDArray[np.int64] | None, seed: int) -> Traffic:
        """Return it among `nics`, or among all in order."""
        raise NotImplementedError

    def _listed(self, traffic: Traffic) -> Traffic:
        return traffic


class AllToAll(Collective, frozen=True, kw_only=True):
    """Every rank sends one block to every other."""

    kind: ClassVar[str] = "all-to-all"
    at_once: Count | None = None

    def _collective(self, n_nics: int, nics: npt.NDArray[np.int64] | None, seed: int) -> Traffic:
        from openmrc.workload.collectives import all_to_all

        return all_to_all(
            n_nics, self.size, channels=self.channels, ranks=nics, at_once=self.at_once
        )


class Steps(Collective, frozen=True, kw_only=True):
    """Collectives whose messages wait for others: in chunks, with a time to compute in between.

    Each rank's time is drawn once from the seed, up to a share of `jitter` shorter or longer.
    """

    chunks: Count = 1
    compute: Time = Time(0)
    jitter: Share = 0.0

    def __post_init__(self) -> None:
        if self.jitter and not self.compute:
            raise ValueError(f".jitter: {self.jitter} of no time; set compute too, or remove it")

    def _arguments(self, ranks: int, seed: int) -> dict[str, Any]:
        import numpy as np

        draw = np.random.default_rng([seed, SEED_COMPUTE]).uniform(-1, 1, ranks)
        compute_ps = np.rint(self.compute * (1 + self.jitter * draw)).astype(np.int64)
        return {"channels": self.channels, "chunks": self.chunks, "compute_ps": compute_ps}

    def _collective(self, n_nics: int, nics: npt.NDArray[np.int64] | None, seed: int) -> Traffic:
        ranks = n_nics if nics is None else len(nics)
        return self._steps(n_nics, self.size, ranks=nics, **self._arguments(ranks, seed))

    def _steps(self, n_nics: int, size: int, **arguments: Any) -> Traffic:
        raise NotImplementedError


class HalvingDoublingAllReduce(Steps, frozen=True, kw_only=True):
    """2 log2(ranks) exchanges of ever smaller, then ever larger parts."""

    kind: ClassVar[str] = "halving-doubling-all-reduce"

    def _steps(self, n_nics: int, size: int, **arguments: Any) -> Traffic:
        from openmrc.workload.collectives import halving_doubling_all_reduce

        return halving_doubling_all_reduce(n_nics, size, **arguments)


class Regular(Steps, frozen=True, kw_only=True):
    """Collectives that are generated, a series of messages per queue pair and chunk."""

    flows: Literal["message", "series"] | None = None

    def _listed(self, traffic: Traffic) -> Traffic:
        from openmrc.traffic import unroll

        auto = "message" if traffic.n_sends <= LISTED_MAX else "series"
        return unroll(traffic) if (self.flows or auto) == "message" else traffic


class RingAllReduce(Regular, frozen=True, kw_only=True):
    """2(ranks - 1) dependent steps around a ring."""

    kind: ClassVar[str] = "ring-all-reduce"

    def _steps(self, n_nics: int, size: int, **arguments: Any) -> Traffic:
        from openmrc.workload.collectives import ring_all_reduce

        return ring_all_reduce(n_nics, size, **arguments)


class AllGather(Regular, frozen=True, kw_only=True):
    """ranks - 1 dependent steps around a ring."""

    kind: ClassVar[str] = "all-gather"

    def _steps(self, n_nics: int, size: int, **arguments: Any) -> Traffic:
        from openmrc.workload.collectives import all_gather

        return all_gather(n_nics, size, **arguments)


class ReduceScatter(Regular, frozen=True, kw_only=True):
    """ranks - 1 dependent steps around a ring."""

    kind: ClassVar[str] = "reduce-scatter"

    def _steps(self, n_nics: int, size: int, **arguments: Any) -> Traffic:
        from openmrc.workload.collectives import reduce_scatter

        return reduce_scatter(n_nics, size, **arguments)


class SendRecv(Regular, frozen=True, kw_only=True):
    """Every rank sends to the next one, `steps` times."""

    kind: ClassVar[str] = "send-recv"
    steps: Count = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.compute and self.steps == 1:
            raise ValueError(".compute: is the time between steps; one step has none, remove it")

    def _steps(self, n_nics: int, size: int, **arguments: Any) -> Traffic:
        from openmrc.workload.collectives import send_recv

        return send_recv(n_nics, size, steps=self.steps, **arguments)


class Broadcast(Regular, frozen=True, kw_only=True):
    """The first rank sends to all others, along a chain or a binomial tree."""

    kind: ClassVar[str] = "broadcast"
    shape: Literal["chain", "tree"] = "chain"

    def _steps(self, n_nics: int, size: int, **arguments: Any) -> Traffic:
        from openmrc.workload.collectives import broadcast

        return broadcast(n_nics, size, shape=self.shape, **arguments)


class JobSection(Section, frozen=True, kw_only=True):
    """One `[[workload.job]]`: where it runs and when it starts; `work` is its other keys."""

    name: Label
    nics: Placement = "all"
    start: Time = Time(0)


class Jobs(WorkloadSection, frozen=True, kw_only=True):
    """Several workloads at the same time, each on NICs of its own choice."""

    kind: ClassVar[str] = "jobs"
    job: tuple[tuple[JobSection, WorkloadSection], ...]

    def build(self, n_nics: int, seed: int) -> Traffic:
        from openmrc.workload.jobs import several_jobs

        return several_jobs(
            [self._job(index, n_nics, seed) for index in range(len(self.job))], n_nics
        )

    def _job(self, index: int, n_nics: int, seed: int) -> Any:
        from openmrc.workload.jobs import Job, read_nics

        job, work = self.job[index]
        place = f"workload.job[{index}]"
        try:
            nics = read_nics(job.nics, n_nics)
        except InputError as error:
            raise error.at(f"{place}.nics") from None
        try:
            traffic = work.build(len(nics), _seed_of(seed, index))
        except InputError as error:
            key = str(error).removeprefix("workload")
            raise InputError(
                f"{place}{key}" if key.startswith(".") else f"{place}: {error}"
            ) from None
        return Job(job.name, traffic, nics, job.start)

    def tables(self) -> list[str]:
        return [
            f'[workload]\nkind = "{self.kind}"\n',
            *(
                write_table(
                    "[[workload.job]]",
                    work,
                    name=job.name,
                    nics=job.nics,
                    start=job.start,
                    kind=work.kind,
                )
                for job, work in self.job
            ),
        ]


def _seed_of(seed: int, job: int) -> int:
    """Return the seed of a job: each draws by itself."""
    import numpy as np

    return int(np.random.SeedSequence([seed, job]).generate_state(1, np.uint64)[0] >> 1)


JOB_WORKLOADS = {
    section.kind: section
    for section in (
        Permutation,
        Incast,
        RingAllReduce,
        HalvingDoublingAllReduce,
        AllGather,
        ReduceScatter,
        AllToAll,
        Broadcast,
        SendRecv,
        Stream,
        HtsimWorkload,
        GoalWorkload,
        ChakraWorkload,
    )
}
WORKLOADS: dict[str, type[WorkloadSection]] = JOB_WORKLOADS | {
    Jobs.kind: Jobs,
    Training.kind: Training,
}
JOB_KEYS = tuple(field.name for field in msgspec.structs.fields(JobSection))
