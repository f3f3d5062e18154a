"""GOAL schedules in the binary form that LogGOPSim's `txt2bin` writes and LogGOPSim reads.

All numbers are little-endian, and packed. A header: the number 4223 (u64), ranks (u32), the largest
cpu and nic (u8 each), and for each rank where its part begins and ends (u64 each, counted from
behind the 4223). The part of a rank: operations and roots (u32 each), the numbers of the roots
(u32), the records of `_OPERATION`, and a list of numbers of operations (u32). An operation names
its stretch of that list: those that wait for its end, and those that wait for its beginning. Roots
and counts follow from the rest, and are not read.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from openmrc.errors import InputError
from openmrc.say import counted
from openmrc.workload import operations as ops
from openmrc.workload.schedule import ANY, Schedule

MAGIC, SPENT = 4223, 2342
_HEADER = np.dtype([("magic", "<u8"), ("ranks", "<u4"), ("cpu", "u1"), ("nic", "u1")])
_OPERATION = np.dtype(
    [
        ("waits_for", "<u4"),
        ("kind", "i1"),
        ("peer", "<u4"),
        ("amount", "<u8"),  # bytes, or ns
        ("tag", "<u4"),
        ("cpu", "u1"),
        ("nic", "u1"),
        ("n_ends", "<u4"),
        ("ends", "<u4"),
        ("n_begins", "<u4"),
        ("begins", "<u4"),
    ]
)
_SEND, _RECV, _CALC = 1, 2, 3
_KINDS = {_SEND: ops.SEND, _RECV: ops.RECV}
_ANY = (1 << 32) - 1


def is_binary(file: BinaryIO) -> bool:
    """Whether the file, at its beginning, is a binary schedule; nothing of it is used up."""
    start = file.peek(8)[:8]  # type: ignore[attr-defined]  # a BufferedReader's
    return int.from_bytes(start.ljust(8, b"\xff"), "little") in (MAGIC, SPENT)


class Reader:
    """Reads one rank after the other."""

    def __init__(self, goal: Schedule) -> None:
        self.goal = goal
        self.first: list[int] = []  # operation of each rank
        self.data = b""
        goal.ops.place = self.place

    def place(self, operation: int) -> str:
        """Return where an operation is defined."""
        rank = bisect_right(self.first, operation) - 1
        return f"{self.goal.path}: rank {rank}, operation {operation - self.first[rank]}"

    def read(self, file: BinaryIO) -> None:
        """Read all ranks."""
        self.data = file.read()
        (header,) = self._array(_HEADER, 0, 1)
        if header["magic"] == SPENT:
            raise InputError(
                f"{self.goal.path}: LogGOPSim --save-mem has used this schedule up; make it anew"
            )
        n_ranks = int(header["ranks"])
        self.goal.ranks(self.goal.path, n_ranks)
        parts = self._array(np.dtype("<u8"), _HEADER.itemsize, 2 * n_ranks).reshape(-1, 2)
        before = _HEADER["magic"].itemsize
        for rank, (start, end) in enumerate(parts.tolist()):
            self._rank(rank, before + start, before + end)

    def _rank(self, rank: int, start: int, end: int) -> None:
        u4 = np.dtype("<u4")
        n, roots = self._array(u4, start, 2).tolist()
        begin = start + (2 + roots) * u4.itemsize
        records = self._array(_OPERATION, begin, n)
        behind = begin + n * _OPERATION.itemsize
        waiting = sum(int(records[n_of].sum(dtype=np.int64)) for n_of in ("n_ends", "n_begins"))
        if behind + waiting * u4.itemsize != end:
            raise InputError(
                f"{self.goal.path}: rank {rank}: {counted(n, 'operation')} and what waits do not"
                " fill its part: the file is damaged, or another program's (LogGOPSim2 has records"
                " of its own); write it anew with LogGOPSim's txt2bin"
            )
        first = len(self.goal.ops.kind)
        self.first.append(first)
        for number, record in enumerate(records.tolist()):
            self._operation(
                f"{self.goal.path}: rank {rank}, operation {number}", rank, *record[1:7]
            )
        for column, by_begin in (("ends", False), ("begins", True)):
            counts = records[f"n_{column}"].astype(np.int64)
            starts = records[column].astype(np.int64)
            self._check(behind, int(counts.sum()) * u4.itemsize)
            named = np.repeat(np.arange(n), counts)
            nth = np.arange(len(named)) - np.repeat(np.cumsum(counts) - counts, counts)
            where = starts[named] + nth
            listed = self._array(u4, behind, int(where.max(initial=-1)) + 1)[where]
            beyond = np.flatnonzero(listed >= n)
            if len(beyond):
                raise InputError(
                    f"{self.place(first + int(named[beyond[0]]))}: operation"
                    f" {listed[beyond[0]]} waits for it, but rank {rank} has {n}; the file is"
                    " damaged"
                )
            for earlier, later in zip(named.tolist(), listed.tolist(), strict=True):
                self.goal.wait(first + later, first + earlier, by_begin)

    def _operation(
        self, at: str, rank: int, kind: int, peer: int, amount: int, tag: int, cpu: int, nic: int
    ) -> None:
        if kind == _CALC:
            self.goal.calc(at, rank, amount, cpu)
        elif kind in _KINDS:
            peer, tag = (ANY if value == _ANY else value for value in (peer, tag))
            self.goal.transfer(at, rank, _KINDS[kind], amount, peer, tag, cpu, nic)
        else:
            raise InputError(f"{at}: kind {kind}; 1 (send), 2 (recv) and 3 (calc) are accepted")

    def _array(self, dtype: np.dtype[Any], at: int, n: int) -> npt.NDArray[Any]:
        """Return n records from byte `at` on; raise `InputError` if the file ends before."""
        self._check(at, n * dtype.itemsize)
        return np.frombuffer(self.data, dtype, n, at)

    def _check(self, at: int, n_bytes: int) -> None:
        if at + n_bytes > len(self.data):
            raise InputError(
                f"{self.goal.path}: ends at byte {len(self.data)}, within what it lists up to byte"
                f" {at + n_bytes}; it is not complete"
            )
