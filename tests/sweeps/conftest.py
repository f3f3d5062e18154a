"""The smallest sweep: one message between two of four NICs, a run of milliseconds."""

from __future__ import annotations

import pytest

from openmrc.scenario.scenario import Scenario, make_scenario


@pytest.fixture
def small() -> Scenario:
    return make_scenario(
        {
            "name": "small",
            "fabric": {"nics": 4, "planes": 2, "port_rate": "100Gbps", "t0_down": 2},
            "workload": {"kind": "stream", "size": "10kB"},
            "stop": {"time": "1ms"},
        }
    )
