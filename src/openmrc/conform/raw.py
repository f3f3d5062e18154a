"""The kit's end of the wire on interfaces: whole frames of Ethernet, IPv6, and SRv6 if a target is
behind switches that support it.

A `Way` is what the kit must know of a plane to reach the target there. For a host of a fabric it
follows from the host file and the target's number; for any other target a file states it (`read`).
A kit that builds frames can also trim them as a switch does.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any

from openmrc.conform import datagram
from openmrc.conform.events import CORRUPT, FOREIGN, RIGHT
from openmrc.conform.wires import Packet
from openmrc.errors import InputError
from openmrc.fabric.dscp import DEFAULT, Dscps
from openmrc.fabric.model import Fabric
from openmrc.fabric.usid import UsidPlan
from openmrc.live.endpoint.peers import Reach
from openmrc.reading import BROKEN, fault, read_bytes
from openmrc.verbs import hostfile
from openmrc.verbs.attributes import QpAttributes
from openmrc.wire import addresses, layout
from openmrc.wire.frame import WireError
from openmrc.wire.framing import TRIM_IP_BYTES
from openmrc.wire.view import decode

FRAME_MAX, HOP_LIMIT = 65_536, 64
_MAC_BYTES = 6


@dataclass(frozen=True)
class Way:
    """How frames of one plane reach the target, and by which of its EVs and carriers; without
    carriers they have one IPv6 header.
    """

    gateway_mac: bytes
    mac: bytes
    source: IPv6Address
    destination: IPv6Address
    evs: tuple[int, ...]
    carriers: tuple[IPv6Address, ...] = ()


def frame(
    way: Way,
    number: int,
    data: bytes,
    traffic_class: int,
    cut_to: int | None = None,
    wrong: int = RIGHT,
) -> bytes:
    """Return the frame of BTH to padding on EV `number` of a way; with the DSCP `cut_to` the frame
    as a switch trims it (row 21). CORRUPT has another iCRC; FOREIGN comes from another address.
    """
    if wrong == FOREIGN:
        way = replace(way, source=IPv6Address(int(way.source) ^ 0xFF00))
    ev = way.evs[number]
    label, port = ev >> 16, ev & 0xFFFF
    crc = datagram.icrc(way.source, port, way.destination, data)
    body = data + (datagram.inverted(crc) if wrong == CORRUPT else crc)
    tunnel = layout.IPV6.size_bytes if way.carriers else 0
    if cut_to is not None:
        kept = TRIM_IP_BYTES - tunnel - layout.IPV6.size_bytes - layout.UDP.size_bytes
        body = body[:kept] if len(body) > kept else data
    udp_bytes = layout.UDP.size_bytes + len(body)
    ports = {"src_port": port, "dst_port": layout.UDP_PORT, "length": udp_bytes}
    packet = datagram.pack(layout.UDP, ports) + body
    first = traffic_class if cut_to is None else cut_to << 2 | traffic_class & 3
    inner = traffic_class if way.carriers else first  # a switch writes into the first header
    packet = _ipv6(way.source, way.destination, inner, label, layout.PROTOCOL_UDP, packet)
    if way.carriers:
        to = way.carriers[number]
        packet = _ipv6(way.source, to, first, label, layout.PROTOCOL_IPV6, packet)
    return way.gateway_mac + way.mac + layout.ETHERTYPE_IPV6.to_bytes(2, "big") + packet


def _ipv6(
    src: IPv6Address, dst: IPv6Address, traffic_class: int, label: int, following: int, body: bytes
) -> bytes:
    values = {"version": 6, "dscp": traffic_class >> 2, "ecn": traffic_class & 3}
    values |= {"flow_label": label, "payload_length": len(body), "next_header": following}
    values |= {"hop_limit": HOP_LIMIT, "src": int(src), "dst": int(dst)}
    return datagram.pack(layout.IPV6, values) + body


def heard(data: bytes, own: IPv6Address, dscps: Dscps) -> tuple[str, dict[str, int]] | None:
    """Return kind and fields of a frame with a correct iCRC for this address, or of a trimmed one,
    with its `ev` and `traffic_class`; None for any other.
    """
    try:
        found = decode(data, dscps=dscps)
    except WireError:
        return None
    headers = {view.name: view for view in found.headers}
    inner = headers.get(layout.IPV6.name)
    if inner is None or inner["dst"] != int(own):
        return None
    body = data[headers["BTH"].offset : found.ip_end]
    if found.trimmed:  # a trimmed packet shows that it was sent
        body += bytes(datagram.ICRC_BYTES)
    packet = datagram.read(body)
    if packet is None:
        return None
    ips = [view for view in found.headers if view.header is layout.IPV6]
    ecn = layout.ECN_CE if any(v["ecn"] == layout.ECN_CE for v in ips) else ips[0]["ecn"]
    kind, fields = packet
    return kind, {**fields, "ev": found.ev, "traffic_class": ips[0]["dscp"] << 2 | ecn}


class Frames:
    """Open interfaces: as `wires.Wires`, in whole frames."""

    reach: tuple[Reach, ...] = ()  # nothing to report: the network's address plan determines it
    cuts = True

    def __init__(self, sockets: Sequence[socket.socket], dscps: Dscps) -> None:
        self._sockets, self._dscps = sockets, dscps
        self._ways: tuple[Way, ...] = ()
        self.nic = 0

    @property
    def n_planes(self) -> int:
        """The number of planes of the kit."""
        return len(self._sockets)

    def own(self, plane: int) -> IPv6Address:
        """The kit's address on a plane."""
        return self._ways[plane].source

    def meet(self, remote: QpAttributes) -> None:
        """Store the target's attributes."""

    def evs(self, plane: int) -> tuple[int, ...]:
        """EVs on which the kit can send on a plane."""
        return self._ways[plane].evs

    def send(
        self,
        data: bytes,
        plane: int,
        number: int,
        traffic_class: int,
        cut_to: int | None = None,
        wrong: int = RIGHT,
    ) -> None:
        """Send BTH to padding, and its iCRC, on EV `number` of a plane; the rest as for `frame`."""
        packet = frame(self._ways[plane], number, data, traffic_class, cut_to, wrong)
        self._sockets[plane].send(packet)

    def receive(self, wait_s: float, also: int) -> list[Packet]:
        """As `wires.Wires.receive`; the `ev` of a packet is all of it."""
        watched = [one.fileno() for one in self._sockets]
        ready, _, _ = select.select([*watched, also], [], [], wait_s)
        return [
            (*packet, plane)
            for plane, one in enumerate(self._sockets)
            if watched[plane] in ready
            for data in _all_of(one)
            if (packet := heard(data, self.own(plane), self._dscps)) is not None
        ]


