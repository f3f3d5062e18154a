"""Designs of the switches that MRC 7 is about, and fabrics built of them."""

from __future__ import annotations

from openmrc.fabric.clos import Tier, build
from openmrc.fabric.model import Fabric
from openmrc.planning.sizing import Design, size

GBPS = 10**9
NIC, SWITCH = 800 * GBPS, 51_200 * GBPS


def single(nics: int, tiers: int | None = None) -> Design:
    return size(nics, 1, NIC, SWITCH, tiers)


def eight(nics: int) -> Design:
    return size(nics, 8, NIC, SWITCH, 2)


def built(design: Design) -> Fabric:
    link = (design.port_rate_bps, 0, 0)
    below = [Tier(design.half, design.half, *link) for _ in range(design.tiers - 1)]
    tiers = [*below, Tier(0, 0, *link, design.bundle)]
    return build("multiplane", design.nics, design.planes, tiers)
