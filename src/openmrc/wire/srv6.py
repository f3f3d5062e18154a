"""SRv6 on bytes: the carrier of a path, and its processing in a switch.

A carrier is the destination of the outer IPv6 header: a block of 32 bits and six uSIDs of 16 bits,
F3216 (MRC 2.12, RFC 9800). A NIC calls `write_carrier` for each packet; `step` is the processing of
16 bytes in a switch, `forward_frame` that of a frame with its segment routing header.

A switch is a uN: if its own uSID comes first, the others move up by one. Then the first uSID is
looked up in the static table of the switch (`fabric.tables`), and nowhere else. If it is that of a
link of the switch (uA), it has done its part, and the others move up once more. A switch that a
carrier passes without naming, such as the tier-1 switches on the way down from a third tier, finds
another's uSID first and only looks it up.

The tables of all switches of a fabric are in one array (`Tables`). A table is a hash table with
open addressing, at most half full, 4 B a slot, so that a look-up mostly touches one cache line.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from openmrc.fabric.model import Fabric
from openmrc.fabric.tables import OWN, table
from openmrc.fabric.usid import ADDRESS_BITS, BLOCK, BLOCK_BITS, FIRST_LINK, USID_BITS, UsidPlan
from openmrc.jit import compiled, inlined, inner, records
from openmrc.wire import layout

ADDRESS_BYTES = ADDRESS_BITS // 8
USIDS_AT = BLOCK_BITS // 8
USID_BYTES = USID_BITS // 8
USID_MASK = (1 << USID_BITS) - 1

# Why a packet is not forwarded: what `step` and `forward_frame` return instead of a port.
NOT_MINE = -1  # an address of another block: not a carrier of this fabric
END_OF_CARRIER = -2  # the uSID to look up is zero (MRC 2.12)
NO_ROUTE = -3  # the switch has no entry for the uSID to look up
HOP_LIMIT = -4  # the last hop is used up (RFC 8986 4.1)
BAD_FRAME = -5  # too short, not IPv6, or another routing header than one of one segment

IP_AT = layout.ETHERNET.size_bytes
ETHERTYPE_AT = layout.ETHERNET.byte("ethertype")
NEXT_HEADER_AT = IP_AT + layout.IPV6.byte("next_header")
HOP_LIMIT_AT = IP_AT + layout.IPV6.byte("hop_limit")
CARRIER_AT = IP_AT + layout.IPV6.byte("dst")
SRH_AT = IP_AT + layout.IPV6.size_bytes
SRH_END = SRH_AT + layout.SRH.size_bytes
SRH_UNITS_AT = SRH_AT + layout.SRH.byte("hdr_ext_len")
SRH_UNITS = layout.SRH.size_bytes // 8 - 1
ROUTING_TYPE_AT = SRH_AT + layout.SRH.byte("routing_type")
SEGMENTS_LEFT_AT = SRH_AT + layout.SRH.byte("segments_left")
LAST_ENTRY_AT = SRH_AT + layout.SRH.byte("last_entry")
SEGMENT_AT = SRH_AT + layout.SRH.byte("segment")

TABLE = np.dtype(  # of a switch
    [
        ("own", "i4"),  # its uSID
        ("slot0", "i4"),  # its slots: slots[slot0 : slot0 + 2^slot_bits]
        ("port0", "i4"),  # lowest number of its ports
        ("slot_bits", "i4"),
    ],
    align=True,
)

SCHEME = np.dtype(  # of a fabric: how uSIDs follow from an EV
    [
        ("plane_shift", "i4"),  # fields of the EV
        ("plane_mask", "i4"),
        ("up0_shift", "i4"),
        ("up0_mask", "i4"),
        ("up1_shift", "i4"),
        ("up1_mask", "i4"),
        ("t0_plane", "i4"),  # a T0's uSID is that of plane 0 + plane x this
        ("t1", "i4"),  # a T1's is t1 + plane x t1_plane + up0
        ("t1_plane", "i4"),
        ("t2", "i4"),  # a T2's is t2 + plane x t2_plane + up0 x t2_up0 + up1
        ("t2_plane", "i4"),
        ("t2_up0", "i4"),
        ("up", "i4"),  # uplink `i` of a switch is up + i; 0: carriers name switches
    ],
    align=True,
)

PLACE = np.dtype(  # of a NIC
    [
        ("usid", "i4"),  # its own
        ("t0", "i4"),  # uSID of its T0 in plane 0
        ("pod", "i4"),  # the same for all NICs that a T1 reaches downwards
        *((name, "i4") for name in ("t1_down", "t2_down")),  # uSIDs of downlinks to it
    ],
    align=True,
)


class Tables(NamedTuple):
    """The static tables of all switches of a fabric, made by `build_tables`."""

    switch: Any  # TABLE, by switch number
    slots: Any  # uint32: uSID << 16 | (port - port0); 0 is empty, because no uSID is 0


class Headend(NamedTuple):
    """What an SR headend, here a NIC, needs to write carriers; made by `build_headend`."""

    scheme: Any  # SCHEME, one record
    nic: Any  # PLACE, by NIC number


def build_tables(plan: UsidPlan) -> Tables:
    """Return the /48 tables of all switches of the plan's fabric, by switch number."""
    n = plan.fabric.n_switches
    switch, slots, slot0 = records(n, TABLE), [], 0
    for number in range(n):
        routes = table(plan, number)
        usids = np.array(list(routes), np.int64) & USID_MASK
        ports = np.array(list(routes.values()), np.int64)
        others = ports != OWN
        port0, bits = int(ports[others].min()), int(2 * others.sum() - 1).bit_length()
        t = switch[number]
        t.own, t.slot0, t.port0, t.slot_bits = int(usids[~others][0]), slot0, port0, bits
        # Each port leads to a neighbour with a uSID of its own, so 16 bits can number them.
        row = np.zeros(1 << bits, np.uint32)
        _fill(row, bits, usids[others], ports[others] - port0)
        slots.append(row)
        slot0 += len(row)
    return Tables(switch, np.concatenate(slots))


