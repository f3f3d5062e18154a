"""Captures of a simulated fabric's links into a file: the part common to all transports.

A tapped port records each packet that it puts on the wire, with the time at which the first bit
leaves. Packets lost to a fault of the link are not captured, and damaged ones have a wrong iCRC
from there on. Simulated memory holds no bytes, so payloads are zeros, with a correct iCRC.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from openmrc.errors import InputError
from openmrc.fabric import places
from openmrc.fabric.model import Fabric
from openmrc.jit import inlined, records
from openmrc.sim.net.state import DAMAGED
from openmrc.sim.watch.forms import IPV4, NAMES, NATIVE
from openmrc.sim.watch.watched import Watched
from openmrc.units import NS
from openmrc.wire import addresses
from openmrc.wire.frame import ENVELOPE
from openmrc.wire.layout import ICRC, PAYLOAD_BYTES_MAX
from openmrc.wire.pcap import Writer

HOP_LIMIT = 64  # of packets that leave a NIC
FRAME_BYTES_MAX = PAYLOAD_BYTES_MAX + 256  # and all headers
BATCH_BYTES = 8 * 1024 * 1024  # of frames made at a time

Longs = npt.NDArray[np.int64]


class Wires(NamedTuple):
    """Both ends of each directed port, by its number."""

    switch: Any  # int32: the switch that sends, or -1
    nic: Any  # the NIC that sends, or -1
    peer_switch: Any
    peer_nic: Any


class Noted(NamedTuple):
    """Packets that tapped ports have sent, in the order of the file."""

    tap: Any  # TAP
    packet: Any  # PACKET
    hops: Longs  # switches that each has passed
    ends: Longs  # where each frame ends in its batch, once it is encoded


class LinkCapture(ABC):
    """Captures the links at `where`, in both directions, as pcapng to `stream`.

    `where` lists places ("plane 0 t0 1 - t1 0", "nic 5", "everywhere", see `places.ports`); each
    directed link is an interface of the file, named after it. `frames` is one of `FORMS`: frames as
    the transport sends them, or with one IPv4 or IPv6 header in place of those. Pass the capture to
    one `World`. Raises `InputError` for a place that does not exist, and as `check` does.
    """

    protocol: str
    native: str  # the form in which its packets travel

    def __init__(
        self, stream: BinaryIO, fabric: Fabric, where: Sequence[str], frames: str = NATIVE
    ) -> None:
        self.check(fabric, frames)
        self.ipv4 = (self.native if frames == NATIVE else frames) == IPV4
        self.ports = ports_at(fabric, where)
        self.n_frames = 0
        self._fabric = fabric
        self._wires = Wires(
            fabric.port_switch, fabric.port_nic, fabric.port_peer_switch, fabric.port_peer_nic
        )
        self._file = Writer(stream, [fabric.port_name(port) for port in self.ports.tolist()])
        self._interface = np.full(fabric.n_ports, -1, np.int64)
        self._interface[self.ports] = np.arange(len(self.ports))
        self._out = np.zeros(BATCH_BYTES, np.uint8)
        self._envelope = records(1, ENVELOPE)[0]
        self._envelope.dscps = fabric.dscps.packed

    def take(self, world: Watched) -> None:
        """Write the packets that the tapped ports of `world` have begun to send by now."""
        ctl = world.net.ctl[0]
        n = int(ctl.tap_n)
        ctl.tap_n = 0
        tap, packet = self._due(world, world.net.tap[:n], world.net.tap_packet[:n])
        n = len(tap)
        hops = switches_passed(self._fabric, tap.port, packet.src, packet.dst)
        noted = Noted(tap, packet, hops, np.zeros(n, np.int64))
        done = 0
        while done < n:
            last = self._make(world, noted, done)
            if last <= done:
                raise RuntimeError(f"{packet[done]} makes no frame that its port can have sent")
            start = 0
            for i in range(done, last):
                end = int(noted.ends[i])
                if tap.marks[i] & DAMAGED:  # somewhere in the part that the iCRC covers
                    self._out[end - ICRC.size_bytes - 1] ^= 1
                interface = int(self._interface[tap.port[i]])
                self._file.write(interface, int(tap.at[i]) // NS, self._out[start:end].data)
                start = end
            done = last
        self.n_frames += n

    def warm_up(self, world: Watched) -> None:
        """Compile the code that encodes frames, by encoding none."""
        nothing = np.zeros(0, np.int64)
        self._make(world, Noted(world.net.tap[:0], world.net.tap_packet[:0], nothing, nothing), 0)

    @classmethod
    @abstractmethod
    def of(
        cls,
        stream: BinaryIO,
        fabric: Fabric,
        where: Sequence[str],
        transport: Any,
        frames: str = NATIVE,
    ) -> LinkCapture:
        """Return the capture of a run with this transport."""

    @classmethod
    def check(cls, fabric: Fabric, frames: str = NATIVE) -> None:
        """Raise `InputError` for a fabric of more NICs than have addresses."""
        form = cls.native if frames == NATIVE else frames
        most = addresses.IPV4_NICS_MAX if form == IPV4 else addresses.NICS_MAX
        if fabric.n_nics > most:
            over = f"{cls.protocol} is sent over {NAMES[form]}"
            raise InputError(
                f"--pcap: {over}, and {fabric.n_nics} NICs have no addresses; at most {most}"
            )

    @abstractmethod
    def _due(self, world: Watched, tap: Any, packet: Any) -> tuple[Any, Any]:
        """Return those of these records, TAP and PACKET, that are to be written now, in order."""

    @abstractmethod
    def _make(self, world: Watched, noted: Noted, first: int) -> int:
        """Encode frames of packet `first` and as many after it as fit into `_out`; return the
        number of the first one left out, `first` if it is not a valid frame.
        """


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
    """Write the MACs of a packet on a link; those of a NIC are its port's on `plane`."""
    if wires.nic[port] >= 0:
        addresses.write_nic_mac(e.src_mac, 0, int(wires.nic[port]), plane)
    else:
        addresses.write_switch_mac(e.src_mac, 0, int(wires.switch[port]))
    if wires.peer_nic[port] >= 0:
        addresses.write_nic_mac(e.dst_mac, 0, int(wires.peer_nic[port]), plane)
    else:
        addresses.write_switch_mac(e.dst_mac, 0, int(wires.peer_switch[port]))


@inlined
def put_ends(e, p, plane):
    """Write the addresses of a packet's NICs on `plane`, in the family that the envelope
    selects.
    """
    if e.ipv4:
        addresses.write_ipv4(e.inner_src, 0, int(p.src), plane)
        addresses.write_ipv4(e.inner_dst, 0, int(p.dst), plane)
    else:
        addresses.write_ipv6(e.inner_src, 0, int(p.src), plane)
        addresses.write_ipv6(e.inner_dst, 0, int(p.dst), plane)
