"""How long a failure stalls a job, by transport."""

from __future__ import annotations

import pytest

from openmrc.day.rates import KNOWN
from openmrc.day.stalls import hashed, stalls_of
from openmrc.planning.assumptions import values_with
from openmrc.planning.reliability import PATHS, PORT
from openmrc.sim.mrc.transport import Transport
from openmrc.sim.roce.transport import RTO_FIRST_PS, RoceTransport
from openmrc.units import MS

VALUES = values_with((), KNOWN)
FIRST_S = RTO_FIRST_PS * 1e-12


@pytest.mark.parametrize(("outage_s", "timers"), [(0.001, 1), (0.0084, 3), (0.3, 63), (1.0, 127)])
def test_a_hashed_queue_pair_goes_on_with_its_next_timer(outage_s: float, timers: int) -> None:
    assert hashed(RoceTransport(), outage_s).s == pytest.approx(timers * FIRST_S)


def test_its_retries_may_be_over_by_then() -> None:
    impatient = RoceTransport(rto_ps=10 * MS, retry_cnt=1)
    assert not hashed(impatient, 0.019).dies
    assert hashed(impatient, 0.021).dies


def test_mrc_stalls_by_what_was_measured() -> None:
    stall = stalls_of(Transport(), VALUES | {"mrc_port_stall_s": 1.0}, 0.5)
    assert stall(PORT, 0.3).s == 1.0
    assert stall(PATHS, 0.3).s == VALUES["mrc_path_stall_s"]


def test_switches_that_balance_lose_a_share_until_routing_knows() -> None:
    transport = RoceTransport(routing="adaptive", convergence_ps=(100 * MS, 300 * MS))
    stall = stalls_of(transport, VALUES, 0.5)
    assert stall(PATHS, 0.5).s == pytest.approx(0.2 * 0.5 * VALUES["balance_path_share"])
    assert stall(PORT, 0.5).s == VALUES["balance_port_stall_s"]
