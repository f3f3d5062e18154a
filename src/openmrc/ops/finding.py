"""A place that broke, as reported to people and machines: what all answers consist of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Window(NamedTuple):
    """What is asked for: times in us of the run, and queue pairs, all if that is None."""

    from_us: float
    until_us: float
    qps: set[int] | None


@dataclass(frozen=True)
class Finding:
    """A place that broke; times in us of the run."""

    where: str
    kind: str  # "link", "switch", "nic", "transceiver" or "plane"
    one_of: tuple[str, ...]  # other candidates; empty: it is this place
    ends: tuple[str, ...]  # of a link: its devices with their ports
    dead: bool  # it let nothing through
    rate: float  # else the fraction of the packets that it lost while it was bad
    lost: int  # packets and probes
    since_us: float  # the first loss
    until_us: float  # the last one
    # Edges as ranges: seen well last and lost first at; lost last and seen well again at, None if
    # it never was.
    began_us: tuple[float, float]
    ended_us: tuple[float, float | None]
    paths: int  # avoided because of it
    queue_pairs: int
    back: int  # of those paths that returned to service
    back_us: float | None  # when the last of them did
    aside_us: float  # for how long those paths were avoided, summed
    nats: float
    probability: float  # that it, or one of the set, is broken
    downs: int  # how often NICs saw their own ports go down; 0: inferred from losses
    times: int  # how often it was bad
    narrow_bytes: int  # it passes small packets, and loses those with so much payload

    @property
    def over(self) -> bool:
        """Whether it was seen well again."""
        return self.ended_us[1] is not None
