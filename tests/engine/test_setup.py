"""What can be set stands once, and one constructor lays an endpoint out."""

from __future__ import annotations

from dataclasses import Field, fields
from typing import Any

import numpy as np
import pytest

from openmrc.engine import setup
from openmrc.engine import state as es
from openmrc.engine.parameters import Parameters, Variants
from openmrc.live.endpoint.limits import Limits
from openmrc.sim.mrc.transport import Transport

ROOMS = setup.Rooms(
    qps=3,
    planes=2,
    mpr=300,
    sends=np.array([4, 0, 8]),
    receives=np.array([0, 16, 2]),
    evs=np.array([6, 2, 5]),
    order_len=np.array([3, 1, 3]),
)


@pytest.mark.parametrize("parameter", fields(Variants), ids=lambda each: each.name)
def test_a_parameter_has_a_source_and_a_default_in_range(
    parameter: Field[Any],
) -> None:
    default: Any = parameter.default
    about = parameter.metadata
    assert about["source"]
    if about["least"] is not None and default is not None:
        assert about["unit"]
        assert about["least"] <= default <= (about["most"] or default)


def test_the_worlds_differ_in_three_defaults() -> None:
    simulated, live = Transport(), Limits()
    different = {
        each.name: (getattr(simulated, each.name), getattr(live, each.name))
        for each in fields(Parameters)
        if getattr(simulated, each.name) != getattr(live, each.name)
    }
    assert different == {"rto_exponent": (8, 14), "exp_cnt": (10, 7), "mpr": (None, 512)}


def test_a_queue_pair_has_room_for_what_it_does_and_no_more() -> None:
    """The first only sends, the second only receives, the third does both and has two bitmaps."""
    st = setup.new_state(Variants(), ROOMS, nics=1, peers=1, regions=1)
    q = st.qp
    assert (len(st.slot), len(st.message), len(st.rx_message)) == (1024, 12, 18)
    assert (len(st.ev), len(st.order), len(st.bits)) == (13, 14, 4 * 16)
    assert q.slot0.tolist() == [0, 0, 512]
    assert q.slot_mask.tolist() == [511, 0, 511]
    assert q.msg0.tolist() == [0, 0, 4]
    assert q.rmsg0.tolist() == [0, 0, 16]
    assert q.acked0.tolist() == [0, 16, 32]
    assert q.rx0.tolist() == [0, 16, 48]
    assert q.ev0.tolist() == [0, 6, 8]
    assert q.order0.tolist() == [0, 6, 8]
    assert q.state.tolist() == [es.RESET] * 3


@pytest.mark.parametrize(("carries", "slots"), [(1, 2), (254, 256), (255, 256), (256, 512)])
def test_a_window_has_a_slot_more_than_its_packets_and_no_more_than_mpr_asks_for(
    carries: int, slots: int
) -> None:
    rooms = ROOMS._replace(carries=np.array([carries, 7, 10**9]))
    st = setup.new_state(Variants(), rooms, nics=1, peers=1, regions=1)
    assert st.qp.slot_mask.tolist() == [slots - 1, 0, 511]
    assert st.qp.slot0.tolist() == [0, 0, slots]


def test_paths_lie_behind_those_of_the_planes_before() -> None:
    st = setup.new_state(Variants(), ROOMS, nics=1, peers=1, regions=1)
    both = np.array([0, 2])
    setup.set_paths(st, both, 0, np.array([[7, 8, 9], [4, 5, 6]]), 2)
    setup.set_paths(st, both, 1, np.array([[70, 80], [40, 50]]), 1)
    assert st.qp.n_evs.tolist() == [5, 0, 5]
    assert st.ev.value.tolist() == [7, 8, 9, 70, 80, 0, 0, 0, 4, 5, 6, 40, 50]
    assert st.ev.active.tolist() == [1, 1, 0, 1, 0, 0, 0, 0, 1, 1, 0, 1, 0]
    assert st.plane.ev0.tolist() == [0, 3, 0, 0, 0, 3]
    assert st.plane.reverse_ev.tolist() == [7, 70, 0, 0, 4, 40]
    assert st.order[[0, 1, 3, 8, 9, 11]].tolist() == [0, 1, 3, 0, 1, 3]


def test_what_the_world_decides_goes_before_a_parameter() -> None:
    st = setup.new_state(
        Variants(paths="reps", rto_exponent=3), ROOMS, nics=1, peers=1, regions=1, shuffle_rounds=1
    )
    c = st.config[0]
    assert (c.shuffle_rounds, c.rto_base_ps, c.freezing_ps) == (1, 8 * 1_024_000, 10**10)
    assert (len(st.reps), c.path_choose, c.path_learn) == (6, 1, 1)
