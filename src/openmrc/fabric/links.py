"""A fabric as a list of links, one a line of CSV: what somebody has, instead of sizes.

    a,b,rate,delay,plane
    nic0,leaf1,200Gbps,500ns,0
    leaf1,spine1,400Gbps,1us,0

The first line names the columns: the two ends (`a` and `b`, or `lower` and `upper` as in the
`links.csv` of `mrc switches`), `rate` (or `rate_bps`, a number), optionally `delay` and `plane`.
Ends named `nic0`, `nic1` ... are NICs, all others switches.

Packets find their way by static uSID tables, which exist for a folded Clos: planes of two or three
tiers, alike but for the rates and delays of their links (`fabric.clos`). So the list must be one,
and what is missing or too much in it is refused by name. Switches are numbered as `fabric.clos` has
them: T0s by their lowest NIC, the others by their names, in natural order ("spine2" before
"spine10").
"""

from __future__ import annotations

import csv
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from openmrc.errors import InputError
from openmrc.fabric.clos import PLANES_BUILT_MAX, Tier, build
from openmrc.fabric.model import Fabric
from openmrc.reading import read_text
from openmrc.say import counted
from openmrc.units import parse_rate, parse_time

DELAY_PS = 500_000  # of a link that states none
TIERS_MAX = 3
_NIC = re.compile(r"nic ?([0-9]{1,7})", re.ASCII | re.IGNORECASE)
_NAMES = {
    "a": ("a", "lower"),
    "b": ("b", "upper"),
    "rate": ("rate", "rate_bps"),
    "delay": ("delay",),
    "plane": ("plane",),
}


class Link(NamedTuple):
    """One line; its ends in the order of the tiers once those are known."""

    place: str  # file:line
    a: str
    b: str
    rate_bps: int
    delay_ps: int
    plane: int


_Between = dict[tuple[str, str], list[Link]]  # of a lower end and an upper one


class _Plane(NamedTuple):
    """The switches of a plane in the order of `fabric.clos`, and the links of each pair of ends."""

    tiers: list[list[str]]
    between: _Between
    shape: tuple[int, ...]


def load_links(path: str | Path, switch_delay_ps: int) -> Fabric:
    """Return the fabric of a list of links; `InputError` names file and line, or what it lacks."""
    links = _read(path)
    by_plane: dict[int, list[Link]] = defaultdict(list)
    for link in links:
        by_plane[link.plane].append(link)
    n_planes = len(by_plane)
    if sorted(by_plane) != list(range(n_planes)) or n_planes > PLANES_BUILT_MAX:
        raise InputError(
            f"{path}: planes {', '.join(map(str, sorted(by_plane)))}; 0, 1, 2 ... are accepted,"
            f" {PLANES_BUILT_MAX} at most"
        )
    nics = _nics(path, links)
    planes = [_plane(f"{path}: plane {k}", by_plane[k], nics) for k in range(n_planes)]
    for k, plane in enumerate(planes):
        if plane.shape != planes[0].shape:
            raise InputError(
                f"{path}: plane {k} is a Clos of other sizes than plane 0; all planes are alike"
            )
    built = build("links", len(nics), n_planes, _tiers(planes[0].shape, links, switch_delay_ps))
    return _with_rates(built, nics, planes)


def _read(path: str | Path) -> list[Link]:
    lines = read_text(path, "a list of links as CSV").splitlines()
    rows = [(n, [cell.strip() for cell in row]) for n, row in enumerate(csv.reader(lines), 1)]
    rows = [(n, row) for n, row in rows if any(row) and not row[0].startswith("#")]
    if not rows:
        raise InputError(f"{path}: nothing in it; name a list of links as CSV")
    (first, head), *rest = rows
    columns = {
        key: next((head.index(name) for name in names if name in head), None)
        for key, names in _NAMES.items()
    }
    for key in ("a", "b", "rate"):
        if columns[key] is None:
            raise InputError(
                f"{path}:{first}: no column {' or '.join(_NAMES[key])}; accepted:"
                " a,b,rate,delay,plane"
            )
    return [_link(f"{path}:{number}", row, columns, len(head)) for number, row in rest]


