"""Every value that follows from a fabric and a transport: round trip, BDP, windows, queues. Printed
with each run.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from openmrc.errors import InputError
from openmrc.fabric.model import Fabric
from openmrc.fabric.rtt import PS_BITS, base_rtt_ps
from openmrc.sim.transport import MPR_MAX, MPR_UNIT, Queues, Transport
from openmrc.wire.framing import framing

CONTROL_BYTES = 64 * 1024  # row 15
CONTROL_BYTES_PER_SENDER = 256
MPR_MIN = 512  # row 16
RTO_UNIT_PS = 1_024_000


@dataclass(frozen=True)
class Derived:
    """What a run worked out at its start. Times in ps, sizes in bytes, windows in packets."""

    base_rtt_ps: int
    port_rate_bps: int
    qp_rate_bps: int
    bdp_bytes: int
    max_window_bytes: int
    target_delay_ps: int
    mpr_packets: int
    queue_bytes: int
    queue_last_hop_bytes: int
    control_queue_bytes: int
    ecn_low_bytes: int
    ecn_high_bytes: int
    rto_ps: int
    tail_probe_ps: int
    evs_per_plane_active: int
    evs_per_plane_backup: int
    data_packet_wire_bytes: int
    control_packet_wire_bytes: int

    def as_dict(self) -> dict[str, int]:
        """Name to value."""
        return asdict(self)


def _whole_packets(size: float, packet: int) -> int:
    """`size` rounded up to whole packets."""
    return -int(-size // packet) * packet


def derive(fabric: Fabric, transport: Transport, queues: Queues, senders_per_nic: int) -> Derived:
    """Work out everything; `senders_per_nic` is the largest number of QPs that send to one NIC."""
    sizes = framing(transport.rules, transport.srv6)
    peer = transport.rules == "peer"
    t = transport.base_rtt_ps or base_rtt_ps(
        fabric, sizes.data_bytes(transport.pmtu), sizes.sack_bytes
    )
    port_rate = int(fabric.port_rate_bps[: fabric.n_nics * fabric.n_planes].max())
    qp_rate = port_rate * (1 if transport.paths == "single" else fabric.n_planes)
    wire = sizes.data_bytes(transport.pmtu)
    nominal = transport.pmtu + sizes.nominal_overhead
    bdp = qp_rate * t // PS_BITS
    port_bdp = port_rate * t / PS_BITS
    queue = queues.queue_bytes or _whole_packets(port_bdp, wire)
    last_hop = queues.queue_last_hop_bytes or (
        queue if peer else _whole_packets(1.5 * port_bdp, wire)
    )
    control = queues.control_bytes or (
        2 * queue if peer else max(CONTROL_BYTES, CONTROL_BYTES_PER_SENDER * senders_per_nic)
    )
    mpr = transport.mpr
    if mpr is None:
        mpr = min(max(MPR_MIN, -(-4 * bdp // nominal // MPR_UNIT) * MPR_UNIT), MPR_MAX)
    if mpr % MPR_UNIT or not MPR_UNIT <= mpr <= MPR_MAX:
        raise InputError(
            f"transport.mpr = {mpr}: must be a multiple of {MPR_UNIT} from {MPR_UNIT} to {MPR_MAX}"
        )
    target = int(0.75 * t) if queues.trim else t
    return Derived(
        base_rtt_ps=t,
        port_rate_bps=port_rate,
        qp_rate_bps=qp_rate,
        bdp_bytes=bdp,
        max_window_bytes=max(3 * bdp // 2, 32 * nominal),
        target_delay_ps=target,
        mpr_packets=mpr,
        queue_bytes=queue,
        queue_last_hop_bytes=last_hop,
        control_queue_bytes=control,
        ecn_low_bytes=_whole_packets(queues.ecn_low * port_bdp, wire),
        ecn_high_bytes=_whole_packets(queues.ecn_high * port_bdp, wire),
        rto_ps=max(RTO_UNIT_PS << transport.rto_exponent, 4 * (t + target)),
        tail_probe_ps=2 * (t + target),
        evs_per_plane_active=max(transport.evs_active // fabric.n_planes, 1),
        evs_per_plane_backup=transport.evs_backup // fabric.n_planes,
        data_packet_wire_bytes=wire,
        control_packet_wire_bytes=sizes.sack_bytes,
    )
