"""From fabric, workload and transport to the arrays that the event loop runs on.

Every traffic QP has two ends, a sender and a receiver, each a QP record of the engine; the ends are
ordered by NIC. Everything here is vectorised: 131,072 QPs are set up in seconds.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from openmrc import policies
from openmrc.engine import bits, paths
from openmrc.engine import state as es
from openmrc.engine.packet import PACKET
from openmrc.errors import InputError
from openmrc.fabric.actions import EVENT, PORT_DENY, PORT_RATE, FaultSchedule
from openmrc.fabric.model import Fabric
from openmrc.fabric.rtt import PS_BITS
from openmrc.jit import records
from openmrc.sim import state as ss
from openmrc.sim.derive import Derived
from openmrc.sim.transport import Queues, Transport
from openmrc.traffic import Traffic
from openmrc.wire import srv6
from openmrc.wire.framing import framing

if TYPE_CHECKING:
    from openmrc.sim.roce.derive import RoceDerived

SEND_QUEUE_MAX = 64  # messages a QP holds at once; the others wait in the world
# Paths among which a receive-only end keeps its reverse EVs fresh (MRC 3.9): in all, and per plane.
REVERSE_EVS, REVERSE_EVS_PER_PLANE_MIN = 32, 4
PACKETS_AT_START = 4096
# Arrays of packets have room for all that the windows allow, up to this many: what is not touched
# takes address space and no memory, and nothing is copied when more are wanted.
PACKETS_RESERVED_MAX = 1 << 22
SCOUT_ABOVE_BYTES = 4 << 20  # of QPs, windows and paths: beyond what caches hold beside packets
HASHED_EV_STEP = 0x9E37  # odd: the EVs of a QP differ, however many they are
TIMELINE_BINS = 4096
TIMELINE_BIN_PS = 10_000_000  # reference 11, measures: 10 us
MAX_WIMM = 128  # MRC 1.8
SHUFFLE_ROUNDS = 64  # row 13; htsim's balancers change the order each round
QPNS = 1 << 24
UNLIMITED = 2**31 - 1
NO_TIME = -1
PORTS_OF_AN_EVENT = es.PLANES_MAX  # that send: of one NIC at most, but for a change of routing
# Room in the heap for what series may release between two looks at it: every event of the 64 would
# have to complete a send queue full of immediates at once.
SERIES_RELEASES = 64 * SEND_QUEUE_MAX
BUCKET_SHIFT_MAX = 30  # a time within a bucket is an int32
PORT_KINDS_MAX = 1 << 15  # what a port's two bytes can name

# purposes of random streams: each component draws from its own
SEED_QPS, SEED_NET, SEED_PATHS, SEED_NAMES, SEED_SALTS = range(5)

PATHS = {
    "mrc": es.PATHS_MRC,
    "oblivious": es.PATHS_OBLIVIOUS,
    "reps": es.PATHS_REPS,
    "single": es.PATHS_SINGLE,
}
CONGESTION = {"nscc": es.CC_NSCC, "none": es.CC_NONE}

Index = npt.NDArray[np.int64]


def pow2_at_least(n: int) -> int:
    """The smallest power of two that is `n` or more."""
    return 1 << max(n - 1, 0).bit_length()


def starts_of(sizes: Index) -> Index:
    """Where each of consecutive runs of these sizes begins."""
    return np.concatenate([[0], np.cumsum(sizes)[:-1]]) if len(sizes) else np.zeros(0, np.int64)


class Ends:
    """The QP records: which traffic QP and which role each has, ordered by NIC.

    A traffic QP may stand for a bundle of `bundle` QPs; the records of one side lie together.
    """

    def __init__(self, traffic: Traffic, bundle: int = 1) -> None:
        k = traffic.n_qps * bundle
        ends = (np.repeat(traffic.qp_src, bundle), np.repeat(traffic.qp_dst, bundle))
        nic = np.concatenate(ends).astype(np.int64)
        order = np.argsort(nic, kind="stable")
        place = np.empty(2 * k, np.int64)
        place[order] = np.arange(2 * k)
        self.n = 2 * k
        self.nic = nic[order]
        pair = order % k if k else order
        self.traffic_qp = pair // bundle
        self.sends = order < k
        self.sender = place[:k]  # [traffic QP, or QP of a bundle] -> record
        self.receiver = place[k:]
        self.other = np.where(self.sends, self.receiver[pair], self.sender[pair])


def build_engine(
    fabric: Fabric,
    traffic: Traffic,
    transport: Transport,
    queues: Queues,
    derived: Derived,
    ends: Ends,
    seed: int,
) -> es.State:
    """The engine's State for all NICs."""
    planes = fabric.n_planes
    pmtu = transport.pmtu
    counts = np.bincount(traffic.msg_qp, traffic.msg_count, traffic.n_qps).astype(np.int64)
    ring = np.array([pow2_at_least(min(int(c), SEND_QUEUE_MAX)) for c in range(SEND_QUEUE_MAX + 1)])
    messages = ring[np.minimum(counts, SEND_QUEUE_MAX)][ends.traffic_qp]
    slots = pow2_at_least(derived.mpr_packets)
    ring_bits = pow2_at_least(derived.mpr_packets + 256)
    words = ring_bits // 64
    table = _ev_table(fabric, transport, derived, ends, seed)
    n_slots = np.where(ends.sends, slots, 0)
    n_send = np.where(ends.sends, messages, 0)
    n_receive = np.where(ends.sends, 0, messages)
    peers, peer_of = _peers(ends)
    st = es.new_state(
        qps=ends.n,
        slots=max(int(n_slots.sum()), 1),
        planes=ends.n * planes,
        evs=len(table.values),
        order=int((table.order_len * planes).sum()),
        messages=max(int(n_send.sum()), 1),
        rx_messages=max(int(n_receive.sum()), 1),
        words=ends.n * words,
        regions=traffic.n_qps,
        nics=fabric.n_nics,
        peers=len(peers),
        watch_marks=transport.always_skip_after > 0,
        policies=transport.paths not in PATHS or transport.cc not in CONGESTION,
        recycles=transport.paths == "reps",
    )
    _configure(st.config[0], fabric, transport, queues, derived)
    _bring_policies(st, transport)
    names = np.random.default_rng([seed, SEED_NAMES])
    q = st.qp
    q.nic = ends.nic
    q.peer_nic = ends.nic[ends.other]
    q.index = np.arange(ends.n)
    q.peer = peer_of
    q.n_planes = planes
    q.plane0 = np.arange(ends.n) * planes
    q.slot0 = np.where(ends.sends, starts_of(n_slots), 0)
    q.slot_mask = np.where(ends.sends, slots - 1, 0)
    q.msg0 = np.where(ends.sends, starts_of(n_send), 0)
    q.msg_mask = np.where(ends.sends, messages - 1, 0)
    q.rmsg0 = np.where(ends.sends, 0, starts_of(n_receive))
    q.rmsg_mask = np.where(ends.sends, 0, messages - 1)
    q.acked0 = np.arange(ends.n) * words  # an end sends or receives: one ring serves
    q.rx0 = q.acked0
    q.ring_mask = ring_bits - 1
    q.mpr = derived.mpr_packets
    q.rx_mpr = derived.mpr_packets
    q.first_psn = names.integers(0, QPNS, ends.n)
    q.peer_psn = q.first_psn[ends.other]
    table.write(st, planes)
    st.stream[:] = bits.seed_streams(seed, SEED_QPS, ends.n)
    n = st.nic
    n.qp0 = np.searchsorted(ends.nic, np.arange(fabric.n_nics))
    n.n_qps = np.bincount(ends.nic, minlength=fabric.n_nics)
    n.peer0 = np.searchsorted(peers[:, 0], np.arange(fabric.n_nics))
    n.n_peers = np.bincount(peers[:, 0], minlength=fabric.n_nics)
    n.n_ports = planes
    n.up_mask = (1 << planes) - 1
    wire_bits = derived.data_packet_wire_bytes * 8
    n.probe_rate = paths.PROBE_SHARE * derived.port_rate_bps * planes / wire_bits / 1e12
    n.probe_tokens = paths.PROBE_BURST
    st.peer.remote = peers[:, 1]
    st.peer.qp = peers[:, 2]
    st.peer.remote_mask = (1 << planes) - 1
    r = st.region
    r.nic = traffic.qp_dst
    r.length = units_of(traffic, pmtu) * pmtu
    r.va = names.integers(1 << 20, 1 << 40, traffic.n_qps) << 12
    keys = names.integers(0, 1 << (32 - es.REGION_INDEX_BITS), traffic.n_qps)
    r.rkey = np.arange(traffic.n_qps) | (keys << es.REGION_INDEX_BITS)
    return st


