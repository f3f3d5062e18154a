"""`[workload]`: traces of programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from msgspec import Meta

from openmrc.scenario.sections import Count
from openmrc.scenario.toml import File, Files, OpsRate
from openmrc.scenario.workload import WorkloadSection, placed

if TYPE_CHECKING:
    from openmrc.traffic.traffic import Traffic

Scale = Annotated[float, Meta(ge=0, le=1e6)]


class EtFiles(Files):
    """Chakra traces."""

    __slots__ = ()
    SUFFIX = ".et"


class Trace(WorkloadSection, frozen=True, kw_only=True):
    """What the traces have in common: where their ranks are, and how fast they compute.

    The ranks are on the first NICs by their numbers, or on random ones (drawn from the seed).
    """

    whole: ClassVar[str] = "the trace finished after"
    compute_scale: Scale = 1.0
    order: Literal["nic", "random"] = "nic"


class MatrixWorkload(WorkloadSection, frozen=True, kw_only=True):
    """A traffic matrix: bytes from each rank to each other."""

    kind: ClassVar[str] = "matrix"
    file: File
    order: Literal["nic", "random"] = "nic"

    def build(self, n_nics: int, seed: int) -> Traffic:
        from openmrc.workload.matrix import load_matrix

        return load_matrix(self.file, n_nics, placed(n_nics, self.order, seed))


class GoalWorkload(Trace, frozen=True, kw_only=True):
    """A GOAL schedule."""

    kind: ClassVar[str] = "goal"
    file: File
    rank_nics: Count = 1

    def build(self, n_nics: int, seed: int) -> Traffic:
        from openmrc.workload.goal import load_goal

        nics = placed(n_nics, self.order, seed)
        return load_goal(self.file, n_nics, nics, self.compute_scale, self.rank_nics)


class ChakraWorkload(Trace, frozen=True, kw_only=True):
    """MLCommons Chakra execution traces, one file for each rank."""

    kind: ClassVar[str] = "chakra"
    traces: EtFiles
    compute_rate: OpsRate | None = None
    groups: File | None = None
    dimensions: tuple[Count, ...] = ()
    all_reduce: Literal["ring", "halving-doubling"] = "ring"
    broadcast: Literal["chain", "tree"] = "chain"
    channels: Count = 1
    chunks: Count = 1

    def build(self, n_nics: int, seed: int) -> Traffic:
        from openmrc.workload.chakra.collectives import Expansion
        from openmrc.workload.chakra.trace import load_chakra

        return load_chakra(
            self.traces.paths(),
            n_nics,
            placed(n_nics, self.order, seed),
            self.compute_scale,
            Expansion(self.all_reduce, self.broadcast, self.channels, self.chunks),
            self.groups,
            None if self.compute_rate is None else int(self.compute_rate),
            self.dimensions,
        )
