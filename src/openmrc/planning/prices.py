"""Power and cost of a design: counts times unit values, nothing else.

Switches, transceivers and the fibres between them are counted; NICs, hosts, cooling, racks,
shuffles and labour are not. A switch counts whole, even if not all of its ports are cabled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from openmrc.planning.sizing import Design

TBPS = 10**12


class Bill(NamedTuple):
    """Watts and US dollars by part."""

    switch_w: float
    optics_w: float
    switch_usd: float
    optics_usd: float
    cable_usd: float

    @property
    def power_w(self) -> float:
        """Return the total power, W."""
        return self.switch_w + self.optics_w

    @property
    def cost_usd(self) -> float:
        """Return the total cost, US dollars."""
        return self.switch_usd + self.optics_usd + self.cable_usd


def bill(design: Design, values: Mapping[str, float]) -> Bill:
    """Return power and cost of `design` with the unit `values` of `assumptions.values_with`."""
    switch_tbps = sum(design.switches) * design.switch_rate_bps / TBPS
    transceivers = sum(design.transceivers)
    optics_tbps = transceivers * design.nic_rate_bps / TBPS
    return Bill(
        switch_w=switch_tbps * values["switch_w_per_tbps"],
        optics_w=optics_tbps * values["optics_w_per_tbps"],
        switch_usd=switch_tbps * values["switch_usd_per_tbps"],
        optics_usd=optics_tbps * values["optics_usd_per_tbps"],
        cable_usd=transceivers / 2 * values["cable_usd"],
    )
