"""Every switch of a fabric as its configuration needs it: uSID, routes, ports, queues.

This module is independent of platforms. The numbers are those of the simulator and the lab: uSIDs
of `fabric.usid`, routes of `fabric.tables`, limits of `fabric.queues`.

**Addresses of links.** A static route needs a next hop that neighbour discovery can resolve, so
each link is a /127 (RFC 6164) in a unique local prefix: fd6d:7263:ff<plane>::<2 n> at its lower end
and 2 n + 1 at its upper one, with n one more than the number of the lower end's directed port: 0 in
the last 64 bits is no address there. No carrier lies in it (`fabric.usid.BLOCK`), and no address of
a NIC (`wire.addresses`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv6Address
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from openmrc.engine import packet as pk
from openmrc.engine.packet import LAST_DATA
from openmrc.errors import InputError
from openmrc.fabric.model import Fabric
from openmrc.fabric.queues import UNLIMITED, Limits, bounds_of, sizes_at
from openmrc.fabric.tables import OWN, table
from openmrc.fabric.usid import ADDRESS_BITS, BLOCK, BLOCK_BITS, FIRST_LINK, USID_BITS, UsidPlan
from openmrc.wire.framing import MRC_FRAMING, PREAMBLE_GAP_AND_FCS
from openmrc.wire.layout import ETHERNET

if TYPE_CHECKING:
    from openmrc.scenario.scenario import Scenario

PREFIX_BITS = BLOCK_BITS + USID_BITS  # of a uSID: the block and itself
LINK_BITS = 127
PLANE_SHIFT = 80
LINKS = 0xFD6D_7263_FF00 << PLANE_SHIFT  # the plane is added to the last byte of these six
LOWER, UPPER = 0, 1


class Marks(NamedTuple):
    """The queue of data at which a port begins to mark, and at which it marks everything, bytes."""

    low_bytes: int
    high_bytes: int


class Port(NamedTuple):
    """A port of a switch; `number` counts the switch's own ports, downwards first, from 0."""

    number: int
    link: str
    address: str  # of this end of the link
    peer: str  # the other end's address: the next hop
    rate_bps: int
    to_nic: bool
    queue_bytes: int  # data and retransmissions
    control_queue_bytes: int
    marks: Marks | None


class Route(NamedTuple):
    """The route of a uSID: `port` is a number of the switch's own ports. Of a link's own uSID (uA):
    which port it names.
    """

    usid: int
    port: int


@dataclass(frozen=True)
class Switch:
    """One switch: `name` as faults name it, `host` as machines are named."""

    number: int
    name: str
    host: str
    usid: int
    routes: tuple[Route, ...]
    links: tuple[Route, ...]
    ports: tuple[Port, ...]


class End(NamedTuple):
    """An end of a link: `port` counts a switch's own ports, or is the plane of a NIC's port."""

    switch: int | None  # its number; None at a NIC
    host: str
    port: int
    address: str


class Cable(NamedTuple):
    """A link with both its ends."""

    link: str
    rate_bps: int
    lower: End
    upper: End


