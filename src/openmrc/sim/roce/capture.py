"""What crosses links of a RoCE network, frame by frame, into a capture file.

As `sim.capture` for MRC: the frame is what stands on that link, CE as the queues before it left it
and the TTL counted down; simulated memory holds no bytes, so payloads are zeros, under a right
iCRC. A bond of several ports has one address, that of the NIC on plane 0, so a flow has the same
5-tuple wherever it goes.

Pause frames are there too, from the switch that asks: on the way back of the link that it pauses.
They are noted when they are asked for, and wait here until their first bit has left, so that a file
is in the order of its times.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np

from openmrc.engine.packet import ACK_REQ, CE
from openmrc.engine.state import REGION_INDEX_BITS
from openmrc.errors import InputError
from openmrc.fabric.model import Fabric
from openmrc.jit import compiled, inlined, records
from openmrc.sim.capture import (
    BATCH_BYTES,
    FRAME_BYTES_MAX,
    HOP_LIMIT,
    LinkFile,
    damage,
    ports_at,
    put_macs,
    switches_passed,
    wires_of,
)
from openmrc.sim.network import SEED_NAMES
from openmrc.sim.roce.side import RoceSide
from openmrc.sim.roce.taps import PAUSE_FRAME
from openmrc.sim.state import DAMAGED
from openmrc.wire import addresses, pause, roce_codec
from openmrc.wire.frame import ENVELOPE
from openmrc.wire.framing import PREAMBLE_AND_GAP
from openmrc.wire.layout import PKEY_DEFAULT
from openmrc.wire.roce import WRITE_LAST, WRITE_LAST_IMM, WRITE_ONLY, WRITE_ONLY_IMM

if TYPE_CHECKING:
    from openmrc.sim.world import World

FCS_BYTES = 4
BESIDE_THE_FRAME = FCS_BYTES + PREAMBLE_AND_GAP
# A requester asks for the acknowledgement that ends a message; the others come unasked.
ASK = (WRITE_LAST, WRITE_LAST_IMM, WRITE_ONLY, WRITE_ONLY_IMM)
SEED_RKEYS = 3  # beside the names of QPs and their addresses, of the stream `SEED_NAMES`
BOND_PLANE = 0


class Noted(NamedTuple):
    """What tapped ports have sent and is not in the file: TAP and PACKET records."""

    tap: Any
    packet: Any


class RoceCapture:
    """Writes pcapng to `stream`: what crosses the links at `where`, both directions.

    As `sim.capture.Capture`. Give it to one `World` of RoCEv2. Raises `InputError` for a place that
    is not there, and for a fabric of more NICs than have IPv4 addresses.
    """

    def __init__(self, stream: BinaryIO, fabric: Fabric, where: Sequence[str]) -> None:
        check_fabric(fabric)
        self.ports = ports_at(fabric, where)
        self.n_frames = 0
        self._file = LinkFile(stream, fabric, self.ports)
        self._fabric = fabric
        self._wires = wires_of(fabric)
        self._out = np.zeros(BATCH_BYTES, np.uint8)
        self._envelope = records(1, ENVELOPE)
        self._late: Noted | None = None
        self._rkeys: Any = None

    def take(self, world: World) -> None:
        """Write what the tapped ports of `world` have noted and begun to send by now."""
        side = world.side
        assert isinstance(side, RoceSide), "a world of MRC has captures of its own"
        noted = self._due(world)
        n = len(noted.tap)
        self._name(noted, side, world)
        hops = switches_passed(self._fabric, noted.tap.port, noted.packet.src, noted.packet.dst)
        ends = np.zeros(n, np.int64)
        done = 0
        while done < n:
            last = int(
                _write_frames(
                    self._out,
                    ends,
                    done,
                    noted.tap,
                    noted.packet,
                    hops,
                    self._wires,
                    self._envelope[0],
                    int(side.state.c[0].dcqcn),
                    int(world.transport.rules != "peer"),
                )
            )
            if last <= done:
                raise RuntimeError(f"{noted.packet[done]} is no frame of the size that it took")
            start = 0
            for i in range(done, last):
                if noted.tap.marks[i] & DAMAGED:
                    damage(self._out, int(ends[i]))
                frame = self._out[start : ends[i]].data
                self._file.write(int(noted.tap.port[i]), int(noted.tap.at[i]), frame)
                start = int(ends[i])
            done = last
        self.n_frames += n

    def _due(self, world: World) -> Noted:
        """Return what has begun to leave by now, in order; keep the rest."""
        ctl = world.net.ctl[0]
        n = int(ctl.tap_n)
        ctl.tap_n = 0
        tap, packet = world.net.tap[:n], world.net.tap_packet[:n]
        if self._late is not None:
            tap, packet = _joined(self._late.tap, tap), _joined(self._late.packet, packet)
        order = np.argsort(tap.at, kind="stable")
        n_due = int(np.searchsorted(tap.at[order], int(ctl.now), side="right"))
        late = order[n_due:]
        self._late = Noted(tap[late].copy(), packet[late].copy()) if len(late) else None
        return Noted(tap[order[:n_due]], packet[order[:n_due]])

    def _name(self, noted: Noted, side: RoceSide, world: World) -> None:
        """Give packets what the simulation has no use for: flags, source port, key."""
        tap, packet = noted.tap, noted.packet
        qp = side.state.qp
        is_pause = np.asarray(tap.qp) == PAUSE_FRAME
        receiver = np.where(is_pause, 0, tap.qp)
        asks = np.isin(packet.opcode, ASK)
        packet.flag_bits = (tap.marks & CE) | np.where(asks, ACK_REQ, 0)
        packet.ev = qp.sport[qp.other[receiver]]
        packet.rkey = self._rkeys_of(world)[qp.bundle[receiver]]
        packet.src = np.where(is_pause, 0, packet.src)  # of a pause frame: whatever stood there
        packet.dst = np.where(is_pause, 0, packet.dst)

    def _rkeys_of(self, world: World) -> Any:
        """The key of the memory of each QP of the workload, as MRC's are made (`sim.build`)."""
        if self._rkeys is None:
            n = world.traffic.n_qps
            drawn = np.random.default_rng([world.seed, SEED_NAMES, SEED_RKEYS])
            keys = drawn.integers(0, 1 << (32 - REGION_INDEX_BITS), n)
            self._rkeys = np.arange(n) | (keys << REGION_INDEX_BITS)
        return self._rkeys


