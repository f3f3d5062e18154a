"""Denylists: paths that must not be used, named by a place that they cross (MRC 3.3).

A place stands for directed ports that packets must not cross any more. An EV is denied to a pair of
NICs if its path crosses one of them. How a controller expresses that, EV by EV or as bits under a
mask, is up to the controller.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from openmrc.errors import InputError
from openmrc.fabric import places
from openmrc.fabric.model import BoolArray, Fabric
from openmrc.fabric.places import Things

EXAMPLES = f'"plane 3", {places.SWITCH_EXAMPLES} or {places.LINK_EXAMPLES}'


def entrances(fabric: Fabric, where: str) -> Things:
    """Return the things that `where` names, each as the directed ports by which a path enters it.

    A plane is entered at the NICs' own ports, a switch by the ports that lead to it; a link is its
    own ports. Raises `InputError` if the place does not exist.
    """
    kind = places.kind_of(where)
    if kind == "plane":
        nics = np.arange(fabric.n_nics) * fabric.n_planes
        return Things.of([nics + plane for plane in places.planes(fabric, where).tolist()])
    if kind == "switch":
        switches = places.switches(fabric, where).tolist()
        towards = fabric.port_peer_switch
        return Things.of([np.flatnonzero(towards == switch) for switch in switches])
    if kind in ("nic", "link"):
        return places.by_link(fabric, places.links(fabric, where))
    raise InputError(f"nothing that can be denied; {EXAMPLES} is accepted")


def denied(
    fabric: Fabric, ports: npt.ArrayLike, src: int, dst: int, evs: npt.ArrayLike
) -> BoolArray:
    """Return, for each of `evs`, whether its path from NIC `src` to NIC `dst` crosses one of the
    directed `ports`: bool, shape of `evs`. An EV that names no path, as one of a controller may,
    crosses none.
    """
    closed = np.zeros(fabric.n_ports, np.bool_)
    closed[np.asarray(ports, np.int64)] = True
    evs = np.asarray(evs, np.int64)

    def crosses(ev: int) -> bool:
        try:
            return bool(closed[fabric.route(src, dst, ev)].any())
        except InputError:
            return False

    return np.array([crosses(ev) for ev in evs.ravel().tolist()], np.bool_).reshape(evs.shape)