class Plant:
    """A fabric whose switches are to be configured; `InputError` if it has no uSIDs."""

    def __init__(self, scenario: Scenario) -> None:
        transport = next((t for t in scenario.transports if t.kind == "mrc"), None)
        if transport is None:
            raise InputError(
                f"{scenario.source}: transport: none is MRC's, and no other needs uSIDs;"
                ' add a [[transport]] with kind = "mrc"'
            )
        if getattr(transport, "ev_fields", False):
            raise InputError(
                f"{scenario.source}: transport.ev_fields: no platform here takes ports by fields of"
                " an EV; SONiC's ACL tables match no flow label, FRR and Cumulus Linux route by"
                " destination; leave it out: carriers are accepted"
            )
        self.scenario = scenario
        self.trims = bool(scenario.fabric.trim)
        try:
            self.fabric: Fabric = scenario.fabric.build()
            self.plan = UsidPlan(self.fabric)
        except InputError as error:
            raise error.at(scenario.source) from None
        self._pmtu, self._base_rtt_ps = int(transport.pmtu), transport.base_rtt

    @property
    def cuts_through(self) -> bool:
        """Whether the scenario's switches forward before they have received a whole frame."""
        return self.fabric.cut_through

    @property
    def mtu_bytes(self) -> int:
        """The largest IP packet that the links carry: a full packet with its SRv6 header."""
        around = ETHERNET.size_bytes + PREAMBLE_GAP_AND_FCS
        return max(MRC_FRAMING.header_bytes[pk.WRITE_FIRST : LAST_DATA + 1]) + self._pmtu - around

    @property
    def needs_mtu(self) -> str:
        """What to do about the MTU of links where a platform's configuration does not."""
        return (
            f"MTU: the largest IP packet is {self.mtu_bytes:,} B; a port that takes less passes"
            " probes and loses data."
        )

    @cached_property
    def limits(self) -> Limits:
        """The queue limits of each directed port."""
        fabric, queues = self.fabric, self.scenario.fabric.queues()
        rtt_ps = self._base_rtt_ps or MRC_FRAMING.base_rtt_ps(fabric, self._pmtu)
        packet = MRC_FRAMING.data_bytes(self._pmtu)
        return bounds_of(fabric, sizes_at(fabric, queues, rtt_ps, packet), queues, packet).limits

    def switches(self) -> Iterator[Switch]:
        """Yield every switch, by its number."""
        return map(self.switch, range(self.fabric.n_switches))

    def named(self, name: str) -> Switch:
        """Return the switch that faults call `name`, or `host_of` does; `InputError` if there is
        none.
        """
        for number in range(self.fabric.n_switches):
            if name in (self.fabric.switch_name(number), self.host_of(number)):
                return self.switch(number)
        last = self.fabric.switch_name(self.fabric.n_switches - 1)
        raise InputError(
            f'--switch {name}: there is no such switch; accepted: "plane 0 t0 0" to "{last}"'
        )

    def host_of(self, switch: int) -> str:
        """Return the name of a switch as a machine: "p0-t1-3"."""
        fabric = self.fabric
        return f"p{fabric.sw_plane[switch]}-t{fabric.sw_tier[switch]}-{fabric.sw_index[switch]}"

    def switch(self, number: int) -> Switch:
        """Return one switch."""
        first, behind = self._first[number : number + 2]
        own = 0
        routes: list[Route] = []
        links: list[Route] = []
        for key, port in table(self.plan, number).items():
            usid = key & (1 << USID_BITS) - 1
            if port == OWN:
                own = usid
            else:
                (links if usid >= FIRST_LINK else routes).append(Route(usid, port - first))
        return Switch(
            number,
            self.fabric.switch_name(number),
            self.host_of(number),
            own,
            tuple(routes),
            tuple(links),
            tuple(self._port(port, port - first) for port in range(first, behind)),
        )

    def cables(self) -> Iterator[Cable]:
        """Yield every link, those of NICs first."""
        fabric = self.fabric
        for port in filter(self._is_lower, range(fabric.n_ports)):
            yield Cable(
                fabric.link_name(port),
                int(fabric.port_rate_bps[port]),
                self._end(port),
                self._end(int(fabric.port_reverse[port])),
            )

    @cached_property
    def _first(self) -> list[int]:
        """The first directed port of each switch, followed by the number of all ports."""
        switches = np.arange(self.fabric.n_switches + 1)
        # -1 of NICs, then the switches in their order
        found: list[int] = np.searchsorted(self.fabric.port_switch, switches).tolist()
        return found

    def _end(self, port: int) -> End:
        nic, switch = int(self.fabric.port_nic[port]), int(self.fabric.port_switch[port])
        if nic >= 0:
            return End(None, f"nic{nic}", port % self.fabric.n_planes, self._address(port))
        number = port - self._first[switch]
        return End(switch, self.host_of(switch), number, self._address(port))

    def _port(self, port: int, number: int) -> Port:
        fabric, limits = self.fabric, self.limits
        low, high = int(limits.ecn_low_bytes[port]), int(limits.ecn_high_bytes[port])
        return Port(
            number,
            fabric.link_name(port),
            self._address(port),
            self._address(int(fabric.port_reverse[port])),
            int(fabric.port_rate_bps[port]),
            bool(fabric.port_last_hop[port]),
            int(limits.queue_bytes[port]),
            int(limits.control_queue_bytes[port]),
            None if low == UNLIMITED else Marks(low, high),
        )

    def _is_lower(self, port: int) -> bool:
        """Whether a directed port sends upwards."""
        fabric = self.fabric
        switch, far = int(fabric.port_switch[port]), int(fabric.port_peer_switch[port])
        if switch < 0:
            return True
        return far >= 0 and bool(fabric.sw_tier[switch] < fabric.sw_tier[far])

    def _address(self, port: int) -> str:
        """The address of the end at which a directed port sends."""
        fabric = self.fabric
        lower = self._is_lower(port)
        link = port if lower else int(fabric.port_reverse[port])
        switch = max(int(fabric.port_switch[port]), int(fabric.port_peer_switch[port]))
        plane = int(fabric.sw_plane[switch])
        value = LINKS + (plane << PLANE_SHIFT) + 2 * (link + 1) + (LOWER if lower else UPPER)
        return str(IPv6Address(value))


def prefix(usid: int) -> str:
    """Return the /48 of a uSID: "2001:db8:4000::/48"."""
    return f"{locator(usid)}/{PREFIX_BITS}"


def locator(usid: int) -> str:
    """Return the address of a uSID alone: "2001:db8:4000::"."""
    value = (BLOCK << USID_BITS | usid) << (ADDRESS_BITS - PREFIX_BITS)
    return str(IPv6Address(value))


def block() -> str:
    """Return the prefix of all uSIDs: "2001:db8::/32"."""
    return f"{IPv6Address(BLOCK << (ADDRESS_BITS - BLOCK_BITS))}/{BLOCK_BITS}"
