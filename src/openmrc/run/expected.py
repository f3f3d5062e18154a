"""What a workload is expected to put into a network, computed before it runs: data packets, their
answers, trimmed copies; and how many packets are under way at once.

Measured with the defaults of MRC on two-tier fabrics, rounded. What faults cause is not counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from openmrc.traffic.trims import trims_of_nics

if TYPE_CHECKING:
    from openmrc.fabric.model import Fabric
    from openmrc.sim.mrc.derive import Derived
    from openmrc.sim.mrc.transport import Transport
    from openmrc.traffic.traffic import Traffic

Floats = npt.NDArray[np.float64]

# Of a message, besides a SACK for each `sack_bytes`: its ACK, what is asked at its end, probes.
ANSWERS_A_MESSAGE, PROBES_A_PACKET = 2.5, 0.03
UNDER_WAY_BDP = 1.05  # a NIC sends for a round trip before the first answers arrive


@dataclass(frozen=True)
class Packets:
    """Packets of a whole run.

    `traversals` are those of links by all of them, `between` those of links between switches;
    `scattered` are data packets of NICs that send on several QPs.
    """

    data: int
    answers: int
    trims: int
    traversals: int
    between: int
    scattered: int


def packets(fabric: Fabric, traffic: Traffic, transport: Transport, derived: Derived) -> Packets:
    """Return what a run of MRC is expected to send."""
    pmtu, sends = transport.pmtu, traffic.msg_count.astype(np.float64)
    data = traffic.packets(pmtu).astype(np.float64)
    trims = trims_of_nics(traffic, pmtu, derived.max_window_bytes, derived.bdp_bytes)
    to = traffic.msg_dst
    received = np.bincount(to, data, traffic.n_nics)
    trimmed = data * trims[to] / np.maximum(received[to], 1)
    sacks = np.maximum(data * min(pmtu / transport.sack_bytes, 1), sends)
    sacks = np.where(trims[to] > 0, data, sacks)  # windows close after each packet
    # A shorter last packet overtakes those in other planes, each of which is answered then.
    planes = 1 if transport.paths == "single" else fabric.n_planes
    short = traffic.msg_bytes % pmtu != 0
    late = np.where(short, np.minimum(data / np.maximum(sends, 1), planes) - 1, 0) * sends
    at_ends = np.maximum(late, 0) + ANSWERS_A_MESSAGE * sends
    answers = sacks + at_ends + PROBES_A_PACKET * data + trimmed
    up = 2 * fabric.uplinks(traffic.msg_src, traffic.msg_dst)
    every = data + trimmed + answers
    qps_of_nic = np.bincount(traffic.qp_src, minlength=traffic.n_nics)
    return Packets(
        data=int(data.sum()),
        answers=int(answers.sum()),
        trims=int(trimmed.sum()),
        traversals=int((every * (up + 2)).sum()),
        between=int((every * up).sum()),
        scattered=int(data[qps_of_nic[traffic.msg_src] > 1].sum()),
    )


def under_way(fabric: Fabric, traffic: Traffic, pmtu: int, bdp_bytes: int) -> int:
    """Packets in flight if all begin together: for each NIC that sends, as many as its path holds,
    by a BDP in bytes, or all that it may send at once.
    """
    of_nic = np.bincount(traffic.msg_src, _at_once(traffic, pmtu), traffic.n_nics)
    switches = 2 * fabric.uplinks(traffic.qp_src, traffic.qp_dst) + 1
    longest = np.zeros(traffic.n_nics)
    np.maximum.at(longest, traffic.qp_src, switches / (2 * fabric.n_tiers - 1))
    of_way = UNDER_WAY_BDP * bdp_bytes / pmtu * longest
    return int(np.minimum(of_nic, of_way).sum())


def _at_once(traffic: Traffic, pmtu: int) -> Floats:
    """Packets of each entry that need no release that another message of it causes: of a series
    that waits for releases, those of its first messages, one at least.
    """
    sends = np.maximum(traffic.msg_count, 1)
    free = np.clip(1 - traffic.msg_deps, 1, sends)
    at_once: Floats = traffic.packets(pmtu) / sends * free
    return at_once
