"""From fabric, workload and RoCE transport to the arrays that its event loop runs on.

Each QP of the workload is a bundle of `qps` queue pairs, each with two ends, a record for each.
What has no place in a RoCE network (EVs, slots, carriers, taps) is left at one record.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from openmrc.engine import bits
from openmrc.engine import state as es
from openmrc.engine.packet import PACKET
from openmrc.errors import InputError
from openmrc.fabric.actions import FaultSchedule
from openmrc.fabric.model import Fabric
from openmrc.fabric.rtt import PS_BITS
from openmrc.jit import records
from openmrc.sim import build
from openmrc.sim import state as ss
from openmrc.sim.roce import dcqcn, pfc, requester, routing
from openmrc.sim.roce.derive import RoceDerived
from openmrc.sim.roce.profiles import (
    FlowControl,
    Marking,
    dcqcn_config,
    pfc_config,
    profile_named,
    shared_buffer_bytes,
)
from openmrc.sim.roce.state import BUNDLE, ROCE, ROCE_QP, ROUTE, WHOLE, Roce
from openmrc.sim.roce.transport import RoceTransport
from openmrc.sim.transport import Queues
from openmrc.traffic import Traffic
from openmrc.wire import srv6
from openmrc.wire.roce import roce_framing

PACKETS_AT_START = 1 << 14
MARKING = Marking()
# htsim's lossless input queues: 15 packets of 4150 B, go on at 12, and never full
PEER_FLOW_CONTROL = FlowControl(xoff_bytes=15 * 4150, xon_gap_packets=3)
PEER_BUFFER_BYTES = 1 << 40
SPORT_BASE, SPORT_BITS = 0xC000, 14  # the part of the UDP ports that RoCEv2 uses for entropy
SEED_SPORTS = 8  # purpose of a random stream, beside those of `sim.build`
SEED_CONVERGENCE = 9


def rings_of(traffic: Traffic) -> npt.NDArray[np.int64]:
    """Messages that the send queue of each QP of the workload holds, a power of two."""
    counts = np.bincount(traffic.msg_qp, traffic.msg_count, traffic.n_qps).astype(np.int64)
    most = build.SEND_QUEUE_MAX
    ring = np.array([build.pow2_at_least(c) for c in range(most + 1)], np.int64)
    return ring[np.minimum(counts, most)]


def build_engine(fabric: Fabric, traffic: Traffic, ends: build.Ends, seed: int) -> es.State:
    """The engine's State: who the QPs are, and their rings of messages."""
    ring = rings_of(traffic)[ends.traffic_qp]
    n_send = np.where(ends.sends, ring, 0)
    st = es.new_state(
        qps=ends.n,
        slots=1,
        planes=1,
        evs=1,
        order=1,
        messages=max(int(n_send.sum()), 1),
        rx_messages=1,
        words=1,
        regions=1,
        nics=fabric.n_nics,
        peers=1,
    )
    q = st.qp
    q.nic = ends.nic
    q.peer_nic = ends.nic[ends.other]
    q.index = np.arange(ends.n)
    q.msg0 = np.where(ends.sends, build.starts_of(n_send), 0)
    q.msg_mask = np.where(ends.sends, ring - 1, 0)
    names = np.random.default_rng([seed, build.SEED_NAMES])
    q.first_psn = names.integers(0, build.QPNS, ends.n)
    q.peer_psn = q.first_psn[ends.other]
    st.nic.qp0 = np.searchsorted(ends.nic, np.arange(fabric.n_nics))
    st.nic.n_qps = np.bincount(ends.nic, minlength=fabric.n_nics)
    return st


def build_roce(
    fabric: Fabric,
    traffic: Traffic,
    transport: RoceTransport,
    derived: RoceDerived,
    ends: build.Ends,
    st: es.State,
    seed: int,
) -> Roce:
    """What RoCEv2 keeps."""
    ring = rings_of(traffic)
    vas = np.random.default_rng([seed, build.SEED_NAMES, 2])
    bundle = records(traffic.n_qps, BUNDLE)
    bundle.sender = ends.sender[:: transport.qps]
    bundle.receiver = ends.receiver[:: transport.qps]
    bundle.ring0 = build.starts_of(ring)
    bundle.ring_mask = ring - 1
    bundle.va = vas.integers(1 << 20, 1 << 40, traffic.n_qps) << 12
    route = records(fabric.n_ports, ROUTE)
    route.up = 1
    route.reverse = fabric.port_reverse
    rates, limiter, notifier = _dcqcn(transport, derived, ends)
    flow, buffer, pause = _pfc(fabric, transport, derived)
    low, high = transport.convergence_ps
    c = records(1, ROCE)
    c.rto_ps = derived.rto_ps
    c.ack_every = transport.ack_every
    c.retry_cnt = transport.retry_cnt
    c.qps = transport.qps
    c.dcqcn = transport.cc == "dcqcn"
    c.pfc = transport.pfc
    c.p_max = MARKING.p_max
    c.convergence_low = low
    c.convergence_span = high - low
    c.delay_at = build.NO_TIME
    c.planes_at = build.NO_TIME
    return Roce(
        c=c,
        qp=_qps(ends, st, seed),
        bundle=bundle,
        whole=records(max(int(ring.sum()), 1), WHOLE),
        route=route,
        rates=rates,
        limiter=limiter,
        notifier=notifier,
        flow=flow,
        buffer=buffer,
        pause=pause,
        stream=bits.seed_streams(seed, SEED_CONVERGENCE, 1),
    )


