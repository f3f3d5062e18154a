"""Completions, and the queues from which an application takes them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import time
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from openmrc.errors import InputError, OpenMrcError
from openmrc.jit.bound import column
from openmrc.live.endpoint import state
from openmrc.live.endpoint.host import Host
from openmrc.live.endpoint.loop import LOOK
from openmrc.verbs.status import Opcode, Status


class WorkCompletion(NamedTuple):
    """The result of a work request (`ibv_wc`). `byte_len` is that of the whole message."""

    wr_id: int
    status: Status
    opcode: Opcode
    qp_num: int
    byte_len: int
    imm_data: int | None


# of the numbers in an entry
STATUSES = {int(one): one for one in Status}
OPCODES = {int(one): one for one in Opcode}


class QueueFullError(OpenMrcError):
    """A queue has no room for another request (ENOMEM of ibverbs)."""


class CompletionQueue:
    """Completions in the order in which they arrived (`ibv_cq`)."""

    def __init__(self, host: Host, index: int, depth: int) -> None:
        self._host, self.index, self.depth = host, index, depth
        self._ring = host.ep.cq[index]
        first = int(self._ring.cqe0)
        self._mask = int(self._ring.mask)
        self._entries = host.ep.cqe[first : first + self._mask + 1].view(np.ndarray)
        rings = host.ep.cq[index : index + 1]
        self._written, self._read = column(rings, "written"), column(rings, "read")
        self.silent = column(rings, "silent")
        # `look(spin_ns, most_ns)` waits as `loop.LOOK` says; `take` then returns the completions. A
        # caller that waits in another way after it calls `hear`.
        self.look, self.hear = partial(host._go, LOOK, index), host.hear
        self.promised = 0  # completions that posted requests may still cause, and unread ones

    def fileno(self) -> int:
        """A descriptor that is readable when completions have arrived; `poll` clears it."""
        return int(self._ring.fd)

    def poll(self, n: int = 64) -> list[WorkCompletion]:
        """Take up to `n` completions; an empty list if there are none."""
        self._host.check_own()
        self.clear()
        taken = self.take(n)
        if self._written[0] != self._read[0]:
            os.eventfd_write(self.fileno(), 1)
        return taken

    def clear(self) -> None:
        """Make the descriptor unreadable until the next completion."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.fileno())

    def take(self, n: int = 64) -> list[WorkCompletion]:
        """Like `poll`, but without a system call; the descriptor keeps its state."""
        read = self._read[0]
        n = min(n, self._written[0] - read)
        if n == 0:
            return []
        taken = [self._entry(read + i) for i in range(n)]
        self._read[0] = read + n
        self.promised -= n
        return taken

    def watch(self, fds: Sequence[int]) -> None:
        """Let `look` also return when one of these descriptors is readable (at most OTHERS_MAX)."""
        waits = self._host.ep.waits
        if len(fds) > state.OTHERS_MAX:
            raise InputError(f"{len(fds)} descriptors: at most {state.OTHERS_MAX} are accepted")
        waits.fd[state.OTHERS :] = [*fds, *[-1] * (state.OTHERS_MAX - len(fds))]

    def _entry(self, number: int) -> WorkCompletion:
        wr_id, length, qpn, imm, kind, status, with_imm = self._entries.item(number & self._mask)
        received = with_imm and kind == state.RECV_RDMA_WITH_IMM
        return WorkCompletion(
            wr_id, STATUSES[status], OPCODES[kind], qpn, length, imm if received else None
        )

    def wait(self, n: int = 1, timeout: float | None = None) -> list[WorkCompletion]:
        """Wait for `n` completions and take them; fewer after `timeout` seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        taken = self.poll(n)
        while len(taken) < n:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                break
            ready, _, _ = select.select([self.fileno()], [], [], left)
            if not ready:
                break
            taken += self.poll(n - len(taken))
        return taken

    async def get(self) -> WorkCompletion:
        """Wait for one completion within an asyncio loop."""
        running = asyncio.get_running_loop()
        while True:
            if taken := self.poll(1):
                return taken[0]
            readable = running.create_future()
            running.add_reader(self.fileno(), _resolve, readable)
            try:
                await readable
            finally:
                running.remove_reader(self.fileno())

    async def __aiter__(self) -> AsyncIterator[WorkCompletion]:
        """Yield completions without end."""
        while True:
            yield await self.get()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
