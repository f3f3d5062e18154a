"""The static forwarding tables of the switches, set once and never changed (# MRC 6.1).

A table maps a 48-bit prefix, the block and one uSID, to an egress port. A switch's own prefix maps
to `OWN`: shift, and look up again; that of one of its links (uA) to its port, and is shifted out,
too. There is no routing protocol and no hashing, so a table holds just the neighbours' uSIDs and,
at tiers that branch downwards, the T0s below. `wire.srv6` forwards by them.
"""

from __future__ import annotations

from openmrc.fabric.usid import BLOCK, USID_BITS, UsidPlan

OWN = -1

Table = dict[int, int]


def table(plan: UsidPlan, switch: int) -> Table:
    """Return the table of a switch of the plan's fabric."""
    fabric = plan.fabric
    plane, tier = int(fabric.sw_plane[switch]), int(fabric.sw_tier[switch])
    index, stride = int(fabric.sw_index[switch]), int(fabric.sw_stride[switch])
    lo, hi = int(fabric.sw_lo[switch]), int(fabric.sw_hi[switch])
    down, up = int(fabric.sw_first_down[switch]), int(fabric.sw_first_up[switch])
    n_up = int(fabric.sw_n_up[switch])
    t0s_up = int(fabric.sw_n_up[0])  # switch 0 is a T0; all have as many uplinks

    routes: dict[int, int] = {}
    if tier == 0:
        own = plan.t0(plane, index)
        routes |= {plan.nic(nic): down + nic - lo for nic in range(lo, hi)}
        routes |= {plan.t1(plane, up0): up + up0 for up0 in range(n_up)}
    else:
        nics_per_t0 = int(fabric.sw_stride[fabric.sw_tier == 1][0])
        for nic in range(lo, hi, nics_per_t0):
            routes[plan.t0(plane, nic // nics_per_t0)] = down + (nic - lo) // stride
        if tier == 1:
            up0 = index % t0s_up
            own = plan.t1(plane, up0)
            routes |= {plan.t2(plane, up0, up1): up + up1 for up1 in range(n_up)}
        else:
            t1s_up = fabric.tier_counts[2] // t0s_up
            own = plan.t2(plane, index // t1s_up, index % t1s_up)
    if plan.adjacencies:
        routes |= {plan.down(i): down + i for i in range(-((lo - hi) // stride))}
        routes |= {plan.up(i): up + i for i in range(n_up)}
    routes[own] = OWN
    return {BLOCK << USID_BITS | usid: port for usid, port in routes.items()}