def check_fabric(fabric: Fabric) -> None:
    """Raise `InputError` for a fabric with more NICs than the address plan of IPv4 has room for."""
    if fabric.n_nics > addresses.IPV4_NICS_MAX:
        raise InputError(
            f"--pcap: RoCEv2 is sent over IPv4, and {fabric.n_nics} NICs have no addresses;"
            f" at most {addresses.IPV4_NICS_MAX}"
        )


def _joined(first: Any, second: Any) -> Any:
    """Two arrays of records behind each other."""
    both = records(len(first) + len(second), first.dtype)
    both[: len(first)], both[len(first) :] = first, second
    return both


@inlined
def _dress(e, p, port, hops, wires):
    """The envelope of a packet on a link."""
    put_macs(e, port, BOND_PLANE, wires)
    addresses.write_ipv4(e.inner_src, 0, int(p.src), BOND_PLANE)
    addresses.write_ipv4(e.inner_dst, 0, int(p.dst), BOND_PLANE)
    e.hop_limit = HOP_LIMIT - hops
    e.pkey = PKEY_DEFAULT


@compiled
def _write_frames(out, ends, first, tap, packets, hops, wires, e, ect, exact):
    """Frames of packets `first` .. as many as fit into `out`, `ends[i]` behind each.

    The number of the first packet left out; `first` if that one is no frame, or with `exact` one of
    another size than the simulation has charged, the pad apart.
    """
    at = 0
    i = first
    while i < tap.shape[0] and at + FRAME_BYTES_MAX <= out.shape[0]:
        p = packets[i]
        port = int(tap[i].port)
        pad = 0
        if tap[i].qp == PAUSE_FRAME:
            addresses.write_switch_mac(e.src_mac, 0, int(wires.switch[port]))
            n = pause.write(out[at:], e.src_mac, pause.DATA_PRIORITY, int(p.dma_len))
        else:
            _dress(e, p, port, hops[i], wires)
            n = roce_codec.encode(p, e, ect, out[at:])
            pad = -int(p.payload_len) & 3
        if n < 0 or (exact and n + BESIDE_THE_FRAME != tap[i].frame_bytes + pad):
            return first
        at += n
        ends[i] = at
        i += 1
    return i
