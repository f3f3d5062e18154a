"""The directed links that packets cross, for many packets at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from openmrc.fabric.model import BoolArray, Fabric, IntArray, LongArray


def exist(fabric: Fabric, src: npt.ArrayLike, dst: npt.ArrayLike, evs: npt.ArrayLike) -> BoolArray:
    """Return for which of these pairs of NICs the EV names a path, [n]; the NICs must exist."""
    src, dst, evs = (np.asarray(each, np.int64) for each in (src, dst, evs))
    plane, *uplinks = hops(fabric, evs)
    fine = (plane < fabric.n_planes) & (src != dst)
    port = src * fabric.n_planes + np.where(fine, plane, 0)
    switch = fabric.port_peer_switch[port]
    for uplink in uplinks[: fabric.n_tiers - 1]:
        beyond = (dst < fabric.sw_lo[switch]) | (dst >= fabric.sw_hi[switch])
        fine &= ~beyond | (uplink < fabric.sw_n_up[switch])
        above = fabric.port_peer_switch[fabric.sw_first_up[switch] + np.where(fine, uplink, 0)]
        switch = np.where(beyond & fine, above, switch)
    below = (fabric.sw_lo[switch] <= dst) & (dst < fabric.sw_hi[switch])
    return np.asarray(fine & below, np.bool_)


def hops(fabric: Fabric, evs: npt.ArrayLike) -> tuple[LongArray, LongArray, LongArray]:
    """Return the choices that EVs stand for, as `Fabric.hops`: plane, uplinks of T0 and T1."""
    evs = np.asarray(evs, np.int64)
    plane, up0, up1 = (
        evs >> shift & (1 << bits) - 1
        for shift, bits in (
            (fabric.ev_plane_shift, fabric.ev_plane_bits),
            (fabric.ev_up0_shift, fabric.ev_up0_bits),
            (fabric.ev_up1_shift, fabric.ev_up1_bits),
        )
    )
    return plane, up0, up1


def routes(fabric: Fabric, src: npt.ArrayLike, dst: npt.ArrayLike, evs: npt.ArrayLike) -> IntArray:
    """Return the directed ports of the paths that these EVs name, [n, 2 x tiers], -1 after the
    last.

    As `Fabric.route`, path by path; all paths must exist, and no NIC sends to itself.
    """
    src, dst, evs = (np.asarray(each, np.int64) for each in (src, dst, evs))
    plane, up0, up1 = hops(fabric, evs)
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
