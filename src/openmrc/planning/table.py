"""The tables of `mrc plan`, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import IO, Any

from rich.console import Console
from rich.table import Table

from openmrc.planning.assumptions import ASSUMPTIONS, VALUE_MAX
from openmrc.planning.comparison import Plan, ratios
from openmrc.units import fmt_rate

WIDTH = 120  # of a pipe, which has none
SELDOM_A_DAY = 1e-6  # once in 3,000 years: shown as never


def print_plan(
    plans: Sequence[Plan],
    values: Mapping[str, float],
    hashed: dict[str, Any] | None,
    out: IO[str],
) -> None:
    """Print fabrics, failures, collisions if any, and every assumption to `out`."""
    console = Console(file=out, highlight=False, width=None if out.isatty() else WIDTH)
    console.print(_fabrics(plans))
    for plan in plans:
        console.print(_failures(plan))
    for line in sentences(plans):
        console.print(line, soft_wrap=True, markup=False)
    if hashed is not None:
        console.print(_collisions(hashed))
    console.print(_assumptions(values))


def sentences(plans: Sequence[Plan]) -> list[str]:
    """Return what else there is to know of each design, in words."""
    said = []
    for plan in plans:
        radix = plan.design.radix
        if plan.design.nics <= radix:
            said.append(
                f"{plan.design.name}: one switch of {radix} ports would hold all NICs of a plane."
            )
        hours = plan.between_interruptions_h
        word = "never" if hours is None else f"every {_duration(hours)}"
        said.append(f"{plan.design.name}: the fabric interrupts a job on all GPUs {word}.")
    return said


def _fabrics(plans: Sequence[Plan]) -> Table:
    first = plans[0].design
    table = Table(
        title=f"{first.nics:,} GPUs, each with a NIC of {fmt_rate(first.nic_rate_bps)};"
        f" switches of {fmt_rate(first.switch_rate_bps)}",
        title_justify="left",
    )
    table.add_column("")
    for plan in plans:
        table.add_column(plan.design.name, justify="right")
    ratio = ratios(plans)
    if ratio is not None:
        table.add_column("ratio", justify="right")
    for name, cells, key in _rows(plans):
        last = [] if ratio is None else [_ratio(ratio[key]) if key else ""]
        table.add_row(name, *cells, *last)
    return table


def _rows(plans: Sequence[Plan]) -> list[tuple[str, list[str], str]]:
    """Return (name, a cell of each design, key of its ratio or "")."""
    designs = [plan.design for plan in plans]
    tiers = max(d.tiers for d in designs)
    rows = [
        ("ports of a switch", [f"{d.radix} x {fmt_rate(d.port_rate_bps)}" for d in designs], ""),
        ("NICs that would fit", [f"{d.nics_max:,}" for d in designs], ""),
        ("NICs within one hop", [f"{d.reach(0):,}" for d in designs], ""),
        ("switches on the longest path", [f"{d.hops_max}" for d in designs], ""),
    ]
    rows += [
        (f"T{tier} switches", [_nth(d.switches, tier) for d in designs], "")
        for tier in range(tiers)
    ]
    rows.append(("switches", [f"{sum(d.switches):,}" for d in designs], "switches"))
    stages = ("NIC-T0", *(f"T{tier}-T{tier + 1}" for tier in range(tiers - 1)))
    rows += [
        (f"links {stage}", [_nth(d.links, number) for d in designs], "")
        for number, stage in enumerate(stages)
    ]
    rows += [
        ("links", [f"{sum(d.links):,}" for d in designs], "links"),
        (
            f"transceivers of {fmt_rate(designs[0].nic_rate_bps)}",
            [f"{sum(d.transceivers):,}" for d in designs],
            "transceivers",
        ),
        ("power, kW", [f"{plan.bill.power_w / 1e3:,.0f}" for plan in plans], "power"),
        ("cost, million USD", [f"{plan.bill.cost_usd / 1e6:,.2f}" for plan in plans], "cost"),
        (
            "mean time between interruptions",
            [_between(plan.between_interruptions_h) for plan in plans],
            "",
        ),
    ]
    return rows


def _failures(plan: Plan) -> Table:
    table = Table(title=f"Failures, {plan.design.name}", title_justify="left")
    table.add_column("one failure of a")
    for heading in (
        "of",
        "takes, of a\nNIC's bandwidth",
        "from\nNICs",
        "a day",
        "interrupts\na day",
    ):
        table.add_column(heading, justify="right", vertical="bottom")
    for failure in plan.failures:
        table.add_row(
            failure.kind,
            f"{failure.things:,}",
            f"{100 * failure.share:.3g} %" if failure.share < 1 else "all",
            f"{failure.nics:,}",
            _rate(failure.per_day),
            _rate(failure.interruptions_per_day),
        )
    interruptions = _rate(plan.interruptions_per_day)
    table.add_section()
    table.add_row("interruptions of the job", "", "", "", "", interruptions)
    return table


def _collisions(hashed: dict[str, Any]) -> Table:
    table = Table(
        title=f"Hashed paths in the single plane: a ring across {hashed['t0s']:,} T0s of"
        f" {hashed['nics_per_t0']} NICs and {hashed['uplinks']} uplinks",
        title_justify="left",
    )
    for heading in ("QPs of\na pair", "uplinks\nin use", "slowest QP\ngets", "ring\ntakes"):
        table.add_column(heading, justify="right", vertical="bottom")
    for row in hashed["hashed"]:
        table.add_row(
            f"{row['qps']}",
            f"{100 * row['used']:.1f} %",
            f"{100 * row['share']:.1f} %",
            f"{row['time']:.2f} x",
        )
    table.add_row("sprayed evenly", "100.0 %", "100.0 %", "1.00 x")
    return table


def _assumptions(values: Mapping[str, float]) -> Table:
    table = Table(
        title="Assumptions, each to be set with --set NAME=VALUE; the rest is arithmetic",
        title_justify="left",
    )
    table.add_column("name", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("from")
    for name, known in ASSUMPTIONS.items():
        own = values[name] == known.value
        value = "never" if values[name] >= VALUE_MAX else f"{values[name]:,.10g}"
        table.add_row(name, value, known.unit, known.source if own else "--set")
    return table


def _nth(counts: Sequence[int], number: int) -> str:
    return f"{counts[number]:,}" if number < len(counts) else "-"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _rate(per_day: float) -> str:
    if per_day < SELDOM_A_DAY:
        return "-"
    return f"{per_day:,.0f}" if per_day >= 100 else f"{per_day:.3g}"


def _between(hours: float | None) -> str:
    return "never" if hours is None else _duration(hours)


def _duration(hours: float) -> str:
    for limit, scale, unit in ((1, 60, "min"), (48, 1, "h"), (24 * 365, 1 / 24, "days")):
        if hours < limit:
            return f"{hours * scale:.3g} {unit}"
    return f"{hours / (24 * 365):,.3g} years"
