"""A fabric as its senders know it where switches hash: every switch has one way up.

A NIC knows the plane of its packets and both of their T0s, but not which uplinks the switches in
between choose. In the outline all uplinks of a switch are one, the T1s of a pod are one, and so are
the T2s of a plane. NICs, their ports and T0s are those of the fabric itself, with their names.

The EV of a path is its plane, above `SOURCE_PORT_BITS` bits for the source port that is hashed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from openmrc.fabric.clos import Tier, build
from openmrc.fabric.model import Fabric, LongArray

SOURCE_PORT_BITS = 16


@dataclass(frozen=True, eq=False)
class Outline:
    """The fabric as senders know it, and what its ports and switches stand for."""

    fabric: Fabric
    port_of: LongArray  # [ports of the whole fabric] the port of the outline that stands for each
    switch_of: LongArray  # [switches of the whole fabric] the same

    def spread(self, counts: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return counts by port of the outline as [ports of the whole fabric]: an equal share for
        each port that it stands for, as hashes have it on average.
        """
        share = np.asarray(counts) / np.bincount(self.port_of, minlength=self.fabric.n_ports)
        return np.asarray(share[self.port_of], np.float64)

    def ports(self, port: int) -> LongArray:
        """Return the directed ports of the whole fabric that one of the outline stands for."""
        return np.flatnonzero(self.port_of == port)

    def switches(self, switch: int) -> LongArray:
        """Return the switches of the whole fabric that one of the outline stands for."""
        return np.flatnonzero(self.switch_of == switch)


def outline(fabric: Fabric) -> Outline:
    """Return the outline of a fabric."""
    strides = [int(fabric.sw_stride[fabric.sw_tier == t][0]) for t in range(fabric.n_tiers)]
    link = (int(fabric.port_rate_bps[0]), 0, 0)
    tiers = [Tier(above // below, 1, *link) for below, above in pairwise(strides)]
    built = build(fabric.kind, fabric.n_nics, fabric.n_planes, [*tiers, Tier(0, 0, *link)])
    known = replace(
        built,
        ev_base=0,
        ev_plane_shift=SOURCE_PORT_BITS,
        ev_up0_shift=0,
        ev_up0_bits=0,
        ev_up1_shift=0,
        ev_up1_bits=0,
    )
    switch_of = _switches(fabric, known)
    return Outline(known, _ports(fabric, known, switch_of), switch_of)


def _switches(fabric: Fabric, known: Fabric) -> LongArray:
    """By switch, the one of the outline: on its plane and tier it alone reaches the same NICs."""
    keys = [(one.sw_tier, one.sw_plane, one.sw_lo) for one in (fabric, known)]
    of = {key: i for i, key in enumerate(zip(*(k.tolist() for k in keys[1]), strict=True))}
    every = zip(*(k.tolist() for k in keys[0]), strict=True)
    return np.array([of[key] for key in every], np.int64)


def _ports(fabric: Fabric, known: Fabric, switch_of: LongArray) -> LongArray:
    """By directed port, that of the outline: upwards the only one of its owner."""
    own, far = fabric.port_switch, fabric.port_peer_switch
    between = (own >= 0) & (far >= 0)
    is_up = between & (fabric.sw_tier[own] < fabric.sw_tier[far])
    found = np.arange(fabric.n_ports, dtype=np.int64)  # NICs' own ports come first in both
    found[is_up] = known.sw_first_up[switch_of[own[is_up]]]
    down = (own >= 0) & ~is_up
    found[down] = known.port_reverse[found[fabric.port_reverse[down]]]
    return found
