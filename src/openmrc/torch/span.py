"""The memory of tensors, as operations use it: in place, or a copy.

A contiguous tensor on the CPU is used in place; any other is copied, and what the operation fills
is copied back when it ends. A tensor of a GPU is staged (`staging`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import torch

from openmrc.errors import InputError
from openmrc.torch.memory import Array, bytes_at
from openmrc.torch.operation import Operation, Transfer

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
WHOLE = slice(None)  # a part


class Span:
    """The memory of a tensor, or of its copy."""

    def __init__(self, tensor: torch.Tensor) -> None:
        if not tensor.is_cpu:
            raise InputError(
                f"a tensor on {tensor.device}: those of the CPU and of cuda are accepted"
            )
        self.tensor = tensor
        self.is_copy = not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg()
        there = _copied(tensor) if self.is_copy else tensor
        self._used = there
        kind = DTYPES.get(there.dtype, np.uint8)
        self.array: Array = bytes_at(there.data_ptr(), there.nbytes).view(kind)

    def flatten(self) -> torch.Tensor:
        """The elements in this memory."""
        return self._used.detach().view(-1)

    def arrive(self, op: Operation, part: slice = WHOLE) -> list[Transfer]:
        """Return what to wait for until the values of a part are in this memory."""
        return []

    def put(self, part: slice = WHOLE) -> None:
        """A part is filled."""

    def copy_back(self) -> None:
        """Copy the result back to the tensor."""
        if self.is_copy:
            with torch.no_grad():
                self.tensor.copy_(self._used)


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor's values in plain memory."""
    there = tensor.detach()
    return there.clone(memory_format=torch.contiguous_format).resolve_conj().resolve_neg()


@dataclass(frozen=True, slots=True)
class Whole:
    """A tensor that holds the parts of all ranks, one after the other, of so many elements."""

    tensor: torch.Tensor
    counts: Sequence[int]


Parts = Sequence[torch.Tensor] | Whole  # of all ranks: a tensor each, or one


def spans_of(
    parts: Parts, span_of: Callable[[torch.Tensor], Span]
) -> tuple[list[Span], list[Array]]:
    """The memory of all parts, and each part's."""
    if not isinstance(parts, Whole):
        spans = [span_of(t) for t in parts]
        return spans, [span.array for span in spans]
    span = span_of(parts.tensor)
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
