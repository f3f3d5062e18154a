"""The tables of `mrc plan`, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import IO, Any

from openmrc.planning.assumptions import ASSUMPTIONS, VALUE_MAX, Assumption
from openmrc.planning.comparison import Plan, ratios
from openmrc.planning.grounds import COST, INTERRUPTIONS, LOST, POWER, grounds
from openmrc.tabular import Column, print_table
from openmrc.units import fmt_rate

Grounds = Mapping[str, Sequence[str]]
SELDOM_A_DAY = 1e-6  # once in 3,000 years: shown as never


def print_plan(
    plans: Sequence[Plan],
    values: Mapping[str, float],
    hashed: dict[str, Any] | None,
    out: IO[str],
) -> None:
    """Print fabrics, failures, collisions if any, and every assumption to `out`."""
    behind = grounds([plan.design for plan in plans], values)
    _print_fabrics(plans, behind, out)
    for plan in plans:
        _print_failures(plan, behind, out)
    _print_lost(plans, behind, out)
    for line in sentences(plans):
        print(line, file=out)
    if hashed is not None:
        _print_collisions(hashed, out)
    print_assumptions(values, ASSUMPTIONS, out)


def sentences(plans: Sequence[Plan]) -> list[str]:
    """Return further facts on each design, as sentences."""
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


def _print_fabrics(plans: Sequence[Plan], behind: Grounds, out: IO[str]) -> None:
    first = plans[0].design
    title = (
        f"{first.nics:,} GPUs, each with a NIC of {fmt_rate(first.nic_rate_bps)};"
        f" switches of {fmt_rate(first.switch_rate_bps)}"
    )
    ratio = ratios(plans)
    columns = [
        Column("figure", words=True),
        *(Column(plan.design.name) for plan in plans),
        *([] if ratio is None else [Column("ratio of the two")]),
        Column("rests on the assumptions", words=True),
    ]
    rows = []
    for name, cells, key, figure in _rows(plans):
        of_both = [] if ratio is None else [_ratio(ratio[key]) if key else ""]
        rows.append([name, *cells, *of_both, ", ".join(behind.get(figure, []))])
    print_table(title, columns, rows, out)


def _rows(plans: Sequence[Plan]) -> list[tuple[str, list[str], str, str]]:
    """Return (name, a cell of each design, key of its ratio or "", key of its grounds or "")."""
    designs = [plan.design for plan in plans]
    tiers = max(d.tiers for d in designs)
    rows = [
        (
            "ports of a switch",
            [f"{d.radix} x {fmt_rate(d.port_rate_bps)}" for d in designs],
            "",
            "",
        ),
        ("NICs that would fit", [f"{d.nics_max:,}" for d in designs], "", ""),
        ("NICs within one hop", [f"{d.reach(0):,}" for d in designs], "", ""),
        ("switches on the longest path", [f"{d.hops_max}" for d in designs], "", ""),
    ]
    rows += [
        (f"T{tier} switches", [_nth(d.switches, tier) for d in designs], "", "")
        for tier in range(tiers)
    ]
    rows.append(("switches", [f"{sum(d.switches):,}" for d in designs], "switches", ""))
    stages = ("NIC-T0", *(f"T{tier}-T{tier + 1}" for tier in range(tiers - 1)))
    rows += [
        (f"links {stage}", [_nth(d.links, number) for d in designs], "", "")
        for number, stage in enumerate(stages)
    ]
    rows += [
        ("links", [f"{sum(d.links):,}" for d in designs], "links", ""),
        (
            f"transceivers of {fmt_rate(designs[0].nic_rate_bps)}",
            [f"{sum(d.transceivers):,}" for d in designs],
            "transceivers",
            "",
        ),
        ("power, kW", [f"{plan.bill.power_w / 1e3:,.0f}" for plan in plans], "power", POWER),
        ("cost, million USD", [f"{plan.bill.cost_usd / 1e6:,.2f}" for plan in plans], "cost", COST),
        (
            "mean time between interruptions",
            [_between(plan.between_interruptions_h) for plan in plans],
            "",
            INTERRUPTIONS,
        ),
    ]
    return rows


def _print_failures(plan: Plan, behind: Grounds, out: IO[str]) -> None:
    columns = [
        Column("one failure of a", words=True),
        Column("of how many"),
        Column("takes, of a NIC's bandwidth, %"),
        Column("from how many NICs"),
        Column("failures a day"),
        Column("job interruptions a day"),
        Column("rests on the assumptions", words=True),
    ]
    rows = [
        [
            failure.kind,
            f"{failure.things:,}",
            f"{100 * failure.share:.3g}",
            f"{failure.nics:,}",
            _rate(failure.per_day),
            _rate(failure.interruptions_per_day),
            ", ".join(behind[failure.kind]),
        ]
        for failure in plan.failures
    ]
    total = ["all that interrupt the job", "", "", "", "", _rate(plan.interruptions_per_day)]
    rows.append([*total, ", ".join(behind[INTERRUPTIONS])])
    title = f"Failures, {plan.design.name}"
    print_table(title, columns, rows, out, sections=[len(plan.failures)])


def _print_lost(plans: Sequence[Plan], behind: Grounds, out: IO[str]) -> None:
    columns = [
        Column("of a job on all GPUs", words=True),
        *(Column(plan.design.name) for plan in plans),
        Column("rests on the assumptions", words=True),
    ]
    shares = (
        ("if each ended the job: time lost, %", "if_each_ended_the_job"),
        ("if each but flaps did: time lost, %", "if_each_but_flaps_did"),
        ("with MRC: to starting again, %", "restarts"),
        ("with MRC: to stalls, %", "stalls"),
        ("with MRC: to missing bandwidth, %", "bandwidth"),
        ("with MRC: time lost in all, %", "with_mrc"),
        ("with switches that balance: to stalls, %", "stalls_of_balance"),
        ("with switches that balance: in all, %", "with_balance"),
        ("with hashed RoCEv2: to stalls, %", "stalls_of_hashing"),
        ("with hashed RoCEv2: in all, %", "with_hashing"),
    )
    counts = (
        ("failures a day", "failures_per_day"),
        ("times rollback and restart, h a day", "hours_per_day"),
    )
    rows = [[words, *(_rate(getattr(plan.lost, name)) for plan in plans)] for words, name in counts]
    rows += [
        [words, *(f"{100 * getattr(plan.lost, name):.3g}" for plan in plans)]
        for words, name in shares
    ]
    for row, (_, name) in zip(rows, (*counts, *shares), strict=True):
        row.append(", ".join(behind[LOST + name]))
    print_table("What failures cost", columns, rows, out, sections=[2, 4, 8, 10])


def _print_collisions(hashed: dict[str, Any], out: IO[str]) -> None:
    title = (
        f"Hashed paths in the single plane: a ring across {hashed['t0s']:,} T0s of"
        f" {hashed['nics_per_t0']} NICs and {hashed['uplinks']} uplinks"
    )
    columns = [
        Column("QPs of a pair", words=True),
        Column("uplinks in use, %"),
        Column("slowest QP gets, % of its share"),
        Column("ring takes, times its ideal"),
    ]
    rows = [
        [
            f"{row['qps']}",
            f"{100 * row['used']:.1f}",
            f"{100 * row['share']:.1f}",
            f"{row['time']:.2f}",
        ]
        for row in hashed["hashed"]
    ]
    rows.append(["sprayed evenly", "100.0", "100.0", "1.00"])
    print_table(title, columns, rows, out)


def print_assumptions(
    values: Mapping[str, float], assumptions: Mapping[str, Assumption], out: IO[str]
) -> None:
    """Print every assumption with its source."""
    title = "Assumptions, each to be set with --set NAME=VALUE; the rest is arithmetic"
    columns = [
        Column("name", words=True),
        Column("value"),
        Column("unit", words=True),
        Column("from", words=True),
    ]
    rows = []
    for name, known in assumptions.items():
        own = values[name] == known.value
        value = "never" if values[name] >= VALUE_MAX else f"{values[name]:,.10g}"
        rows.append([name, value, known.unit, known.source if own else "--set"])
    print_table(title, columns, rows, out)


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
