"""How long packets may wait in queues."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from openmrc.ops.diagnose.waits import QUEUED, UNMARKED, waits
from tests.ops.diagnose.made import RTT_US, Bad, component, seen

UP = component("plane 1 t0 2 > t1 3").ports[0]
CUT = seen(Bad((UP,)))
CROSSES = (CUT.lost.routes == UP).any(axis=1)


def test_little_waits_where_nothing_was_marked_but_before_nics() -> None:
    """NIC, T0, T1, and the T0 of the receiver; no queue of a NIC's own counts."""
    (each,) = np.unique(waits(CUT, CUT.lost.take(CROSSES))[:, :4], axis=0)
    assert np.allclose(each, RTT_US * np.array([0, UNMARKED, 2 * UNMARKED, QUEUED]))


def test_where_a_port_marks_its_queue_may_be_full() -> None:
    full = np.zeros_like(CUT.full)
    full[:, UP] = 1
    upto = waits(replace(CUT, full=full), CUT.lost)
    assert (upto[CROSSES, 1] == QUEUED * RTT_US).all()
    assert upto.max() == QUEUED * RTT_US
    other = ~CROSSES & (CUT.lost.routes[:, 1] != UP) & (CUT.lost.routes[:, 2] >= 0)
    assert np.allclose(upto[other, 1], UNMARKED * RTT_US)


def test_probes_wait_in_no_queue_and_ports_that_tell_nothing_may_be_full() -> None:
    probes = replace(CUT.lost, probe=np.ones(len(CUT.lost), np.bool_))
    assert waits(CUT, probes).max() == 0
    assert (waits(replace(CUT, counted=False), CUT.lost)[CROSSES, 1] == QUEUED * RTT_US).all()