def _configure(
    c: Any, fabric: Fabric, transport: Transport, queues: Queues, derived: Derived
) -> None:
    """The one CONFIG record."""
    peer = transport.rules == "peer"
    c.pmtu = transport.pmtu
    c.nominal_overhead = framing(transport.rules, transport.srv6).nominal_overhead
    c.port_rate_bps = derived.port_rate_bps
    c.base_rtt_ps = derived.base_rtt_ps
    c.sack_bytes = transport.sack_bytes
    c.rto_base_ps = np.int64(1_024_000) << transport.rto_exponent
    c.linear_cnt = transport.linear_cnt
    c.exp_cnt = transport.exp_cnt
    c.max_wimm = MAX_WIMM
    c.always_skip_after = transport.always_skip_after
    c.shuffle_rounds = 1 if peer else SHUFFLE_ROUNDS
    c.paths = PATHS.get(transport.paths, es.PATHS_MRC)
    c.cc = CONGESTION.get(transport.cc, es.CC_OWN)
    c.trimming = queues.trim
    c.marks_on_last_hop = queues.ecn_last_hop
    c.alpha_by_12us = peer
    c.ignore_marks = not transport.ecn_skip
    c.freezing_ps = transport.freezing_ps
    if peer:
        c.reverse = es.REVERSE_RANDOM
    elif transport.paths == "oblivious":
        c.reverse = es.REVERSE_SPRAYED
    else:
        c.reverse = es.REVERSE_FIXED if transport.paths == "single" else es.REVERSE_PROBED


