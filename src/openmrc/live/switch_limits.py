"""How much each egress port of a live fabric holds, and from where on it marks and trims.

The same sizes as a simulated fabric's, from the same keys of `[fabric]`: multiples of the BDP of a
port at the base round trip, which is that of the fabric's longest path without any waiting
(reference 4.6, 6.4; row 15). Queues of slower ports are smaller in proportion.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from openmrc.fabric.model import Fabric, LongArray
from openmrc.fabric.rtt import PS_BITS, base_rtt_ps
from openmrc.wire.framing import MRC_FRAMING

PREAMBLE_GAP_AND_FCS = 24  # bytes that a frame occupies on a wire beside itself
CONTROL_BYTES = 64 * 1024  # row 15
CONTROL_BYTES_PER_SENDER = 256
UNLIMITED = 1 << 40


class QueueRules(Protocol):
    """The keys of `[fabric]` about queues; sizes in bytes, `None` for the default."""

    @property
    def trim(self) -> bool:
        """Whether full queues cut frames instead of dropping them."""

    @property
    def queue_bytes(self) -> int | None:
        """Of data and retransmissions; one BDP."""

    @property
    def queue_last_hop_bytes(self) -> int | None:
        """The same, towards a NIC; 1.5 BDP."""

    @property
    def control_bytes(self) -> int | None:
        """Of the control class; row 15."""

    @property
    def ecn_low(self) -> float:
        """Where marking begins, in BDP."""

    @property
    def ecn_high(self) -> float:
        """Where everything is marked, in BDP."""

    @property
    def ecn_last_hop(self) -> bool:
        """Whether ports to NICs mark too."""


@dataclass(frozen=True)
class Limits:
    """By directed port, in bytes on the wire; int64 [n_ports]. `UNLIMITED` where there is none."""

    queue: LongArray  # data and retransmissions: beyond it frames are trimmed, or dropped
    control: LongArray
    ecn_low: LongArray  # marks begin
    ecn_high: LongArray  # everything is marked


def longest_rtt_ps(fabric: Fabric, pmtu: int) -> int:
    """Return the round trip of a data packet and its SACK over the longest path."""
    return base_rtt_ps(fabric, MRC_FRAMING.data_bytes(pmtu), MRC_FRAMING.sack_bytes)


def limits(
    fabric: Fabric,
    queues: QueueRules,
    pmtu: int,
    base_rtt: int | None = None,
    senders_per_nic: int | None = None,
) -> Limits:
    """Return the limits of all ports.

    `base_rtt` in picoseconds replaces that of the longest path; `senders_per_nic`, the largest
    number of QPs that send to one NIC, is one per other NIC if it is not known.
    """
    rtt = base_rtt or longest_rtt_ps(fabric, pmtu)
    port_rate = int(fabric.port_rate_bps[: fabric.n_nics * fabric.n_planes].max())
    wire = MRC_FRAMING.data_bytes(pmtu)
    bdp = port_rate * rtt / PS_BITS
    queue = queues.queue_bytes or _whole(bdp, wire)
    last_hop = queues.queue_last_hop_bytes or _whole(1.5 * bdp, wire)
    senders = fabric.n_nics - 1 if senders_per_nic is None else senders_per_nic
    control = queues.control_bytes or max(CONTROL_BYTES, CONTROL_BYTES_PER_SENDER * senders)
    low, high = _whole(queues.ecn_low * bdp, wire), _whole(queues.ecn_high * bdp, wire)
    scale = fabric.port_rate_bps / port_rate
    from_nic, last = fabric.port_switch < 0, fabric.port_last_hop
    marks = ~from_nic & (~last | queues.ecn_last_hop)  # MRC 6.5
    return Limits(
        # what a NIC has not sent yet it holds itself: full is back-pressure there
        queue=_long(np.where(last, last_hop, queue) * scale),
        control=_long(np.where(from_nic, UNLIMITED, control)),
        ecn_low=_long(np.where(marks, low * scale, UNLIMITED)),
        ecn_high=_long(np.where(marks, max(high, low + 1) * scale, UNLIMITED)),
    )


def _whole(size: float, packet: int) -> int:
    """Return `size` rounded up to whole packets."""
    return -int(-size // packet) * packet


def _long(values: Any) -> LongArray:
    bounded: LongArray = np.minimum(values, UNLIMITED).astype(np.int64)
    return bounded