def _all_of(one: socket.socket) -> Iterator[bytes]:
    while True:
        try:
            yield one.recv(FRAME_MAX)
        except BlockingIOError:
            return


class OfHost(Frames):
    """The interfaces of a host of a fabric."""

    def __init__(
        self, sockets: Sequence[socket.socket], fabric: Fabric, content: dict[str, Any], evs: int
    ) -> None:
        super().__init__(sockets, fabric.dscps)
        self.nic, self._fabric, self._evs = int(content["nic"]), fabric, evs
        self._gateways = [_mac(port["gateway_mac"]) for port in content["ports"]]

    def own(self, plane: int) -> IPv6Address:
        """The kit's address on a plane."""
        return addresses.ipv6(self.nic, plane)

    def meet(self, remote: QpAttributes) -> None:
        """Store which NIC the target is."""
        there, fabric = remote.nic, self._fabric
        if there == self.nic or not 0 <= there < fabric.n_nics:
            raise InputError(f"the target's nic {there}: another of this fabric is accepted")
        plan = UsidPlan(fabric)
        ways = []
        for plane, gateway in enumerate(self._gateways):
            n = min(self._evs, fabric.n_paths(self.nic, there, plane))
            evs = tuple(fabric.ev_of_path(self.nic, there, plane, i) for i in range(n))
            carriers = tuple(IPv6Address(plan.carrier(self.nic, there, ev)) for ev in evs)
            mac = _mac(addresses.nic_mac(self.nic, plane))
            to = addresses.ipv6(there, plane)
            ways.append(Way(gateway, mac, self.own(plane), to, evs, carriers))
        self._ways = tuple(ways)