def _bring_policies(st: es.State, transport: Transport) -> None:
    """Compile what the user brings, and tell the engine where it is; or that it has REPS itself."""
    c = st.config[0]
    if transport.paths == "reps":
        c.path_choose = c.path_learn = es.BUILT_IN
    if transport.cc not in CONGESTION:
        c.cc_step, _ = policies.load(policies.find(transport.cc, "step", Path()), st)
    if transport.paths not in PATHS:
        found = policies.find(transport.paths, "choose", Path())
        c.path_choose, c.path_learn = policies.load(found, st)


def _peers(ends: Ends) -> tuple[npt.NDArray[np.int64], Index]:
    """The pairs (nic, remote, one QP), sorted, and the pair of each QP."""
    remote = ends.nic[ends.other]
    key = ends.nic * (int(remote.max(initial=0)) + 1) + remote
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    pairs = np.stack([ends.nic[first], remote[first], first], axis=1)
    return pairs, inverse.reshape(-1)


class _EvTable:
    """The EVs of all QPs, as columns, and how they are divided."""

    def __init__(self, n: int, planes: int) -> None:
        self.n_evs = np.zeros((n, planes), np.int64)
        self.n_active = np.zeros((n, planes), np.int64)
        self.blocks: list[
            tuple[Index, int, npt.NDArray[np.int64]]
        ] = []  # (QPs, plane, EVs [qp, k])
        self.values = np.zeros(0, np.int64)
        self.plane = np.zeros(0, np.int64)

    def add(self, qps: Index, plane: int, values: npt.NDArray[np.int64], active: int) -> None:
        """EVs of one plane for some QPs; the first `active` of each row are in the rotation."""
        self.n_evs[qps, plane] = values.shape[1]
        self.n_active[qps, plane] = active
        self.blocks.append((qps, plane, values))

    def close(self) -> None:
        """Lay the EVs out: by QP, then by plane."""
        per_qp = self.n_evs.sum(axis=1)
        self.ev0 = starts_of(per_qp)
        self.first = np.cumsum(self.n_evs, axis=1) - self.n_evs
        self.order_len = np.maximum(self.n_evs.max(axis=1), 1)
        self.values = np.zeros(int(per_qp.sum()), np.int64)
        self.plane = np.zeros(len(self.values), np.int64)
        self.active = np.zeros(len(self.values), np.int64)
        for qps, plane, values in self.blocks:
            at = (self.ev0[qps] + self.first[qps, plane])[:, None] + np.arange(values.shape[1])
            self.values[at] = values
            self.plane[at] = plane
            self.active[at] = (
                np.arange(values.shape[1])[None, :] < self.n_active[qps, plane][:, None]
            )

    def write(self, st: es.State, planes: int) -> None:
        """Into the engine's records."""
        q, p, e = st.qp, st.plane, st.ev
        q.ev0 = self.ev0
        q.n_evs = self.n_evs.sum(axis=1)
        q.order_len = self.order_len
        q.order0 = starts_of(self.order_len * planes)
        p.ev0 = self.first.reshape(-1)
        p.n_evs = self.n_evs.reshape(-1)
        p.n_active = self.n_active.reshape(-1)
        p.share = p.n_active
        e.value = self.values
        e.plane = self.plane
        e.active = self.active
        e.state = paths.GOOD
        for qps, plane, values in self.blocks:
            active = int(self.n_active[qps[0], plane]) if len(qps) else 0
            at = (q.order0[qps] + plane * self.order_len[qps])[:, None] + np.arange(active)
            st.order[at] = self.first[qps, plane][:, None] + np.arange(active)
            if values.shape[1]:
                p.reverse_ev[qps * planes + plane] = values[:, 0]


