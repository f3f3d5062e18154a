"""`[workload]`: collectives, with the computation between messages that some have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from openmrc.errors import InputError
from openmrc.scenario.sections import Count, Nics, Share
from openmrc.scenario.toml import Size, Time
from openmrc.scenario.workload import WorkloadSection, placed, ranks_on

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from openmrc.traffic.traffic import Traffic

# Up to this many messages the results list each; a run needs about 200 B of memory for one.
LISTED_MAX = 1_000_000
SEED_COMPUTE = 1  # the purpose of a random stream, apart from that of the workload itself


class Collective(WorkloadSection, frozen=True, kw_only=True):
    """What all collectives have in common.

    The ranks are the first `ranks` NICs by their numbers, so that most neighbours are below one T0,
    or at random (drawn from the seed), so that most steps cross the fabric. With `group`, every
    `group` consecutive ranks run it among themselves, all groups at the same time.
    """

    whole: ClassVar[str] = "the collective finished after"
    size: Size = Size.parse("16MB")
    ranks: Nics | None = None
    group: Nics | None = None
    order: Literal["nic", "random"] = "nic"
    channels: Count = 1

    def build(self, n_nics: int, seed: int) -> Traffic:
        from openmrc.workload.jobs import Job, several_jobs

        nics = placed(ranks_on(self.ranks, n_nics), self.order, seed)
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

    Each rank's time is drawn once from the seed, shorter or longer by a fraction of up to `jitter`.
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
        from openmrc.workload import collectives

        make = getattr(collectives, self.kind.replace("-", "_"))
        arguments = self._arguments(n_nics if nics is None else len(nics), seed)
        traffic: Traffic = make(n_nics, self.size, ranks=nics, **arguments)
        return traffic


class HalvingDoublingAllReduce(Steps, frozen=True, kw_only=True):
    """2 log2(ranks) exchanges of ever smaller, then ever larger parts."""

    kind: ClassVar[str] = "halving-doubling-all-reduce"


class Regular(Steps, frozen=True, kw_only=True):
    """Collectives that are generated, a series of messages per queue pair and chunk."""

    flows: Literal["message", "series"] | None = None

    def _listed(self, traffic: Traffic) -> Traffic:
        from openmrc.traffic.traffic import unroll

        auto = "message" if traffic.n_sends <= LISTED_MAX else "series"
        return unroll(traffic) if (self.flows or auto) == "message" else traffic


class RingAllReduce(Regular, frozen=True, kw_only=True):
    """2(ranks - 1) dependent steps around a ring."""

    kind: ClassVar[str] = "ring-all-reduce"


class AllGather(Regular, frozen=True, kw_only=True):
    """ranks - 1 dependent steps around a ring."""

    kind: ClassVar[str] = "all-gather"


class ReduceScatter(Regular, frozen=True, kw_only=True):
    """ranks - 1 dependent steps around a ring."""

    kind: ClassVar[str] = "reduce-scatter"


class SendRecv(Regular, frozen=True, kw_only=True):
    """Every rank sends to the next one, `steps` times."""

    kind: ClassVar[str] = "send-recv"
    steps: Count = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.compute and self.steps == 1:
            raise ValueError(".compute: is the time between steps; one step has none, remove it")

    def _arguments(self, ranks: int, seed: int) -> dict[str, Any]:
        return super()._arguments(ranks, seed) | {"steps": self.steps}


class Broadcast(Regular, frozen=True, kw_only=True):
    """The first rank sends to all others, along a chain or a binomial tree."""

    kind: ClassVar[str] = "broadcast"
    shape: Literal["chain", "tree"] = "chain"

    def _arguments(self, ranks: int, seed: int) -> dict[str, Any]:
        return super()._arguments(ranks, seed) | {"shape": self.shape}
