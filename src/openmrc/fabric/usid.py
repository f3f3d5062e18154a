"""SRv6 uSIDs: the number of each switch, and carriers that encode a path.

A carrier is an IPv6 destination address: a 32-bit block and six 16-bit uSIDs, F3216 (# MRC 2.12). A
switch that finds its own uSID first shifts the rest left by one and looks up the next one. The path
T0, T1, T0 takes three uSIDs, followed by the destination's own, because the last switch must still
find a next uSID that is not zero.

**Numbers.** Those of switches and NICs are below 0xE000, where uSIDs of links begin, and none is 0,
the end of a carrier (# MRC 2.12). Fields are as wide as the fabric needs:

    0001 dddddddddddd       NIC: its number on its T0
    001  plane, up0         T1: the uplink of a T0 that leads to it, the same in every pod
    01   plane, index       T0: its number in the plane
    10   plane, up0, up1    T2: the two uplinks that lead to it
    1110 iiiiiiiiiiii       a switch's own downlink i, and
    1111 iiiiiiiiiiii       its uplink i, where the fabric's `sids` are `"uA"`

A uSID of a link, uA, is local to its switch (RFC 9800, End.X): who finds its own first drops it and
sends the packet out of that port, whatever follows. A path of uA is that of its first T0, because
this names the plane, followed by its uplinks, its downlinks and the NIC.

**Templates.** A carrier is a template of the (source, destination) pair with bits of the EV
scattered into its mask: the plane into every switch's uSID, the uplinks into those of T1 and T2. A
NIC does this per packet; `expand` is that operation.
"""

from __future__ import annotations

from dataclasses import dataclass

from openmrc.errors import InputError
from openmrc.fabric.model import UA, Fabric

ADDRESS_BITS = 128
BLOCK_BITS = 32
USID_BITS = 16
BLOCK = 0x2001_0DB8  # 2001:db8::/32, documentation

_NIC, _NIC_BITS = 0x1000, 12
_T1, _T1_BITS = 0x2000, 13
_T0, _T0_BITS = 0x4000, 14
_T2, _T2_BITS = 0x8000, 14
FIRST_LINK = _DOWN = 0xE000  # uSIDs from here on are of links
_UP, _LINK_BITS = 0xF000, 12


@dataclass(frozen=True)
class Template:
    """A carrier without the EV, the mask of the bits that the EV fills, and which fields they are.

    `fields` are the (shift, bits) of an EV's fields in the order in which the mask takes them,
    highest bit first; the plane occurs once per switch.
    """

    carrier: int
    mask: int
    fields: tuple[tuple[int, int], ...]


