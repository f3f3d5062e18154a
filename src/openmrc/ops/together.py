"""Findings that belong together: both directions of a link, and the links of a transceiver.

Links share a transceiver if their ports do (`fabric.places`); when it fails they fail at once. If
each of them alone could also be another link, because only one queue pair crosses both, the
transceiver that all of them could be is the simpler explanation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from openmrc.fabric import places
from openmrc.fabric.kinds import LINKS_DEFAULT
from openmrc.fabric.model import Fabric
from openmrc.ops import causes

TRANSCEIVER = "transceiver"  # a kind, beside those of causes
NEARLY = 0.02  # of the time until now: what begins this close together begins at once
LINKS_MIN = 3  # of a transceiver's, to blame it
GAPS = 5  # mean times between two losses: the first comes later by chance in one case of 150
ALIKE = 2.0  # largest ratio of the loss rates of a link's directions if both have one cause


@dataclass(frozen=True)
class Finding:
    """A place that lost packets, as reported to people; times in us of the run."""

    where: str
    kind: str  # "link", "switch", "nic" or "transceiver"
    one_of: tuple[str, ...]  # other candidates; empty: it is this place
    ends: tuple[str, ...]  # of a link: its devices with their ports
    dead: bool  # it let nothing through
    rate: float  # else the fraction of the packets that it lost while it was bad
    lost: int
    since_us: float
    until_us: float  # of the last loss
    paths: int  # set aside because of it
    queue_pairs: int
    back: int  # of those paths that returned to service
    back_us: float | None  # when the last of them did
    nats: float
    aside_us: float = 0.0  # for how long those paths were set aside, summed
    downs: int = 0  # how often NICs saw their own ports go down; 0: inferred from losses
    beyond_drops: bool = False  # more was lost than full queues dropped, as switches counted
    counted: bool = False  # about as much is missing at switches there, or arrived damaged
    links: tuple[str, ...] = ()  # of a transceiver or NIC: those of its links that lost packets
    unanswered: int = 0  # paths that never carried data, because no probe of them was answered
    narrow_bytes: int = 0  # its paths pass small packets, and lose those with so much payload
    times: int = 1  # how often it was bad
    # Edges as ranges: seen well last and lost first at; lost last and seen well again at, None if
    # it never was. None where they are not known so.
    began_us: tuple[float, float] | None = None
    ended_us: tuple[float, float | None] | None = None
    earliest_us: float | None = None  # from when on it may have been bad, without a loss by chance


def joined(fabric: Fabric, findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings, with those that belong together merged."""
    return _transceivers(fabric, _one_link(_both_ways(findings)))


def plain(where: str) -> str:
    """Return a link's name without its direction."""
    return where.replace(" > ", " - ").replace(" < ", " - ")


def _at_once(one: Finding, other: Finding) -> bool:
    last = max(one.until_us, other.until_us)
    return abs(one.since_us - other.since_us) <= NEARLY * last


def _alike(one: Finding, other: Finding) -> bool:
    """Whether two places lost about the same part of their packets during the same time. When the
    first and the last of them are lost is chance.
    """
    if one.dead or other.dead or max(one.rate, other.rate) > ALIKE * min(one.rate, other.rate):
        return False
    gap = max((it.until_us - it.since_us) / max(it.lost - 1, 1) for it in (one, other))
    first, second = sorted((one, other), key=lambda it: it.since_us)
    by_chance = second.earliest_us is not None and second.earliest_us <= first.since_us
    begun = by_chance or second.since_us - first.since_us <= GAPS * gap
    return begun and abs(one.until_us - other.until_us) <= GAPS * gap


def at_one_time(one: Finding, other: Finding) -> bool:
    """Return whether two began at once, or lost about as much during the same time."""
    return _at_once(one, other) or _alike(one, other)


def _both_ways(findings: Iterable[Finding]) -> list[Finding]:
    found: list[Finding] = []
    for one in findings:
        for i, other in enumerate(found):
            if (
                one.kind == other.kind == causes.LINK
                and not (one.one_of or other.one_of)
                and plain(one.where) == plain(other.where)
                and one.where != other.where
                and at_one_time(one, other)
            ):
                both = replace(summed([other, one]), where=plain(one.where), ends=other.ends)
                # What is cut at once is one cut, though less is known of one direction.
                found[i] = replace(both, dead=one.dead or other.dead)
                break
        else:
            found.append(one)
    return found


