"""Which of the places that a component of an outline stands for it is, as their own ports count.

Where switches hash, a sender does not know which of several links or switches its packets cross:
these are one component, and a place of it is one of several. Ports know.
"""

from __future__ import annotations

import math
import re

import numpy as np

from openmrc.fabric import places
from openmrc.fabric.model import LongArray
from openmrc.ops.diagnose.answer import MARGIN_NATS, Place
from openmrc.ops.diagnose.counters import LEAST
from openmrc.ops.diagnose.observed import FloatArray
from openmrc.ops.records import Record

LAST = re.compile(r"\d+$")
SOME = 1 / math.e  # of what each would have if all lost as much


def narrowed(record: Record, place: Place) -> Place:
    """Return a place without those that it cannot be; or all of them, if all are broken as one."""
    if record.outline is None or not place.one_of:
        return place
    every = [place.where, *place.one_of]
    alike = [it for it in every if LAST.sub("*", it) == LAST.sub("*", place.where)]
    everywhere = place._replace(where=LAST.sub("*", place.where), one_of=())
    size = {it: len(_ports(record, it)) for it in every}
    gone = _gone(record, place)
    here = {it: float(gone[_ports(record, it)].sum()) for it in every}
    if max(here.values()) < LEAST * max(place.lost, 1):  # it is not missing there
        # If nothing passes, on so many paths, not all of them can have crossed the same one.
        many = (len(place.paths) - 1) * math.log(len(alike)) > MARGIN_NATS
        return everywhere if place.is_whole and many else place
    even = sum(here[it] for it in alike) / len(alike)
    left = [it for it in every if here[it] >= SOME * even and here[it] > 0]
    if len(alike) > 1 and not set(alike) - set(left):
        return everywhere
    first = min(left, key=lambda it: (size[it], every.index(it)))
    return place._replace(where=first, one_of=tuple(it for it in left if it != first))


def _ports(record: Record, where: str) -> LongArray:
    """The directed ports of a place, or of several; none of a plane: it is no part of another."""
    if places.kind_of(where) == "plane":
        return np.zeros(0, np.int64)
    return np.unique(places.ports(record.fabric, where))


def _gone(record: Record, place: Place) -> FloatArray:
    """[ports of the fabric] packets missing on each link while a place was broken."""
    import polars as pl

    rows = record.port_counts
    assert rows is not None
    during = (pl.col("until_us") > place.since_us[0]) & (pl.col("from_us") < place.until_us[1])
    rows = rows.filter(during)
    ports, gone = (rows[name].to_numpy() for name in ("port", "gone"))
    return np.asarray(np.bincount(ports, gone, record.fabric.n_ports), np.float64)
