"""A device and its queue pairs as `metrics` sees them, of any size and without a thread."""

from __future__ import annotations

from typing import Any

from openmrc.fabric.model import Fabric
from openmrc.verbs import metrics
from openmrc.verbs.status import QpState
from openmrc.verbs.tally import Tally

GOOD, BAD = "GOOD", "ASSUMED_BAD"


class FakeQp:
    """A queue pair from NIC 0 to `peer` on every path, those over links of `bad` are bad."""

    def __init__(self, fabric: Fabric, peer: int, number: int, bad: frozenset[int]) -> None:
        self.peer, self.qp_num, self.state, self.rtt_us = peer, number, QpState.RTS, 20.0
        self._evs = []
        for plane in range(fabric.n_planes):
            for index in range(fabric.n_paths(0, peer, plane)):
                ev = fabric.ev_of_path(0, peer, plane, index)
                state = BAD if bad & set(fabric.route(0, peer, ev)) else GOOD
                one = {"ev": ev, "plane": plane, "state": state, "packets": 10}
                self._evs.append(one | {"narrow_bytes": 0})

    def counters(self) -> dict[str, int]:
        return {**dict.fromkeys(metrics.QP, 1), "tx_packets": 10 * len(self._evs)}

    def evs(self) -> list[dict[str, Any]]:
        return self._evs


class FakeDevice:
    """A device of NIC 0, as `metrics` sees one."""

    nic, base_rtt_us, pmtu = 0, 10.0, 4096

    def __init__(self, fabric: Fabric, qps: list[FakeQp]) -> None:
        self.fabric, self.n_planes, self.queue_pairs = fabric, fabric.n_planes, qps
        self._tally = Tally()

    def counters(self) -> dict[str, Any]:
        port = {**dict.fromkeys(metrics.PORT, 0), "up": True, "refused": {}}
        return {**dict.fromkeys(metrics.DEVICE, 0), "ports": [port] * self.n_planes}

    def sums(self) -> Any:
        return self._tally.read(lambda: self.queue_pairs)  # type: ignore[return-value, arg-type]
