"""The profiles of a device: how EVs are formed, which there are, and how congestion control acts.

Each is a number of 64 bits that a controller chooses, and goes through

    INIT -> OFFLINE -> ONLINE -> OFFLINE -> INIT

one step at a time. `RULES` says which attributes each step needs, and which may be changed in which
state. A call that is refused changes nothing, but for the operations on EVs before the first that
fails. Profile 0 of EVs and of congestion control is the device's own: it is ONLINE, and stays.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from openmrc.capi.control import formats
from openmrc.capi.control.formats import UNPOPULATED, Ev, Field
from openmrc.capi.control.layouts import ASSUMED_BAD, DENIED, GOOD, NUMBERS
from openmrc.capi.control.states import ROW
from openmrc.capi.hot import CALL_PROFILE, PROFILES_MAX
from openmrc.capi.places import Refused
from openmrc.jit import records

CC_PROFILES_MAX = 63  # records of the engine, but for that of derived values
EVS_MAX = 1 << 16  # of all profiles


class State(IntEnum):
    """The state of a profile."""

    INIT, OFFLINE, ONLINE = range(3)


AUTO, EXPLICIT, GENERATED = (NUMBERS[f"MRC_CTL_EV_MODE_{name}"] for name in ("AUTO", "EXP", "GEN"))
STEV, SRV6, UDP = (NUMBERS[f"MRC_CTL_EV_FMT_MODE_{name}"] for name in ("STEV", "SRV6", "UDP"))
WIRE_BITS = {STEV: 32, UDP: 16}  # of an EV in a packet

# Attributes of a call that modifies a profile: what is to be changed. A key that is absent is left
# as it is.
Changes = dict[str, Any]


class Rules(NamedTuple):
    """Attributes that a step needs, and those that may be changed in a state."""

    to_offline: frozenset[str]
    to_online: frozenset[str]
    offline: frozenset[str]
    online: frozenset[str]


def _rules(to_offline: str, to_online: str, offline: str, online: str) -> Rules:
    return Rules(*(frozenset(each.split()) for each in (to_offline, to_online, offline, online)))


RULES = {
    "format": _rules("mode", "widths", "mode widths", ""),
    "EV": _rules(
        "mode",
        "min_active event_mask",
        "mode format count min_active event_mask fields",
        "event_mask fields",
    ),
    "CC": _rules("algorithm", "config", "algorithm config", "config"),
}


@dataclass
class Profile:
    """What profiles of all kinds have: a number, a state, and the attributes given so far."""

    number: int
    state: State = State.INIT
    given: set[str] = field(default_factory=set)
    kind = ""

    def check_step(self, to: State, changes: Changes) -> None:
        """EINVAL unless this step exists, and has all that it needs."""
        rules, has = RULES[self.kind], self.given | changes.keys()
        if abs(to - self.state) != 1:
            raise Refused(errno.EINVAL, f"{self}: {self.state.name} -> {to.name} is no step")
        needed = {State.OFFLINE: rules.to_offline, State.ONLINE: rules.to_online}
        if to > self.state and (missing := needed[to] - has):
            raise Refused(errno.EINVAL, f"{self}: {to.name} needs {', '.join(sorted(missing))}")

    def check_changes(self, to: State, changes: Changes) -> None:
        """EINVAL for an attribute that may not be changed in this state, nor in the next one."""
        rules = RULES[self.kind]
        may = {State.INIT: frozenset(), State.OFFLINE: rules.offline, State.ONLINE: rules.online}
        if refused := changes.keys() - may[self.state] - may[to]:
            raise Refused(
                errno.EINVAL, f"{self}: {', '.join(sorted(refused))}: not in {self.state.name}"
            )

    def __str__(self) -> str:
        return f"{self.kind} profile {self.number}"


@dataclass
class FormatProfile(Profile):
    """How wide the fields of an EV are in a packet, bits."""

    mode: int = 0
    widths: tuple[int, ...] = ()
    kind = "format"


@dataclass
class EvProfile(Profile):
    """EVs, and what is wanted of them. In mode AUTO queue pairs draw their own, and those are here
    of which a controller or a queue pair has said something.
    """

    mode: int = 0
    format: int = 0
    count: int = 0
    min_active: int = 0
    event_mask: int = 0
    fields: tuple[Field, ...] = ()
    rows: Any = field(default_factory=lambda: np.zeros(0, ROW))
    place: int = -1  # in the table of profiles
    kind = "EV"

    @property
    def evs(self) -> list[Ev]:
        """Its EVs, in order."""
        return list(map(Ev, self.rows["value"].tolist(), self.rows["port"].tolist()))

    @property
    def denied(self) -> set[Ev]:
        """Those that are DENIED."""
        return {ev for ev, to in zip(self.evs, self.rows["state"], strict=True) if to == DENIED}

    def where(self, ev: Ev) -> Any:
        """Which rows are this EV."""
        return (self.rows["value"] == np.void(ev.value)) & (self.rows["port"] == ev.port)


@dataclass
class CcProfile(Profile):
    """An algorithm (`None`: no congestion control), and its configuration: fields of
    `layouts.NSCC_CFG`.
    """

    algorithm: str | None = None
    config: dict[str, float] = field(default_factory=dict)
    kind = "CC"


class Limits(NamedTuple):
    """What a device has room for: ports, EVs of a profile, modes of formats and of EVs."""

    ports: int
    evs: int
    format_modes: int
    ev_modes: int


@dataclass
class Profiles:
    """All profiles of a device. `bound` counts the queue pairs of an EV or CC profile. What
    compiled code may change is in the `table`, which is written with the loop's lock: `pause` calls
    a function with it.
    """

    limits: Limits
    bound: Callable[[Profile], int]
    table: Any = field(default_factory=lambda: records(PROFILES_MAX, CALL_PROFILE))
    pause: Callable[[Callable[[], None]], None] = lambda change: change()
    format: dict[int, FormatProfile] = field(default_factory=dict)
    ev: dict[int, EvProfile] = field(default_factory=dict)
    cc: dict[int, CcProfile] = field(default_factory=dict)

    def __post_init__(self) -> None:
        given = {"mode", "min_active", "event_mask"}
        self.ev[0] = EvProfile(0, State.ONLINE, given, mode=AUTO)
        self.cc[0] = CcProfile(0, State.ONLINE, {"algorithm", "config"})

    @property
    def wire_bits(self) -> int:
        """The width of an EV in a packet of this device."""
        return WIRE_BITS[self.limits.format_modes]

    @property
    def evs_left(self) -> int:
        """EVs that no profile has taken."""
        return EVS_MAX - sum(one.count for one in self.ev.values())

    # --- what all kinds have in common

    def find(self, known: dict[int, Any], made: type, number: int) -> Any:
        """The profile with this number; one in INIT if none has it yet."""
        return known.get(number) or made(number)

    def _step(self, known: dict[int, Any], one: Any, to: State, most: int) -> None:
        if to == State.INIT:
            known.pop(one.number, None)
        elif one.number not in known and len(known) >= most:
            raise Refused(errno.EINVAL, f"{one}: the device has {most}")
        else:
            known[one.number] = one
        one.state = to

    # --- formats

    def modify_format(self, one: FormatProfile, to: State, changes: Changes) -> None:
        """Change a format, and lead it to a state."""
        one.check_changes(to, changes)
        mode, widths = changes.get("mode", one.mode), changes.get("widths", one.widths)
        if to != one.state:
            one.check_step(to, changes)
        if one.state == State.ONLINE and any(
            each.state == State.ONLINE and each.format == one.number and each.mode != AUTO
            for each in self.ev.values()
        ):
            raise Refused(errno.EBUSY, f"{one}: an EV profile that uses it is ONLINE")
        if "mode" in changes and not (mode in WIRE_BITS and mode & self.limits.format_modes):
            raise Refused(errno.EINVAL, f"{one}: mode {mode}: {self.limits.format_modes} are there")
        if len(widths) > formats.FIELDS_MAX or sum(widths) > WIRE_BITS.get(mode, 0):
            raise Refused(errno.E2BIG, f"{one}: fields of {sum(widths)} bits in all")
        if "widths" in changes and not (widths and min(widths) > 0):
            raise Refused(errno.EINVAL, f"{one}: {len(widths)} fields of 1 bit or more")
        if to != one.state:
            self._step(self.format, one, to, PROFILES_MAX)
        one.mode, one.widths = mode, widths
        one.given |= changes.keys()

    # --- EVs

    def modify_ev(self, one: EvProfile, to: State, changes: Changes) -> None:
        """Change an EV profile, and lead it to a state. Its array of EVs follows."""
        one.check_changes(to, changes)
        if to != one.state:
            self._check_ev_step(one, to, changes)
        draft = EvProfile(one.number, to, one.given | changes.keys())
        for name in ("mode", "format", "count", "min_active", "event_mask", "fields"):
            setattr(draft, name, changes.get(name, getattr(one, name)))
        if to != State.INIT:
            self._check_ev(one, draft, changes)
        if to != one.state:
            self._step(self.ev, one, to, PROFILES_MAX)
        kept = one.evs
        vars(one).update({**vars(draft), "rows": one.rows, "place": one.place})
        if one.mode == EXPLICIT:
            kept = (kept + [UNPOPULATED] * one.count)[: one.count]
        elif one.mode == GENERATED and (not kept or changes.keys() & {"fields", "count", "format"}):
            kept = self.drawn(one)
        if to != State.INIT:
            self.hold(one, kept)

    def _check_ev_step(self, one: EvProfile, to: State, changes: Changes) -> None:
        if one.number == 0:
            raise Refused(errno.EINVAL, f"{one} is the device's own: it stays ONLINE")
        one.check_step(to, changes)
        if one.state == State.ONLINE and self.bound(one):
            raise Refused(errno.EBUSY, f"{one}: queue pairs use it")
        if to == State.ONLINE and one.mode == EXPLICIT and UNPOPULATED in one.evs:
            raise Refused(errno.EINVAL, f"{one}: EVs are left that were not replaced")

    def _check_ev(self, one: EvProfile, draft: EvProfile, changes: Changes) -> None:
        """EINVAL or E2BIG for attributes that do not fit the device, or each other."""
        limits = self.limits
        if draft.mode not in (AUTO, EXPLICIT, GENERATED) or not draft.mode & limits.ev_modes:
            raise Refused(errno.EINVAL, f"{one}: mode {draft.mode}: {limits.ev_modes} are there")
        if draft.event_mask & ~(GOOD | ASSUMED_BAD):
            raise Refused(errno.EINVAL, f"{one}: event mask {draft.event_mask:#x}")
        if one.state != State.INIT and draft.mode != one.mode:
            raise Refused(errno.EINVAL, f"{one}: its mode is chosen on the way from INIT")
        if draft.mode == AUTO:
            if draft.number and draft.given & {"format", "count", "fields"}:
                raise Refused(errno.EINVAL, f"{one}: mode AUTO has no format, count, or fields")
            return
        needed = {"format", "count"} | ({"fields"} if draft.mode == GENERATED else set())
        if missing := needed - draft.given:
            raise Refused(errno.EINVAL, f"{one}: {', '.join(sorted(missing))}: missing")
        if draft.count > limits.evs or draft.count - one.count > self.evs_left:
            raise Refused(errno.E2BIG, f"{one}: {draft.count} EVs: {limits.evs} are the most")
        if draft.count < 1 or draft.count % limits.ports:
            raise Refused(errno.EINVAL, f"{one}: {draft.count} EVs: a multiple of {limits.ports}")
        if draft.min_active > draft.count:
            raise Refused(errno.EINVAL, f"{one}: min_active {draft.min_active} of {draft.count}")
        form = self.format.get(draft.format)
        if form is None or form.state != State.ONLINE:
            raise Refused(errno.EINVAL, f"{one}: format profile {draft.format} is not ONLINE")
        if draft.fields:
            formats.check(form.widths, draft.fields)
        if changes.keys() & {"fields", "format"} and draft.mode == EXPLICIT:
            for ev in one.evs:
                if ev != UNPOPULATED:
                    self.wire(draft, ev)

    def drawn(self, one: EvProfile) -> list[Ev]:
        """The EVs of a profile in mode GENERATED."""
        widths = self.format[one.format].widths
        return formats.generated(widths, one.fields, one.count, self.limits.ports, one.number)

    def wire(self, one: EvProfile, ev: Ev) -> int:
        """What an EV is in a packet; EINVAL if it is none of this profile's form."""
        if not 1 <= ev.port <= self.limits.ports:
            raise Refused(errno.EINVAL, f"port {ev.port}: 1 to {self.limits.ports} are there")
        if one.mode == AUTO:
            return formats.expanded(ev, [self.wire_bits], (), self.wire_bits)
        form = self.format[one.format]
        return formats.expanded(ev, form.widths, one.fields, WIRE_BITS[form.mode])

    def replace(self, one: EvProfile, old: Ev, new: Ev, to: int, every: bool) -> None:
        """Put an EV in the place of one, or of all that are equal; ENOENT if there is none."""
        if one.mode != EXPLICIT or one.state == State.INIT:
            raise Refused(errno.EINVAL, f"{one}: only explicit EVs are replaced")
        self.wire(one, new)
        if new.port != old.port and self.bound(one):
            raise Refused(errno.EINVAL, f"{one}: an EV in use stays on port {old.port}")
        places = np.flatnonzero(one.where(old))
        if not len(places):
            raise Refused(errno.ENOENT, f"{one}: no EV {old.value.hex()} of port {old.port}")
        one.rows[places if every else places[:1]] = self._row(one, new)
        one.rows["state"][one.where(new)] = DENIED if to == DENIED else GOOD

    def hold(self, one: EvProfile, evs: Sequence[Ev]) -> None:
        """A profile has these EVs; what is known of their states stays."""
        states = dict(zip(one.evs, one.rows["state"].tolist(), strict=True))
        rows = [self._row(one, ev, states.get(ev, GOOD)) for ev in evs]
        one.rows = np.array(rows, ROW)

    def know(self, one: EvProfile, ev: Ev) -> None:
        """ENOENT unless the profile has this EV. One in mode AUTO may have any, and forgets others
        of which nothing is to be remembered.
        """
        if ev != UNPOPULATED and one.where(ev).any():
            return
        if one.mode != AUTO or not 1 <= ev.port <= self.limits.ports:
            raise Refused(errno.ENOENT, f"{one}: no EV {ev.value.hex()} of port {ev.port}")
        new = np.array([self._row(one, ev)], ROW)
        with self.changing(one):
            said = one.rows[one.rows["state"] != GOOD]
            if len(said) >= EVS_MAX:
                raise Refused(errno.E2BIG, f"{one}: {EVS_MAX} EVs are the most")
            one.rows = np.concatenate((said, new))

    def _row(self, one: EvProfile, ev: Ev, to: int = GOOD) -> tuple[int, int, int, bytes]:
        return -1 if ev == UNPOPULATED else self.wire(one, ev), to, ev.port, ev.value

    @contextmanager
    def changing(self, one: EvProfile) -> Iterator[None]:
        """Within the block compiled code does not find a profile, and its EVs may change."""
        self.pause(lambda: self._show(one, 0))
        try:
            yield
        finally:
            self._show(one, len(one.rows) if one.state != State.INIT else 0)

    def _show(self, one: EvProfile, n: int) -> None:
        if one.place < 0 and n:
            taken = {each.place for each in self.ev.values()}
            one.place = next(i for i in range(PROFILES_MAX) if i not in taken)
        if one.place >= 0:
            r = self.table[one.place]
            r.number, r.n = signed_id(one.number), n
            r.rows = one.rows.ctypes.data if n else 0

    # --- congestion control

    def modify_cc(self, one: CcProfile, to: State, changes: Changes) -> None:
        """Change a profile of congestion control, and lead it to a state."""
        if one.number == 0:
            raise Refused(errno.EINVAL, f"{one} is the device's own: it is not changed")
        one.check_changes(to, changes)
        algorithm = changes.get("algorithm", one.algorithm)
        if algorithm is None and (changes.keys() | one.given) & {"algorithm"}:
            one.given.add("config")  # there is nothing to configure
        if to != one.state:
            one.check_step(to, changes)
            if one.state == State.ONLINE and self.bound(one):
                raise Refused(errno.EBUSY, f"{one}: queue pairs use it")
            self._step(self.cc, one, to, CC_PROFILES_MAX)
        one.algorithm = algorithm
        one.config = changes.get("config", one.config)
        one.given |= changes.keys()


def signed_id(number: int) -> int:
    """The number of a profile as compiled code has it."""
    return number - (number >> 63 << 64)


def counts(evs: Iterable[Ev], ports: int) -> list[int]:
    """How many of these EVs each port has."""
    found = [0] * ports
    for ev in evs:
        found[ev.port - 1] += 1
    return found
