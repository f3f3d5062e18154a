"""Two devices, cable to cable: every plane is a pair of loopback sockets, and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from openmrc.fabric.clos import multiplane
from openmrc.live import overlay
from openmrc.live.endpoint.limits import Limits, Port
from openmrc.verbs import CompletionQueue, Device, QueuePair

# A completion comes within milliseconds. A machine that is busy with other tests may stop a thread
# for a second; what is not there after this long is not coming.
PATIENCE_S = 20.0


@dataclass
class End:
    device: Device
    cq: CompletionQueue
    qp: QueuePair


@contextmanager
def cabled(planes: int = 2, mtu: int = 9000, **limits: Any) -> Iterator[tuple[Device, Device]]:
    """Two open devices; `mtu` is what they are told of their ports."""
    fabric = multiplane(2, planes, 10 * 10**9, 1, 2, 500_000, 250_000)
    pairs = [overlay.pair() for _ in range(planes)]
    devices: list[Device] = []
    try:
        for nic in range(2):
            ports = [Port(pair[nic].fileno(), bytes(6), None, mtu) for pair in pairs]
            devices.append(Device(fabric, nic, ports, Limits(**limits), base_rtt_ps=500_000_000))
        yield devices[0], devices[1]
    finally:
        for device in devices:
            device.close()
        for pair in pairs:
            for one in pair:
                one.close()


@contextmanager
def connected(planes: int = 2, **limits: Any) -> Iterator[tuple[End, End]]:
    """Two devices with a queue pair from one to the other, in RTS."""
    with cabled(planes, **limits) as devices:
        ends = []
        for device in devices:
            cq = device.create_cq()
            ends.append(End(device, cq, device.create_qp(cq)))
        a, b = ends
        a.qp.connect(b.qp.attributes)
        b.qp.connect(a.qp.attributes)
        yield a, b
