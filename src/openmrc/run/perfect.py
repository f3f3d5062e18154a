"""The time on a perfect network: each transport has its own packets."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from openmrc.fabric.model import Fabric
    from openmrc.sim.mrc.transport import Transport
    from openmrc.sim.roce.transport import RoceTransport
    from openmrc.traffic.earliest import Cost
    from openmrc.traffic.traffic import Traffic

    AnyTransport = Transport | RoceTransport


def perfect_ps(fabric: Fabric, traffic: Traffic, transport: AnyTransport) -> int:
    """Return `ideal_ps` of a result: the time on a perfect network."""
    from openmrc.traffic.ideal import ideal_ps

    data_bytes, ack_bytes = _sizes(transport)
    parts = parts_of(transport)
    return int(ideal_ps(fabric, traffic, data_bytes, transport.pmtu, ack_bytes, parts))


def perfect_costs(
    fabric: Fabric, traffic: Traffic, transport: AnyTransport, parts: int = 1
) -> Cost:
    """Return the time of each message on a perfect network, cut into so many `parts`."""
    from openmrc.traffic.ideal import costs

    data_bytes, ack_bytes = _sizes(transport)
    return costs(fabric, traffic, data_bytes, transport.pmtu, ack_bytes, parts)


def parts_of(transport: AnyTransport) -> int:
    """Return over how many queue pairs a transport stripes each message."""
    from openmrc.sim.roce.transport import RoceTransport

    return transport.qps if isinstance(transport, RoceTransport) else 1


def _sizes(transport: AnyTransport) -> tuple[Callable[[int], int], int]:
    """Bytes on the wire of a data packet, by its payload, and of an acknowledgement."""
    from openmrc.engine import packet as pk
    from openmrc.sim.mrc.transport import Transport
    from openmrc.wire.framing import framing
    from openmrc.wire.roce.framing import roce_framing

    if isinstance(transport, Transport):
        sizes = framing(transport.rules, transport.srv6)
        return sizes.data_bytes, sizes.header_bytes[pk.ACKNOWLEDGE]
    of_roce = roce_framing(transport.rules)
    return of_roce.data_bytes, of_roce.sack_bytes
