"""The grid of ranks that `involved_dim` refers to: which ranks a collective along some of its
dimensions is among.

Rank r has the coordinates of r in a mixed radix, the first dimension fastest. A collective is among
the ranks that differ from its own in the involved dimensions alone. Dimensions that a trace names
beyond those of the grid have one place each.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, product
from math import prod
from operator import mul

from openmrc.errors import InputError


class Grid:
    """`n_ranks` ranks in a grid of these sizes; without any, nothing is known of it."""

    def __init__(self, sizes: tuple[int, ...], n_ranks: int) -> None:
        if sizes and prod(sizes) != n_ranks:
            raise InputError(
                f"workload.dimensions: {' x '.join(map(str, sizes))} are {prod(sizes)} ranks; the"
                f" trace has {n_ranks}"
            )
        self.sizes = sizes
        self.strides = tuple(accumulate(sizes[:-1], mul, initial=1)) if sizes else ()
        self.members: dict[str, list[int]] = {}  # of each group that was asked for

    def group(self, rank: int, involved: Sequence[bool]) -> str:
        """Return the name of the group of `rank` along the involved dimensions; "" for all ranks.

        Raises `InputError` if the grid does not say which ranks these are.
        """
        if all(involved) and len(involved) >= len(self.sizes):
            return ""
        shown = ", ".join("yes" if each else "no" for each in involved)
        if not self.sizes:
            raise InputError(
                f"{shown}: along some dimensions of the ranks alone; set workload.dimensions, or"
                " the node's pg_name"
            )
        if len(involved) < len(self.sizes):
            raise InputError(
                f"{shown}: {len(involved)} of the {len(self.sizes)} workload.dimensions; name all"
            )
        along = list(zip(self.sizes, self.strides, involved, strict=False))
        first = rank - sum(rank // stride % size * stride for size, stride, yes in along if yes)
        name = f"dimensions {shown} from rank {first}"
        if name not in self.members:
            steps = [range(0, size * stride, stride) for size, stride, yes in along if yes]
            self.members[name] = sorted(first + sum(each) for each in product(*steps))
        return name
