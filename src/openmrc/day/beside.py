"""What the closed formulas of `mrc plan` say of the same failures, and why a day differs.

They get the day's own assumptions: its checkpoints, the part of its steps that waits for the
network, its stalls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import IO, Any

from openmrc.day.day import Side
from openmrc.day.life import Life
from openmrc.day.stalls import converges_s
from openmrc.planning.assumptions import values_with
from openmrc.planning.reliability import SECONDS_PER_DAY, failures, interruptions_per_day
from openmrc.planning.restarts import lost
from openmrc.sim.roce.transport import RoceTransport
from openmrc.tabular import Column, print_table

ROWS = {  # words, and why a day differs
    "interruptions": (
        "interruptions by the network",
        "one draw; a job on some of the NICs has less",
    ),
    "stalls": ("stalls, %", "hashed: they end with a timer, not with routing"),
    "bandwidth": ("missing bandwidth, %", "one stage is slower, behind other work, not all"),
}


def formulas(side: Side, life: Life, values: Mapping[str, float]) -> dict[str, float]:
    """Return what the formulas of a plan say of the period that a life has lived."""
    transport = side.transport
    roce = isinstance(transport, RoceTransport)
    known = {
        **{name: value for name, value in values_with(()).items() if name not in values},
        **values,
        "checkpoint_s": life.job.checkpoint_s,
        "restart_s": life.job.restart_s,
        "exposed_share": life.steps.exposed_share,
        "stall_s": values["mrc_path_stall_s"],
        "balance_port_s": values["balance_port_stall_s"],
        "convergence_s": converges_s(transport, 0.5) if roce else 0.0,
    }
    found = failures(life.design, known)
    share = lost(found, known)
    stalls = share.stalls
    if roce:
        stalls = share.stalls_of_balance if transport.balances else share.stalls_of_hashing
    return {
        "interruptions": interruptions_per_day(found) * life.now_s / SECONDS_PER_DAY,
        "stalls": 100 * stalls,
        "bandwidth": 100 * share.bandwidth,
    }


def print_beside(sides: Sequence[Mapping[str, Any]], out: IO[str]) -> None:
    """Print the formulas' figures and the day's."""
    columns = [
        Column("of the network's failures", words=True),
        Column("by", words=True),
        *(Column(each["name"]) for each in sides),
        Column("they differ, since", words=True),
    ]
    rows = []
    for key, (words, why) in ROWS.items():
        figures = [f"{each['formulas'][key]:,.3g}" for each in sides]
        rows.append([words, "mrc plan", *figures, why])
        rows.append(["", "the day", *(f"{_of_day(each, key):,.3g}" for each in sides), ""])
    print_table(None, columns, rows, out, sections=[2, 4])


def _of_day(each: Mapping[str, Any], key: str) -> float:
    if key == "interruptions":
        return float(each["interruptions_by_network"])
    gpu_hours = each["gpu_hours_lost"]["stall" if key == "stalls" else key]
    return float(100 * gpu_hours / (each["hours"] * each["gpus"] or 1))
