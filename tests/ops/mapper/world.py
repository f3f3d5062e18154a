"""Agents and a collector in virtual time, over links that lose what the test says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from openmrc.fabric import Fabric, multiplane
from openmrc.fabric.places import links
from openmrc.ops import schedule as sc
from openmrc.ops.mapper.agent import Agent
from openmrc.ops.mapper.bursts import Count, Order
from openmrc.ops.mapper.collector import Collector, Place, Said
from openmrc.ops.mapper.probe import CHECK, SCHEDULED, ByteArray, payloads
from openmrc.units import MS, US

STEP_PS = MS
_NOTHING = np.zeros(0)


class Heard(NamedTuple):
    """What a probe that arrived says of itself."""

    kind: int
    plane: int
    nic: int
    period: int  # of a burst: its number
    number: int


def packed(heard: Sequence[Heard]) -> ByteArray:
    """These probes as bytes, [n, PAYLOAD_BYTES]."""
    kinds, planes, nics, periods, numbers = zip(*heard, strict=True) if heard else [()] * 5
    return payloads(kinds, nics, planes, periods, numbers)


def small() -> sc.Schedule:
    fabric = multiplane(8, 4, 10**8, 4, 2, 0, 0)
    return sc.make(fabric, period_ps=20 * MS, load_max=0.01)


@dataclass
class World:
    """Every millisecond: what arrived is handed over, agents act, words reach the collector.

    Its switches are one process, which may stand still while the agents run (`still`).
    """

    schedule: sc.Schedule
    seed: int = 1
    turn_ms: float = 0.0  # agents share processors: of those asked, one after the other obeys
    now_ps: int = 0
    alive: set[int] = field(default_factory=set)
    trip_ms: float = 0.0  # at most; but local loops, in which no queue is, take no time
    still: tuple[int, int] = (0, 0)  # ps; what would arrive meanwhile, does when it is over
    stalled_until_ps: int = -1  # nothing arrives before
    sent: int = 0
    first_lost_ps: int | None = None
    dark: dict[int, tuple[int, ...]] = field(default_factory=dict)  # planes without carrier, by NIC
    found: list[tuple[int, Place]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.fabric: Fabric = self.schedule.fabric
        self.loss, self.broken = np.zeros(self.fabric.n_ports), False
        self.rng = np.random.default_rng(self.seed)
        self.collector = Collector(self.schedule, 0)
        self.agents: dict[int, Agent] = {}
        self.under_way: dict[int, list[tuple[int, Heard]]] = {}  # when each arrives
        self.orders: list[Order | Count] = []
        self._ordered: list[tuple[int, int, Order | Count]] = []  # when, to whom
        self._turns = np.random.default_rng([self.seed, 1])
        self._trips = np.random.default_rng([self.seed, 2])
        self._told: dict[int, tuple[int, ...]] = {}
        for nic in range(self.fabric.n_nics):
            self.start(nic)

    def start(self, nic: int) -> None:
        # Agents do not begin at one instant.
        self.agents[nic] = Agent(
            self.schedule,
            nic,
            self.now_ps + nic * 1700 * US,
            self.now_ps // self.schedule.period_ps,
        )
        self.collector.join(self.now_ps, nic)
        self.alive.add(nic)
        self.under_way[nic] = []

    def kill(self, nic: int) -> None:
        self.alive.discard(nic)
        self.collector.leave(nic)

    def lose(self, where: str, rate: float = 1.0) -> None:
        self.loss[links(self.fabric, where)] = rate
        self.broken = bool(self.loss.any())

    def run(self, ms: int) -> None:
        for _ in range(ms):
            self.now_ps += STEP_PS
            self._deliver()
            due = [one for one in self._ordered if one[0] <= self.now_ps]
            self._ordered = [one for one in self._ordered if one[0] > self.now_ps]
            for nic in sorted(self.alive):
                self._act(nic, [order for _, to, order in due if to == nic])
            self._said(self.collector.tick(self.now_ps))

    def _deliver(self) -> None:
        asked = sorted({nic for order in self.orders for nic in order.to})
        for turn, nic in enumerate(self._turns.permutation(asked).tolist(), 1):
            at_ps = self.now_ps + round(turn * self.turn_ms * MS * self._turns.uniform(0.6, 1.4))
            self._ordered += [(at_ps, nic, order) for order in self.orders if nic in order.to]
        self.orders = []

    def names(self) -> set[str]:
        return {place.where for place in self.collector.places.values()}

    def _act(self, nic: int, orders: list[Order | Count]) -> None:
        agent = self.agents[nic]
        if orders and self.now_ps >= self.stalled_until_ps:
            self._arrive(nic)
        for one in orders:
            if isinstance(one, Count):
                self.collector.bursts.counted(self.now_ps, nic, agent.count(one.burst))
            else:
                agent.ask(one.burst, one.port, one.n)
        if self.now_ps < agent.next_ps and not orders:
            if self.dark.get(nic, ()) != self._told.get(nic, ()):
                self._tell(nic)
            return
        if self.now_ps >= self.stalled_until_ps:
            self._arrive(nic)
        for send in agent.due(self.now_ps):
            if send.kind == SCHEDULED:
                order = agent.orders[send.period % sc.TURNS]
                rows = [(order.routes[i], order.planes[i]) for i in send.numbers]
            elif send.kind == CHECK:
                own = [nic * self.fabric.n_planes + plane for plane in send.numbers]
                back = self.fabric.port_reverse[own].tolist()
                rows = [([own[i], back[i]], i) for i in range(len(own))]
            else:
                assert send.routes is not None
                n_planes = self.fabric.n_planes
                rows = [(route, route[0] % n_planes) for route in send.routes.tolist()]
            for number, (route, plane) in zip(send.numbers, rows, strict=True):
                self._send(route, Heard(send.kind, plane, nic, send.period, number))
        self._tell(nic)

    def _tell(self, nic: int) -> None:
        down = self.dark.get(nic, ())
        at_once = down != self._told.get(nic, ())
        report = self.agents[nic].report(self.now_ps, at_once)
        if report is not None:
            self._told[nic] = down
            self.orders += self.collector.hear(self.now_ps, nic, report, down)

    def _arrive(self, nic: int) -> None:
        ways = self.under_way[nic]
        self.agents[nic].arrive(self.now_ps, packed([one for at, one in ways if at <= self.now_ps]))
        self.under_way[nic] = [(at, one) for at, one in ways if at > self.now_ps]

    def _send(self, route: list[int], probe: Heard) -> None:
        ports = [port for port in route if port >= 0]
        self.sent += 1
        risk = self.loss[ports] if self.broken else _NOTHING
        if len(risk) and (self.rng.random(len(ports)) < risk).any():
            self.first_lost_ps = self.now_ps if self.first_lost_ps is None else self.first_lost_ps
            return
        to = int(self.fabric.port_peer_nic[ports[-1]])
        self._carry(to, self.trip_ms if len(ports) > 2 or to != probe.nic else 0.0, probe)

    def _carry(self, to: int, trip_ms: float, probe: Heard) -> None:
        at_ps = self.now_ps + round(self._trips.uniform(0, trip_ms) * MS)
        if self.still[0] <= at_ps < self.still[1]:
            at_ps = self.still[1]
        self.under_way.setdefault(to, []).append((at_ps, probe))

    def _said(self, said: Said) -> None:
        self.orders += said.orders
        self.found += [(self.now_ps, place) for place in said.changed]
