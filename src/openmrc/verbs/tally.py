"""Counts of all queue pairs of a device together, including destroyed ones.

A sum over the current queue pairs would fall when one is destroyed, and a rate computed from it
would count the rest once more. So the last counts of destroyed ones are kept: by name, and by path.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from openmrc.verbs.qp import QueuePair

STATES_OF_NOW = ("cwnd_bytes", "inflight_bytes")  # a destroyed queue pair has none of these
PATHS_KEPT = 1 << 16  # of destroyed queue pairs; beyond this the oldest is forgotten


class Path(NamedTuple):
    """A path to a peer, as all queue pairs to it know it."""

    peer: int
    plane: int
    ev: int


class PathSum(NamedTuple):
    """Of all queue pairs: packets sent on a path, how many have it in which state, and the payload
    of the smallest packet that it loses although it passes smaller ones, else 0.
    """

    packets: int
    states: dict[str, int]
    narrow_bytes: int = 0


def too_narrow(where: str, narrow_bytes: Sequence[int], paths: int, probe_bytes: int) -> str:
    """The words on those of a place's paths that have `PathSum.narrow_bytes`, and pass probes."""
    return (
        f"{where}: {len(narrow_bytes)} of {paths} paths pass {probe_bytes} B"
        f" and lose {min(narrow_bytes):,} B of data: MTU?"
    )


class Sums(NamedTuple):
    """The result of `Tally.read`: `QueuePair.counters` added up, queue pairs by state, paths."""

    counters: dict[str, int]
    states: dict[str, int]
    paths: dict[Path, PathSum]


class Tally:
    """Keeps the counts of destroyed queue pairs; one lock makes sums consistent."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: Counter[str] = Counter()
        self._packets: dict[Path, int] = {}

    def retire(self, qp: QueuePair, remove: Callable[[QueuePair], None]) -> None:
        """Keep the counts of a queue pair, and remove it from the current ones."""
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
        """Return the counters alone, without reading paths."""
        with self._lock:
            found = Counter(self._counters)
            for qp in there():
                found.update(qp.counters())
        return found

    def read(self, there: Callable[[], Iterable[QueuePair]]) -> Sums:
        """Return the sums over the current queue pairs, `there`, and the destroyed ones."""
        with self._lock:
            counters, states = Counter(self._counters), Counter[str]()
            packets = Counter(self._packets)
            by_state: dict[Path, Counter[str]] = {}
            narrow: dict[Path, int] = {}
            for qp in there():
                counters.update(qp.counters())
                states[qp.state.name] += 1
                for ev in qp.evs():
                    path = Path(qp.peer, ev["plane"], ev["ev"])
                    packets[path] += ev["packets"]
                    by_state.setdefault(path, Counter())[ev["state"]] += 1
                    if ev["narrow_bytes"]:
                        least = narrow.get(path, ev["narrow_bytes"])
                        narrow[path] = min(least, ev["narrow_bytes"])
        paths = {
            path: PathSum(n, dict(by_state.get(path, {})), narrow.get(path, 0))
            for path, n in packets.items()
        }
        return Sums(dict(counters), dict(states), paths)
