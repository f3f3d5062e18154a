"""The diagrams of docs/protocol.md and of docstrings, drawn from the tables in the code."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from openmrc.engine import ev, fate
from openmrc.engine.qp import QP_STATES, STEPS


def of_ev() -> str:
    """The states of an EV."""
    return _arrows(ev.EVENTS, ev.EV_STATES)


def of_fate() -> str:
    """The fates of a transmission."""
    return _arrows(fate.EVENTS, fate.FATES)


def _arrows(events: Iterable[Any], names_of: dict[int, str]) -> str:
    """An arrow for each pair of ends, with the events that lead along it."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for event in events:
        before = ", ".join(names_of[state] for state in event.before)
        arrows.setdefault((before, names_of[event.after]), []).append(event.name)
    left = max(len(before) for before, _ in arrows)
    middle = max(len(", ".join(names)) for names in arrows.values()) + 3
    return "".join(
        f"{before:{left}} -- {', '.join(names) + ' ':-<{middle}}> {after}\n"
        for (before, after), names in arrows.items()
    )


def of_qp() -> str:
    """A line for each state, with the states that may follow."""
    width = max(map(len, QP_STATES.values()))
    lines = (
        f"{QP_STATES[now]:{width}} -> {', '.join(QP_STATES[to] for to in after) or 'nothing'}\n"
        for now, after in STEPS.items()
    )
    return "".join(lines)
