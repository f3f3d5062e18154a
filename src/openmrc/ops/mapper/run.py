"""An agent in real time: its clock, its sockets, and its link to the controller, in one loop."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from openmrc.errors import InputError
from openmrc.ops.mapper import words
from openmrc.ops.mapper.agent import Agent, Report
from openmrc.ops.mapper.bursts import Count
from openmrc.ops.mapper.link import Link
from openmrc.ops.mapper.live import Ports
from openmrc.ops.mapper.loop import ASKED
from openmrc.say import counted

PS_PER_NS = 1000


class Seen:
    """What an agent's reports say in all."""

    def __init__(self) -> None:
        self.lost = self.late = 0

    def add(self, report: Report) -> None:
        """Count a report."""
        self.lost += len(report.lost)
        self.late += len(report.late)

    def line(self, agent: Agent) -> str:
        """What was probed, and whether all is well, in a line."""
        n, periods = len(agent.orders[0].numbers), agent.periods
        sent = f"nic {agent.nic} sent {counted(n * periods, 'probe')}, {n} in each of"
        sent += f" {counted(periods, 'period')}"
        if not periods:
            return f"{sent}: the time was shorter than one"
        if not self.lost:
            return f"{sent}: all is well, none was lost."
        return f"{sent}: {self.lost:,} were lost, of which {self.late:,} came after all."


def first_period(period_ps: int) -> int:
    """Return a number that grows from start to start."""
    return time.time_ns() * PS_PER_NS // period_ps % (1 << 31)


def run(
    agent: Agent,
    ports: Ports,
    link: Link | None,
    tell: Callable[[dict[str, Any]], None],
    stopping: Callable[[], bool],
    zero_ns: int,
    keep: Callable[[Report], None] = lambda _: None,
) -> None:
    """Probe until `stopping`; reports go to the controller, or without one to `tell`, and to
    `keep`. Without news plain Python runs only when a report is due.
    """

    def passed_ps() -> int:
        return (time.monotonic_ns() - zero_ns) * PS_PER_NS

    told, down = list[int](), ports.down()
    ports.heed(link)
    while not stopping():
        others = ports.probe_until(agent.tell_at_ps)
        now_ps = passed_ps()
        if others > 0:
            agent.came(others)
        elif others == ASKED and link is not None:
            for message in link.heard():
                _obey(agent, link, message)
        if sends := agent.bursts(now_ps):
            ports.send(sends)
            agent.left(passed_ps(), sends)
        # A loss is a reason to look: the kernel may tell of a carrier a second after it is gone.
        # So is a port that was down: a driver may not tell that it is back.
        if ports.changed() or agent.misses or down:
            down = ports.down()
        report = agent.report(now_ps, at_once=down != told)
        if report is not None:
            told = down
            keep(report)
            _tell(report, down, link, tell)


def _obey(agent: Agent, link: Link, message: dict[str, Any]) -> None:
    try:
        order = words.read_order(message, agent.schedule)
    except InputError:
        return  # a controller only advises
    if isinstance(order, Count):
        link.send(words.counted(agent.count(order.burst)))
    elif order is not None:
        agent.ask(order.burst, order.port, order.n)


def _tell(
    report: Report, down: list[int], link: Link | None, tell: Callable[[dict[str, Any]], None]
) -> None:
    message = words.said(report, down)
    if link is not None:
        link.send(message)
    else:
        tell(message)


def as_line(message: dict[str, Any]) -> str:
    """Return a report as a line of JSON."""
    return json.dumps(message, separators=(",", ":"))
