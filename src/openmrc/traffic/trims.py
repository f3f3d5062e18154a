"""How many packets switches are expected to trim where many send to one NIC.

Measured with the defaults of MRC on two-tier fabrics, rounded.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from openmrc.traffic.traffic import Traffic

Index = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# Of a packet to a NIC to which many send, for each sender, over the packets of a BDP.
TRIMS_LATER = 0.5


def trims_of_nics(traffic: Traffic, pmtu: int, window_bytes: int, bdp_bytes: int) -> Floats:
    """Packets that switches trim on their way to each NIC because many send to it: first windows,
    and, where those meet, some of all packets later, since a window is never less than a packet.
    """
    first = first_trims(traffic, pmtu, window_bytes)
    senders = np.bincount(traffic.qp_dst, burst(traffic, pmtu, window_bytes) > 0, traffic.n_nics)
    data = np.bincount(traffic.msg_dst, traffic.packets(pmtu), traffic.n_nics)
    later = TRIMS_LATER * senders * pmtu / max(bdp_bytes, 1) * data
    trims: Floats = np.where(first > 0, first + later, 0)
    return trims


def first_trims(traffic: Traffic, pmtu: int, window_bytes: int) -> Floats:
    """Packets of first windows that are trimmed on their way to each NIC: the windows that meet
    there, less what it receives while the longest of its senders sends at line rate. Queues are
    ignored.
    """
    sent = burst(traffic, pmtu, window_bytes)
    of_sender, of_receiver = (
        np.bincount(nic, sent, traffic.n_nics) for nic in (traffic.qp_src, traffic.qp_dst)
    )
    received = np.zeros(traffic.n_nics)
    np.maximum.at(received, traffic.qp_dst, np.where(sent > 0, of_sender[traffic.qp_src], 0))
    first: Floats = np.maximum(of_receiver - received, 0)
    return first


def burst(traffic: Traffic, pmtu: int, window_bytes: int) -> Index:
    """Packets that each QP sends at once."""
    first = np.where(traffic.msg_deps <= 0, -(-traffic.msg_bytes // pmtu), 0)
    of_qp = np.bincount(traffic.msg_qp, first, traffic.n_qps)
    return np.minimum(of_qp, window_bytes // pmtu).astype(np.int64)
