"""Which message belongs to which send or receive.

A message is known by its key at both ends, so operations of many groups share one queue pair, and
their order never matters. Small messages are sent unasked, and one that is not wanted yet is kept;
a peer of which so much is kept that it must HOLD asks first, as for a large one, and so does who
finds that another message waits for room. Large messages wait until their receiver is ready; none
is buffered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from openmrc.errors import OpenMrcError
from openmrc.torch import call
from openmrc.torch.agreement import RECEIVING, SENDING, SENT, Agreement
from openmrc.torch.memory import Bytes
from openmrc.torch.operation import Operation, Transfer
from openmrc.torch.pair import (
    COPIED,
    DATA,
    HOLD,
    OFFER,
    PING,
    PLACED_MAX,
    READY,
    REFUSED,
    Header,
    Key,
    Pair,
)
from openmrc.torch.running import Running
from openmrc.torch.shared import Shared
from openmrc.verbs.cq import WorkCompletion
from openmrc.verbs.region import MemoryRegion
from openmrc.verbs.status import Opcode, Status

SUCCESS, WRITTEN = Status.SUCCESS, Opcode.RDMA_WRITE  # looked up once
LONG = 1 << 20
KEPT_MAX = 4 << 20  # bytes that are kept of a peer, and what is under way by then


class Matching:
    """All messages of one process."""

    def __init__(
        self,
        me: int,
        names: Sequence[int],
        pairs: Mapping[int, Pair | Shared],
        running: Running,
        agreement: Agreement,
    ) -> None:
        self.me, self.names, self.pairs = me, names, pairs
        self._running, self._agreement = running, agreement
        self.on_broken: Callable[[Pair, Status], None] = lambda pair, status: None
        self._expected: dict[tuple[int, Key], Transfer] = {}
        self._unexpected: dict[tuple[int, Key], tuple[Header, bytes]] = {}
        self._kept: dict[int, int] = {}  # bytes of those, by peer
        self._told_to_hold: set[int] = set()
        self._must_hold: set[int] = set()  # peers that have said so
        self._sends: dict[tuple[int, Key], Transfer] = {}
        self._ready: dict[tuple[int, Key], Header] = {}
        self._offers: dict[tuple[int, Key], Header] = {}
        self._placed: dict[int, Transfer] = {}
        self._waiting_ready: deque[Transfer] = deque()
        self._writing: dict[int, Transfer] = {}
        self._lingering: dict[int, Any] = {}  # memory of writes whose operation has failed
        self._abandoned: dict[int, MemoryRegion] = {}  # where writes of failed ones land
        self._of_anybody: dict[tuple[int, int], deque[Transfer]] = {}
        self._sent_seq: dict[tuple[int, int, int], int] = {}
        self._received_seq: dict[tuple[int, int, int], int] = {}
        self._numbers = 0

    @property
    def is_long(self) -> bool:
        """Whether messages are under way with which the device's thread and this one both have
        enough to do.
        """
        return any(
            t.data.nbytes > LONG for those in (self._writing, self._placed) for t in those.values()
        )

    # --- sends and receives, called by operations

    def send(self, op: Operation, peer: int, key: Key, data: Bytes) -> Transfer:
        """Send; `data` may change when it is complete: at once, if it is sent unasked, up to the
        pair's `eager` bytes. A sender of more than `COPIED` waits for room.
        """
        t = self._transfer(op, peer, key, data)
        n, pair = len(data), self.pairs[peer]
        small = n <= pair.eager
        if n == 0 or (small and peer not in self._must_hold and not pair.full):
            t.done = True
            if peer in self._running.departed:  # it has received all that it needs
                return t
            header = Header(DATA, key, n, 0, 0, 0, op.call)
            if n <= COPIED:
                pair.send(header, data)
            elif not pair.send(header, data, partial(self._running.over, t)):
                t.done = False
                op.live.add(t)
            return t
        if peer in self._running.departed:
            raise self._running.departed[peer]
        op.live.add(t)
        if key.lane or small:  # for a receive from any rank, or one that does not ask
            pair.send(Header(OFFER, key, n, call=op.call))
        at = (peer, key)
        if at in self._ready:
            self._write(t, self._ready.pop(at))
        else:
            self._sends[at] = t
        return t

    def next_sent(self, peer: int, group: int, tag: int) -> Key:
        """The key of the next message to a peer with this tag."""
        return self._next(self._sent_seq, peer, group, tag + 1)

    def receive_next(self, op: Operation, peer: int, group: int, tag: int, data: Bytes) -> Transfer:
        """Receive the next message from a peer with this tag."""
        key = self._next(self._received_seq, peer, group, tag + 1)
        return self.receive(op, peer, key, data)

    def receive_any(self, op: Operation, group: int, tag: int, data: Bytes) -> Transfer:
        """Receive the next message from any rank with this tag; `op.source` is the sender."""
        lane = tag + 1
        for peer, key in [*self._unexpected, *self._offers]:
            if (key.group, key.lane) == (group, lane) and self._is_next(peer, key):
                op.source = peer
                return self.receive_next(op, peer, group, tag, data)
        t = self._transfer(op, -1, Key(group, lane, 0, 0), data)
        op.live.add(t)
        self._of_anybody.setdefault((group, lane), deque()).append(t)
        return t

    def receive(self, op: Operation, peer: int, key: Key, data: Bytes) -> Transfer:
        """Receive; complete when `data` is filled."""
        t = self._transfer(op, peer, key, data)
        at = (peer, key)
        if (early := self._unexpected.pop(at, None)) is not None:
            self._keep(peer, -early[0].n)
            self._deliver(t, *early)
            return t
        if peer in self._running.departed:
            raise self._running.departed[peer]
        op.live.add(t)
        self._expected[at] = t
        offer = self._offers.pop(at, None)
        if offer is not None and not self._fits(t, offer):
            return t
        if offer is not None or data.nbytes > self.pairs[peer].eager:
            self._invite(t)
        return t

    @staticmethod
    def _transfer(op: Operation, peer: int, key: Key, data: Bytes) -> Transfer:
        """A new transfer. The operation may have failed by the last one, in the middle of a step:
        it raises, for nobody keeps its memory any more, and what came would still be placed there.
        """
        if op.error is not None:
            raise op.error
        return Transfer(op, peer, key, data)

    @staticmethod
    def _next(table: dict[tuple[int, int, int], int], peer: int, group: int, lane: int) -> Key:
        seq = table.get((peer, group, lane), 0)
        table[peer, group, lane] = seq + 1
        return Key(group, lane, seq, 0)

    def _is_next(self, peer: int, key: Key) -> bool:
        return key.seq == self._received_seq.get((peer, key.group, key.lane), 0)

    def _invite(self, t: Transfer) -> None:
        """Announce the destination of a large message."""
        if len(self._placed) >= PLACED_MAX:
            self._waiting_ready.append(t)
            return
        n = t.data.nbytes
        pair = self.pairs[t.peer]
        self._numbers = self._numbers % ((1 << 30) - 1) + 1
        self._placed[self._numbers] = t
        if isinstance(pair, Shared):
            pair.send(Header(READY, t.key, n, 0, 0, self._numbers, t.op.call))
            return
        t.exposed = told = pair.device.reg_mr(t.data)
        pair.send(Header(READY, t.key, n, told.addr, told.rkey, self._numbers, t.op.call))

    def _write(self, t: Transfer, to: Header) -> None:
        if not self._fits(t, to, sends=True):
            return
        self._numbers = self._numbers % ((1 << 30) - 1) + 1
        self._writing[self._numbers] = t
        self.pairs[t.peer].write(self._numbers, t.data, to)

    def _fits(self, t: Transfer, h: Header, sends: bool = False) -> bool:
        """Whether a message has the type and the size of its other end; if not, both fail."""
        if t.data.nbytes == h.n and (t.op.call == h.call or not t.key.lane):
            return True
        mine, its = self.names[self.me], self.names[t.peer]
        if t.key.lane:
            own, other = call.message(t.op.call), call.message(h.call)
        else:
            own, other = f"{t.data.nbytes} bytes", f"{h.n} bytes"
        a, b = ((mine, own), (its, other)) if sends else ((its, other), (mine, own))
        error = OpenMrcError(
            f"{t.op.name}: rank {a[0]} sends {a[1]}, rank {b[0]} receives {b[1]}:"
            " both must pass the same type and size"
        )
        if t.key.lane:
            its_part = RECEIVING if sends else SENT if h.kind == DATA else SENDING
            self._agreement.tell(t.peer, t.key, error, its_part)
            self._running.fail(t.op, error)
        else:
            self._agreement.refuse(t.op, error)
        return False

    # --- what came

    def on_completion(self, pair: Pair, done: WorkCompletion) -> None:
        """A request to a peer is complete, or one of its messages is here."""
        if self._lingering:
            self._lingering.pop(done.wr_id, None)
        if done.status != SUCCESS:
            self.on_broken(pair, done.status)
            return
        if done.opcode == WRITTEN:
            if (sent := self._writing.pop(done.wr_id, None)) is not None:
                pair.written += 1
                self._running.over(sent)
            return
        header, data, number = pair.on_receive(done)
        if number is not None:
            if (t := self._placed.pop(number, None)) is not None:
                self._on_placed(t)
            elif (room := self._abandoned.pop(number, None)) is not None:
                room.dereg()
        elif header is not None and data is not None:
            self.on_header(pair.peer, header, data)
            pair.emptied()

    def on_piece(self, number: int, at: int, data: memoryview) -> None:
        """A piece of a large message from a rank of this host; its receive may have been
        abandoned.
        """
        t = self._placed.get(number)
        if t is None:
            return
        end = at + len(data)
        t.data[at:end] = data
        if end == t.data.nbytes:
            del self._placed[number]
            self.pairs[t.peer].placed += 1
            self._on_placed(t)

    def _on_placed(self, t: Transfer) -> None:
        self._expected.pop((t.peer, t.key), None)
        if t.exposed is not None:
            t.exposed.dereg()
        t.exposed = None
        self._running.over(t)
        while self._waiting_ready and len(self._placed) < PLACED_MAX:
            other = self._waiting_ready.popleft()
            if not other.op.over:
                self._invite(other)

    def on_header(self, peer: int, h: Header, data: Bytes | memoryview) -> None:
        """A small message is here."""
        at = (peer, h.key)
        kind = h.kind
        if kind == REFUSED:
            self._on_refused(peer, h, bytes(data).decode(errors="replace"))
        elif kind == HOLD:
            (self._must_hold.add if h.number else self._must_hold.discard)(peer)
        elif kind == PING or not (h.key.lane or self._agreement.agrees(peer, h)):
            return
        elif kind == READY:
            if (t := self._sends.pop(at, None)) is not None:
                self._write(t, h)
            else:
                self._ready[at] = h
        elif kind == DATA:
            t = self._expected.pop(at, None) or self._take_of_anybody(peer, h.key)
            if t is None:
                self._unexpected[at] = h, data.tobytes()
                self._keep(peer, h.n)
            else:
                self._deliver(t, h, data)
        elif kind == OFFER:
            self._on_offer(peer, h)

    def _keep(self, peer: int, n: int) -> None:
        """So many bytes more are kept of a peer. Begin to hold it back when that is much, and end
        when half of it is gone.
        """
        kept = self._kept[peer] = self._kept.get(peer, 0) + n
        holds = peer in self._told_to_hold
        if holds == (kept > (KEPT_MAX // 2 if holds else KEPT_MAX)):
            return
        self._told_to_hold ^= {peer}
        if not self._running.is_away(peer):
            self.pairs[peer].send(Header(HOLD, Key(0, 0, 0, 0), 0, number=int(not holds)))

    def _on_refused(self, peer: int, h: Header, words: str) -> None:
        error = OpenMrcError(words)
        if not h.key.lane:
            self._agreement.on_refused(h, error)
        elif h.number == SENT:
            self._agreement.note(h.key.group, error)
        else:
            table = self._expected if h.number == RECEIVING else self._sends
            if (t := table.get((peer, h.key))) is not None:
                self._running.fail(t.op, error)

    def _on_offer(self, peer: int, h: Header) -> None:
        at = (peer, h.key)
        if (t := self._expected.get(at)) is not None:
            if self._fits(t, h) and h.n <= self.pairs[peer].eager:
                self._invite(t)
        elif h.key.seq >= self._received_seq.get((peer, h.key.group, h.key.lane), 0):
            t = self._take_of_anybody(peer, h.key)
            if t is None:
                self._offers[at] = h
            else:
                self._expected[at] = t
                if self._fits(t, h):
                    self._invite(t)

    def _take_of_anybody(self, peer: int, key: Key) -> Transfer | None:
        waiting = self._of_anybody.get((key.group, key.lane))
        while waiting and self._is_next(peer, key):
            t = waiting.popleft()
            if not t.op.over:
                t.peer, t.op.source = peer, peer
                t.key = self._next(self._received_seq, peer, key.group, key.lane)
                return t
        return None

    def _deliver(self, t: Transfer, h: Header, data: Bytes | memoryview | bytes) -> None:
        if not self._fits(t, h):
            return
        if h.n:
            memoryview(t.data)[:] = memoryview(data)  # type: ignore[arg-type]  # a tensor's array
        self._running.over(t)

    def drop(self, t: Transfer) -> None:
        """Its operation has failed: nothing is written to its memory any more."""
        at = (t.peer, t.key)
        for table in (self._expected, self._sends):
            if table.get(at) is t:
                del table[at]
        for numbered in (self._placed, self._writing):
            for number in [n for n, one in numbered.items() if one is t]:
                del numbered[number]
                if isinstance(pair := self.pairs[t.peer], Shared):
                    pair.keep(number)
                elif numbered is self._writing:  # the device still reads it
                    self._lingering[number] = (t.data, t.op.keep)
                elif t.exposed is not None:  # its peer may be writing
                    t.exposed.rereg(np.empty(t.data.nbytes, np.uint8))
                    self._abandoned[number] = t.exposed

    def left(self, peer: int, placed: int, error: BaseException) -> None:
        """A peer left after it had received so many large messages: what it sent has arrived, and
        missing acknowledgements count as received. Only operations that need more from it fail.
        """
        sent = [n for n, t in sorted(self._writing.items()) if t.peer == peer]
        for number in sent[: max(placed - self.pairs[peer].written, 0)]:
            self._running.over(self._writing.pop(number))
        self._running.resume_all()
        self._running.departed[peer] = error
        for op in list(self._running.ops):
            if any(t.peer == peer for t in op.live):
                self._running.give_up(op, error)

    def have_left(self, pair: Shared) -> bool:
        """Process large messages in transit to a rank of this host; False if there are none."""
        if not pair.sent:
            return False
        for number in pair.sent:
            if (t := self._writing.pop(number, None)) is not None:
                pair.written += 1
                self._running.over(t)
        pair.sent.clear()
        return True
