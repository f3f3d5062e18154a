"""Switches by Linux: its SRv6 forwards, its shapers pace, and its packet filter applies faults.

Each switch is a namespace. Its own uSID is a seg6local route (End with NEXT-C-SID: shift, decrement
the hop limit, look up again, RFC 9800), those of its links are others (End.X), every neighbour's
uSID is a static route through a permanent neighbour entry, and every port a token bucket of its
link's rate. There is no delay; trimming and ECN marking need a BPF program (`trimming`).

Faults: a packet that a link loses, or that is longer than its MTU, is dropped by nftables, at the
switch, so that packet sockets of a host never see it: on egress from the switch's own ports, on
ingress from a NIC. A NIC's link that is down in both directions is set down, so that the NIC
notices.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from ipaddress import IPv6Address
from typing import Any, BinaryIO

import numpy as np

from openmrc.errors import InputError
from openmrc.fabric import actions
from openmrc.fabric.actions import FaultSchedule
from openmrc.fabric.kinds import BEGINS, RATED
from openmrc.fabric.model import LongArray
from openmrc.fabric.tables import OWN, table
from openmrc.fabric.usid import BLOCK_BITS, FIRST_LINK, USID_BITS
from openmrc.live.lab.capture import Source, Tap
from openmrc.live.lab.health import Health
from openmrc.live.lab.hosts import GATEWAY
from openmrc.live.lab.namespaces import Batch, Namespaces, clear_offloads, set_link, set_sysctl
from openmrc.live.lab.topology import Topology, prefix
from openmrc.live.lab.totals import Totals
from openmrc.live.lab.trimming import shapers
from openmrc.wire.layout import ETHERNET
from openmrc.wire.pcap import Writer

# Next hops of links' own uSIDs: End.X finds its interface by a route, and all neighbours have one
# address.
NEXT_HOPS = 0xFD6D_7263_FE00 << 80
ONE = 1_000_000  # nftables draws integers below this

# A route disappears with its device, and a switch's own uSID must outlive each of its links: its
# device is one end of a pair of interfaces that leads nowhere. On loopback the kernel would make it
# a reject route.
OWN_DEVICE = "sid0"
OWN_LINES = (
    f"link add {OWN_DEVICE} type veth peer name sid1",
    *(f"link set {name} addrgenmode none multicast off up" for name in (OWN_DEVICE, "sid1")),
)

CAN = (actions.PORT_LOSS, actions.PORT_RATE, actions.PORT_MTU)
CANNOT = {  # the kinds of fault whose action Linux cannot carry out, and the number without a fault
    RATED[kind.effect].action: (name, RATED[kind.effect].whole)
    for name, kind in BEGINS.items()
    if kind.effect in RATED and RATED[kind.effect].action not in CAN
}


class LinuxFabric:
    """The switches of a lab as namespaces of Linux; `bring_up` after the links exist."""

    def __init__(
        self, topology: Topology, namespaces: Namespaces, queues: Any, **sizes: Any
    ) -> None:
        """`sizes` (`pmtu`, `base_rtt_ps`, `senders_per_nic`) determine the queues of switches that
        trim.
        """
        self.health = Health(topology.fabric)
        self._topology = topology
        self._namespaces = namespaces
        self._shapers = shapers(topology, queues, **sizes)
        self._routes = {
            switch: _routes(topology, switch) for switch in range(topology.fabric.n_switches)
        }
        self._dropped: dict[str, list[str]] = {}  # by namespace: the current rules

    def prepare(self) -> None:
        """Do nothing: the interfaces inherit the lab's defaults."""

    def bring_up(self) -> None:
        """Set the existing interfaces of all switches up, and enable forwarding."""
        for name, interfaces in self._interfaces().items():
            with self._namespaces.inside(name):
                for interface in interfaces:
                    clear_offloads(interface)
                    set_link(interface, True)
                set_sysctl("ipv6/conf/all/forwarding", 1)  # last, so that no group is joined

    def batches(self) -> list[Batch]:
        """Return neighbours, routes and shapers."""
        return [
            *(
                Batch(name, "ip", [*OWN_LINES, *self._routes[switch]])
                for switch, name in enumerate(self._topology.switches)
            ),
            *self._shapers.first(self._topology.end_of),
        ]

    def refuse(self, schedule: FaultSchedule) -> None:
        """Raise `InputError` for an action that Linux cannot carry out."""
        for event in schedule.events:
            kind, whole = CANNOT.get(int(event["action"]), ("", event["rate"]))
            if event["rate"] != whole:
                raise _cannot(kind)
            if int(event["action"]) == actions.PORT_LOSS and event["burst"] > 0:
                raise _cannot("link-loss with burst")

    def start(self, schedule: FaultSchedule) -> FaultSchedule:
        """Return the part of the schedule for the lab's clock: all of it."""
        return schedule

    def stop(self) -> None:
        """Do nothing: Linux's switches end with their namespaces."""

    def act(self, events: Any, scheduled: bool = False) -> None:
        """Carry out EVENT records now, `scheduled` or not: those of a namespace in one
        transaction.
        """
        before = self.health.link_up.copy()
        self.health.apply(events)
        self._set_links((self.health.link_up != before).nonzero()[0].tolist())
        slowed = self._shapers.changed(self._topology.end_of, self.health.level[actions.PORT_RATE])
        self._namespaces.run([*self._rules(), *slowed])

    def counters(self) -> dict[str, Any]:
        """Return, by switch, the counters of its seg6local routes: packets, bytes, errors."""
        return {name: self._counted(name) for name in self._topology.switches}

    def totals(self) -> Totals:
        """Return the kernel's counters: only packets forwarded are known."""
        return Totals(link_traversals=sum(row["packets"] for row in self.counters().values()))

    def queue_drops(self) -> LongArray:
        """Return, by directed port, the packets for which its shaper had no room: those of
        switches.
        """
        found = np.zeros(self._topology.fabric.n_ports, np.int64)
        port_of = {(end.namespace, end.interface): p for p, end in self._topology.end_of.items()}
        for name in self._topology.switches:
            text = self._namespaces.output(name, "tc", "-s", "-j", "qdisc", "show")
            for queue in json.loads(text or "[]"):
                port = port_of.get((name, queue["dev"]))
                if port is not None and queue.get("root"):
                    found[port] += queue.get("drops", 0)
        return found

    def tap(self, ports: Sequence[int], stream: BinaryIO) -> Tap:
        """Start a capture of these directed ports; `close` ends it."""
        fabric, sources = self._topology.fabric, []
        writer = Writer(stream, [fabric.port_name(port) for port in ports])
        for number, port in enumerate(ports):
            end = self._topology.switch_end(port)
            with self._namespaces.inside(end.namespace):
                sources.append(Source(number, end.interface, bool(fabric.port_nic[port] < 0)))
        return Tap(sources, writer.write)

    def _interfaces(self) -> dict[str, list[str]]:
        """The interfaces of each switch."""
        found: dict[str, list[str]] = {name: [] for name in self._topology.switches}
        for end in self._topology.end_of.values():
            if end.namespace in found:
                found[end.namespace].append(end.interface)
        return found

    def _counted(self, name: str) -> dict[str, int]:
        text = self._namespaces.output(name, "ip", "-6", "-s", "-j", "route", "show")
        found = {"packets": 0, "bytes": 0, "errors": 0}
        for route in json.loads(text or "[]"):
            if route.get("encap") == "seg6local":
                stats = route.get("stats64", route)
                found = {key: n + int(stats.get(key, 0)) for key, n in found.items()}
        return found

    def _set_links(self, links: Iterable[int]) -> None:
        """Set the switch's end of NICs' links up or down; restore routes that going down
        removed.
        """
        fabric, again = self._topology.fabric, []
        for port in links:
            up = bool(self.health.link_up[port])
            end = self._topology.switch_end(port)
            with self._namespaces.inside(end.namespace):
                set_link(end.interface, up)
            if up:
                again.append(int(fabric.port_peer_switch[port]))
        self._namespaces.run(
            Batch(
                self._topology.switches[switch],
                "ip",
                [
                    line.replace(" add ", " replace ", 1)
                    for line in self._routes[switch]
                    if not _is_lost(line, self._down(switch))
                ],
            )
            for switch in sorted(set(again))
        )

    def _down(self, switch: int) -> set[str]:
        """The interfaces of a switch that are down."""
        fabric = self._topology.fabric
        return {
            self._topology.switch_end(port).interface
            for port in (~self.health.link_up).nonzero()[0].tolist()
            if int(fabric.port_peer_switch[port]) == switch
        }

    def _rules(self) -> list[Batch]:
        """Return the filters of the namespaces in which they have changed."""
        fabric, wanted = self._topology.fabric, dict.fromkeys(self._topology.switches, "")
        rules: dict[str, list[str]] = {name: [] for name in wanted}
        lossy = (~self.health.up) | (self.health.level[actions.PORT_LOSS] > 0)
        mtu = self.health.level[actions.PORT_MTU]
        narrow = mtu < actions.MTU_WHOLE
        for port in (lossy | narrow).nonzero()[0].tolist():
            end = self._topology.switch_end(port)
            hook = "ingress" if fabric.port_nic[port] >= 0 else "egress"
            lines = rules[end.namespace]
            if lossy[port]:
                lines.append(_drop(hook, end.interface, _one_of(self.health.lost(port))))
            if narrow[port]:
                which = _longer(hook, int(mtu[port]))
                lines.append(_drop(hook, end.interface, which, "narrow_"))
        for switch, state in enumerate(self.health.switch):
            if state == "up":
                continue
            name = self._topology.switches[switch]
            rules[name] += [
                _drop("ingress", end.interface, _one_of(1.0), "silent_")
                for end in self._topology.end_of.values()
                if end.namespace == name
            ]
        changed = []
        for name, lines in rules.items():
            if lines != self._dropped.get(name, []):
                changed.append(
                    Batch(name, "nft", ["flush ruleset", "table netdev faults {", *lines, "}"])
                )
                self._dropped[name] = lines
        return changed


