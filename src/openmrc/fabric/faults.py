"""Fault schedules: what breaks when, from a user's words to a sorted table of elementary actions.

A fault is a time, a kind, a place (see `places`), and where it makes sense a duration or a rate:

    link-down, link-up         a link, both directions or one
    link-loss                  packets on a link are lost at random, at `rate`
    switch-down, switch-up     a switch, and with it all of its links
    switch-silent              a switch that is up and forwards nothing; switch-up ends it
    port-down, port-up         a NIC's port: both directions of its link

Several faults may hold the same thing down; it comes up when the last of them lets go. A fault
with a duration lets go by itself. One without lasts until a later "-up" names its place; an "-up"
that finds nothing to bring up is refused. Of several losses on one link the latest that still
lasts decides the rate, so `rate = 0` ends a loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from openmrc.errors import InputError
from openmrc.fabric import places
from openmrc.fabric.model import Fabric, LongArray

# Actions of a schedule. The target of the first three is a directed port, of the switch actions a
# switch, of the last two a NIC's own port, nic * n_planes + plane.
PORT_UP = 0
PORT_DOWN = 1  # what is queued on it and in flight behind it is lost
PORT_LOSS = 2  # from now on at this rate
SWITCH_UP = 3
SWITCH_DOWN = 4  # comes beside PORT_DOWN of all its links, both directions
SWITCH_SILENT = 5
NIC_PORT_DOWN = 6  # both directions are down: what the NIC itself notices
NIC_PORT_UP = 7

EVENT = np.dtype([("at_ps", "i8"), ("action", "i4"), ("target", "i4"), ("rate", "f8")])

# What ends each kind; a kind that is not here is an end itself.
ENDS = {
    "link-down": "link-up",
    "link-loss": "link-loss over",
    "switch-down": "switch-up",
    "switch-silent": "switch-up",
    "port-down": "port-up",
}
KINDS = (*ENDS, "link-up", "switch-up", "port-up")


@dataclass(frozen=True)
class Fault:
    """One fault as a user states it; times in picoseconds."""

    at_ps: int
    kind: str
    where: str
    for_ps: int | None = None
    rate: float | None = None  # of link-loss: the probability that a packet is lost


@dataclass(frozen=True, eq=False)
class FaultSchedule:
    """`events` of dtype `EVENT` in time order, and (time, label) marks for plots."""

    events: npt.NDArray[Any]
    names: tuple[tuple[int, str], ...]


def compile_faults(faults: Sequence[Fault], fabric: Fabric) -> FaultSchedule:
    """Return the schedule of `faults` in `fabric`.

    Raises `InputError` naming the fault's key ("fault[2].where") for a place that does not exist,
    an unknown kind, or a duration or rate that makes no sense. At one instant faults begin before
    others end, so what is handed over from one fault to the next does not blink.
    """
    steps = []
    for i, fault in enumerate(faults):
        _check(i, fault)
        holds = _resolve(i, fault, fabric)
        steps.append((fault.at_ps, False, i, holds))
        if fault.for_ps is not None:
            steps.append((fault.at_ps + fault.for_ps, True, i, holds))
    steps.sort(key=lambda step: step[:3])

    ledger = _Ledger(fabric)
    names = []
    for at_ps, is_end, i, holds in steps:
        fault = faults[i]
        ledger.now_ps = at_ps
        if is_end:
            ledger.release(holds)
        elif fault.kind in ENDS:
            ledger.take(holds, lasting=fault.for_ps is None)
        elif not ledger.bring_up(holds):
            raise InputError(
                f"fault[{i}].where: {fault.where!r}: nothing there is down at that time by a fault"
                ' without "for"; name a place that is'
            )
        rate = f" {fault.rate:g}" if fault.kind == "link-loss" and not is_end else ""
        names.append((at_ps, f"{ENDS[fault.kind] if is_end else fault.kind}{rate} {fault.where}"))
    return FaultSchedule(ledger.events(), tuple(names))


def _check(i: int, fault: Fault) -> None:
    """Refuse what is wrong whatever the fabric."""
    if fault.kind not in KINDS:
        raise InputError(f"fault[{i}].kind: {fault.kind!r}; one of {', '.join(KINDS)} is accepted")
    if fault.at_ps < 0:
        raise InputError(f"fault[{i}].at: {fault.at_ps} ps; 0 or later is accepted")
    if fault.for_ps is not None and fault.kind not in ENDS:
        raise InputError(f"fault[{i}].for: {fault.kind} has no duration; remove it")
    if fault.for_ps is not None and fault.for_ps <= 0:
        raise InputError(f"fault[{i}].for: {fault.for_ps} ps; a time above 0 is accepted")
    if fault.kind != "link-loss" and fault.rate:
        raise InputError(f"fault[{i}].rate: {fault.kind} has no rate; remove it")
    if fault.kind == "link-loss" and (fault.rate is None or not 0 <= fault.rate <= 1):
        raise InputError(f"fault[{i}].rate: {fault.rate}; a probability of 0 to 1 is needed")


@dataclass(eq=False)
class _Hold:
    """What a fault holds down: directed ports, or one switch with its ports; or a loss."""

    ports: LongArray
    switch: int = -1
    state: int = SWITCH_UP  # the state the switch is held in
    rate: float | None = None  # of a loss, which holds nothing down


def _resolve(i: int, fault: Fault, fabric: Fabric) -> list[_Hold]:
    try:
        if fault.kind.startswith("link-"):
            return [_Hold(places.links(fabric, fault.where), rate=fault.rate)]
        if fault.kind.startswith("port-"):
            up = places.nic_ports(fabric, fault.where)
            return [_Hold(np.concatenate([up, fabric.port_reverse[up]]))]
        switches = places.switches(fabric, fault.where).tolist()
    except InputError as error:
        raise error.at(f"fault[{i}].where: {fault.where!r}") from None
    if fault.kind == "switch-silent":
        return [_Hold(np.empty(0, np.int64), switch, SWITCH_SILENT) for switch in switches]
    return [_Hold(places.ports_of(fabric, switch), switch, SWITCH_DOWN) for switch in switches]


class _Ledger:
    """Counts who holds what down, and notes an event whenever a state really changes."""

    def __init__(self, fabric: Fabric) -> None:
        self.now_ps = 0
        self._fabric = fabric
        self._port_holds = np.zeros(fabric.n_ports, np.int32)
        self._switch_holds: dict[tuple[int, int], int] = {}  # by (switch, state)
        self._port_rate = np.zeros(fabric.n_ports)
        self._losses: list[_Hold] = []  # in the order of their beginnings
        self._lasting: list[_Hold] = []  # without a duration
        self._blocks = [np.empty(0, EVENT)]

    def events(self) -> npt.NDArray[Any]:
        """Return all events noted so far, in order."""
        return np.concatenate(self._blocks)

    def take(self, holds: list[_Hold], lasting: bool) -> None:
        """Begin a fault; a `lasting` one can be ended by `bring_up`."""
        for hold in holds:
            if hold.rate is not None:
                self._losses.append(hold)
                self._update_rates(hold.ports)
                continue
            self._count(hold, 1)
            if lasting:
                self._lasting.append(hold)

    def release(self, holds: list[_Hold]) -> None:
        """End a fault that was taken."""
        for hold in holds:
            if hold.rate is not None:
                self._losses.remove(hold)
                self._update_rates(hold.ports)
            else:
                self._count(hold, -1)

    def bring_up(self, named: list[_Hold]) -> bool:
        """Release what is named from every lasting hold on it; return whether there was any."""
        if named[0].switch >= 0:
            switches = {hold.switch for hold in named}
            gone = [hold for hold in self._lasting if hold.switch in switches]
            self._lasting = [hold for hold in self._lasting if hold.switch not in switches]
        else:
            gone = []
            for hold in self._lasting:
                if hold.switch < 0:
                    gone.append(_Hold(np.intersect1d(hold.ports, named[0].ports)))
                    hold.ports = np.setdiff1d(hold.ports, named[0].ports)
        for hold in gone:
            self._count(hold, -1)
        return any(hold.switch >= 0 or hold.ports.size for hold in gone)

    def _count(self, hold: _Hold, by: int) -> None:
        """Add `by` holds to all that `hold` names and note every change of state."""
        was_down = self._port_holds[hold.ports] > 0
        nic_ports = self._nic_ports(hold.ports)
        nic_was_down = self._nic_is_down(nic_ports)
        self._port_holds[hold.ports] += by
        is_down = self._port_holds[hold.ports] > 0
        self._note(PORT_DOWN, hold.ports[is_down & ~was_down])
        self._note(PORT_UP, hold.ports[was_down & ~is_down])
        if hold.switch >= 0:
            before = self._switch_state(hold.switch)
            key = (hold.switch, hold.state)
            self._switch_holds[key] = self._switch_holds.get(key, 0) + by
            after = self._switch_state(hold.switch)
            if before != after:
                self._note(after, np.array([hold.switch]))
        nic_is_down = self._nic_is_down(nic_ports)
        self._note(NIC_PORT_DOWN, nic_ports[nic_is_down & ~nic_was_down])
        self._note(NIC_PORT_UP, nic_ports[nic_was_down & ~nic_is_down])

    def _switch_state(self, switch: int) -> int:
        for state in (SWITCH_DOWN, SWITCH_SILENT):
            if self._switch_holds.get((switch, state), 0) > 0:
                return state
        return SWITCH_UP

    def _nic_ports(self, ports: LongArray) -> LongArray:
        """Return the NICs' own ports of those links among `ports` that lead to NICs."""
        first_switch_port = self._fabric.n_nics * self._fabric.n_planes
        own = np.minimum(ports, self._fabric.port_reverse[ports])
        return np.unique(own[own < first_switch_port])

    def _nic_is_down(self, nic_ports: LongArray) -> npt.NDArray[np.bool_]:
        held = self._port_holds
        down: npt.NDArray[np.bool_] = (held[nic_ports] > 0) & (
            held[self._fabric.port_reverse[nic_ports]] > 0
        )
        return down

    def _update_rates(self, ports: LongArray) -> None:
        rate = np.zeros(len(ports))
        for loss in self._losses:
            rate[np.isin(ports, loss.ports)] = loss.rate
        changed = rate != self._port_rate[ports]
        self._port_rate[ports] = rate
        self._note(PORT_LOSS, ports[changed], rate[changed])

    def _note(self, action: int, targets: LongArray, rate: npt.ArrayLike = 0.0) -> None:
        block = np.empty(len(targets), EVENT)
        block["at_ps"], block["action"] = self.now_ps, action
        block["target"], block["rate"] = targets, rate
        self._blocks.append(block)
