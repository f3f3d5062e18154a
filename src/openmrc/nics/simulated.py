"""NICs of a simulated world with the 14 functions of mrc_ctl.h, and all of their agents with a
controller, in virtual time: what runs here runs over a library of C.

All queue pairs of a NIC use EV profile 0, in which they have drawn their own paths, unless
`profile` names another: those that send take its EVs once it is ONLINE. A probe finds what its path
is at the moment when it is sent: ports that are down, switches that are silent, chances to lose a
packet, drawn from a stream of its own. It takes no place in a queue, so its time is that of an idle
fabric; and a call takes no virtual time.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np

from openmrc.capi.control import formats, layouts, profiles
from openmrc.capi.control.formats import Ev
from openmrc.capi.control.layouts import ASSUMED_BAD, DENIED, GOOD
from openmrc.capi.control.profiles import (
    AUTO,
    EXPLICIT,
    STEV,
    CcProfile,
    EvProfile,
    FormatProfile,
    Limits,
    Profiles,
    State,
)
from openmrc.capi.control.queues import EvEvent
from openmrc.capi.places import Refused
from openmrc.engine import endpoint, place
from openmrc.engine import ev as engine_evs
from openmrc.fabric.health import CERTAIN
from openmrc.fabric.model import Fabric, IntArray
from openmrc.fabric.ways import routes
from openmrc.nics.agent import NicAgent
from openmrc.nics.nic import (
    HAS_EVENTS,
    HAS_PROBES,
    MODIFIES_ONLINE,
    MODIFY_STATE,
    REPLACE,
    Answer,
    Device,
    Entry,
    Request,
    Shown,
)
from openmrc.nics.plan import WIDTH
from openmrc.ops import causes
from openmrc.ops.evs import EvSchedule
from openmrc.ops.mapper.bursts import Order
from openmrc.ops.mapper.collector import Collector, Place
from openmrc.sim.world import World
from openmrc.units import NS
from openmrc.verbs.denylist import DENIED_MAX
from openmrc.wire.framing import MRC_FRAMING

EVS_MAX = 4096  # of a profile
PMTU = 4096
STATES = {GOOD: engine_evs.GOOD, ASSUMED_BAD: engine_evs.ASSUMED_BAD, DENIED: engine_evs.DENIED}


class SimulatedNic:
    """A NIC of `world`, which has one shard; `gids` are the numbers of all by GID, and `profile` is
    the EV profile of its queue pairs.
    """

    def __init__(
        self, world: World, nic: int, gids: Mapping[bytes, int], profile: int = 0, seed: int = 1
    ) -> None:
        self._world, self._nic, self._gids, self._profile = world, nic, gids, profile
        self._draw = np.random.default_rng([seed, nic])
        fabric, engine = world.fabric, world.engine
        own = np.flatnonzero(world.ends.sends & (world.ends.nic == nic)).tolist()
        self._qps = [(end, place.evs(engine.qp[end])) for end in own]
        limits = Limits(fabric.n_planes, EVS_MAX, STEV, AUTO | EXPLICIT)

        def bound(one: profiles.Profile) -> int:
            """The queue pairs that use a profile: from when it is ONLINE."""
            return len(own) if (one.number, one.state) == (profile, State.ONLINE) else 0

        self._profiles = Profiles(limits, bound)
        self._events: deque[EvEvent] | None = None
        self._bad: set[Ev] = set()

    # --- device and ports

    def query_version(self) -> int:
        """The version of this half of the API."""
        return layouts.API_VERSION

    def query_device(self) -> Device:
        """What may be configured."""
        ports = tuple(range(1, self._world.fabric.n_planes + 1))
        options = MODIFIES_ONLINE | HAS_EVENTS | HAS_PROBES
        return Device(ports, EVS_MAX, len(ports), WIDTH, STEV, AUTO | EXPLICIT, 0, options)

    def query_device_ex(self) -> tuple[Device, bool]:
        """The same; MRC is supported."""
        return self.query_device(), True

    def query_port(self, port: int) -> bool:
        """Whether a port is enabled: it always is."""
        self._check(port)
        return True

    def modify_port(self, port: int, enabled: bool) -> None:
        """ENOTSUP: ports of a simulated NIC go down by faults of its world."""
        self._check(port)
        if not enabled:
            raise Refused(errno.ENOTSUP, f"port {port}: a fault of the world takes it down")

    def _check(self, port: int) -> None:
        if not 1 <= port <= self._world.fabric.n_planes:
            raise Refused(errno.EINVAL, f"port {port}: 1 to {self._world.fabric.n_planes}")

    # --- profiles

    def modify_ev_fmt_profile(
        self, number: int, to: State | None = None, mode: int = 0, widths: Sequence[int] = ()
    ) -> None:
        """Give a format its mode, and fields of these widths, and lead it to a state."""
        one: FormatProfile = self._profiles.find(self._profiles.format, FormatProfile, number)
        changes = {"mode": mode, "widths": tuple(widths)} if widths else {}
        self._profiles.modify_format(one, one.state if to is None else to, changes)

    def query_ev_fmt_profile(self, number: int) -> Shown:
        """Read a format: mode and widths."""
        one: FormatProfile = self._profiles.find(self._profiles.format, FormatProfile, number)
        widths = ", ".join(map(str, one.widths))
        return Shown(one.state, {"mode": one.mode, "widths": widths})

    def modify_ev_profile(
        self,
        number: int,
        to: State | None = None,
        op: tuple[int, Sequence[Entry]] | None = None,
        attributes: Mapping[str, int] | None = None,
    ) -> None:
        """Change an EV profile, do one operation for each of these EVs, and lead it to a state."""
        one: EvProfile = self._profiles.find(self._profiles.ev, EvProfile, number)
        names = {"fmt_profile_id": "format"}
        changes = {names.get(name, name): value for name, value in (attributes or {}).items()}
        self._profiles.modify_ev(one, one.state if to is None else to, changes)
        kind, entries = (0, ()) if op is None else op
        for each in entries:
            if kind == REPLACE:
                every = bool(each.flags)
                self._profiles.replace(one, each.ev, each.new, each.state, every)
            elif kind == MODIFY_STATE and one.state == State.ONLINE:
                self._profiles.know(one, each.ev)
                one.rows["state"][one.where(each.ev)] = DENIED if each.state == DENIED else GOOD
                self._declare(one, each.ev, each.state)
            else:
                raise Refused(errno.EINVAL, f"{one}: operation {kind} in {one.state.name}")
        if one.state == State.ONLINE and (to is not None or kind == REPLACE):
            self._follow(one)

    def query_ev_profile(self, number: int) -> Shown:
        """Read an EV profile, and its EVs."""
        one: EvProfile = self._profiles.find(self._profiles.ev, EvProfile, number)
        mine = self._profile == number
        states = self._states() if mine else {}
        known = states if one.mode == AUTO else one.evs
        evs = {ev: ASSUMED_BAD if states.get(ev) else GOOD for ev in known}
        evs |= dict.fromkeys(one.denied, DENIED)
        attributes = {"mode": one.mode, "count": len(evs), "min_active": one.min_active}
        return Shown(one.state, attributes | {"event_mask": one.event_mask}, evs)

    def modify_cc_profile(
        self, number: int, to: State | None = None, config: Mapping[str, float] | None = None
    ) -> None:
        """Keep a profile of NSCC; a simulated queue pair has the values of its scenario."""
        one: CcProfile = self._profiles.find(self._profiles.cc, CcProfile, number)
        changes: profiles.Changes = {} if config is None else {"config": dict(config)}
        if to == State.OFFLINE:
            changes["algorithm"] = layouts.NSCC_NAME
        self._profiles.modify_cc(one, one.state if to is None else to, changes)

    def query_cc_profile(self, number: int) -> Shown:
        """Read a profile of congestion control."""
        one: CcProfile = self._profiles.find(self._profiles.cc, CcProfile, number)
        return Shown(one.state, {"algorithm": one.algorithm, **one.config})

    def _declare(self, one: EvProfile, ev: Ev, state: int) -> None:
        """Queue pairs of a profile hold an EV to be in this state."""
        if one.number != self._profile:
            return
        engine, now = self._world.engine, self._world.now_ps
        value, plane = int.from_bytes(ev.value[: WIDTH // 8], "big"), ev.port - 1
        for end, evs in self._qps:
            own = engine.ev[evs]
            for i in np.flatnonzero((own.value == value) & (own.plane == plane)).tolist():
                endpoint.declare(engine, engine.qp[end], i, STATES[state], now)

    def _follow(self, one: EvProfile) -> None:
        """Queue pairs of a profile take its EVs, over and over where they have more paths."""
        if one.number != self._profile or one.mode == AUTO:
            return
        engine, now = self._world.engine, self._world.now_ps
        given: list[list[int]] = [[] for _ in range(self._world.fabric.n_planes)]
        for ev in one.evs:
            given[ev.port - 1].append(int.from_bytes(ev.value[: WIDTH // 8], "big"))
        for end, evs in self._qps:
            turn = [0] * len(given)
            for i, plane in enumerate(engine.ev.plane[evs].tolist()):
                value = given[plane][turn[plane] % len(given[plane])]
                turn[plane] += 1
                if int(engine.ev.value[evs][i]) != value:
                    endpoint.replace(engine, engine.qp[end], i, value, now)
        for ev in one.denied:
            self._declare(one, ev, DENIED)

    # --- events and probes

    def create_ev_event_cq(self, entries: int) -> None:
        """Create the queue of EV events."""
        self._events = deque(maxlen=entries)

    def poll_ev_event(self, most: int) -> list[EvEvent]:
        """Take the oldest events: EVs that any queue pair has come to hold to be bad, or good."""
        if self._events is None:
            raise Refused(errno.EINVAL, "no queue of EV events")
        one = self._profiles.ev[self._profile]
        bad = {ev for ev, is_bad in self._states().items() if is_bad} - one.denied
        for ev in sorted(bad ^ self._bad):
            state = ASSUMED_BAD if ev in bad else GOOD
            if one.event_mask & state and ev not in one.denied:
                self._events.append(EvEvent(self._profile, ev, state, 0))
        self._bad = bad
        return [self._events.popleft() for _ in range(min(most, len(self._events)))]

    def _states(self) -> dict[Ev, bool]:
        """The EVs of the queue pairs, and whether one holds them to be bad."""
        found: dict[Ev, bool] = {}
        for _, evs in self._qps:
            own = self._world.engine.ev[evs]
            bad = own.state == engine_evs.ASSUMED_BAD
            rows = zip(own.value.tolist(), own.plane.tolist(), bad.tolist(), strict=True)
            for value, plane, is_bad in rows:
                ev = formats.packed(value, WIDTH, plane + 1)
                found[ev] = found.get(ev, False) or is_bad
        return found

    def ep_batch_send_wait(self, requests: Sequence[Request], timeout_ns: int) -> list[Answer]:
        """Probe, and return what was answered."""
        fabric = self._world.fabric
        to = np.array([self._gids.get(one.to, -1) for one in requests])
        evs = np.array([int.from_bytes(one.ev.value[: WIDTH // 8], "big") for one in requests])
        if ((to < 0) | (to == self._nic)).any():
            raise Refused(errno.EINVAL, "dgid: no other NIC's")
        own = np.full(len(to), self._nic)
        there, back = routes(fabric, own, to, evs), routes(fabric, to, own, evs)
        passes = self._passes(np.concatenate([there, back], axis=1))
        rtt_ns = MRC_FRAMING.base_rtt_ps(fabric, PMTU) // NS
        if rtt_ns > timeout_ns:
            return []
        rows = zip(requests, passes.tolist(), strict=True)
        return [Answer(one.number, one.ev.port, rtt_ns) for one, came in rows if came]

    def _passes(self, ways: IntArray) -> np.ndarray:
        """Which of some packets pass all of their ports now."""
        net, fabric = self._world.net, self._world.fabric
        loss = np.asarray(net.health.loss, np.float64) / CERTAIN
        dead = np.asarray(net.port.up) == 0
        silent = np.append(np.asarray(net.switch.silent) != 0, False)
        beside = silent[fabric.port_peer_switch] | silent[fabric.port_switch]
        fails = np.logical_or(dead, beside)
        chance = np.append(np.where(fails, 1.0, loss), 0.0)[ways]
        return np.asarray(np.all(self._draw.random(ways.shape) >= chance, axis=1))


class Controlled:
    """A world with an agent on every NIC and a controller, which follow virtual time. `found` are
    the places that the controller has named.
    """

    def __init__(self, world: World, schedule: EvSchedule, profile: int = 0) -> None:
        self.world, self.schedule = world, schedule
        n = world.fabric.n_nics
        gids = [nic.to_bytes(16, "big") for nic in range(n)]
        numbers = {gid: nic for nic, gid in enumerate(gids)}
        self.told: list[str] = []
        self.agents = [
            NicAgent(
                SimulatedNic(world, nic, numbers, profile), schedule, nic, gids,
                self.told.append, lambda: world.now_ps, profile,
            )
            for nic in range(n)
        ]  # fmt: skip
        self.collector = Collector(schedule, world.now_ps)
        for agent in self.agents:
            agent.start()
            self.collector.join(world.now_ps, agent.nic)
        self.found: list[Place] = []
        self._period = 0
        self._denied = np.zeros(0, np.int64)

    def run(self, until_ps: int) -> bool:
        """Run whole periods until a time; True if the workload has ended."""
        ended = False
        while not ended and (due_ps := (self._period + 1) * self.schedule.period_ps) <= until_ps:
            ended = self.world.run(due_ps)
            self._round(due_ps)
        return ended

    def _round(self, now_ps: int) -> None:
        self._period += 1
        self._hear(now_ps, self._period)
        said = self.collector.tick(now_ps)
        self.found += [place for place in said.changed if place.named_ps == now_ps]
        for order in said.orders:
            if isinstance(order, Order):
                for nic in order.to:
                    self.agents[nic].ask(order.burst, order.port, order.n)
        self._deny()

    def _hear(self, now_ps: int, period: int) -> None:
        for agent in self.agents:
            agent.hear()
            report = agent.round(period)
            self.collector.hear(now_ps, agent.nic, report, agent.down())

    def _deny(self) -> None:
        fabric: Fabric = self.world.fabric
        places = self.collector.places
        ports = [causes.links_of(fabric, cause) for cause in places]
        denied = np.unique(np.concatenate([np.zeros(0, np.int64), *ports]))
        if len(denied) > DENIED_MAX * fabric.n_ports or np.array_equal(denied, self._denied):
            return
        self._denied = denied
        for agent in self.agents:
            agent.keep_off(denied)
