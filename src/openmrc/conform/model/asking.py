"""How many probes leave together while nothing is heard (row 8): one, then two, four, and eight."""

from __future__ import annotations

DOUBLINGS = 3


class Asking:
    """The probes of one queue pair, of which none asks about a path of its own."""

    def __init__(self) -> None:
        self._at_ps, self._together = -1, 0
        self._batches = 0  # since there was progress
        self._alone = True  # nothing was heard since the first of them

    def hears(self, advance: bool) -> None:
        """The peer has sent something, with or without progress."""
        self._alone = advance or not self._batches
        self._batches *= not advance

    def asks(self, at_ps: int) -> dict[str, int]:
        """A probe leaves; the first of a batch tells of the batch before."""
        if at_ps == self._at_ps:
            self._together += 1
            return {}
        right = {}
        if self._alone and self._batches:
            wanted = 1 << min(self._batches - 1, DOUBLINGS)
            right = {"together": self._together, "wanted": wanted}
        self._at_ps, self._together = at_ps, 1
        self._batches += 1
        return right