def _one_link(findings: list[Finding]) -> list[Finding]:
    """Merge two that began at once, each one of several places, if there is a link that both may
    be: if each direction carries only one queue pair, that is how a cut cable looks. With three of
    them it may be a switch as well.
    """
    unsure = [it for it in findings if it.one_of]
    if len(unsure) != 2 or not _at_once(*unsure):
        return findings
    names = [{plain(name) for name in (it.where, *it.one_of) if _is_link(name)} for it in unsure]
    both = names[0] & names[1]
    if len(both) != 1:
        return findings
    left = [it for it in findings if not it.one_of]
    return [*left, replace(summed(unsure), where=both.pop(), kind=causes.LINK)]


def _is_link(name: str) -> bool:
    return " > " in name or " < " in name


def _transceivers(fabric: Fabric, findings: list[Finding]) -> list[Finding]:
    left = list(findings)
    found: list[Finding] = []
    while True:
        shared: dict[str, list[tuple[int, str]]] = defaultdict(list)
        for i, finding in enumerate(left):
            for name in sorted({plain(each) for each in (finding.where, *finding.one_of)}):
                for transceiver in _transceivers_of(fabric, name):
                    shared[transceiver].append((i, name))
        # Of those that explain as many links, the one that explains most losses is it.
        best, most, mine = "", (0, 0), list[int]()
        for name, members in sorted(shared.items()):
            first = left[members[0][0]]
            together = [(i, link) for i, link in members if at_one_time(left[i], first)]
            # Several candidate links of one finding count as one link of it.
            those = sorted({i for i, _ in together})
            n = min(len({link for _, link in together}), len(those))
            worth = (n, sum(left[i].lost for i in those))
            if worth > most:
                best, most, mine = name, worth, those
        if most[0] < LINKS_MIN:
            return found + left
        parts = [left[i] for i in mine]
        devices = [{name for name in it.one_of if not _is_link(name)} for it in parts]
        links = tuple(it.where for it in parts if not it.one_of)
        one = replace(summed(parts), where=best, kind=TRANSCEIVER, links=links)
        found.append(replace(one, one_of=tuple(sorted(set.intersection(*devices)))))
        left = [finding for i, finding in enumerate(left) if i not in mine]


def _transceivers_of(fabric: Fabric, link: str) -> list[str]:
    """The transceivers at both ends of a link; none if the place is not a link."""
    if places.kind_of(link) not in ("nic", "link"):
        return []
    found = []
    for port in places.links(fabric, link)[:2].tolist():
        switch = int(fabric.port_switch[port])
        if switch < 0:
            if fabric.n_planes > LINKS_MIN:
                number = port % fabric.n_planes // LINKS_DEFAULT
                found.append(f"nic {fabric.port_nic[port]} transceiver {number}")
            continue
        n_down = int(fabric.sw_first_up[switch] - fabric.sw_first_down[switch])
        own = port - int(fabric.sw_first_down[switch])
        below = -(-n_down // LINKS_DEFAULT)
        number = own // LINKS_DEFAULT if own < n_down else below + (own - n_down) // LINKS_DEFAULT
        found.append(f"{fabric.switch_name(switch)} transceiver {number}")
    return found


def summed(parts: Sequence[Finding]) -> Finding:
    """Return what was found of several places, as of the first of them."""
    return replace(
        parts[0],
        one_of=(),
        ends=(),
        dead=all(part.dead for part in parts),
        rate=max(part.rate for part in parts),
        lost=sum(part.lost for part in parts),
        since_us=min(part.since_us for part in parts),
        until_us=max(part.until_us for part in parts),
        paths=sum(part.paths for part in parts),
        queue_pairs=max(part.queue_pairs for part in parts),
        back=sum(part.back for part in parts),
        back_us=max((part.back_us for part in parts if part.back_us is not None), default=None),
        nats=round(sum(part.nats for part in parts), 1),
        earliest_us=None,
        aside_us=round(sum(part.aside_us for part in parts), 3),
        beyond_drops=all(part.beyond_drops for part in parts),
        counted=all(part.counted for part in parts),
        unanswered=sum(part.unanswered for part in parts),
        narrow_bytes=min(part.narrow_bytes for part in parts),
    )
