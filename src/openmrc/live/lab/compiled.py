"""The switches of openmrc in a lab: all of them in one compiled loop, over packet sockets.

The hosts' links end in one namespace. A packet socket is bound to each of them; the sockets are the
ports of `live.switch.switches.Switches`. The namespace has no IPv6, so its kernel does not
interfere. The loop paces what NICs send, with their classes; a bucket of the same rate on the host
stands before it, because a packet socket cannot push back on the other end of a link.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np

from openmrc.fabric.actions import PORT_RATE, FaultSchedule
from openmrc.fabric.model import LongArray
from openmrc.live.lab import namespaces as ns
from openmrc.live.lab.health import Health
from openmrc.live.lab.shapers import Shapers
from openmrc.live.lab.topology import FABRIC, Topology
from openmrc.live.lab.totals import QUEUE, Totals, of_our_switches
from openmrc.live.switch.state import DROPS
from openmrc.live.switch.switches import Switches

ETH_P_IPV6 = 0x86DD
SOL_PACKET, PACKET_IGNORE_OUTGOING = 263, 23
PATIENCE_S = 2.0  # loading compiled code takes a fraction of it
COMPILING = "Compiling the switches, once for this version: up to a minute."
BUFFER_BYTES = 4 << 20  # the kernel grants part of it: net.core.rmem_max


class CompiledFabric:
    """The switches of a lab as one loop on a thread of this process."""

    def __init__(
        self,
        topology: Topology,
        namespaces: ns.Namespaces,
        queues: Any,
        seed: int,
        **sizes: Any,
    ) -> None:
        """`sizes` (`pmtu`, `base_rtt_ps`, `senders_per_nic`) determine the sizes of queues."""
        self.health = Health(topology.fabric)
        self._topology = topology
        self._namespaces = namespaces
        self._queues = queues
        self._shapers = Shapers(topology, queues)
        self._nic_ports = range(topology.fabric.n_nics * topology.fabric.n_planes)
        self._seed = seed
        self._sizes = sizes
        self._sockets: list[socket.socket] = []
        self._switches: Any = None

    def prepare(self) -> None:
        """Keep the kernel silent on interfaces that will be created."""
        with self._namespaces.inside(FABRIC):
            ns.set_sysctl("ipv6/conf/default/disable_ipv6", 1)

    def bring_up(self) -> None:
        """Set the existing interfaces up, bind a socket to each, and start the loop."""
        with self._namespaces.inside(FABRIC):
            for link in self._topology.links:
                ns.clear_offloads(link.upper.interface)
                ns.set_link(link.upper.interface, True)
                self._sockets.append(_port_socket(link.upper.interface))
        fds = np.array([port.fileno() for port in self._sockets], np.int32)
        self._switches = Switches(
            self._topology.fabric,
            self._queues,
            fds,
            seed=self._seed,
            mtu=self._topology.settings.mtu,
            **self._sizes,
        )
        self._switches.start()
        self._wait()

    def batches(self) -> list[ns.Batch]:
        """Return the buckets of the hosts' ports; there are no routes."""
        return self._shapers.first(self._nic_ports)

    def refuse(self, schedule: FaultSchedule) -> None:
        """Refuse nothing: every action of a switch or link is carried out."""

    def start(self, schedule: FaultSchedule) -> FaultSchedule:
        """Start the schedule, whose time 0 is now.

        Returns the part for the lab's clock: the states of NICs' links, and a record of the other
        actions.
        """
        self._switches.play(schedule)
        return schedule

    def stop(self) -> None:
        """End the loop and close the ports."""
        if self._switches is not None:
            self._switches.close()
        for port in self._sockets:
            port.close()

    def _wait(self) -> None:
        """Wait for the loop's first turn: the loop may have to be compiled first."""
        started, told = time.monotonic(), False
        while self._switches.counters().turns == 0:
            if not self._switches.running:
                raise ns.LabError("the switches ended before they started; see mrc doctor")
            if not told and time.monotonic() > started + PATIENCE_S:
                told = True
                print(COMPILING, file=sys.stderr, flush=True)
            time.sleep(0.001)

    def act(self, events: Any, scheduled: bool = False) -> None:
        """Carry out EVENT records now; the switches know `scheduled` ones already."""
        before = self.health.link_up.copy()
        self.health.apply(events)
        if not scheduled:
            self._switches.act(events)
        self._namespaces.run(self._shapers.changed(self._nic_ports, self.health.level[PORT_RATE]))
        with self._namespaces.inside(FABRIC):
            for port in (self.health.link_up != before).nonzero()[0].tolist():
                end = self._topology.switch_end(port)
                ns.set_link(end.interface, bool(self.health.link_up[port]))

    def counters(self) -> dict[str, Any]:
        """Return the loop's counters by switch: packets, bytes, marks, trims, drops."""
        rows = [dict(row) for row in self._switches.counters().by_switch()]
        return {row.pop("switch"): row for row in rows}

    def totals(self) -> Totals:
        """Return the loop's counters, summed over all switches."""
        return of_our_switches(self._switches.counters())

    def queue_drops(self) -> LongArray:
        """Return, by directed port, the packets for which its queue had no room."""
        dropped = self._switches.counters().dropped
        return np.asarray(dropped[:, [DROPS.index(it) for it in QUEUE]].sum(axis=1), np.int64)

    def tap(self, ports: Sequence[int], stream: BinaryIO) -> Any:
        """Start a capture of these directed ports; `close` ends it."""
        return self._switches.tap(ports, stream)


def _port_socket(interface: str) -> socket.socket:
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    port.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    for buffer in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        port.setsockopt(socket.SOL_SOCKET, buffer, BUFFER_BYTES)
    port.bind((interface, ETH_P_IPV6))
    port.setblocking(False)
    return port
