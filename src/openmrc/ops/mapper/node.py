"""`mrc doctor --node`: checks this host before a job, by its own probes alone, without a
controller.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

from openmrc.fabric.model import Fabric
from openmrc.ops.mapper import loop, run
from openmrc.ops.mapper.admission import PERIODS_MIN, Admission, Known, judge
from openmrc.ops.mapper.agent import Agent, Report, order
from openmrc.ops.mapper.live import Ports, SegmentRouting
from openmrc.ops.schedule import TURNS, Schedule, make
from openmrc.units import S

PERIODS = 4 * PERIODS_MIN
PERIOD_PS = S // 50  # a check may take a second
LOAD_MAX = 0.01
PATIENCE_NS = 60 * 10**9  # on a busy machine


def examine(fabric: Fabric, host: dict[str, Any]) -> Admission:
    """Probe from this host for `PERIODS` periods, and return whether it is fit for a job; `host` is
    the content of its host file.
    """
    schedule = make(fabric, period_ps=PERIOD_PS, load_max=LOAD_MAX)
    loop.warm_up()
    zero_ns = time.monotonic_ns()
    agent = Agent(schedule, int(host["nic"]), 0, run.first_period(schedule.period_ps))
    reports: list[Report] = []

    def stopping() -> bool:
        # The last probes need time to return.
        late = time.monotonic_ns() - zero_ns > PATIENCE_NS
        return late or agent.periods > PERIODS + agent.silence_ps // schedule.period_ps

    wire = SegmentRouting(schedule.fabric, host)
    with Ports(agent, wire, zero_ns) as ports:
        run.run(agent, ports, None, lambda _: None, stopping, zero_ns, reports.append)
        down = ports.down()
    return judge(schedule.fabric, known(schedule, agent.nic, agent.periods, reports, down))


def known(
    schedule: Schedule, nic: int, periods: int, reports: Iterable[Report], down: list[int]
) -> Known:
    """Return what a node's own reports say of it."""
    n_planes = schedule.fabric.n_planes
    lost: Counter[int] = Counter()
    for report in reports:
        for loss in report.lost:
            port = loss.number // schedule.per_port
            if port // n_planes == nic:
                lost[port % n_planes] += 1
        for loss in report.late:
            port = loss.number // schedule.per_port
            if port // n_planes == nic:
                lost[port % n_planes] -= 1
    loops = loops_of(schedule, nic)
    silent = tuple(plane for plane in range(n_planes) if lost[plane] >= periods * loops / 2 > 0)
    sent = periods * loops * n_planes
    return Known(nic, True, periods, tuple(down), silent, sum(lost.values()), sent)


def loops_of(schedule: Schedule, nic: int) -> int:
    """Return the minimum number of probes of a period that return to a port of a NIC."""
    n_planes = schedule.fabric.n_planes
    return min(sum(order(schedule, nic, turn).loops) // n_planes for turn in range(TURNS))
