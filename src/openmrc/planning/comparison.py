"""The plan itself: the fabrics side by side, as one object that the table prints and JSON shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from openmrc.planning.assumptions import ASSUMPTIONS
from openmrc.planning.grounds import grounds
from openmrc.planning.prices import Bill, bill
from openmrc.planning.reliability import (
    Failure,
    failures,
    interruptions_per_day,
    mean_time_between_h,
)
from openmrc.planning.restarts import Lost, lost
from openmrc.planning.sizing import Design, size

# QPs of each pair for which hashing is computed (`--collisions`).
QPS = (1, 2, 4, 8, 16, 32, 64)
# Keys of switches and links in JSON, from the NICs upwards.
TIERS = ("t0", "t1", "t2", "t3")
STAGES = ("nic_t0", "t0_t1", "t1_t2", "t2_t3")


class Plan(NamedTuple):
    """One design with everything derived from it."""

    design: Design
    bill: Bill
    failures: list[Failure]
    lost: Lost

    @property
    def interruptions_per_day(self) -> float:
        """Return how often the fabric interrupts a job on all GPUs."""
        return interruptions_per_day(self.failures)

    @property
    def between_interruptions_h(self) -> float | None:
        """Return the mean time between job interruptions in hours; None if there are none."""
        return mean_time_between_h(self.interruptions_per_day)


def compare(
    gpus: int,
    nic_rate_bps: int,
    planes: int,
    switch_rate_bps: int,
    tiers: int,
    values: Mapping[str, float],
) -> list[Plan]:
    """Return the single plane, of the fewest tiers that hold all, and the planes beside it.

    With one plane only the first is returned. Raises `InputError` as `sizing.size` does.
    """
    if planes == 1:
        designs = [size(gpus, 1, nic_rate_bps, switch_rate_bps, tiers)]
    else:
        many = size(gpus, planes, nic_rate_bps, switch_rate_bps, tiers)
        designs = [size(gpus, 1, nic_rate_bps, switch_rate_bps), many]
    found = [(d, failures(d, values)) for d in designs]
    return [Plan(d, bill(d, values), broken, lost(broken, values)) for d, broken in found]


def collisions(design: Design) -> dict[str, Any]:
    """Return the cost of hashing for a ring across the T0s of the one plane of `design`."""
    from openmrc.planning.collisions import slowest_of_ring

    nics = min(design.half, design.nics)
    rows = []
    for qps in QPS:
        slowest = slowest_of_ring(nics, design.half, qps, design.t0s)
        rows.append({"qps": qps, **slowest._asdict()})
    return {"nics_per_t0": nics, "uplinks": design.half, "t0s": design.t0s, "hashed": rows}


def as_json(
    plans: Sequence[Plan], values: Mapping[str, float], hashed: dict[str, Any] | None
) -> dict[str, Any]:
    """Return the plan as the object that `mrc plan --json` prints, described in docs/plan.md."""
    first = plans[0].design
    shown: dict[str, Any] = {
        "gpus": first.nics,
        "nic_rate_bps": first.nic_rate_bps,
        "switch_rate_bps": first.switch_rate_bps,
        "designs": [_design(plan) for plan in plans],
        "ratios": ratios(plans),
        "rests_on": grounds([plan.design for plan in plans], values),
        "assumptions": {
            name: {
                "value": values[name],
                "unit": known.unit,
                "what": known.what,
                "source": known.source if values[name] == known.value else "given by the user",
            }
            for name, known in ASSUMPTIONS.items()
        },
    }
    if hashed is not None:
        shown["collisions"] = hashed
    return shown


def ratios(plans: Sequence[Plan]) -> dict[str, float | None] | None:
    """Return the many planes' figures over the single plane's; None if there is only one design.

    A ratio is None if there is nothing to compare with, as for a cost of 0.
    """
    if len(plans) < 2:
        return None
    single, many = plans
    return {
        part: sum(getattr(many.design, part)) / sum(getattr(single.design, part))
        for part in ("switches", "links", "transceivers")
    } | {
        "power": _ratio(many.bill.power_w, single.bill.power_w),
        "cost": _ratio(many.bill.cost_usd, single.bill.cost_usd),
    }


def _ratio(many: float, single: float) -> float | None:
    return many / single if single else None


def _design(plan: Plan) -> dict[str, Any]:
    design = plan.design
    named = ("name", "planes", "tiers", "port_rate_bps", "radix", "nics_max")
    return {name: getattr(design, name) for name in named} | {
        "switches": _named(TIERS, design.switches),
        "links": _named(STAGES, design.links),
        "transceivers": _named(("nics", "t0_down", "between_switches"), design.transceivers),
        "hops_max": design.hops_max,
        "nics_one_hop": design.reach(0),
        "power_w": {
            "switches": plan.bill.switch_w,
            "transceivers": plan.bill.optics_w,
            "total": plan.bill.power_w,
        },
        "cost_usd": {
            "switches": plan.bill.switch_usd,
            "transceivers": plan.bill.optics_usd,
            "cables": plan.bill.cable_usd,
            "total": plan.bill.cost_usd,
        },
        "failures": [
            {**failure._asdict(), "interruptions_per_day": failure.interruptions_per_day}
            for failure in plan.failures
        ],
        "interruptions_per_day": plan.interruptions_per_day,
        "between_interruptions_h": plan.between_interruptions_h,
        "time_lost": plan.lost.as_dict(),
    }


def _named(names: Sequence[str], counts: Sequence[int]) -> dict[str, int]:
    return {**dict(zip(names, counts, strict=False)), "total": sum(counts)}
