"""The names of places in a fabric: "nic 5 plane 3", "plane 3 t0 5", "plane 3 t0 5 - t1 2".

    nic N plane P                  both directions of that NIC's link; " - t0" may follow
    nic N plane P > t0             from the NIC only ("< t0": towards the NIC only)
    plane P tA I                   switch I of tier A
    plane P tA I - tB J            both directions of the link (">" and "<": one direction)
    plane P tA I - tB J link K     the K-th of several parallel links
    plane P                        a whole plane
    plane P tA I transceiver K     the K-th group of links of a switch that share a transceiver
    nic N transceiver K            the K-th group of ports of a NIC that do

Any one number may be "*": all that exist. The error for a place that does not exist lists those
that do. Transceivers of a switch are counted over its ports downwards and then over those upwards,
the ports of each in the order of their numbers; those of a NIC over its planes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from openmrc.errors import InputError
from openmrc.fabric.kinds import LINKS_DEFAULT
from openmrc.fabric.model import BoolArray, Fabric, LongArray
from openmrc.units import integer

_N = r"(\d+|\*)"
_NIC = re.compile(rf"nic {_N} plane {_N}(?: ([-<>]) t0)?", re.ASCII)
_WHOLE_NIC = re.compile(rf"nic {_N}", re.ASCII)
_SWITCH = re.compile(rf"plane {_N} t(\d+) {_N}", re.ASCII)
_LINK = re.compile(rf"plane {_N} t(\d+) {_N} ([-<>]) t(\d+) {_N}(?: link {_N})?", re.ASCII)
_PLANE = re.compile(rf"plane {_N}", re.ASCII)
_TRANSCEIVER = re.compile(rf"(?:plane {_N} t(\d+) {_N}|nic {_N}) transceiver {_N}", re.ASCII)
_NICS = re.compile(r"(\d+)(?: ?- ?(\d+))?", re.ASCII)
_KINDS = {
    "nic": _NIC,
    "link": _LINK,
    "switch": _SWITCH,
    "plane": _PLANE,
    "transceiver": _TRANSCEIVER,
}
_FLIPPED = {"<": ">", ">": "<", "-": "-"}

LINK_EXAMPLES = '"plane 3 t0 5 - t1 2" or "nic 5 plane 3"'
SWITCH_EXAMPLES = '"plane 3 t0 5"'
NIC_PORT_EXAMPLES = '"nic 5 plane 3"'
TRANSCEIVER_EXAMPLES = '"plane 3 t0 5 transceiver 1" or "nic 5 transceiver 0"'


class Things(NamedTuple):
    """What a place names, thing by thing: thing `i` is `targets[first[i] : first[i + 1]]`.

    The targets are directed ports (of a link, a transceiver ...) or switches.
    """

    targets: LongArray
    first: LongArray

    @classmethod
    def of(cls, each: Sequence[LongArray]) -> Things:
        """Return the things that have these targets."""
        sizes = [len(targets) for targets in each]
        return cls(np.concatenate(each), np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]))

    @classmethod
    def one_each(cls, targets: LongArray) -> Things:
        """Return the things that have one target each."""
        return cls(targets, np.arange(len(targets) + 1))

    @classmethod
    def join(cls, parts: Sequence[Things]) -> Things:
        """Return the things of all `parts`."""
        sizes = np.concatenate([np.diff(part.first) for part in parts])
        first = np.concatenate([[0], np.cumsum(sizes)])
        return cls(np.concatenate([part.targets for part in parts]), first)

    def __len__(self) -> int:
        return len(self.first) - 1

    def take(self, chosen: LongArray) -> tuple[LongArray, LongArray]:
        """Return the targets of the things `chosen`, concatenated, and how many each has."""
        sizes = np.diff(self.first)[chosen]
        ends = np.cumsum(sizes)
        within = np.arange(int(sizes.sum())) - np.repeat(ends - sizes, sizes)
        return self.targets[np.repeat(self.first[chosen], sizes) + within], sizes


class _Ends(NamedTuple):
    """A link by its ends, the lower one first; ">" is upwards."""

    plane: str
    lower_tier: int
    lower: str
    arrow: str
    upper_tier: int
    upper: str
    parallel: str


def split(where: str | Sequence[str]) -> list[str]:
    """Return the places of a list, or of a text with commas between them, one by one."""
    texts = [where] if isinstance(where, str) else where
    return [part.strip() for text in texts for part in text.split(",")]


def kind_of(where: str) -> str:
    """Return the kind of place that `where` names, by its form: "nic", "link", "switch", "plane" or
    "transceiver"; "" if it names none.
    """
    text = _squeezed(where)
    return next((kind for kind, form in _KINDS.items() if form.fullmatch(text)), "")


def links(fabric: Fabric, where: str) -> LongArray:
    """Return the directed ports that send on the links named by `where`."""
    text = _squeezed(where)
    if match := _NIC.fullmatch(text):
        nic, plane, arrow = match.groups(default="-")
        return _directed(fabric, _nic_ports(fabric, nic, plane), arrow)
    if match := _LINK.fullmatch(text):
        plane, tier_a, a, arrow, tier_b, b, parallel = match.groups(default="*")
        ends = _Ends(plane, int(tier_a), a, arrow, int(tier_b), b, parallel)
        if ends.lower_tier > ends.upper_tier:
            ends = _Ends(plane, int(tier_b), b, _FLIPPED[arrow], int(tier_a), a, parallel)
        return _directed(fabric, _uplinks(fabric, ends), ends.arrow)
    raise InputError(f"not a link; {LINK_EXAMPLES} is accepted")


def switches(fabric: Fabric, where: str) -> LongArray:
    """Return the numbers of the switches named by `where`."""
    match = _SWITCH.fullmatch(_squeezed(where))
    if match is None:
        raise InputError(f"not a switch; {SWITCH_EXAMPLES} is accepted")
    plane, tier, index = match.groups()
    return np.flatnonzero(_switch_mask(fabric, plane, int(tier), index))


def ports(fabric: Fabric, where: str) -> LongArray:
    """Return the directed ports of everything that `where` names: all links of a NIC, a switch or
    a plane, those of a transceiver of `LINKS_DEFAULT`, links as in `links`, "everywhere"; or of
    several of these, with commas between them.
    """
    text = _squeezed(where)
    if "," in text:
        return np.unique(np.concatenate([ports(fabric, each) for each in split(text)]))
    if text == "everywhere":
        return np.arange(fabric.n_ports)
    if match := _WHOLE_NIC.fullmatch(text):
        return _directed(fabric, _nic_ports(fabric, match[1], "*"), "-")
    if _SWITCH.fullmatch(text):
        of = [np.concatenate(ports_of(fabric, int(s))) for s in switches(fabric, text)]
        own: LongArray = np.concatenate(of)
        return np.concatenate([own, fabric.port_reverse[own]])
    if _PLANE.fullmatch(text):
        return np.flatnonzero(np.isin(_plane_of_ports(fabric), planes(fabric, text)))
    if _TRANSCEIVER.fullmatch(text):
        return transceivers(fabric, text, LINKS_DEFAULT).targets
    try:
        return links(fabric, text)
    except InputError as error:
        if not str(error).startswith("not a link"):
            raise
    raise InputError(
        f'not a place; {LINK_EXAMPLES}, "nic 5", {SWITCH_EXAMPLES}, "plane 3" or "everywhere" is'
        " accepted"
    )


def nic_ports(fabric: Fabric, where: str) -> LongArray:
    """Return the NICs' own ports named by `where`, without a direction."""
    match = _NIC.fullmatch(_squeezed(where))
    if match is None or match[3]:
        raise InputError(f"not a NIC's port; {NIC_PORT_EXAMPLES} is accepted")
    return _nic_ports(fabric, match[1], match[2])


