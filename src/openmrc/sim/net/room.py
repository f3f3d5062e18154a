"""Arrays of a network that turn out to be too small while it runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from openmrc.jit import records
from openmrc.sim.net import network
from openmrc.sim.net import state as ss

PACKETS_MORE_MAX = 1 << 18  # that a world gets at once: what it does not need costs memory too


def more_packets(net: ss.Net) -> ss.Net:
    """Return it with an eighth more: at a thousand NICs these arrays are megabytes."""
    n = int(net.ctl[0].n_packets)
    extra = min(n // 8, PACKETS_MORE_MAX)
    if n + extra > len(net.hop) - 1:  # the reserve is used up: one after the other
        net = net._replace(hop=_longer(net.hop, extra))
        net = net._replace(packet=_longer(net.packet, extra))
        net = net._replace(after=np.pad(net.after, (0, extra)))
        if net.ctl[0].by_usid:
            net = net._replace(carrier=np.pad(net.carrier, ((0, extra), (0, 0))))
    network.free_list(net, n, n + extra)
    return net


def more_heap(net: ss.Net) -> ss.Net:
    """Return it with a heap twice as large."""
    return net._replace(heap=_longer(net.heap, len(net.heap)))


def more_taps(net: ss.Net) -> ss.Net:
    """Return it with room for twice as much that tapped ports send."""
    n = len(net.tap)
    return net._replace(tap=_longer(net.tap, n), tap_packet=_longer(net.tap_packet, n))


def coarsen(net: ss.Net) -> None:
    """Make bins of the timeline twice as wide, in half of the array: memory stays bounded, however
    long the run.
    """
    for t in (net.timeline, net.rate):
        half = len(t) // 2
        t[:half] = t[0::2] + t[1::2]
        t[half:] = 0
    net.ctl[0].bin_ps *= 2


def _longer(array: Any, extra: int) -> Any:
    longer = records(len(array) + extra, array.dtype)
    longer[: len(array)] = array
    return longer
