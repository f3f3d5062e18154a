"""FRR: `frr.conf` of zebra and staticd. FRR does not configure queues, marks and trimming."""

from __future__ import annotations

from openmrc.fabric.usid import BLOCK_BITS, USID_BITS
from openmrc.ops.export.switches import Plant, Switch, block, prefix

SUFFIX = ".conf"
LOCATOR = "MAIN"


def interface(port: int) -> str:
    """Return the name of a switch's port."""
    return f"swp{port + 1}"


def config(plant: Plant, switch: Switch) -> str:
    """Return the configuration that one switch reads at boot."""
    lines = [f"hostname {switch.host}", "service integrated-vtysh-config", "!"]
    for port in switch.ports:
        lines += [
            f"interface {interface(port.number)}",
            f" description {port.link}",
            f" ipv6 address {port.address}/127",
            "exit",
            "!",
        ]
    lines.append(f"ipv6 route {block()} blackhole")
    for usid, number in switch.routes:
        port = switch.ports[number]
        lines.append(f"ipv6 route {prefix(usid)} {port.peer} {interface(number)}")
    lines += [
        "!",
        "segment-routing",
        " srv6",
        "  locators",
        f"   locator {LOCATOR}",
        f"    prefix {prefix(switch.usid)} block-len {BLOCK_BITS} node-len {USID_BITS}"
        f" func-bits {USID_BITS}",
        "    behavior usid",
        "    format usid-f3216",
        "   exit",
        "  exit",
        "  static-sids",
        f"   sid {prefix(switch.usid)} locator {LOCATOR} behavior uN",
        *(
            f"   sid {prefix(link.usid)} locator {LOCATOR} behavior uA"
            f" interface {interface(link.port)} nexthop {switch.ports[link.port].peer}"
            for link in switch.links
        ),
        "  exit",
        " exit",
        "exit",
    ]
    return "".join(f"{line}\n" for line in lines)


def whole(configs: dict[str, str]) -> str:
    """Return the configurations of several switches as one text."""
    return "".join(f"! --- {host}\n{text}" for host, text in configs.items())


def cannot(plant: Plant) -> list[str]:
    """Return what FRR does not configure on these switches."""
    said = [
        "Checked with FRR 10.6.1 in network namespaces: no switch has taken these files.",
        "FRR 10.5.4 takes the uN of a locator's own prefix and does not install it. After boot look"
        " for seg6local in `ip -6 route`; where it is missing: ip -6 route add SID encap seg6local"
        f" action End flavors next-csid lblen {BLOCK_BITS} nflen {USID_BITS} dev swp1",
        f"{plant.needs_mtu} FRR leaves it to the kernel: ip link set swp1 mtu {plant.mtu_bytes}",
        "staticd installs SIDs on the interface sr0: ip link add sr0 type dummy && ip link set sr0"
        " up, before FRR starts.",
        f"Setting a static route twice, or deleting that of {block()}, can remove the SID"
        " (FRR 18822, sonic-buildimage 23812): look for it after every change of routes.",
        "net.ipv6.conf.all.forwarding=1 is the kernel's to set.",
        "Queues, priorities, ECN marks: FRR only routes; they are the kernel's or the chip's.",
        "swp1, swp2 ... stand for the ports of links.csv.",
    ]
    if plant.trims:
        said.append("Trimming: FRR has none.")
    return said
