"""The current faults of a lab, port by port and switch by switch.

The elementary actions of a fault schedule (`fabric.actions`) are applied to it one by one; the
switches read the result here, and so does `mrc lab status`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from openmrc.errors import InputError
from openmrc.fabric import actions, places
from openmrc.fabric.actions import EVENT
from openmrc.fabric.kinds import RATED
from openmrc.fabric.model import Fabric

SWITCH_STATES = {
    actions.SWITCH_UP: "up",
    actions.SWITCH_DOWN: "down",
    actions.SWITCH_SILENT: "silent",
}


class Health:
    """State of every directed port and every switch of a fabric."""

    def __init__(self, fabric: Fabric) -> None:
        self.up = np.ones(fabric.n_ports, np.bool_)
        # What each action sets: a share of packets, a fraction of the rate, bytes of an MTU.
        self.level = {
            rated.action: np.full(fabric.n_ports, rated.whole, np.float64)
            for rated in RATED.values()
        }
        # By NIC port: false if both directions are down, which the NIC itself notices.
        self.link_up = np.ones(fabric.n_nics * fabric.n_planes, np.bool_)
        self.switch = ["up"] * fabric.n_switches
        self._fabric = fabric

    def apply(self, events: Iterable[Any]) -> None:
        """Change the state by these EVENT records, in their order."""
        for event in events:
            action, target = int(event["action"]), int(event["target"])
            if action in (actions.PORT_UP, actions.PORT_DOWN):
                self.up[target] = action == actions.PORT_UP
            elif action in self.level:
                self.level[action][target] = event["rate"]
            elif action in SWITCH_STATES:
                self.switch[target] = SWITCH_STATES[action]
        own = slice(len(self.link_up))
        self.link_up = self.up[own] | self.up[self._fabric.port_reverse[own]]

    def lost(self, port: int) -> float:
        """Return the fraction of packets that a directed port loses, 0 to 1."""
        return float(self.level[actions.PORT_LOSS][port]) if self.up[port] else 1.0

    def troubles(self) -> list[dict[str, str]]:
        """Return the current faults, each as {"place", "state"}."""
        found = [
            {"place": self._fabric.switch_name(switch), "state": state}
            for switch, state in enumerate(self.switch)
            if state != "up"
        ]
        whole = self.up.copy()
        for rated in RATED.values():
            whole &= self.level[rated.action] == rated.whole
        for port in np.flatnonzero(~whole).tolist():
            words = [] if self.up[port] else ["down"]
            for rated in RATED.values():
                value = self.level[rated.action][port]
                words += [] if value == rated.whole else [f"{rated.word} {value:g}"]
            found.append({"place": self._fabric.port_name(port), "state": ", ".join(words)})
        return found


def refuse_denials(kinds: Iterable[str]) -> None:
    """Raise `InputError` for a denial: it applies to endpoints, not to the network."""
    for i, kind in enumerate(kinds):
        if kind in ("deny", "allow"):
            raise InputError(
                f"fault[{i}].kind: {kind!r} applies to endpoints, a lab has switches; remove it"
            )


def healing(fabric: Fabric, where: str) -> Any:
    """Return the EVENT records that repair everything that `where` names.

    A link, "nic 5", a switch with all of its links, a plane, or "everywhere".
    """
    text = " ".join(where.split())
    kind = places.kind_of(text)
    switches: Any = []
    if kind == "switch":
        switches = places.switches(fabric, text)
    elif kind == "plane":
        switches = np.flatnonzero(np.isin(fabric.sw_plane, places.planes(fabric, text)))
    elif text == "everywhere":
        switches = np.arange(fabric.n_switches)
    if kind == "plane":
        own = np.flatnonzero(np.isin(fabric.port_switch, switches))
        ports = np.union1d(own, fabric.port_reverse[own])
    else:
        ports = np.unique(places.ports(fabric, text))
    rows = [
        _rows(actions.PORT_UP, ports, 0),
        *(_rows(rated.action, ports, rated.whole) for rated in RATED.values()),
        _rows(actions.SWITCH_UP, switches, 0),
    ]
    return np.concatenate(rows)


def _rows(action: int, targets: Any, rate: float) -> Any:
    rows = np.zeros(len(targets), EVENT)
    rows["action"], rows["target"], rows["rate"] = action, targets, rate
    return rows
