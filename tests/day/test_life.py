"""A job through failures that are written down: what each costs, to the second."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from openmrc.day.failures import NOTHING, Failures
from openmrc.day.life import NONE, SLOWER, Job, Life
from openmrc.day.rates import KNOWN
from openmrc.day.stalls import Stall
from openmrc.planning.assumptions import values_with
from openmrc.planning.reliability import ALL, PATHS, PORT, Kind
from openmrc.planning.sizing import Design

DESIGN = Design(1024, 4, 2, 400 * 10**9, 6_400 * 10**9)  # 32 NICs below a T0
JOB = Job(nics=np.arange(1024), checkpoint_s=100.0, checkpoint_time_s=0.0, restart_s=30.0)
HOST = Kind("host", 128, 1.0, 8, 0.0, 0.0, ALL)
LINK = Kind("link", 4096, 0.25, 1, 0.0, 0.0, PORT)
UPLINK = Kind("uplink", 4096, 1 / 32, 32, 0.0, 0.0, PATHS)
UPDATE = Kind("update", 1, 0.0, 0, 0.0, 0.0, NOTHING)
KINDS = (HOST, LINK, UPLINK, UPDATE)


class Steps:
    """A step of 1 s; a missing port makes it 2 s, a missing share of uplinks that much longer."""

    none = (0.0,)
    whole_s = ideal_s = 1.0

    def step_s(self, ports: frozenset[tuple[int, int]], uplinks: tuple[float, ...]) -> float:
        return max(2.0 if ports else 1.0, 1 + uplinks[0])


def life(
    *found: tuple[float, Kind, int, int, float],
    stall_s: float = 0.0,
    design: Design = DESIGN,
    **values: float,
) -> Life:
    """A job with these failures: (when, what, first NIC, plane, for how long)."""
    columns: Sequence[Any] = list(zip(*found, strict=True)) if found else [()] * 5
    failures = Failures(
        KINDS,
        np.array([KINDS.index(each) for each in columns[1]], np.int64),
        np.array(columns[0], float),
        np.array(columns[4], float),
        np.array(columns[2], np.int64),
        np.array(columns[3], np.int64),
    )
    known = values_with((), KNOWN) | values
    steps: Any = Steps()
    return Life(JOB, design, failures, steps, lambda takes, draw: Stall(stall_s), known, 1)


def lived(subject: Life, until_s: float = 1000.0) -> dict[str, Any]:
    """All accounts that are not empty, after so long."""
    subject.run(until_s)
    accounts = dict(subject.accounts_s())
    assert sum(accounts.values()) == pytest.approx(until_s)
    return {name: pytest.approx(s) for name, s in accounts.items() if s > 1e-9}


def test_a_day_without_failures_is_all_useful() -> None:
    assert lived(life()) == {"useful": 1000}


def test_a_host_that_fails_costs_the_work_since_the_last_checkpoint_and_a_restart() -> None:
    subject = life((250.0, HOST, 64, 0, 5000.0))
    assert lived(subject) == {"useful": 920, "rollback": 50, "restart": 30}
    assert subject.interruptions == {"host": 1}


def test_a_port_costs_its_bandwidth_while_it_is_away_and_a_stall() -> None:
    subject = life((250.0, LINK, 3, 1, 100.0), stall_s=2.0)
    assert lived(subject) == {"useful": 949, "bandwidth": 49, "stall": 2}
    assert subject.done.did == [SLOWER]
    assert subject.step_times_s((0.5, 1.0)) == [1.0, 4.0]


def test_the_last_port_of_a_nic_ends_the_job() -> None:
    three = [(100.0, LINK, 3, plane, 5000.0) for plane in range(3)]
    subject = life(*three, (150.0, LINK, 3, 3, 5000.0))
    accounts = lived(subject)
    assert subject.interruptions == {"link": 1}
    # its host is replaced, so nothing is missing afterwards: from 180 s on it is all useful
    assert accounts == {"useful": 100 + 820, "rollback": 25, "bandwidth": 25, "restart": 30}


def test_one_plane_has_no_other_port() -> None:
    one_plane = Design(1024, 1, 3, 400 * 10**9, 6_400 * 10**9)
    subject = life((250.0, LINK, 3, 0, 100.0), design=one_plane)
    assert lived(subject) == {"useful": 920, "rollback": 50, "restart": 30}


def test_a_path_is_missed_by_its_share_of_all_planes() -> None:
    subject = life((200.0, UPLINK, 32, 0, 300.0))
    longer = 1 / 32 / 4
    assert lived(subject)["bandwidth"] == pytest.approx(300 * longer / (1 + longer))
    assert subject.done.did == [NONE]
    assert subject.unnoticed() == {"uplink": 1}


def test_without_a_spare_the_job_waits_for_one() -> None:
    subject = life((300.0, HOST, 0, 0, 120.0), spare_share=0.0)
    assert lived(subject) == {"useful": 850, "spare": 120, "restart": 30}


def test_a_host_comes_back_as_a_spare() -> None:
    one = 1 / 128  # of 128 hosts
    twice = [(300.0, HOST, 0, 0, 200.0), (600.0, HOST, 8, 0, 200.0)]
    assert "spare" not in lived(life(*twice, spare_share=one))
    at_once = [(300.0, HOST, 0, 0, 200.0), (400.0, HOST, 8, 0, 200.0)]
    assert lived(life(*at_once, spare_share=one))["spare"] == pytest.approx(100)


def test_a_job_starts_without_hosts_that_lack_ports_if_it_may() -> None:
    lacks, update = (200.0, LINK, 3, 0, 5000.0), (300.0, UPDATE, 0, 0, 0.0)
    assert lived(life(lacks, update)) == {"useful": 920, "bandwidth": 50, "restart": 30}
    admitted = lived(life(lacks, update, admit_ports=1.0))
    assert admitted["bandwidth"] == pytest.approx(50 + 335)


def test_a_failure_while_the_job_restarts_makes_it_start_again() -> None:
    subject = life((300.0, HOST, 0, 0, 10.0), (310.0, HOST, 8, 0, 10.0))
    assert lived(subject) == {"useful": 960, "restart": 40}


def test_stalls_that_overlap_are_one() -> None:
    subject = life((100.0, LINK, 3, 0, 1.0), (101.0, LINK, 9, 0, 1.0), stall_s=5.0)
    assert lived(subject) == {"useful": 994, "stall": 6}


def test_ctrl_c_ends_a_life_between_two_failures() -> None:
    subject = life((100.0, LINK, 3, 0, 1.0), (500.0, LINK, 3, 0, 1.0))
    with pytest.raises(KeyboardInterrupt):
        subject.run(1000.0, lambda now_s: signal.raise_signal(signal.SIGINT))
    assert subject.now_s == 100
    assert sum(dict(subject.accounts_s()).values()) == pytest.approx(100)