class UsidPlan:
    """The uSID of every switch and NIC of a fabric. Raises `InputError` if they do not fit.

    A uSID names a switch, not one of several parallel links, so bundles cannot be addressed.
    """

    def __init__(self, fabric: Fabric) -> None:
        if fabric.sw_bundle.max() > 1:
            raise InputError(
                "fabric: parallel links (Bundle) have no uSIDs of their own; use Bundle 1"
            )
        self.fabric = fabric
        self._index_bits = (fabric.tier_counts[0] - 1).bit_length()
        t0_nics = int((fabric.sw_hi - fabric.sw_lo)[fabric.sw_tier == 0].max())
        plane, up0, up1 = fabric.ev_plane_bits, fabric.ev_up0_bits, fabric.ev_up1_bits
        sizes = {
            "NICs of a T0": ((t0_nics - 1).bit_length(), _NIC_BITS),
            "T0s": (plane + self._index_bits, _T0_BITS),
            "T1s": (plane + up0, _T1_BITS),
            "T2s": (plane + up0 + up1 if fabric.n_tiers == 3 else 0, _T2_BITS),
        }
        if self.adjacencies:
            down = -((fabric.sw_lo - fabric.sw_hi) // fabric.sw_stride)
            most = max(int(down.max()), int(fabric.sw_n_up.max()))
            sizes["links of a switch"] = ((most - 1).bit_length(), _LINK_BITS)
        for what, (bits, most) in sizes.items():
            if bits > most:
                raise InputError(
                    f"fabric: the {what} need {bits} bits of a uSID, {most} are left;"
                    " build a smaller fabric"
                )

    def nic(self, nic: int) -> int:
        """Return the uSID of a NIC, which only its own T0s know."""
        t0 = int(self.fabric.port_peer_switch[self.fabric.nic_port(nic, 0)])
        return _NIC + nic - int(self.fabric.sw_lo[t0])

    def t0(self, plane: int, index: int) -> int:
        """Return the uSID of T0 `index` of a plane."""
        return _T0 | plane << self._index_bits | index

    def t1(self, plane: int, up0: int) -> int:
        """Return the uSID of the T1 at the end of every T0's uplink `up0`."""
        return _T1 | plane << self.fabric.ev_up0_bits | up0

    def t2(self, plane: int, up0: int, up1: int) -> int:
        """Return the uSID of the T2 at the end of uplinks `up0` and `up1`."""
        fabric = self.fabric
        return _T2 | (plane << fabric.ev_up0_bits | up0) << fabric.ev_up1_bits | up1

    @property
    def adjacencies(self) -> bool:
        """Whether carriers name links, and switches know those of their own."""
        return self.fabric.sids == UA

    def down(self, index: int) -> int:
        """Return the uSID of a switch's downlink."""
        return _DOWN | index

    def up(self, index: int) -> int:
        """Return the uSID of a switch's uplink."""
        return _UP | index

    def downlink(self, switch: int, nic: int) -> int:
        """Return which downlink of a switch leads to a NIC."""
        return (nic - int(self.fabric.sw_lo[switch])) // int(self.fabric.sw_stride[switch])

    def above(self, nic: int) -> tuple[int, ...]:
        """Return a switch of each tier that leads down to a NIC, T0 first."""
        fabric, found = self.fabric, []
        port = fabric.nic_port(nic, 0)
        for _ in range(fabric.n_tiers):
            found.append(int(fabric.port_peer_switch[port]))
            port = int(fabric.sw_first_up[found[-1]])
        return tuple(found)

    def _links(self, src: int, dst: int) -> list[tuple[int, int, list[tuple[int, int]]]]:
        """As `parts` of `template`, between the first T0 and the NIC `dst`."""
        fabric, uplinks = self.fabric, int(self.fabric.uplinks(src, dst))
        up = [(fabric.ev_up0_shift, fabric.ev_up0_bits), (fabric.ev_up1_shift, fabric.ev_up1_bits)]
        parts = [(_UP, 0, [field]) for field in up[:uplinks]]
        for switch in reversed(self.above(dst)[1 : uplinks + 1]):
            parts.append((self.down(self.downlink(switch, dst)), 0, []))
        return parts

    def template(self, src: int, dst: int) -> Template:
        """Return the template of all paths from NIC `src` to NIC `dst`."""
        fabric = self.fabric
        plane = (fabric.ev_plane_shift, fabric.ev_plane_bits)
        up0 = (fabric.ev_up0_shift, fabric.ev_up0_bits)
        up1 = (fabric.ev_up1_shift, fabric.ev_up1_bits)
        below = self._index_bits
        src_t0, dst_t0 = fabric.t0_of(src), fabric.t0_of(dst)
        uplinks = int(fabric.uplinks(src, dst))
        # (uSID, bits below its variable fields, its fields), in the order of the path
        parts = [(self.t0(0, src_t0), below, [plane])]
        if self.adjacencies:
            parts += self._links(src, dst)
        else:
            if uplinks >= 1:
                parts.append((_T1, 0, [plane, up0]))
            if uplinks == 2:
                parts.append((_T2, 0, [plane, up0, up1]))
            if uplinks >= 1:
                parts.append((self.t0(0, dst_t0), below, [plane]))
        parts.append((self.nic(dst), 0, []))
        value, mask = BLOCK, 0
        for usid, shift, fields in parts:
            bits = sum(width for _, width in fields)
            value = value << USID_BITS | usid
            mask = mask << USID_BITS | ((1 << bits) - 1) << shift
        rest = ADDRESS_BITS - BLOCK_BITS - USID_BITS * len(parts)
        every = tuple(field for _, _, fields in parts for field in fields)
        return Template(value << rest, mask << rest, every)

    def carrier(self, src: int, dst: int, ev: int) -> int:
        """Return the carrier, a 128-bit address, of the path that `ev` names."""
        template = self.template(src, dst)
        ev_bits = 0
        for shift, bits in template.fields:
            ev_bits = ev_bits << bits | (ev >> shift & (1 << bits) - 1)
        return expand(template.carrier, template.mask, ev_bits)


def carrier(fabric: Fabric, src: int, dst: int, ev: int) -> int:
    """Return the carrier of one path; for many, keep a `UsidPlan`."""
    return UsidPlan(fabric).carrier(src, dst, ev)


def expand(template: int, template_mask: int, ev_bits: int) -> int:
    """Return `template` with the low bits of `ev_bits` scattered into the ones of the mask.

    The highest of the bits goes to the highest one of the mask: the PDEP instruction of x86, and
    what the specification's "pull the next MSB into each mask bit" means (# MRC 2.12).
    """
    value, left = template & ~template_mask, template_mask
    while left:
        lowest = left & -left
        value |= lowest * (ev_bits & 1)
        ev_bits >>= 1
        left ^= lowest
    return value


def extract(value: int, mask: int) -> int:
    """Return the bits of `value` under the ones of `mask`, packed together: PEXT."""
    bits, position = 0, 0
    while mask:
        lowest = mask & -mask
        bits |= bool(value & lowest) << position
        position += 1
        mask ^= lowest
    return bits
