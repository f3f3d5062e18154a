"""The transports that a world can have, each a package beside `net` and `watch`, loaded on
demand.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from openmrc.sim.mrc.transport import Transport
from openmrc.sim.roce.transport import RoceTransport
from openmrc.sim.watch.capture import LinkCapture
from openmrc.sim.watch.side import Side

ROOMS: dict[type, str] = {Transport: "openmrc.sim.mrc", RoceTransport: "openmrc.sim.roce"}


def side_of(transport: Any) -> type[Side]:
    """Return the class through which a world uses this transport."""
    side: type[Side] = import_module(f"{ROOMS[type(transport)]}.side").SIDE
    return side


def capture_of(transport: Any) -> type[LinkCapture]:
    """Return the class that captures its frames."""
    capture: type[LinkCapture] = import_module(f"{ROOMS[type(transport)]}.capture").CAPTURE
    return capture