def build_headend(plan: UsidPlan) -> Headend:
    """Return what `write_carrier` needs, computed from the plan's numbers."""
    fabric = plan.fabric
    scheme = records(1, SCHEME)
    s = scheme[0]
    for name in ("plane", "up0", "up1"):
        s[f"{name}_shift"] = getattr(fabric, f"ev_{name}_shift")
        s[f"{name}_mask"] = (1 << getattr(fabric, f"ev_{name}_bits")) - 1
    s.t0_plane = plan.t0(1, 0) - plan.t0(0, 0)
    s.t1, s.t1_plane = plan.t1(0, 0), plan.t1(1, 0) - plan.t1(0, 0)
    s.t2, s.t2_plane = plan.t2(0, 0, 0), plan.t2(1, 0, 0) - plan.t2(0, 0, 0)
    s.t2_up0 = plan.t2(0, 1, 0) - plan.t2(0, 0, 0)
    s.up = plan.up(0) if plan.adjacencies else 0

    place = records(fabric.n_nics, PLACE)
    t0 = fabric.port_peer_switch[np.arange(fabric.n_nics) * fabric.n_planes]
    place.usid = [plan.nic(nic) for nic in range(fabric.n_nics)]
    place.t0 = [plan.t0(0, index) for index in fabric.sw_index[t0].tolist()]
    place.pod = fabric.sw_lo[fabric.port_peer_switch[fabric.sw_first_up[t0]]]
    for tier, name in enumerate(("t1_down", "t2_down")[: fabric.n_tiers - 1], 1):
        place[name] = [
            plan.down(plan.downlink(plan.above(nic)[tier], nic)) for nic in range(fabric.n_nics)
        ]
    return Headend(scheme, place)


def of_fabric(fabric: Fabric) -> tuple[Tables, Headend]:
    """Return both for a fabric with the project's plan; `InputError` if its uSIDs do not fit."""
    plan = UsidPlan(fabric)
    return build_tables(plan), build_headend(plan)


