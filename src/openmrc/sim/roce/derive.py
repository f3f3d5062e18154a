"""All values derived from a fabric and RoCEv2 endpoints. They are kept with the results of each
run.
"""

from __future__ import annotations

from dataclasses import dataclass

from openmrc.engine.setup import pow2_at_least
from openmrc.fabric.model import Fabric
from openmrc.fabric.queues import UNLIMITED, Queues, Sizes, control_queue_bytes, whole_packets
from openmrc.fabric.rtt import base_rtt_ps, port_rate_bps
from openmrc.sim.net.balance import step_bytes
from openmrc.sim.net.parts import Values
from openmrc.sim.roce.profiles import Marking
from openmrc.sim.roce.transport import RTO_FIRST_PS, RoceTransport
from openmrc.units import PS_BITS
from openmrc.wire.roce.framing import roce_framing

MARKING = Marking()
# Without PFC a switch needs a larger buffer than with trimming: of the 2 to 5 BDP that UET 1.0.3
# recommends for tail drop (p. 463), the largest.
TAIL_DROP_BDP = 5
WINDOW_MAX = 4096  # packets: 335 us at 400 Gb/s, and 512 B of a NIC's memory for each end of a QP
WORD_BITS = 64  # of the bitmap of a window


@dataclass(frozen=True)
class RoceDerived(Values):
    """The values that a run derives at its start. Times in ps, sizes in bytes."""

    base_rtt_ps: int
    port_rate_bps: int
    bdp_bytes: int
    queues: Sizes
    rto_ps: int
    rto_first_ps: int
    local_repair_ps: int
    convergence_low_ps: int
    convergence_high_ps: int
    data_packet_wire_bytes: int
    control_packet_wire_bytes: int


@dataclass(frozen=True)
class BalancedDerived(RoceDerived):
    """Further values where switches balance."""

    load_step_bytes: tuple[int, ...]  # queued at a port of a NIC's rate when the next step begins
    reordering_ps: int  # 0: nothing is reported
    failover_ps: int
    window_packets: int  # that a QP may leave unacknowledged

    def as_dict(self) -> dict[str, int]:
        """Name to value; each step has a name of its own."""
        found = super().as_dict()
        del found["load_step_bytes"]
        steps = {f"load_step_{i}_bytes": size for i, size in enumerate(self.load_step_bytes, 1)}
        return found | steps


def derive(
    fabric: Fabric, transport: RoceTransport, queues: Queues, senders_per_nic: int, packets: int
) -> RoceDerived:
    """Derive all values; `senders_per_nic` is the largest number of QPs that send to one NIC, and
    `packets` the most that any of the workload's QPs sends.
    """
    sizes = roce_framing(transport.rules)
    wire = sizes.data_bytes(transport.pmtu)
    t = transport.base_rtt_ps or base_rtt_ps(fabric, wire, sizes.sack_bytes)
    port_rate = port_rate_bps(fabric)
    bdp = port_rate * t // PS_BITS
    queue = whole_packets(TAIL_DROP_BDP * bdp, wire)
    marks = transport.cc != "none"
    of_queues = queues.sizes(
        Sizes(
            queue_bytes=queue,
            queue_last_hop_bytes=queue,
            control_queue_bytes=control_queue_bytes(senders_per_nic * transport.qps),
            ecn_low_bytes=MARKING.low_bytes(port_rate) if marks else UNLIMITED - 1,
            ecn_high_bytes=MARKING.high_bytes(port_rate) if marks else UNLIMITED,
        ),
        port_rate,
        wire,
    )
    if transport.pfc:
        of_queues = of_queues._replace(queue_bytes=UNLIMITED, queue_last_hop_bytes=UNLIMITED)
    low, high = transport.convergence_ps
    derived = RoceDerived(
        base_rtt_ps=t,
        port_rate_bps=port_rate,
        bdp_bytes=bdp,
        queues=of_queues,
        rto_ps=transport.rto_ps,
        rto_first_ps=min(transport.rto_first_ps or RTO_FIRST_PS, transport.rto_ps),
        local_repair_ps=min(transport.local_repair_ps, high),
        convergence_low_ps=low,
        convergence_high_ps=high,
        data_packet_wire_bytes=wire,
        control_packet_wire_bytes=sizes.sack_bytes,
    )
    if not transport.balances:
        return derived
    steps = transport.load_steps if transport.routing == "adaptive" else ()
    reordering = t if transport.reordering_ps is None else transport.reordering_ps
    return BalancedDerived(
        **vars(derived),
        load_step_bytes=step_bytes(steps, bdp),
        reordering_ps=reordering if transport.recovery == "selective" else 0,
        failover_ps=transport.failover_ps,
        window_packets=min(max(pow2_at_least(packets), WORD_BITS), WINDOW_MAX),
    )
