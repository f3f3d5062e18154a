"""What profiles do to the queue pairs of the device, and what these say of their EVs."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable

from openmrc.capi.control import formats, profiles
from openmrc.capi.control.formats import Ev
from openmrc.capi.control.profiles import (
    ASSUMED_BAD,
    AUTO,
    DENIED,
    GOOD,
    CcProfile,
    EvProfile,
    Profile,
    Profiles,
)
from openmrc.capi.control.queues import EventQueue
from openmrc.capi.places import Refused
from openmrc.engine import ev, setup
from openmrc.live.endpoint import control, state
from openmrc.units import NS
from openmrc.verbs import AsyncEvent, EventKind, QpState, QueuePair
from openmrc.verbs.device import Device

STATES = {GOOD: ev.GOOD, ASSUMED_BAD: ev.ASSUMED_BAD, DENIED: ev.DENIED}
BAD_NAME = ev.EV_STATES[ev.ASSUMED_BAD]
PERCENT = 100

Users = Callable[[Profile], Iterable[QueuePair]]


class Live:
    """The profiles of an open device. `users` are the queue pairs that obey one of them."""

    def __init__(self, device: Device, users: Users) -> None:
        self._device, self._host, self._users = device, device._host, users
        n = device.n_planes
        self._per_qp = n * self._host._evs
        is_ip = self._host.mode == state.IP
        limits = profiles.Limits(
            ports=n,
            evs=self._per_qp,
            format_modes=profiles.UDP if is_ip else profiles.STEV,
            ev_modes=AUTO | profiles.EXPLICIT | (0 if is_ip else profiles.GENERATED),
        )
        self.profiles = Profiles(limits, lambda one: sum(1 for _ in users(one)))
        self.profiles.ev[0].min_active = self._per_qp * setup.KEEP_PERCENT // PERCENT
        self.queues: list[EventQueue] = []
        self._bad: dict[tuple[int, Ev], set[int]] = {}  # queue pairs that hold an EV to be bad
        self._lost = 0  # events of the device that had no room, as last read
        self._slots: dict[int, int] = {}  # records of NSCC, by CC profile

    @property
    def wire_bits(self) -> int:
        """The width of an EV in a packet of this device."""
        return profiles.WIRE_BITS[self.profiles.limits.format_modes]

    # --- paths

    def key(self, one: EvProfile, ev: Ev) -> control.EvKey:
        """An EV of a profile as the device has it: its value in a packet, and its plane."""
        if one.mode != AUTO:
            return self.profiles.wire(one, ev), ev.port - 1
        return formats.expanded(ev, [self.wire_bits], (), self.wire_bits), ev.port - 1

    def check(self, one: EvProfile, ev: Ev) -> None:
        """EINVAL for an EV that the device cannot send on: on an ordinary network it is the number
        of a socket's port.
        """
        value, plane = self.key(one, ev)
        if self._host.reach and value not in self._host.reach[plane].sources:
            raise Refused(errno.EINVAL, f"port {value} is no source port of plane {plane}")

    def paths(self, one: EvProfile) -> control.Paths:
        """The paths of a new queue pair."""
        by_plane: list[list[int]] = [[] for _ in range(self._device.n_planes)]
        for each in one.evs:
            value, plane = self.key(one, each)
            by_plane[plane].append(value)
        total = one.count or self._per_qp
        keep = -(-PERCENT * min(one.min_active, total) // total)
        evs = tuple(map(tuple, by_plane)) if one.evs else ()
        return control.Paths(evs, frozenset(self.key(one, each) for each in one.denied), keep)

    def follow(self, one: EvProfile) -> None:
        """Queue pairs of a profile take its EVs, and what is denied of them."""
        host, paths = self._host, self.paths(one)

        def place(i: int) -> None:
            if paths.evs:
                control.replace(host.ep, host.st, i, paths.evs)
            setup.keep_in_service(host.st, i, paths.keep_percent)
            host.declare(i, dict.fromkeys(paths.denied, ev.DENIED), holds=True)

        self._for_users(one, place)

    def _for_users(self, one: Profile, change: Callable[[int], None]) -> None:
        """Change the queue pairs of a profile, all between the same two rounds of the loop, those
        that are connected then.
        """
        pairs = list(self._users(one))

        def do() -> None:
            for pair in pairs:
                if pair.state == QpState.RTS:
                    change(pair.index)

        if pairs:
            # On this thread: a change of threads takes ten times as long as what is done.
            self._host.between(do)

    def declare(self, one: EvProfile, each: Ev, to: int) -> None:
        """An EV of a profile is in this state, for all of its queue pairs, and for later ones."""
        key = self.key(one, each)
        (one.denied.add if to == DENIED else one.denied.discard)(each)
        if to != ASSUMED_BAD:
            self._bad.pop((one.number, each), None)
        for pair in self._users(one):
            if pair.state == QpState.RTS:
                self._host.declare(pair.index, {key: STATES[to]})

    def seen(self, one: EvProfile) -> dict[Ev, int]:
        """The EVs that queue pairs of a profile have, and what they hold them to be: ASSUMED_BAD if
        any does.
        """
        names = {self.key(one, each): each for each in one.evs}
        found: dict[Ev, int] = {}
        for pair in self._users(one):
            for path in pair.evs():
                key = (path["ev"], path["plane"])
                each = names.get(key) or self.ev_of(key)
                if found.get(each) != ASSUMED_BAD:
                    found[each] = ASSUMED_BAD if path["state"] == BAD_NAME else GOOD
        return {each: DENIED if each in one.denied else to for each, to in found.items()}

    def ev_of(self, key: control.EvKey) -> Ev:
        """An EV of the device, for a profile without a form of its own."""
        return formats.packed(key[0], self.wire_bits, key[1] + 1)

    # --- events

    def hear(self, event: AsyncEvent, one: EvProfile | None) -> None:
        """The device reports a path of a queue pair with this profile: tell the queues what has
        changed for the profile.
        """
        lost = int(self._host.ep.ctl[0].events_lost)
        for queue in self.queues:
            queue.lose(lost - self._lost)
        self._lost = lost
        if one is None:
            return
        key = (event.ev, event.plane)
        names = {self.key(one, each): each for each in one.evs}
        each = names.get(key) or self.ev_of(key)
        holders = self._bad.setdefault((one.number, each), set())
        was_bad = bool(holders)
        (holders.add if event.kind == EventKind.PATH_BAD else holders.discard)(event.qp_num)
        if not holders:
            del self._bad[one.number, each]
        now = ASSUMED_BAD if holders else GOOD
        if bool(holders) != was_bad and one.event_mask & now and each not in one.denied:
            for queue in self.queues:
                queue.put(one.number, each, now)

    def forget(self, qp_num: int) -> None:
        """A queue pair is gone: what it held to be bad is nobody's opinion."""
        for key, holders in list(self._bad.items()):
            holders.discard(qp_num)
            if not holders:
                del self._bad[key]

    # --- congestion control

    def derived(self) -> dict[str, float]:
        """What NSCC derives from the device's rate and T: fields of `layouts.NSCC_CFG`."""
        host = self._host
        found = setup.derived_nscc(host.st, host.rate_bps * self._device.n_planes)
        return {
            "disable_qa": found["without_qa"],
            "adjust_bytes_threshold": round(found["adjust_bytes"]),
            "adjust_period_threshold": found["adjust_ps"] // NS,
            "base_rtt": found["base_rtt"] // NS,
            "max_cwnd": round(found["max_wnd"]),
            "qa_gate": found["qa_gate"],
            "qa_threshold": round(found["qa_threshold"] / NS),
            "target_delay": found["target"] // NS,
            **{name: found[name] for name in ("eta", "fi", "fi_scale", "gamma", "max_md_jump")},
        }

    def obey(self, one: CcProfile) -> None:
        """The queue pairs of a profile act by it from now on."""
        if one.state != profiles.State.ONLINE:
            self._slots.pop(one.number, None)
            return
        number = self.slot(one)
        config = one.config or self.derived()
        values = {
            "gamma": config["gamma"],
            "max_md_jump": config["max_md_jump"],
            "eta": config["eta"],
            "fi": config["fi"],
            "fi_scale": config["fi_scale"],
            "max_wnd": config["max_cwnd"],
            "adjust_bytes": config["adjust_bytes_threshold"],
            "adjust_ps": config["adjust_period_threshold"] * NS,
            "base_rtt": config["base_rtt"] * NS,
            "target": config["target_delay"] * NS,
            "qa_threshold": config["qa_threshold"] * NS,
            "qa_gate": config["qa_gate"],
            "without_qa": int(config["disable_qa"] != 0),
            "without_cc": int(one.algorithm is None),
        }
        host = self._host
        host.call(lambda: setup.set_nscc(host.st, number, **values))
        self._for_users(one, lambda i: setup.obey_nscc(host.st, i, number, int(host.ep.ctl[0].now)))

    def slot(self, one: CcProfile) -> int:
        """The record of NSCC of a profile; 0 for the device's own."""
        if one.number == 0:
            return 0
        free = set(range(1, 64)) - set(self._slots.values())
        return self._slots.setdefault(one.number, min(free, default=0))
