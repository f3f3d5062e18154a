"""An endpoint's own figures: what follows from a round trip that was measured; and what is loaded
before it carries anything.
"""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from openmrc.engine import ev, place
from openmrc.fabric.model import BoolArray
from openmrc.jit import interpreted
from openmrc.live.endpoint import control, loop, state
from openmrc.units import MS
from tests.live.endpoint.stage import HIDDEN, KNOWN, Stage
from tests.live.two import End, connected

ROOT = Path(__file__).parents[3]
# In a process of its own: in this one other tests have loaded everything.
LOADED = """
from openmrc.live.endpoint import loop
from tests.live.two import connected

def loaded():
    return [len(one.overloads) for one in (loop.go, loop.set_port, loop.deny, loop.end_qp)]

with connected() as (a, b):
    print(loaded())
    a.device.set_port(1, up=False)
    a.device.keep_off([8])
    a.qp.destroy()
    print(loaded())
"""

pytestmark = pytest.mark.skipif(interpreted(), reason="the stage is compiled")


def test_the_first_window_is_that_of_the_measured_round_trip() -> None:
    """MRC 4.6: a line-rate start with T as measured. Who has begun keeps the window it has."""
    stage = Stage()
    one = stage.hosts[0]
    one.measures = True
    known, hidden = one.st.qp[KNOWN], one.st.qp[HIDDEN]
    before = float(hidden.max_wnd)

    one._follow(2 * MS)
    assert hidden.cwnd == hidden.max_wnd > before
    assert known.cwnd == known.max_wnd == hidden.max_wnd

    stage.transfer()
    begun = float(hidden.cwnd)
    one._follow(8 * MS)
    assert hidden.max_wnd > 3 * begun
    assert hidden.cwnd == begun
    stage.close()


@pytest.mark.parametrize(
    ("frame_ps", "taken"),
    [
        (340_000_000, 1),  # 100 Mb/s: one frame takes longer than a quarter of T
        (31_250_001, 3),
        (31_250_000, 4),
        (7_812_501, 15),
        (7_812_500, 16),
        (34_000, 16),  # 1 Tb/s: what the batch holds
    ],
)
def test_what_is_taken_from_a_port_at_once_spans_a_quarter_of_t(frame_ps: int, taken: int) -> None:
    """Frames of the other ports wait meanwhile, and must not seem missing (row 7)."""
    stage = Stage()
    one = stage.hosts[0]
    assert one.base_rtt_ps == MS // 2
    assert one._taken_at_once(frame_ps) == taken
    assert int(one.ep.ctl[0].rx_most) == 16
    stage.close()


def test_a_loop_need_not_load_code_in_the_middle_of_traffic() -> None:
    """A port that goes down, a denial, the end of a queue pair: to load each took 10 ms and more,
    to compile it half a second, in which the endpoint carried nothing.
    """
    done = subprocess.run(
        [sys.executable, "-c", LOADED], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["[1, 1, 1, 1]", "[1, 1, 1, 1]"]


def first_ev(a: End) -> tuple[tuple[int, int], int]:
    """The first EV of a queue pair, and its state."""
    st = a.device._host.st
    one = st.ev[place.evs(st.qp[a.qp.index])][0]
    return (int(one.value), int(one.plane)), int(one.state)


def test_an_ev_is_denied_as_long_as_anybody_denies_it() -> None:
    with connected() as (a, _):
        host, i, (key, _) = a.device._host, a.qp.index, first_ev(a)
        own = control.among(host.st, i, [key])

        def say(to: int) -> int:
            host.between(lambda: loop.declare(host.ep, host.st, host.ways, i, *key, to))
            return first_ev(a)[1]

        def listed(denied: BoolArray) -> int:
            host.between(lambda: host._deny(i, state.LISTED, denied))
            return first_ev(a)[1]

        assert say(ev.DENIED) == ev.DENIED
        assert listed(own) == ev.DENIED
        assert say(ev.GOOD) == ev.DENIED
        assert say(ev.ASSUMED_BAD) == ev.DENIED
        assert listed(~own & False) == ev.GOOD
        assert listed(own) == ev.DENIED
        assert say(ev.DENIED) == ev.DENIED
        assert listed(~own & False) == ev.DENIED
        assert say(ev.GOOD) == ev.GOOD


def test_a_path_in_place_of_a_denied_one_is_judged_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the controller's word on it, and by the denylist."""
    with connected() as (a, _):
        host, i = a.device._host, a.qp.index
        evs = host.st.ev[place.evs(host.st.qp[i])]
        old = [tuple(evs.value[evs.plane == k].tolist()) for k in range(host.fabric.n_planes)]
        new = [tuple(value + 1000 for value in own) for own in old]
        for paths, listed, expected in (
            (control.Paths(tuple(old), frozenset({(old[0][0], 0)})), False, 1),
            (control.Paths(tuple(new)), False, 0),
            (control.Paths(tuple(new), frozenset({(new[0][0], 0), (new[1][0], 1)})), False, 2),
            (control.Paths(tuple(old)), True, len(evs)),
        ):
            monkeypatch.setattr(host, "_denied", np.zeros(int(listed), np.int64))
            monkeypatch.setattr(host, "_denied_evs", lambda _, own: np.ones(len(own), np.bool_))
            host.between(partial(host.follow, i, paths))
            assert (evs.state == ev.DENIED).sum() == expected
