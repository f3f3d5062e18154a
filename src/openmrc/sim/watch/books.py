"""Invariants of a world: its counters, compared with its state, at any moment.

Each function returns one line for each violation; an empty list means none. They read whole worlds
in plain Python, so they are meant for small ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from openmrc.engine.packet import CLASS_CONTROL
from openmrc.sim.net import state as ss
from openmrc.sim.watch.watched import Watched


def conservation(world: Watched) -> list[str]:
    """Every packet that was injected is delivered, dropped, or in the network; every message has
    one fate; no byte is in the wrong place.
    """
    c = world.counters()
    ended = c["delivered"] + c["dropped_queue"] + c["dropped_fault"] + c["dropped_corrupt"]
    ctl = world.net.ctl[0]
    fates = np.bincount(world.net.message.fate[: world.traffic.n_msgs], minlength=4)[
        ss.COMPLETED :
    ].tolist()
    counted = [ctl.messages_done, ctl.messages_failed, ctl.messages_orphaned]
    pairs = [
        ("bytes in the wrong place", world.bytes_wrong, 0),
        ("packets injected", c["injected"], ended + c["in_flight"]),
        ("messages by fate", fates, [int(n) for n in counted]),
    ]
    return different("", pairs)


def queues(world: Watched) -> list[str]:
    """Each port's counters equal its queue, which is within its limit, or within that of its rate
    before a slow-down.
    """
    net = world.net
    found: list[str] = []
    for port in np.flatnonzero((np.asarray(net.port.head) >= 0).any(axis=1)).tolist():
        record = net.port[port]
        kind = net.port_kind[int(record.kind)]
        alike = np.asarray(net.port_kind.last_hop) == kind.last_hop
        alike &= np.asarray(net.port_kind.control_queue_bytes) == kind.control_queue_bytes
        most = int(net.port_kind.queue_bytes[alike].max())
        hop = world.net_of(port).hop
        queued = [sum(int(hop[n].frame_bytes) for n in q) for q in queues_of(world, port)]
        pairs = [
            ("control bytes", record.control_queued_bytes, queued[CLASS_CONTROL]),
            ("data bytes", record.data_queued_bytes, sum(queued) - queued[CLASS_CONTROL]),
            ("data within its limit", bool(record.data_queued_bytes <= most), True),
            (
                "control within its limit",
                bool(record.control_queued_bytes <= kind.control_queue_bytes),
                True,
            ),
        ]
        found += different(f"{world.fabric.port_name(port)}: ", pairs)
    return found


def wrong(world: Watched) -> list[str]:
    """Check all invariants."""
    return conservation(world) + world.wrong_ends() + queues(world)


def queues_of(world: Watched, port: int) -> list[list[int]]:
    """The packets queued at a port, by class."""
    net = world.net_of(port)
    found: list[list[int]] = [[], [], []]
    for klass, queue in enumerate(found):
        n = int(net.port[port].head[klass])
        while n >= 0:
            queue.append(n)
            n = int(net.hop[n].next)
    return found


def different(place: str, pairs: list[tuple[str, Any, Any]]) -> list[str]:
    """Return a line for each mismatch: name, counted value, actual value."""
    return [
        f"{place}{what}: {said}, and it is {found}" for what, said, found in pairs if said != found
    ]
