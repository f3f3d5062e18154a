"""Fault schedules: from a user's faults (`kinds`) to a sorted table of elementary actions.

Each fault becomes holds: which target it affects, from when to when (`spans`, `places`). The holds
of all faults combine into the visible changes of state (`holds`), and those become actions
(`actions`). The simulator and a live lab execute the same table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from openmrc.errors import InputError
from openmrc.fabric import actions, denylist, holds, kinds, places, spans
from openmrc.fabric.actions import EVENT, FaultSchedule
from openmrc.fabric.holds import HOLD, Changes, Holds
from openmrc.fabric.kinds import Fault, check
from openmrc.fabric.model import Fabric, LongArray
from openmrc.fabric.places import Things
from openmrc.fabric.spans import NEVER, Spans
from openmrc.units import fmt_time

__all__ = ["Fault", "FaultSchedule", "compile_faults"]

EVENTS_MAX = 4_000_000  # expected number of elementary actions in one schedule: 128 MB
SEED_FAULTS = 100  # separates the random streams drawn here from others


def compile_faults(
    faults: Sequence[Fault], fabric: Fabric, seed: int = 1, horizon_ps: int | None = None
) -> FaultSchedule:
    """Return the schedule of `faults` in `fabric`, the same for the same arguments.

    Faults that repeat without an `until` do so up to `horizon_ps`, and are refused if that is None.
    Raises `InputError` naming the fault's key ("fault[2].where") for a place that does not exist,
    or any other contradiction.
    """
    compiler = _Compiler(fabric, seed, horizon_ps)
    for i, fault in enumerate(faults):
        try:
            check(fault)
            compiler.add(i, fault)
        except InputError as error:
            raise InputError(f"fault[{i}].{error}") from None
    compiler.lift()
    return FaultSchedule(compiler.events(), compiler.names(), np.array(compiler.groups))


class _Compiler:
    """Collects the holds of each fault, and turns them into events."""

    def __init__(self, fabric: Fabric, seed: int, horizon_ps: int | None) -> None:
        self.groups = [np.ones(fabric.n_nics, np.bool_)]
        self._fabric = fabric
        self._seed = seed
        self._horizon_ps = horizon_ps
        self._n_expected = 0.0
        self._faults: list[Fault] = []
        self._held: list[Holds] = []  # by fault; an end has those of the things that it names
        self._states = {(0.0, 0.0): 0}  # by rate and burst; 0 is the state without any fault
        self._names: list[tuple[int, bool, str]] = []

    def add(self, i: int, fault: Fault) -> None:
        """Add one fault; `InputError` that begins with the key if it is impossible."""
        things = _things(self._fabric, fault)
        when = self._spans(i, fault, things)
        targets, sizes = things.take(when.thing)
        held = np.empty(len(targets), HOLD)
        held["begin"], held["end"] = np.repeat(when.begin, sizes), np.repeat(when.end, sizes)
        held["target"], held["fault"] = targets, i
        held["state"] = self._state(fault)
        if fault.nics is not None:
            held["target"] += self._group(fault.nics) * self._fabric.n_ports
        self._faults.append(fault)
        self._held.append(held)
        self._name(fault, when)

    def lift(self) -> None:
        """Apply each end, in time order, to the faults that last until then; refuse one that ends
        nothing.
        """
        for effects in kinds.LIFTED_TOGETHER:
            steps = [
                (fault.at_ps, i)
                for i, fault in enumerate(self._faults)
                if fault.what.effect in effects and fault.for_ps is None and not fault.repeats
            ]
            if not any(self._faults[i].kind in kinds.ENDS for _, i in steps):
                continue
            lasting: dict[int, list[tuple[int, int]]] = {}  # by target: fault and row
            for at_ps, i in sorted(steps):
                targets = self._held[i]["target"].tolist()
                if self._faults[i].kind in kinds.BEGINS:
                    for row, target in enumerate(targets):
                        lasting.setdefault(target, []).append((i, row))
                    continue
                ended = [hold for target in targets for hold in lasting.pop(target, ())]
                if not ended:
                    what = "denied" if kinds.DENY in effects else "down"
                    raise InputError(
                        f"fault[{i}].where: {self._faults[i].place!r}: nothing there is {what} at"
                        ' that time by a fault without "for"; name a place that is'
                    )
                for begun, row in ended:
                    self._held[begun]["end"][row] = at_ps

    def events(self) -> npt.NDArray[Any]:
        """Return the elementary actions, sorted."""
        by = [self._of(effect) for effect in kinds.EFFECTS]
        fabric = self._fabric
        cuts = holds.counted(
            holds.edges(np.concatenate([by[kinds.CUT], _cut_by(fabric, by[kinds.DEAD])]))
        )
        rows = [
            _rows(cuts, actions.PORT_UP, actions.PORT_DOWN),
            *self._rates(by),
            _rows(
                _switch_states(by[kinds.DEAD], by[kinds.SILENT]),
                actions.SWITCH_UP,
                actions.SWITCH_SILENT,
                actions.SWITCH_DOWN,
            ),
            _rows(_nic_ports(fabric, cuts), actions.NIC_PORT_UP, actions.NIC_PORT_DOWN),
        ]
        denials = holds.counted(holds.edges(by[kinds.DENY]))
        deny = _rows(denials, actions.PORT_ALLOW, actions.PORT_DENY)
        deny["group"], deny["target"] = np.divmod(denials.target, fabric.n_ports)
        instants = np.unique(denials.at)
        review = _rows(
            Changes(instants, np.zeros_like(instants), np.zeros_like(instants)),
            actions.REVIEW_PATHS,
        )
        events = np.concatenate([*rows, deny, review])
        return events[np.lexsort((events["target"], events["action"], events["at_ps"]))]

    def names(self) -> tuple[tuple[int, str], ...]:
        """Return the marks, in order of time."""
        names = sorted(self._names, key=lambda name: name[:2])
        return tuple((at_ps, text) for at_ps, _, text in names)

    def _spans(self, i: int, fault: Fault, things: Things) -> Spans:
        """Return when each of the things is held."""
        chosen, at = np.arange(len(things)), fault.at_ps
        own = [self._seed, SEED_FAULTS, i] if fault.seed is None else [fault.seed, SEED_FAULTS]
        if fault.share is not None:
            n = round(fault.share * len(things))
            if n == 0:
                raise InputError(
                    f"share: {fault.share} of {len(things)} rounds to none; name more places"
                )
            rng = np.random.default_rng([*own, 0])
            chosen = np.sort(rng.choice(len(things), n, replace=False))
        if not fault.repeats:
            end = NEVER if fault.for_ps is None else min(at + fault.for_ps, NEVER)
            return spans.once(chosen, at, end)
        until = self._until(fault, things.take(chosen)[0])
        if fault.period_ps is not None:
            return spans.periodic(chosen, at, until, fault.period_ps, fault.lasts_ps)
        rng = np.random.default_rng([*own, 1])
        means = (fault.mtbf_ps or 0, fault.mttr_ps or 0)
        return spans.drawn(rng, chosen, at, until, means, fault.kind == "link-construction")

    def _until(self, fault: Fault, targets: LongArray) -> int:
        """Return when a repeating fault is over; refuse one that never ends, or is too frequent."""
        fabric = self._fabric
        changed = len(targets)
        if fault.what.effect == kinds.DEAD:  # each with its links, both directions
            own = fabric.sw_first_up + fabric.sw_n_up - fabric.sw_first_down
            changed = 2 * int(own[targets].sum())
        ends = [end for end in (fault.until_ps, self._horizon_ps) if end is not None]
        if not ends:
            raise InputError("until: is missing; what repeats needs an end, here or in stop.time")
        until = max(min(ends), fault.at_ps)
        turn_ps = fault.period_ps or (fault.mtbf_ps or 0) + (fault.mttr_ps or 0)
        # Periodic faults strike all places at once; random ones may leave most of them alone.
        at_once = 0 if fault.mtbf_ps and fault.kind != "link-construction" else 1
        n_events = 2 * changed * (at_once + (until - fault.at_ps) / turn_ps)
        self._n_expected += n_events
        if self._n_expected > EVENTS_MAX:
            key = "period" if fault.period_ps else "mtbf"
            raise InputError(
                f"{key}: makes about {n_events:.2g} changes of ports until {fmt_time(until)}; a"
                f" schedule may have {EVENTS_MAX:,}: use fewer places, a longer {key} or an earlier"
                " until"
            )
        return until

    def _state(self, fault: Fault) -> int:
        """Return the number of the state that the fault sets: its rate and burst."""
        value = (0.0, 0.0)
        if fault.level is not None and fault.level != kinds.RATED[fault.what.effect].whole:
            value = (float(fault.level), fault.burst or 0.0)
        return self._states.setdefault(value, len(self._states))

    def _group(self, text: str) -> int:
        try:
            nics = np.zeros(self._fabric.n_nics, np.bool_)
            nics[places.nics(self._fabric, text)] = True
        except InputError as error:
            raise error.at("nics") from None
        for number, group in enumerate(self.groups):
            if (group == nics).all():
                return number
        if len(self.groups) == actions.GROUPS_MAX:
            raise InputError(
                f"nics: {text!r}: one more set of NICs; {actions.GROUPS_MAX - 1} beside all of"
                " them may have denylists of their own"
            )
        self.groups.append(nics)
        return len(self.groups) - 1

    def _of(self, effect: int) -> Holds:
        """Return all holds of one effect."""
        found = [
            held
            for fault, held in zip(self._faults, self._held, strict=True)
            if fault.kind in kinds.BEGINS and fault.what.effect == effect
        ]
        return np.concatenate([np.empty(0, HOLD), *found])

    def _rates(self, by: list[Holds]) -> Iterable[npt.NDArray[Any]]:
        """Yield the events of effects that have a rate."""
        values = np.array(list(self._states))
        for effect, rated in kinds.RATED.items():
            changes = holds.latest(by[effect])
            rows = _rows(changes._replace(state=np.zeros_like(changes.state)), rated.action)
            rows["rate"], rows["burst"] = values[changes.state].T
            rows["rate"][changes.state == 0] = rated.whole
            yield rows

    def _name(self, fault: Fault, when: Spans) -> None:
        """Note a mark for where the fault begins, and one for where it ends."""
        if not len(when.begin):
            return
        words = [fault.kind]
        words += [] if fault.level is None else [f"{fault.level:g}"]
        if fault.period_ps is not None:
            words.append(f"every {fmt_time(fault.period_ps)}")
        if fault.mtbf_ps is not None and fault.kind != "link-construction":
            words.append("at random")
        if fault.share is not None:
            words.append(f"{fault.share:g} of")
        self._names.append((int(when.begin.min()), False, " ".join([*words, fault.place])))
        end = int(when.end.max())
        if end < NEVER and fault.kind in kinds.BEGINS:
            self._names.append((end, True, f"{fault.what.end} {fault.place}"))


def _things(fabric: Fabric, fault: Fault) -> Things:
    """Return the things that the fault's places name; `InputError` that begins with the key and the
    place.
    """
    kind = fault.what
    found: list[Things] = []
    loose: list[LongArray] = []  # links named one by one
    for place in places.split(fault.where):
        try:
            if kind.places == "paths":
                found.append(denylist.entrances(fabric, place))
            elif kind.places == "switches":
                found.append(Things.one_each(places.switches(fabric, place)))
            elif kind.places == "NIC ports":
                ports = places.nic_ports(fabric, place)
                loose.append(np.concatenate([ports, fabric.port_reverse[ports]]))
            elif kind.places == "transceivers" and places.kind_of(place) == "transceiver":
                links_each = fault.links or kinds.LINKS_DEFAULT
                found.append(places.transceivers(fabric, place, links_each))
            else:
                loose.append(places.links(fabric, place))
        except InputError as error:
            raise error.at(f"where: {place!r}") from None
    if loose and kind.places == "transceivers":
        if fault.links is not None and not found:
            raise InputError("links: the links of the transceiver are named; remove it")
        found.append(Things.of([np.unique(np.concatenate(loose))]))
    elif loose:
        found.append(places.by_link(fabric, np.concatenate(loose)))
    return Things.join(found)


def _cut_by(fabric: Fabric, dead: Holds) -> Holds:
    """Return the ports that dead switches hold down: those of all their links, both directions."""
    switches, which = np.unique(dead["target"], return_inverse=True)
    ports = [np.concatenate(places.ports_of(fabric, switch)) for switch in switches.tolist()]
    if not ports:
        return dead
    both = Things.of([np.concatenate([own, fabric.port_reverse[own]]) for own in ports])
    targets, sizes = both.take(which)
    cut = np.repeat(dead, sizes)
    cut["target"] = targets
    return cut


def _switch_states(dead: Holds, silent: Holds) -> Changes:
    """Return the states of switches: 0 up, 1 silent, 2 down; silent and down is down."""
    much = 1 << 32
    steps = [holds.edges(dead, much), holds.edges(silent)]
    return holds.counted(
        Changes(*(np.concatenate(columns) for columns in zip(*steps, strict=True))),
        lambda level: np.where(level >= much, 2, np.minimum(level, 1)),
    )


def _nic_ports(fabric: Fabric, cuts: Changes) -> Changes:
    """Return which NIC ports are down as seen by their NICs: in both directions."""
    link = np.minimum(cuts.target, fabric.port_reverse[cuts.target])
    of_nic = link < fabric.n_nics * fabric.n_planes
    steps = Changes(cuts.at, link, np.where(cuts.state > 0, 1, -1))
    return holds.counted(Changes(*(column[of_nic] for column in steps)), lambda level: level // 2)


def _rows(changes: Changes, *by_state: int) -> npt.NDArray[Any]:
    """Return events whose action is the one that `by_state` has for the new state."""
    rows = np.zeros(len(changes.at), EVENT)
    rows["at_ps"], rows["target"] = changes.at, changes.target
    rows["action"] = np.array(by_state)[changes.state]
    return rows