def _ev_table(
    fabric: Fabric, transport: Transport, derived: Derived, ends: Ends, seed: int
) -> _EvTable:
    """Draw each QP's EVs (MRC 3.1): equally many per plane, a random subset of the paths, no
    coordination.
    """
    rng = np.random.default_rng([seed, SEED_PATHS])
    table = _EvTable(ends.n, fabric.n_planes)
    everyone = np.arange(ends.n)
    peer_nic = ends.nic[ends.other]
    climbs = fabric.uplinks(ends.nic, peer_nic)
    if transport.paths == "single":
        plane = rng.integers(0, fabric.n_planes, ends.n)
        for p in range(fabric.n_planes):
            mine = plane == p
            for up in range(fabric.n_tiers):
                qps = everyone[mine & (climbs == up)]
                table.add(qps, p, _draw_paths(fabric, transport, rng, qps, ends, p, up, 1), 1)
    elif transport.rules == "peer":
        _hashed_evs(table, rng, everyone[ends.sends], transport.evs_active, 0)
        _hashed_evs(table, rng, everyone[~ends.sends], 1, 0)
    elif transport.hashed:  # nobody knows how many paths there are, or which EVs share one
        active, backup = derived.evs_per_plane_active, derived.evs_per_plane_backup
        _hashed_evs(table, rng, everyone[ends.sends], active, backup)
        _hashed_evs(table, rng, everyone[~ends.sends], _reverse_evs(fabric), 0)
    else:
        for up in range(fabric.n_tiers):
            for sends in (True, False):
                qps = everyone[(climbs == up) & (ends.sends == sends)]
                if not len(qps):
                    continue
                n_paths = fabric.n_paths(int(ends.nic[qps[0]]), int(peer_nic[qps[0]]), 0)
                active = min(n_paths, derived.evs_per_plane_active)
                backup = min(n_paths - active, derived.evs_per_plane_backup)
                if not sends:
                    active, backup = min(n_paths, _reverse_evs(fabric)), 0
                for p in range(fabric.n_planes):
                    values = _draw_paths(fabric, transport, rng, qps, ends, p, up, active + backup)
                    table.add(qps, p, values, active)
    table.close()
    return table


