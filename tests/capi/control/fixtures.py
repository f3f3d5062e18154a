"""A controller over a fabric inside this process, and writes from its NIC to another one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from openmrc.capi import devices, layouts
from openmrc.capi.control import configuring, formats
from openmrc.capi.linked import Api
from openmrc.fabric.clos import multiplane
from openmrc.verbs import QueuePair
from openmrc.verbs.inside import Inside
from tests.capi.control.ctl import Ctl, number
from tests.capi.handles import WRITES, Open

PLANES, TO = 2, 3
ROOM = 1 << 18


@contextmanager
def controlled(api: Api, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ctl]:
    """Four NICs on two T0s, two planes, two T1s each."""
    with Inside(multiplane(4, PLANES, 10**9, 2, 2, 0, 0)) as fabric:
        monkeypatch.setenv("OPENMRC_HOST", "within this process")
        monkeypatch.setattr(devices, "opened", lambda _: fabric.device(0))
        monkeypatch.setattr(configuring, "is_privileged", lambda: True)
        there = Open(api)
        yield Ctl(there, fabric)
        api("ibv_close_device", there.context)


class Transfer:
    """Writes of a queue pair to memory of its peer."""

    def __init__(self, ctl: Ctl, qp: int, theirs: QueuePair) -> None:
        self.ctl, self.qp = ctl, qp
        self.sink = ctl.fabric.device(TO).reg_mr(bytearray(ROOM))
        self.memory = np.arange(ROOM, dtype=np.uint32).view(np.uint8)[:ROOM].copy()
        there = ctl.there
        mr = there.api.must("ibv_reg_mr", there.pd, self.memory.ctypes.data, ROOM, WRITES)
        self.key = int(there.seen(mr, layouts.MR)["lkey"])

    def post(self) -> None:
        part = (self.memory.ctypes.data, ROOM, self.key)
        to = (self.sink.addr, self.sink.rkey)
        assert self.ctl.there.send(self.qp, part, to=to) == (0, 0)

    def finish(self) -> None:
        assert int(self.ctl.there.take()["status"]) == 0
        assert bytes(self.sink.buffer) == self.memory.tobytes()

    def write(self, times: int = 1) -> None:
        for _ in range(times):
            self.post()
            self.finish()

    def pair(self) -> QueuePair:
        found = number()
        self.ctl.api.must("mrc_get_qpn", self.qp, found)
        qpn = int(found.record["value"])
        [pair] = [one for one in self.ctl.fabric.device(0).queue_pairs if one.qp_num == qpn]
        return pair

    def packets(self) -> dict[formats.Ev, int]:
        """How many packets each EV has carried."""
        return self._each("packets")

    def states(self) -> dict[formats.Ev, str]:
        """What the queue pair holds each EV to be."""
        return self._each("state")

    def _each(self, what: str) -> dict[formats.Ev, Any]:
        return {formats.packed(e["ev"], 32, e["plane"] + 1): e[what] for e in self.pair().evs()}


def transfer(ctl: Ctl, ev: int = 0, cc: int = 0) -> Transfer:
    return Transfer(ctl, *ctl.connect(TO, ev, cc))
