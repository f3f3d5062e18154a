"""Plain IPv6 across a fabric of uSIDs, for TCP and MPTCP: Linux's own SRv6 encapsulates it at the
hosts.

Every port of a host gets an address of its plane, and a route to the other host's address of that
plane which adds a carrier (H.Encaps.Red, RFC 8986): one fixed path, as a plain network gives one
connection. The other host removes it (End.DT6). This adds 40 bytes to a frame; the kernel keeps
them free below the MTU. Switches see an IPv6 packet with a carrier like any other.

In mode "native" a host's ports have no IPv6. It is enabled while TCP is measured, so that the
kernel never sees a frame of openmrc's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from openmrc.fabric.usid import BLOCK, BLOCK_BITS, USID_BITS
from openmrc.live.lab import Lab
from openmrc.live.lab.hosts import GATEWAY
from openmrc.live.lab.namespaces import Batch, LabError, set_sysctl
from openmrc.live.lab.topology import Topology, prefix

UNWRAP = 0xD  # the uSID after the host's own: packets with it are decapsulated
TABLE_LOCAL = 255
MPTCP_ENABLED = Path("/proc/sys/net/mptcp/enabled")  # of the calling thread's namespace
T1 = 0  # of each plane: the one that plain packets cross


def address(plane: int, nic: int) -> str:
    """Return the address of a NIC's port on a plane."""
    return f"fd00:0:{plane:x}:{nic:x}::1"


def carrier(topology: Topology, plane: int, src: int, dst: int) -> str:
    """Return the carrier of the one path between two NICs under different T0s."""
    fabric, plan = topology.fabric, topology.plan
    usids = [
        plan.t0(plane, fabric.t0_of(src)),
        plan.t1(plane, T1),
        plan.t0(plane, fabric.t0_of(dst)),
        plan.nic(dst),
        UNWRAP,
    ]
    high, low = divmod(BLOCK, 1 << (BLOCK_BITS - USID_BITS))
    return f"{high:x}:{low:x}:" + ":".join(f"{usid:x}" for usid in usids) + "::"


def lines(topology: Topology, nic: int, peer: int) -> list[str]:
    """Return the lines of `ip` for the host of `nic`, to reach `peer` and to be reached."""
    fabric, plan = topology.fabric, topology.plan
    own = prefix(plan.nic(nic)).partition("::")[0]
    found = []
    for plane in range(fabric.n_planes):
        gateway = topology.end_of[int(fabric.port_reverse[fabric.nic_port(nic, plane)])]
        device, source = f"e{plane}", address(plane, nic)
        wrap = f"encap seg6 mode encap.red segs {carrier(topology, plane, nic, peer)}"
        found += [
            f"neigh add {GATEWAY} lladdr {gateway.mac} dev {device} nud permanent",
            f"route add {prefix(plan.t0(plane, fabric.t0_of(nic)))} via {GATEWAY} dev {device}",
            f"addr add {source}/128 dev {device} nodad",
            f"route add {address(plane, peer)}/128 {wrap} dev {device} src {source}",
        ]
    unwrap = f"encap seg6local action End.DT6 table {TABLE_LOCAL} dev e0 table local"
    return [*found, f"route add {own}:{UNWRAP:x}::/64 {unwrap}"]


def mptcp_lines(topology: Topology, nic: int, *, listens: bool) -> list[str]:
    """Return the lines that make MPTCP on a host use every plane: the listener announces its
    addresses, and the other end connects to each of them.
    """
    planes = topology.fabric.n_planes
    ends = [f"mptcp endpoint add {address(p, nic)} dev e{p} signal" for p in range(1, planes)]
    return [
        "mptcp endpoint flush",
        f"mptcp limits set subflow {planes} add_addr_accepted {planes}",
        *(ends if listens else ()),
    ]


@contextmanager
def switched_on(lab: Lab, nics: tuple[int, int]) -> Iterator[None]:
    """Enable plain IPv6 on two hosts during the block; `LabError` if this machine cannot
    encapsulate it.
    """
    hosts = [lab.topology.hosts[nic] for nic in nics]
    planes = range(lab.topology.fabric.n_planes)
    try:
        for host in hosts:
            with lab.namespaces.inside(host):
                for plane in planes:
                    set_sysctl(f"ipv6/conf/e{plane}/disable_ipv6", 0)
        lab.namespaces.run(
            Batch(host, "ip", lines(lab.topology, nic, peer))
            for host, nic, peer in zip(hosts, nics, reversed(nics), strict=True)
        )
        yield
    finally:  # removes addresses, routes and neighbours with it
        for host in hosts:
            with lab.namespaces.inside(host):
                for plane in planes:
                    set_sysctl(f"ipv6/conf/e{plane}/disable_ipv6", 1)


def mptcp_refusal(lab: Lab, nics: tuple[int, int]) -> str:
    """Set MPTCP up on two hosts with plain IPv6, the second listening; return what it lacks,
    or "".
    """
    hosts = [lab.topology.hosts[nic] for nic in nics]
    for host in hosts:
        with lab.namespaces.inside(host):
            if not MPTCP_ENABLED.exists():
                return "this kernel has no MPTCP; boot one with CONFIG_MPTCP and CONFIG_MPTCP_IPV6"
            MPTCP_ENABLED.write_text("1")
    try:
        lab.namespaces.run(
            Batch(host, "ip", mptcp_lines(lab.topology, nic, listens=nic == nics[1]))
            for host, nic in zip(hosts, nics, strict=True)
        )
    except LabError as error:
        return f"its path manager cannot be told of the planes, it takes iproute2 5.8: {error}"
    return ""