def _reverse_evs(fabric: Fabric) -> int:
    """EVs per plane of an end that only receives."""
    return max(REVERSE_EVS // fabric.n_planes, REVERSE_EVS_PER_PLANE_MIN)


def _hashed_evs(
    table: _EvTable, rng: np.random.Generator, qps: Index, active: int, backup: int
) -> None:
    """Different source ports for each plane of these QPs, from a random one on; the planes of a QP
    share none.
    """
    planes, n = table.n_evs.shape[1], active + backup
    first = rng.integers(0, 1 << 16, (len(qps), 1))
    for plane in range(planes):
        number = plane * n + np.arange(n)[None, :]
        table.add(qps, plane, (first + number * HASHED_EV_STEP) & 0xFFFF, active)


def _draw_paths(
    fabric: Fabric,
    transport: Transport,
    rng: np.random.Generator,
    qps: Index,
    ends: Ends,
    plane: int,
    climbs: int,
    n: int,
) -> npt.NDArray[np.int64]:
    """`n` different random paths of one plane for each QP, shape [qp, n]; all QPs leave `climbs`
    switches upwards.
    """
    if transport.hashed:
        return rng.integers(0, 1 << 16, (len(qps), n))
    if not len(qps):
        return np.zeros((0, n), np.int64)
    t0 = fabric.port_peer_switch[ends.nic[qps] * fabric.n_planes + plane]
    n_up0 = int(fabric.sw_n_up[t0[0]]) if climbs > 0 else 1
    n_up1 = 1
    if climbs > 1:
        n_up1 = int(fabric.sw_n_up[fabric.port_peer_switch[fabric.sw_first_up[t0[0]]]])
    total = n_up0 * n_up1
    index = np.empty((len(qps), n), np.int64)
    step = max(1, 4_000_000 // total)
    for start in range(0, len(qps), step):
        rows = index[start : start + step]
        rows[:] = np.argsort(rng.random((len(rows), total), dtype=np.float32), axis=1)[:, :n]
    return (
        fabric.ev_base
        | (plane << fabric.ev_plane_shift)
        | ((index % n_up0) << fabric.ev_up0_shift)
        | ((index // n_up0) << fabric.ev_up1_shift)
    )


def build_net(
    fabric: Fabric,
    traffic: Traffic,
    transport: Transport,
    queues: Queues,
    derived: Derived,
    ends: Ends,
    st: es.State,
    schedule: FaultSchedule | None,
    seed: int,
    tapped: Index,
) -> ss.Net:
    """The network's arrays."""
    sizes = framing(transport.rules, transport.srv6)
    n_ports = fabric.n_ports
    port, kind, health = ports_of(fabric, queues, derived)
    switch = switches_of(fabric, seed)
    port.tapped[tapped] = 1
    reserve = ss.EVENTS_BETWEEN_CHECKS * PORTS_OF_AN_EVENT + fabric.n_nics * fabric.n_planes
    taps = 2 * reserve if len(tapped) else 0
    by_usid = queues.by_usid and not transport.hashed
    tables, speller = srv6.of_fabric(fabric) if by_usid else srv6.nothing()
    fault, kind = faults_of(schedule, port, kind)
    longest = sizes.data_bytes(transport.pmtu) * PS_BITS // kind.rate_bps
    span_ps = int((kind.delay_ps + longest).max()) + 1
    shortest_ps = int((min(sizes.header_bytes) * PS_BITS // kind.rate_bps).min())
    shift, buckets = wheel(span_ps, shortest_ps, n_ports)
    qp, n_units = _link_qps(traffic, ends, transport, st)
    message, release = messages_of(traffic, ends)
    series = series_of(traffic)
    lets = int(series.n_let.sum(dtype=np.int64))
    heap = 2 * traffic.n_entries + lets + 8 * ends.n + 2 * fabric.n_nics + 4096
    packets = min(max(PACKETS_AT_START, 2 * len(st.slot)), PACKETS_RESERVED_MAX)
    ctl = records(1, ss.CONTROL)
    net = ss.Net(
        ctl=ctl,
        hop=records(packets, ss.HOP),
        packet=records(packets, PACKET),
        port=port,
        port_kind=kind,
        health=health,
        tally=records(n_ports, ss.TALLY),
        switch=switch,
        after=np.zeros(n_ports + packets, np.int32),
        bucket=records(buckets, ss.BUCKET),
        bucket_bits=np.zeros(max(buckets // 64, 1), np.uint64),
        bucket_summary=np.zeros(max(buckets // 4096, 1), np.uint64),
        heap=records(heap, ss.HEAP_ENTRY),
        qp=qp,
        nic=link_nics(fabric),
        round=np.full((fabric.n_nics * fabric.n_planes, 2), -1, np.int32),
        behind=np.full((ends.n, fabric.n_planes), -1, np.int32),
        message=message,
        series=series,
        core_free_at=cores_of(traffic),
        roster=np.argsort(traffic.msg_qp, kind="stable").astype(np.int32),
        release=release,
        unit=np.zeros(n_units, np.uint16),
        fault=fault,
        groups=groups_of(schedule),
        timeline=np.zeros((TIMELINE_BINS, ss.BIN_COLUMNS), np.int64),
        stream=bits.seed_streams(seed, SEED_NET, 2),
        tap=records(taps, ss.TAP),
        tap_packet=records(taps, PACKET),
        carrier=np.zeros((packets if by_usid else 1, srv6.ADDRESS_BYTES), np.uint8),
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
    c.ev_base = fabric.ev_base
    c.up0_shift = fabric.ev_up0_shift
    c.up0_mask = (1 << fabric.ev_up0_bits) - 1
    c.up1_shift = fabric.ev_up1_shift
    c.up1_mask = (1 << fabric.ev_up1_bits) - 1
    c.plane_shift = fabric.ev_plane_shift
    c.trimmed_bytes = sizes.trimmed_bytes
    c.pmtu = transport.pmtu
    c.hashed = transport.hashed
    c.hashes_tuple = not transport.srv6
    c.by_usid = by_usid
    c.tap_reserve = reserve if taps else 0
    c.one_data_class = transport.rules == "peer"
    c.trim = queues.trim
    c.single = transport.paths == "single"
    c.scouts = st.qp.nbytes + st.slot.nbytes + st.ev.nbytes > SCOUT_ABOVE_BYTES
    c.convergence_ps = transport.convergence_ps
    c.bin_ps = TIMELINE_BIN_PS
    c.messages_open = traffic.n_entries
    c.ends_on_error = traffic.ends_on_error
    c.reserve = traffic.n_entries + 1024 + int(message.many.any()) * SERIES_RELEASES
    c.first_fault_drop_at = NO_TIME
    c.rerouted_at = NO_TIME
    name_qps(st, c, ends, seed)
    free_list(net, 0, PACKETS_AT_START - 1)  # the last one is a spare, for exchanges
    return net


def free_list(net: ss.Net, first: int, end: int) -> None:
    """Put the packet indices `first .. end - 1` at the head of the free list."""
    c = net.ctl[0]
    net.hop.next[first:end] = np.arange(first + 1, end + 1)
    net.hop.next[end - 1] = c.free_head if c.n_free else -1
    c.free_head = first
    c.n_free += end - first
    c.n_packets = end


def name_qps(st: es.State, c: Any, ends: Ends, seed: int) -> None:
    """Draw QPNs: `offset + index x factor` modulo 2^24, so that the number leads back to the record
    (row 27).
    """
    if ends.n > QPNS // 2:
        raise InputError(
            f"workload: {ends.n // 2} queue pairs; at most {QPNS // 4} can be numbered"
        )
    rng = np.random.default_rng([seed, SEED_NAMES, 1])
    factor = int(rng.integers(0, QPNS // 2)) * 2 + 1
    numbers = np.arange(ends.n, dtype=np.int64) * factor % QPNS
    while True:  # MRC 1.7: 0, 1 and 2 are reserved
        offset = int(rng.integers(0, QPNS))
        qpn = (numbers + offset) % QPNS
        if not (qpn < 3).any():
            break
    st.qp.qpn = qpn
    st.qp.peer_qpn = qpn[ends.other]
    c.qpn_offset = offset
    c.qpn_inverse = pow(factor, -1, QPNS)


def wheel(span_ps: int, shortest_ps: int, n_ports: int) -> tuple[int, int]:
    """Bucket width (as a shift) and number of buckets: about two per port, no wider than the
    shortest packet lasts.
    """
    shift = min(max((span_ps // max(2 * n_ports, 256)).bit_length() - 1, 4), BUCKET_SHIFT_MAX)
    while shift > 4 and (1 << shift) > shortest_ps:
        shift -= 1
    buckets = max(pow2_at_least((span_ps >> shift) + 4), 64)
    return shift, buckets


def ports_of(
    fabric: Fabric, queues: Queues, derived: Derived | RoceDerived
) -> tuple[Any, Any, Any]:
    """The ports, their kinds, and their health."""
    last = fabric.port_last_hop
    from_nic = fabric.port_switch < 0
    into_switch = fabric.port_peer_switch >= 0
    # queues scale with the port's rate, as its BDP does
    scale = fabric.port_rate_bps / derived.port_rate_bps
    marks = ~from_nic & (~last | queues.ecn_last_hop)
    limit = np.where(last, derived.queue_last_hop_bytes, derived.queue_bytes) * scale
    high = np.maximum(derived.ecn_high_bytes, derived.ecn_low_bytes + 1) * scale
    each = records(fabric.n_ports, ss.PORT_KIND)
    each.rate_bps = fabric.port_rate_bps
    each.delay_ps = fabric.port_delay_ps + np.where(
        into_switch, fabric.sw_delay_ps[fabric.port_peer_switch], 0
    )
    each.limit_bytes = np.where(from_nic, UNLIMITED, np.minimum(limit, UNLIMITED))
    each.control_limit = np.where(from_nic, UNLIMITED, derived.control_queue_bytes)
    each.ecn_low = np.where(marks, derived.ecn_low_bytes * scale, UNLIMITED)
    each.ecn_high = np.where(marks, high, UNLIMITED)
    each.last_hop = last
    different, which = np.unique(np.asarray(each), return_inverse=True)
    kind = records(len(different), ss.PORT_KIND)
    kind[:] = different
    port = records(fabric.n_ports, ss.PORT)
    port.kind = which.reshape(-1)
    port.peer = np.where(into_switch, fabric.port_peer_switch, -1 - fabric.port_peer_nic)
    port.head = -1
    port.tail = -1
    port.up = 1
    health = records(fabric.n_ports, ss.HEALTH)
    health.cut_until = np.iinfo(np.int64).min // 2
    return port, kind, health


def faults_of(schedule: FaultSchedule | None, port: Any, kind: Any) -> tuple[Any, Any]:
    """The schedule, and the kinds of ports with those that slow links have: a link that slows down
    changes its kind, so whole ones pay nothing.
    """
    events = schedule.events if schedule is not None else np.empty(0, EVENT)
    fault = records(len(events), ss.FAULT)
    for name in EVENT.names or ():
        fault[name] = events[name]
    slows = np.flatnonzero(events["action"] == PORT_RATE)
    share = events["rate"][slows]
    of_kind = port.kind[events["target"][slows]]
    changes, which = np.unique(np.stack([of_kind, share], axis=1), axis=0, return_inverse=True)
    if len(kind) + len(changes) > PORT_KINDS_MAX:
        raise InputError(
            f"fault: {len(changes)} different rates of slow links; at most"
            f" {PORT_KINDS_MAX - len(kind)} fit, so use fewer factors"
        )
    kinds = records(len(kind) + len(changes), ss.PORT_KIND)
    kinds[: len(kind)] = kind
    if len(changes):
        kinds[len(kind) :] = kind[changes[:, 0].astype(np.int64)]
        slowed = np.rint(kinds.rate_bps[len(kind) :] * changes[:, 1]).astype(np.int64)
        kinds.rate_bps[len(kind) :] = np.maximum(slowed, 1)
    fault.port_kind[slows] = np.where(share == 1, of_kind, len(kind) + which.reshape(-1))
    return fault, kinds


def groups_of(schedule: FaultSchedule | None) -> npt.NDArray[np.uint16]:
    """By NIC, a bit for each group of denylists that it is in; empty if there are no denylists."""
    if schedule is None or not (schedule.events["action"] == PORT_DENY).any():
        return np.zeros(0, np.uint16)
    bit = 1 << np.arange(len(schedule.groups), dtype=np.int64)
    mask: npt.NDArray[np.uint16] = (schedule.groups * bit[:, None]).sum(axis=0).astype(np.uint16)
    return mask


def switches_of(fabric: Fabric, seed: int) -> Any:
    """The switches, each with a salt of its own."""
    switch = records(fabric.n_switches, ss.SWITCH)
    switch.lo = fabric.sw_lo
    switch.hi = fabric.sw_hi
    switch.stride = fabric.sw_stride
    switch.first_down = fabric.sw_first_down
    switch.first_up = fabric.sw_first_up
    switch.n_up = fabric.sw_n_up
    switch.bundle = fabric.sw_bundle
    switch.tier = fabric.sw_tier
    switch.salt = np.random.default_rng([seed, SEED_SALTS]).integers(0, 2**31, fabric.n_switches)
    return switch


def units_of(traffic: Traffic, pmtu: int) -> Index:
    """Units of payload, one PMTU of one message each, by QP."""
    return np.bincount(traffic.msg_qp, traffic.packets(pmtu), traffic.n_qps).astype(np.int64)


def _link_qps(traffic: Traffic, ends: Ends, transport: Transport, st: es.State) -> tuple[Any, int]:
    """What the world keeps of each QP end, and the units of payload for all their rings: what a
    window holds, or all that a QP carries if that is less.
    """
    qp = records(ends.n, ss.LINK_QP)
    qp.timer_at = es.NEVER
    qp.other = ends.other
    qp.waiting_head = -1
    qp.flow = ends.traffic_qp + 1
    qp.region = ends.traffic_qp
    entries = np.bincount(traffic.msg_qp, minlength=traffic.n_qps)
    qp.roster0[ends.sender] = starts_of(entries)
    qp.n_roster[ends.sender] = entries
    slots = st.qp.slot_mask[ends.sender] + 1
    digits = np.ceil(np.log2(np.maximum(units_of(traffic, transport.pmtu), 1))).astype(np.int64)
    ring = np.minimum(1 << digits, slots)
    qp.unit0[ends.sender] = starts_of(ring)
    qp.unit_mask[ends.sender] = ring - 1
    return qp, int(ring.sum())


def link_nics(fabric: Fabric) -> Any:
    """What the world keeps of each NIC: all ports are up."""
    nic = records(fabric.n_nics, ss.LINK_NIC)
    nic.timer_at = es.NEVER
    nic.free_ports = (1 << fabric.n_planes) - 1
    nic.up_ports = nic.free_ports
    return nic


def series_of(traffic: Traffic) -> Any:
    """The series, as many records as messages; one and no more where none is a series."""
    if not (traffic.msg_count > 1).any():
        return records(1, ss.SERIES)
    series = records(traffic.n_msgs, ss.SERIES)
    series.n = traffic.msg_count
    series.n_let = np.clip(1 - traffic.msg_deps, 0, traffic.msg_count)
    series.block = traffic.msg_block
    series.blocks = traffic.msg_blocks
    series.longer = traffic.msg_longer
    series.gates = traffic.msg_gates
    return series


def cores_of(traffic: Traffic) -> npt.NDArray[np.int64]:
    """When each core is free: all at once, at the beginning. Core 0 stands for none."""
    return np.zeros(int(traffic.calc_core.max(initial=0)) + 1, np.int64)


def messages_of(traffic: Traffic, ends: Ends) -> tuple[Any, npt.NDArray[np.int32]]:
    """The messages and, behind them, the computations; and what they release: each one's `recv`
    row, then its `sent` row.
    """
    entry = records(traffic.n_entries, ss.MESSAGE_STATE)
    message = entry[: traffic.n_msgs]
    message.bytes = traffic.msg_bytes
    message.start_at = traffic.msg_start_ps
    message.compute_ps = traffic.msg_compute_ps
    message.many = traffic.msg_count > 1
    message.imm = traffic.msg_imm
    message.qp = ends.sender[traffic.msg_qp]
    calc = entry[traffic.n_msgs :]
    calc.start_at = traffic.calc_start_ps
    calc.compute_ps = traffic.calc_ps
    calc.qp = -1 - traffic.calc_core
    entry.deps = traffic.deps
    entry.posted_at = NO_TIME
    entry.done_at = NO_TIME
    entry.delivered_at = NO_TIME
    entry.recv0 = traffic.recv_first[:-1] + traffic.sent_first[:-1]
    entry.sent0 = traffic.recv_first[1:] + traffic.sent_first[:-1]
    entry.end = traffic.recv_first[1:] + traffic.sent_first[1:]
    release = np.zeros(len(traffic.recv_next) + len(traffic.sent_next), np.int32)
    for rows, first, to in (
        (traffic.recv_next, traffic.recv_first, entry.recv0),
        (traffic.sent_next, traffic.sent_first, entry.sent0),
    ):
        n = np.diff(first)
        release[np.repeat(to - first[:-1], n) + np.arange(len(rows))] = rows
    return entry, release
