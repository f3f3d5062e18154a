"""Every value that follows from a fabric and RoCEv2 endpoints. Printed with each run."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from openmrc.fabric.model import Fabric
from openmrc.fabric.rtt import PS_BITS, base_rtt_ps
from openmrc.sim.derive import CONTROL_BYTES, CONTROL_BYTES_PER_SENDER
from openmrc.sim.network import UNLIMITED
from openmrc.sim.roce.profiles import Marking
from openmrc.sim.roce.transport import RoceTransport
from openmrc.sim.transport import Queues
from openmrc.wire.roce import roce_framing

MARKING = Marking()
# Without PFC a switch must buffer more than where packets are trimmed: of the 2 to 5 BDP that UET
# 1.0.3 recommends for tail drop (p. 463), the most.
TAIL_DROP_BDP = 5


@dataclass(frozen=True)
class RoceDerived:
    """What a run worked out at its start. Times in ps, sizes in bytes."""

    base_rtt_ps: int
    port_rate_bps: int
    bdp_bytes: int
    queue_bytes: int
    queue_last_hop_bytes: int
    control_queue_bytes: int
    ecn_low_bytes: int
    ecn_high_bytes: int
    rto_ps: int
    convergence_low_ps: int
    convergence_high_ps: int
    data_packet_wire_bytes: int
    control_packet_wire_bytes: int

    def as_dict(self) -> dict[str, int]:
        """Name to value."""
        return asdict(self)


def derive(
    fabric: Fabric, transport: RoceTransport, queues: Queues, senders_per_nic: int
) -> RoceDerived:
    """Work out everything; `senders_per_nic` is the largest number of QPs that send to one NIC."""
    sizes = roce_framing(transport.rules)
    wire = sizes.data_bytes(transport.pmtu)
    t = transport.base_rtt_ps or base_rtt_ps(fabric, wire, sizes.sack_bytes)
    port_rate = int(fabric.port_rate_bps[: fabric.n_nics * fabric.n_planes].max())
    bdp = port_rate * t // PS_BITS
    queue = queues.queue_bytes or -(-TAIL_DROP_BDP * bdp // wire) * wire
    last_hop = queues.queue_last_hop_bytes or queue
    control = queues.control_bytes or max(
        CONTROL_BYTES, CONTROL_BYTES_PER_SENDER * senders_per_nic * transport.qps
    )
    marks = transport.cc == "dcqcn"
    low, high = transport.convergence_ps
    return RoceDerived(
        base_rtt_ps=t,
        port_rate_bps=port_rate,
        bdp_bytes=bdp,
        queue_bytes=UNLIMITED if transport.pfc else queue,
        queue_last_hop_bytes=UNLIMITED if transport.pfc else last_hop,
        control_queue_bytes=control,
        ecn_low_bytes=MARKING.low_bytes(port_rate) if marks else UNLIMITED - 1,
        ecn_high_bytes=MARKING.high_bytes(port_rate) if marks else UNLIMITED,
        rto_ps=transport.rto_ps,
        convergence_low_ps=low,
        convergence_high_ps=high,
        data_packet_wire_bytes=wire,
        control_packet_wire_bytes=sizes.sack_bytes,
    )
