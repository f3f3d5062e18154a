"""Path delay in an idle fabric, and the base round trip, from which windows, thresholds and timers
are derived.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from openmrc.fabric.model import CUT_THROUGH_BYTES, Fabric
from openmrc.units import PS_BITS


def base_rtt_ps(fabric: Fabric, data_bytes: int, control_bytes: int) -> int:
    """T of MRC 4.6, ps: over the links of the longest path, 2 x latency + (data frame + control
    frame) x 8 / rate; sizes as on the wire. If switches cut through, each of the two frames counts
    once, and its header at every switch. Jitter counts with its mean, half of it a link.
    """
    ports = fabric.longest_path_ports()
    total = 0
    if fabric.cut_through:
        back = [int(fabric.port_reverse[port]) for port in reversed(ports)]
        total = int(serial_ps(fabric, ports, data_bytes) + serial_ps(fabric, back, control_bytes))
    for port in ports:
        rate = int(fabric.port_rate_bps[port])
        delay = int(fabric.port_delay_ps[port])
        if (switch := int(fabric.port_peer_switch[port])) >= 0:
            delay += int(fabric.sw_delay_ps[switch])
        total += 2 * delay + fabric.jitter_ps
        if not fabric.cut_through:
            total += (data_bytes + control_bytes) * PS_BITS // rate
    return total


def serial_ps(fabric: Fabric, ports: Sequence[int], wire_bytes: Any) -> Any:
    """Return the time to send a packet of this size (or array of sizes) over these ports in turn,
    ps, without the delays of links and switches.
    """
    return before_last_ps(fabric, ports, wire_bytes) + _transmission_ps(
        fabric, ports[-1], wire_bytes
    )


def before_last_ps(fabric: Fabric, ports: Sequence[int], wire_bytes: Any) -> Any:
    """Return the part of `serial_ps` that has passed when the last of the ports starts sending."""
    total = np.zeros_like(np.asarray(wire_bytes, np.int64))
    for here, onward in pairwise(ports):
        wait = _transmission_ps(fabric, here, wire_bytes)
        if fabric.cut_through:
            head = _transmission_ps(fabric, here, np.minimum(wire_bytes, CUT_THROUGH_BYTES))
            keeps_up = _transmission_ps(fabric, onward, wire_bytes) >= wait - head
            wait = np.where(keeps_up, head, wait)
        total = total + wait
    return total


def _transmission_ps(fabric: Fabric, port: int, wire_bytes: Any) -> Any:
    return wire_bytes * PS_BITS // int(fabric.port_rate_bps[port])


def port_rate_bps(fabric: Fabric) -> int:
    """Return the rate of a NIC's port, the fastest if they differ: BDPs are computed with it."""
    return int(fabric.port_rate_bps[: fabric.n_nics * fabric.n_planes].max())
