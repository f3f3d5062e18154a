"""What is observed: packets that endpoints lost, one by one, probes that were answered, and what
ports count.

A loss has the time at which its packet left: a fault's interval is one of times at which packets
crossed it, and when a sender notices is another matter.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from openmrc.fabric.model import BoolArray, Fabric, IntArray

FloatArray = npt.NDArray[np.float64]
MOMENT_US = 1e-6  # just before, or after


@dataclass(frozen=True, eq=False)
class Packets:
    """Packets or probes, in the order in which they left."""

    routes: IntArray  # [n, hops] directed ports, -1 after the last
    back: IntArray  # [n, 2] those of NICs that the answer crosses: of the way between, nobody knows
    sent_us: FloatArray  # when each left
    known_us: FloatArray  # when its sender knew what became of it
    qp: IntArray
    ev: IntArray
    probe: BoolArray

    def __len__(self) -> int:
        return len(self.sent_us)

    def take(self, rows: npt.NDArray[np.integer] | BoolArray) -> Packets:
        """Return some of them."""
        return replace(self, **{name: column[rows] for name, column in vars(self).items()})


@dataclass(frozen=True, eq=False)
class Observed:
    """All of a run."""

    fabric: Fabric  # as senders know it
    lost: Packets
    answered: Packets  # probes
    edges_us: FloatArray  # [bins + 1]
    sent: FloatArray  # [bins, ports] packets of data whose path crosses each directed port
    out: FloatArray  # [bins, ports] packets that ports sent, of all sorts
    dropped: FloatArray  # [bins, ports] for which queues had no room
    full: FloatArray  # [bins, ports] marked, trimmed or dropped: the queue was filling
    damaged: FloatArray  # [bins, ports]
    gone: FloatArray  # [bins, ports] that ports sent, and those at the other ends did not get
    answers: FloatArray  # [bins, ports] packets, across each, of which the sender got answers then
    rtt_us: float
    counted: bool = True  # whether ports tell what they sent; if not, `out` and `gone` are 0
    # when packets were judged lost that were none
    late_us: FloatArray = field(default_factory=lambda: np.zeros(0))
    # queue pair and EV of paths whose senders said that they pass small packets and lose large ones
    narrow: frozenset[tuple[int, int]] = frozenset()
    # [bins, ports] where switches hash: whether one of those that a port stands for sent nothing
    silent: BoolArray | None = None
    # [bins, ports] how many readings found each down, where they are read
    down: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))
    over: bool = False  # all messages came: nothing is under way at the end

    def bin_of(self, at_us: FloatArray) -> npt.NDArray[np.int64]:
        """Return the bin of each time."""
        found = np.searchsorted(self.edges_us, at_us, side="right") - 1
        return np.clip(found, 0, len(self.edges_us) - 2)
