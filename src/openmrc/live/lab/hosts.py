"""The hosts of a lab: their interfaces, routes and management network, and what they are told.

In mode "native" the host's kernel has no address on the fabric's interfaces and IPv6 is off there:
frames pass through packet sockets alone, and nothing answers unasked. In mode "udp" the kernel
sends and receives: the first uSID of a destination chooses the interface, every address behind the
host's own uSID is its own (AnyIP), and the source is the address of the NIC's port on that plane.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from openmrc.live.lab.namespaces import (
    ROOT,
    Batch,
    Namespaces,
    clear_offloads,
    set_link,
    set_sysctl,
)
from openmrc.live.lab.topology import (
    MANAGEMENT,
    MANAGEMENT_NETWORK,
    MANAGEMENT_ROUTER,
    NATIVE,
    UDP,
    End,
    Topology,
    management_address,
    prefix,
)
from openmrc.wire import addresses

GATEWAY = "fe80::1"  # on every link the other end, by a permanent neighbour
MASTER_PORT = 29_500  # torch's own default


def prepare(topology: Topology, namespaces: Namespaces) -> None:
    """Set in every host's namespace what its interfaces will inherit."""
    for host in topology.hosts:
        with namespaces.inside(host):
            set_sysctl("ipv6/conf/default/disable_ipv6", int(topology.settings.mode == NATIVE))


def bring_up(topology: Topology, namespaces: Namespaces) -> None:
    """Set the hosts' interfaces up, whose links exist, and the router's of the management."""
    for host in topology.hosts:
        with namespaces.inside(host):
            for plane in range(topology.fabric.n_planes):
                clear_offloads(f"e{plane}")
                set_link(f"e{plane}", True)
            set_link("lo", True)
            set_link(MANAGEMENT, True)
    with namespaces.inside(ROOT):
        set_sysctl("ipv4/ip_forward", 1)
        set_link("lo", True)
        for host in topology.hosts:
            set_link(host, True)


def batches(topology: Topology) -> list[Batch]:
    """Return the addresses and routes of the hosts and of the management's router."""
    router = [f"addr add {MANAGEMENT_ROUTER}/32 dev lo"]
    router += [
        f"route add {management_address(nic)} dev {host} src {MANAGEMENT_ROUTER}"
        for nic, host in enumerate(topology.hosts)
    ]
    return [
        Batch(ROOT, "ip", router),
        *(Batch(host, "ip", _host(topology, nic)) for nic, host in enumerate(topology.hosts)),
    ]


def management_links(topology: Topology, namespaces: Namespaces) -> list[str]:
    """Return the lines of `ip` that make the management network's links."""
    return [
        f"link add name {MANAGEMENT} netns {namespaces.path(host)}"
        f" type veth peer name {host} netns {namespaces.path(ROOT)}"
        for host in topology.hosts
    ]


def host_file(
    topology: Topology,
    nic: int,
    fabric_table: Mapping[str, Any],
    base_rtt_us: float | None,
    secret: str,
) -> dict[str, Any]:
    """Return what a device on this host opens: which NIC it is, and its ports by plane."""
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
    """Return the path of a file in memory that is gone with this process."""
    fd = os.memfd_create("host.json")
    os.write(fd, json.dumps(content).encode())
    # As this /proc calls us: it may be that of an outer PID namespace.
    return f"/proc/{os.readlink('/proc/self')}/fd/{fd}"


def environment(rank: int, chosen: Sequence[int], path: str, secret: str) -> dict[str, str]:
    """Return what a command on host `chosen[rank]` finds in its environment."""
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
        f"addr add {management_address(nic)}/32 dev {MANAGEMENT}",
        f"route add {MANAGEMENT_ROUTER} dev {MANAGEMENT}",
        f"route add {MANAGEMENT_NETWORK} via {MANAGEMENT_ROUTER} dev {MANAGEMENT}",
    ]
    if topology.settings.mode == UDP:
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