def nothing() -> tuple[Tables, Headend]:
    """Return empty tables, for compiled code that does not use them."""
    return (
        Tables(records(0, TABLE), np.zeros(0, np.uint32)),
        Headend(records(0, SCHEME), records(0, PLACE)),
    )


@inlined
def front(data, at):
    """The first uSID of the address data[at:at+16]."""
    return _two_bytes(data, at + USIDS_AT)


@inlined
def shift(data, at):
    """Drop the first uSID of the address data[at:at+16]; the others move up, followed by zero."""
    for i in range(at + USIDS_AT, at + ADDRESS_BYTES - USID_BYTES):
        data[i] = data[i + USID_BYTES]
    for i in range(at + ADDRESS_BYTES - USID_BYTES, at + ADDRESS_BYTES):
        data[i] = 0


@inlined
def look_up(tables, switch, usid):
    """Egress port of a switch for a uSID, or NO_ROUTE."""
    t = tables.switch[switch]
    mask = (1 << int(t.slot_bits)) - 1
    i = _slot(usid, int(t.slot_bits))
    entry = int(tables.slots[int(t.slot0) + i])
    while entry != 0:
        if (entry >> USID_BITS) & USID_MASK == usid:
            return int(t.port0) + (entry & USID_MASK)
        i = (i + 1) & mask
        entry = int(tables.slots[int(t.slot0) + i])
    return NO_ROUTE


@inlined
def step(data, at, tables, switch):
    """Process the carrier data[at:at+16], which must exist, in a switch: shift and look up.

    Returns the egress port, or NOT_MINE, END_OF_CARRIER or NO_ROUTE with the carrier left as it is.
    """
    if not _in_block(data, at):
        return NOT_MINE
    usid = front(data, at)
    own = usid == int(tables.switch[switch].own)
    if own:
        usid = _two_bytes(data, at + USIDS_AT + USID_BYTES)
    if usid == 0:
        return END_OF_CARRIER
    port = look_up(tables, switch, usid)
    if own and port >= 0:
        shift(data, at)
    if usid >= FIRST_LINK and port >= 0:
        shift(data, at)
    return port


@compiled
def forward_frame(data, n, tables, switch):
    """Process the frame data[:n], uint8, in a switch: one hop, changing the frame in place.

    If the carrier ends here and a segment is left, the segment becomes the destination (RFC 9800
    4.1.1 with RFC 8986 4.1). Returns the egress port, or a negative reason, and then nothing is
    changed.
    """
    if n > len(data) or n < SRH_AT:
        return BAD_FRAME
    if _two_bytes(data, ETHERTYPE_AT) != layout.ETHERTYPE_IPV6:
        return BAD_FRAME
    if int(data[IP_AT]) >> 4 != 6:
        return BAD_FRAME
    if int(data[HOP_LIMIT_AT]) <= 1:
        return HOP_LIMIT
    port = step(data, CARRIER_AT, tables, switch)
    if port == END_OF_CARRIER and int(data[NEXT_HEADER_AT]) == layout.PROTOCOL_ROUTING:
        port = _next_segment(data, n, tables, switch)
    if port >= 0:
        data[HOP_LIMIT_AT] = int(data[HOP_LIMIT_AT]) - 1
    return port


