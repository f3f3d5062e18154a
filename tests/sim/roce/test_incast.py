"""What each profile makes of an incast (B20, figure 22): the figures that a whole fabric must meet.

Flows of 400 Gb/s start one by one and share one port. `steady` looks at the last 60 % of the time
between two starts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from openmrc.sim.roce.profiles import PROFILES, Marking, Profile
from tests.sim.plain import run_plain
from tests.sim.roce.incast import Outcome, incast

US = 1_000_000
MS = 1_000 * US
STEP = 10 * MS
FLOWS = 15
LINE = 400_000_000_000
KMIN, KMAX = Marking().low_bytes(LINE), Marking().high_bytes(LINE)


class Stairs:
    """One flow more with each step; figures per number of flows, from 1."""

    def __init__(self, profile: Profile, **how: Any) -> None:
        self.outcome: Outcome = incast(
            profile, [k * STEP for k in range(FLOWS)], FLOWS * STEP, **how
        )
        spans = [(k * STEP + STEP * 2 // 5, (k + 1) * STEP - 20 * US) for k in range(FLOWS)]
        self.share = np.array([self.outcome.share(*s) for s in spans])
        self.queue = np.array([self.outcome.queue(*s).mean() for s in spans])
        self.paused = np.array([self.outcome.paused(*s) for s in spans])
        assert self.outcome.world.wrong == 0
        assert self.outcome.world.dropped == 0


def test_marks_begin_where_they_should() -> None:
    assert (KMIN, KMAX) == (1_600_000, 6_400_000)
    assert Marking().low_bytes(LINE // 4) == 400_000


@pytest.mark.parametrize("seed", [1, 2])
def test_lenient_is_controlled_by_marks_below_ten_flows_then_by_pauses(seed: int) -> None:
    s = Stairs(PROFILES["lenient"], seed=seed)
    assert s.share.min() > 0.998  # line rate throughout
    assert (s.queue[1:8] > KMIN).all()
    assert (s.queue[1:8] < 1.1 * KMAX).all()
    assert (s.paused[:9] == 0).all()  # up to nine flows
    assert (s.queue[9:] > 2 * KMAX).all()  # ten and more fill their shares of the buffer,
    assert s.paused[9] > 0
    assert s.paused[14] > 10  # and most of fifteen are paused at any time


@pytest.mark.parametrize("seed", [1, 2])
def test_the_default_is_controlled_by_marks_with_every_number_of_flows(seed: int) -> None:
    s = Stairs(PROFILES["default"], seed=seed)
    assert s.share[1:].min() > 0.99
    assert s.queue.max() < KMAX / 2
    assert (s.paused == 0).all()


@pytest.mark.parametrize("n", [2, 7, 15, 56, 112])
def test_so_are_eight_queue_pairs_of_seven_nics_that_start_at_once(n: int) -> None:
    """All at line rate from the first instant, which is 112 times what the port takes."""
    o = incast(PROFILES["default"], [0] * n, 20 * MS)
    assert o.share(0, 10 * MS) > 0.93  # the first cuts are deep
    assert o.share(10 * MS, 19 * MS) > 0.998
    assert o.paused(10 * MS, 19 * MS) == 0
    assert o.queue(10 * MS, 19 * MS).mean() < 1.1 * KMAX
    assert o.senders.sent.max() < 2 * o.senders.sent.min()
    assert (o.world.wrong, o.world.dropped) == (0, 0)


def test_of_56_lenient_has_all_but_one_paused() -> None:
    o = incast(PROFILES["lenient"], [0] * 56, 20 * MS)
    assert o.paused(10 * MS, 19 * MS) > 54


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    ("name", "share", "room"), [("aggressive", 0.9, 0.03), ("most-aggressive", 0.8, 0.03)]
)
def test_the_others_trade_throughput_for_a_short_queue(
    name: str, share: float, room: float, seed: int
) -> None:
    s = Stairs(PROFILES[name], seed=seed)
    assert s.share[1:].mean() == pytest.approx(share, abs=room)
    assert s.share[1:].min() > 0.65
    assert s.queue.max() < KMIN
    assert (s.paused == 0).all()


def test_one_flow_alone_is_never_marked() -> None:
    for profile in PROFILES.values():
        o = incast(profile, [0], 1 * MS)
        assert (o.world.marked, o.limiters[0].limited) == (0, 0)
        assert o.share(100 * US, 900 * US) > 0.999


@pytest.mark.parametrize("n", [2, 8, 15])
def test_the_papers_own_settings_share_a_port_fairly(n: int) -> None:
    """No calibration: line rate, a queue about Kmin, and no flow with twice of another."""
    o = incast(Profile(), [0] * n, 60 * MS)
    assert o.share(20 * MS, 59 * MS) > 0.998
    queue = o.queue(20 * MS, 59 * MS)
    assert 0.7 * KMIN < queue.mean() < 1.3 * KMIN
    assert queue.max() < KMAX / 2
    assert o.senders.sent.max() < 2 * o.senders.sent.min()


def test_a_late_flow_gets_its_part() -> None:
    o = incast(Profile(), [0, 20 * MS], 100 * MS)
    late = int(o.senders[1].sent) / (80 * MS / int(o.world.frame_ps))
    assert late == pytest.approx(0.5, abs=0.1)


def test_plain_python_agrees_with_compiled_code() -> None:
    said = [run_plain("tests.sim.roce.plain", NUMBA_DISABLE_JIT=disabled) for disabled in "10"]
    assert said[0] == said[1]
    for found in said[0].values():
        assert sum(found["cnps"]) > 0
        assert found["marked"] > 0
        assert found["wrong"] == 0
    assert min(said[0]["lenient"]["pauses"]) > 0
