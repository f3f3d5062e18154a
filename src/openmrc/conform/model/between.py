"""What both halves of a queue pair share: the target, the planes that are up, the packets that the
kit has sent, and the time that stamps tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from openmrc.conform.events import Event
from openmrc.conform.model.received import Snapshot

STAMP_PS = 128_000  # MRC 2.5
# What an `aged` queue pair has sent and received before: soon each of its counters wraps.
AGED_MESSAGES, AGED_BYTES = (1 << 16) - 64, (1 << 32) - (1 << 16)


@dataclass
class Sent:
    """A packet of the kit, what must come of it, and what came."""

    event: Event
    kind: str
    fields: Mapping[str, int]
    right: dict[str, int]
    after: Snapshot
    answers: Counter[str] = field(default_factory=Counter)


class Between:
    """The target, in one exchange. In virtual time all is `exact`; in real time answers come a
    little later, and cross other packets.
    """

    def __init__(self, target: Any, with_: Mapping[str, int]) -> None:
        self.target, self.with_ = target, with_
        self.exact = target.patience_ps == 0
        self.planes = with_.get("planes", 2)
        self.all_up = (1 << self.planes) - 1
        self.trims = bool(with_.get("trimming", 1) and with_.get("trim_nack", 1))
        self.sent: list[Sent] = []
        self.data_ps = -target.rtt_ps  # when the target sent data last
        self._masks = [(-1, self.all_up, self.all_up)]  # time, own ports up, the peer's
        self._stamp: tuple[int, int, int] | None = None  # a packet left between, with this stamp

    @property
    def now_ps(self) -> int:
        """The time."""
        return int(self.target.now_ps)

    @property
    def own_up(self) -> int:
        """Mask of the target's ports that are up."""
        return self._masks[-1][1]

    @property
    def peers_up(self) -> int:
        """Mask of the ports that the kit has up, as the target was told."""
        return self._masks[-1][2]

    @property
    def up(self) -> int:
        """Mask of the planes that are up at both ends."""
        return self.own_up & self.peers_up

    def last(self, kind: str) -> Sent | None:
        """The packet that the kit has sent last, if it is of this kind."""
        return self.sent[-1] if self.sent and self.sent[-1].kind == kind else None

    def turns(self, own: int, peers: int) -> None:
        """Ports go down or come up."""
        self._masks.append((self.now_ps, own, peers))

    def is_up(self, at_ps: int, plane: int) -> int:
        """Whether a plane was up at both ends, now or as long ago as a packet may take."""
        since = at_ps - 2 * self.target.patience_ps  # until it is told, and until that is seen
        now = [m for m in self._masks if m[0] <= since][-1:]
        later = [m for m in self._masks if m[0] > since]
        states = self._masks[-1:] if self.exact else now + later
        return int(any(own & peers & 1 << plane for _, own, peers in states))

    def stamped(self, event: Event, since_ps: int | None = None) -> dict[str, int]:
        """The time stamp of a packet, by that of the first one. In real time each left at some time
        between what asked for it, `since_ps`, and its arrival: whether the stamps differ by that.
        """
        stamp = event.fields["tx_timestamp"]
        since_ps = event.at_ps if self.exact else since_ps
        if since_ps is None:
            return {}
        if self._stamp is None:
            self._stamp = since_ps, event.at_ps, stamp
        since, until, first = self._stamp
        if self.exact:
            return {"tx_timestamp": event.at_ps // STAMP_PS - since // STAMP_PS + first & 0xFFFF}
        least, most = (since_ps - until) // STAMP_PS, (event.at_ps - since) // STAMP_PS + 1
        return {"stamp_fits": int((stamp - first - least & 0xFFFF) <= most - least)}