@compiled
def write_carrier(data, at, headend, src, dst, ev):
    """Write the carrier of the path from NIC `src` to NIC `dst` that `ev` names to data[at:at+16].

    As `UsidPlan.carrier`. Returns how many uSIDs it holds, or -1, with nothing written, if there is
    no such NIC or no room.
    """
    n_nics = len(headend.nic)
    if src < 0 or src >= n_nics or dst < 0 or dst >= n_nics:
        return -1
    if at < 0 or at + ADDRESS_BYTES > len(data):
        return -1
    s, here, there = headend.scheme[0], headend.nic[src], headend.nic[dst]
    ev = int(ev)
    plane = (ev >> int(s.plane_shift)) & int(s.plane_mask)
    up0 = (ev >> int(s.up0_shift)) & int(s.up0_mask)
    up1 = (ev >> int(s.up1_shift)) & int(s.up1_mask)
    for i in range(USIDS_AT):
        data[at + i] = (BLOCK >> (BLOCK_BITS - 8 - 8 * i)) & 0xFF
    first = at + USIDS_AT
    end = _append(data, first, int(here.t0) + plane * int(s.t0_plane))
    if s.up != 0:
        end = _append_links(data, end, s, here, there, up0, up1)
    elif here.t0 != there.t0:
        end = _append(data, end, int(s.t1) + plane * int(s.t1_plane) + up0)
        if here.pod != there.pod:
            t2 = int(s.t2) + plane * int(s.t2_plane) + up0 * int(s.t2_up0) + up1
            end = _append(data, end, t2)
        end = _append(data, end, int(there.t0) + plane * int(s.t0_plane))
    end = _append(data, end, int(there.usid))
    for i in range(end, at + ADDRESS_BYTES):
        data[i] = 0
    return (end - first) // USID_BYTES


@inlined
def _two_bytes(data, at):
    return int(data[at]) * 256 + int(data[at + 1])  # Numba makes unsigned what `<<` would give


@inlined
def _append(data, at, usid):
    data[at] = usid >> 8
    data[at + 1] = usid & 0xFF
    return at + USID_BYTES


@inner
def _append_links(data, end, s, here, there, up0, up1):
    """The uSIDs of links between the first T0 and the NIC."""
    if here.t0 == there.t0:
        return end
    end = _append(data, end, int(s.up) + up0)
    if here.pod != there.pod:
        end = _append(data, end, int(s.up) + up1)
        end = _append(data, end, int(there.t2_down))
    return _append(data, end, int(there.t1_down))


@inlined
def _in_block(data, at):
    return _two_bytes(data, at) << USID_BITS | _two_bytes(data, at + 2) == BLOCK


@inlined
def _slot(usid, bits):
    """The slot at which the search for a uSID begins. The golden ratio spreads neighbouring
    numbers.
    """
    return ((usid * 40503) & USID_MASK) >> (USID_BITS - bits)


@inlined
def _next_segment(data, n, tables, switch):
    """Replace a carrier that holds only this switch's own uSID by the next segment."""
    if front(data, CARRIER_AT) != int(tables.switch[switch].own):
        return END_OF_CARRIER
    for i in range(CARRIER_AT + USIDS_AT + USID_BYTES, CARRIER_AT + ADDRESS_BYTES):
        if data[i] != 0:
            return END_OF_CARRIER
    if n < SRH_END:
        return BAD_FRAME
    if int(data[ROUTING_TYPE_AT]) != layout.ROUTING_SEGMENT or int(data[SRH_UNITS_AT]) != SRH_UNITS:
        return BAD_FRAME
    if int(data[LAST_ENTRY_AT]) != 0 or int(data[SEGMENTS_LEFT_AT]) > 1:
        return BAD_FRAME
    if int(data[SEGMENTS_LEFT_AT]) == 0:
        return END_OF_CARRIER
    if not _in_block(data, SEGMENT_AT):
        return NOT_MINE
    port = look_up(tables, switch, front(data, SEGMENT_AT))
    if port >= 0:
        for i in range(ADDRESS_BYTES):
            data[CARRIER_AT + i] = data[SEGMENT_AT + i]
        data[SEGMENTS_LEFT_AT] = 0
        if front(data, CARRIER_AT) >= FIRST_LINK:
            shift(data, CARRIER_AT)
    return port


@compiled
def _fill(slots, bits, usids, ports):
    for k in range(len(usids)):
        i = _slot(usids[k], bits)
        while slots[i] != 0:
            i = (i + 1) & (len(slots) - 1)
        slots[i] = usids[k] << USID_BITS | ports[k]
