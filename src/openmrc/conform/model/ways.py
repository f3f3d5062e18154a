"""Which plane and which EV an answer takes (row 14): the planes in turn on which packets arrive
lately, each on the EV that last delivered there, or, while none is known to, on that of what came.
"""

from __future__ import annotations

VIEW_PACKETS, VIEW_RTTS = 2, 2  # of a plane; what counts as lately is one to two such views


class Ways:
    """The ways back of a queue pair that only receives."""

    def __init__(self, planes: int, rtt_ps: int) -> None:
        self._planes, self._rtt_ps = planes, rtt_ps
        self._now = self._before = (1 << planes) - 1
        self._left, self._after_ps = 0, 0
        self.turn = 0
        self.ev: list[int | None] = [None] * planes  # None: the target's own choice
        self._known = [False] * planes
        self._asked: dict[int, tuple[int, int]] = {}  # plane -> id and EV of its last own probe
        self._probed_bytes: int | None = None

    def hears(self, plane: int, ev: int, now_ps: int) -> None:
        """A packet of the peer has come."""
        self._now |= 1 << plane
        self._left = max(self._left - 1, 0)
        if not self._left and now_ps >= self._after_ps:
            self._before, self._now = self._now, 0
            self._left = VIEW_PACKETS * self._planes
            self._after_ps = now_ps + VIEW_RTTS * self._rtt_ps
        if not self._known[plane]:
            self.ev[plane] = ev

    def probed(self, plane: int, n_bytes: int) -> None:
        """A probe has come. Two without data in between: the answer to the first may be lost."""
        if n_bytes == self._probed_bytes:
            self._known[plane] = False
        self._probed_bytes = n_bytes
        self.turn = plane - 1  # its answers begin on its plane

    def asks(self, plane: int, number: int, ev: int) -> None:
        """The target probes an EV of its own."""
        self._asked[plane] = number, ev

    def answered(self, number: int) -> None:
        """Such a probe was answered: the EV is the way back."""
        for plane, (asked, ev) in list(self._asked.items()):
            if asked == number:
                self.ev[plane], self._known[plane] = ev, True
                del self._asked[plane]

    def planes(self, up: int) -> int:
        """Mask of the planes that answers take."""
        return up & (self._now | self._before) or up

    def next(self, up: int) -> int | None:
        """The plane of the next answer; None if none is up."""
        mask = self.planes(up)
        turns = [(self.turn + k) % self._planes for k in range(1, self._planes + 1)]
        return next((plane for plane in turns if mask >> plane & 1), None)
