"""Captures of an MRC network: the frames of `sim.watch.capture`.

The frame is as on that link: the carrier shifted by every switch so far, through the fabric's real
tables; CE and trimming as set by the queues before it; hop limits counted down. Without SRv6
(`srv6 = false`, `rules = "peer"`, parallel links) there are no carriers, and frames have one IPv6
header, as in the other forms of `sim.watch.capture`. IPv4 has room for half of an EV (row 2), and a
fabric's EVs differ in the upper half. So the upper half is written in place of the lower one, above
0xC000 as the source ports of RoCEv2 are, also in the EVs that answers reflect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from openmrc.engine import packet as pk
from openmrc.fabric.clos import EV_BASE, EV_HALF_BITS
from openmrc.fabric.dscp import TRIM_LENGTHS
from openmrc.fabric.model import Fabric
from openmrc.jit import compiled, inlined
from openmrc.sim.mrc.transport import Transport
from openmrc.sim.net.state import UNDAMAGED
from openmrc.sim.watch.capture import (
    FRAME_BYTES_MAX,
    HOP_LIMIT,
    LinkCapture,
    Noted,
    put_ends,
    put_macs,
)
from openmrc.sim.watch.forms import IPV6, NATIVE
from openmrc.sim.watch.watched import Watched
from openmrc.wire import addresses, codec, srv6
from openmrc.wire.layout import PKEY_DEFAULT, UDP_PORT

PATH_BITS = 14  # of a source port above EV_BASE


class _Wires(NamedTuple):
    """`capture.Wires`, and how carriers cross them."""

    switch: Any
    nic: Any
    peer_switch: Any
    peer_nic: Any
    tables: srv6.Tables
    headend: srv6.Headend
    n_planes: int
    by_carrier: int
    ipv4: int
    halved: int  # EVs are written in 16 bits
    trim_lengths: int  # a place in `TRIM_LENGTHS`


class Capture(LinkCapture):
    """A capture of MRC; `hashed` if the world forwards by hash, else `carried` if by carriers."""

    protocol, native = "MRC", IPV6

    def __init__(
        self,
        stream: BinaryIO,
        fabric: Fabric,
        where: Sequence[str],
        hashed: bool = False,
        carried: bool = True,
        frames: str = NATIVE,
    ) -> None:
        super().__init__(stream, fabric, where, frames)
        carried = carried and not hashed and int(fabric.sw_bundle.max()) == 1
        by_carrier = carried and frames == NATIVE
        bits = fabric.ev_plane_shift + fabric.ev_plane_bits - EV_HALF_BITS
        halved = self.ipv4 and not hashed and 0 < bits <= PATH_BITS
        srv6_of = srv6.of_fabric(fabric) if by_carrier else srv6.nothing()
        lengths = TRIM_LENGTHS.index(fabric.trim_lengths)
        how = (fabric.n_planes, int(by_carrier), int(self.ipv4), int(halved), lengths)
        self._routed = _Wires(*self._wires, *srv6_of, *how)

    @classmethod
    def of(
        cls,
        stream: BinaryIO,
        fabric: Fabric,
        where: Sequence[str],
        transport: Transport,
        frames: str = NATIVE,
    ) -> Capture:
        """Return the capture of a run with this transport."""
        return cls(stream, fabric, where, transport.hashed, transport.srv6, frames)

    def _due(self, world: Watched, tap: Any, packet: Any) -> tuple[Any, Any]:
        packet.flag_bits |= tap.marks & UNDAMAGED
        return tap, packet

    def _make(self, world: Watched, noted: Noted, first: int) -> int:
        qp = noted.tap.qp
        sender = world.engine.qp.qpn[world.net.qp.other[qp]]
        source_qpn = np.where(qp >= 0, sender, pk.ENDPOINT_QPN).astype(np.int64)
        return int(_write_frames(self._out, first, noted, source_qpn, self._routed, self._envelope))


@inlined
def _fill_envelope(e, p, port, hops, source_qpn, wires):
    """Fill the envelope of a packet on a link."""
    plane = int(p.plane)
    put_macs(e, port, plane, wires)
    e.ipv4 = wires.ipv4
    put_ends(e, p, plane)
    addresses.write_ipv6(e.outer_src, 0, int(p.src), plane)
    e.hop_limit = HOP_LIMIT - hops
    e.inner_hop_limit = HOP_LIMIT
    e.tseth = 1
    e.udp_port = UDP_PORT
    e.pkey = PKEY_DEFAULT
    e.spdcid = source_qpn & 0xFFFF
    e.dpdcid = p.dst_qpn & 0xFFFF


@inlined
def _in_half(ev):
    """The distinguishing half of a fabric's EV, as a source port; 0 for no EV."""
    ev = int(ev)
    return 0 if ev == 0 else EV_BASE | ev >> EV_HALF_BITS


@inlined
def _travel(e, p, first_switch, hops, wires):
    """Write the carrier and let `hops` switches process it; return the port by which the last one
    sends.
    """
    srv6.write_carrier(e.carrier, 0, wires.headend, int(p.src), int(p.dst), int(p.ev))
    switch = first_switch
    port = -1
    for _ in range(hops):
        port = srv6.step(e.carrier, 0, wires.tables, switch)
        if port < 0:
            return port
        switch = int(wires.peer_switch[port])
    return port


@compiled
def _write_frames(out, first, noted, source_qpn, wires, e):
    """Write frames of packets `first` .. as many as fit into `out`; `noted.ends[i]` is the end of
    each.

    Returns the number of the first packet left out: one for which there is no room, or that is not
    a frame, or whose carrier leads elsewhere.
    """
    at = 0
    i = first
    while i < noted.tap.shape[0] and at + FRAME_BYTES_MAX <= out.shape[0]:
        p = noted.packet[i]
        port = int(noted.tap[i].port)
        _fill_envelope(e, p, port, noted.hops[i], source_qpn[i], wires)
        e.srv6 = wires.by_carrier
        if wires.by_carrier:
            entry = int(wires.peer_switch[p.src * wires.n_planes + p.plane])
            leaves = _travel(e, p, entry, noted.hops[i], wires)
            if noted.hops[i] > 0 and leaves != port:
                return i
        if wires.halved:
            p.ev = _in_half(p.ev)
            p.entropy = _in_half(p.entropy)
        n = codec.encode(p, e, out[:0], out[at:], 1)
        if n < 0:
            return i
        if p.flag_bits & (pk.TRIMMED | pk.TRIMMED_LASTHOP):
            how = (p.flag_bits & pk.TRIMMED_LASTHOP, e.dscps, wires.trim_lengths)
            n = codec.trim(out[at:], n, *how)
        at += n
        noted.ends[i] = at
        i += 1
    return i


CAPTURE = Capture
