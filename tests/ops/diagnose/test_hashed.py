"""Which of the places of an outline it is, as ports count."""

from __future__ import annotations

from typing import Any, cast

import polars as pl
import pytest

from openmrc.fabric import places
from openmrc.ops.diagnose.answer import Place
from openmrc.ops.diagnose.hashed import narrowed
from openmrc.ops.records import Record
from tests.ops.diagnose.made import FABRIC as WHOLE
from tests.ops.diagnose.made import Bad, component, seen, told

WAYS = tuple(f"plane 1 t0 2 > t1 {it}" for it in range(4))


class Counted:
    """A record of a run in which so many packets are missing on links, from 0 to 100 us."""

    def __init__(self, **missing: int) -> None:
        self.fabric, self.outline = WHOLE, object()
        ports = [int(places.ports(WHOLE, WAYS[int(it[-1])])[0]) for it in missing]
        rows: dict[str, Any] = {"port": ports, "gone": list(missing.values())}
        self.port_counts = pl.DataFrame(rows, schema={"port": pl.Int64, "gone": pl.Int64})
        self.port_counts = self.port_counts.with_columns(from_us=0.0, until_us=100.0)


def said(**missing: int) -> Place:
    """What remains of a place that is one of four ways up, of which these miss packets."""
    (one,) = told(seen(Bad(component(WAYS[0]).ports)))
    one = one._replace(one_of=WAYS[1:], lost=40)
    return narrowed(cast(Record, Counted(**missing)), one)


def test_it_is_the_one_that_misses_what_was_lost() -> None:
    place = said(way2=40, way3=1)
    assert (place.where, place.one_of) == (WAYS[2], ())


def test_of_two_that_miss_it_it_is_one() -> None:
    place = said(way1=20, way3=20)
    assert (place.where, place.one_of) == (WAYS[1], (WAYS[3],))


def test_if_all_miss_some_all_are_broken_as_one() -> None:
    place = said(way0=10, way1=10, way2=10, way3=10)
    assert (place.where, place.one_of) == ("plane 1 t0 2 > t1 *", ())


@pytest.mark.parametrize(("n_paths", "whole"), [(1, False), (100, True)])
def test_what_no_link_misses_is_all_of_them_only_if_no_path_passes(
    n_paths: int, whole: bool
) -> None:
    (one,) = told(seen(Bad(component(WAYS[0]).ports)))
    paths = frozenset((it, 0) for it in range(n_paths))
    one = one._replace(one_of=WAYS[1:], paths=paths, is_whole=True)
    place = narrowed(cast(Record, Counted()), one)
    assert place.where == ("plane 1 t0 2 > t1 *" if whole else WAYS[0])


def test_what_is_one_place_already_stays() -> None:
    (one,) = told(seen(Bad(component(WAYS[0]).ports)))
    one = one._replace(one_of=())
    assert narrowed(cast(Record, Counted(way2=40)), one) == one
