"""Whether a node may take part in a job: every port up, every plane reached, few probes lost.

If a link is bad for all, the fabric is to blame and no node is rejected for it. A node fails for
its own faults: its ports, its links to T0s, its agent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from openmrc.fabric import places as fabric_places
from openmrc.fabric.model import Fabric
from openmrc.ops import causes
from openmrc.ops.mapper.collector import Place

PERIODS_MIN = 10  # that an agent has judged: a hundred probes of each port
LOST_MAX = 0.001  # fraction of a port's probes


@dataclass(frozen=True)
class Known:
    """What is known of one node."""

    nic: int
    present: bool  # its agent is connected
    periods: int  # that its agent has judged
    down: tuple[int, ...]  # planes whose port is down
    unreached: tuple[int, ...] = ()  # planes on which no probe returns
    lost: int = 0  # of its own probes, for which no place was found
    sent: int = 0


@dataclass(frozen=True)
class Admission:
    """Whether a node is fit, and if not why."""

    nic: int
    fit: bool
    reasons: tuple[str, ...]


def judge(fabric: Fabric, known: Known, places: Sequence[Place] = ()) -> Admission:
    """Return whether a node is fit for a job; `places` are those that lose probes now."""
    reasons = []
    if not known.present:
        reasons.append("no agent speaks for it")
    elif known.periods < PERIODS_MIN:
        reasons.append(f"{known.periods} periods of probes are judged, {PERIODS_MIN} are needed")
    reasons += [f"port of plane {plane} is down" for plane in known.down]
    reasons += [
        f"plane {plane} is not reached: no probe came back"
        for plane in known.unreached
        if plane not in known.down
    ]
    for place in places:
        planes = _planes_of(fabric, known.nic, place)
        if set(planes) & set(known.down) or set(planes) <= set(known.unreached) != set():
            continue
        if planes:
            reasons.append(f"{place.where} loses {100 * place.rate:.2g} % of probes")
    if not reasons and known.lost > LOST_MAX * max(known.sent, 1):
        reasons.append(f"{known.lost} of {known.sent} probes were lost")
    return Admission(known.nic, not reasons, tuple(reasons))


def _planes_of(fabric: Fabric, nic: int, place: Place) -> list[int]:
    """The planes of this NIC's own ports that a place stands for."""
    if place.kind == causes.SWITCH:
        return []
    if place.kind == causes.NIC:
        own = fabric_places.nics(fabric, place.where.removeprefix("nic ")).tolist()
        return list(range(fabric.n_planes)) if nic in own else []
    port = place.cause
    whose = max(int(fabric.port_nic[port]), int(fabric.port_peer_nic[port]))
    if whose != nic:
        return []
    up = port if fabric.port_nic[port] >= 0 else int(fabric.port_reverse[port])
    return [up % fabric.n_planes]
