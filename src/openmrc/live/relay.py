"""A relay between devices: the frames of every port pass through one Python thread.

A misbehaving network for the soak and the tests: it forwards frames to the destination NIC on the
plane on which they arrived, and drops, duplicates, delays, reorders and corrupts them according to
`Trouble`. It is slow (some ten thousand frames a second), and not a switch: it has no paths, rates
or queues.
"""

from __future__ import annotations

import heapq
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from openmrc.live import overlay
from openmrc.wire import layout

FRAME_MAX = 65_536
DST_END = layout.ETHERNET.size_bytes + 2 * layout.IPV6.size_bytes  # of the inner destination
IDLE_S = 0.05
BATCH = 32  # frames of a port before the others get their turn


@dataclass
class Trouble:
    """The treatment of the frames of one plane: probabilities, and a delay in seconds."""

    drop: float = 0.0
    repeat: float = 0.0
    reorder: float = 0.0  # held back by up to `hold_s`
    corrupt: float = 0.0  # one byte is changed
    delay_s: float = 0.0
    hold_s: float = 0.005
    cut: bool = False
    longest: int = FRAME_MAX  # bytes of a frame; longer ones are dropped, as by a link's MTU


class Relay:
    """Sockets for every port of `n_nics` NICs on `n_planes` planes, and the thread between them.

    `ends[nic][plane]` is the socket for the device. `trouble[plane]` may be replaced at any time;
    `tap(nic, plane, frame)` sees every frame that comes from a NIC.
    """

    def __init__(self, n_nics: int, n_planes: int, seed: int = 1) -> None:
        pairs = [[overlay.pair() for _ in range(n_planes)] for _ in range(n_nics)]
        self.ends = [[pair[0] for pair in row] for row in pairs]
        self._own = [[pair[1] for pair in row] for row in pairs]
        self.trouble = [Trouble() for _ in range(n_planes)]
        self.tap: Callable[[int, int, bytes], None] | None = None
        self.forwarded = self.dropped = self.repeated = self.corrupted = self.delayed = 0
        self._rng = np.random.default_rng(seed)
        self._draws = self._rng.random((1024, 4)).tolist()
        self._drawn = 0
        self._later: list[tuple[float, int, int, int, bytes]] = []
        self._number = 0
        self._stop_read, self._stop_write = os.pipe()
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)
        self._thread.start()

    def send(self, nic: int, plane: int, frame: bytes) -> None:
        """Write a frame to a NIC's port, as an attacker could; `BlockingIOError` if full."""
        self._own[nic][plane].send(frame)

    def close(self) -> None:
        """Stop, and close every socket."""
        os.write(self._stop_write, b"x")
        self._thread.join()
        for fd in (self._stop_read, self._stop_write):
            os.close(fd)
        for row in (*self.ends, *self._own):
            for one in row:
                one.close()

    def _run(self) -> None:
        ports = {
            one.fileno(): (one, nic, plane)
            for nic, row in enumerate(self._own)
            for plane, one in enumerate(row)
        }
        poll = select.poll()
        for fd in (*ports, self._stop_read):
            poll.register(fd, select.POLLIN)
        while True:
            wait_s = IDLE_S
            if self._later:
                wait_s = max(min(self._later[0][0] - time.monotonic(), IDLE_S), 0.0)
            for fd, _ in poll.poll(wait_s * 1000):
                if fd == self._stop_read:
                    return
                self._take(*ports[fd])
            now = time.monotonic()
            while self._later and self._later[0][0] <= now:
                _, _, nic, plane, frame = heapq.heappop(self._later)
                self._put(nic, plane, frame)

    def _take(self, one: socket.socket, nic: int, plane: int) -> None:
        for _ in range(BATCH):
            try:
                frame = one.recv(FRAME_MAX)
            except OSError:  # no more frames, or the peer of the last send was gone
                return
            if self.tap is not None:
                self.tap(nic, plane, frame)
            self._pass_on(plane, frame)

    def _pass_on(self, plane: int, frame: bytes) -> None:
        to = int.from_bytes(frame[DST_END - 4 : DST_END], "big") - 1
        if not 0 <= to < len(self._own):
            return
        trouble = self.trouble[plane]
        drop, repeat, reorder, corrupt = self._next_draws()
        if trouble.cut or drop < trouble.drop or len(frame) > trouble.longest:
            self.dropped += 1
            return
        if corrupt < trouble.corrupt:
            self.corrupted += 1
            changed = bytearray(frame)
            at = int(self._rng.integers(len(frame)))
            changed[at] ^= int(self._rng.integers(1, 256))
            frame = bytes(changed)
        delay_s = trouble.delay_s
        if reorder < trouble.reorder:
            delay_s += trouble.hold_s * reorder / trouble.reorder
        twice = repeat < trouble.repeat  # read once: others may change it meanwhile
        self.repeated += twice
        for _ in range(2 if twice else 1):
            if delay_s > 0.0:
                self.delayed += 1
                self._number += 1
                at_s = time.monotonic() + delay_s
                heapq.heappush(self._later, (at_s, self._number, to, plane, frame))
            else:
                self._put(to, plane, frame)

    def _next_draws(self) -> list[float]:
        if self._drawn == len(self._draws):
            self._draws = self._rng.random((1024, 4)).tolist()
            self._drawn = 0
        self._drawn += 1
        draws: list[float] = self._draws[self._drawn - 1]
        return draws

    def _put(self, nic: int, plane: int, frame: bytes) -> None:
        try:
            self._own[nic][plane].send(frame)
            self.forwarded += 1
        except OSError:  # full, or no receiver: the frame is lost
            self.dropped += 1
