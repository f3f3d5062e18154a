"""Statistics of a capture for each queue pair.

A row is a queue pair as packets name it: destination and QPN. Packets to it are data for its
responder, and answers for its requester; the two are counted separately. Everything is as seen at
the point of capture: a PSN that took another link is missing here, and a packet captured on several
links counts several times.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from openmrc.engine import packet
from openmrc.wire import layout
from openmrc.wire.hosts import Hosts, are_dealt, is_due
from openmrc.wire.seen import RUNS_MAX, Seen, unwrap

PSN_BITS = layout.BTH.field("psn").bits
MSN_BITS = layout.METH.field("msn").bits

QPS_MAX = 131_072  # as many as the largest runs have; a row takes some 2 KB
EVS_MAX = 65_536  # of one QP; a hundred times what a NIC sprays over
LISTED_MAX = 64  # ranges and EVs that are listed; all are counted
CUT_OFF = "cut off"  # a reason that the capture does not have


class _Hidden(NamedTuple):
    """PSNs behind one that was seen, which may have been in the same frame, or never sent."""

    most: int
    size: int | None  # payload bytes of a frame that may also be one packet; None: it is not


@dataclass
class QpRow(ABC):
    """One row: a queue pair. Counts are packets; PSNs are unwrapped, in the order of their
    appearance.
    """

    destination: str
    qpn: int
    packets: int = 0
    payload_bytes: int = 0
    psn_lowest: int | None = None
    psn_highest: int = 0
    ecn_marked: int = 0

    def __post_init__(self) -> None:
        self._psns = Seen()  # of whole packets
        self._hidden: dict[int, _Hidden] = {}
        self._newest: int | None = None  # PSN of the packet counted last, if that was data
        self.unlooked = 0  # packets of the capture of which nothing says whose they are

    @property
    def psn_first(self) -> int | None:
        """The lowest PSN of data, as on the wire; None without data."""
        return None if self.psn_lowest is None else self.psn_lowest & packet.PSN_MASK

    @property
    def psn_last(self) -> int | None:
        """The highest PSN of data, as on the wire; None without data."""
        return None if self.psn_lowest is None else self.psn_highest & packet.PSN_MASK

    @property
    def psns_missing(self) -> int:
        """How many PSNs from the first to the last one were not seen in a whole packet, although
        the capture would show them.
        """
        return self._unseen - self.psns_hidden

    @property
    def _unseen(self) -> int:
        lowest = self.psn_highest + 1 if self.psn_lowest is None else self.psn_lowest
        return self.psn_highest - lowest + 1 - self._psns.total

    @property
    def psns_hidden(self) -> int:
        """How many PSNs may be in frames, or parts of frames, that were not captured, or belong to
        answers.
        """
        hidden = sum(first - hole for hole, first, _ in self._holes())
        return min(hidden + self.unlooked, self._unseen)

    def missing(self) -> Iterator[tuple[int, int]]:
        """Yield (first, last) of each range of PSNs of which `psns_missing` are missing, as on the
        wire.
        """
        for _, first, last in self._holes() if self.psns_missing else ():
            if first <= last:
                yield first & packet.PSN_MASK, last & packet.PSN_MASK

    def _holes(self) -> Iterator[tuple[int, int, int]]:
        """Yield each range of PSNs that were not seen: its first, the first that is missing behind
        the hidden ones, its last.
        """
        if self.psn_lowest is None:
            return
        # A frame of this size is one packet if another was seen with the PSN behind it.
        single = {told.size for psn, told in self._hidden.items() if psn + 1 in self._psns}
        for first, last in self._psns.holes(self.psn_lowest, self.psn_highest):
            told = self._hidden.get(first - 1)
            is_one = told is None or (told.size is not None and told.size in single)
            most = 0 if told is None or is_one else told.most
            yield first, min(first + most, last + 1), last

    def hide(self, most: int, size: int | None = None) -> None:
        """Say that up to `most` PSNs behind the newest one may have been in its frame; `size` is
        the payload of a frame that may also be one packet, in bytes.
        """
        if self._newest is not None and most > 0 and len(self._hidden) < RUNS_MAX:
            self._hidden[self._newest] = _Hidden(most, size)

    def _count(self, p: Any) -> None:
        """Count a packet of data."""
        self.packets += 1
        self.payload_bytes += int(p.payload_len)
        self.ecn_marked += p.flag_bits & packet.CE != 0

    def _psn(self, p: Any) -> int:
        """Return the PSN of a packet of data, unwrapped."""
        if self.psn_lowest is None:
            self.psn_lowest = self.psn_highest = int(p.psn)
        psn = self._newest = unwrap(int(p.psn), self.psn_highest, PSN_BITS)
        self.psn_lowest = min(self.psn_lowest, psn)
        self.psn_highest = max(self.psn_highest, psn)
        return psn

    @property
    @abstractmethod
    def messages(self) -> int:
        """Messages of which data was seen."""

    @abstractmethod
    def add(self, p: Any) -> None:
        """Count one packet, a PACKET record or anything that has its fields."""

    @abstractmethod
    def _data(self) -> dict[str, Any]:
        """Count a data packet of this protocol."""

    @abstractmethod
    def _control(self) -> dict[str, Any]:
        """Count any other packet of this protocol."""

    def as_dict(self) -> dict[str, Any]:
        """Return the row for JSON; PSNs as on the wire, lists to their first `LISTED_MAX`."""
        return {
            "destination": self.destination,
            "dest_qpn": self.qpn,
            "data": {
                "packets": self.packets,
                "payload_bytes": self.payload_bytes,
                "messages": self.messages,
                "psn_first": self.psn_first,
                "psn_last": self.psn_last,
                "psns_missing": self.psns_missing,
                "psns_hidden": self.psns_hidden,
                **self._data(),
            },
            "control": self._control(),
        }


@dataclass
class QpSummary(QpRow):
    """One row of MRC; `sources` are addresses from which data came, the first `LISTED_MAX`."""

    COUNTS: ClassVar[tuple[str, ...]] = (
        *("packets", "payload_bytes", "ecn_marked", "retransmitted", "duplicates"),
        *(
            "trimmed",
            "trimmed_lasthop",
            "sacks",
            "skip_once",
            "always_skip",
            "nacks",
            "acks",
            "naks",
            "probes",
        ),
        *("unstamped", "endpoint_requests", "endpoint_responses"),
    )

    # data
    retransmitted: int = 0
    duplicates: int = 0  # whole packets whose PSN had been seen in a whole packet
    trimmed: int = 0  # in the fabric
    trimmed_lasthop: int = 0
    # control
    sacks: int = 0
    skip_once: int = 0
    always_skip: int = 0
    cack_highest: int | None = None
    nacks: Counter[str] = field(default_factory=Counter)
    acks: int = 0
    naks: Counter[str] = field(default_factory=Counter)
    probes: int = 0
    unstamped: int = 0  # probes and requests without time stamp
    endpoint_requests: int = 0
    endpoint_responses: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._msns = Seen()
        self._msn_highest = 0
        self._evs: set[int] = set()
        self.sources: set[str] = set()

    @property
    def control(self) -> int:
        """How many packets were not data."""
        answers = self.sacks + self.nacks.total() + self.acks + self.naks.total()
        return answers + self.probes + self.endpoint_requests + self.endpoint_responses

    @property
    def messages(self) -> int:
        """Messages of which a data packet was seen."""
        return self._msns.total

    @property
    def evs_seen(self) -> int:
        """Different EVs of data packets, at most `EVS_MAX`."""
        return len(self._evs)

    @property
    def cack_psn(self) -> int | None:
        """The highest cack_psn, as on the wire; None without a SACK."""
        return None if self.cack_highest is None else self.cack_highest & packet.PSN_MASK

    def add(self, p: Any) -> None:
        """Count one packet, a PACKET record or anything that has its fields."""
        opcode = p.opcode
        self._newest = None
        self.unstamped += int(p.flag_bits & packet.UNSTAMPED != 0)
        if opcode <= packet.LAST_DATA:
            self._add_data(p)
        elif opcode == packet.SACK:
            self.sacks += 1
            self.skip_once += p.m == packet.M_SKIP_ONCE
            self.always_skip += p.m == packet.M_ALWAYS_SKIP
            if p.cack_psn is not None:
                self._acknowledged(int(p.cack_psn))
        elif opcode == packet.NACK:
            self.nacks[_name(layout.NACK_REASONS, p.reason)] += 1
        elif opcode == packet.ACKNOWLEDGE:
            if p.reason == packet.AETH_ACK:
                self.acks += 1
            else:
                self.naks[_name(layout.SYNDROMES, p.reason)] += 1
        elif opcode == packet.PROBE:
            self.probes += 1
        elif opcode == packet.ENDPOINT_REQUEST:
            self.endpoint_requests += 1
        else:
            self.endpoint_responses += 1

    def is_also(self, other: QpSummary) -> bool:
        """Whether `other` is the same queue pair at another plane's address, as its PSNs show."""
        again = self.retransmitted + other.retransmitted
        return are_dealt(self._psns, other._psns, self._psns_ahead(other), again)

    def join(self, other: QpSummary) -> None:
        """Count all that `other` has counted, of the same queue pair at another address."""
        self._newest = None
        for name in self.COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        if other.psn_lowest is not None:
            ahead = self._psns_ahead(other)
            lowest, highest = other.psn_lowest + ahead, other.psn_highest + ahead
            is_first = self.psn_lowest is None
            self.psn_lowest = lowest if self.psn_lowest is None else min(self.psn_lowest, lowest)
            self.psn_highest = highest if is_first else max(self.psn_highest, highest)
            self.duplicates += self._psns.join(other._psns, ahead)
            self._hidden |= {psn + ahead: told for psn, told in other._hidden.items()}
        if other._msns.total:
            highest = unwrap(other._msn_highest & packet.PSN_MASK, self._msn_highest, MSN_BITS)
            highest = highest if self._msns.total else other._msn_highest
            self._msns.join(other._msns, highest - other._msn_highest)
            self._msn_highest = max(self._msn_highest, highest)
        self._evs |= other._evs
        self.sources |= other.sources
        if other.cack_highest is not None:
            self._acknowledged(other.cack_highest & packet.PSN_MASK)

    def _psns_ahead(self, other: QpSummary) -> int:
        """What makes `other`'s PSNs this row's: each counts wraps of 24 bits from its first one."""
        if self.psn_lowest is None:
            return 0
        psn = other.psn_highest
        return unwrap(psn & packet.PSN_MASK, self.psn_highest, PSN_BITS) - psn

    def _acknowledged(self, cack_psn: int) -> None:
        if self.cack_highest is not None:
            cack_psn = max(self.cack_highest, unwrap(cack_psn, self.cack_highest, PSN_BITS))
        self.cack_highest = cack_psn

    def _add_data(self, p: Any) -> None:
        flag_bits = p.flag_bits
        self._count(p)
        psn = self._psn(p)
        if p.msn is not None:
            self._add_message(int(p.msn))
        if len(self._evs) < EVS_MAX:
            self._evs.add(int(p.ev))
        self.retransmitted += flag_bits & packet.RTX != 0
        if flag_bits & packet.TRIMMED_LASTHOP:
            self.trimmed_lasthop += 1
        elif flag_bits & packet.TRIMMED:
            self.trimmed += 1
        elif not self._psns.add(psn):
            self.duplicates += 1

    def _add_message(self, msn: int) -> None:
        if self._msns.total:
            msn = unwrap(msn, self._msn_highest, MSN_BITS)
            self._msn_highest = max(self._msn_highest, msn)
        else:
            self._msn_highest = msn
        self._msns.add(msn)

    def _data(self) -> dict[str, Any]:
        return {
            "missing": [[*ends] for ends in islice(self.missing(), LISTED_MAX)],
            "retransmitted": self.retransmitted,
            "duplicates": self.duplicates,
            "trimmed": self.trimmed,
            "trimmed_lasthop": self.trimmed_lasthop,
            "ecn_marked": self.ecn_marked,
            "evs_seen": self.evs_seen,
            "evs": sorted(self._evs)[:LISTED_MAX],
        }

    def _control(self) -> dict[str, Any]:
        return {
            "sack": self.sacks,
            "skip_once": self.skip_once,
            "always_skip": self.always_skip,
            "cack_psn": self.cack_psn,
            "nack": dict(self.nacks),
            "ack": self.acks,
            "nak": dict(self.naks),
            "probe": self.probes,
            "unstamped": self.unstamped,
            "endpoint_request": self.endpoint_requests,
            "endpoint_response": self.endpoint_responses,
        }


