"""The first lines of every answer: whether something is still broken, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from openmrc.fabric import places
from openmrc.say import counted

NIC, SWITCH = re.compile(r"nic \d+"), re.compile(r"(plane \d+) t\d+ \d+")
FAR = re.compile(r" [-<>] (t\d+ \d+)")
FLAPS = 3  # times: what was bad twice may have been taken out of service between
NAMED_MAX = 3  # places in the first line; all are in the list
DONE_MAX = 8  # lines of what to do
NOTHING = "nothing: it works again"
BY_KIND = {
    "nic": "keep its node out of jobs; reset the NIC, then replace it",
    "transceiver": "replace the transceiver",
    "plane": "check what its switches share: power, configuration, the last change",
    "port": "check its cable and transceivers",
    "host": "check its port and cable on that plane",
    "path": "check both hosts' ports; more hosts in the job would tell which end it is",
}
CABLE = "reseat or replace the cable, then its transceivers"


class Bad(NamedTuple):
    """What a headline has to know of a place that is broken, or was."""

    where: str
    kind: str  # of a place; of a torch job "plane", "host", "path" or "port"
    dead: bool
    over: bool
    times: int = 1
    others: tuple[str, ...] = ()  # places that it cannot be told from
    narrow: bool = False
    ends: tuple[str, ...] = ()  # of one link, with their ports

    @property
    def flaps(self) -> bool:
        """Whether it is broken again and again."""
        return self.times >= FLAPS

    @property
    def device(self) -> str:
        """The switch or NIC at which it is, whichever of several it is; "" if there is none."""
        found = set.intersection(*map(_devices, (self.where, *self.others)))
        return min(found) if self.others and len(found) == 1 else ""

    @property
    def is_open(self) -> bool:
        """Whether it is broken, or will be again."""
        return not self.over or self.flaps


class Headline(NamedTuple):
    """The first line, and what to do at each place, in the order of the answer."""

    state: str
    to_do: tuple[tuple[str, str], ...]

    def as_json(self) -> dict[str, Any]:
        """Return its part of an answer in JSON."""
        return {"state": self.state, "to_do": [list(one) for one in self.to_do]}

    def lines(self, spoken: Callable[[str], str]) -> list[str]:
        """Return the lines that people read."""
        do = [(where, what) for where, what in self.to_do if what != NOTHING]
        rows = [f"  {spoken(where)}: {what}." for where, what in do[:DONE_MAX]]
        more = len(do) - len(rows)
        return [self.state, *rows, *[f"  And {counted(more, 'more place')} (--json)."] * (more > 0)]


def headline(bad: Sequence[Bad], spoken: Callable[[str], str], unknown: str = "") -> Headline:
    """Return the first lines on these places; with none of them, on what is `unknown`."""
    now = [it for it in bad if not it.over]
    flapping = [it for it in bad if it.over and it.flaps]
    parts = []
    if now:
        parts.append(f"Still broken: {_list(now, spoken)}.")
    if flapping:
        parts.append(f"Comes and goes: {_list(flapping, spoken)}.")
    if not parts:
        healed = f"Nothing is broken any more; {_list(bad, spoken)} was."
        several = f"Nothing is broken any more; {len(bad)} places were."
        nothing = unknown or "Nothing broke."
        parts = [nothing if not bad else healed if len(bad) == 1 else several]
    return Headline(" ".join(parts), tuple((it.where, remedy(it)) for it in bad))


def remedy(it: Bad) -> str:
    """Return what to do at a place."""
    if not it.is_open:
        return NOTHING
    if it.others and it.device in (it.where, *it.others):
        kind = "nic" if NIC.fullmatch(it.device) else "switch"
        first = _exchange(it._replace(where=it.device, kind=kind))
        named = "" if it.where == it.device else f"{it.device}: "
        return f"{named}{first}; if it stays bad, look at its links"
    if it.others:
        return "find out which it is, by probes (mrc ops agent)"
    if it.narrow:
        return "set the MTU of every port on the way"
    return _exchange(it)


def _exchange(it: Bad) -> str:
    if it.kind == "switch" and "*" in it.where:
        return BY_KIND["plane"]
    if it.kind == "switch":
        return "reboot it" if it.dead else "keep traffic off it (deny it), and reboot or replace it"
    if it.kind != "link":
        return BY_KIND[it.kind]
    if len(places.split(it.where)) > 1:
        return BY_KIND["transceiver"]  # one direction of it
    if "*" in it.where:
        device = it.where.partition(" plane *" if it.where.startswith("nic") else " t*")[0]
        return f"check what these links share, first {device.rstrip(' -<>')}"
    if " > " not in it.where and " < " not in it.where:
        return CABLE
    sends, receives = (f" ({end})" for end in it.ends) if it.ends else ("", "")
    return f"replace the transceiver that sends{sends}, then the one that receives{receives}"


def _list(bad: Sequence[Bad], spoken: Callable[[str], str]) -> str:
    named = [_named(it, spoken) for it in bad[:NAMED_MAX]]
    more = len(bad) - len(named)
    return "; ".join(named) + f"; and {more} more" * (more > 0)


def _named(it: Bad, spoken: Callable[[str], str]) -> str:
    if not it.others:
        return spoken(it.where)
    one_of = f"one of {len(it.others) + 1} places"
    if it.device:
        return f"{one_of} at {spoken(it.device)}"
    return f"{one_of}, such as {spoken(it.where)}"


def _devices(where: str) -> set[str]:
    """The switches and NICs at which a place, or each of several, is."""
    return set.intersection(*(set(_ends(each)) for each in places.split(where)))


def _ends(where: str) -> Iterator[str]:
    if nic := NIC.match(where):
        yield nic[0]
    elif switch := SWITCH.match(where):
        yield switch[0]
        if far := FAR.search(where):
            yield f"{switch[1]} {far[1]}"
