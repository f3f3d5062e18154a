"""What a responder holds after the packets sent to it, and what it owes for each: a model of MRC's
text, which knows no other implementation.

A packet is one of the `VERDICTS`. Sequences count from 0, the first PSN; what has arrived is one
whole number with a bit for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from openmrc.conform.model.cutting import OVERHEAD, packets_of
from openmrc.engine import packet as pk

PLACED, DUPLICATE, BEYOND, HEADER, REFUSED, UNHEARD = range(6)
VERDICTS = ("placed", "duplicate", "beyond the window", "header", "refused", "unheard")
SACK_BYTES = 16_384  # row 5
MESSAGES = 64  # that a peer may have open
_LAST = (pk.WRITE_LAST, pk.WRITE_LAST_IMM)
_ONLY = (pk.WRITE_ONLY, pk.WRITE_ONLY_IMM)
_IMM = (pk.WRITE_LAST_IMM, pk.WRITE_ONLY_IMM)


class Snapshot(NamedTuple):
    """What a responder can say at a time."""

    cack: int  # the last sequence received in a row
    got: int  # bit k: sequence k has been received
    high: int  # the highest one
    n_bytes: int  # nominal, each packet once
    done: int  # messages complete in order
    end: int  # their packets

    def bitmap(self, base: int) -> int:
        """The 64 bits from a sequence on; what lies before the first packet counts as received."""
        before = (1 << -base) - 1 if base < 0 else 0
        bits = self.got << -base | before if base < 0 else self.got >> base
        return bits & 0xFFFF_FFFF_FFFF_FFFF


NOTHING = Snapshot(-1, 0, -1, 0, 0, 0)


@dataclass
class _Message:
    """What the packets of a message have said of it."""

    number: int
    length: int
    rkey: int
    origin: int  # the address that sequence 0 would have
    first: range  # sequences that its first packet may have
    total: int
    received: int = 0
    imm: int | None = None
    has_imm: bool = False


@dataclass(frozen=True)
class Told:
    """What is agreed with a responder."""

    first_psn: int
    pmtu: int
    mpr: int
    region: tuple[int, int, int]  # address, key, bytes
    max_wimm: int = 128
    receives: int = MESSAGES
    trim_nack: bool = True
    messages: int = 0  # that were complete before
    n_bytes: int = 0  # and how many bytes they had


@dataclass
class Received:
    """A responder's state."""

    told: Told
    now: Snapshot = NOTHING
    immediates: list[int] = field(default_factory=list)  # received, in order
    ended: bool = False
    credit: int = 0  # nominal bytes since the last report of all (row 5)

    def __post_init__(self) -> None:
        self.receives = self.told.receives
        self.now = self.now._replace(done=self.told.messages, n_bytes=self.told.n_bytes)
        self._messages: dict[int, _Message] = {}
        self._asked = -1  # the newest sequence that asked for a SACK
        self._open_imms = 0

    def sequence(self, psn: int) -> int:
        """The sequence of a PSN, near what is expected next."""
        near = self.now.cack + 1
        off = psn - self.told.first_psn - near
        return near + (off + pk.PSN_HALF & pk.PSN_MASK) - pk.PSN_HALF

    def psn(self, sequence: int) -> int:
        """The PSN of a sequence."""
        return self.told.first_psn + sequence & pk.PSN_MASK

    def has(self, seq: int) -> bool:
        """Whether a sequence has been received."""
        return seq < 0 or bool(self.now.got >> seq & 1)

    @property
    def under_way(self) -> bool:
        """Whether anything of the next message has come."""
        return self.now.done in self._messages and self._messages[self.now.done].received > 0

    def take(self, p: Mapping[str, int]) -> tuple[int, int]:
        """A packet of data arrives: the verdict, and how many SACKs row 5 owes for it."""
        verdict, message = self.judge(p)
        if message is not None:
            verdict = self._accept(p, message)
        seq, asks = self.sequence(p["psn"]), bool(p.get("a"))
        sacks = 0
        if verdict == DUPLICATE:
            sacks = 1
        elif verdict == HEADER:
            sacks = int(asks and self.told.trim_nack and self.credit > 0)
            self._asked = max(self._asked, seq if asks and self.told.trim_nack else -1)
        elif verdict == PLACED:
            self.credit += p["length"] + OVERHEAD
            late, full = seq < self._asked, self.credit >= SACK_BYTES
            sacks = int(bool(asks or p.get("ce") or p.get("rtx") or late or full))
            self.credit *= not full or late
            self._asked = max(self._asked, seq if asks else -1)
        return verdict, sacks

    def reported(self, base: int) -> None:
        """A SACK showed 64 sequences from `base` on."""
        if self.now.high < base + 64:
            self.credit = 0

    def may_take(self, _: str, p: Mapping[str, int]) -> bool:
        """Whether a packet of data may be placed, or answered: by however many messages a target
        has open, and whatever it looks at first.
        """
        return self.judge(p, 1 << 15)[0] != REFUSED

    def judge(self, p: Mapping[str, int], messages: int = MESSAGES) -> tuple[int, _Message | None]:
        """What a packet is; if it may be placed, also what is known of its message then."""
        seq, pmtu = self.sequence(p["psn"]), self.told.pmtu
        if self.ended or p.get("frame"):
            return UNHEARD, None
        if p["length"] > pmtu:
            return REFUSED, None
        if seq > self.now.cack + self.told.mpr:
            return BEYOND, None
        if self.has(seq):
            return DUPLICATE, None
        if p.get("trimmed") or p.get("trimmed_lasthop"):
            return HEADER, None
        if not (self._in_region(p) and _shape_is_right(p, pmtu)):
            return REFUSED, None
        number = self.now.done + _signed(p.get("msn", 0) - self.now.done, 16)
        if not self.now.done <= number < self.now.done + messages:
            return REFUSED, None
        message = self._message(number, seq, p)
        return (REFUSED if message is None else PLACED), message

    def _accept(self, p: Mapping[str, int], message: _Message) -> int:
        """A packet joins its message, unless its immediate ends the queue pair."""
        self._messages[message.number] = message
        if p["opcode"] in _IMM:
            if self._open_imms >= self.told.max_wimm:
                self.ended = True
                return REFUSED
            self._open_imms += 1
            message.imm, message.has_imm = p.get("imm", 0), True
        message.received += 1
        self._place(self.sequence(p["psn"]), p["length"] + OVERHEAD)
        self._complete()
        return PLACED

    def _in_region(self, p: Mapping[str, int]) -> bool:
        va, rkey, room = self.told.region
        return p["rkey"] == rkey and 0 <= p["va"] - va <= room - p["length"]

    def _message(self, number: int, seq: int, p: Mapping[str, int]) -> _Message | None:
        """The message of a packet; None if it contradicts the packets before (MRC 1.4)."""
        n = packets_of(p["dma_length"], self.told.pmtu)
        origin = p["va"] - seq * self.told.pmtu
        if p["opcode"] in _LAST:
            first = range(seq - n + 1, seq - n + 2)
        elif p["opcode"] in (*_ONLY, pk.WRITE_FIRST):
            first = range(seq, seq + 1)
        else:
            first = range(seq - n + 2, seq)
        known = self._messages.get(number)
        if known is None:
            return _Message(number, p["dma_length"], p["rkey"], origin, first, n)
        both = range(max(first.start, known.first.start), min(first.stop, known.first.stop))
        same = (known.length, known.rkey, known.origin) == (p["dma_length"], p["rkey"], origin)
        return replace(known, first=both) if same and both else None

    def _place(self, seq: int, nominal: int) -> None:
        cack, got, high, n_bytes, done, end = self.now
        got |= 1 << seq
        while got >> cack + 1 & 1:
            cack += 1
        self.now = Snapshot(cack, got, max(high, seq), n_bytes + nominal, done, end)

    def _complete(self) -> None:
        """Messages complete in order, and immediates with them (MRC 1.3)."""
        while (m := self._messages.get(self.now.done)) and m.received == m.total:
            if m.has_imm:
                if self.receives == 0:
                    self.ended = True
                    return
                self.receives -= 1
                self._open_imms -= 1
                self.immediates.append(m.imm or 0)
            self.now = self.now._replace(done=self.now.done + 1, end=self.now.end + m.total)


def _shape_is_right(p: Mapping[str, int], pmtu: int) -> bool:
    """Opcode, payload and length of the message agree (MRC 1.3, 1.4)."""
    opcode, length, whole = p["opcode"], p["length"], p["dma_length"]
    if opcode in _ONLY:
        return length == whole <= pmtu
    if opcode in _LAST:
        return whole > pmtu and length == (whole - 1) % pmtu + 1
    return length == pmtu and whole > pmtu * (1 if opcode == pk.WRITE_FIRST else 2)


def _signed(difference: int, bits: int) -> int:
    half = 1 << bits - 1
    return (difference + half & 2 * half - 1) - half
