"""The fabric of the labs of these tests, as the endpoints know it."""

from __future__ import annotations

from openmrc.fabric import multiplane

FABRIC = multiplane(
    nics=4,
    planes=2,
    port_rate_bps=10**8,
    t0_down=2,
    t0_up=2,
    link_delay_ps=10**6,
    switch_delay_ps=10**6,
)
