"""Strangers at a door, who do not prove the secret."""

from __future__ import annotations

import time

from openmrc.verbs.door import Door
from tests.live.two import PATIENCE_S


def turns_away(door: Door, n: int) -> None:
    """Let nobody in, until `n` have been turned away."""
    until = time.monotonic() + PATIENCE_S
    while door.turned_away < n and time.monotonic() < until:
        assert door.next(time.monotonic() + 0.05) is None
    assert door.turned_away == n
