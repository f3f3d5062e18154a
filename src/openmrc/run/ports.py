"""What the ports of a run count, in ticks: the basis of `mrc why` beside what senders tell.

Of switches counters are recorded that every switch has: the packets that a port dropped because its
queues were full, those that it trimmed instead or marked, and all that it sent; and of NICs, how
many packets each port got whose iCRC was wrong. Both ends of a link count packets, so what the link
lost is known; and each knows whether its port is up. What a fault loses elsewhere nobody counts,
and nothing recorded here comes from the faults of the scenario.

There are at most so many ticks: where they are used up, neighbours are merged in which little
happened, since a run may go on for long for its last packet.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from openmrc.fabric.model import LongArray
from openmrc.units import NS, PS_BITS
from openmrc.wire.framing import MRC_FRAMING

Array = npt.NDArray[Any]

BINS_MAX = 32
BIN_CELLS_MAX = 2**20  # bins times directed ports: with many ports, there are fewer bins
BIN_RTTS = 8  # of the first bins
PACKET_BYTES = 4096  # whose round trip is meant
FINE = 4  # ticks of a bin: ports are read as often
TICKS_MAX = FINE * BINS_MAX + 1  # the last one of a run may be short

COUNTED = ("dropped", "trimmed_here", "packets_out", "damaged", "gone", "marked", "busy_ns")
# Of a tick: packets put on paths across each directed port, those of which the sender got answers,
# what ports count, and how many readings found a port down.
TICK = ("packets", "answered", *COUNTED, "down")
LOAD = ("marked", "busy_ns")  # those of them that say how busy a port was, not what it lost
SENT = TICK.index("packets_out")


class Testimony(NamedTuple):
    """The record; times in ps, one column each. What only senders tell is empty where they keep no
    account.
    """

    bin_ps: int
    end_ps: int
    tick_ends_ps: LongArray  # [ticks]
    ticks: Array  # [ticks, `TICK`, ports]
    # at_ps, qp, src, dst, ev, event (a number of `EVENTS`); for a port of the NIC `src` qp is -1
    # and the EV identifies only its plane.
    events: dict[str, Array]
    events_left_out: int
    # By bin and path with losses: bin, qp, src, dst, ev, sent, lost, first_ps, last_ps, and
    # narrow_bytes of the whole run (`engine.ev`).
    lossy: dict[str, Array]
    # One row for each packet or probe that was judged lost, and for each probe that was answered:
    # sent_ps, known_ps, qp, src, dst, ev, became (a number of `BECAME`).
    account: dict[str, Array]


class Ports:
    """Reads what the ports of a world count; the world must not have begun. `take` is due at
    `due_ps`; `testimony` may come at any time.
    """

    def __init__(self, world: Any) -> None:
        self._world, self._fabric = world, world.fabric
        n_ports = self._fabric.n_ports
        self._bins_max = max(2, min(BINS_MAX, BIN_CELLS_MAX // n_ports)) & ~1
        self.bin_ps = MRC_FRAMING.base_rtt_ps(self._fabric, PACKET_BYTES) * BIN_RTTS
        self._ticks: list[Array] = []
        self._tick_ends_ps: list[int] = []
        self._ports_before = np.zeros((len(COUNTED), n_ports), np.int64)

    @property
    def due_ps(self) -> int:
        """When the next reading is due, ps: the end of the current tick."""
        return (self._tick_ends_ps[-1] if self._ticks else 0) + self.bin_ps // FINE

    def take(self) -> None:
        """The simulated time is `due_ps`: record what was counted since the last time."""
        self._tick(self.due_ps)
        if len(self._ticks) == self._bins_max * FINE:
            self._coarsen()

    def testimony(self) -> Testimony:
        """Return the record up to now. The run must not continue afterwards."""
        end_ps = int(self._world.net.ctl[0].now)
        self._tick(end_ps)
        ticks = np.array(self._tick_ends_ps, np.int64), np.stack(self._ticks)
        return Testimony(self.bin_ps, end_ps, *ticks, {}, 0, {}, {})

    def _tick(self, end_ps: int) -> None:
        """Read the counters at the end of a tick."""
        ports = self._by_ports()
        down = np.asarray(self._world.net.port.up) == 0
        here = [*self._told(), *(ports - self._ports_before), down]
        self._ticks.append(np.stack(here).astype(np.int32))
        self._tick_ends_ps.append(end_ps)
        self._ports_before = ports

    def _told(self) -> Array:
        """[2, ports] packets put on paths since the last time, and those answered: of senders that
        keep no account none.
        """
        return np.zeros((2, self._fabric.n_ports), np.int64)

    def _by_ports(self) -> LongArray:
        """[`COUNTED`, ports] what ports have counted so far."""
        net = self._world.net
        tally = net.tally
        busy_ns = np.asarray(net.port.sent_bytes) * (PS_BITS / NS / self._fabric.port_rate_bps)
        counts = (
            tally.dropped, tally.trimmed, net.port.sent_packets, tally.damaged, tally.gone,
            tally.marked, busy_ns,
        )  # fmt: skip
        return np.stack([np.asarray(each, np.int64) for each in counts])

    def _coarsen(self) -> None:
        self.bin_ps *= 2
        while len(self._ticks) > self._bins_max // 2 * FINE:
            self._merge()

    def _merge(self) -> None:
        """Make one of two neighbours: those of which it tells least about when packets were sent,
        which may then have been so much earlier or later.
        """
        width = np.diff(self._tick_ends_ps, prepend=0).astype(np.float64)
        sent = np.array([float(it[SENT].sum()) for it in self._ticks])
        at = int(np.argmin(sent[:-1] * width[1:] + sent[1:] * width[:-1]))
        self._ticks[at] += self._ticks.pop(at + 1)
        del self._tick_ends_ps[at]