def _dcqcn(transport: RoceTransport, derived: RoceDerived, ends: build.Ends) -> tuple[Any, ...]:
    """DCQCN's knobs, and both ends of it for each QP."""
    rates = dcqcn_config(profile_named(transport.profile), derived.port_rate_bps)
    n = ends.n if transport.cc == "dcqcn" else 1
    limiter, notifier = records(n, dcqcn.LIMITER), records(n, dcqcn.NOTIFIER)
    requester.open_limiters(limiter, rates)
    return rates, limiter, notifier


def flow_control(transport: RoceTransport) -> FlowControl:
    """How the switches of a run share their buffers and pause."""
    return PEER_FLOW_CONTROL if transport.rules == "peer" else FlowControl()


def _pfc(fabric: Fabric, transport: RoceTransport, derived: RoceDerived) -> tuple[Any, ...]:
    """PFC's knobs, the buffer of each switch, and both ends of each link."""
    control = flow_control(transport)
    frame = derived.data_packet_wire_bytes
    flow = pfc_config(control, frame)
    if not transport.pfc:
        return flow, records(1, pfc.SWITCH), records(1, pfc.LINK)
    rate, back = fabric.port_rate_bps, fabric.port_reverse
    into = fabric.port_peer_switch
    delay = fabric.port_delay_ps + np.where(into >= 0, fabric.sw_delay_ps[into], 0)
    ways = np.stack([rate, rate[back], delay, delay[back]], 1)
    kinds, which = np.unique(ways, axis=0, return_inverse=True)
    which = which.reshape(-1)
    room = np.array([pfc.headroom_bytes(a, b, c, d, frame) for a, b, c, d in kinds.tolist()])[which]
    lasts = [pfc.pause_time_ps(rate_bps, control.quanta) for rate_bps in kinds[:, 0].tolist()]
    pause = records(fabric.n_ports, pfc.LINK)
    pause.headroom_bytes = room
    pause.pause_ps = np.array(lasts)[which]
    pause.refresh_ps = pause.pause_ps // 2
    pause.refresh_at = es.NEVER
    served = into >= 0
    of_switch = [
        np.bincount(into[served], column[served], fabric.n_switches).astype(np.int64)
        for column in (rate, room)
    ]
    switches, which = np.unique(np.stack(of_switch, 1), axis=0, return_inverse=True)
    buffer = records(fabric.n_switches, pfc.SWITCH)
    shared = [_shared_bytes(transport, control, *map(int, switch)) for switch in switches]
    buffer.shared_bytes = np.array(shared)[which.reshape(-1)]
    return flow, buffer, pause


def _shared_bytes(
    transport: RoceTransport, control: FlowControl, rates_bps: int, headroom_bytes: int
) -> int:
    """What a switch has to share; the first of its two sums is that of its ports' rates."""
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


def _qps(ends: build.Ends, st: es.State, seed: int) -> Any:
    qp = records(ends.n, ROCE_QP)
    qp.rto_at = es.NEVER
    qp.msg0 = st.qp.msg0
    qp.msg_mask = st.qp.msg_mask
    qp.first_psn = np.where(ends.sends, st.qp.first_psn, st.qp.peer_psn)
    qp.bundle = ends.traffic_qp
    qp.nic = ends.nic
    qp.peer_nic = ends.nic[ends.other]
    qp.other = ends.other
    qp.sends = ends.sends
    rng = np.random.default_rng([seed, SEED_SPORTS])
    qp.sport = SPORT_BASE | rng.integers(0, 1 << SPORT_BITS, ends.n)
    routing.hash_flows(qp)
    return qp


