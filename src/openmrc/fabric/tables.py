"""The static forwarding tables: what each switch knows, set once and never changed (# MRC 6.1).

A table maps a 48-bit prefix, the block and one uSID, to an egress port. A switch's own prefix maps
to `OWN`: shift, and look up again. There is no routing protocol and no hashing, so a table holds
just the neighbours' uSIDs and, at tiers that branch downwards, the T0s below.
"""

from __future__ import annotations

from openmrc.errors import InputError
from openmrc.fabric.model import Fabric
from openmrc.fabric.usid import BLOCK, USID_BITS, UsidPlan, prefix, shift

OWN = -1

Table = dict[int, int]


def build_tables(plan: UsidPlan) -> list[Table]:
    """Return the table of every switch of the plan's fabric, by switch number."""
    return [_table(plan, switch) for switch in range(plan.fabric.n_switches)]


def forward(table: Table, carrier: int) -> tuple[int, int]:
    """Return (egress port, carrier as it leaves) of a packet that arrives with `carrier`.

    Raises `InputError` for a prefix that the switch does not know, or none behind its own.
    """
    port = table.get(prefix(carrier))
    if port == OWN:
        carrier = shift(carrier)
        port = table.get(prefix(carrier))
    if port is None or port == OWN:
        raise InputError(f"carrier {carrier:#034x}: no route; build it for this switch's fabric")
    return port, carrier


def walk(fabric: Fabric, tables: list[Table], src: int, plane: int, carrier: int) -> list[int]:
    """Return the directed ports that a packet takes from NIC `src`, by look-ups alone."""
    ports = [fabric.nic_port(src, plane)]
    while (switch := int(fabric.port_peer_switch[ports[-1]])) >= 0:
        port, carrier = forward(tables[switch], carrier)
        ports.append(port)
    return ports


def _table(plan: UsidPlan, switch: int) -> Table:
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
    routes[own] = OWN
    return {BLOCK << USID_BITS | usid: port for usid, port in routes.items()}
