"""What must be true of a world at any moment: its books, compared with what they are about.

Each function returns one line for each thing that is wrong; an empty list is what one hopes for.
They read whole worlds in plain Python, so they are for small ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from openmrc.engine import paths
from openmrc.engine import state as es
from openmrc.engine.packet import CLASS_CONTROL
from openmrc.sim import state as ss

if TYPE_CHECKING:
    from openmrc.sim.world import World


def conservation(world: World) -> list[str]:
    """Every packet that was injected is delivered, dropped, or in the network; every message has
    one fate; no byte is where it should not be.
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
    return _different("", pairs)


def senders(world: World) -> list[str]:
    """What each sender counts is what its window and its paths hold."""
    st = world.engine
    found: list[str] = []
    for end in world.ends.sender.tolist():
        q = st.qp[end]
        una, nxt = int(q.una), int(q.nxt)
        ring = st.slot[int(q.slot0) : int(q.slot0 + q.slot_mask) + 1]
        window = ring[np.arange(una, nxt) & int(q.slot_mask)]
        in_flight = window.bytes_nominal[window.state == es.SENT].sum(dtype=np.int64)
        e = st.ev[int(q.ev0) : int(q.ev0 + q.n_evs)]
        pairs = [
            ("bytes in flight", q.inflight, in_flight),
            ("packets lost", q.lost, (window.state == es.LOST).sum()),
            ("EVs in ASSUMED_BAD", q.n_bad, (e.state == paths.ASSUMED_BAD).sum()),
            ("PSN window kept (row 16)", una <= nxt <= una + int(q.mpr), True),
            ("window within its limits", bool(q.pkt <= q.cwnd <= q.max_wnd), True),
        ]
        found += _different(f"QP {int(q.qpn):#x}: ", pairs)
    return found


def queues(world: World) -> list[str]:
    """What each port counts is what is queued at it, and no more than it may hold."""
    net = world.net
    found: list[str] = []
    for port in np.flatnonzero((np.asarray(net.port.head) >= 0).any(axis=1)).tolist():
        record = net.port[port]
        kind = net.port_kind[int(record.kind)]
        queued = [sum(int(net.hop[n].frame_bytes) for n in q) for q in queues_of(world, port)]
        pairs = [
            ("control bytes", record.control_bytes, queued[CLASS_CONTROL]),
            ("data bytes", record.data_bytes, sum(queued) - queued[CLASS_CONTROL]),
            ("data within its limit", bool(record.data_bytes <= kind.limit_bytes), True),
            ("control within its limit", bool(record.control_bytes <= kind.control_limit), True),
        ]
        found += _different(f"{world.fabric.port_name(port)}: ", pairs)
    return found


def wrong(world: World) -> list[str]:
    """All of these."""
    return conservation(world) + world.side.wrong(world) + queues(world)


def queues_of(world: World, port: int) -> list[list[int]]:
    """The packets queued at a port, by class."""
    net = world.net
    found: list[list[int]] = [[], [], []]
    for klass, queue in enumerate(found):
        n = int(net.port[port].head[klass])
        while n >= 0:
            queue.append(n)
            n = int(net.hop[n].next)
    return found


def _different(place: str, pairs: list[tuple[str, Any, Any]]) -> list[str]:
    return [
        f"{place}{what}: {said}, and it is {found}" for what, said, found in pairs if said != found
    ]
