"""How long packets may wait in queues on their way.

A queue holds what its port sends in a round trip, and switches mark from a part of that on. So in a
tick in which a port marked, trimmed and dropped nothing little waited there. Before a NIC switches
do not mark. Probes have a queue of their own.
"""

from __future__ import annotations

import numpy as np

from openmrc.fabric.queues import Queues
from openmrc.ops.diagnose.observed import FloatArray, Observed, Packets

QUEUED = 1.0  # round trips: what a queue holds, and all that a sender may have in queues at a time
UNMARKED = Queues.ecn_low  # round trips: what a queue may hold of which nothing is marked


def waits(seen: Observed, packets: Packets) -> FloatArray:
    """Return [packets, hops and ways back] how long, us, each may have waited before it came out of
    each port.
    """
    fabric = seen.fabric
    quiet = seen.counted & (seen.full == 0) & (fabric.port_peer_nic < 0)
    held = np.where(quiet, UNMARKED, QUEUED) * (fabric.port_switch >= 0)
    held = np.pad(held, ((0, 0), (0, 1)))  # the last is that of no port
    over_us = packets.sent_us + 2 * QUEUED * seen.rtt_us
    begin, end = (seen.bin_of(it)[:, None] for it in (packets.sent_us, over_us))
    most = np.maximum(held[begin, packets.routes], held[end, packets.routes])
    upto = np.minimum(np.cumsum(most * ~packets.probe[:, None], axis=1), QUEUED) * seen.rtt_us
    return np.pad(upto, ((0, 0), (0, packets.back.shape[1])), mode="edge")
