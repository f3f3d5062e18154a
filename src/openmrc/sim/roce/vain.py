"""What RoCEv2 is bound to send in vain: into links that are dead when a run begins.

Timers of a flow over such a link, or whose acknowledgements return over one, expire without
progress until routing has converged, and each time all that is not acknowledged is sent again. All
of that is known before the run: paths are hashes, and how long routing takes is drawn by the seed.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from openmrc.engine.state import NEVER
from openmrc.fabric.actions import PORT_DOWN
from openmrc.sim.net import state as ss
from openmrc.sim.net.network import Ends
from openmrc.sim.roce.reader import way_in
from openmrc.sim.roce.state import OUTSTANDING_MAX, Roce
from openmrc.traffic.traffic import Traffic

LOOKED_AT = 512  # flows; if there are more, those left out are taken to be like these

Index = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def in_vain(net: ss.Net, ro: Roce, ends: Ends, traffic: Traffic) -> tuple[Index, Floats]:
    """Return when timers will expire without progress because of links that are dead from the
    start, in time order, ps, and what is sent again in vain each time: as many packets as cross the
    same number of links when they are delivered and acknowledged.

    The world has not begun.
    """
    known_at = _known_at(net, ro)
    if not known_at:
        return np.zeros(0, np.int64), np.zeros(0)
    repaired = _after_local_repair(net, ro, list(known_at))
    senders = np.flatnonzero(ends.sends)
    looked_at = senders[:: -(-len(senders) // LOOKED_AT)]
    sends, starts_ps = _first_sends(traffic, int(net.ctl[0].pmtu))
    c = ro.c[0]
    lost: list[tuple[int, float]] = []
    for end in looked_at.tolist():
        of_qp = int(ends.traffic_qp[end])
        again = min(sends[of_qp] / ends.bundle, OUTSTANDING_MAX)
        until_ps, part = _stuck(net, repaired, end, int(ends.other[end]), known_at)
        timer_ps, now_ps = int(c.rto_first_ps), int(starts_ps[of_qp]) + int(c.rto_first_ps)
        while now_ps < until_ps:
            lost.append((now_ps, again * part))
            timer_ps = min(2 * timer_ps, int(c.rto_ps))
            now_ps += timer_ps
    at, which = np.unique(np.array([at for at, _ in lost], np.int64), return_inverse=True)
    weights = np.array([of_one for _, of_one in lost])
    packets = np.bincount(which, weights, len(at)).astype(np.float64)
    packets *= len(senders) / len(looked_at)
    return at, packets


def _known_at(net: ss.Net, ro: Roce) -> dict[int, int]:
    """When routing has converged for each directed port that is dead from the start, ps."""
    fault, change = net.fault, ro.change
    at_start = (np.asarray(fault.action) == PORT_DOWN) & (np.asarray(fault.at_ps) <= 0)
    dead = np.unique(np.asarray(fault.target)[at_start])
    far = np.isin(np.asarray(change.port), dead) & (np.asarray(change.is_local) == 0)
    found: dict[int, int] = {}
    for port, at_ps in zip(change.port[far].tolist(), change.at[far].tolist(), strict=True):
        found.setdefault(port, at_ps)
    return found


def _after_local_repair(net: ss.Net, ro: Roce, dead: list[int]) -> Roce:
    """Routing once switches have removed their dead uplinks from their groups. Downwards there is
    no other way.
    """
    first, n = (np.asarray(net.switch[name], np.int64) for name in ("first_up", "n_up"))
    up = [port for port in dead if ((first <= port) & (port < first + n)).any()]
    route, state = ro.route.copy(), ro.routing.copy()
    route.own_up[up] = 0
    state[0].broken += len(up)
    return ro._replace(route=route, routing=state)


def _stuck(
    net: ss.Net, ro: Roce, sender: int, receiver: int, known_at: dict[int, int]
) -> tuple[int, float]:
    """Until when nothing that a flow sends is acknowledged, ps, 0 if it is; and the links that a
    packet of it and its answer cross meanwhile, over those of one that is acknowledged in time.
    """
    there, back = (_way(net, ro, end) for end in (sender, receiver))
    until_ps = max((known_at.get(port, 0) for port in there + back), default=0)
    links = len(there) + 1
    crossed = next((i for i, port in enumerate(there, 1) if port in known_at), None)
    if crossed is None:  # a packet that comes again is answered each time
        crossed = links + next((i for i, port in enumerate(back, 1) if port in known_at), 0)
    return until_ps, crossed / (links * (1 + 1 / int(ro.c[0].ack_every)))


def _way(net: ss.Net, ro: Roce, end: int) -> list[int]:
    """The ports that an end's packets cross, without that of its NIC, which the NIC sees."""
    plane = int(ro.qp[end].flow) % int(net.ctl[0].n_planes)
    return way_in(net, ro, end, plane)[1:]


def _first_sends(traffic: Traffic, pmtu: int) -> tuple[Index, Index]:
    """Packets of each QP of the workload that wait for nothing, and when the first is sent, ps."""
    free, of_qp = traffic.msg_deps <= 0, traffic.msg_qp
    packets = np.bincount(of_qp, traffic.packets(pmtu) * free, traffic.n_qps).astype(np.int64)
    starts_ps = np.full(traffic.n_qps, NEVER, np.int64)
    np.minimum.at(starts_ps, of_qp[free], traffic.msg_start_ps[free])
    return packets, starts_ps