Row = TypeVar("Row", bound=QpRow)


class Rows(Generic[Row]):
    """All rows of a capture. Packets to queue pairs beyond `QPS_MAX` are only counted, in
    `unlisted`.
    """

    def __init__(self, row: type[Row]) -> None:
        self.packets = 0
        self.unlisted = 0
        self._row = row
        self._qps: dict[tuple[str, int], Row] = {}

    def add(self, p: Any, destination: str) -> Row | None:
        """Count one packet of the protocol; `destination` names the NIC that it is for. Return its
        row, None beyond `QPS_MAX`.
        """
        self.packets += 1
        key = destination, int(p.dst_qpn)
        row = self._qps.get(key)
        if row is None:
            if len(self._qps) >= QPS_MAX:
                self.unlisted += 1
                return None
            row = self._qps[key] = self._row(*key)
        row.add(p)
        return row

    def rows(self, qpn: int | None = None) -> list[Row]:
        """Return the rows, of one QPN or of all, by destination and QPN."""
        keys = sorted(key for key in self._qps if qpn is None or key[1] == qpn)
        return [self._qps[key] for key in keys]


class Summary(Rows[QpSummary]):
    """All rows of MRC, and the capture's other packets. `damaged` and `foreign` count by reason,
    `cut` those that end before what would say whose they are, `copies` the cut copies of a mirror.
    `frames` held several packets each, `hidden` packets at most were in parts not captured.
    """

    def __init__(self) -> None:
        super().__init__(QpSummary)
        self.hosts = Hosts()
        self._alike: dict[int, list[QpSummary]] = {}  # rows by QP number
        self.cut = self.copies = self.frames = self.hidden = 0
        self._largest = 1  # packets of a frame
        self.damaged: Counter[str] = Counter()
        self.foreign: Counter[str] = Counter()

    def add(self, p: Any, destination: str, source: str = "") -> QpSummary | None:
        """Count one packet, and find out as soon as that is sure which addresses are one host's."""
        key = self.hosts.name(destination), int(p.dst_qpn)
        is_new = key not in self._qps
        row = super().add(p, key[0])
        if row is None:
            return None
        if is_new:
            self._alike.setdefault(row.qpn, []).append(row)
        if p.opcode <= packet.LAST_DATA:
            if source and len(row.sources) < LISTED_MAX:
                row.sources.add(source)
            if is_due(row.packets) and self._look(row):
                row = self._qps[self.hosts.name(destination), row.qpn]
        return row

    def settle(self) -> None:
        """Look at all rows once more: no packet follows."""
        while any(self._look(row) for row in self.rows()):
            pass

    def _look(self, row: QpSummary) -> bool:
        """Join rows that are the same queue pair as this one, and all else of its two hosts."""
        same = [one for one in self._alike[row.qpn] if one is not row and row.is_also(one)]
        for other in same:
            self._join({row.destination, other.destination}, row.sources | other.sources)
        return bool(same)

    def _join(self, *hosts: set[str]) -> None:
        news = [self.hosts.join(addresses) for addresses in hosts]
        if not any(news):
            return
        for key in [*self._qps]:
            name = self.hosts.name(key[0])
            if name == key[0]:
                continue
            row = self._qps.pop(key)
            into = self._qps.get((name, row.qpn))
            if into is None:
                row.destination = name
                self._qps[name, row.qpn] = row
            else:
                into.join(row)
                self._alike[row.qpn].remove(row)

    def add_frame(self, packets: int, hidden: int, is_copy: bool) -> None:
        """Count a frame that held several packets, `hidden` more of them in a part that was not
        captured, or that is a cut copy.
        """
        self.frames += packets > 1 or hidden > 0
        self._largest = max(self._largest, packets)
        self.hidden += hidden
        self.copies += is_copy

    def unlooked(self, dropped: int) -> int:
        """How many packets nothing is known of, if the capture lost `dropped` frames."""
        return self.cut + dropped * self._largest

    def add_cut(self) -> None:
        """Count a packet that ends before it says what it is."""
        self.packets += 1
        self.cut += 1

    def add_damaged(self, reason: str) -> None:
        """Count a packet of MRC that cannot be read."""
        self.packets += 1
        self.damaged[reason] += 1

    def add_foreign(self, reason: str) -> None:
        """Count a packet of another protocol."""
        self.packets += 1
        self.foreign[reason] += 1

    def as_dict(self, qpn: int | None = None) -> dict[str, Any]:
        """Return the summary for JSON, with the rows of one QPN or of all."""
        return {
            "packets": self.packets,
            "damaged": dict(self.damaged),
            "not_mrc": dict(self.foreign),
            "cut": self.cut,
            "cut_copies": self.copies,
            "joined_frames": self.frames,
            "hidden_packets": self.hidden,
            "unlisted": self.unlisted,
            "hosts": self.hosts.all(),
            "qps": [row.as_dict() for row in self.rows(qpn)],
        }


def _name(names: dict[int, str], value: Any) -> str:
    if value is None:  # the capture cut its header off
        return CUT_OFF
    return names.get(int(value), f"0x{int(value):02x}")
