"""The plan of a lab: namespaces, interfaces, addresses, links.

A host is a namespace "h3" with an interface on each plane, e0, e1 ... If Linux switches, each
switch is a namespace too ("plane 0 t0 1") with interfaces d0, d1 ... downwards and u0, u1 ...
upwards. If openmrc does, all switches are one program, and the hosts' links end in its namespace
"fabric", as n3p0 for NIC 3 on plane 0. MACs are those of `wire.addresses`.

In addition to the fabric every host has a link m0 to the lab's root namespace, which forwards IPv4
between them: the management network, for TCP.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Address
from typing import NamedTuple

from openmrc.errors import InputError
from openmrc.fabric.model import Fabric
from openmrc.fabric.usid import BLOCK, BLOCK_BITS, USID_BITS, UsidPlan
from openmrc.wire import addresses

OPENMRC, LINUX, OVERLAY = "openmrc", "linux", "overlay"  # which switches
NATIVE, UDP = "native", "udp"  # how hosts send

FABRIC = "fabric"  # the namespace of openmrc's own switches
MANAGEMENT = "m0"
# 198.18.0.0/15 is for network benchmarks (RFC 2544): it cannot be the address of an outside host.
MANAGEMENT_FIRST = IPv4Address("198.18.0.1")
MANAGEMENT_ROUTER = IPv4Address("198.19.255.254")
MANAGEMENT_NETWORK = "198.18.0.0/15"
MTU_MIN, MTU_MAX = 1280, 65_535  # IPv6 needs the first, a veth accepts the second

# Some 10 ms and 100 KB of kernel memory each; the largest lab measured had 80 and 256.
NAMESPACES_MAX, LINKS_MAX = 512, 2048


@dataclass(frozen=True)
class Settings:
    """The options of a lab: `switch` and `mode` are constants of this module, `mtu` is in bytes;
    `bpf`: Linux's switches trim (`trimming`).
    """

    switch: str = OPENMRC
    mode: str = NATIVE
    mtu: int = 9000
    bpf: bool = False


class End(NamedTuple):
    """One end of a link: an interface in a namespace."""

    namespace: str
    interface: str
    mac: str


class Link(NamedTuple):
    """A pair of virtual Ethernet interfaces; `port` is the directed port of its lower end."""

    port: int
    lower: End
    upper: End


@dataclass(frozen=True)
class Topology:
    """The namespaces and links of a lab, made by `topology`."""

    fabric: Fabric
    settings: Settings
    plan: UsidPlan
    links: tuple[Link, ...]

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        """The namespaces of the hosts, by NIC."""
        return tuple(host_name(nic) for nic in range(self.fabric.n_nics))

    @cached_property
    def switches(self) -> tuple[str, ...]:
        """The namespaces of the switches, by switch number, or the one of all."""
        return _switch_namespaces(self.fabric, self.settings)

    @cached_property
    def end_of(self) -> dict[int, End]:
        """The interface by which each directed port sends, for those that exist in this lab."""
        reverse = self.fabric.port_reverse
        return {link.port: link.lower for link in self.links} | {
            int(reverse[link.port]): link.upper for link in self.links
        }

    def switch_end(self, port: int) -> End:
        """Return the end, on a switch, of the link on which a directed port sends.

        Its own end if a switch owns it, else that of the switch to which it leads.
        """
        nics = self.fabric.port_nic
        return self.end_of[int(self.fabric.port_reverse[port]) if nics[port] >= 0 else port]


def topology(fabric: Fabric, settings: Settings) -> Topology:
    """Return the plan of this lab; `InputError` for a lab that cannot be built."""
    if settings.switch == OVERLAY:
        raise InputError(
            'lab.switch: "overlay" is one process without hosts;'
            f' "{OPENMRC}" or "{LINUX}" is accepted here'
        )
    if settings.mode == UDP and fabric.n_tiers > 2:
        raise InputError(
            f'lab.mode: "{UDP}" carries the EV behind three uSIDs, a fabric of {fabric.n_tiers}'
            f' tiers needs them; use "{NATIVE}"'
        )
    n_namespaces = fabric.n_nics + len(_switch_namespaces(fabric, settings))
    ports = _upward_ports(fabric, settings)
    for what, n, most in (
        ("namespaces", n_namespaces, NAMESPACES_MAX),
        ("links", len(ports), LINKS_MAX),
    ):
        if n > most:
            raise InputError(f"fabric: a lab of {n} {what}; at most {most}, build a smaller fabric")
    plan = UsidPlan(fabric)
    links = tuple(_link(fabric, settings, port) for port in ports)
    return Topology(fabric, settings, plan, links)


def host_name(nic: int) -> str:
    """Return the namespace of a NIC's host, "h3"."""
    return f"h{nic}"


def management_address(nic: int) -> str:
    """Return the address at which every host reaches this NIC's host."""
    return str(MANAGEMENT_FIRST + nic)


def prefix(usid: int) -> str:
    """Return the /48 of a uSID, "2001:db8:4000::/48"."""
    high, low = divmod(BLOCK, 1 << (BLOCK_BITS - USID_BITS))
    return f"{high:x}:{low:x}:{usid:x}::/{BLOCK_BITS + USID_BITS}"


def _switch_namespaces(fabric: Fabric, settings: Settings) -> tuple[str, ...]:
    if settings.switch == OPENMRC:
        return (FABRIC,)
    return tuple(fabric.switch_name(switch) for switch in range(fabric.n_switches))


def _upward_ports(fabric: Fabric, settings: Settings) -> list[int]:
    """The directed ports at the lower ends of all links of the lab."""
    ports = list(range(fabric.n_nics * fabric.n_planes))
    if settings.switch == LINUX:
        for switch in range(fabric.n_switches):
            first = int(fabric.sw_first_up[switch])
            ports += range(first, first + int(fabric.sw_n_up[switch]))
    return ports


def _link(fabric: Fabric, settings: Settings, port: int) -> Link:
    return Link(
        port,
        _end(fabric, settings, port, port),
        _end(fabric, settings, int(fabric.port_reverse[port]), port),
    )


def _end(fabric: Fabric, settings: Settings, port: int, lower: int) -> End:
    nic, switch = int(fabric.port_nic[port]), int(fabric.port_switch[port])
    if nic >= 0:
        plane = port % fabric.n_planes
        return End(host_name(nic), f"e{plane}", addresses.nic_mac(nic, plane))
    mac = addresses.switch_mac(switch)
    if settings.switch == OPENMRC:
        nic, plane = divmod(lower, fabric.n_planes)
        return End(FABRIC, f"n{nic}p{plane}", mac)
    down, up = int(fabric.sw_first_down[switch]), int(fabric.sw_first_up[switch])
    interface = f"d{port - down}" if port < up or fabric.sw_n_up[switch] == 0 else f"u{port - up}"
    return End(fabric.switch_name(switch), interface, mac)
