"""The base round trip of a fabric, from which windows, thresholds and timers follow."""

from __future__ import annotations

from openmrc.fabric.model import Fabric
from openmrc.units import PS_BITS


def base_rtt_ps(fabric: Fabric, data_bytes: int, control_bytes: int) -> int:
    """T of MRC 4.6: over the links of the longest path, 2 x latency + (data frame + control
    frame) x 8 / rate; sizes as on the wire.
    """
    total = 0
    for port in fabric.longest_path_ports():
        rate = int(fabric.port_rate_bps[port])
        delay = int(fabric.port_delay_ps[port])
        if (switch := int(fabric.port_peer_switch[port])) >= 0:
            delay += int(fabric.sw_delay_ps[switch])
        total += 2 * delay + (data_bytes + control_bytes) * PS_BITS // rate
    return total


def port_rate_bps(fabric: Fabric) -> int:
    """Return the rate of a NIC's port, the fastest if they differ: BDPs are of it."""
    return int(fabric.port_rate_bps[: fabric.n_nics * fabric.n_planes].max())
