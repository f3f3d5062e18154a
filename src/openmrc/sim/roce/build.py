"""From fabric, workload and RoCE transport to the arrays of its event loop.

Each QP of the workload is a bundle of `qps` queue pairs, each with two ends, a record for each.
Arrays that a RoCE network does not use (EVs, slots, carriers) have one record.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from openmrc.engine import place, setup
from openmrc.engine import state as es
from openmrc.errors import InputError
from openmrc.fabric.model import Fabric
from openmrc.fabric.queues import UNLIMITED, Bounds, bounds_of
from openmrc.jit import records
from openmrc.jit.callref import address_of
from openmrc.sim.net import balance, network, routing
from openmrc.sim.net import state as ss
from openmrc.sim.net.parts import Parts
from openmrc.sim.roce import dcqcn, delay, ecmp, pfc, placement, requester, taps
from openmrc.sim.roce.derive import MARKING, BalancedDerived, RoceDerived
from openmrc.sim.roce.profiles import (
    FlowControl,
    dcqcn_config,
    pfc_config,
    profile_named,
    shared_buffer_bytes,
)
from openmrc.sim.roce.state import (
    BUNDLE,
    CALLS,
    OUTSTANDING_MAX,
    ROCE,
    ROCE_QP,
    WHOLE,
    Roce,
)
from openmrc.sim.roce.transport import RoceTransport
from openmrc.units import PS_BITS
from openmrc.wire.roce.framing import roce_framing

PACKETS_AT_START = 1 << 14
SCOUT_ABOVE_BYTES = 1 << 19  # of ports, QPs and messages: with the packets, more than caches hold
# htsim's lossless input queues: 15 packets of 4150 B, resume at 12, and never full
PEER_FLOW_CONTROL = FlowControl(xoff_bytes=15 * 4150, xon_gap_packets=3)
PEER_BUFFER_BYTES = 1 << 40
SPORT_BASE, SPORT_BITS = 0xC000, 14  # the part of the UDP ports that RoCEv2 uses for entropy
SEED_SPORTS = 8  # purpose of a random stream, in addition to those of `sim.net.network`


def build_engine(parts: Parts, ends: network.Ends) -> es.State:
    """The engine's State: the identity of the QPs, and their rings of messages."""
    ring = network.rings_of(parts.traffic)[ends.traffic_qp]
    st = setup.bare_state(parts.fabric.n_nics, ends.n, np.where(ends.sends, ring, 0))
    network.place_qps(st, ends, np.random.default_rng([parts.seed, network.SEED_NAMES]))
    return st


def build_roce(
    parts: Parts,
    transport: RoceTransport,
    derived: RoceDerived,
    ends: network.Ends,
    st: es.State,
    net: ss.Net,
) -> Roce:
    """The state of RoCEv2."""
    fabric, traffic, seed = parts.fabric, parts.traffic, parts.seed
    ring = network.rings_of(traffic)
    vas = np.random.default_rng([seed, network.SEED_NAMES, 2])
    bundle = records(traffic.n_qps, BUNDLE)
    bundle.sender = ends.sender[:: transport.qps]
    bundle.receiver = ends.receiver[:: transport.qps]
    bundle.ring0, bundle.ring_mask = setup.rings(ring)
    bundle.va = vas.integers(1 << 20, 1 << 40, traffic.n_qps) << 12
    c = records(1, ROCE)
    c.rto_ps = derived.rto_ps
    c.rto_first_ps = derived.rto_first_ps
    c.ack_every = transport.ack_every
    c.retry_cnt = transport.retry_cnt
    c.qps = transport.qps
    c.paced = transport.cc != "none"
    c.rtt_ps = derived.base_rtt_ps if transport.cc == "rtt" else 0
    c.pfc = transport.pfc
    c.p_max = MARKING.p_max
    c.window = OUTSTANDING_MAX
    c.planes_at = network.NO_TIME
    qp = _qps(ends, st, seed, derived.rto_first_ps)
    return Roce(
        c=c,
        qp=qp,
        bundle=bundle,
        whole=records(max(int(ring.sum()), 1), WHOLE),
        **_placement(derived, qp, c, len(st.message)),
        **_limits(transport, derived, ends),
        **_pfc(fabric, transport, derived),
    )


