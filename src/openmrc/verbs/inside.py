"""A live fabric inside one process: switches and devices, joined by local sockets.

For tests, for a first look, and for machines that allow no namespaces (`switch = "overlay"` of the
lab's three kinds). The frames, the switches and the devices are those of a lab.

    with Inside(multiplane(8, 4, 100_000_000, 4, 2, 0, 0)) as fabric:
        a, b = fabric.device(0), fabric.device(7)
        qa, qb = fabric.connect(a, b)
        fabric.fail("plane 1 t0 *")
"""

from __future__ import annotations

import os

import numpy as np

from openmrc.fabric import places
from openmrc.fabric.actions import EVENT, PORT_DOWN, PORT_LOSS, PORT_UP, FaultSchedule
from openmrc.fabric.model import Fabric
from openmrc.fabric.queues import Queues
from openmrc.live.closing import Closing
from openmrc.live.endpoint.limits import Limits, Port
from openmrc.live.overlay import overlay_ports
from openmrc.live.switch.switches import Switches
from openmrc.verbs.cq import CompletionQueue
from openmrc.verbs.device import Device
from openmrc.verbs.qp import QueuePair
from openmrc.wire.framing import MRC_FRAMING

HOST_PS = 1_000_000_000  # what threads of one process may add to a round trip


class Inside(Closing):
    """A fabric that is up; `base_rtt_ps` is T for switches and devices (`None`: the fabric's own,
    and a millisecond for the threads).
    """

    def __init__(
        self,
        fabric: Fabric,
        queues: Queues | None = None,
        limits: Limits | None = None,
        base_rtt_ps: int | None = None,
        seed: int = 1,
    ) -> None:
        self.fabric = fabric
        self.limits = limits or Limits()
        self.base_rtt_ps = (
            base_rtt_ps or MRC_FRAMING.base_rtt_ps(fabric, self.limits.pmtu) + HOST_PS
        )
        self._ends = overlay_ports(fabric.n_nics * fabric.n_planes, "local")
        self.switches = Switches(
            fabric,
            queues or Queues(),
            self._ends.switch,
            seed,
            pmtu=self.limits.pmtu,
            base_rtt_ps=self.base_rtt_ps,
        )
        self._devices: dict[int, Device] = {}
        self.switches.start()

    def device(self, nic: int) -> Device:
        """Return the device of a NIC, opened on first use."""
        if nic not in self._devices:
            first = self.fabric.nic_port(nic, 0)
            fds = self._ends.endpoint[first : first + self.fabric.n_planes]
            ports = [Port(int(fd), bytes(6)) for fd in fds]
            self._devices[nic] = Device(self.fabric, nic, ports, self.limits, self.base_rtt_ps)
        return self._devices[nic]

    def connect(
        self,
        one: Device,
        other: Device,
        queues: tuple[CompletionQueue | None, CompletionQueue | None] = (None, None),
    ) -> tuple[QueuePair, QueuePair]:
        """Return a queue pair from one device to the other, in RTS at both ends."""
        pairs = [
            device.create_qp(cq or device.create_cq())
            for device, cq in zip((one, other), queues, strict=True)
        ]
        pairs[0].connect(pairs[1].attributes)
        pairs[1].connect(pairs[0].attributes)
        return pairs[0], pairs[1]

    def play(self, schedule: FaultSchedule) -> None:
        """Start a schedule of faults now."""
        self.switches.play(schedule)

    def fail(self, place: str) -> None:
        """Cut the links of a place (`fabric.places`): "plane 1 t0 *" is the
        whole plane, "nic 3 plane 0 < t0" one direction of one."""
        self._act(place, PORT_DOWN)

    def lose(self, place: str, rate: float) -> None:
        """Let the links of a place lose this fraction of their frames from now on; 1 is a black
        hole.
        """
        self._act(place, PORT_LOSS, rate)

    def heal(self, place: str) -> None:
        """Repair the links of a place."""
        self._act(place, PORT_UP)
        self._act(place, PORT_LOSS)

    def _act(self, place: str, action: int, rate: float = 0.0) -> None:
        ports = places.ports(self.fabric, place)
        events = np.zeros(len(ports), EVENT)
        events["action"], events["target"], events["rate"] = action, ports, rate
        self.switches.act(events)

    def close(self) -> None:
        """Close every device, then the switches."""
        for device in self._devices.values():
            device.close()
        self.switches.close()
        for fd in (*self._ends.switch.tolist(), *self._ends.endpoint.tolist()):
            os.close(fd)
