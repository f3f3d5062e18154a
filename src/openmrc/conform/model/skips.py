"""Which paths a requester passes over, since a packet on them was marked or trimmed (MRC 3.3).

A path that was marked loses its next turn: whatever its place in the rotation, it is not the next
that its plane takes for new data, as long as the plane has another that is known to be good.
"""

from __future__ import annotations


class Skips:
    """The paths of one queue pair."""

    def __init__(self, evs: int) -> None:
        self._evs = evs
        self._marked: dict[int, set[int]] = {}  # by plane: since its last packet
        self._waits: dict[int, set[int]] = {}  # and those that may still have to lose a turn

    def marks(self, ev: int) -> None:
        """A packet on a path was marked, or trimmed in the fabric."""
        for known in (self._marked, self._waits):
            known.setdefault(ev >> 16, set()).add(ev)

    def takes(self, ev: int, again: bool, bad: int) -> dict[str, int]:
        """A packet takes a path of a plane of which as many as `bad` may be left."""
        marked = self._marked.pop(ev >> 16, set())
        waits = self._waits.setdefault(ev >> 16, set())
        others = self._evs - bad - len(waits - {ev})
        waits.discard(ev)
        return {"marked": int(ev in marked)} if not again and others > 1 else {}