def planes(fabric: Fabric, where: str) -> LongArray:
    """Return the numbers of the planes named by `where`."""
    match = _PLANE.fullmatch(_squeezed(where))
    if match is None:
        raise InputError('not a plane; "plane 3" is accepted')
    return _chosen(match[1], fabric.n_planes, "plane")


def transceivers(fabric: Fabric, where: str, links_each: int) -> Things:
    """Return the transceivers named by `where`: the directed ports of their links."""
    match = _TRANSCEIVER.fullmatch(_squeezed(where))
    if match is None:
        raise InputError(f"not a transceiver; {TRANSCEIVER_EXAMPLES} is accepted")
    plane, tier, index, nic, number = match.groups()
    if nic is not None:
        ports = np.arange(fabric.n_planes)
        first = _chosen(nic, fabric.n_nics, "nic") * fabric.n_planes
        owned = [_groups(n + ports, links_each) for n in first.tolist()]
    else:
        owned = [
            _groups(down, links_each) + _groups(up, links_each)
            for switch in np.flatnonzero(_switch_mask(fabric, plane, int(tier), index)).tolist()
            for down, up in [ports_of(fabric, switch)]
        ]
    most = max(len(groups) for groups in owned)
    wanted = _chosen(number, most, "transceiver").tolist()
    return Things.of(
        [
            np.concatenate([groups[k], fabric.port_reverse[groups[k]]])
            for groups in owned
            for k in wanted
            if k < len(groups)
        ]
    )


