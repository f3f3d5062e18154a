"""`[workload]`: patterns of a few keys, and htsim's files."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from openmrc.scenario.sections import Count, NicId
from openmrc.scenario.toml import File, Size
from openmrc.scenario.workload import WorkloadSection

if TYPE_CHECKING:
    from openmrc.traffic.traffic import Traffic


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
