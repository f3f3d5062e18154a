"""The times that stamps tell, in virtual and in real time."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from openmrc.conform.events import Event
from openmrc.conform.model.between import STAMP_PS, Between
from openmrc.units import MS, US

WRAP_PS = STAMP_PS << 16


def stamped(link: Between, sent_ps: int, came_ps: int, asked_ps: int) -> dict[str, int]:
    event = Event(came_ps, "data", {"tx_timestamp": (sent_ps // STAMP_PS + 0xFFF0) & 0xFFFF})
    return link.stamped(event, asked_ps)


@pytest.mark.parametrize("late_ps", [0, 5 * MS, 80 * MS])
def test_in_real_time_a_stamp_that_tells_the_time_of_sending_fits_however_late(
    late_ps: int,
) -> None:
    link = Between(SimpleNamespace(patience_ps=20 * MS, rtt_ps=40 * MS, now_ps=0), {})
    assert stamped(link, 60 * US, 300 * US, 0) == {"stamp_fits": 1}
    begun_ps = 3 * WRAP_PS + 2 * MS
    for sent_ps in (begun_ps, begun_ps + late_ps // 2, begun_ps + late_ps):
        assert stamped(link, sent_ps, begun_ps + late_ps + 50 * US, begun_ps - 50 * US) == {
            "stamp_fits": 1
        }


@pytest.mark.parametrize("wrong_ps", [-700 * US, 700 * US, WRAP_PS // 2])
def test_a_stamp_of_another_time_does_not_fit(wrong_ps: int) -> None:
    link = Between(SimpleNamespace(patience_ps=20 * MS, rtt_ps=40 * MS, now_ps=0), {})
    stamped(link, 60 * US, 300 * US, 0)
    begun_ps = 3 * WRAP_PS + 2 * MS
    said = stamped(link, begun_ps + wrong_ps, begun_ps + 50 * US, begun_ps - 50 * US)
    assert said == {"stamp_fits": 0}


def test_in_virtual_time_the_stamp_is_known_and_what_nobody_asked_for_has_none_in_real_time() -> (
    None
):
    exact = Between(SimpleNamespace(patience_ps=0, rtt_ps=8 * US, now_ps=0), {})
    assert stamped(exact, 0, 0, 0) == {"tx_timestamp": 0xFFF0}
    assert stamped(exact, 9 * WRAP_PS, WRAP_PS + 16 * STAMP_PS, 0) == {"tx_timestamp": 0}
    real = Between(SimpleNamespace(patience_ps=1, rtt_ps=8 * US, now_ps=0), {})
    assert real.stamped(Event(0, "probe", {"tx_timestamp": 1})) == {}
