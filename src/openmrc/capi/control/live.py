"""What profiles do to the queue pairs of the device, and what these say of their EVs."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from openmrc.capi.control import formats, profiles, states
from openmrc.capi.control.formats import UNPOPULATED, Ev
from openmrc.capi.control.layouts import ASSUMED_BAD, DENIED, GOOD
from openmrc.capi.control.profiles import (
    AUTO,
    CcProfile,
    EvProfile,
    Profile,
    Profiles,
    signed_id,
)
from openmrc.capi.control.queues import EventQueue
from openmrc.capi.hot import Calls
from openmrc.capi.places import Refused
from openmrc.engine import ev, setup
from openmrc.jit.bound import Bound
from openmrc.live.endpoint import control, state
from openmrc.units import NS
from openmrc.verbs import AsyncEvent, EventKind, QpState, QueuePair
from openmrc.verbs.device import Device

BAD_NAME = ev.EV_STATES[ev.ASSUMED_BAD]
PERCENT = 100

Users = Callable[[Profile], Iterable[QueuePair]]


class Live:
    """The profiles of an open device. `users` are the queue pairs that obey one of them."""

    def __init__(self, device: Device, users: Users, calls: Calls) -> None:
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
        self.profiles = Profiles(
            limits, lambda one: sum(1 for _ in users(one)), calls.profile, self._host.between
        )
        parts = (self._host.ep, self._host.st, self._host.ways, calls)
        self._change = Bound(states.change, parts, 3, keeps_gil=True)
        self.profiles.ev[0].min_active = self._per_qp * setup.KEEP_PERCENT // PERCENT
        self.queues: list[EventQueue] = []
        self._lost = 0  # events of the device that had no room, as last read
        self._slots: dict[int, int] = {}  # records of NSCC, by CC profile

    # --- paths

    def key(self, one: EvProfile, ev: Ev) -> control.EvKey:
        """An EV of a profile as the device has it: its value in a packet, and its plane."""
        return self.profiles.wire(one, ev), ev.port - 1

    def check(self, one: EvProfile, ev: Ev) -> None:
        """EINVAL for an EV that the device cannot send on: on an ordinary network it is the number
        of a socket's port.
        """
        value, plane = self.key(one, ev)
        if self._host.reach and value not in self._host.reach[plane].sources:
            raise Refused(errno.EINVAL, f"port {value} is no source port of plane {plane}")

    def paths(self, one: EvProfile) -> control.Paths:
        """The paths of a new queue pair."""
        rows = one.rows
        by_plane = [rows["wire"][rows["port"] == k + 1] for k in range(self._device.n_planes)]
        total = one.count or self._per_qp
        keep = -(-PERCENT * min(one.min_active, total) // total)
        evs = () if one.mode == AUTO else tuple(tuple(own.tolist()) for own in by_plane)
        denied = rows[rows["state"] == DENIED]
        keys = zip(denied["wire"].tolist(), (denied["port"] - 1).tolist(), strict=True)
        return control.Paths(evs, frozenset(keys), keep)

    def follow(self, one: EvProfile) -> None:
        """Queue pairs of a profile take its EVs, and what is denied of them."""
        paths = self.paths(one)
        self._for_users(one, lambda i: self._host.follow(i, paths))

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

    def declare(self, one: EvProfile, each: Ev, entry: int) -> None:
        """Do what an entry at an address asks for an EV, in all queue pairs of a profile."""
        self.profiles.know(one, each)
        number = signed_id(one.number)
        self._host.repeat(lambda: self._change.call(number, entry, 1) != states.BUSY)

    def states(self, one: EvProfile) -> dict[Ev, int]:
        """The EVs of a profile, in mode AUTO those that queue pairs have or are DENIED, and their
        states: ASSUMED_BAD if any queue pair holds one so.
        """
        names = {self.key(one, ev): ev for ev in one.evs if ev != UNPOPULATED}
        found = {} if one.mode == AUTO else {ev: GOOD for ev in one.evs if ev != UNPOPULATED}
        for key, is_bad in self._held(one):
            each = names.get(key) or self.ev_of(key)
            if found.get(each) != ASSUMED_BAD:
                found[each] = ASSUMED_BAD if is_bad else GOOD
        return found | dict.fromkeys(one.denied, DENIED)

    def _held(self, one: EvProfile, but: int = 0) -> Iterator[tuple[control.EvKey, bool]]:
        """The EVs of all queue pairs of a profile `but` one, and whether each is held to be bad."""
        for pair in self._users(one):
            if pair.qp_num != but:
                for path in pair.evs():
                    yield (path["ev"], path["plane"]), path["state"] == BAD_NAME

    def ev_of(self, key: control.EvKey) -> Ev:
        """An EV of the device, for a profile without a form of its own."""
        return formats.packed(key[0], self.profiles.wire_bits, key[1] + 1)

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
        if one.mode == AUTO:
            self.profiles.know(one, self.ev_of(key))
        self._tell(one, key, event.kind == EventKind.PATH_BAD, event.qp_num)

    def _tell(self, one: EvProfile, key: control.EvKey, is_bad: bool, qp_num: int) -> None:
        """What a queue pair holds an EV to be: a change for the profile is an event."""
        same = np.flatnonzero((one.rows["wire"] == key[0]) & (one.rows["port"] == key[1] + 1))
        is_bad = is_bad or (key, True) in self._held(one, but=qp_num)
        now, old = ASSUMED_BAD if is_bad else GOOD, GOOD if is_bad else ASSUMED_BAD

        def enter() -> bool:  # a controller may deny it at the same time
            changed = [i for i in same.tolist() if one.rows["state"][i] == old]
            one.rows["state"][changed] = now
            return bool(changed)

        if self._host.between(enter) and one.event_mask & now:
            for queue in self.queues:
                queue.put(one.number, one.evs[same[0]], now)

    def forget(self, qp_num: int) -> None:
        """A queue pair is gone, and with it what it held to be bad."""
        for one in self.profiles.ev.values():
            for row in one.rows[one.rows["state"] == ASSUMED_BAD]:
                self._tell(one, (int(row["wire"]), int(row["port"]) - 1), False, qp_num)

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