def _routes(topology: Topology, switch: int) -> list[str]:
    """The lines of `ip` of one switch, from its table (`fabric.tables`)."""
    fabric, lines, routes, own = topology.fabric, [], [], ""
    flavour = f"flavors next-csid lblen {BLOCK_BITS} nflen {USID_BITS} count"
    for key, port in table(topology.plan, switch).items():
        block = prefix(key & (1 << USID_BITS) - 1)
        if port == OWN:
            own = block
            continue
        there = topology.end_of[int(fabric.port_reverse[port])]
        here = topology.end_of[port].interface
        neighbour = f"neigh add {GATEWAY} lladdr {there.mac} dev {here} nud permanent"
        if neighbour not in lines:
            lines.append(neighbour)
        usid = key & (1 << USID_BITS) - 1
        if usid >= FIRST_LINK:
            next_hop = str(IPv6Address(NEXT_HOPS + usid))
            lines += [
                f"neigh add {next_hop} lladdr {there.mac} dev {here} nud permanent",
                f"route add {next_hop}/128 dev {here}",
            ]
            action = f"End.X nh6 {next_hop} {flavour}"
            routes.append(f"route add {block} encap seg6local action {action} dev {here}")
        else:
            routes.append(f"route add {block} via {GATEWAY} dev {here}")
    return [
        *lines,
        f"route add {own} encap seg6local action End {flavour} dev {OWN_DEVICE}",
        *routes,
    ]


def _is_lost(line: str, down: set[str]) -> bool:
    words = line.split()
    return words[words.index("dev") + 1] in down


def _drop(hook: str, interface: str, which: str, name: str = "") -> str:
    """A chain that drops some packets of an interface."""
    head = f'type filter hook {hook} device "{interface}" priority 0; policy accept;'
    return f"chain {name}{hook}_{interface} {{ {head} {which}drop; }}"


def _one_of(share: float) -> str:
    """What matches this fraction of packets, at random."""
    return "" if share >= 1 else f"numgen random mod {ONE} < {round(share * ONE)} "


def _longer(hook: str, mtu: int) -> str:
    """What matches packets longer than an MTU; on egress a length has the Ethernet header in it."""
    return f"meta length > {mtu + ETHERNET.size_bytes * (hook == 'egress')} "


def _cannot(what: str) -> InputError:
    return InputError(
        f'fault: Linux cannot do {what}; use switch = "openmrc", or another kind of fault'
    )