def _link(place: str, row: Sequence[str], columns: dict[str, int | None], width: int) -> Link:
    if len(row) != width:
        raise InputError(f"{place}: {len(row)} cells in a table of {width} columns")
    cell = {key: "" if at is None else row[at] for key, at in columns.items()}
    if not cell["a"] or not cell["b"] or cell["a"] == cell["b"]:
        raise InputError(f"{place}: ends {cell['a']!r} and {cell['b']!r}; name two")
    plane = cell["plane"].removeprefix("plane").strip() or "0"
    if not plane.isdecimal():
        raise InputError(f"{place}: plane {cell['plane']!r}; a number from 0 is accepted")
    rate = f"{cell['rate']}bps" if cell["rate"].isdecimal() else cell["rate"]
    try:
        rate_bps = parse_rate(rate)
        delay_ps = parse_time(cell["delay"]) if cell["delay"] else DELAY_PS
    except InputError as error:
        raise error.at(place) from None
    if not rate_bps:
        raise InputError(f"{place}: rate {cell['rate']!r}; more than 0 is accepted")
    return Link(place, _name(cell["a"]), _name(cell["b"]), rate_bps, delay_ps, int(plane[:9]))


def _name(end: str) -> str:
    """The name of an end; of a NIC always "nic 5"."""
    found = _NIC.fullmatch(end)
    return f"nic {int(found[1])}" if found else end


def _is_nic(end: str) -> bool:
    return _NIC.fullmatch(end) is not None


def _natural(name: str) -> list[tuple[int, str]]:
    """The key by which "spine2" comes before "spine10"."""
    return [(int(part or 0), "") if part.isdecimal() else (-1, part)
            for part in re.split(r"([0-9]+)", name)]  # fmt: skip


def _nics(path: str | Path, links: Iterable[Link]) -> list[str]:
    nics = sorted({end for link in links for end in link[1:3] if _is_nic(end)}, key=_natural)
    if nics != [f"nic {n}" for n in range(len(nics))] or len(nics) < 2:
        raise InputError(
            f"{path}: {counted(len(nics), 'NIC')}, {nics[-1] if nics else 'nic 0'} the last; two"
            " or more, nic 0, nic 1 ... without a gap, are accepted"
        )
    return nics


