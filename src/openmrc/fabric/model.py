"""A built fabric as plain arrays: switches, directed ports, and the layout of an entropy value.

Everything a simulator needs to know about the wiring is in one `Fabric`: the owner of a port, its
other end, the rate and delay of the link. Queues and packets are defined elsewhere. Arrays are
indexed by switch number or by port number; -1 stands for "none".

**Ports.** A link is two directed egress ports, one at each end, each the other's `port_reverse`.
The port of NIC `n` into plane `p` is `n * n_planes + p`; the ports of the switches follow, those of
each switch together, downward ports before upward ones.

**Entropy values.** An EV is the path, written hop by hop with the first hop in the highest bits:
plane (which is also the NIC's port), uplink of the T0, uplink of the tier-1 switch if there is a
third tier. Paths downwards are unique, so these numbers determine the path (# MRC 2.11, 2.12).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from openmrc.errors import InputError
from openmrc.fabric.dscp import DEFAULT, TRIM_LENGTHS, Dscps

IntArray = npt.NDArray[np.int32]
LongArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

SIDS = UN, UA = "uN", "uA"  # what the uSIDs of a carrier name: switches, or links

# The bytes of a packet that a cut-through switch has received when it begins to send it: preamble,
# Ethernet and the first IPv6 header, which determine the egress port, are 62 B.
CUT_THROUGH_BYTES = 64


class Hops(NamedTuple):
    """The choices that an EV stands for: a plane, and an uplink at each switch on the way up."""

    plane: int
    up0: int
    up1: int


@dataclass(frozen=True, eq=False)
class Fabric:
    """A fabric of `n_planes` equal planes, each a folded Clos of `n_tiers` tiers of switches.

    Rates in bit/s, delays in picoseconds. Build one with `multiplane`, `fat_tree` or `load_topo`.
    """

    kind: str  # "multiplane", "fat-tree" or "htsim"
    n_nics: int
    n_planes: int
    n_tiers: int
    n_switches: int
    n_ports: int

    # Of each switch: its position ...
    sw_plane: IntArray
    sw_tier: IntArray  # 0 next to the NICs
    sw_index: IntArray  # number within its plane and tier
    # ... the NICs lo <= nic < hi that it reaches downwards, through neighbour (nic - lo) // stride,
    sw_lo: IntArray
    sw_hi: IntArray
    sw_stride: IntArray
    # ... and its ports: neighbour j's are first_down + j * bundle .. + bundle - 1.
    sw_first_down: IntArray
    sw_first_up: IntArray
    sw_n_up: IntArray
    sw_bundle: IntArray
    sw_delay_ps: LongArray  # from the arrival of a packet to its place in an egress queue

    # Of each directed egress port: its owner (one of the two is -1) and the other end.
    port_switch: IntArray
    port_nic: IntArray
    port_peer_switch: IntArray
    port_peer_nic: IntArray
    port_reverse: IntArray
    port_rate_bps: LongArray
    port_delay_ps: LongArray  # propagation
    port_last_hop: BoolArray  # leads to a NIC

    # EVs: `ev_base`, and above it the fields plane, uplink of the T0, uplink of a T1.
    ev_base: int
    ev_plane_shift: int
    ev_plane_bits: int
    ev_up0_shift: int
    ev_up0_bits: int
    ev_up1_shift: int
    ev_up1_bits: int

    # Whether switches begin to send a packet once they have its header, if the port is idle and
    # would not run out of data; else they wait for all of it.
    cut_through: bool = False
    jitter_ps: int = 0  # a packet is up to this late at the end of each link, drawn
    dscps: Dscps = DEFAULT
    trim_lengths: str = TRIM_LENGTHS[0]
    sids: str = UN

    @cached_property
    def tier_counts(self) -> tuple[int, ...]:
        """Switches of each tier in one plane."""
        counts = np.bincount(self.sw_tier, minlength=self.n_tiers) // self.n_planes
        return tuple(counts.tolist())

    def hop_delays_ps(self) -> LongArray:
        """Return, by directed port, the link's delay and that of the switch that it leads to."""
        far = self.port_peer_switch
        delays: LongArray = self.port_delay_ps + np.where(far >= 0, self.sw_delay_ps[far], 0)
        return delays

    def nic_port(self, nic: int, plane: int) -> int:
        """Return the port by which `nic` sends into `plane`."""
        return nic * self.n_planes + plane

    def t0_of(self, nic: int) -> int:
        """Return the number, within each plane, of the T0 that serves `nic`."""
        return int(self.sw_index[self.port_peer_switch[self.nic_port(nic, 0)]])

    def uplinks(self, src: npt.ArrayLike, dst: npt.ArrayLike) -> IntArray:
        """Return, for each pair of NICs, the number of uplinks on a path: 0, 1 or 2."""
        dst = np.asarray(dst)
        switch = self.port_peer_switch[np.asarray(src) * self.n_planes]
        count = np.zeros(np.broadcast(switch, dst).shape, np.int32)
        for _ in range(self.n_tiers - 1):
            beyond = (dst < self.sw_lo[switch]) | (dst >= self.sw_hi[switch])
            count = count + beyond
            switch = np.where(beyond, self.port_peer_switch[self.sw_first_up[switch]], switch)
        return count

    def n_paths(self, src: int, dst: int, plane: int) -> int:
        """Return how many different paths lead from NIC `src` to NIC `dst` within one plane."""
        n = 1
        switch = int(self.port_peer_switch[self.nic_port(src, plane)])
        for _ in range(int(self.uplinks(src, dst))):
            n *= int(self.sw_n_up[switch])
            switch = int(self.port_peer_switch[self.sw_first_up[switch]])
        return n

    def ev(self, plane: int, up0: int, up1: int = 0) -> int:
        """Return the EV of these choices."""
        path = plane << self.ev_plane_shift | up0 << self.ev_up0_shift | up1 << self.ev_up1_shift
        return self.ev_base | path

    def hops(self, ev: int) -> Hops:
        """Return the choices that an EV stands for: the inverse of method `ev`."""
        return Hops(
            _field(ev, self.ev_plane_shift, self.ev_plane_bits),
            _field(ev, self.ev_up0_shift, self.ev_up0_bits),
            _field(ev, self.ev_up1_shift, self.ev_up1_bits),
        )

    def ev_of_path(self, src: int, dst: int, plane: int, index: int) -> int:
        """Return the EV of path `index`, 0 <= index < `n_paths(src, dst, plane)`.

        Neighbouring numbers leave the T0 by different uplinks. Uplinks that the path does not
        use are 0, so each path has exactly one EV here.
        """
        if not 0 <= index < self.n_paths(src, dst, plane):
            raise InputError(f"path {index} of nic {src} to nic {dst} does not exist")
        n_up0 = int(self.sw_n_up[self.port_peer_switch[self.nic_port(src, plane)]])
        return self.ev(plane, index % n_up0, index // n_up0)

    def route(self, src: int, dst: int, ev: int) -> list[int]:
        """Return the directed ports of a packet's path, from the NIC's own to the last hop.

        A switch that has `dst` below it sends downwards, any other takes the uplink that the EV
        names for its tier. Of parallel links downwards it takes the one whose number is that tier's
        uplink number modulo their count. Raises `InputError` if the EV names a plane or an uplink
        that does not exist.
        """
        if src == dst:
            raise InputError(f"nic {src} needs no path to itself; name two NICs")
        plane, up0, up1 = self.hops(ev)
        if plane >= self.n_planes:
            raise InputError(f"EV {ev:#x} names plane {plane} of {self.n_planes}")
        port = self.nic_port(src, plane)
        ports = [port]
        while (switch := int(self.port_peer_switch[port])) >= 0:
            tier = int(self.sw_tier[switch])
            if self._reaches(switch, dst):
                neighbour = (dst - int(self.sw_lo[switch])) // int(self.sw_stride[switch])
                bundle = int(self.sw_bundle[switch])
                parallel = (0, up0, up1)[tier] % bundle
                port = int(self.sw_first_down[switch]) + neighbour * bundle + parallel
            else:
                uplink, n_up = (up0, up1)[tier], int(self.sw_n_up[switch])
                if uplink >= n_up:
                    raise InputError(f"EV {ev:#x} names uplink {uplink} of {n_up} at tier {tier}")
                port = int(self.sw_first_up[switch]) + uplink
            ports.append(port)
        return ports

    def longest_path_ports(self) -> list[int]:
        """Return the ports of one of the longest paths: from the first NIC to the last one."""
        return self.route(0, self.n_nics - 1, self.ev(0, 0))

    def switch_name(self, switch: int) -> str:
        """Return "plane 3 t0 5", as faults name a switch."""
        return f"plane {self.sw_plane[switch]} t{self.sw_tier[switch]} {self.sw_index[switch]}"

    def link_name(self, port: int) -> str:
        """Return the name of the link that `port` sends on, the same for both directions.

        "nic 7 plane 3" at a NIC, else the lower switch first: "plane 3 t0 5 - t1 2", followed by "
        link 1" where several links run in parallel.
        """
        nic = max(int(self.port_nic[port]), int(self.port_peer_nic[port]))
        ends = (int(self.port_switch[port]), int(self.port_peer_switch[port]))
        if nic >= 0:
            return f"nic {nic} plane {self.sw_plane[max(ends)]}"
        lower, upper = sorted(ends, key=lambda switch: int(self.sw_tier[switch]))
        name = f"{self.switch_name(lower)} - t{self.sw_tier[upper]} {self.sw_index[upper]}"
        bundle = int(self.sw_bundle[upper])
        if bundle == 1:
            return name
        down = port if ends[0] == upper else int(self.port_reverse[port])
        return f"{name} link {(down - int(self.sw_first_down[upper])) % bundle}"

    def port_name(self, port: int) -> str:
        """Return the name of the direction of a link in which `port` sends, as faults name it.

        The lower end comes first: "nic 7 plane 3 > t0", and "plane 3 t0 5 < t1 2" for the direction
        from the T1 to the T0.
        """
        own, far = int(self.port_switch[port]), int(self.port_peer_switch[port])
        name = self.link_name(port)
        up = own < 0 or (far >= 0 and bool(self.sw_tier[own] < self.sw_tier[far]))
        arrow = ">" if up else "<"
        return f"{name} {arrow} t0" if min(own, far) < 0 else name.replace(" - ", f" {arrow} ")

    def _reaches(self, switch: int, nic: int) -> bool:
        return bool(self.sw_lo[switch] <= nic < self.sw_hi[switch])


def _field(value: int, shift: int, bits: int) -> int:
    return value >> shift & (1 << bits) - 1
