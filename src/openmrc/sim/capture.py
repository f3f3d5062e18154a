"""What crosses links of a simulated fabric, frame by frame, into a capture file.

A tapped port notes each packet that it puts on the wire, with the time at which the first bit
leaves; what a fault of the link swallows did not cross it, and what one damages has a wrong iCRC
from there on. The frame is what stands on that link: the carrier shifted by every switch on the way
so far, through the fabric's real tables; CE and trimming as the queues before it left them; hop
limits counted down. Simulated memory holds no bytes, so payloads are zeros, under a right iCRC.
With hashed EVs (`srv6 = false`, `rules = "peer"`, parallel links) there are no carriers, and frames
have one IPv6 header.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from openmrc.engine.packet import ENDPOINT_QPN, TRIMMED, TRIMMED_LASTHOP
from openmrc.errors import InputError
from openmrc.fabric import places
from openmrc.fabric.model import Fabric
from openmrc.jit import compiled, inlined, records
from openmrc.sim.state import DAMAGED, UNDAMAGED
from openmrc.units import NS
from openmrc.wire import addresses, codec, srv6
from openmrc.wire.frame import ENVELOPE
from openmrc.wire.layout import ICRC, PAYLOAD_BYTES_MAX, PKEY_DEFAULT, UDP_PORT
from openmrc.wire.pcap import Writer

if TYPE_CHECKING:
    from openmrc.sim.world import World

HOP_LIMIT = 64  # with which NICs send
FRAME_BYTES_MAX = PAYLOAD_BYTES_MAX + 256  # and all headers
BATCH_BYTES = 8 * 1024 * 1024  # of frames made at a time

Longs = npt.NDArray[np.int64]


class Wires(NamedTuple):
    """What is at both ends of each directed port, by its number."""

    switch: Any  # int32: the switch that sends, or -1
    nic: Any  # the NIC that sends, or -1
    peer_switch: Any
    peer_nic: Any


def wires_of(fabric: Fabric) -> Wires:
    """Return what is at the ends of the ports of a fabric."""
    return Wires(fabric.port_switch, fabric.port_nic, fabric.port_peer_switch, fabric.port_peer_nic)


class LinkFile:
    """A capture file, pcapng, with an interface for each of these directed ports, of its name."""

    def __init__(self, stream: BinaryIO, fabric: Fabric, ports: Longs) -> None:
        self._writer = Writer(stream, [fabric.port_name(port) for port in ports.tolist()])
        self._interface = np.full(fabric.n_ports, -1, np.int64)
        self._interface[ports] = np.arange(len(ports))

    def write(self, port: int, at_ps: int, frame: memoryview) -> None:
        """Write what a port began to send at a time."""
        self._writer.write(int(self._interface[port]), at_ps // NS, frame)


def damage(out: npt.NDArray[np.uint8], end: int) -> None:
    """Change a frame that ends at `end` somewhere in what its iCRC covers."""
    out[end - ICRC.size_bytes - 1] ^= 1


class _Wires(NamedTuple):
    """The fabric as `_write_frames` needs it; the first four by directed port."""

    switch: Any
    nic: Any
    peer_switch: Any
    peer_nic: Any
    tables: srv6.Tables
    speller: srv6.Speller


class Capture:
    """Writes pcapng to `stream`: what crosses the links at `where`, both directions.

    `where` lists places ("plane 0 t0 1 - t1 0", "nic 5", "everywhere", see `places.ports`); each
    directed link is an interface of the file, named after it. Give it to one `World`, with `hashed`
    if that forwards by hash. Raises `InputError` for a place that is not there.
    """

    def __init__(
        self, stream: BinaryIO, fabric: Fabric, where: Sequence[str], hashed: bool = False
    ) -> None:
        self.ports = ports_at(fabric, where)
        self.n_frames = 0
        self._file = LinkFile(stream, fabric, self.ports)
        self._fabric = fabric
        self._srv6 = not hashed and int(fabric.sw_bundle.max()) == 1
        tables, speller = srv6.of_fabric(fabric) if self._srv6 else srv6.nothing()
        self._wires = _Wires(*wires_of(fabric), tables, speller)
        self._out = np.zeros(BATCH_BYTES, np.uint8)
        self._envelope = records(1, ENVELOPE)

    def take(self, world: World) -> None:
        """Write what the tapped ports of `world` have noted since the last call."""
        ctl = world.net.ctl[0]
        n = int(ctl.tap_n)
        tap, packet = world.net.tap[:n], world.net.tap_packet[:n]
        sender = world.net.qp.other[tap.qp]
        packet.flag_bits |= tap.marks & UNDAMAGED
        source_qpn = np.where(tap.qp >= 0, world.engine.qp.qpn[sender], ENDPOINT_QPN).astype(
            np.int64
        )
        hops = switches_passed(self._fabric, tap.port, packet.src, packet.dst)
        ends = np.zeros(n, np.int64)
        done = 0
        while done < n:
            last = int(
                _write_frames(
                    self._out,
                    ends,
                    done,
                    tap,
                    packet,
                    source_qpn,
                    hops,
                    self._wires,
                    self._envelope[0],
                    self._fabric.n_planes,
                    int(self._srv6),
                )
            )
            if last <= done:
                raise RuntimeError(f"{packet[done]} is not where its carrier leads")
            start = 0
            for i in range(done, last):
                if tap.marks[i] & DAMAGED:
                    damage(self._out, int(ends[i]))
                frame = self._out[start : ends[i]].data
                self._file.write(int(tap.port[i]), int(tap.at[i]), frame)
                start = int(ends[i])
            done = last
        self.n_frames += n
        ctl.tap_n = 0


def ports_at(fabric: Fabric, where: Sequence[str]) -> Longs:
    """Return the directed ports of all these places, each once, in order."""
    found = []
    for place in where:
        try:
            found.append(places.ports(fabric, place))
        except InputError as error:
            raise error.at(f"--at {place!r}") from None
    return np.unique(np.concatenate(found)).astype(np.int64)


def switches_passed(
    fabric: Fabric, port: npt.ArrayLike, src: npt.ArrayLike, dst: npt.ArrayLike
) -> Longs:
    """Return how many switches packets from `src` to `dst` have passed when `port` sends them."""
    port = np.asarray(port)
    switch = fabric.port_switch[port]
    tier = fabric.sw_tier[switch].astype(np.int64)
    upwards = port >= fabric.sw_first_up[switch]
    passed = np.where(upwards, tier + 1, 2 * fabric.uplinks(src, dst).astype(np.int64) - tier + 1)
    return np.where(switch < 0, 0, passed)


@inlined
def put_macs(e, port, plane, wires):
    """The MACs of a packet on a link; those of a NIC are its port's on `plane`."""
    if wires.nic[port] >= 0:
        addresses.write_nic_mac(e.src_mac, 0, int(wires.nic[port]), plane)
    else:
        addresses.write_switch_mac(e.src_mac, 0, int(wires.switch[port]))
    if wires.peer_nic[port] >= 0:
        addresses.write_nic_mac(e.dst_mac, 0, int(wires.peer_nic[port]), plane)
    else:
        addresses.write_switch_mac(e.dst_mac, 0, int(wires.peer_switch[port]))


