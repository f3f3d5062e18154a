"""Messages between the two ends of a measurement, over a queue pair of their own.

Each is JSON, written into a ring in the peer's memory with its length as immediate. Before the
first one the server reports by a plain write that its receives are posted: an immediate without one
would end the queue pair (MRC 1.2).

An end that only waits would never learn that its peer's host has vanished: the connection of the
exchange says nothing then, and may cross a single plane. So while it waits it repeats that plain
write once a second, over all planes: the peer's transport acknowledges it, or the queue pair ends
after its retries, as that of a sender does.
"""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np

from openmrc.engine import state as es
from openmrc.errors import OpenMrcError
from openmrc.verbs import CompletionQueue, Device, Opcode, QpState, RemoteRegion, Status

SLOTS, SLOT_BYTES = 4, 32_768  # at most one request and one answer are in flight
RING_BYTES = SLOTS * SLOT_BYTES
REGION_BYTES = 2 * RING_BYTES + 1  # incoming, outgoing, and the peer's "ready"
SEND_S, LEAVE_S = 60.0, 5.0
LOOK_S = 0.002
ASK_S = 1.0  # between two questions whether the peer is there
# A peer from which nothing comes for so long is gone. Retries may take longer: they are as slow as
# the round trip was when it was measured, which a busy machine makes long.
GONE_S = 10.0
READY = 1
RETRY_EXCEEDED = es.ERROR_TEXTS[es.RETRY_EXCEEDED]


class PeerGoneError(OpenMrcError):
    """The other end has left, or cannot be reached any more."""


class Channel:
    """One end. `start` before the first message."""

    def __init__(self, device: Device) -> None:
        self._device, self._heard_before = device, 0
        self._cq: CompletionQueue = device.create_cq(depth=4 * SLOTS)
        self.qp = device.create_qp(self._cq)
        self._room = np.zeros(REGION_BYTES, np.uint8)
        self.region = device.reg_mr(self._room)
        self._remote: RemoteRegion | None = None
        self._n_sent = self._n_received = 0
        self._waiting: list[dict[str, Any]] = []
        self._outstanding = 0
        self._asked = 0.0  # the last question
        self._who = "the peer"

    def start(self, remote: RemoteRegion, who: str, *, server: bool) -> None:
        """Start receiving, once the queue pair is connected and `remote` is the peer's region;
        `who` names the peer in errors.
        """
        self._remote, self._who = remote, who
        self._asked = time.monotonic()
        for number in range(SLOTS):
            self.qp.post_recv(number)
        if server:
            self._ask()
            self._until_sent()
            return
        until = time.monotonic() + SEND_S
        while self._room[REGION_BYTES - 1] != READY:
            self.check()
            if time.monotonic() > until:
                raise PeerGoneError(f"{self._who} was not ready within {SEND_S:g} s")
            time.sleep(LOOK_S)

    def _ask(self) -> None:
        """Write to the peer what it has been written before."""
        assert self._remote is not None
        self._room[REGION_BYTES - 1] = READY
        at = self._remote.addr + REGION_BYTES - 1
        self.qp.post_write(
            0, self.region, REGION_BYTES - 1, 1, remote_addr=at, rkey=self._remote.rkey
        )
        self._outstanding += 1
        self._asked, self._heard_before = time.monotonic(), self._heard()

    def send(self, message: dict[str, Any]) -> None:
        """Send one message; it has arrived when this returns."""
        assert self._remote is not None
        data = json.dumps(message).encode()
        assert len(data) <= SLOT_BYTES
        slot = self._n_sent % SLOTS * SLOT_BYTES
        self._n_sent += 1
        self._room[RING_BYTES + slot :][: len(data)] = np.frombuffer(data, np.uint8)
        self.qp.post_write_imm(
            0,
            self.region,
            RING_BYTES + slot,
            len(data),
            remote_addr=self._remote.addr + slot,
            rkey=self._remote.rkey,
            imm_data=len(data),
        )
        self._outstanding += 1
        self._until_sent()

    def receive(self) -> dict[str, Any]:
        """Wait for one message."""
        while not self._waiting:
            self._take(ASK_S)
            if not self._waiting:
                try:
                    self.check()
                except PeerGoneError:
                    self._take(0.0)  # what a peer said before it left
                    if not self._waiting:
                        raise
        return self._waiting.pop(0)

    def peek(self) -> dict[str, Any] | None:
        """The next message, if it has arrived; it is not removed."""
        self._take(0.0)
        return self._waiting[0] if self._waiting else None

    def until_gone(self) -> None:
        """Wait until the peer has left, or for LEAVE_S."""
        until = time.monotonic() + LEAVE_S
        while self.qp.state != QpState.ERROR and time.monotonic() < until:
            time.sleep(LOOK_S)

    def check(self) -> None:
        """Raise `PeerGoneError` if the peer is gone; ask for it, now and then. Whoever waits calls
        this.
        """
        if self.qp.state == QpState.ERROR:
            raise self.gone()
        if not self._outstanding and time.monotonic() >= self._asked + ASK_S:
            if self._remote is not None and self.qp.state == QpState.RTS:
                self._ask()
        elif self._outstanding:
            self._take(0.0)
            if self._outstanding and time.monotonic() >= self._asked + GONE_S:
                heard, before = self._heard(), self._heard_before
                if heard == before:
                    raise self.gone(f"silent for {GONE_S:g} s")
                self._heard_before, self._asked = heard, time.monotonic()

    def _heard(self) -> int:
        """How many bytes have come to this end's ports."""
        return sum(port["rx_bytes"] for port in self._device.counters()["ports"])

    def gone(self, unanswered: str = "") -> PeerGoneError:
        """The error that names the peer; `unanswered` is what it did not answer."""
        why = unanswered or self.qp.error
        silent = " (nothing comes from it: is its host down, or are all paths cut?)"
        told = silent if unanswered or why == RETRY_EXCEEDED else ""
        return PeerGoneError(f"{self._who} is gone{why and ': '}{why}{told}")

    def _until_sent(self) -> None:
        until = time.monotonic() + SEND_S
        while self._outstanding:
            if time.monotonic() > until:
                raise PeerGoneError(f"{self._who} did not take a message within {SEND_S:g} s")
            self._take(1.0)

    def _take(self, timeout: float | None) -> None:
        for done in self._cq.wait(1, timeout):
            if done.status != Status.SUCCESS:
                raise self.gone()
            if done.opcode == Opcode.RDMA_WRITE:
                self._outstanding -= 1
                continue
            slot = self._n_received % SLOTS * SLOT_BYTES
            self._n_received += 1
            data = self._room[slot : slot + done.byte_len].tobytes()
            self.qp.post_recv(done.wr_id)
            self._waiting.append(json.loads(data))
