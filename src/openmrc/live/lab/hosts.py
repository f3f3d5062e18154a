"""The hosts of a lab: interfaces, routes, management network, and environment.

In mode "native" the host's kernel has no address on the fabric's interfaces and IPv6 is off there:
frames pass through packet sockets only, and the kernel sends none of its own. In mode "udp" the
kernel sends and receives: the first uSID of a destination chooses the interface, every address that
begins with the host's own uSID is its own (AnyIP), and the source is the address of the NIC's port
on that plane.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from openmrc.live.lab import namespaces as ns
from openmrc.live.lab import topology as lt
from openmrc.live.lab.topology import End, Topology, management_address, prefix
from openmrc.wire import addresses

GATEWAY = "fe80::1"  # the other end of every link, by a permanent neighbour entry
MASTER_PORT = 29_500  # torch's default


def prepare(topology: Topology, namespaces: ns.Namespaces) -> None:
    """Set the defaults that interfaces inherit in every host's namespace."""
    for host in topology.hosts:
        with namespaces.inside(host):
            ns.set_sysctl(
                "ipv6/conf/default/disable_ipv6", int(topology.settings.mode == lt.NATIVE)
            )


def bring_up(topology: Topology, namespaces: ns.Namespaces) -> None:
    """Set the hosts' existing interfaces up, and those of the management router."""
    for host in topology.hosts:
        with namespaces.inside(host):
            for plane in range(topology.fabric.n_planes):
                ns.clear_offloads(f"e{plane}")
                ns.set_link(f"e{plane}", True)
            ns.set_link("lo", True)
            ns.set_link(lt.MANAGEMENT, True)
    with namespaces.inside(ns.ROOT):
        ns.set_sysctl("ipv4/ip_forward", 1)
        ns.set_link("lo", True)
        for host in topology.hosts:
            ns.set_link(host, True)


def batches(topology: Topology) -> list[ns.Batch]:
    """Return the addresses and routes of the hosts and of the management router."""
    router = [f"addr add {lt.MANAGEMENT_ROUTER}/32 dev lo"]
    router += [
        f"route add {management_address(nic)} dev {host} src {lt.MANAGEMENT_ROUTER}"
        for nic, host in enumerate(topology.hosts)
    ]
    return [
        ns.Batch(ns.ROOT, "ip", router),
        *(ns.Batch(host, "ip", _host(topology, nic)) for nic, host in enumerate(topology.hosts)),
    ]


def management_links(topology: Topology, namespaces: ns.Namespaces) -> list[str]:
    """Return the lines of `ip` that create the management network's links."""
    return [
        f"link add name {lt.MANAGEMENT} netns {namespaces.path(host)}"
        f" type veth peer name {host} netns {namespaces.path(ns.ROOT)}"
        for host in topology.hosts
    ]


def host_file(
    topology: Topology,
    nic: int,
    fabric_table: Mapping[str, Any],
    base_rtt_us: float | None,
    secret: str,
) -> dict[str, Any]:
    """Return the host file that a device opens: its NIC, and its ports by plane."""
    planes = range(topology.fabric.n_planes)
    return {
        "fabric": dict(fabric_table),
        "nic": nic,
        "mode": topology.settings.mode,
        "ports": [
            {"interface": f"e{plane}", "gateway_mac": _gateway(topology, nic, plane).mac}
            for plane in planes
        ],
        "base_rtt_us": base_rtt_us,
        "secret": secret,
    }


def keep_file(content: Mapping[str, Any]) -> str:
    """Return the path of a file in memory that disappears with this process."""
    fd = os.memfd_create("host.json")
    os.write(fd, json.dumps(content).encode())
    # The PID that this /proc shows: it may be that of an outer PID namespace.
    return f"/proc/{os.readlink('/proc/self')}/fd/{fd}"


def environment(rank: int, chosen: Sequence[int], path: str, secret: str) -> dict[str, str]:
    """Return the environment of a command on host `chosen[rank]`."""
    hosts = [management_address(nic) for nic in chosen]
    return {
        "OPENMRC_HOST": path,
        "OPENMRC_SECRET": secret,
        "OPENMRC_RANK": str(rank),
        "OPENMRC_WORLD_SIZE": str(len(hosts)),
        "OPENMRC_HOSTS": ",".join(hosts),
        "RANK": str(rank),
        "WORLD_SIZE": str(len(hosts)),
        "MASTER_ADDR": hosts[0],
        "MASTER_PORT": str(MASTER_PORT),
    }


def _host(topology: Topology, nic: int) -> list[str]:
    lines = [
        f"addr add {management_address(nic)}/32 dev {lt.MANAGEMENT}",
        f"route add {lt.MANAGEMENT_ROUTER} dev {lt.MANAGEMENT}",
        f"route add {lt.MANAGEMENT_NETWORK} via {lt.MANAGEMENT_ROUTER} dev {lt.MANAGEMENT}",
    ]
    if topology.settings.mode == lt.UDP:
        lines += _uses(topology, nic)
    return lines


def _uses(topology: Topology, nic: int) -> list[str]:
    """The routes of mode "udp"."""
    fabric, plan = topology.fabric, topology.plan
    lines = [f"route add local {prefix(plan.nic(nic))} dev lo"]
    for plane in range(fabric.n_planes):
        source, t0 = addresses.ipv6(nic, plane), plan.t0(plane, fabric.t0_of(nic))
        mac = _gateway(topology, nic, plane).mac
        lines += [
            f"addr add {source}/128 dev lo nodad",
            f"neigh add {GATEWAY} lladdr {mac} dev e{plane} nud permanent",
            f"route add {prefix(t0)} via {GATEWAY} dev e{plane} src {source}",
        ]
    return lines


def _gateway(topology: Topology, nic: int, plane: int) -> End:
    port = topology.fabric.nic_port(nic, plane)
    return topology.end_of[int(topology.fabric.port_reverse[port])]
