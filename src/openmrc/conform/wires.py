"""The kit's end of the wire on an ordinary network: planes are addresses, EVs source ports."""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Iterator, Sequence
from ipaddress import ip_address

from openmrc.conform import datagram
from openmrc.conform.datagram import ICRC_BYTES, Address
from openmrc.conform.events import CORRUPT, FOREIGN, RIGHT
from openmrc.errors import InputError
from openmrc.live.endpoint import planes
from openmrc.live.endpoint.peers import Reach
from openmrc.live.endpoint.planes import Sockets
from openmrc.say import counted
from openmrc.verbs.attributes import QpAttributes

DATAGRAM_MAX, CONTROL_MAX = 65_536, 256
Packet = tuple[str, dict[str, int], int]  # kind, fields, plane


@contextlib.contextmanager
def opened(names: Sequence[str], evs: int) -> Iterator[Wires]:
    """Open planes, interfaces or addresses of this host, with this many source ports each."""
    with planes.opened(planes.find(names), evs) as found, contextlib.ExitStack() as stack:
        for one in found:
            for each in (one.hears, *(own for _, own in one.sends)):
                stack.enter_context(each)
        yield Wires(found)


class Wires:
    """Open planes."""

    nic = 0  # in attributes; here addresses identify ends
    cuts = False  # whether frames can be trimmed as by a switch

    def __init__(self, found: Sequence[Sockets]) -> None:
        self._planes = found
        self._there: list[tuple[str, int]] = []
        self.reach = tuple(
            Reach(str(one.plane.address), one.port, tuple(port for port, _ in one.sends))
            for one in found
        )

    @property
    def n_planes(self) -> int:
        """The number of planes of the kit."""
        return len(self._planes)

    def meet(self, remote: QpAttributes) -> None:
        """Store the addresses of the target."""
        if len(remote.planes) != len(self._planes):
            theirs = counted(len(remote.planes), "plane")
            raise InputError(f"the target has {theirs}, the kit {len(self._planes)}")
        self._there = [(one.address, one.port) for one in remote.planes]

    def evs(self, plane: int) -> tuple[int, ...]:
        """EVs on which the kit can send on a plane."""
        return self.reach[plane].sources

    def send(
        self,
        data: bytes,
        plane: int,
        number: int,
        traffic_class: int,
        cut_to: int | None = None,
        wrong: int = RIGHT,
    ) -> None:
        """Send BTH to padding, and its iCRC, from source port `number` of a plane. CORRUPT has
        another iCRC; FOREIGN comes from the kit's address on another plane.
        """
        assert cut_to is None, "nothing trims in an ordinary network"
        to = self._there[plane]
        by = self._planes[(plane + (wrong == FOREIGN)) % self.n_planes]
        own = by.plane.address
        port, out = by.sends[number]
        if own.version == 4:
            out.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, traffic_class)
        else:
            out.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, traffic_class)
        crc = datagram.icrc(own, port, ip_address(to[0]), data)
        out.sendto(data + (datagram.inverted(crc) if wrong == CORRUPT else crc), to)

    def receive(self, wait_s: float, also: int) -> list[Packet]:
        """Return packets of MRC that arrived, after at most `wait_s`, or once `also` is readable.
        In addition to its fields a packet has the `ev` and `traffic_class` with which it arrived.
        """
        watched = [one.hears.fileno() for one in self._planes]
        ready, _, _ = select.select([*watched, also], [], [], wait_s)
        return [
            packet
            for plane, descriptor in enumerate(watched)
            if descriptor in ready
            for packet in self._all_of(plane)
        ]

    def _all_of(self, plane: int) -> Iterator[Packet]:
        one = self._planes[plane]
        while True:
            try:
                data, control, _, name = one.hears.recvmsg(DATAGRAM_MAX, CONTROL_MAX)
            except BlockingIOError:
                return
            traffic, segment = _told(control)
            src = ip_address(name[0])
            for at in range(0, len(data), segment or DATAGRAM_MAX):
                each = data[at : at + (segment or DATAGRAM_MAX)]
                if is_right(each, src, name[1], one.plane.address) and (
                    packet := datagram.read(each)
                ):
                    kind, fields = packet
                    yield kind, {**fields, "ev": name[1], "traffic_class": traffic}, plane


def is_right(data: bytes, src: Address, port: int, dst: Address) -> bool:
    """Whether a datagram ends with its correct iCRC."""
    end = len(data) - ICRC_BYTES
    return end > 0 and data[end:] == datagram.icrc(src, port, dst, data[:end])


def _told(control: Sequence[tuple[int, int, bytes]]) -> tuple[int, int]:
    """Traffic class, and the bytes of each packet if the kernel joined several."""
    traffic = segment = 0
    for level, kind, value in control:
        if (level, kind) in (
            (socket.IPPROTO_IP, socket.IP_TOS),
            (socket.IPPROTO_IPV6, socket.IPV6_TCLASS),
        ):
            traffic = value[0]
        elif level == socket.IPPROTO_UDP:
            segment = int.from_bytes(value[:2], "little")
    return traffic, segment
