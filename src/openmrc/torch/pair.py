"""The queue pair to one peer, and what goes over it.

Small messages go into slots of a ring that the peer has registered: a header, then the bytes. They
follow one another, as immediates come in the order of posting; one that needs several slots has
them in one piece, and begins at the start of the ring if too few are left at its end. Large ones go
straight to where the receiver wants them: it says so in a small message (READY). The immediate says
which it was:

    0                the next slots are filled
    CREDIT | n       the peer has emptied n slots since the beginning
    PLACED | number  the data of the READY with this number is in place

Each header also says how many slots its sender has emptied, so that CREDIT is needed only by a peer
that is sent to and does not answer.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from openmrc.torch.memory import Bytes
from openmrc.verbs.attributes import QpAttributes, RemoteRegion
from openmrc.verbs.cq import CompletionQueue, QueueFullError, WorkCompletion
from openmrc.verbs.device import Device
from openmrc.verbs.region import MemoryRegion

EAGER = 1 << 18  # a question first would cost as much as the packets of this take
COPIED = 8192  # the sender of one that does not fit yet does not wait either: it is copied
HEADER_BYTES = 64
SLOT = HEADER_BYTES + COPIED
SLOTS = 128  # a megabyte each way
RECEIVES = 256  # slots, credits and PLACED_MAX together stay below
PLACED_MAX = 96  # large messages that a peer may be writing at a time
CREDIT, PLACED, KIND, NUMBER = 1 << 30, 2 << 30, 3 << 30, (1 << 30) - 1
KIND_BITS, EMPTIED = 8, (1 << 24) - 1  # of a header's first word: its kind, and slots emptied

DATA, READY, OFFER, REFUSED, PING, CALL, HOLD = range(7)
WITH_BYTES = (DATA, REFUSED)  # kinds of messages with bytes after the header


class Key(NamedTuple):
    """The identity of a message, at both ends: a group, an operation of it, a step of that."""

    group: int
    lane: int  # 0: collectives; tag + 1 of point-to-point messages
    seq: int
    step: int


class Header(NamedTuple):
    """The header before the bytes of a slot."""

    kind: int
    key: Key
    n: int  # bytes of the whole message
    addr: int = 0
    rkey: int = 0
    number: int = 0
    call: bytes = b""  # the operation that it belongs to (`openmrc.torch.call`)


_HEADER = struct.Struct("<IIIIqqQII16s")


def pack(h: Header, room: memoryview, at: int, emptied: int = 0) -> None:
    """Write a header to a slot."""
    kind, (group, lane, seq, step), n, addr, rkey, number, call = h
    word = kind | (emptied & EMPTIED) << KIND_BITS
    _HEADER.pack_into(room, at, word, group, lane, step, seq, n, addr, rkey, number, call)


def unpacked(slot: memoryview) -> tuple[Header, int]:
    """Return the header at the start of a slot, and how many slots its sender had emptied."""
    word, group, lane, step, seq, n, addr, rkey, number, call = _HEADER.unpack_from(slot)
    kind, emptied = word & ((1 << KIND_BITS) - 1), word >> KIND_BITS
    return Header(kind, Key(group, lane, seq, step), n, addr, rkey, number, call), emptied


def _place(number: int, n: int) -> tuple[int, int]:
    """Where a message of `n` bytes begins, after `number` slots, and how many it needs."""
    slots = -(-n // SLOT)
    left = SLOTS - number % SLOTS
    return number + (left if left < slots else 0), slots


class Waiting(NamedTuple):
    """A small message that waits for room, with a copy of its bytes."""

    header: Header
    data: Bytes | None
    left: Callable[[], None]  # called once it has left


def waiting(header: Header, data: Bytes | None, left: Callable[[], None]) -> Waiting:
    """A message whose bytes may change from now on."""
    return Waiting(header, None if data is None else data.copy(), left)


def nothing() -> None:
    """A callback that does nothing."""


@dataclass(frozen=True)
class Told:
    """What a peer must know of this end."""

    qp: QpAttributes
    ring: RemoteRegion


class Pair:
    """This end of the connection to `peer`."""

    eager = EAGER

    def __init__(self, device: Device, cq: CompletionQueue, peer: int) -> None:
        self.peer, self.device, self.cq = peer, device, cq
        self.qp = device.create_qp(cq, max_send_wr=RECEIVES, max_recv_wr=RECEIVES)
        self._landing = device.reg_mr(np.zeros(SLOTS * SLOT, np.uint8))
        self._staging = MemoryRegion.local(np.zeros(SLOTS * SLOT, np.uint8))
        self._slots, self._room = memoryview(self._landing.view), memoryview(self._staging.view)
        self._queue: deque[Waiting] = deque()
        self._large: deque[tuple[int, MemoryRegion, Header]] = deque()
        self._remote: RemoteRegion | None = None
        self._sent = self._emptied = self._taken = self._taken_next = self._told = 0
        self.placed = self.written = 0  # large messages that have arrived, and were acknowledged

    @property
    def told(self) -> Told:
        """Return what the peer must know."""
        return Told(self.qp.attributes, self._landing.remote)

    def connect(self, remote: Told) -> None:
        """Connect; both ends may send once the other has connected too."""
        self.qp.connect(remote.qp)
        self._remote = remote.ring
        for i in range(RECEIVES):
            self.qp.post_recv(i)

    # --- sending

    def send(
        self, header: Header, data: Bytes | None = None, left: Callable[[], None] = nothing
    ) -> bool:
        """Send a small message. `data` may change afterwards; False if there is no room now: then
        `left` is called when it has left.
        """
        if not self._queue and self._post_slot(header, data):
            return True
        self._queue.append(waiting(header, data, left))
        return False

    def write(self, wr_id: int, data: Bytes, to: Header) -> None:
        """Write a large message to where a READY requests it; its completion has `wr_id`."""
        mr = MemoryRegion.local(data)
        if self._large or not self._post_large(wr_id, mr, to):
            self._large.append((wr_id, mr, to))

    @property
    def full(self) -> bool:
        """Whether a small message waits for room."""
        return bool(self._queue)

    @property
    def behind(self) -> bool:
        """Whether a message waits for room."""
        return bool(self._queue or self._large)

    def flush(self) -> None:
        """Post waiting messages, as far as there is room now."""
        while self._queue and self._post_slot(self._queue[0].header, self._queue[0].data):
            self._queue.popleft().left()
        while self._large and self._post_large(*self._large[0]):
            self._large.popleft()

    def _post_slot(self, header: Header, data: Bytes | None) -> bool:
        n = 0 if data is None else len(data)
        first, slots = _place(self._sent, HEADER_BYTES + n)
        if first + slots - self._emptied > SLOTS or self._remote is None:
            return False
        at = first % SLOTS * SLOT
        room = self._room
        pack(header, room, at, self._taken)
        if data is not None and n:
            body: Any = data
            room[at + HEADER_BYTES : at + HEADER_BYTES + n] = body
        if not self._post(0, self._staging, at, HEADER_BYTES + n, self._remote, at, 0, False):
            return False
        self._sent, self._told = first + slots, self._taken
        return True

    def _post_large(self, wr_id: int, mr: MemoryRegion, to: Header) -> bool:
        return self._post(wr_id, mr, 0, mr.length, to, 0, PLACED | to.number, True)

    def _post(
        self,
        wr_id: int,
        mr: MemoryRegion,
        offset: int,
        n: int,
        to: RemoteRegion | Header,
        at: int,
        imm: int,
        signaled: bool,
    ) -> bool:
        try:
            self.qp.post_write_imm(
                wr_id,
                mr,
                offset,
                n,
                remote_addr=to.addr + at,
                rkey=to.rkey,
                imm_data=imm,
                signaled=signaled,
            )
        except QueueFullError:
            return False
        return True

    @property
    def outstanding(self) -> bool:
        """Whether the peer has not acknowledged everything that was sent."""
        return self.qp.outstanding > 0

    @property
    def heard(self) -> int:
        """The number of packets that have arrived."""
        return self.qp.packets_heard

    # --- receiving

    def on_receive(
        self, done: WorkCompletion
    ) -> tuple[Header | None, memoryview | None, int | None]:
        """Process a receive: returns a small message (header and bytes, valid until `emptied`), the
        number of a large one, or nothing to act on.
        """
        imm = done.imm_data
        assert imm is not None
        self.qp.post_recv(0)
        kind, number = imm & KIND, imm & NUMBER
        if kind == PLACED:
            self.placed += 1
            return None, None, number
        if kind == CREDIT:
            self._free((number - self._emptied) & NUMBER)
            return None, None, None
        first, slots = _place(self._taken, done.byte_len)
        self._taken_next = first + slots
        at = first % SLOTS * SLOT
        message = self._slots[at : at + done.byte_len]
        header, emptied = unpacked(message)
        self._free((emptied - self._emptied) & EMPTIED)
        return header, message[HEADER_BYTES:], None

    def _free(self, slots: int) -> None:
        """The peer has emptied so many more."""
        self._emptied += slots
        if slots and self._queue:
            self.flush()

    def emptied(self) -> None:
        """The bytes of the last small message were used: free its slots."""
        self._taken = self._taken_next
        if self._taken - self._told >= SLOTS // 2:
            self._tell()

    def _tell(self) -> None:
        assert self._remote is not None
        imm = CREDIT | (self._taken & NUMBER)
        if self._post(0, self._staging, 0, 0, self._remote, 0, imm, False):
            self._told = self._taken
