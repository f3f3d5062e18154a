"""What an operation is, in the 16 bytes that travel with each of its messages.

All ranks of a group must call the same operations in the same order, with the same types and sizes.
A message names only its group, the operation's number and a step, so that without this a broadcast
of one rank would fill the all-reduce of another.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import torch
import torch.distributed as dist

P2P = "send or receive"
KINDS = (
    "",
    "all_reduce",
    "all_reduce of sparse tensors",
    "reduce",
    "reduce_scatter",
    "broadcast",
    "all_gather",
    "gather",
    "scatter",
    "all_to_all",
    "barrier",
    P2P,
)
NONE = 255  # no type, no reduction
COUNT_MAX, ROOTLESS = 255, 0xFFFFFFFF
_KINDS = {name: i for i, name in enumerate(KINDS)}
_TYPES = sorted({str(v) for v in vars(torch).values() if isinstance(v, torch.dtype)})
_NUMBERS = {getattr(torch, name.removeprefix("torch.")): i for i, name in enumerate(_TYPES)}
_CALL = struct.Struct("<BBBBIq")
BYTES = _CALL.size


class Call(NamedTuple):
    """An operation as all its ranks must call it: `n` is 0 where sizes may differ by rank."""

    kind: str
    dtype: torch.dtype | None = None
    op: int = NONE
    root: int | None = None  # rank in the group
    tensors: int = 1
    n: int = 0  # bytes of all of them

    def packed(self) -> bytes:
        """Return it as it travels."""
        dtype = NONE if self.dtype is None else _NUMBERS[self.dtype]
        root = ROOTLESS if self.root is None else self.root
        count = min(self.tensors, COUNT_MAX)
        return _CALL.pack(_KINDS[self.kind], dtype, self.op, count, root, self.n)


def told(call: bytes) -> str:
    """Return for people what travelled: `broadcast(float32, 400 bytes, from rank 1)`."""
    kind, dtype, op, count, root, n = _CALL.unpack(call)
    words = [] if op == NONE else [dist.ReduceOp.RedOpType(op).name]
    if dtype != NONE:
        words.append(_TYPES[dtype].removeprefix("torch.") if dtype < len(_TYPES) else "?")
    if count != 1:
        words.append(f"{count} tensors")
    if n:
        words.append(f"{n} bytes")
    if root != ROOTLESS:
        words.append(f"root {root}")
    name = KINDS[kind] if kind < len(KINDS) else "?"
    return f"{name}({', '.join(words)})"


def message(call: bytes) -> str:
    """Return for people a message between two ranks: `400 bytes of float32`."""
    _, dtype, _, _, _, n = _CALL.unpack(call)
    return f"{n} bytes of {_TYPES[dtype].removeprefix('torch.')}"
