"""An endpoint's own figures: what follows from a round trip that was measured; and what is loaded
before it carries anything.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from openmrc.engine import ev, place
from openmrc.fabric.model import BoolArray, IntArray
from openmrc.jit import interpreted
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


def test_a_controllers_word_waits_for_the_round_that_runs() -> None:
    with connected() as (a, _):
        host, (key, state) = a.device._host, first_ev(a)
        host._enter.call()
        assert host._declare.call(a.qp.index, *key, ev.DENIED, False) == 0
        assert first_ev(a) == (key, state)
        host._leave.call()
        host.declare(a.qp.index, {key: ev.DENIED})
        assert first_ev(a) == (key, ev.DENIED)


def test_a_denylist_that_comes_meanwhile_has_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    with connected() as (a, _):
        host, (key, _), asked = a.device._host, first_ev(a), list[int]()
        monkeypatch.setattr(host, "_denied", np.zeros(1, np.int64))

        def listed(remote: int, evs: IntArray) -> BoolArray:
            asked.append(remote)
            if len(asked) == 1:
                host._denied = np.ones(1, np.int64)
            return np.full(len(evs), len(asked) > 1)

        monkeypatch.setattr(host, "_denied_evs", listed)
        host.declare(a.qp.index, {key: ev.GOOD})
        assert first_ev(a) == (key, ev.DENIED)
        assert len(asked) == 2
