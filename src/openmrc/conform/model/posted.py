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
    messages: int = 0  # that were complete before
    n_bytes: int = 0  # and how many bytes they had


@dataclass(frozen=True)
class _Message:
    number: int
    first: int  # sequence
    packets: int
    length: int
    imm: int | None
    rqmsn: int
    posted_ps: int


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
        self._units = self._before = self._said = self.told.n_bytes // pk.RCVD_UNIT_BYTES
        self._sent_bytes, self._imms = self.told.n_bytes, self.told.messages
        self._posted_bytes = self.told.n_bytes

    def post(self, length: int, imm: int | None, now_ps: int = 0) -> None:
        """The application writes."""
        n = packets_of(length, self.told.pmtu)
        rqmsn = 0 if imm is None else self._imms & 0xFFFF
        self._imms += imm is not None
        number = self.told.messages + len(self.messages)
        message = _Message(number, len(self._of), n, length, imm, rqmsn, now_ps)
        self._posted_bytes += length + n * OVERHEAD
        self.messages.append(message)
        self._of += [message] * n

    def packets_beside(self, sequence: int) -> int:
        """How many packets the message of this one has; 0 for none that was posted."""
        return self._of[sequence].packets if 0 <= sequence < len(self._of) else 0

    def posted_ps(self, sequence: int) -> int | None:
        """When the message of this packet was posted."""
        return self._of[sequence].posted_ps if 0 <= sequence < len(self._of) else None

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
        if not self.may_believe(kind, p, sent=True):
            return None
        before, una = self.acked, self.una
        known = {"sack": self._on_sack, "ack": self._on_ack, "nack": self._on_nack}[kind](p)
        fresh = {seq for seq in known if seq not in self.shown}
        units = self._units
        if kind == "ack" and fresh:  # it counts as a snapshot of all that was sent
            units = self._sent_bytes // pk.RCVD_UNIT_BYTES + 1
        new = (self._units - self._before) * pk.RCVD_UNIT_BYTES if kind == "sack" else 0
        self.shown |= fresh
        while self.una in self.shown:
            self.una += 1
        return Heard(fresh, new, units, self._said, self.acked - before, self.una > una)

    def may_believe(self, kind: str, p: Mapping[str, int], sent: bool) -> bool:
        """Whether an answer speaks of nothing but what was `sent`, or at least posted (row 16)."""
        new = self.new if sent else len(self._of)
        if kind == "nack":
            return self.una <= self.sequence(p["nack_psn"], self.una) < new
        if kind == "ack":
            return self._done(p) <= sum(one.first + one.packets <= new for one in self.messages)
        cack = self.sequence(p["cack_psn"], self.una - 1)
        top = cack + p.get("sack_offset", 0) + p.get("sack_bitmap", 0).bit_length() - 1
        most = self._sent_bytes if sent else self._posted_bytes
        units = self._units + self._ahead(p)
        return (
            max(cack, top if p.get("sack_bitmap") else cack) < new
            and units * pk.RCVD_UNIT_BYTES < most + pk.RCVD_UNIT_BYTES
        )

    def _ahead(self, p: Mapping[str, int]) -> int:
        """How many units of bytes a SACK knows of more than those before."""
        return (p.get("rcvd_bytes", 0) - self._units + (1 << 23)) % (1 << 24) - (1 << 23)

    def _done(self, p: Mapping[str, int]) -> int:
        """How many messages an ACK covers."""
        done = self.told.messages + self.acked
        return self.acked + ((p["msn"] - done + 0x8000) % 0x1_0000 - 0x8000) + 1

    def _on_nack(self, p: Mapping[str, int]) -> set[int]:
        self.ended = self.ended or p.get("nack_reason") == pk.NACK_UNEXP_EVENT
        return set()

    def _on_sack(self, p: Mapping[str, int]) -> set[int]:
        cack = self.sequence(p["cack_psn"], self.una - 1)
        base, bitmap = cack + p.get("sack_offset", 0), p.get("sack_bitmap", 0)
        ahead = self._ahead(p)
        units = self._units + ahead
        self._before, self._units, self._said = self._units, max(self._units, units), units
        if self.told.dynamic_mpr and ahead >= 0 and p.get("mpr"):
            self.mpr = p["mpr"] * pk.MPR_UNIT
        return {base + k for k in range(64) if bitmap >> k & 1} | set(range(self.una, cack + 1))

    def _on_ack(self, p: Mapping[str, int]) -> set[int]:
        done = self._done(p)
        if p.get("syndrome", pk.AETH_ACK) != pk.AETH_ACK:
            self.ended = self.ended or (done >= self.acked and self.acked < len(self.messages))
            return set()
        covered = self.messages[self.acked : max(done, self.acked)]
        self.acked = max(done, self.acked)
        return {seq for one in covered for seq in range(one.first, one.first + one.packets)}
