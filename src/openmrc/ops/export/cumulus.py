"""Cumulus Linux: NVUE commands (`nv set`), 5.14 and later on Spectrum-4 and later."""

from __future__ import annotations

from openmrc.errors import InputError
from openmrc.fabric.dscp import Dscps
from openmrc.fabric.usid import BLOCK_BITS, USID_BITS
from openmrc.ops.export.switches import Plant, Switch, block, prefix

SUFFIX = ".nv"
LOCATOR = "MAIN"
DATA, RETRANSMIT, CONTROL = 0, 1, 6  # switch priorities, and traffic classes
PRIORITIES = Dscps(
    no_trim=DATA,
    trimmable=DATA,
    trimmable_retx=RETRANSMIT,
    trimmed=CONTROL,
    trimmed_lasthop=CONTROL,
    control=CONTROL,
)
TRIM_BYTES = 256  # the minimum that is accepted


def interface(port: int) -> str:
    """Return the name of a switch's port."""
    return f"swp{port + 1}"


def config(plant: Plant, switch: Switch) -> str:
    """Return the commands that configure one switch; `InputError` for uSIDs of links."""
    if switch.links:
        raise InputError(
            'fabric.sids: "uA" is not in the documented commands of Cumulus Linux; accepted: "uN",'
            " or another platform"
        )
    lines = [f"system hostname {switch.host}"]
    for port in switch.ports:
        lines.append(f"interface {interface(port.number)} ip address {port.address}/127")
    lines.append(f"vrf default router static {block()} via blackhole")
    for usid, number in switch.routes:
        lines.append(f"vrf default router static {prefix(usid)} via {switch.ports[number].peer}")
    sid, own = f"router segment-routing static srv6-sid {prefix(switch.usid)}", LOCATOR
    locator = f"router segment-routing srv6 locator {own}"
    lines += [
        "router segment-routing srv6 state enabled",
        f"{locator} prefix {prefix(switch.usid)}",
        f"{locator} block-length {BLOCK_BITS}",
        f"{locator} node-length {USID_BITS}",
        f"{locator} func-length 0",
        f"{sid} locator-name {own}",
        f"{sid} behavior uN",
        *_qos(plant, switch),
    ]
    return "".join(f"nv set {line}\n" for line in lines) + "nv config apply\n"


def whole(configs: dict[str, str]) -> str:
    """Return the commands for several switches as one text."""
    return "".join(f"# --- {host}\n{text}" for host, text in configs.items())


def cannot(plant: Plant) -> list[str]:
    """Return what these commands do not configure on these switches."""
    said = [
        "Checked for syntax only: no switch has taken these commands.",
        "NVIDIA advises against one prefix for a static route and for a SID; here none is both.",
        f"{plant.needs_mtu} Cumulus Linux takes 9216 where no link mtu is set.",
        "Thresholds of ECN are one profile of the switch: those of its first port that marks.",
        "Limits of queues in bytes: shared buffers stay as they are by default.",
        "swp1, swp2 ... stand for the ports of links.csv.",
    ]
    if plant.trims:
        said += [
            f"Trimmed packets keep {TRIM_BYTES} B, the least that is taken, in place of 128.",
            "The last hop has no DSCP of its own: one remark DSCP holds for the switch, so a NIC"
            " cannot tell where a packet was trimmed.",
            "Trimming takes whole traffic classes, NO_TRIM packets of theirs too.",
        ]
    return said


def _qos(plant: Plant, switch: Switch) -> list[str]:
    lines = ["qos mapping default-global trust l3"]
    lines += [
        f"qos mapping default-global dscp {dscp} switch-priority {priority}"
        for dscp, priority in zip(plant.fabric.dscps, PRIORITIES, strict=True)
    ]
    for queue in (DATA, RETRANSMIT, CONTROL):
        lines.append(
            f"qos egress-queue-mapping default-global switch-priority {queue} traffic-class {queue}"
        )
        lines.append(f"qos egress-scheduler default-global traffic-class {queue} mode strict")
    marking = [port for port in switch.ports if port.marks is not None]
    if marking and (marks := marking[0].marks) is not None:
        for queue in (DATA, RETRANSMIT):
            profile = f"qos congestion-control default-global traffic-class {queue}"
            lines += [
                f"{profile} ecn enabled",
                f"{profile} min-threshold {marks.low_bytes}",
                f"{profile} max-threshold {marks.high_bytes}",
                f"{profile} probability 100",
            ]
    if plant.trims:
        lines += [
            "system forwarding packet-trim state enabled",
            f"system forwarding packet-trim remark dscp {plant.fabric.dscps.trimmed}",
            f"system forwarding packet-trim size {TRIM_BYTES}",
            f"system forwarding packet-trim switch-priority {CONTROL}",
        ]
        lines += [
            f"interface {interface(port.number)} packet-trim egress-eligibility"
            f" traffic-class {queue}"
            for port in switch.ports
            for queue in (DATA, RETRANSMIT)
        ]
    return lines
