"""All values derived from a fabric and a transport: round trip, BDP, windows, queues. They are kept
with the results of each run.
"""

from __future__ import annotations

from dataclasses import dataclass

from openmrc.engine import packet as pk
from openmrc.engine import parameters
from openmrc.engine.parameters import MPR_MAX, RTO_UNIT_PS
from openmrc.errors import InputError
from openmrc.fabric.model import Fabric
from openmrc.fabric.queues import Queues, Sizes, sizes_of, start_headers_bytes
from openmrc.fabric.rtt import port_rate_bps
from openmrc.sim.mrc import htsim
from openmrc.sim.mrc.transport import Transport
from openmrc.sim.net.parts import Values
from openmrc.units import PS_BITS
from openmrc.wire.framing import framing


@dataclass(frozen=True)
class Derived(Values):
    """The values that a run derives at its start. Times in ps, sizes in bytes, windows in
    packets.
    """

    base_rtt_ps: int
    port_rate_bps: int
    qp_rate_bps: int
    bdp_bytes: int
    max_window_bytes: int
    target_delay_ps: int
    mpr_packets: int
    queues: Sizes
    start_headers_bytes: int  # control queue that loses no header when all senders start at once
    rto_ps: int
    overdue_after_ps: int
    evs_per_plane_active: int
    evs_per_plane_backup: int
    data_packet_wire_bytes: int
    control_packet_wire_bytes: int


def derive(fabric: Fabric, transport: Transport, queues: Queues, senders_per_nic: int) -> Derived:
    """Derive all values; `senders_per_nic` is the largest number of QPs that send to one NIC."""
    sizes = framing(transport.rules, transport.srv6)
    t = transport.base_rtt_ps or sizes.base_rtt_ps(fabric, transport.pmtu)
    port_rate = port_rate_bps(fabric)
    qp_rate = port_rate * (1 if transport.paths == "single" else fabric.n_planes)
    wire = sizes.data_bytes(transport.pmtu)
    nominal = transport.pmtu + sizes.nominal_overhead
    bdp = qp_rate * t // PS_BITS
    of_queues = sizes_of(queues, port_rate, t, wire, senders_per_nic)
    if htsim.is_asked_for(transport):
        of_queues = htsim.sizes(queues, of_queues, port_rate, wire)
    mpr = transport.mpr
    if mpr is None:
        units = -(-4 * bdp // nominal // pk.MPR_UNIT)
        mpr = min(max(parameters.MPR_MIN, units * pk.MPR_UNIT), MPR_MAX)
    if mpr % pk.MPR_UNIT or not pk.MPR_UNIT <= mpr <= MPR_MAX:
        raise InputError(
            f"transport.mpr = {mpr}: must be a multiple of {pk.MPR_UNIT}"
            f" from {pk.MPR_UNIT} to {MPR_MAX}"
        )
    target = int(0.75 * t) if queues.trim else t
    active, backup = transport.evs_per_plane(fabric.n_planes)
    return Derived(
        base_rtt_ps=t,
        port_rate_bps=port_rate,
        qp_rate_bps=qp_rate,
        bdp_bytes=bdp,
        max_window_bytes=max(3 * bdp // 2, 32 * nominal),
        target_delay_ps=target,
        mpr_packets=mpr,
        queues=of_queues,
        start_headers_bytes=start_headers_bytes(
            queues, port_rate * t / PS_BITS, wire, senders_per_nic
        ),
        rto_ps=max(RTO_UNIT_PS << transport.rto_exponent, 4 * (t + target)),
        overdue_after_ps=t + t // 4,
        evs_per_plane_active=active,
        evs_per_plane_backup=backup,
        data_packet_wire_bytes=wire,
        control_packet_wire_bytes=sizes.sack_bytes,
    )
