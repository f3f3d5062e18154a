"""The interface of an application: devices, memory regions, queue pairs and completion queues.

Names and semantics are those of ibverbs:

    with Device.open() as device:                    # the host file says which NIC this is
        mr = device.reg_mr(bytearray(1 << 20), REMOTE_WRITE)
        cq = device.create_cq()
        qp = device.create_qp(cq)
        with exchange.connect(qp, "10.0.0.7", 7471, secret) as peer:
            qp.post_write(1, mr, remote_addr=peer.regions[0].addr, rkey=peer.regions[0].rkey)
            [done] = cq.wait()

Two operations (MRC 1.2): RDMA WRITE, and WRITE with immediate data, which completes a posted
receive at the peer, and is the ordering point: it is reported after everything posted before it has
arrived (MRC 1.3). Data arrives in any order.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from openmrc.verbs.attributes import QpAttributes, RemoteRegion
from openmrc.verbs.cq import CompletionQueue, QueueFullError, WorkCompletion
from openmrc.verbs.device import Device
from openmrc.verbs.events import AsyncEvent
from openmrc.verbs.qp import QueuePair
from openmrc.verbs.region import LOCAL_WRITE, REMOTE_WRITE, MemoryRegion
from openmrc.verbs.status import EventKind, Opcode, QpState, Status

if TYPE_CHECKING:
    from openmrc.verbs import exchange, hostfile, inside, metrics

__all__ = [
    "LOCAL_WRITE",
    "REMOTE_WRITE",
    "AsyncEvent",
    "CompletionQueue",
    "Device",
    "EventKind",
    "MemoryRegion",
    "Opcode",
    "QpAttributes",
    "QpState",
    "QueueFullError",
    "QueuePair",
    "RemoteRegion",
    "Status",
    "WorkCompletion",
    "advised",
    "attributes",
    "cabled",
    "cq",
    "denylist",
    "device",
    "door",
    "exchange",
    "exposition",
    "hostfile",
    "inside",
    "line",
    "metrics",
    "network",
    "region",
    "secret",
    "status",
    "tally",
    "timely",
]


def __getattr__(name: str) -> Any:
    """Import modules beside the objects when they are first used: `inside` compiles switches."""
    if name in __all__:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
