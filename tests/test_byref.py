"""State by reference: what cannot be passed is an error, never a crash."""

from __future__ import annotations

import numpy as np
import pytest

from openmrc.engine import ports, state
from openmrc.jit import interpreted


def small_state() -> state.State:
    return state.new_state(
        qps=1,
        slots=1,
        planes=1,
        evs=1,
        order=1,
        messages=1,
        rx_messages=1,
        words=1,
        regions=1,
        nics=1,
        peers=1,
    )


@pytest.mark.skipif(interpreted(), reason="plain Python passes references itself")
def test_an_error_on_the_way_in_is_raised() -> None:
    """Whatever is raised while the table of arrays is made arrives, KeyboardInterrupt as well."""
    crooked = small_state()._replace(order=np.zeros(8, np.int16)[::2])
    with pytest.raises(ValueError, match="State: its arrays must be C-contiguous"):
        ports.open_qp(crooked, 0)


@pytest.mark.skipif(interpreted(), reason="plain Python has no such types")
def test_classes_of_one_name_are_different_types() -> None:
    """Both worlds call their network Net; a process may hold both."""
    from numba import typeof

    from openmrc.fabric.clos import multiplane
    from openmrc.live.switches import Switches
    from openmrc.sim.transport import Queues, Transport
    from openmrc.sim.world import World
    from openmrc.workload.patterns import stream

    fabric = multiplane(2, 1, 10**9, 1, 1, 0, 0)
    simulated = typeof(World(fabric, stream(0, 1, 1000), Transport()).net)
    with Switches(fabric, Queues(), [-1, -1]) as switches:
        live = typeof(switches.net)
    assert simulated != live
    assert simulated.fields.keys() != live.fields.keys()
