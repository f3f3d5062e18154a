"""Captures of a RoCE network: the frames of `sim.watch.capture`.

The frame is as on that link: CE as set by the queues before it, and the TTL counted down. A bond of
several ports has one address, that of the NIC on plane 0, so a flow has the same 5-tuple on every
path.

Pause frames are included, from the switch that sends them: on the reverse direction of the link
that they pause. They are recorded when they are requested, and wait here until their first bit has
left, so that a file is in time order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np

from openmrc.engine import packet as pk
from openmrc.engine import state as es
from openmrc.engine.packet import CE, PACKET
from openmrc.fabric.model import Fabric
from openmrc.jit import compiled, inlined, records
from openmrc.sim.net.network import SEED_NAMES
from openmrc.sim.net.state import TAP
from openmrc.sim.roce.state import Roce
from openmrc.sim.roce.taps import PAUSE_FRAME
from openmrc.sim.roce.transport import RoceTransport
from openmrc.sim.watch.capture import (
    FRAME_BYTES_MAX,
    HOP_LIMIT,
    LinkCapture,
    Noted,
    put_ends,
    put_macs,
)
from openmrc.sim.watch.forms import IPV4, NATIVE
from openmrc.sim.watch.watched import Watched
from openmrc.wire import addresses
from openmrc.wire.framing import PREAMBLE_AND_GAP
from openmrc.wire.layout import IPV4 as IPV4_HEADER
from openmrc.wire.layout import IPV6 as IPV6_HEADER
from openmrc.wire.layout import PKEY_DEFAULT
from openmrc.wire.roce import codec as roce_codec
from openmrc.wire.roce import pause
from openmrc.wire.roce.opcodes import WRITE_LAST, WRITE_LAST_IMM, WRITE_ONLY, WRITE_ONLY_IMM

FCS_BYTES = 4
BESIDE_THE_FRAME = FCS_BYTES + PREAMBLE_AND_GAP
# A requester requests the acknowledgement that ends a message; the others come unrequested.
ASK = (WRITE_LAST, WRITE_LAST_IMM, WRITE_ONLY, WRITE_ONLY_IMM)
SEED_RKEYS = 3  # of the stream `SEED_NAMES`, in addition to the names of QPs and their addresses
BOND_PLANE = 0
LONGER = IPV6_HEADER.size_bytes - IPV4_HEADER.size_bytes


class RoceCapture(LinkCapture):
    """A capture of RoCEv2."""

    protocol, native = "RoCEv2", IPV4

    def __init__(
        self, stream: BinaryIO, fabric: Fabric, where: Sequence[str], frames: str = NATIVE
    ) -> None:
        super().__init__(stream, fabric, where, frames)
        self._envelope.ipv4 = self.ipv4
        self._late = records(0, TAP), records(0, PACKET)  # packets that have not begun to leave
        self._rkeys: Any = None

    @classmethod
    def of(
        cls,
        stream: BinaryIO,
        fabric: Fabric,
        where: Sequence[str],
        transport: RoceTransport,
        frames: str = NATIVE,
    ) -> RoceCapture:
        """Return the capture of a run with this transport."""
        return cls(stream, fabric, where, frames)

    def _due(self, world: Watched, tap: Any, packet: Any) -> tuple[Any, Any]:
        tap, packet = _joined(self._late[0], tap), _joined(self._late[1], packet)
        order = np.lexsort((tap.port, tap.at))
        n_due = int(np.searchsorted(tap.at[order], int(world.net.ctl[0].now), side="right"))
        due, late = order[:n_due], order[n_due:]
        self._late = tap[late], packet[late]
        tap, packet = tap[due], packet[due]
        self._name(tap, packet, world)
        return tap, packet

    def _make(self, world: Watched, noted: Noted, first: int) -> int:
        ect, exact = int(world.state.c[0].paced), int(world.transport.rules != "peer")
        return int(_write_frames(self._out, first, noted, self._wires, self._envelope, ect, exact))

    def _name(self, tap: Any, packet: Any, world: Watched) -> None:
        """Fill in packet fields that the simulation does not use: flags, source port, key."""
        assert isinstance(world.state, Roce), "a world of MRC has captures of its own"
        qp = world.state.qp
        is_pause = np.asarray(tap.qp) == PAUSE_FRAME
        receiver = np.where(is_pause, 0, tap.qp)
        asks = np.isin(packet.opcode, ASK)
        packet.flag_bits = (tap.marks & CE) | np.where(asks, pk.ACK_REQ, 0)
        packet.ev = qp.sport[qp.other[receiver]]
        packet.rkey = self._rkeys_of(world)[qp.bundle[receiver]]
        packet.src = np.where(is_pause, 0, packet.src)  # a pause frame has no source
        packet.dst = np.where(is_pause, 0, packet.dst)

    def _rkeys_of(self, world: Watched) -> Any:
        """The rkey of each QP of the workload, chosen as MRC's are (`sim.mrc.build`)."""
        if self._rkeys is None:
            n = world.traffic.n_qps
            drawn = np.random.default_rng([world.seed, SEED_NAMES, SEED_RKEYS])
            keys = drawn.integers(0, 1 << (32 - es.REGION_INDEX_BITS), n)
            self._rkeys = np.arange(n) | (keys << es.REGION_INDEX_BITS)
        return self._rkeys


def _joined(first: Any, second: Any) -> Any:
    """Concatenate two arrays of records."""
    both = records(len(first) + len(second), first.dtype)
    both[: len(first)], both[len(first) :] = first, second
    return both


@inlined
def _fill_envelope(e, p, port, hops, wires):
    """Fill the envelope of a packet on a link."""
    put_macs(e, port, BOND_PLANE, wires)
    put_ends(e, p, BOND_PLANE)
    e.hop_limit = HOP_LIMIT - hops
    e.pkey = PKEY_DEFAULT


@compiled
def _write_frames(out, first, noted, wires, e, ect, exact):
    """Write frames of packets `first` .. as many as fit into `out`; `noted.ends[i]` is the end of
    each.

    Returns the number of the first packet left out: one for which there is no room, or that is not
    a frame, or with `exact` one whose size differs from what the simulation charged, apart from
    padding and the longer header of IPv6.
    """
    at = 0
    i = first
    while i < noted.tap.shape[0] and at + FRAME_BYTES_MAX <= out.shape[0]:
        p, t = noted.packet[i], noted.tap[i]
        port = int(t.port)
        pad = 0
        if t.qp == PAUSE_FRAME:
            addresses.write_switch_mac(e.src_mac, 0, int(wires.switch[port]))
            n = pause.write(out[at:], e.src_mac, pause.DATA_PRIORITY, int(p.dma_len))
        else:
            _fill_envelope(e, p, port, noted.hops[i], wires)
            n = roce_codec.encode(p, e, ect, out[at:])
            pad = (-int(p.payload_len) & 3) + (0 if e.ipv4 else LONGER)
        if n < 0 or (exact and n + BESIDE_THE_FRAME != t.frame_bytes + pad):
            return i
        at += n
        noted.ends[i] = at
        i += 1
    return i


CAPTURE = RoceCapture
