"""What a fabric carries in one state, and what a message between two NICs takes in it.

Of a transport that sprays only sums matter (`pools`): what each port of a NIC carries, and what the
uplinks of a T0, or of a block of T0s, carry together. With all NICs below them sending at once each
has its share of those; a pair of NICs has the least of what both ends, the planes that they have in
common and these shares carry.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from openmrc.fabric.model import Fabric, LongArray
from openmrc.flow.build import after_ps, sizes_of
from openmrc.flow.health import Floats
from openmrc.traffic.earliest import Cost
from openmrc.traffic.traffic import Traffic, make_traffic
from openmrc.units import PS_BITS

Costs = Callable[[Fabric, Traffic, Any], Cost]  # of messages alone: `traffic.ideal.costs`


class Capacity(NamedTuple):
    """Bytes per ps; compiled code reads it."""

    out: Floats  # [NICs, planes] what each port of a NIC sends
    into: Floats  # [NICs, planes] and receives
    up: Floats  # [tiers - 1, NICs] a NIC's share of the uplinks of its T0, of its block ...
    down: Floats  # the same downwards
    block: LongArray  # [tiers - 1, NICs] which T0 it is below, which block

    def times(self, factor: float) -> Capacity:
        """So many times as much everywhere."""
        return Capacity(
            self.out * factor, self.into * factor, self.up * factor, self.down * factor, self.block
        )


def capacity(fabric: Fabric, bytes_per_ps: Floats) -> Capacity:
    """Return the sums of what the ports of a fabric carry, [ports]."""
    nics, planes = fabric.n_nics, fabric.n_planes
    own = np.arange(nics * planes).reshape(nics, planes)
    out, into = bytes_per_ps[own], bytes_per_ps[fabric.port_reverse[own]]
    switch = fabric.port_peer_switch[own[:, 0]]
    blocks: list[LongArray] = []
    ups: list[Floats] = []
    downs: list[Floats] = []
    far = fabric.port_peer_switch
    climbing = (fabric.port_switch >= 0) & (far >= 0)
    tiers = np.where(climbing, fabric.sw_tier[fabric.port_switch], -1)
    climbing &= fabric.sw_tier[far] > tiers
    for tier in range(fabric.n_tiers - 1):
        lowest, block = np.unique(fabric.sw_lo[switch], return_inverse=True)
        ports = np.flatnonzero(climbing & (tiers == tier))
        there = np.searchsorted(lowest, fabric.sw_lo[fabric.port_switch[ports]])
        below = np.bincount(block, minlength=len(lowest))
        for found, of in ((ups, ports), (downs, fabric.port_reverse[ports])):
            found.append((np.bincount(there, bytes_per_ps[of], len(lowest)) / below)[block])
        blocks.append(block)
        switch = far[fabric.sw_first_up[switch]]
    return Capacity(out, into, np.array(ups), np.array(downs), np.array(blocks, np.int64))


class Messages:
    """What messages of a transport take on a fabric beside their rates."""

    def __init__(self, fabric: Fabric, transport: Any, costs: Costs) -> None:
        self._fabric, self._transport, self._costs = fabric, transport, costs
        self._sizes = sizes_of(transport)
        climbs = fabric.uplinks(np.zeros(fabric.n_nics, np.int64), np.arange(fabric.n_nics))
        _, self._far = np.unique(climbs[1:], return_index=True)
        self._climbs = climbs[1:][self._far]
        self.after_ps = cache(self._after_ps)
        self.nic_bytes_per_ps = float(fabric.port_rate_bps[0]) / PS_BITS * fabric.n_planes

    def wire_bytes(self, size: float) -> float:
        """What a message of so many bytes takes of a port: its packets, and the answers to as much
        that comes the other way, since whoever sends receives as well.
        """
        packets = -(-size // self._sizes.pmtu)
        answers = min(packets / self._sizes.packets_an_answer + 1, packets)
        headers = packets * self._sizes.header_bytes
        return size + headers + answers * self._sizes.answer_bytes

    def _after_ps(self, size: int) -> Floats:
        """From when a message is sent until it is placed, by how many tiers it climbs, ps."""
        n = len(self._far)
        each = make_traffic("each", self._fabric.n_nics, [0] * n, self._far + 1, range(n), size)
        cost = self._costs(self._fabric, each, self._transport)
        rate_bps = int(self._fabric.port_rate_bps[0])
        after = np.zeros(self._fabric.n_tiers)
        after[self._climbs] = after_ps(
            each.msg_bytes, cost.behind, self._sizes, self._fabric.n_planes, rate_bps
        )
        return after