class Stated(Frames):
    """Interfaces with ways that a file states."""

    def __init__(
        self, sockets: Sequence[socket.socket], ways: Sequence[Way], nic: int, dscps: Dscps
    ) -> None:
        super().__init__(sockets, dscps)
        self._ways, self.nic = tuple(ways), nic


@contextlib.contextmanager
def of_host(path: str | None, names: Sequence[str], evs: int) -> Iterator[Frames]:
    """Open the interfaces of a host file, with this many EVs each; `names` are all of them."""
    content = hostfile.read(path)
    if len(names) != len(content["ports"]):
        raise InputError(f"a host of a fabric has all of its {len(content['ports'])} planes")
    with _opened(content["ports"]) as sockets:
        yield OfHost(sockets, hostfile.fabric(path), content, evs)


def interfaces(path: str | None) -> tuple[str, ...]:
    """Return the names of a host's interfaces."""
    return tuple(str(port["interface"]) for port in hostfile.read(path)["ports"])


@contextlib.contextmanager
def of_ways(path: Path, names: Sequence[str], evs: int, dscps: Dscps = DEFAULT) -> Iterator[Frames]:
    """Open the first interfaces of a file of ways, as many as there are `names`."""
    stated, nic = read(path)
    with _opened([{"interface": name, "gateway_mac": ""} for name in names]) as sockets:
        ways = [way for _, way in stated[: len(names)]]
        few = [way for way in ways if len(way.evs) < evs]
        if few:
            raise InputError(f"{path}: {len(few[0].evs)} EVs of a plane; {evs} are asked for")
        yield Stated(sockets, ways, nic, dscps)


def read(path: Path) -> tuple[list[tuple[str, Way]], int]:
    """Return the interfaces of a file of ways with the way from each to the target, and the kit's
    number as a NIC, which the attributes carry. Raises `InputError`.
    """
    data = read_bytes(path, "a file of ways")
    try:
        content = json.loads(data)
        planes = [(str(one["interface"]), _way(one)) for one in content["planes"]]
        return planes, int(content.get("nic", 0))
    except BROKEN as error:
        raise InputError(f"{path}: is no file of ways ({fault(error)})") from None


def _way(stated: dict[str, Any]) -> Way:
    carriers = tuple(IPv6Address(text) for text in stated.get("carriers", ()))
    evs = tuple(int(ev, 0) for ev in stated["evs"])
    if not evs or not all(0 <= ev < 1 << 32 for ev in evs):
        raise ValueError("evs: one or more of 32 bits are accepted")
    if carriers and len(carriers) != len(evs):
        raise ValueError(f"{len(carriers)} carriers for {len(evs)} EVs")
    source, to = IPv6Address(stated["source"]), IPv6Address(stated["destination"])
    return Way(_mac(stated["gateway_mac"]), _mac(stated["mac"]), source, to, evs, carriers)


def _mac(text: str) -> bytes:
    found = bytes.fromhex(text.replace(":", ""))
    if len(found) != _MAC_BYTES:
        raise ValueError(f"{text!r} is no MAC address")
    return found


@contextlib.contextmanager
def _opened(ports: Sequence[dict[str, Any]]) -> Iterator[list[socket.socket]]:
    sockets: list[socket.socket] = []
    try:
        for port in ports:
            hostfile.native_port(port, sockets)
        yield sockets
    finally:
        for one in sockets:
            one.close()
