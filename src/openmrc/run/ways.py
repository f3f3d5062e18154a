"""The directed links that packets cross, for many packets at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from openmrc.fabric.model import Fabric, IntArray


def routes(fabric: Fabric, src: npt.ArrayLike, dst: npt.ArrayLike, evs: npt.ArrayLike) -> IntArray:
    """Return the directed ports of the paths that these EVs name, [n, 2 x tiers], -1 after the
    last.

    As `Fabric.route`, path by path; all paths must exist, and no NIC sends to itself.
    """
    src, dst, evs = (np.asarray(each, np.int64) for each in (src, dst, evs))
    plane, up0, up1 = (
        evs >> shift & (1 << bits) - 1
        for shift, bits in (
            (fabric.ev_plane_shift, fabric.ev_plane_bits),
            (fabric.ev_up0_shift, fabric.ev_up0_bits),
            (fabric.ev_up1_shift, fabric.ev_up1_bits),
        )
    )
    found = np.full((len(src), 2 * fabric.n_tiers), -1, np.int32)
    port = src * fabric.n_planes + plane
    for hop in range(2 * fabric.n_tiers):
        found[:, hop] = port
        switch = np.where(port >= 0, fabric.port_peer_switch[port], -1)
        if not (switch >= 0).any():
            break
        tier = fabric.sw_tier[switch]
        below = (fabric.sw_lo[switch] <= dst) & (dst < fabric.sw_hi[switch])
        bundle = fabric.sw_bundle[switch]
        neighbour = (dst - fabric.sw_lo[switch]) // fabric.sw_stride[switch]
        parallel = np.choose(tier, [np.zeros_like(up0), up0, up1][: fabric.n_tiers]) % bundle
        down = fabric.sw_first_down[switch] + neighbour * bundle + parallel
        up = fabric.sw_first_up[switch] + np.where(tier == 0, up0, up1)
        port = np.where(switch < 0, -1, np.where(below, down, up))
    return found
