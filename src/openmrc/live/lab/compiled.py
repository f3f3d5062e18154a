"""Our own switches in a lab: all of them in one compiled loop, over packet sockets.

The hosts' links end in one namespace. On each of them a packet socket is bound; the sockets are the
ports of `live.switches.Switches`. The namespace has no IPv6, so its kernel stays out of it.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np

from openmrc.fabric.actions import FaultSchedule
from openmrc.live.lab.health import Health
from openmrc.live.lab.namespaces import Batch, Namespaces, clear_offloads, set_link, set_sysctl
from openmrc.live.lab.topology import FABRIC, Topology
from openmrc.live.switches import Switches

ETH_P_IPV6 = 0x86DD
SOL_PACKET, PACKET_IGNORE_OUTGOING = 263, 23
BUFFER_BYTES = 4 << 20  # what the kernel grants of it: net.core.rmem_max


class CompiledFabric:
    """The switches of a lab as one loop on a thread of this process."""

    def __init__(self, topology: Topology, namespaces: Namespaces, queues: Any, seed: int) -> None:
        self.health = Health(topology.fabric)
        self._topology = topology
        self._namespaces = namespaces
        self._queues = queues
        self._seed = seed
        self._sockets: list[socket.socket] = []
        self._switches: Any = None

    def prepare(self) -> None:
        """Keep the kernel silent on interfaces to come."""
        with self._namespaces.inside(FABRIC):
            set_sysctl("ipv6/conf/default/disable_ipv6", 1)

    def bring_up(self) -> None:
        """Set the interfaces up and bind a socket to each; their links exist."""
        with self._namespaces.inside(FABRIC):
            for link in self._topology.links:
                clear_offloads(link.upper.interface)
                set_link(link.upper.interface, True)
                self._sockets.append(_port_socket(link.upper.interface))

    def batches(self) -> list[Batch]:
        """Return none: there is nothing to route."""
        return []

    def refuse(self, schedule: FaultSchedule) -> None:
        """Refuse nothing: every action of a switch or link is carried out."""

    def start(self, schedule: FaultSchedule) -> FaultSchedule:
        """Begin to switch; time 0 of the schedule is now.

        Returns what is left to the lab's clock: the states of NICs' links, and a note of the rest.
        """
        fds = np.array([port.fileno() for port in self._sockets], np.int32)
        self._switches = Switches(
            self._topology.fabric,
            self._queues,
            fds,
            seed=self._seed,
            mtu=self._topology.settings.mtu,
        )
        self._switches.start(schedule)
        return schedule

    def stop(self) -> None:
        """End the loop and close the ports."""
        if self._switches is not None:
            self._switches.close()
        for port in self._sockets:
            port.close()

    def act(self, events: Any, scheduled: bool = False) -> None:
        """Carry out EVENT records now; of `scheduled` ones the switches know already."""
        before = self.health.link_up.copy()
        self.health.apply(events)
        if not scheduled:
            self._switches.act(events)
        with self._namespaces.inside(FABRIC):
            for port in (self.health.link_up != before).nonzero()[0].tolist():
                end = self._topology.switch_end(port)
                set_link(end.interface, bool(self.health.link_up[port]))

    def counters(self) -> dict[str, Any]:
        """Return, by switch, what the loop counted: packets, bytes, marks, trims, drops."""
        rows = [dict(row) for row in self._switches.counters().by_switch()]
        return {row.pop("switch"): row for row in rows}

    def tap(self, ports: Sequence[int], stream: BinaryIO) -> Any:
        """Begin to write what crosses these directed ports to a capture; `close` ends it."""
        return self._switches.tap(ports, stream)


def _port_socket(interface: str) -> socket.socket:
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    port.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    for buffer in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        port.setsockopt(socket.SOL_SOCKET, buffer, BUFFER_BYTES)
    port.bind((interface, ETH_P_IPV6))
    port.setblocking(False)
    return port
