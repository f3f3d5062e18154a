"""containerlab: a topology of FRR's containers as switches and openmrc's image as hosts, with a
file for each. The topology is JSON, of which YAML is a superset.

MACs are the lab's, so that a host file can name its gateways; every NIC's port has the lower
address of its link, so that its kernel answers FRR's neighbour discovery.
"""

from __future__ import annotations

import json
import re
from typing import Any

from openmrc.ops.export import frr
from openmrc.ops.export.frr import config, interface, whole
from openmrc.ops.export.switches import Cable, End, Plant
from openmrc.scenario.toml import as_table
from openmrc.wire.addresses import nic_mac, switch_mac

__all__ = ["SUFFIX", "cannot", "config", "extra", "interface", "whole"]

SUFFIX = ".conf"
TOPOLOGY, DAEMONS = "topology.clab.yml", "daemons"
FRR_IMAGE, HOST_IMAGE = "quay.io/frrouting/frr:10.6.1", "openmrc"
RUNS = "zebra=yes\nstaticd=yes\nvtysh_enable=yes\n"
SYSCTLS = {"net.ipv6.conf.all.forwarding": 1, "net.ipv6.conf.all.seg6_enabled": 1}
# staticd needs the interface of the SIDs, which is not there when the container starts.
SWITCH_EXEC = ["ip link add sr0 type dummy", "ip link set sr0 up", "vtysh -b"]
# Beginnings of FRR's lines on what the topology has: MTU, sr0, forwarding, names of ports.
IN_IT = ("MTU", "staticd", "net.", "swp1")


def extra(plant: Plant) -> dict[str, str]:
    """Return further files by name: the topology, FRR's daemons, a host file for each NIC."""
    fabric = plant.fabric
    files = {TOPOLOGY: json.dumps(topology(plant), indent=2) + "\n", DAEMONS: RUNS}
    table = as_table(plant.scenario.fabric, kind=plant.scenario.fabric.kind)
    for nic in range(fabric.n_nics):
        t0s = [
            int(fabric.port_peer_switch[fabric.nic_port(nic, k)]) for k in range(fabric.n_planes)
        ]
        host = {
            "fabric": table,
            "nic": nic,
            "mode": "native",
            "ports": [
                {"interface": f"e{plane}", "gateway_mac": switch_mac(t0)}
                for plane, t0 in enumerate(t0s)
            ],
            "base_rtt_us": None,
        }
        files[f"nic{nic}.json"] = json.dumps(host, indent=2) + "\n"
    return files


def topology(plant: Plant) -> dict[str, Any]:
    """Return the topology."""
    switches = {switch.host: _switch(switch.host) for switch in plant.switches()}
    addresses: dict[str, list[str]] = {}
    cables = list(plant.cables())
    for cable in cables:
        if cable.lower.switch is None:
            line = f"ip -6 addr add {cable.lower.address}/127 dev {_interface(cable.lower)} nodad"
            addresses.setdefault(cable.lower.host, []).append(line)
    hosts = {host: _host(host, lines) for host, lines in addresses.items()}
    return {
        "name": re.sub(r"[^a-z0-9-]+", "-", plant.scenario.name.lower()).strip("-") or "fabric",
        "topology": {
            "nodes": switches | hosts,
            "links": [_link(plant, cable) for cable in cables],
        },
    }


def cannot(plant: Plant) -> list[str]:
    """Return what these files leave open."""
    said = [line for line in frr.cannot(plant) if not line.startswith(IN_IT)]
    return [
        *said,
        "The topology is checked against containerlab's public schema; no containerlab has run it.",
        f"Images: {FRR_IMAGE}, and {HOST_IMAGE} (Containerfile); name your own in {TOPOLOGY}.",
        "OPENMRC_SECRET of the shell that deploys is the secret of every host (`mrc secret`).",
    ]


def _switch(host: str) -> dict[str, Any]:
    return {
        "kind": "linux",
        "image": FRR_IMAGE,
        "binds": [
            f"{host}{SUFFIX}:/etc/frr/frr.conf",
            f"{DAEMONS}:/etc/frr/daemons:ro",
        ],
        "sysctls": SYSCTLS,
        "exec": SWITCH_EXEC,
    }


def _host(host: str, lines: list[str]) -> dict[str, Any]:
    return {
        "kind": "linux",
        "image": HOST_IMAGE,
        "entrypoint": "sleep",
        "cmd": "infinity",
        "binds": [f"{host}.json:/etc/openmrc/host.json:ro"],
        "env": {
            "OPENMRC_HOST": "/etc/openmrc/host.json",
            "OPENMRC_SECRET": "${OPENMRC_SECRET}",
        },
        "exec": lines,
    }


def _link(plant: Plant, cable: Cable) -> dict[str, Any]:
    ends = [_end(cable.lower), _end(cable.upper)]
    return {"type": "veth", "endpoints": ends, "mtu": plant.mtu_bytes}


def _end(end: End) -> dict[str, str]:
    mac = switch_mac(end.switch) if end.switch is not None else nic_mac(_nic(end), end.port)
    return {"node": end.host, "interface": _interface(end), "mac": mac}


def _nic(end: End) -> int:
    return int(end.host.removeprefix("nic"))


def _interface(end: End) -> str:
    return f"e{end.port}" if end.switch is None else interface(end.port)