def by_link(fabric: Fabric, ports: LongArray) -> Things:
    """Return these directed ports link by link, each once: both directions if both are there."""
    named = np.zeros(fabric.n_ports, np.bool_)
    named[ports] = True
    ports = np.flatnonzero(named)
    link = np.minimum(ports, fabric.port_reverse[ports])
    order = np.argsort(link, kind="stable")
    first = np.flatnonzero(np.diff(link[order], prepend=-1))
    return Things(ports[order], np.append(first, len(ports)))


def nics(fabric: Fabric, text: str) -> LongArray:
    """Return the NICs of a text such as "0-7, 12"."""
    chosen = []
    for part in split(text):
        match = _NICS.fullmatch(_squeezed(part))
        if match is None:
            raise InputError(f'{part!r}: not a NIC\'s number or a range; "0-7, 12" is accepted')
        first = last = integer(match[1])
        if match[2] is not None:
            last = integer(match[2])
        if first > last:
            raise InputError(f"{part!r}: ends before it begins; put the lower number first")
        _chosen(str(last), fabric.n_nics, "nic")
        chosen.append(np.arange(first, last + 1))
    return np.unique(np.concatenate(chosen))


def _groups(ports: LongArray, each: int) -> list[LongArray]:
    """Return `ports` in groups of `each`; the last may be smaller."""
    return [ports[i : i + each] for i in range(0, len(ports), each)]


def ports_of(fabric: Fabric, switch: int) -> tuple[LongArray, LongArray]:
    """Return the switch's own ports, downwards and upwards."""
    down, up = int(fabric.sw_first_down[switch]), int(fabric.sw_first_up[switch])
    return np.arange(down, up), np.arange(up, up + int(fabric.sw_n_up[switch]))


def _plane_of_ports(fabric: Fabric) -> LongArray:
    of_nic = np.arange(fabric.n_ports) % fabric.n_planes
    switch = fabric.port_switch
    return np.where(switch < 0, of_nic, fabric.sw_plane[switch])


def _nic_ports(fabric: Fabric, nic: str, plane: str) -> LongArray:
    nics = _chosen(nic, fabric.n_nics, "nic")
    planes = _chosen(plane, fabric.n_planes, "plane")
    return np.add.outer(nics * fabric.n_planes, planes).ravel()


def _uplinks(fabric: Fabric, ends: _Ends) -> LongArray:
    """Return the upward ports of the links between these switches."""
    if ends.upper_tier != ends.lower_tier + 1:
        raise InputError(
            f"t{ends.lower_tier} and t{ends.upper_tier} are not linked; name neighbouring tiers"
        )
    lower = np.flatnonzero(_switch_mask(fabric, ends.plane, ends.lower_tier, ends.lower))
    is_upper = _switch_mask(fabric, ends.plane, ends.upper_tier, ends.upper)
    n_up = int(fabric.sw_n_up[lower[0]])
    ports = np.add.outer(fabric.sw_first_up[lower].astype(np.int64), np.arange(n_up)).ravel()
    peers = fabric.port_peer_switch[ports]
    found: LongArray = ports[is_upper[peers]]
    if not found.size:
        near = np.unique(fabric.sw_index[peers])
        raise InputError(
            f"no link from t{ends.lower_tier} {ends.lower} to t{ends.upper_tier} {ends.upper};"
            f" it has links to t{ends.upper_tier} {', '.join(map(str, near[:64]))}"
        )
    if ends.parallel == "*":
        return found
    upper = fabric.port_peer_switch[found]
    bundle = fabric.sw_bundle[upper]
    k = _chosen(ends.parallel, int(bundle[0]), "parallel link")
    down = fabric.port_reverse[found]
    chosen: LongArray = found[(down - fabric.sw_first_down[upper]) % bundle == k]
    return chosen


def _switch_mask(fabric: Fabric, plane: str, tier: int, index: str) -> BoolArray:
    if tier >= fabric.n_tiers:
        raise InputError(f"there is no tier t{tier}; t0 to t{fabric.n_tiers - 1} exist")
    planes = _chosen(plane, fabric.n_planes, "plane")
    indices = _chosen(index, fabric.tier_counts[tier], f"t{tier}")
    mask: BoolArray = (
        (fabric.sw_tier == tier)
        & np.isin(fabric.sw_plane, planes)
        & np.isin(fabric.sw_index, indices)
    )
    return mask


def _directed(fabric: Fabric, upward: LongArray, arrow: str) -> LongArray:
    downward = fabric.port_reverse[upward].astype(np.int64)
    return {">": upward, "<": downward, "-": np.concatenate([upward, downward])}[arrow]


def _chosen(text: str, count: int, what: str) -> LongArray:
    """Return the numbers that `text`, a number or "*", stands for."""
    if text == "*":
        return np.arange(count)
    if integer(text) >= count:
        raise InputError(f"there is no {what} {text}; 0 to {count - 1} exist")
    return np.array([int(text)])


def _squeezed(where: str) -> str:
    return " ".join(where.split())
