"""What the paths of one NIC say of the fabric's links: sums, and which link is under suspicion.

With SRv6 an EV is a physical path (MRC 2.12), so its links are known. A link is cleared by any good
path that crosses it. Of the others that bad paths cross, one is suspect unless another explains
more: all of its bad paths cross that one too, and further ones. So if a whole plane is bad the
suspect is the NIC's own link, and if an uplink is, not the links after it. This is what one NIC can
know by itself: links that it only ever uses together stay together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from openmrc.errors import InputError
from openmrc.fabric.model import Fabric
from openmrc.verbs.tally import Path, PathSum

BAD, DENIED = "ASSUMED_BAD", "DENIED"
LINKS_SHOWN = 64  # of a NIC: suspects first, then those with most bad paths, then the busiest
PATHS_SHOWN = 16
LINKS_KEPT = 1 << 18  # paths whose links are cached; one takes some 10 us to look up


class LinkSum(NamedTuple):
    """One direction of a link: packets sent over it, current paths across it, bad ones of them."""

    packets: int
    paths: int
    bad: int
    suspect: bool


Links = Callable[[Path], Sequence[int]]  # the directed ports of a path


def links_of(fabric: Fabric, nic: int) -> Links:
    """Return a function from a path of a NIC to its links; it caches them."""

    @lru_cache(maxsize=LINKS_KEPT)
    def links(path: Path) -> Sequence[int]:
        try:
            return tuple(fabric.route(nic, path.peer, path.ev))
        except InputError:  # an EV that names no path of this fabric, as hashed ones
            return ()

    return links


def by_link(links: Links, paths: Mapping[Path, PathSum]) -> dict[int, LinkSum]:
    """Return the sum of every directed port that any of a NIC's paths crosses."""
    packets: dict[int, int] = {}
    n: dict[int, int] = {}
    bad: dict[int, set[Path]] = {}
    cleared: set[int] = set()
    for path, counted in paths.items():
        is_bad = BAD in counted.states
        if any(state not in (BAD, DENIED) for state in counted.states):
            cleared.update(links(path))
        for link in links(path):
            packets[link] = packets.get(link, 0) + counted.packets
            n[link] = n.get(link, 0) + bool(counted.states)
            if is_bad:
                bad.setdefault(link, set()).add(path)
    suspects = _suspects({link: found for link, found in bad.items() if link not in cleared})
    return {
        link: LinkSum(packets[link], n[link], len(bad.get(link, ())), link in suspects)
        for link in packets
    }


def _suspects(bad: Mapping[int, set[Path]]) -> set[int]:
    """The links for which no other link has all their bad paths and more."""
    found: set[int] = set()
    largest: list[set[Path]] = []
    for link in sorted(bad, key=lambda link: -len(bad[link])):
        if not any(bad[link] < other for other in largest):
            found.add(link)
            largest += [bad[link]] if bad[link] not in largest else []
    return found


def shown(sums: Mapping[int, LinkSum]) -> list[int]:
    """Return the links to show, the worst first; `LINKS_SHOWN` at most."""

    def key(link: int) -> tuple[bool, int, int, int]:
        one = sums[link]
        return not one.suspect, -one.bad, -one.packets, link

    return sorted(sums, key=key)[:LINKS_SHOWN]


def busiest(paths: Mapping[Path, PathSum]) -> Iterable[Path]:
    """Return the paths to show: those that carried the most packets."""
    return sorted(paths, key=lambda path: (-paths[path].packets, path))[:PATHS_SHOWN]
