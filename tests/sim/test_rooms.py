"""The rooms of the simulated world: imports go down only, annotations and lazy ones included."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import openmrc.sim
from openmrc.fabric.clos import multiplane
from openmrc.sim.kinds import ROOMS, capture_of, side_of
from openmrc.sim.watch.capture import LinkCapture
from openmrc.sim.watch.side import Side

SIM = Path(openmrc.sim.__file__).parent
BELOW = {  # what each room may import of the others
    "net": set[str](),
    "watch": {"net"},
    "mrc": {"net", "watch"},
    "roce": {"net", "watch"},
}


def rooms_imported(room: str) -> set[str]:
    found = set()
    for file in (SIM / room).glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("openmrc.sim"):
                path = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
                found.add(path[2])
    return found - {room}


@pytest.mark.parametrize("room", BELOW)
def test_a_room_imports_those_below_it_and_never_the_world(room: str) -> None:
    assert rooms_imported(room) <= BELOW[room]


@pytest.mark.parametrize("kind", ROOMS)
def test_every_transport_has_a_side_and_a_capture_of_its_own(kind: type) -> None:
    side, capture = side_of(kind()), capture_of(kind())
    assert issubclass(side, Side)
    assert issubclass(capture, LinkCapture)
    assert {c.__module__.rpartition(".")[0] for c in (side, capture)} == {ROOMS[kind]}
    capture.check(multiplane(2, 2, 10**11, 1, 2, 500_000, 250_000))
