"""Which of the places that a component of an outline stands for it is, as their own ports count.

Where switches hash, a sender does not know which of several links or switches its packets cross:
these are one component, and a place of it is one of several. Ports know: what is missing on the
link of one, or in its switch while it sends nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from openmrc.fabric import places
from openmrc.fabric.model import LongArray
from openmrc.ops.diagnose.answer import MARGIN_NATS, Place
from openmrc.ops.diagnose.components import KINDS, table
from openmrc.ops.diagnose.counters import LEAST
from openmrc.ops.diagnose.missing import inside
from openmrc.ops.diagnose.reading import counts
from openmrc.ops.records import Record

LAST = re.compile(r"\d+$")
SOME = 1 / math.e  # of what each would have if all lost as much


def narrowed(record: Record, place: Place) -> Place:
    """Return a place without those that it cannot be; or all of them, if all are broken as one."""
    if record.outline is None or not place.one_of:
        return place
    if not place.downs and (told := _told(record, place)) is not None:
        return told
    every = [place.where, *place.one_of]
    alike = [it for it in every if LAST.sub("*", it) == LAST.sub("*", place.where)]
    everywhere = place._replace(where=LAST.sub("*", place.where), one_of=())
    size = {it: len(_ports(record, it)) for it in every}
    here = _missing(record, place, every)
    if max(here.values()) < LEAST * max(place.lost, 1):  # it is not missing there
        # If nothing passes, on so many paths, not all of them can have crossed the same one.
        many = (len(place.paths) - 1) * math.log(len(alike)) > MARGIN_NATS
        return everywhere if place.is_whole and many else place
    even = sum(here[it] for it in alike) / len(alike)
    left = [it for it in every if here[it] >= SOME * even and here[it] > 0]
    if len(alike) > 1 and not set(alike) - set(left):
        return everywhere
    first = min(left, key=lambda it: (size[it], every.index(it)))
    others = tuple(it for it in left if it != first)
    return place._replace(where=first, kind=_kind(first), one_of=others)


def _told(record: Record, place: Place) -> Place | None:
    """The largest of what the ports of a place are in, if all ports of that were found down when
    the place broke, and it lost nothing any more once they were up, with the times of both; None:
    there is none.
    """
    (since_us, begun_us), (over_us, until_us) = place.since_us, place.until_us
    edges_us, each = counts(replace(record, outline=None), record.port_counts)
    during = (edges_us[1:] > since_us) & (edges_us[:-1] < until_us)
    down = np.asarray(each["down"][during].any(axis=0), np.bool_)
    if record.outline is None or not down.any():
        return None
    here = set(np.flatnonzero(down & np.isin(record.outline.port_of, place.ports)).tolist())
    rows = [it for it in table(record.fabric).rows if down[[*it.ports]].all()]
    rows = [it for it in rows if not here.isdisjoint(it.ports)]
    if not rows:
        return None
    row = max(rows, key=lambda it: len(it.ports))
    first, last = np.flatnonzero(each["down"][:, [*row.ports]].any(axis=1))[[0, -1]].tolist()
    early_us, found_us, last_us, late_us = (
        float(np.append(edges_us, math.inf)[at]) for at in (first, first + 1, last, last + 2)
    )
    rtt_us = record.rtt_us
    if since_us > found_us or begun_us + rtt_us < early_us or over_us > late_us + rtt_us:
        return None
    return place._replace(
        where=row.where, kind=KINDS[row.kind], one_of=(), dead=True, rate=1.0,
        since_us=(early_us, float(np.clip(begun_us, early_us, found_us))),
        until_us=(float(np.clip(over_us, last_us, late_us)), late_us),
    )  # fmt: skip


def _kind(where: str) -> str:
    """The kind of a place, by its name: of a NIC on a plane it is a link, and without one a NIC."""
    kind = places.kind_of(places.split(where)[0])
    return {"nic": "link", "": "nic"}.get(kind, kind)


def _ports(record: Record, where: str) -> LongArray:
    """The directed ports of a place, or of several; none of a plane: it is no part of another."""
    if places.kind_of(where) == "plane":
        return np.zeros(0, np.int64)
    return np.unique(places.ports(record.fabric, where))


def _missing(record: Record, place: Place, every: Sequence[str]) -> dict[str, float]:
    """How many packets were missing at each of these places while one was broken: on its links, and
    in the switches of those of its ports that sent nothing.
    """
    fabric = record.fabric
    edges_us, each = counts(replace(record, outline=None), record.port_counts)
    out, gone = each["packets_out"], each["gone"]
    (since_us, begun_us), (over_us, until_us) = place.since_us, place.until_us
    during = (edges_us[1:] > since_us) & (edges_us[:-1] < until_us)
    whole = (edges_us[:-1] >= begun_us) & (edges_us[1:] <= over_us)
    silent = whole.any() & ~out[whole].any(axis=0) & (fabric.port_switch >= 0)
    on_links = gone[during].sum(axis=0)
    in_switches = inside(fabric, out, gone, each["dropped"])[during].sum(axis=0)
    found = {}
    for name in every:
        ports = _ports(record, name)
        owners = np.unique(fabric.port_switch[ports][silent[ports]])
        found[name] = float(on_links[ports].sum() + in_switches[owners].sum())
    return found