@inlined
def _dress(e, p, port, hops, source_qpn, wires):
    """The envelope of a packet on a link."""
    plane = int(p.plane)
    put_macs(e, port, plane, wires)
    addresses.write_ipv6(e.inner_src, 0, int(p.src), plane)
    addresses.write_ipv6(e.inner_dst, 0, int(p.dst), plane)
    addresses.write_ipv6(e.outer_src, 0, int(p.src), plane)
    e.hop_limit = HOP_LIMIT - hops
    e.inner_hop_limit = HOP_LIMIT
    e.tseth = 1
    e.udp_port = UDP_PORT
    e.pkey = PKEY_DEFAULT
    e.spdcid = source_qpn & 0xFFFF
    e.dpdcid = p.dst_qpn & 0xFFFF


@inlined
def _travel(e, p, first_switch, hops, wires):
    """Spell the carrier and let `hops` switches handle it; the port by which the last one sends."""
    srv6.write_carrier(e.carrier, 0, wires.speller, int(p.src), int(p.dst), int(p.ev))
    switch = first_switch
    port = -1
    for _ in range(hops):
        port = srv6.step(e.carrier, 0, wires.tables, switch)
        if port < 0:
            return port
        switch = int(wires.peer_switch[port])
    return port


@compiled
def _write_frames(out, ends, first, tap, packets, source_qpn, hops, wires, e, n_planes, by_carrier):
    """Frames of packets `first` .. as many as fit into `out`, `ends[i]` behind each.

    The number of the first packet left out; `first` if the carrier of that one leads elsewhere.
    """
    at = 0
    i = first
    while i < tap.shape[0] and at + FRAME_BYTES_MAX <= out.shape[0]:
        p = packets[i]
        port = int(tap[i].port)
        _dress(e, p, port, hops[i], source_qpn[i], wires)
        e.srv6 = by_carrier
        if by_carrier:
            entry = int(wires.peer_switch[p.src * n_planes + p.plane])
            leaves = _travel(e, p, entry, hops[i], wires)
            if hops[i] > 0 and leaves != port:
                return first
        n = codec.encode(p, e, out[:0], out[at:], 1)
        if n < 0:
            return first
        if p.flag_bits & (TRIMMED | TRIMMED_LASTHOP):
            n = codec.trim(out[at:], n, p.flag_bits & TRIMMED_LASTHOP)
        at += n
        ends[i] = at
        i += 1
    return i
