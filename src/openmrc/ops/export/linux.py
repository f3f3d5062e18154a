"""Linux: one script per switch, with the lines by which `mrc lab` creates its own
(`live.lab.linux`).

The interfaces are the lab's, d0, d1 ... downwards and u0, u1 ... upwards, with its MACs; neighbours
are permanent, so nothing has to be discovered. `SETUP` creates a namespace for every switch and
host and all links, and runs every script: a whole fabric to inspect on one machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from openmrc.errors import InputError
from openmrc.ops.export.switches import Plant, Switch, block, prefix

if TYPE_CHECKING:
    from openmrc.live.lab.namespaces import Batch
    from openmrc.live.lab.topology import End, Topology

SUFFIX = ".sh"
SETUP = "setup.sh"
FLAGS = "addrgenmode none multicast off"


def config(plant: Plant, switch: Switch) -> str:
    """Return the script of one switch."""
    lab = _topology(plant)
    ends = sorted(end for end in lab.end_of.values() if end.namespace == switch.name)
    lines = [
        "#!/bin/sh",
        f"# {switch.name}: {prefix(switch.usid)}. As root, once its links are there.",
        "set -e",
    ]
    for end in ends:
        lines += _interface(end, lab.settings.mtu)
    routes = [f"route add blackhole {block()}"]
    for batch in _batches(plant)[switch.name]:
        more = routes if batch.tool == "ip" else []
        lines += [f"{_command(batch)} <<'END'", *batch.lines, *more, "END"]
    # Last, so that no router's multicast group is joined.
    lines.append("echo 1 > /proc/sys/net/ipv6/conf/all/forwarding")
    return "".join(f"{line}\n" for line in lines)


def whole(configs: Mapping[str, str]) -> str:
    """Return the scripts of several switches as one text, to read."""
    return "".join(f"# --- {host}\n{text}" for host, text in configs.items())


def extra(plant: Plant) -> dict[str, str]:
    """Return further files by name: the script that creates all of it on one machine."""
    lab = _topology(plant)
    names = {name: plant.host_of(number) for number, name in enumerate(lab.switches)}
    lines = ["#!/bin/sh", "# As root: the whole fabric in namespaces of this machine.", "set -e"]
    lines += ['cd "$(dirname "$0")"']
    lines += [f"ip netns add {name}" for name in (*names.values(), *lab.hosts)]
    for link in lab.links:
        lower, upper = (
            f"{end.interface} netns {names.get(end.namespace, end.namespace)}"
            for end in (link.lower, link.upper)
        )
        lines.append(f"ip link add name {lower} type veth peer name {upper}")
    for link in lab.links:
        if link.lower.namespace not in names:
            interface, mac = link.lower.interface, link.lower.mac
            lines.append(
                f"ip -n {link.lower.namespace} link set dev {interface} address {mac}"
                f" mtu {lab.settings.mtu} up"
            )
    lines += [f"ip netns exec {name} sh ./{name}{SUFFIX}" for name in names.values()]
    return {SETUP: "".join(f"{line}\n" for line in lines)}


def cannot(plant: Plant) -> list[str]:
    """Return what these scripts do not do."""
    said = [
        "Classes, ECN marks: a port is one token bucket of its link's rate; a lab with"
        " [lab] bpf = true marks and trims by a BPF program (docs/lab.md).",
        "Links have no delay.",
        "Offloads stay as they are: on veth links let the hosts send what is on the wire"
        " (`ethtool -K IF tx off tso off gso off gro off`).",
    ]
    if plant.trims:
        said.append("Trimming: none without that program.")
    return said


@lru_cache(maxsize=1)  # of the one fabric of an export
def _topology(plant: Plant) -> Topology:
    """The lab that these switches would be part of; `InputError` for what no lab can be."""
    from openmrc.live.lab.topology import LINUX, topology

    settings = replace(plant.scenario.lab.build(), switch=LINUX, bpf=False)
    try:
        return topology(plant.fabric, settings)
    except InputError as error:
        raise error.at(plant.scenario.source) from None


@lru_cache(maxsize=1)  # of the one fabric of an export
def _batches(plant: Plant) -> dict[str, list[Batch]]:
    """The batches that the lab itself runs in each switch's namespace."""
    from openmrc.live.lab.linux import LinuxFabric

    lab = _topology(plant)
    found: dict[str, list[Batch]] = {name: [] for name in lab.switches}
    # The constructor enters no namespace, and a batch is only text.
    fabric = LinuxFabric(lab, None, plant.scenario.fabric.queues())  # type: ignore[arg-type]
    for batch in fabric.batches():
        if batch.namespace in found:
            found[batch.namespace].append(batch)
    return found


def _command(batch: Batch) -> str:
    from openmrc.live.lab.namespaces import BATCH_ARGUMENTS

    return " ".join([batch.tool, *BATCH_ARGUMENTS[batch.tool]])


def _interface(end: End, mtu: int) -> list[str]:
    dev, conf = f"dev {end.interface}", f"/proc/sys/net/ipv6/conf/{end.interface}"
    return [
        f"ip link set {dev} address {end.mac} mtu {mtu} {FLAGS}",
        f"echo 0 > {conf}/accept_ra",
        f"echo 0 > {conf}/accept_dad",
        f"ip link set {dev} up",
    ]
