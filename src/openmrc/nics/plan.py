"""The EVs of every NIC of a fabric, planned centrally: the profile that each is given.

A NIC gets all of its paths if there is room; else as many of each plane, beginning with another
uplink than its neighbours, so that all NICs of a T0 together use every uplink alike. A plan is a
function of fabric, NIC, room and what is denied.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from openmrc.capi.control import formats
from openmrc.capi.control.formats import Ev
from openmrc.errors import InputError
from openmrc.fabric.model import BoolArray, Fabric

WIDTH = 32  # of a structured EV, bits


def planned(fabric: Fabric, nic: int, most: int, denied: npt.ArrayLike = ()) -> list[Ev]:
    """Return up to `most` EVs for a NIC, equally many of each plane, planes in turn.

    None crosses one of the directed ports `denied` where another EV of its plane does not; a plane
    of which all EVs do keeps them, for what is denied is no choice of EVs there.
    """
    n_planes = fabric.n_planes
    share = most // n_planes
    if share < 1:
        raise InputError(f"{most} EVs: {n_planes} planes need one each")
    n_up = int(fabric.sw_n_up[fabric.port_peer_switch[nic * n_planes]]) if tiers(fabric) else 1
    place = nic - int(fabric.sw_lo[fabric.port_peer_switch[nic * n_planes]])
    bad = crossing(fabric, nic, denied)
    planes = []
    for plane in range(n_planes):
        turned = [(place * share + i) % n_up for i in range(n_up)]
        good = [up for up in turned if not bad[plane, up]] or turned
        planes.append([fabric.ev(plane, up) for up in good[:share]])
    count = min(map(len, planes))
    return [
        formats.packed(planes[plane][i], WIDTH, plane + 1)
        for i in range(count)
        for plane in range(n_planes)
    ]


def tiers(fabric: Fabric) -> bool:
    """Whether EVs choose anything; `InputError` for more than they can name here."""
    if fabric.n_tiers > 2:
        raise InputError(f"a fabric of {fabric.n_tiers} tiers: EVs are planned for two")
    return fabric.n_tiers == 2


def crossing(fabric: Fabric, nic: int, denied: npt.ArrayLike) -> BoolArray:
    """Return which EVs of a NIC cross a denied port in either direction, [planes, uplinks].

    An EV belongs to a profile, not to a peer: it crosses its T0's uplink, its T1, and that T1's
    links to all T0s. Links of other NICs are crossed whatever the EV, and are left out.
    """
    n_planes = fabric.n_planes
    own = nic * n_planes + np.arange(n_planes)
    t0 = fabric.port_peer_switch[own]
    closed = np.zeros(fabric.n_ports, np.bool_)
    named = np.asarray(denied, np.int64)
    closed[named] = closed[fabric.port_reverse[named]] = True
    if not tiers(fabric):
        return closed[own][:, None]
    n_up = int(fabric.sw_n_up[t0[0]])
    up = fabric.sw_first_up[t0][:, None] + np.arange(n_up)
    t1 = fabric.port_peer_switch[up]
    t1_ports = (fabric.port_switch[None, None, :] == t1[:, :, None]) & closed
    found: BoolArray = closed[own][:, None] | closed[up] | t1_ports.any(axis=2)
    return found