def _placement(derived: RoceDerived, qp: Any, c: Any, messages: int) -> dict[str, Any]:
    """The windows of NICs that place out of order, where switches balance; else one record of
    each.
    """
    if not isinstance(derived, BalancedDerived):
        return {
            "calls": records(1, CALLS),
            "seen": np.zeros((1, 1), np.uint64),
            "placed": np.zeros(1, np.int32),
        }
    c.reordering_ps = derived.reordering_ps
    c.frame_ps = frame_ps = derived.data_packet_wire_bytes * PS_BITS // derived.port_rate_bps
    several_ps = placement.REPORTS_MAX * frame_ps  # what is reported at once is sent one by one
    c.again_ps = derived.base_rtt_ps + derived.reordering_ps + several_ps
    c.window = derived.window_packets
    qp.timer_ps[qp.sends == 0] = c.again_ps[0]
    return {
        "calls": records(1, CALLS),
        "seen": np.zeros((len(qp), max(derived.window_packets // 64, 1)), np.uint64),
        "placed": np.zeros(messages, np.int32),
    }


def call_what_places(net: ss.Net, st: es.State, ro: Roce, selective: bool) -> None:
    """Compile the functions of NICs that only worlds use in which switches balance."""
    calls = ro.calls[0]
    calls.on_data = address_of(placement.on_data, (net, st, ro, 0, 0, 0))
    calls.on_answer = address_of(placement.on_answer, (ro, 0, 0, 0, 0))
    calls.on_missing = address_of(placement.on_missing, (net, st, ro, 0, 0))
    calls.take_lost = address_of(placement.take_lost, (ro, 0))
    if selective:
        calls.lose_last = address_of(placement.lose_last, (ro, 0))


def _limits(transport: RoceTransport, derived: RoceDerived, ends: network.Ends) -> dict[str, Any]:
    """DCQCN's settings, and both of its ends for each QP; what a loop by round trips keeps."""
    rates = dcqcn_config(profile_named(transport.profile), derived.port_rate_bps)
    n = ends.n if transport.cc != "none" else 1
    by_rtt = transport.cc == "rtt"
    if by_rtt:
        rates.byte_reset = 0  # no rounds: round trips change the rate
    sample = records(n if by_rtt else 1, delay.SAMPLE)
    sample.seq = -1
    limiter, notifier = records(n, dcqcn.LIMITER), records(n, dcqcn.NOTIFIER)
    requester.open_limiters(limiter, rates)
    return {"rates": rates, "limiter": limiter, "notifier": notifier, "sample": sample}


def flow_control(transport: RoceTransport) -> FlowControl:
    """How the switches of a run share their buffers, and when they pause."""
    return PEER_FLOW_CONTROL if transport.rules == "peer" else FlowControl()


def _pfc(fabric: Fabric, transport: RoceTransport, derived: RoceDerived) -> dict[str, Any]:
    """PFC's settings, the buffer of each switch, and both ends of each link."""
    control = flow_control(transport)
    frame = derived.data_packet_wire_bytes
    flow = pfc_config(control, frame)
    if not transport.pfc:
        return {"flow": flow, "buffer": records(1, pfc.SWITCH), "pause": records(1, pfc.LINK)}
    rate, back = fabric.port_rate_bps, fabric.port_reverse
    into = fabric.port_peer_switch
    delay = fabric.hop_delays_ps() + fabric.jitter_ps  # what is in flight when a pause arrives
    ways = np.stack([rate, rate[back], delay, delay[back]], 1)
    kinds, which = np.unique(ways, axis=0, return_inverse=True)
    which = which.reshape(-1)
    room = np.array([pfc.headroom_bytes(a, b, c, d, frame) for a, b, c, d in kinds.tolist()])[which]
    lasts = [pfc.pause_time_ps(rate_bps, control.quanta) for rate_bps in kinds[:, 0].tolist()]
    pause = records(fabric.n_ports, pfc.LINK)
    pfc.open_links(pause, np.array(lasts)[which], room)
    served = into >= 0
    of_switch = [
        np.bincount(into[served], column[served], fabric.n_switches).astype(np.int64)
        for column in (rate, room)
    ]
    switches, which = np.unique(np.stack(of_switch, 1), axis=0, return_inverse=True)
    buffer = records(fabric.n_switches, pfc.SWITCH)
    shared = [_shared_bytes(transport, control, *map(int, switch)) for switch in switches]
    buffer.shared_bytes = np.array(shared)[which.reshape(-1)]
    return {"flow": flow, "buffer": buffer, "pause": pause}


def _shared_bytes(
    transport: RoceTransport, control: FlowControl, rates_bps: int, headroom_bytes: int
) -> int:
    """The shared buffer of a switch, bytes; `rates_bps` and `headroom_bytes` are sums over its
    ports.
    """
    if transport.rules == "peer":
        return PEER_BUFFER_BYTES
    if transport.buffer_bytes is None:
        return shared_buffer_bytes(control, rates_bps, headroom_bytes)
    if transport.buffer_bytes < 2 * headroom_bytes:
        raise InputError(
            f"transport.buffer: {transport.buffer_bytes} B: PFC needs {headroom_bytes} B of"
            " headroom in a switch, and as much to share; at least twice that is accepted"
        )
    return transport.buffer_bytes - headroom_bytes


def _qps(ends: network.Ends, st: es.State, seed: int, rto_first_ps: int) -> Any:
    qp = records(ends.n, ROCE_QP)
    qp.rto_at = es.NEVER
    qp.timer_ps = rto_first_ps
    sending = np.where(ends.sends, np.arange(ends.n), ends.other)
    qp.msg0, messages = place.runs_of_messages(st.qp[sending])
    qp.msg_mask = messages - 1
    qp.first_psn = st.qp.first_psn[sending]
    qp.bundle = ends.traffic_qp
    qp.nic = ends.nic
    qp.peer_nic = ends.nic[ends.other]
    qp.other = ends.other
    qp.sends = ends.sends
    rng = np.random.default_rng([seed, SEED_SPORTS])
    qp.sport = SPORT_BASE | rng.integers(0, 1 << SPORT_BITS, ends.n)
    ecmp.hash_flows(qp)
    return qp


def _bounds(parts: Parts, transport: RoceTransport, derived: RoceDerived) -> Bounds:
    """The limits of the queues: they mark at the last hop too, and are unlimited with PFC."""
    queues = replace(parts.queues, ecn_last_hop=True)
    if transport.pfc:
        queues = replace(queues, queue_bytes=UNLIMITED, queue_last_hop_bytes=UNLIMITED)
    return bounds_of(parts.fabric, derived.queues, queues, derived.data_packet_wire_bytes)


def build_net(
    parts: Parts,
    transport: RoceTransport,
    derived: RoceDerived,
    ends: network.Ends,
    st: es.State,
) -> ss.Net:
    """The network's arrays."""
    sizes = roce_framing(transport.rules)
    reserve = network.heap_reserve(parts.traffic)
    reserve += ss.EVENTS_BETWEEN_CHECKS * (2 * int(st.nic.n_qps.max(initial=0)) + 6)
    net = network.new_net(
        parts,
        _bounds(parts, transport, derived),
        ends,
        st,
        sizes=sizes,
        longest_bytes=max(sizes.header_bytes) + transport.pmtu,
        pmtu=transport.pmtu,
        packets=max(PACKETS_AT_START, 2 * int(parts.traffic.packets(transport.pmtu).sum())),
        heap_entries=2 * reserve + 4 * ends.n,
        reserve=reserve,
    )
    network.free_list(net, 0, PACKETS_AT_START - 1)  # the last one is a spare
    net.ctl[0].scouts = net.port.nbytes + net.qp.nbytes + st.message.nbytes > SCOUT_ABOVE_BYTES
    net = _routed(net, parts, transport, derived)
    return taps.open_taps(net, parts.tapped)


def _routed(net: ss.Net, parts: Parts, transport: RoceTransport, derived: RoceDerived) -> ss.Net:
    """The network with routing, and with switches that balance."""
    late = (ss.OWN_SWITCH, derived.local_repair_ps)
    if isinstance(derived, BalancedDerived):
        late = (ss.NICS, derived.failover_ps)
    how = routing.Convergence(*transport.convergence_ps, parts.seed, *late)
    net = routing.open_routing(net, parts.fabric, how)
    if not isinstance(derived, BalancedDerived):
        return net
    steps, rate_bps = derived.load_step_bytes, derived.port_rate_bps
    rotates = transport.ties == "rotation"
    return balance.open_balance(net, parts.fabric, parts.seed, steps, rate_bps, rotates)
