"""Possible causes of a loss: directed links, switches and NICs, numbered, with their names.

A packet that crosses a switch may be lost by its links or by the switch itself; that is why a
device is a cause of its own. One switch that loses everything then explains in one sentence what
all of its links would have to explain in a thousand.

Causes are numbered: directed ports first, then switches, then NICs.
"""

from __future__ import annotations

from collections.abc import Collection, Container
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from openmrc.fabric.model import Fabric, IntArray
from openmrc.ops import weigh

LINK, SWITCH, NIC = "link", "switch", "nic"
# Hops of a path between NICs of two tiers: it crosses no switch twice.
LONGEST_WAY = 4


class End(NamedTuple):
    """One end of a link: "plane 3 t0 5" and its port, or "nic 7" and its port."""

    device: str
    port: int


def count(fabric: Fabric) -> int:
    """Return the number of causes in a fabric."""
    return fabric.n_ports + fabric.n_switches + fabric.n_nics


def of_routes(fabric: Fabric, routes: IntArray) -> IntArray:
    """Return the possible causes of a loss of packets that cross these directed ports, [rows,
    hops], as [width, rows]; -1 where a row has fewer. Ports come first, then switches, then NICs.
    """
    rows = np.ascontiguousarray(routes, np.int32)
    found = np.empty((2 * rows.shape[1] + 1, len(rows)), np.int32)
    weigh.causes_of(
        rows, fabric.port_peer_switch, fabric.port_nic, fabric.port_peer_nic, fabric.n_ports,
        fabric.n_switches, LONGEST_WAY, found,
    )  # fmt: skip
    return found


def kind(fabric: Fabric, cause: int) -> str:
    """Return LINK, SWITCH or NIC."""
    if cause < fabric.n_ports:
        return LINK
    return SWITCH if cause < fabric.n_ports + fabric.n_switches else NIC


def name(fabric: Fabric, cause: int) -> str:
    """Return the place as faults name it, with its direction: "plane 3 t0 5 > t1 2"."""
    what = kind(fabric, cause)
    if what == LINK:
        return fabric.port_name(cause)
    if what == SWITCH:
        return fabric.switch_name(cause - fabric.n_ports)
    return f"nic {cause - fabric.n_ports - fabric.n_switches}"


def links_of(fabric: Fabric, cause: int) -> npt.NDArray[np.int64]:
    """Return the directed ports that a cause stands for: its own, or all ports of a device."""
    what = kind(fabric, cause)
    if what == LINK:
        return np.array([cause])
    if what == SWITCH:
        own = np.flatnonzero(fabric.port_switch == cause - fabric.n_ports)
    else:
        own = np.flatnonzero(fabric.port_nic == cause - fabric.n_ports - fabric.n_switches)
    return np.sort(np.concatenate([own, fabric.port_reverse[own]]))


def of_dark_ports(
    fabric: Fabric, dark: Collection[int], telling: Container[int] | None = None
) -> list[tuple[int, ...]]:
    """Return what explains that these NIC ports have no carrier, the largest first: T0s and NICs of
    which all ports are dark, considering NICs that are `telling` of theirs (None: all); then single
    links, each as its two directions.
    """
    left = set(dark)
    first_nic = fabric.n_ports + fabric.n_switches
    n_own = fabric.n_nics * fabric.n_planes
    t0s = {fabric.n_ports + int(fabric.port_peer_switch[port]) for port in left}
    nics = {first_nic + port // fabric.n_planes for port in left}
    found: list[tuple[int, ...]] = []
    for device in (*sorted(t0s), *sorted(nics)):
        own = {port for port in links_of(fabric, device).tolist() if port < n_own}
        if telling is not None:
            own = {port for port in own if port // fabric.n_planes in telling}
        if len(own) > 1 and own <= left:
            left -= own
            found.append((device,))
    return found + [(port, int(fabric.port_reverse[port])) for port in sorted(left)]


def ends(fabric: Fabric, port: int) -> tuple[End, End]:
    """Return both ends of a directed port: the sender, and the receiver.

    Ports of a switch are counted as its transceivers are: downwards first, then upwards.
    """
    return _end(fabric, port), _end(fabric, int(fabric.port_reverse[port]))


def _end(fabric: Fabric, port: int) -> End:
    switch = int(fabric.port_switch[port])
    if switch >= 0:
        return End(fabric.switch_name(switch), port - int(fabric.sw_first_down[switch]))
    return End(f"nic {fabric.port_nic[port]}", port % fabric.n_planes)
