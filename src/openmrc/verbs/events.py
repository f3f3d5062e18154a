"""Asynchronous events of paths, ports and queue pairs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

from openmrc.engine import state as es
from openmrc.live.endpoint.host import Host
from openmrc.verbs.status import EventKind


@dataclass(frozen=True)
class AsyncEvent:
    """A change of a path, a port or a queue pair. `qp_num` 0: none in particular."""

    kind: EventKind
    at_us: float  # since the device was opened
    qp_num: int
    plane: int
    ev: int
    error: str


def taken(host: Host) -> Iterator[AsyncEvent]:
    """Yield the events that have arrived, each once."""
    host.check_own()
    with contextlib.suppress(BlockingIOError):
        os.eventfd_read(int(host.ep.ctl[0].event_fd))
    ctl, ring = host.ep.ctl[0], host.ep.event
    while ctl.events_read < ctl.events:
        e = ring[int(ctl.events_read) % len(ring)]
        text = es.ERROR_TEXTS[int(e.error)] if e.error else ""
        kind = EventKind(int(e.kind))
        yield AsyncEvent(kind, int(e.at) / 1e6, int(e.qpn), int(e.plane), int(e.ev), text)
        ctl.events_read += 1
