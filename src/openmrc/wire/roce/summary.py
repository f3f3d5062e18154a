"""Statistics of a capture for each RoCEv2 queue pair, and of pause frames.

As `summary` for MRC: a row is a queue pair as packets name it, with data for its responder and
answers for its requester, as seen at the point of capture.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from openmrc.wire.roce import opcodes as roce
from openmrc.wire.roce.lines import syndrome_name
from openmrc.wire.roce.pause import Pause
from openmrc.wire.summary import CUT_OFF, QpRow, Rows

UNNUMBERED = (roce.UD, roce.RD)  # services whose PSNs are not those of the destination's QP
PMTU_LEAST = 256  # bytes; a READ takes a PSN for each packet of its answer
READ_BYTES_MAX = 2**31  # IBTA 9.7.1


@dataclass
class RoceQp(QpRow):
    """One row of RoCEv2."""

    # data
    messages: int = 0  # whose last packet was seen, each once; a READ or atomic is one
    again: int = 0  # packets whose PSN had been seen before
    # control
    acks: int = 0
    naks: Counter[str] = field(default_factory=Counter)
    cnps: int = 0
    responses: int = 0  # packets that answer a READ
    response_bytes: int = 0  # their payload

    def __post_init__(self) -> None:
        super().__post_init__()
        self._ports: set[int] = set()

    @property
    def control(self) -> int:
        """How many packets were not data."""
        return self.acks + self.naks.total() + self.cnps + self.responses

    @property
    def source_ports(self) -> list[int]:
        """UDP source ports of data, ascending: the entropy that switches hash."""
        return sorted(self._ports)

    def add(self, p: Any) -> None:
        """Count one packet, a PACKET record or anything that has its fields."""
        operation = p.opcode & roce.OPERATION_MASK
        self._newest = None
        if p.opcode == roce.CNP:
            self.cnps += 1
        elif not roce.is_response(operation):
            self._add_data(p)
        elif operation <= roce.READ_RESPONSE_ONLY:
            self.responses += 1
            self.response_bytes += int(p.payload_len)
        elif operation == roce.ATOMIC_ACKNOWLEDGE:
            self.acks += 1
        elif p.reason is None:
            self.naks[CUT_OFF] += 1
        elif (name := syndrome_name(p.reason)) == "ACK":
            self.acks += 1
        else:
            self.naks[name] += 1

    def _add_data(self, p: Any) -> None:
        self._count(p)
        self._ports.add(int(p.ev))
        if p.opcode & ~roce.OPERATION_MASK in UNNUMBERED:
            self.messages += roce.ends_message(p.opcode)
        elif not self._psns.add(self._psn(p)):
            self.again += 1
        else:
            self.messages += roce.ends_message(p.opcode)
            if p.opcode & roce.OPERATION_MASK == roce.READ_REQUEST:
                length = READ_BYTES_MAX if p.dma_len is None else p.dma_len
                self.hide((length - 1) // PMTU_LEAST)

    def _data(self) -> dict[str, Any]:
        return {
            "again": self.again,
            "ecn_marked": self.ecn_marked,
            "source_ports": self.source_ports,
        }

    def _control(self) -> dict[str, Any]:
        return {
            "ack": self.acks,
            "nak": dict(self.naks),
            "cnp": self.cnps,
            "read_response": self.responses,
            "read_response_bytes": self.response_bytes,
        }


@dataclass
class PausedLink:
    """The pause frames of one interface of a capture; one that pauses any class counts as a
    pause.
    """

    interface: str
    pauses: int = 0  # frames with a time
    resumes: int = 0  # frames without one

    def add(self, found: Pause) -> None:
        """Count one frame."""
        if any(found.quanta.values()):
            self.pauses += 1
        else:
            self.resumes += 1

    def as_dict(self) -> dict[str, Any]:
        """Return the row for JSON."""
        return {"interface": self.interface, "pauses": self.pauses, "resumes": self.resumes}


class RoceSummary(Rows[RoceQp]):
    """All rows of RoCEv2, and the links on which pause frames were seen."""

    def __init__(self) -> None:
        super().__init__(RoceQp)
        self._links: dict[str, PausedLink] = {}

    def add_pause(self, found: Pause, interface: str) -> None:
        """Count one pause frame, seen at an interface of the capture."""
        self.packets += 1
        self._links.setdefault(interface, PausedLink(interface)).add(found)

    def links(self) -> list[PausedLink]:
        """Return the statistics of pause frames, by interface."""
        return [self._links[name] for name in sorted(self._links)]

    def as_dict(self, qpn: int | None = None) -> dict[str, Any]:
        """Return the summary for JSON, with the rows of one QPN or of all."""
        return {
            "packets": self.packets,
            "unlisted": self.unlisted,
            "qps": [row.as_dict() for row in self.rows(qpn)],
            "paused": [row.as_dict() for row in self.links()],
        }
