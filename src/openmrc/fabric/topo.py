"""htsim's `.topo` files: a fat tree of two or three tiers as text.

    Nodes 128            # header: hosts, tiers of switches, hosts per pod
    Tiers 3
    Podsize 16
    Tier 0               # one section per tier, 0 next to the hosts
    Downlink_speed_Gbps 100
    Radix_Down 4
    Radix_Up 4           # not in the top tier
    Downlink_Latency_ns 1000
    Switch_Latency_ns 0  # optional
    Oversubscribed 1     # optional: bandwidth down over bandwidth up
    Bundle 1             # optional: parallel links to each switch of the tier below

Speed and latency are of the links below the tier, both directions. Keys are read in any case, "#"
begins a comment line. Sizes that contradict each other are refused, and so are keys without effect
here: `Queue_Up` and `Queue_Down` (queues belong to the transport, not to the wiring).
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from openmrc.errors import InputError
from openmrc.fabric.clos import Tier, build
from openmrc.fabric.model import Fabric
from openmrc.fabric.words import Line, read_lines, whole

_HEADER = {"nodes": 2, "tiers": 2, "podsize": 1}  # least values
_TIER_KEYS = {
    "downlink_speed_gbps": 1,
    "radix_down": 1,
    "radix_up": 1,
    "downlink_latency_ns": 1,
    "switch_latency_ns": 0,
    "oversubscribed": 1,
    "bundle": 1,
}
_OPTIONAL = {"switch_latency_ns": 0, "oversubscribed": 1, "bundle": 1}
_WITHOUT_EFFECT = {"queue_up", "queue_down"}


class _Value(NamedTuple):
    number: int
    place: str  # file:line


_Section = dict[str, _Value]


def load_topo(path: str | Path) -> Fabric:
    """Return the fabric that an htsim `.topo` file describes; `InputError` names file and line."""
    header, sections = _parse(read_lines(path, "an htsim .topo file"), str(path))
    n_tiers = header["tiers"].number
    if n_tiers not in (2, 3):
        raise InputError(f"{header['tiers'].place}: Tiers {n_tiers} is not supported; 2 or 3 is")
    for tier in range(n_tiers):
        if tier not in sections:
            raise InputError(f"{path}: no section for tier {tier}; add 'Tier {tier}' and its keys")
    for tier in range(n_tiers):
        _complete(sections[tier], tier, tier == n_tiers - 1, str(path))
    _check_sizes(header, [sections[tier] for tier in range(n_tiers)])
    return build("htsim", header["nodes"].number, 1, [_tier(sections[t]) for t in range(n_tiers)])


def _parse(lines: list[Line], path: str) -> tuple[_Section, dict[int, _Section]]:
    header: _Section = {}
    sections: dict[int, _Section] = {}
    current, accepted = header, _HEADER
    for place, words in lines:
        key = words[0].lower()
        if len(words) != 2:
            raise InputError(f"{place}: {' '.join(words)!r}; a key and one number are accepted")
        if key == "tier":
            tier = whole(place, words[0], words[1])
            if tier > 2 or tier in sections:
                raise InputError(f"{place}: Tier {tier}; each of 0, 1 and 2 may occur once")
            current, accepted = sections.setdefault(tier, {}), _TIER_KEYS
        elif key in _WITHOUT_EFFECT:
            raise InputError(f"{place}: {words[0]} is not supported; set the transport's queues")
        elif key not in accepted:
            raise InputError(f"{place}: unknown key {words[0]!r}; {', '.join(accepted)} or tier")
        elif key in current:
            raise InputError(f"{place}: {words[0]} is given twice; also at {current[key].place}")
        else:
            current[key] = _Value(whole(place, words[0], words[1], accepted[key]), place)
    for key in _HEADER:
        if key not in header:
            raise InputError(f"{path}: {key.capitalize()} is missing; state it before Tier 0")
    return header, sections


def _complete(section: _Section, tier: int, top: bool, path: str) -> None:
    """Fill in optional keys and refuse a tier that lacks others."""
    if top and "radix_up" in section:
        raise InputError(f"{section['radix_up'].place}: the top tier has no Radix_Up; remove it")
    for key in _TIER_KEYS:
        if key in _OPTIONAL:
            section.setdefault(key, _Value(_OPTIONAL[key], f"{path} (default)"))
        elif key not in section and not (top and key == "radix_up"):
            raise InputError(f"{path}: tier {tier} has no {key}; add it")


def _check_sizes(header: _Section, tiers: list[_Section]) -> None:
    """Refuse radixes that do not divide evenly, as htsim does."""
    nodes, podsize = header["nodes"], header["podsize"]
    if len(tiers) == 2 and podsize.number != nodes.number:
        raise InputError(
            f"{podsize.place}: Podsize {podsize.number} with two tiers; all {nodes.number} nodes"
            " are one pod"
        )
    if tiers[0]["bundle"].number != 1:
        raise InputError(f"{tiers[0]['bundle'].place}: Bundle of tier 0 must be 1")
    _divides(nodes, "Nodes", podsize.number, "Podsize")
    _divides(podsize, "Podsize", tiers[0]["radix_down"].number, "Radix_Down of tier 0")
    below = [podsize.number // tiers[0]["radix_down"].number, nodes.number // podsize.number]
    for number, (lower, upper) in enumerate(pairwise(tiers), start=1):
        bundle = upper["bundle"].number
        _divides(lower["radix_up"], "Radix_Up", bundle, f"Bundle of tier {number}")
        down, needed = upper["radix_down"], below[number - 1] * bundle
        if down.number != needed:
            raise InputError(
                f"{down.place}: Radix_Down {down.number} of tier {number};"
                f" {below[number - 1]} neighbours x Bundle {bundle} need {needed}"
            )
        _check_oversubscription(lower, upper)


def _check_oversubscription(lower: _Section, upper: _Section) -> None:
    down = lower["radix_down"].number * lower["downlink_speed_gbps"].number
    up = lower["radix_up"].number * upper["downlink_speed_gbps"].number
    stated = lower["oversubscribed"]
    if down != stated.number * up:
        raise InputError(
            f"{stated.place}: Oversubscribed {stated.number}, but {down}G down and {up}G up"
            f" make {down / up:g}; change Oversubscribed or the radixes"
        )


def _divides(value: _Value, name: str, by: int, by_name: str) -> None:
    if value.number % by:
        raise InputError(f"{value.place}: {name} {value.number} is no multiple of {by_name} {by}")


def _tier(section: _Section) -> Tier:
    bundle = section["bundle"].number
    return Tier(
        down=section["radix_down"].number // bundle,
        up=section["radix_up"].number if "radix_up" in section else 0,
        rate_bps=section["downlink_speed_gbps"].number * 10**9,
        link_delay_ps=section["downlink_latency_ns"].number * 1000,
        switch_delay_ps=section["switch_latency_ns"].number * 1000,
        bundle=bundle,
    )
