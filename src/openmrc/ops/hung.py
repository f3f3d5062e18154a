"""Switches that hang: packets go in and none comes out, as ports count, whatever endpoints know.

Where full queues drop, a sender cannot tell what a hung switch swallowed from what was dropped, and
where switches hash it does not know which one its packets cross. But a switch that sends nothing at
all for a bin of time, while its neighbours send to it, is no congestion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from openmrc.fabric import places
from openmrc.fabric.model import Fabric
from openmrc.ops import causes
from openmrc.ops.balance import LEAST, UNDER_WAY
from openmrc.ops.together import TRANSCEIVER, Finding

if TYPE_CHECKING:
    import polars as pl

FloatArray = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.integer[Any]]

CAME_MIN = 20.0  # packets into a switch in a bin in which it sent none ...
WAYS_MIN = 2  # ... and its ports that they would have left by: one may be a dead link


class Hang(NamedTuple):
    """A switch that let nothing through for a time, us, how many packets it swallowed, and whether
    those are most of what is missing at it in the whole run.
    """

    switch: int
    since_us: float
    until_us: float
    packets: int
    is_most: bool


def hangs(fabric: Fabric, links: pl.DataFrame) -> list[Hang]:
    """Return the switches that let nothing through for at least a bin of time, by the counts of all
    ports of a run (`links`). Of the bins before and after, that part belongs to it of which packets
    are missing. What is only late comes out later, and is not missing in the whole run.
    """
    starts, of_bin = np.unique(links["from_us"].to_numpy(), return_inverse=True)
    ends: FloatArray = np.zeros(len(starts))
    np.maximum.at(ends, of_bin, links["until_us"].to_numpy())
    port = links["port"].to_numpy()
    sent, dropped = (links[name].to_numpy() for name in ("packets_out", "dropped"))
    own = fabric.port_switch[port]
    came = _by_switch(fabric, fabric.port_peer_switch[port], of_bin, sent)
    left = _by_switch(fabric, own, of_bin, sent)
    gone = came - left - _by_switch(fabric, own, of_bin, dropped)
    used = _by_switch(fabric, own, of_bin, (links["packets"].to_numpy() > 0).astype(np.int64))
    silent = (came >= CAME_MIN) & (left == 0) & (used >= WAYS_MIN)
    part = np.where(gone > UNDER_WAY, gone / np.maximum(came, 1), 0.0)
    found = []
    for switch in np.flatnonzero(silent.any(axis=0)).tolist():
        bins = np.flatnonzero(silent[:, switch])
        for run in np.split(bins, np.flatnonzero(np.diff(bins) > 1) + 1):
            before, after = max(int(run[0]) - 1, 0), min(int(run[-1]) + 1, len(starts) - 1)
            since_us, until_us = starts[run[0]], ends[run[-1]]
            if before < run[0]:
                since_us -= part[before, switch] * (ends[before] - starts[before])
            if after > run[-1]:
                until_us += part[after, switch] * (ends[after] - starts[after])
            swallowed = int(gone[before : after + 1, switch].sum())
            if gone[:, switch].sum() >= LEAST * swallowed >= LEAST * CAME_MIN:
                is_most = LEAST * gone[:, switch].sum() < swallowed
                found.append(
                    Hang(switch, float(since_us), float(until_us), swallowed, bool(is_most))
                )
    return found


def with_hangs(
    fabric: Fabric, findings: Sequence[Finding], found: Sequence[Hang], late_us: float
) -> list[Finding]:
    """Return the findings, and switches that hung; their links are not told beside them, nor
    switches twice: one that is said to lose a part hung, if it lost little else. What is lost is
    known up to `late_us` later.
    """
    left = list(findings)
    for hang in found:
        where = fabric.switch_name(hang.switch)
        begun = [it for it in left if it.since_us <= hang.until_us + late_us]
        during = [it for it in begun if it.until_us >= hang.since_us]
        # A place from which no path returned is bad for good.
        known = [*during, *(it for it in begun if it.dead and not it.back)]
        same = [it for it in known if it.where == where and not it.one_of]
        if same:
            if hang.is_most and not same[0].dead:
                left[left.index(same[0])] = replace(
                    same[0], dead=True, rate=1.0, since_us=hang.since_us, until_us=hang.until_us
                )
            continue
        left = [it for it in left if it not in during or it.downs or not _is_of(fabric, it, where)]
        left.append(_finding(hang, where))
    return left


def _is_of(fabric: Fabric, it: Finding, switch: str) -> bool:
    """Whether a finding is some links of a switch, or may be."""
    if it.kind == TRANSCEIVER:
        return it.where.startswith(f"{switch} ")
    own = set(places.ports(fabric, switch).tolist())
    names = [name for each in (it.where, *it.one_of) for name in places.split(each)]
    return any(set(places.ports(fabric, name).tolist()) <= own for name in names)


def _finding(hang: Hang, where: str) -> Finding:
    return Finding(
        where=where,
        kind=causes.SWITCH,
        one_of=(),
        ends=(),
        dead=True,
        rate=1.0,
        lost=hang.packets,
        since_us=hang.since_us,
        until_us=hang.until_us,
        paths=0,
        queue_pairs=0,
        back=0,
        back_us=None,
        nats=float(hang.packets),
        beyond_drops=True,
        counted=True,
    )


def _by_switch(fabric: Fabric, switch: Numbers, of_bin: Numbers, counts: Numbers) -> FloatArray:
    """[bins, switches] counts of ports, summed by the switch at one of their ends."""
    found = np.zeros((int(of_bin.max(initial=-1)) + 1, fabric.n_switches))
    there = switch >= 0
    np.add.at(found, (of_bin[there], switch[there]), counts[there])
    return found
