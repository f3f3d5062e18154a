"""Whether all ranks of a group call the same operation, and who is told if not.

Each message says what it belongs to (`call`). Ranks that differ all fail, with the same words;
where the operation has returned already, the group's next one does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from openmrc.errors import OpenMrcError
from openmrc.torch import call
from openmrc.torch.operation import Operation
from openmrc.torch.pair import CALL, COPIED, REFUSED, Header, Key, Pair
from openmrc.torch.running import Running
from openmrc.torch.shared import Shared

CALLS_KEPT = 64  # collectives of a group whose calls are remembered after their end
ASKS_S = 0.25  # an operation is this old before peers are asked what they call
RECEIVING, SENDING, SENT = range(3)  # the peer's part in a message that is refused


class Agreement:
    """What this process and its peers have said of collectives."""

    def __init__(
        self,
        me: int,
        names: Sequence[int],
        pairs: Mapping[int, Pair | Shared],
        running: Running,
    ) -> None:
        self.me, self.names, self.pairs, self._running = me, names, pairs, running
        self.late: dict[int, BaseException] = {}  # group -> error of what has returned already
        self._called: dict[tuple[int, int], Operation] = {}  # by group and number
        self._last: dict[int, int] = {}  # group -> number of its last collective
        self._early: dict[tuple[int, int], dict[int, bytes]] = {}  # calls of peers that are ahead
        self._refused: dict[tuple[int, int], BaseException] = {}  # what they say is no match

    def agreed(self, op: Operation) -> bool:
        """Whether a new operation fits what peers have said so far; if not, it fails."""
        if op.number is not None:
            group, seq = op.number
            self._called[op.number], self._last[group] = op, seq
            self._called.pop((group, seq - CALLS_KEPT), None)
        if self.late and (late := self.late.pop(op.group, None)) is not None:
            self.give_up(op, late)
            return False
        if op.number is None:
            return True
        if (refused := self._refused.pop(op.number, None)) is not None:
            self._running.fail(op, refused)
            return False
        for peer, its in self._early.pop(op.number, {}).items():
            if its != op.call:
                self._differs(op, peer, its)
                return False
        return True

    def agrees(self, peer: int, h: Header) -> bool:
        """Whether a message of a collective belongs to the one with its number here."""
        at = (h.key.group, h.key.seq)
        op = self._called.get(at)
        if op is not None:
            if op.call == h.call:
                return True
            if op.error is None:
                self._differs(op, peer, h.call)
            return False
        if h.key.seq > self._last.get(h.key.group, -1):
            self._early.setdefault(at, {})[peer] = h.call
        return True

    def _differs(self, op: Operation, peer: int, its: bytes) -> None:
        assert op.number is not None
        calls = sorted(((self.names[self.me], op.call), (self.names[peer], its)))
        told = ", ".join(f"rank {rank} calls {call.told(one)}" for rank, one in calls)
        group = op.name.partition(" of ")[2]
        self.refuse(
            op,
            OpenMrcError(
                f"operation {op.number[1]} of {group}: {told}: all ranks must call the same, in"
                " the same order, with the same types and sizes"
            ),
        )

    def refuse(self, op: Operation, error: BaseException) -> None:
        """Fail a collective at all its ranks; where it has returned already, the group's next
        operation fails.
        """
        self._tell_all(op, error, SENT)
        self._fail_or_note(op, error)

    def give_up(self, op: Operation, error: BaseException) -> None:
        """Fail an operation that cannot go on here, and a collective also where it is not over."""
        self._tell_all(op, error, SENDING)
        self._running.fail(op, error)

    def _tell_all(self, op: Operation, error: BaseException, part: int) -> None:
        if op.number is not None:
            key = Key(op.number[0], 0, op.number[1], 0)
            for peer in op.ranks:
                self.tell(peer, key, error, part)

    def tell(self, peer: int, key: Key, error: BaseException, part: int) -> None:
        """Tell a peer that its part of a message, or of a collective, is refused: SENT, that it
        must know even if that has returned.
        """
        if peer == self.me or self._running.is_away(peer):
            return
        words = np.frombuffer(str(error).encode()[:COPIED], np.uint8)
        self.pairs[peer].send(Header(REFUSED, key, len(words), number=part), words)

    def _fail_or_note(self, op: Operation, error: BaseException) -> None:
        if not op.over:
            self._running.fail(op, error)
        elif op.error is None:
            op.error = error  # several peers may say so: it is noted once
            self.note(op.group, error)

    def note(self, group: int, error: BaseException) -> None:
        """What has returned was refused: fail what the group does now, or will do next. Where that
        is over already nobody need be told: all its ranks are told of what was refused.
        """
        for op in self._running.ops:
            if op.group == group:
                self.give_up(op, error)
                return
        self.late[group] = error

    def ask_calls(self, now: float) -> None:
        """Tell peers for whom a collective waits what it is: it may be that no message would ever
        say so, as with two ranks that both receive.
        """
        for op in self._running.ops:
            if op.number is None or op.asked or now - op.posted_at < ASKS_S:
                continue
            op.asked = True
            key = Key(op.number[0], 0, op.number[1], 0)
            for peer in {t.peer for t in op.live}:
                if not self._running.is_away(peer):
                    self.pairs[peer].send(Header(CALL, key, 0, call=op.call))

    def on_refused(self, h: Header, error: BaseException) -> None:
        """A peer refuses a collective."""
        at = (h.key.group, h.key.seq)
        if (op := self._called.get(at)) is not None:
            if h.number == SENT or not op.over:
                self._fail_or_note(op, error)
        elif h.key.seq > self._last.get(h.key.group, -1):
            self._refused[at] = error