def build_net(
    fabric: Fabric,
    traffic: Traffic,
    transport: RoceTransport,
    queues: Queues,
    derived: RoceDerived,
    ends: build.Ends,
    st: es.State,
    schedule: FaultSchedule | None,
    seed: int,
) -> ss.Net:
    """The network's arrays."""
    sizes = roce_framing(transport.rules)
    n_ports, n_entries = fabric.n_ports, traffic.n_entries
    port, kind, health = build.ports_of(fabric, replace(queues, ecn_last_hop=True), derived)
    fault, kind = build.faults_of(schedule, port, kind)
    longest = (max(sizes.header_bytes) + transport.pmtu) * PS_BITS // kind.rate_bps
    span_ps = int((kind.delay_ps + longest).max()) + 1
    shortest_ps = int((min(sizes.header_bytes) * PS_BITS // kind.rate_bps).min())
    shift, buckets = build.wheel(span_ps, shortest_ps, n_ports)
    message, release = build.messages_of(traffic, ends)
    message[: traffic.n_msgs].qp = ends.sender[traffic.msg_qp * transport.qps]
    series = build.series_of(traffic)
    reserve = n_entries + 1024 + int(message.many.any()) * build.SERIES_RELEASES
    reserve += ss.EVENTS_BETWEEN_CHECKS * (2 * int(st.nic.n_qps.max(initial=0)) + 6)
    heap = 2 * reserve + int(series.n_let.sum(dtype=np.int64)) + 4 * ends.n
    packets = PACKETS_AT_START
    tables, speller = srv6.nothing()
    ctl = records(1, ss.CONTROL)
    net = ss.Net(
        ctl=ctl,
        hop=records(packets, ss.HOP),
        packet=records(packets, PACKET),
        port=port,
        port_kind=kind,
        health=health,
        tally=records(n_ports, ss.TALLY),
        switch=build.switches_of(fabric, seed),
        after=np.zeros(n_ports + packets, np.int32),
        bucket=records(buckets, ss.BUCKET),
        bucket_bits=np.zeros(max(buckets // 64, 1), np.uint64),
        bucket_summary=np.zeros(max(buckets // 4096, 1), np.uint64),
        heap=records(heap, ss.HEAP_ENTRY),
        qp=_link_qps(traffic, transport, ends),
        nic=build.link_nics(fabric),
        round=np.full((fabric.n_nics * fabric.n_planes, 2), -1, np.int32),
        behind=np.full((ends.n, fabric.n_planes), -1, np.int32),
        message=message,
        series=series,
        core_free_at=build.cores_of(traffic),
        roster=np.argsort(traffic.msg_qp, kind="stable").astype(np.int32),
        release=release,
        unit=np.zeros(1, np.uint16),
        fault=fault,
        groups=build.groups_of(schedule),
        timeline=np.zeros((build.TIMELINE_BINS, ss.BIN_COLUMNS), np.int64),
        stream=bits.seed_streams(seed, build.SEED_NET, 2),
        tap=records(0, ss.TAP),
        tap_packet=records(0, PACKET),
        carrier=np.zeros((1, srv6.ADDRESS_BYTES), np.uint8),
        usid_switch=tables.switch,
        usid_slots=tables.slots,
        usid_scheme=speller.scheme,
        usid_nic=speller.nic,
    )
    net.bucket.head = -1
    c = ctl[0]
    c.header_bytes[:] = sizes.header_bytes
    c.shift = shift
    c.bucket_mask = buckets - 1
    c.open_head = -1
    c.n_ports = n_ports
    c.n_nic_ports = fabric.n_nics * fabric.n_planes
    c.n_planes = fabric.n_planes
    c.pmtu = transport.pmtu
    c.bin_ps = build.TIMELINE_BIN_PS
    c.messages_open = n_entries
    c.ends_on_error = traffic.ends_on_error
    c.reserve = reserve
    c.first_fault_drop_at = build.NO_TIME
    build.name_qps(st, c, ends, seed)
    build.free_list(net, 0, packets - 1)  # the last one is a spare
    return net


def _link_qps(traffic: Traffic, transport: RoceTransport, ends: build.Ends) -> Any:
    """What the world keeps of each QP end; the first of a bundle keeps what is common to it."""
    qp = records(ends.n, ss.LINK_QP)
    qp.timer_at = es.NEVER
    qp.other = ends.other
    qp.waiting_head = -1
    qp.region = ends.traffic_qp
    entries = np.bincount(traffic.msg_qp, minlength=traffic.n_qps)
    first = ends.sender[:: transport.qps]
    qp.roster0[first] = build.starts_of(entries)
    qp.n_roster[first] = entries
    return qp
