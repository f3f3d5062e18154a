"""Links to watch: between what is named and what chance explains."""

from __future__ import annotations

from openmrc.ops.diagnose.search import Search
from openmrc.ops.diagnose.watch import watched
from tests.ops.diagnose.made import FABRIC, TABLE, Bad, seen

PORT = FABRIC.route(0, 5, FABRIC.ev(1, 2))[1]


def searched(*bad: Bad) -> Search:
    search = Search(seen(*bad), TABLE)
    search.search()
    return search


def test_what_lost_too_little_to_be_named_is_to_be_watched() -> None:
    search = searched(Bad((PORT,), 60.0, 62.0, every=7))
    assert not search.faults
    (one,) = watched(search)
    assert one.where.startswith(FABRIC.port_name(PORT))
    assert one.lost == 2


def test_what_is_named_or_well_is_not() -> None:
    named = searched(Bad((PORT,)))
    assert named.faults
    assert not watched(named)
    assert not watched(searched())
