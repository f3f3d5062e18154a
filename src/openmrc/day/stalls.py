"""How long a failure that a job survives stalls it, by the rules of each transport.

MRC leaves a path when packets on it are overdue; a port, when it is told. Where switches balance,
all wait a little longer until routing knows. A hashed queue pair waits until routing has converged,
and then for its next timer; it is in error if its retries are over by then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from openmrc.day.steps import S_PER_PS
from openmrc.planning.reliability import PORT
from openmrc.sim.roce.transport import RTO_FIRST_PS, RoceTransport


class Stall(NamedTuple):
    """How long all ranks wait, and whether the job dies of it."""

    s: float
    dies: bool = False


Stalls = Callable[[str, float], Stall]  # of what a failure takes, and a draw from 0 to 1


def stalls_of(transport: Any, values: Mapping[str, float], exposed_share: float) -> Stalls:
    """Return the rule of a transport."""
    if not isinstance(transport, RoceTransport):
        times = {name: Stall(values[f"mrc_{name}_stall_s"]) for name in ("port", "path")}
        return lambda takes, draw: times["port" if takes == PORT else "path"]
    if transport.balances:
        return lambda takes, draw: _balanced(transport, values, exposed_share, takes, draw)
    return lambda takes, draw: hashed(transport, converges_s(transport, draw))


def converges_s(transport: RoceTransport, draw: float) -> float:
    """Return when routing knows of a failure, by a draw from 0 to 1."""
    least, most = (each * S_PER_PS for each in transport.convergence_ps)
    return least + draw * (most - least)


def _balanced(
    transport: RoceTransport,
    values: Mapping[str, float],
    exposed_share: float,
    takes: str,
    draw: float,
) -> Stall:
    if takes == PORT:
        return Stall(values["balance_port_stall_s"])
    lost = values["balance_path_share"] * exposed_share
    return Stall(converges_s(transport, draw) * lost)


def hashed(transport: RoceTransport, outage_s: float) -> Stall:
    """Return what a queue pair makes of an outage: its next timer ends it (docs/roce.md)."""
    rto_s = transport.rto_ps * S_PER_PS
    first_s = (transport.rto_first_ps or min(RTO_FIRST_PS, transport.rto_ps)) * S_PER_PS
    patience_s = (transport.retry_cnt + 1) * rto_s
    if outage_s >= patience_s:
        return Stall(patience_s, dies=True)
    due_s, timer_s = 0.0, first_s
    while due_s < outage_s:
        due_s, timer_s = due_s + timer_s, min(2 * timer_s, rto_s)
    return Stall(due_s)
