"""What all queue pairs of a device have counted together, those that were destroyed too.

A sum over what is there now would fall when a queue pair goes, and whoever takes rates of it would
see the rest counted once more. So the last counts of those that go are kept: by name, and by path.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from openmrc.verbs.qp import QueuePair

STATES_OF_NOW = ("cwnd_bytes", "inflight_bytes")  # nothing is left of them
PATHS_KEPT = 1 << 16  # of queue pairs that are gone; then the oldest is forgotten


class Path(NamedTuple):
    """A way to a peer, as all queue pairs to it know it."""

    peer: int
    plane: int
    ev: int


class PathSum(NamedTuple):
    """Of all queue pairs: what was sent on a path, and in how many it is in which state."""

    packets: int
    states: dict[str, int]


class Sums(NamedTuple):
    """What `Tally.read` tells: `QueuePair.counters` added up, queue pairs by state, paths."""

    counters: dict[str, int]
    states: dict[str, int]
    paths: dict[Path, PathSum]


class Tally:
    """Keeps the counts of queue pairs that are gone; one lock makes a sum a sum."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: Counter[str] = Counter()
        self._packets: dict[Path, int] = {}

    def retire(self, qp: QueuePair, remove: Callable[[QueuePair], None]) -> None:
        """Keep what a queue pair has counted, and take it from those that are there."""
        with self._lock:
            for name, n in qp.counters().items():
                if name not in STATES_OF_NOW:
                    self._counters[name] += n
            for ev in qp.evs():
                path = Path(qp.peer, ev["plane"], ev["ev"])
                self._packets[path] = self._packets.pop(path, 0) + ev["packets"]
            while len(self._packets) > PATHS_KEPT:
                del self._packets[next(iter(self._packets))]
            remove(qp)

    def counters(self, there: Callable[[], Iterable[QueuePair]]) -> Counter[str]:
        """Return the counters alone, which takes no look at paths."""
        with self._lock:
            found = Counter(self._counters)
            for qp in there():
                found.update(qp.counters())
        return found

    def read(self, there: Callable[[], Iterable[QueuePair]]) -> Sums:
        """Return the sums over what is `there`, and what was."""
        with self._lock:
            counters, states = Counter(self._counters), Counter[str]()
            packets = Counter(self._packets)
            by_state: dict[Path, Counter[str]] = {}
            for qp in there():
                counters.update(qp.counters())
                states[qp.state.name] += 1
                for ev in qp.evs():
                    path = Path(qp.peer, ev["plane"], ev["ev"])
                    packets[path] += ev["packets"]
                    by_state.setdefault(path, Counter())[ev["state"]] += 1
        paths = {path: PathSum(n, dict(by_state.get(path, {}))) for path, n in packets.items()}
        return Sums(dict(counters), dict(states), paths)
