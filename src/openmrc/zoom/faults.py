"""What is broken in a fabric from one time to another, as the faults of a scenario of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from openmrc.fabric import actions
from openmrc.fabric.kinds import BEGINS, RATED
from openmrc.fabric.model import Fabric

Fault = Mapping[str, Any]
Span = tuple[int, int, int, float]  # from when until when, the action that began it, its number
Key = tuple[int, int | None, str, float | None]  # at, for how long, the kind, its number
CUT = "link-down"
OF_ACTION = {  # what sets a number of a port: the kind of fault, its key, the number without one
    rated.action: (kind, rated.key, rated.whole)
    for effect, rated in RATED.items()
    for kind, each in BEGINS.items()
    if each.effect == effect
}


def faults_between(fabric: Fabric, events: Any, from_ps: int, until_ps: int) -> list[Fault]:
    """Return all that `events` (`fabric.actions`) hold in that time, which begins at 0. Denials are
    left out: they choose among paths that carry packets.
    """
    found: dict[Key, list[str]] = {}
    for target, (begin, end, action, value) in _spans(events):
        if end <= from_ps or begin >= until_ps:
            continue
        at_ps = max(begin - from_ps, 0)
        for_ps = end - from_ps - at_ps if end < until_ps else None
        if action == actions.SWITCH_SILENT:
            kind, more, place = "switch-silent", None, fabric.switch_name(target)
        elif action == actions.PORT_DOWN:
            kind, more, place = CUT, None, fabric.port_name(target)
        else:
            kind, more, place = OF_ACTION[action][0], value, fabric.port_name(target)
        found.setdefault((at_ps, for_ps, kind, more), []).append(place)
    return [_fault(key, places) for key, places in sorted(found.items(), key=repr)]


def _fault(key: Key, places: list[str]) -> Fault:
    at_ps, for_ps, kind, value = key
    fault: dict[str, Any] = {"at": f"{at_ps}ps", "kind": kind, "where": places}
    if for_ps is not None:
        fault["for"] = f"{for_ps}ps"
    if value is not None:
        word = next(word for named, word, _ in OF_ACTION.values() if named == kind)
        fault[word] = f"{int(value)}B" if word == "mtu" else value
    return fault


def _spans(events: Any) -> Iterator[tuple[int, Span]]:
    """From when until when a port or a switch is other than whole, by what it was set to."""
    began: dict[tuple[int, int], tuple[int, float]] = {}
    forever = 2**62
    for event in events:
        action, target, at = (int(event[key]) for key in ("action", "target", "at_ps"))
        value = float(event["rate"])
        if action in (actions.PORT_DOWN, actions.PORT_UP):
            kept, broken = actions.PORT_DOWN, action == actions.PORT_DOWN
        elif action in (actions.SWITCH_SILENT, actions.SWITCH_UP, actions.SWITCH_DOWN):
            kept, broken = actions.SWITCH_SILENT, action == actions.SWITCH_SILENT
        elif action in OF_ACTION:
            kept, broken = action, value != OF_ACTION[action][2]
        else:
            continue
        since = began.pop((kept, target), None)
        if since is not None:
            yield target, (since[0], at, kept, since[1])
        if broken:
            began[kept, target] = at, value
    for (kept, target), (at, value) in began.items():
        yield target, (at, forever, kept, value)
