"""The pools of RoCEv2: every directed port is one, and each QP has the path that switches hash.

Which way a QP takes, when its NIC leaves a plane, and when routing knows of a change, is the packet
level's own code (`sim.roce.ecmp`, `sim.net.routing`), asked once for each change.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from openmrc.fabric.actions import NIC_PORT_DOWN, NIC_PORT_UP, REVIEW_PATHS
from openmrc.flow.health import Floats, Health
from openmrc.flow.state import BACK, DATA, LAST, NEVER
from openmrc.jit import compiled
from openmrc.sim.net import health as changes
from openmrc.sim.net import routing
from openmrc.sim.net.parts import Parts
from openmrc.sim.roce import ecmp
from openmrc.sim.roce.side import RoceSide
from openmrc.sim.roce.transport import RoceTransport
from openmrc.units import PS_BITS


class Hashed:
    """As `ports.OnePath`, for the QPs of RoCEv2: as many flows as QPs, in their order."""

    def __init__(self, parts: Parts, transport: RoceTransport) -> None:
        side = RoceSide(parts, transport)
        self._transport = transport
        self.values, self.ends = side.values, side.ends
        self._net, self._ro = side.net, side.state
        self._reverse = parts.fabric.port_reverse
        self._n_taken = 0
        self.n_pools = parts.fabric.n_ports
        self._rate = self.values.port_rate_bps / PS_BITS
        choose_planes(self._net, self._ro)
        self._find()

    def _find(self) -> None:
        """Ask for the way of each flow."""
        self._ports = np.full((len(self.ends.sender), DATA), -1, np.int32)
        find_ways(self._net, self._ro, self.ends.sender, self._ports)

    @property
    def next_at(self) -> int:
        """When routing applies the next change, ps."""
        change = self._net.change
        return int(change.at[self._n_taken]) if self._n_taken < len(change) else NEVER

    def change(self, health: Health, faults: range, at_ps: int) -> None:
        """These faults of the schedule begin or end, and routing applies what is due."""
        for number in faults:
            break_or_mend(self._net, self._ro, number)
        last = int(np.searchsorted(self._net.change.at, at_ps, "right"))
        for number in range(self._n_taken, last):
            take_in(self._net, number)
        if last > self._n_taken:
            choose_planes(self._net, self._ro)
        self._n_taken = last
        self._find()

    def bytes_per_ps(self, health: Health) -> Floats:
        """What each pool carries, [pools]."""
        return health.bytes_per_ps()

    def ways(self, bytes_per_ps: Floats) -> npt.NDArray[np.int32]:
        """The pools of each flow, [flows, DATA + BACK], -1 where there is none."""
        return ways_of(self._ports, self._reverse)

    def planes(self, health: Health) -> Floats:
        """What the NIC's port carries of a flow that is alone, [1, flows]."""
        return np.full((1, len(self._ports)), self._rate)

    def paths(self, active: int) -> Floats:
        """How many paths each flow uses, [flows]."""
        return np.ones(len(self._ports))

    def broken(self, health: Health) -> Floats:
        """As of `ports.OnePath`."""
        return np.zeros(len(self._ports))

    def loses(self, health: Health) -> Floats:
        """The share of packets that each path loses on which others pass, [flows]."""
        ports = self._ports
        passes = np.where(ports >= 0, 1 - health.loses[ports], 1).prod(axis=1)
        lost: Floats = np.where(passes > 0, 1 - passes, 0)
        return lost

    def carried(self, health: Health) -> Floats:
        """What the path of each flow carries, [flows]; 0 without a path."""
        each = np.where(self._ports >= 0, health.bytes_per_ps()[self._ports], np.inf)
        carried: Floats = np.where(self._ports[:, 0] >= 0, each.min(axis=1), 0)
        return carried

    def timer_ps(self, epoch: int) -> int:
        """How long timer number `epoch` without progress runs, ps."""
        return int(min(self.values.rto_first_ps << epoch, self.values.rto_ps))

    @property
    def patience_ps(self) -> int:
        """How long a QP bears silence before it is in error."""
        return int((self._transport.retry_cnt + 1) * self.values.rto_ps)


def ways_of(ports: npt.NDArray[np.int32], reverse: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """The pools of flows over these ports, and those of their answers, [flows, DATA + BACK]: first
    those of NICs, -1 where none is.
    """
    found = np.full((len(ports), DATA + BACK), -1, np.int32)
    there = ports[:, 0] >= 0
    ends = (ports >= 0).sum(axis=1) - 1
    last = ports[np.arange(len(ports)), ends]
    between = np.where(np.arange(ports.shape[1]) < ends[:, None], ports, -1)[:, 1:-1]
    found[:, 0], found[:, LAST] = ports[:, 0], last
    found[:, LAST + 1 : LAST + 1 + between.shape[1]] = between
    back = np.where(between >= 0, reverse[between], -1)
    found[:, DATA + 2 : DATA + 2 + between.shape[1]] = back
    found[:, DATA] = np.where(there, reverse[last], -1)
    found[:, DATA + 1] = np.where(there, reverse[ports[:, 0]], -1)
    return found


@compiled
def choose_planes(net, ro):
    """Every QP's end chooses its plane."""
    for i in range(ro.qp.shape[0]):
        ecmp.choose_planes(net, ro.qp[i])


@compiled
def find_ways(net, ro, senders, ports):
    """Write the directed ports on each flow's current path."""
    for f in range(senders.shape[0]):
        rq = ro.qp[senders[f]]
        if rq.plane >= 0:
            n = ecmp.way(net, int(rq.nic), int(rq.peer_nic), int(rq.plane), int(rq.flow), ports[f])
            if n == 0:
                ports[f, 0] = -1
            for k in range(n, ports.shape[1]):
                ports[f, k] = -1


@compiled
def break_or_mend(net, ro, number):
    """Carry out an elementary action: what switches and NICs notice by themselves."""
    fault = net.fault[number]
    action = int(fault.action)
    if action == NIC_PORT_DOWN or action == NIC_PORT_UP:
        changes.note_nic_port(net, int(fault.target), action == NIC_PORT_UP)
        choose_planes(net, ro)
    elif action != REVIEW_PATHS:
        changes.change(net, fault, action, int(fault.target))


@compiled
def take_in(net, number):
    """Routing applies a change."""
    routing.take_in(net, net.change[number])