def _plane(place: str, links: list[Link], nics: Sequence[str]) -> _Plane:
    """The switches of a plane, tier by tier; `InputError` says why it is no Clos."""
    near: dict[str, set[str]] = defaultdict(set)
    for link in links:
        near[link.a].add(link.b)
        near[link.b].add(link.a)
    levels: list[set[str]] = [set(nics)]
    seen = set(nics)
    while onward := {end for lower in levels[-1] for end in near[lower]} - seen:
        levels.append(onward)
        seen |= onward
    level = {end: number for number, ends in enumerate(levels) for end in ends}
    for link in links:
        if abs(level.get(link.a, 9) - level.get(link.b, 9)) != 1:
            raise InputError(
                f"{link.place}: {link.a} and {link.b} are no neighbours in tiers above NICs; only"
                " a Clos has SRv6 paths here"
            )
    if len(levels) - 1 not in (2, TIERS_MAX):
        raise InputError(f"{place}: {len(levels) - 1} tiers of switches; 2 or 3 are accepted")
    between: _Between = defaultdict(list)
    for link in links:
        lower, upper = sorted((link.a, link.b), key=level.__getitem__)
        between[lower, upper].append(link)
    up = {end: sorted((e for e in near[end] if level[e] > level[end]), key=_natural)
          for end in seen}  # fmt: skip
    down = {end: {e for e in near[end] if level[e] < level[end]} for end in seen}
    t0s = _t0s(place, nics, up, between)
    pods, t1s = _pods(place, t0s, up, down)
    tiers, shape = [t0s, t1s], [len(t0s), len(pods[0]), len(t1s) // len(pods)]
    if len(levels) - 1 == TIERS_MAX:
        tiers.append(_t2s(place, t1s, len(pods), up, down))
        shape.append(len(tiers[2]) // shape[2])
    bundles = [_bundle(place, lower, up, between) for lower in tiers[:-1]]
    per_t0 = max(len(down[t0]) for t0 in t0s)
    return _Plane(tiers, dict(between), (per_t0, *shape, *bundles))


def _t0s(place: str, nics: Sequence[str], up: dict[str, list[str]], between: _Between) -> list[str]:
    """The T0s by their lowest NIC; all but the last serve equally many, which follow each other."""
    for nic in nics:
        if len(up[nic]) != 1 or len(between[nic, up[nic][0]]) != 1:
            raise InputError(f"{place}: {nic} has {len(up[nic])} T0s; one link to one is accepted")
    serving = [up[nic][0] for nic in nics]
    t0s = list(dict.fromkeys(serving))
    size = serving.count(t0s[0])
    if serving != [t0s[n // size] for n in range(len(nics)) if n // size < len(t0s)]:
        raise InputError(
            f"{place}: {t0s[0]} serves {counted(size, 'NIC')}; the others serve as many,"
            " in the order of their numbers, and the last at most as many"
        )
    return t0s


def _pods(
    place: str, t0s: Sequence[str], up: dict[str, list[str]], down: dict[str, set[str]]
) -> tuple[list[list[str]], list[str]]:
    """The pods, T0s that share T1s; and the T1s, pod by pod."""
    pods: list[list[str]] = []
    for t0 in t0s:
        if pods and up[pods[-1][0]] == up[t0]:
            pods[-1].append(t0)
        else:
            pods.append([t0])
    t1s: list[str] = []
    for pod in pods:
        for t1 in up[pod[0]]:
            if down[t1] != set(pod):
                odd = min(down[t1] ^ set(pod), key=_natural)
                raise InputError(
                    f"{place}: {t1} and {odd}: all T0s of a pod have links to the same T1s, and"
                    " no others have"
                )
        t1s += up[pod[0]]
    if (
        len({len(up[pod[0]]) for pod in pods}) > 1
        or any(len(pod) != len(pods[0]) for pod in pods[:-1])
        or len(pods[-1]) > len(pods[0])
    ):
        raise InputError(f"{place}: pods of different sizes; all but the last are alike")
    return pods, t1s


def _t2s(
    place: str, t1s: Sequence[str], n_pods: int, up: dict[str, list[str]], down: dict[str, set[str]]
) -> list[str]:
    """The T2s: those of the T1s with the same number in every pod, number by number."""
    t1s_per_pod = len(t1s) // n_pods
    t2s: list[str] = []
    for number in range(t1s_per_pod):
        alike = [t1s[pod * t1s_per_pod + number] for pod in range(n_pods)]
        for t1 in alike:
            if up[t1] != up[alike[0]] or len(up[t1]) != len(up[t1s[0]]):
                raise InputError(
                    f"{place}: {t1} and {alike[0]}: T1s with the same number in their pods (by"
                    " their names) have links to the same T2s"
                )
        for t2 in up[alike[0]]:
            if down[t2] != set(alike):
                raise InputError(f"{place}: {t2} has links to T1s of different numbers in a pod")
        t2s += up[alike[0]]
    return t2s


def _bundle(place: str, lower: Sequence[str], up: dict[str, list[str]], between: _Between) -> int:
    """How many links each of these switches has to each above: the same everywhere."""
    counts = Counter(len(between[one, other]) for one in lower for other in up[one])
    if len(counts) != 1:
        raise InputError(
            f"{place}: {' and '.join(map(str, sorted(counts)))} links between two switches of the"
            " same tiers; all have the same number"
        )
    return next(iter(counts))


def _tiers(shape: tuple[int, ...], links: Sequence[Link], switch_delay_ps: int) -> list[Tier]:
    link = (links[0].rate_bps, links[0].delay_ps, switch_delay_ps)  # of each port: `_with_rates`
    if len(shape) == 5:  # NICs a T0; T0s, T0s a pod, T1s a pod; links between T0 and T1
        per_t0, _, _, t1s, bundle = shape
        return [Tier(per_t0, t1s * bundle, *link), Tier(0, 0, *link, bundle=bundle)]
    per_t0, _, t0s, t1s, t2s, bundle, upper = shape
    return [
        Tier(per_t0, t1s * bundle, *link),
        Tier(t0s, t2s * upper, *link, bundle=bundle),
        Tier(0, 0, *link, bundle=upper),
    ]


def _with_rates(fabric: Fabric, nics: Sequence[str], planes: Sequence[_Plane]) -> Fabric:
    """Return the fabric with the rate and delay of every link of the list."""
    rate_bps, delay_ps = fabric.port_rate_bps.copy(), fabric.port_delay_ps.copy()
    name: dict[int, str] = {}
    for switch in range(fabric.n_switches):
        tier, plane = int(fabric.sw_tier[switch]), int(fabric.sw_plane[switch])
        name[switch] = planes[plane].tiers[tier][int(fabric.sw_index[switch])]
    left = [{ends: list(links) for ends, links in plane.between.items()} for plane in planes]
    for port in range(fabric.n_ports):
        own, far = int(fabric.port_switch[port]), int(fabric.port_peer_switch[port])
        if far < 0 or (own >= 0 and fabric.sw_tier[own] > fabric.sw_tier[far]):
            continue  # each link once, from below
        lower = nics[int(fabric.port_nic[port])] if own < 0 else name[own]
        link = left[int(fabric.sw_plane[far])][lower, name[far]].pop(0)
        for end in (port, int(fabric.port_reverse[port])):
            rate_bps[end], delay_ps[end] = link.rate_bps, link.delay_ps
    return replace(fabric, port_rate_bps=rate_bps, port_delay_ps=delay_ps)
