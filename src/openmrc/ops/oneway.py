"""Modules and NICs that are bad in one direction only: transmitters fail without their receivers.

What fails together is told as one device, and a device is both directions of its links. If packets
were lost in one direction only, and so many crossed the other that it must be whole, it is these
directed links; and if all links of a switch to a tier do that, they are told as these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from openmrc.fabric import places
from openmrc.fabric.kinds import LINKS_DEFAULT
from openmrc.ops import causes
from openmrc.ops.together import TRANSCEIVER, Finding, at_one_time, plain, summed

if TYPE_CHECKING:
    from openmrc.fabric.model import Fabric
    from openmrc.ops.records import Record

Ports = npt.NDArray[np.integer[Any]]

WHOLE_AFTER = 10.0  # losses that would have been expected in the other direction ...
WHOLE = 0.25  # ... and at most this part of them was found there


def narrowed(record: Record, findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings, those that are bad in one direction as what they are, and modules that
    are all of a switch's links to a tier as these links.
    """
    if record.outline is not None:  # a link stands for many
        return list(findings)
    return _wide(record.fabric, [_one_way(record, it) for it in findings])


def _one_way(record: Record, it: Finding) -> Finding:
    fabric = record.fabric
    if not it.links or it.one_of or it.downs:
        return it
    lossy = [places.links(fabric, name) for name in it.links]
    if any(len(ports) > 1 for ports in lossy):
        return it
    every, own = _ports(fabric, it)
    lossy_own = np.isin(np.concatenate(lossy), own)
    if lossy_own.any() != lossy_own.all():
        return it
    bad, other = (own, fabric.port_reverse[own])[:: 1 if lossy_own.all() else -1]
    if not _is_whole(record, it, bad, other):
        return it
    return replace(it, where=_name(fabric, np.intersect1d(bad, every)), kind=causes.LINK)


def _is_whole(record: Record, it: Finding, bad: Ports, other: Ports) -> bool:
    """Whether the other direction lost little of what crossed it meanwhile, apart from what full
    queues dropped.
    """
    bins = record.bins_between(it.since_us, it.until_us)
    expected = float(record.evidence(bins).crossed[other].sum()) * it.rate
    rows = record.paths.filter(record.paths["from_us"].is_in(bins))
    routes = record.routes(rows)
    there = np.isin(routes, other).any(axis=1) & ~np.isin(routes, bad).any(axis=1)
    lost = rows["lost"].to_numpy() if record.trims else record.undropped(rows)
    return expected >= WHOLE_AFTER and float(lost[there].sum()) <= WHOLE * expected


def _ports(fabric: Fabric, it: Finding) -> tuple[Ports, Ports]:
    """All directed ports of a transceiver or NIC, and those with which it sends."""
    if it.kind == TRANSCEIVER:
        every = places.transceivers(fabric, it.where, LINKS_DEFAULT).targets
        return every, every[: len(every) // 2]
    every = places.ports(fabric, it.where)
    return every, every[fabric.port_nic[every] == int(it.where.split()[1])]


def _wide(fabric: Fabric, findings: list[Finding]) -> list[Finding]:
    """Merge modules of one switch that fail together, if they have all of its links, or all to a
    tier. All those of a T0 to its NICs, which all its packets cross, are the T0.
    """
    left = list(findings)
    for it in findings:
        if it not in left or not it.links or it.one_of or it.downs:
            continue
        mine = [each for each in left if each.links and at_one_time(it, each)]
        one_way, device = _starred(it.links[0]), it.where.partition(" transceiver ")[0]
        for name in (*one_way, *map(plain, one_way), device):
            ports = set(places.ports(fabric, name).tolist()) if "," not in name else set()
            parts = [each for each in mine if _directed(fabric, each) <= ports]
            bad = set().union(*(_directed(fabric, part) for part in parts))
            if len(parts) > 1 and (bad == ports or bad == _to_nics(fabric, ports)):
                left = [each for each in left if each not in parts]
                left.append(replace(summed(parts), where=name, kind=_kind(name)))
                break
    return left


def _to_nics(fabric: Fabric, ports: set[int]) -> set[int]:
    """Those of these directed ports that are links of NICs."""
    every = np.array(sorted(ports), np.int64)
    of_nic = (fabric.port_nic[every] >= 0) | fabric.port_last_hop[every]
    return set(every[of_nic].tolist())


def _kind(name: str) -> str:
    return causes.SWITCH if places.kind_of(name) == "switch" else causes.LINK


def _directed(fabric: Fabric, it: Finding) -> set[int]:
    if it.kind == TRANSCEIVER:
        return set(_ports(fabric, it)[0].tolist())
    each = (places.ports(fabric, name).tolist() for name in places.split(it.where))
    return set().union(*each)


def _name(fabric: Fabric, ports: Ports) -> str:
    """These directed links as a place: with a star if they are all of a kind, else as a list."""
    names = [fabric.port_name(port) for port in ports.tolist()]
    for name in _starred(names[0]):
        if set(places.links(fabric, name).tolist()) == set(ports.tolist()):
            return name
    return ", ".join(names)


def _starred(link: str) -> list[str]:
    """A link's name for all links of either end to the same tier; for all ports of a NIC."""
    words = link.partition(" link ")[0].split()
    if words[0] == "nic":
        return [" ".join([*words[:3], "*", *words[4:]])]
    return [" ".join([*words[:at], "*", *words[at + 1 :]]) for at in (6, 3)]
