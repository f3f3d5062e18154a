"""Completions, and the queues from which an application takes them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from openmrc.errors import OpenMrcError
from openmrc.live.endpoint import state
from openmrc.live.endpoint.host import Host
from openmrc.verbs.status import Opcode, Status


@dataclass(frozen=True)
class WorkCompletion:
    """The result of a work request (`ibv_wc`). `byte_len` is that of the whole message."""

    wr_id: int
    status: Status
    opcode: Opcode
    qp_num: int
    byte_len: int
    imm_data: int | None


class QueueFullError(OpenMrcError):
    """A queue has no room for another request (ENOMEM of ibverbs)."""


class CompletionQueue:
    """Completions in the order in which they came (`ibv_cq`)."""

    def __init__(self, host: Host, index: int, depth: int) -> None:
        self.index, self.depth = index, depth
        self._ring = host.ep.cq[index]
        first = int(self._ring.cqe0)
        self._entries = host.ep.cqe[first : first + int(self._ring.mask) + 1]
        self.promised = 0  # completions that posted requests may still bring, and unread ones

    def fileno(self) -> int:
        """A descriptor that is readable when completions have come; `poll` clears it."""
        return int(self._ring.fd)

    def poll(self, n: int = 64) -> list[WorkCompletion]:
        """Take up to `n` completions; an empty list if there are none."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.fileno())
        ring = self._ring
        read = int(ring.read)
        ready = int(ring.written) - read
        taken = [self._entry(read + i) for i in range(min(n, ready))]
        ring.read = read + len(taken)
        self.promised -= len(taken)
        if ready > len(taken):
            os.eventfd_write(self.fileno(), 1)
        return taken

    def _entry(self, number: int) -> WorkCompletion:
        c = self._entries[number & int(self._ring.mask)]
        return WorkCompletion(
            int(c.wr_id),
            Status(int(c.status)),
            Opcode(int(c.kind)),
            int(c.qpn),
            int(c.length),
            int(c.imm) if c.with_imm and c.kind == state.RECV_RDMA_WITH_IMM else None,
        )

    def wait(self, n: int = 1, timeout: float | None = None) -> list[WorkCompletion]:
        """Wait until `n` completions are there and take them; fewer after `timeout` seconds."""
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
        """Completions for as long as one asks."""
        while True:
            yield await self.get()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
