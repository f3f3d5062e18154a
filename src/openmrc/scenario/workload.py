"""`[workload]` of a scenario file: what its kinds have in common.

Each family of kinds has a file of its own; `workloads` has the table of all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from openmrc.errors import InputError
from openmrc.scenario.sections import Section
from openmrc.scenario.toml import write_table

if TYPE_CHECKING:
    import numpy.typing as npt

    from openmrc.traffic.traffic import Traffic


class WorkloadSection(Section, frozen=True, kw_only=True):
    """`[workload]`: what is sent."""

    kind: ClassVar[str]
    # What its users wait for, as the heading of a time (`TransportResult.whole_ps`).
    whole: ClassVar[str] = "all flows finished after"

    def build(self, n_nics: int, seed: int) -> Traffic:
        """Return the messages; raise `InputError` for a NIC that does not exist."""
        raise NotImplementedError

    def tables(self) -> list[str]:
        """Return the equivalent tables of a scenario file."""
        return [write_table("[workload]", self, kind=self.kind)]


def ranks_on(ranks: int | None, n_nics: int) -> int:
    """Return how many ranks there are, by default one on every NIC; raise `InputError` for more."""
    if ranks is not None and ranks > n_nics:
        raise InputError(f"workload.ranks: {ranks} ranks on {n_nics} NICs; at most {n_nics}")
    return n_nics if ranks is None else ranks


def placed(ranks: int, order: str, seed: int) -> npt.NDArray[np.int64]:
    """Return the NICs of the ranks: the first ones by their numbers ("nic"), or random ones."""
    nics = np.arange(ranks)
    if order == "random":
        np.random.default_rng(seed).shuffle(nics)
    return nics
