"""The memory of tensors, as operations use it: in place, or a copy.

A contiguous tensor on the CPU is used in place; any other is copied, and what the operation fills
is copied back when it ends. A tensor of a GPU is staged the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import torch

from openmrc.torch.algorithms import Array
from openmrc.torch.memory import bytes_at

# The memory layout of each element type.
DTYPES: dict[torch.dtype, Any] = {
    torch.float32: np.float32,
    torch.float64: np.float64,
    torch.float16: np.uint16,
    torch.bfloat16: np.uint16,
    torch.uint8: np.uint8,
    torch.int8: np.int8,
    torch.int16: np.int16,
    torch.int32: np.int32,
    torch.int64: np.int64,
    torch.bool: np.uint8,
    torch.complex64: np.complex64,
    torch.complex128: np.complex128,
}


class Span:
    """The memory of a tensor, or of its copy."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        plain_memory = tensor.is_cpu and tensor.is_contiguous()
        self.is_copy = not plain_memory or tensor.is_conj() or tensor.is_neg()
        there = _copied(tensor) if self.is_copy else tensor
        self.used = there
        kind = DTYPES.get(there.dtype, np.uint8)
        self.array: Array = bytes_at(there.data_ptr(), there.nbytes).view(kind)

    def copy_back(self) -> None:
        """Copy the result back to the tensor."""
        if self.is_copy:
            with torch.no_grad():
                self.tensor.copy_(self.used)


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor's values in plain memory of this host."""
    there = tensor.detach()
    if not there.is_cpu:
        return there.cpu().contiguous()
    return there.clone(memory_format=torch.contiguous_format).resolve_conj().resolve_neg()


@dataclass(frozen=True, slots=True)
class Whole:
    """A tensor that holds the parts of all ranks, one after the other, of so many elements."""

    tensor: torch.Tensor
    counts: Sequence[int]


Parts = Sequence[torch.Tensor] | Whole  # of all ranks: a tensor each, or one


def spans_of(parts: Parts) -> tuple[list[Span], list[Array]]:
    """The memory of all parts, and each part's."""
    if not isinstance(parts, Whole):
        spans = [Span(t) for t in parts]
        return spans, [span.array for span in spans]
    span = Span(parts.tensor)
    width = len(span.array) // max(parts.tensor.numel(), 1)  # 1, but for types without a layout
    ends = list(accumulate(parts.counts))
    each = zip(parts.counts, ends, strict=True)
    return [span], [span.array[(end - n) * width : end * width] for n, end in each]


def tensors_of(parts: Parts) -> Sequence[torch.Tensor]:
    """The tensors that hold the parts."""
    return [parts.tensor] if isinstance(parts, Whole) else parts


def count_of(parts: Parts, rank: int) -> int:
    """The number of elements of a rank's part."""
    return parts.counts[rank] if isinstance(parts, Whole) else parts[rank].numel()
