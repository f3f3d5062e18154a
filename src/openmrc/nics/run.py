"""An agent of a NIC in real time: its clock, and its link to the controller, in one loop."""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import Any

from openmrc.errors import InputError
from openmrc.nics.agent import NicAgent
from openmrc.ops.mapper import words
from openmrc.ops.mapper.agent import Report
from openmrc.ops.mapper.bursts import Order
from openmrc.ops.mapper.link import Link
from openmrc.ops.mapper.run import first_period

LOOK_S = 0.005  # for EV events
TELL_PERIODS = 50  # between two reports without news; after a loss each of so many is one


def run(
    agent: NicAgent,
    link: Link | None,
    tell: Callable[[dict[str, Any]], None],
    stopping: Callable[[], bool],
) -> None:
    """Probe until `stopping`; reports go to the controller, or without one to `tell`."""
    period, due_ps = first_period(agent.schedule.period_ps), 0
    waiting: Report | None = None
    told, quiet = list[int](), TELL_PERIODS
    while not stopping():
        heard = link.heard() if link is not None else []
        for message in heard:
            _obey(agent, message)
        now_ps = agent.clock()
        if now_ps < due_ps and not agent.hear() and not heard:
            wait_s = min(LOOK_S, (due_ps - now_ps) / 1e12)
            select.select([link] if link is not None else [], [], [], wait_s)
            continue
        report, down = agent.round(period), agent.down()
        period, due_ps = period + 1, max(due_ps + agent.schedule.period_ps, now_ps)
        quiet = 0 if report.lost else quiet + 1
        if waiting is not None:
            report.periods += waiting.periods
            report.rounds[:0] = waiting.rounds
        waiting = report
        if quiet < TELL_PERIODS or report.bursts or down != told or report.periods >= TELL_PERIODS:
            told, waiting = down, None
            message = words.said(report, down)
            if link is not None:
                link.send(message)
            else:
                tell(message)


def _obey(agent: NicAgent, message: dict[str, Any]) -> None:
    try:
        order = words.read_order(message, agent.schedule)
    except InputError:
        return  # a controller only advises
    if isinstance(order, Order):
        agent.ask(order.burst, order.port, order.n)
