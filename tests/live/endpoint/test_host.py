"""An endpoint's own figures: what follows from a round trip that was measured."""

from __future__ import annotations

import pytest

from openmrc.jit import interpreted
from openmrc.units import MS
from tests.live.endpoint.stage import HIDDEN, KNOWN, Stage

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
