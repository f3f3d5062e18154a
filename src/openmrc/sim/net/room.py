"""Enlarges arrays of a network that prove too small during a run."""

from __future__ import annotations

from typing import Any

import numpy as np

from openmrc.jit import records
from openmrc.sim.net import network
from openmrc.sim.net import state as ss

PACKETS_MORE_MAX = 1 << 18  # records added at once: unused ones cost memory too


def more_packets(nets: list[ss.Net]) -> list[ss.Net]:
    """Return the shards of a world with a quarter more packet records, as many for each: at a
    thousand NICs these arrays, which the shards share, are megabytes.
    """
    n = sum(int(net.ctl[0].n_packets) for net in nets)
    each = max(min(n // 4, PACKETS_MORE_MAX) // len(nets), 1)
    extra = each * len(nets)
    if n + extra > len(nets[0].hop) - len(nets):  # the reserve is used up: one after the other
        nets = _all(nets, hop=_longer(nets[0].hop, extra))
        nets = _all(nets, packet=_longer(nets[0].packet, extra))
        nets = _all(nets, after=np.pad(nets[0].after, (0, extra)))
        if nets[0].ctl[0].by_usid:
            nets = _all(nets, carrier=np.pad(nets[0].carrier, ((0, extra), (0, 0))))
    for first, net in zip(range(n, n + extra, each), nets, strict=True):
        network.free_list(net, first, first + each)
    return nets


def _all(nets: list[ss.Net], **common: Any) -> list[ss.Net]:
    return [net._replace(**common) for net in nets]


def more_heap(net: ss.Net) -> ss.Net:
    """Return the network with a heap twice as large."""
    return net._replace(heap=_longer(net.heap, len(net.heap)))


def more_taps(net: ss.Net) -> ss.Net:
    """Return the network with room for twice as many packets of tapped ports."""
    n = len(net.tap)
    return net._replace(tap=_longer(net.tap, n), tap_packet=_longer(net.tap_packet, n))


def coarsen(net: ss.Net) -> None:
    """Make the bins of the timeline twice as wide, in half of the array: memory stays bounded,
    however long the run.
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
