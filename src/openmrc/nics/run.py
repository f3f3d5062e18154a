"""An agent of a NIC in real time: its clock, and its link to the controller, in one loop."""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from typing import Any

from openmrc.errors import InputError
from openmrc.nics.agent import NicAgent
from openmrc.ops.mapper import words
from openmrc.ops.mapper.agent import Report
from openmrc.ops.mapper.collector import Order
from openmrc.ops.mapper.link import Link
from openmrc.ops.mapper.run import PS_PER_NS, first_period

LOOK_S = 0.005  # for EV events
TELL_PERIODS = 50  # between two reports without news


def run(
    agent: NicAgent,
    link: Link | None,
    tell: Callable[[dict[str, Any]], None],
    stopping: Callable[[], bool],
) -> None:
    """Probe until `stopping`; reports go to the controller, or without one to `tell`."""
    zero_ns, period_ps = time.monotonic_ns(), agent.schedule.period_ps
    period, due_ps = first_period(period_ps), 0
    waiting: Report | None = None
    told = list[int]()
    while not stopping():
        heard = link.heard() if link is not None else []
        for message in heard:
            _obey(agent, message)
        now_ps = (time.monotonic_ns() - zero_ns) * PS_PER_NS
        if now_ps < due_ps and not agent.hear() and not heard:
            wait_s = min(LOOK_S, (due_ps - now_ps) / 1e12)
            select.select([link] if link is not None else [], [], [], wait_s)
            continue
        report = agent.round(now_ps, period)
        period, due_ps = period + 1, max(due_ps + period_ps, now_ps)
        if waiting is not None:
            report.periods += waiting.periods
        down = agent.down()
        if report.lost or report.bursts or down != told or report.periods >= TELL_PERIODS:
            told, waiting = down, None
            message = words.said(report, down)
            if link is not None:
                link.send(message)
            else:
                tell(message)
        else:
            waiting = report


def _obey(agent: NicAgent, message: dict[str, Any]) -> None:
    try:
        order = words.read_order(message, agent.schedule)
    except InputError:
        return  # a controller only advises
    if isinstance(order, Order):
        agent.ask(order.burst, order.port, order.n)
