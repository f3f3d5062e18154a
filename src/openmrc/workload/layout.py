"""The groups of each rank of a training job: tensor, expert, data and pipeline parallelism.

The ranks are numbered like an odometer. The first dimension of the order varies fastest: with
"tp-ep-dp-pp" and tp = 4, ranks 0 to 3 are one tensor-parallel group, and the stages of a pipeline
are farthest apart. The order, and its notation, are those of Megatron-LM
(`megatron/core/parallel_state.py`). A group of some dimensions is the ranks that differ in those
alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from openmrc.errors import InputError
from openmrc.traffic.traffic import LongArray

DIMENSIONS = ("tp", "ep", "dp", "pp")


@dataclass(frozen=True)
class Layout:
    """Sizes of the dimensions, in the order from the innermost; make one with `make_layout`."""

    order: tuple[str, ...]
    sizes: tuple[int, ...]

    @property
    def n_ranks(self) -> int:
        """The number of ranks."""
        return prod(self.sizes)

    def size(self, *dimensions: str) -> int:
        """Return how many ranks a group of these dimensions has."""
        return prod(self.sizes[self.order.index(name)] for name in dimensions)

    def groups(self, *dimensions: str) -> LongArray:
        """Return [groups, members]: the ranks of each group of these dimensions, in their order."""
        grid = np.arange(self.n_ranks).reshape(self.sizes[::-1])  # the last axis varies fastest
        axes = [axis for axis, name in enumerate(reversed(self.order)) if name in dimensions]
        last = range(len(DIMENSIONS) - len(axes), len(DIMENSIONS))
        return np.moveaxis(grid, axes, list(last)).reshape(-1, self.size(*dimensions))

    def stage(self, stage: int) -> LongArray:
        """Return the ranks of one stage of the pipeline: rank i sends to rank i of the next."""
        return self.groups("pp")[:, stage]

    def groups_of_stage(self, stage: int, *dimensions: str) -> LongArray:
        """Return [groups, members]: the groups within a stage, as indices of its ranks."""
        place = np.full(self.n_ranks, -1)
        place[self.stage(stage)] = np.arange(len(self.stage(stage)))
        found: LongArray = place[self.groups(*dimensions)]
        return found[found[:, 0] >= 0]


def make_layout(
    ranks: int, tp: int, pp: int, ep: int = 1, dp: int | None = None, order: str = "tp-ep-dp-pp"
) -> Layout:
    """Return the layout of `ranks` ranks; without `dp` it is the rest of them.

    Raises `InputError` unless the sizes multiply to the ranks and `order` names each once.
    """
    names = tuple(order.split("-"))
    if sorted(names) != sorted(DIMENSIONS):
        raise InputError(
            f"workload.layout: {order!r}; accepted: tp, ep, dp and pp, each once, the innermost"
            ' first, such as "tp-ep-dp-pp"'
        )
    inner = tp * ep * pp
    if dp is None and ranks % inner:
        raise InputError(
            f"workload.dp: {ranks} ranks cannot be divided by tp {tp} x ep {ep} x pp {pp} ="
            f" {inner}; change one of them, or ranks"
        )
    sizes = {"tp": tp, "ep": ep, "pp": pp, "dp": ranks // inner if dp is None else dp}
    if prod(sizes.values()) != ranks:
        raise InputError(
            f"workload.dp: tp {tp} x ep {ep} x pp {pp} x dp {dp} = {prod(sizes.values())}, but"
            f" there are {ranks} ranks; the sizes must multiply to them"
        )
    return Layout(names, tuple(sizes[name] for name in names))
