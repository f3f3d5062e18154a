"""From fabric, workload and MRC's transport to the arrays that its event loop runs on.

What is the same for every transport is in `network`. All of it is vectorised: 131,072 QPs are set
up in seconds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from openmrc import policies
from openmrc.engine import bits, paths
from openmrc.engine import state as es
from openmrc.fabric.actions import FaultSchedule
from openmrc.fabric.model import Fabric
from openmrc.sim import network
from openmrc.sim import state as ss
from openmrc.sim.derive import Derived
from openmrc.sim.network import (
    NO_TIME,
    SEED_NAMES,
    SEED_PATHS,
    SEED_QPS,
    Ends,
    Index,
    pow2_at_least,
    starts_of,
)
from openmrc.sim.transport import Queues, Transport
from openmrc.traffic import Traffic
from openmrc.wire import srv6
from openmrc.wire.framing import framing

# Paths among which a receive-only end keeps its reverse EVs fresh (MRC 3.9): in all, and per plane.
REVERSE_EVS, REVERSE_EVS_PER_PLANE_MIN = 32, 4
PACKETS_AT_START = 4096
# Arrays of packets have room for all that the windows allow, up to this many: what is not touched
# takes address space and no memory, and nothing is copied when more are wanted.
PACKETS_RESERVED_MAX = 1 << 22
SCOUT_ABOVE_BYTES = 4 << 20  # of QPs, windows and paths: beyond what caches hold beside packets
HASHED_EV_STEP = 0x9E37  # odd: the EVs of a QP differ, however many they are
MAX_WIMM = 128  # MRC 1.8
SHUFFLE_ROUNDS = 64  # row 13; htsim's balancers change the order each round

PATHS = {
    "mrc": es.PATHS_MRC,
    "oblivious": es.PATHS_OBLIVIOUS,
    "reps": es.PATHS_REPS,
    "single": es.PATHS_SINGLE,
}
CONGESTION = {"nscc": es.CC_NSCC, "none": es.CC_NONE}


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
    messages = network.rings_of(traffic)[ends.traffic_qp]
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
    network.introduce(st, ends, messages, names)
    q = st.qp
    q.peer = peer_of
    q.n_planes = planes
    q.plane0 = np.arange(ends.n) * planes
    q.slot0 = np.where(ends.sends, starts_of(n_slots), 0)
    q.slot_mask = np.where(ends.sends, slots - 1, 0)
    q.rmsg0 = np.where(ends.sends, 0, starts_of(n_receive))
    q.rmsg_mask = np.where(ends.sends, 0, messages - 1)
    q.acked0 = np.arange(ends.n) * words  # an end sends or receives: one ring serves
    q.rx0 = q.acked0
    q.ring_mask = ring_bits - 1
    q.mpr = derived.mpr_packets
    q.rx_mpr = derived.mpr_packets
    table.write(st, planes)
    st.stream[:] = bits.seed_streams(seed, SEED_QPS, ends.n)
    n = st.nic
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
    packets = min(max(PACKETS_AT_START, 2 * len(st.slot)), PACKETS_RESERVED_MAX)
    net = network.new_net(
        fabric,
        traffic,
        queues,
        derived,
        ends,
        st,
        schedule,
        seed,
        sizes=sizes,
        longest_bytes=sizes.data_bytes(transport.pmtu),
        pmtu=transport.pmtu,
        packets=packets,
        heap=2 * traffic.n_entries + 8 * ends.n + 2 * fabric.n_nics + 4096,
        reserve=network.heap_reserve(traffic),
    )
    net = net._replace(unit=_units(net.qp, traffic, ends, transport, st))
    net.qp.flow = ends.traffic_qp + 1
    c = net.ctl[0]
    c.ev_base = fabric.ev_base
    c.up0_shift = fabric.ev_up0_shift
    c.up0_mask = (1 << fabric.ev_up0_bits) - 1
    c.up1_shift = fabric.ev_up1_shift
    c.up1_mask = (1 << fabric.ev_up1_bits) - 1
    c.plane_shift = fabric.ev_plane_shift
    c.trimmed_bytes = sizes.trimmed_bytes
    c.hashed = transport.hashed
    c.hashes_tuple = not transport.srv6
    c.one_data_class = transport.rules == "peer"
    c.trim = queues.trim
    c.single = transport.paths == "single"
    c.scouts = st.qp.nbytes + st.slot.nbytes + st.ev.nbytes > SCOUT_ABOVE_BYTES
    c.convergence_ps = transport.convergence_ps
    c.rerouted_at = NO_TIME
    network.free_list(net, 0, PACKETS_AT_START - 1)  # the last one is a spare, for exchanges
    if queues.by_usid and not transport.hashed:
        net = _by_usid(net, fabric)
    noted = ss.EVENTS_BETWEEN_CHECKS * network.PORTS_OF_AN_EVENT + net.ctl[0].n_nic_ports
    return network.with_taps(net, tapped, int(noted))


def _by_usid(net: ss.Net, fabric: Fabric) -> ss.Net:
    """The same network, forwarding by the destination addresses that its packets carry."""
    tables, speller = srv6.of_fabric(fabric)
    net.ctl[0].by_usid = 1
    return net._replace(
        carrier=np.zeros((len(net.hop), srv6.ADDRESS_BYTES), np.uint8),
        usid_switch=tables.switch,
        usid_slots=tables.slots,
        usid_scheme=speller.scheme,
        usid_nic=speller.nic,
    )


def units_of(traffic: Traffic, pmtu: int) -> Index:
    """Units of payload, one PMTU of one message each, by QP."""
    return np.bincount(traffic.msg_qp, traffic.packets(pmtu), traffic.n_qps).astype(np.int64)


def _units(
    qp: Any, traffic: Traffic, ends: Ends, transport: Transport, st: es.State
) -> npt.NDArray[np.uint16]:
    """The units of payload of all rings, and where each sender's are: what a window holds, or all
    that a QP carries if that is less.
    """
    slots = st.qp.slot_mask[ends.sender] + 1
    digits = np.ceil(np.log2(np.maximum(units_of(traffic, transport.pmtu), 1))).astype(np.int64)
    ring = np.minimum(1 << digits, slots)
    qp.unit0[ends.sender] = starts_of(ring)
    qp.unit_mask[ends.sender] = ring - 1
    return np.zeros(int(ring.sum()), np.uint16)
