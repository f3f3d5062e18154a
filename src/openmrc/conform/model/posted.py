"""What a requester may send, by what its application has posted and its peer has answered: a model
of MRC's text, which knows no other implementation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from openmrc.conform.model.cutting import OVERHEAD, opcode, packets_of
from openmrc.engine import packet as pk


@dataclass(frozen=True)
class Told:
    """What is agreed with a requester."""

    first_psn: int
    pmtu: int
    mpr: int
    va: int
    rkey: int
    max_wimm: int = 128
    dynamic_mpr: bool = False


@dataclass(frozen=True)
class _Message:
    number: int
    first: int  # sequence
    packets: int
    length: int
    imm: int | None
    rqmsn: int


class Heard(NamedTuple):
    """What an answer brought."""

    fresh: set[int]  # sequences shown received for the first time
    n_bytes: int  # that it knows of more than those before
    units: int  # known of then, of 256 bytes
    said: int  # that it says itself
    acked: int  # messages
    advance: bool  # of what is received in a row


@dataclass
class Posted:
    """A requester's messages, and how far they are."""

    told: Told
    new: int = 0  # the next sequence that was never sent
    shown: set[int] = field(default_factory=set)  # sequences that an answer showed received
    una: int = 0  # the first sequence that none showed
    acked: int = 0  # messages
    completed: int = 0
    ended: bool = False

    def __post_init__(self) -> None:
        self.messages: list[_Message] = []
        self.mpr = self.told.mpr
        self._of: list[_Message] = []  # by sequence
        self._sent: set[int] = set()
        self._units = self._before = self._said = self._sent_bytes = self._imms = 0

    def post(self, length: int, imm: int | None) -> None:
        """The application writes."""
        n = packets_of(length, self.told.pmtu)
        rqmsn = 0 if imm is None else self._imms & 0xFFFF
        self._imms += imm is not None
        message = _Message(len(self.messages), len(self._of), n, length, imm, rqmsn)
        self.messages.append(message)
        self._of += [message] * n

    def packets_beside(self, sequence: int) -> int:
        """How many packets the message of this one has; 0 for none that was posted."""
        return self._of[sequence].packets if 0 <= sequence < len(self._of) else 0

    def sequence(self, psn: int, near: int) -> int:
        """The sequence of a PSN, near another one."""
        off = psn - self.told.first_psn - near
        return near + (off + pk.PSN_HALF & pk.PSN_MASK) - pk.PSN_HALF

    def psn(self, sequence: int) -> int:
        """The PSN of a sequence."""
        return self.told.first_psn + sequence & pk.PSN_MASK

    @property
    def waits(self) -> bool:
        """Whether anything was posted that has not left."""
        return self.new < len(self._of)

    def missing(self, most: int) -> list[int]:
        """The first sequences that were sent and not shown received."""
        return list(islice((n for n in range(self.una, self.new) if n not in self.shown), most))

    @property
    def may_send(self) -> bool:
        """Whether there is a new packet that MPR and the limit of immediates have room for."""
        if self.ended or self.new >= min(len(self._of), self.una + self.mpr):
            return False
        m = self._of[self.new]
        begun = [one for one in self.messages[self.acked :] if one.first < self.new]
        open_imms = sum(one.imm is not None for one in begun)
        return m.imm is None or self.new > m.first or open_imms < self.told.max_wimm

    def sends(self, p: Mapping[str, int]) -> dict[str, int]:
        """A packet of data leaves; what it must say, and what is known of it."""
        seq = self.sequence(p["psn"], self.una)
        right = {"posted": int(0 <= seq < len(self._of)), "ended": int(self.ended)}
        right |= {"new_psn": self.psn(self.new), "new": int(seq == self.new)}
        right |= {"shown": int(seq in self.shown), "ahead": seq - self.una, "window": self.mpr}
        if not right["posted"]:
            return right
        m, pmtu = self._of[seq], self.told.pmtu
        index = seq - m.first
        last = index == m.packets - 1
        right |= {
            "sent_before": int(seq < self.new),
            "opcode": opcode(index, m.packets, m.imm is not None),
            "va": self.told.va + index * pmtu,
            "rkey": self.told.rkey,
            "dma_length": m.length,
            "length": min(pmtu, m.length - index * pmtu),
            "msn": m.number & 0xFFFF,
            "rqmsn": m.rqmsn,
            "asks": int(last or bool(p["rtx"])),
        }
        if last and m.imm is not None:
            right["imm"] = m.imm
        if seq not in self._sent:
            self._sent.add(seq)
            self.new = max(self.new, seq + 1)
            self._sent_bytes += right["length"] + OVERHEAD
        begun = [one for one in self.messages[self.acked :] if one.first < self.new]
        right["open_imms"] = sum(one.imm is not None for one in begun)
        right["max_imms"] = self.told.max_wimm
        return right

    def hears(self, kind: str, p: Mapping[str, int]) -> Heard | None:
        """An answer of the peer arrives; None if nobody can believe it."""
        before, una = self.acked, self.una
        known = {"sack": self._on_sack, "ack": self._on_ack, "nack": self._on_nack}[kind](p)
        if known is None:
            return None
        fresh = {seq for seq in known if seq not in self.shown}
        units = self._units
        if kind == "ack" and fresh:  # it counts as a snapshot of all that was sent
            units = self._sent_bytes // pk.RCVD_UNIT_BYTES + 1
        new = (self._units - self._before) * pk.RCVD_UNIT_BYTES if kind == "sack" else 0
        self.shown |= fresh
        while self.una in self.shown:
            self.una += 1
        return Heard(fresh, new, units, self._said, self.acked - before, self.una > una)

    def _on_nack(self, p: Mapping[str, int]) -> set[int] | None:
        seq = self.sequence(p["nack_psn"], self.una)
        if not self.una <= seq < self.new:
            return None
        self.ended = self.ended or p.get("nack_reason") == pk.NACK_UNEXP_EVENT
        return set()

    def _on_sack(self, p: Mapping[str, int]) -> set[int] | None:
        cack = self.sequence(p["cack_psn"], self.una - 1)
        base, bitmap = cack + p.get("sack_offset", 0), p.get("sack_bitmap", 0)
        ahead = (p.get("rcvd_bytes", 0) - self._units + (1 << 23)) % (1 << 24) - (1 << 23)
        units = self._units + ahead
        top = base + bitmap.bit_length() - 1 if bitmap else cack
        if max(cack, top) >= self.new or units * pk.RCVD_UNIT_BYTES >= (
            self._sent_bytes + pk.RCVD_UNIT_BYTES
        ):
            return None  # row 16: it speaks of what was never sent
        self._before, self._units, self._said = self._units, max(self._units, units), units
        if self.told.dynamic_mpr and ahead >= 0 and p.get("mpr"):
            self.mpr = p["mpr"] * pk.MPR_UNIT
        return {base + k for k in range(64) if bitmap >> k & 1} | set(range(self.una, cack + 1))

    def _on_ack(self, p: Mapping[str, int]) -> set[int] | None:
        done = self.acked + ((p["msn"] - self.acked + 0x8000) % 0x1_0000 - 0x8000) + 1
        sent = sum(one.first + one.packets <= self.new for one in self.messages)
        if done > sent:
            return None
        if p.get("syndrome", pk.AETH_ACK) != pk.AETH_ACK:
            self.ended = self.ended or (done >= self.acked and self.acked < len(self.messages))
            return set()
        covered = self.messages[self.acked : max(done, self.acked)]
        self.acked = max(done, self.acked)
        return {seq for one in covered for seq in range(one.first, one.first + one.packets)}
