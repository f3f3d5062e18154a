"""Which of the places of an outline it is, as ports count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import polars as pl
import pytest

from openmrc.fabric import places
from openmrc.fabric.model import Fabric
from openmrc.fabric.outline import outline
from openmrc.ops.diagnose.answer import Place
from openmrc.ops.diagnose.hashed import narrowed
from openmrc.ops.records import Record
from openmrc.run.ports import TICK
from tests.ops.diagnose.made import FABRIC as WHOLE
from tests.ops.diagnose.made import Bad, component, seen, told

WAYS = tuple(f"plane 1 t0 2 > t1 {it}" for it in range(4))


@dataclass(frozen=True)
class Counted:
    """A record of a run in which so many packets are missing on links, from 0 to 100 us."""

    rows: tuple[tuple[str, dict[str, int]], ...]  # port and counts
    outline: object | None = ""
    fabric: Fabric = WHOLE
    end_us: float = 100.0
    rtt_us: float = 6.0

    @property
    def known(self) -> Fabric:
        return self.fabric

    @property
    def port_counts(self) -> pl.DataFrame:
        rows = [
            {"port": int(places.ports(WHOLE, where)[0])} | dict.fromkeys(TICK, 0) | each
            for where, each in self.rows
        ]
        schema = dict.fromkeys(("port", *TICK), pl.Int64)
        return pl.DataFrame(rows, schema=schema).with_columns(from_us=0.0, until_us=100.0)


def counted(**missing: int) -> Record:
    """A record in which ways up, by the last letter of the name, miss so many packets."""
    rows = ((WAYS[int(it[-1])], {"gone": n}) for it, n in missing.items())
    return cast(Record, Counted(tuple(rows)))


def said(**missing: int) -> Place:
    """What remains of a place that is one of four ways up, of which these miss packets."""
    (one,) = told(seen(Bad(component(WAYS[0]).ports)))
    one = one._replace(one_of=WAYS[1:], lost=40)
    return narrowed(counted(**missing), one)


def test_it_is_the_one_that_misses_what_was_lost() -> None:
    place = said(way2=40, way3=1)
    assert (place.where, place.one_of) == (WAYS[2], ())


def test_of_two_that_miss_it_it_is_one() -> None:
    place = said(way1=20, way3=20)
    assert (place.where, place.one_of) == (WAYS[1], (WAYS[3],))


def test_if_all_miss_some_all_are_broken_as_one() -> None:
    place = said(way0=10, way1=10, way2=10, way3=10)
    assert (place.where, place.one_of) == ("plane 1 t0 2 > t1 *", ())


def test_a_port_that_sends_nothing_is_where_its_switch_misses_packets() -> None:
    ways = tuple(f"plane 1 t1 {it} > t0 2" for it in range(4))
    into = [(f"plane 1 t0 0 > t1 {it}", {"packets_out": 90}) for it in range(4)]
    through = [(way, {"packets_out": 90 * (it != 2)}) for it, way in enumerate(ways)]
    (one,) = told(seen(Bad(component("plane 1 t0 2 < t1 0").ports)))
    one = one._replace(where=ways[0], one_of=ways[1:], lost=90)
    one = one._replace(since_us=(0.0, 0.0), until_us=(100.0, 100.0))
    place = narrowed(cast(Record, Counted((*into, *through))), one)
    assert (place.where, place.one_of) == (ways[2], ())


@pytest.mark.parametrize("where", ["plane 1 t1 3", "plane 1 t0 2 - t1 3"])
def test_it_is_what_ports_say_that_they_were_down(where: str) -> None:
    around = outline(WHOLE)
    ports = component(where).ports
    rows = tuple((WHOLE.port_name(port), {"down": 1}) for port in ports)
    (one,) = told(seen(Bad(component(WAYS[0]).ports)))
    known = tuple(around.port_of[[*component(WAYS[3]).ports]].tolist())
    one = one._replace(one_of=WAYS[1:], ports=known, rate=0.3, dead=False)
    place = narrowed(cast(Record, Counted(rows, around)), one)
    assert (place.where, place.one_of, place.dead) == (where, (), True)
    later = one._replace(since_us=(200.0, 210.0), until_us=(220.0, 230.0))
    assert not narrowed(cast(Record, Counted(rows, around)), later).dead


@pytest.mark.parametrize(("n_paths", "whole"), [(1, False), (100, True)])
def test_what_no_link_misses_is_all_of_them_only_if_no_path_passes(
    n_paths: int, whole: bool
) -> None:
    (one,) = told(seen(Bad(component(WAYS[0]).ports)))
    paths = frozenset((it, 0) for it in range(n_paths))
    one = one._replace(one_of=WAYS[1:], paths=paths, is_whole=True)
    place = narrowed(counted(), one)
    assert place.where == ("plane 1 t0 2 > t1 *" if whole else WAYS[0])


@pytest.mark.parametrize(
    ("where", "kind"),
    [
        ("plane 1 t1 3", "switch"),
        ("plane 1 t0 2 > t1 3", "link"),
        ("nic 5 plane 1 > t0", "link"),
        ("nic 5", "nic"),
    ],
)
def test_its_kind_is_that_of_what_remains(where: str, kind: str) -> None:
    rows = ((WAYS[3], {"gone": 40}), ("nic 5 plane 1 > t0", {"gone": 40}))
    (one,) = told(seen(Bad(component(WAYS[0]).ports)))
    one = one._replace(one_of=(where,), lost=40)
    assert narrowed(cast(Record, Counted(rows)), one).kind == kind


def test_what_is_one_place_already_stays() -> None:
    (one,) = told(seen(Bad(component(WAYS[0]).ports)))
    one = one._replace(one_of=())
    assert narrowed(counted(way2=40), one) == one
