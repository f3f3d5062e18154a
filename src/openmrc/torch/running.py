"""Which operation continues, and which is over.

An operation is a generator. It posts sends and receives, yields those that it waits for, and is
resumed when all of them are complete.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from openmrc.errors import OpenMrcError
from openmrc.torch.memory import Bytes
from openmrc.torch.operation import Operation, Transfer, nothing


class Running:
    """The operations of one process. Others say what becomes of a failed one's transfers (`drop`),
    whether its peers call the same (`agreed`), and tell them if it cannot go on (`give_up`).
    """

    def __init__(self) -> None:
        self.ops: dict[Operation, None] = {}
        self.gone: dict[int, BaseException] = {}  # nothing can be done with them any more
        self.departed: dict[int, BaseException] = {}  # left in order: what they sent has arrived
        self.runnable: deque[tuple[Operation, int]] = deque()
        self.drop: Callable[[Transfer], None] = lambda t: None
        self.agreed: Callable[[Operation], bool] = lambda op: True
        self.give_up: Callable[[Operation, BaseException], None] = self.fail
        self.timed_out: Callable[[Operation, float], BaseException] = _timed_out
        self._finished: list[Operation] = []
        self._scratch: dict[int, list[Bytes]] = {}

    def begin(self, op: Operation) -> None:
        """Take the first steps of a new operation."""
        self.ops[op] = None
        for rank in op.ranks:
            if rank in self.gone:
                self.fail(op, self.gone[rank])
                return
        if not self.agreed(op):
            return
        op.running = len(op.strands)
        for number in range(len(op.strands)):
            self.resume(op, number)

    def resume(self, op: Operation, number: int) -> None:
        """Take the next step of a strand, and those after it that need not wait."""
        if op.over:
            return
        while True:
            try:
                transfers = next(op.strands[number])
            except StopIteration:
                op.running -= 1
                if op.running == 0:
                    self._end(op)
                return
            except BaseException as error:
                if not op.over:
                    self.give_up(op, error)
                return
            if op not in self.ops:  # it failed meanwhile
                return
            pending = [t for t in transfers if not t.done]
            if pending:
                op.waits[number] = len(pending)
                for t in pending:
                    t.strand = number
                return

    def _end(self, op: Operation) -> None:
        op.over = True
        for memory in op.scratch:
            self._scratch.setdefault(memory.nbytes, []).append(memory)
        op.scratch = []
        op.strands = []  # they refer to the operation: without a cycle all is freed at once
        self.ops.pop(op, None)
        self._finished.append(op)

    def fail(self, op: Operation, error: BaseException) -> None:
        """End an operation with an error."""
        if op.over:
            return
        op.error = error
        for strand in op.strands:
            try:
                strand.close()
            except ValueError:  # it is the strand that runs
                continue
        for t in list(op.live):
            self.drop(t)
        op.scratch = []  # a peer may still write there
        self._end(op)

    def over(self, t: Transfer) -> None:
        """A transfer is complete."""
        t.done = True
        t.op.live.discard(t)
        if t.strand < 0:
            return
        t.op.waits[t.strand] -= 1
        if t.op.waits[t.strand] == 0:
            self.runnable.append((t.op, t.strand))

    def due(self) -> float:
        """When the next operation times out."""
        ops = list(self.ops)
        return min((op.posted_at + op.timeout_s for op in ops), default=float("inf"))

    def time_out(self, now: float) -> None:
        """Fail operations that have taken too long."""
        for op in list(self.ops):
            if now - op.posted_at >= op.timeout_s:
                self.fail(op, self.timed_out(op, now))

    def fail_peer(self, rank: int, error: BaseException) -> None:
        """A peer is gone: fail all operations with it, and future ones."""
        if rank in self.gone:
            return
        self.gone[rank] = error
        for op in list(self.ops):
            if rank in op.ranks:
                self.fail(op, error)

    def scratch(self, op: Operation, n: int) -> Bytes:
        """Memory for an operation, until it ends."""
        size = 1 << max(n - 1, 1).bit_length()
        free = self._scratch.get(size)
        memory = free.pop() if free else np.empty(size, np.uint8)
        op.scratch.append(memory)
        return memory[:n]

    def finish(self) -> None:
        """Report ends to waiting threads; without the lock, because a future may call code that
        posts.
        """
        while self._finished:
            op = self._finished.pop()
            tell, op.on_finish = op.on_finish, nothing
            tell()

    def is_away(self, peer: int) -> bool:
        """Whether a peer is gone, or has left."""
        return peer in self.gone or peer in self.departed

    def resume_all(self) -> None:
        """Take all steps that are possible."""
        while self.runnable:
            self.resume(*self.runnable.popleft())


def _timed_out(op: Operation, now: float) -> BaseException:
    """The error of an operation that timed out; `World` says more."""
    return OpenMrcError(f"{op.name}: Timed out after {op.timeout_s:g} s")
