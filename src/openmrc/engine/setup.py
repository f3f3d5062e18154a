"""Creates an endpoint: the State with its configuration, the place of each queue pair in its
arrays, paths, peers, and the opening of queue pairs.

All but `open_qp` works on arrays: 131,072 QPs of a simulation are laid out at once, and one QP of a
live device by the same code. In this order: `new_state`, `set_nics`, `set_peers`; for each QP
`set_paths`, once for each plane in ascending order, then `open_qp`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from openmrc.engine import account, ev, policy, ports, probes, timers
from openmrc.engine import state as es
from openmrc.engine.packet import PACKET
from openmrc.engine.parameters import RECORDED, RTO_UNIT_PS, Parameters, completed
from openmrc.engine.policy import CC_OWN, CONGESTION, OWN_PATHS, PATHS, PATHS_REPS
from openmrc.engine.state import NEVER, RTS, State
from openmrc.jit import compiled, records
from openmrc.units import PS_BITS, S

Index = npt.NDArray[np.int64]

BITMAP_SLACK = 256  # bits of a bitmap ring beyond the window: blocks reported again, and cleared
LONG_AGO = -NEVER // 2


def pow2_at_least(n: int) -> int:
    """The smallest power of two that is `n` or more."""
    return 1 << max(n - 1, 0).bit_length()


def starts_of(sizes: Index) -> Index:
    """Start of each of these consecutive runs."""
    return np.concatenate([[0], np.cumsum(sizes)[:-1]]) if len(sizes) else np.zeros(0, np.int64)


def rings(sizes: Index) -> tuple[Index, Index]:
    """First index and mask of consecutive rings of these sizes, powers of two; both are 0 for an
    empty ring.
    """
    return np.where(sizes > 0, starts_of(sizes), 0), np.maximum(sizes - 1, 0)


class Rooms(NamedTuple):
    """Capacities of the queue pairs: one number for all, or an array with one for each.

    `sends` and `receives` are messages, powers of two; 0 for a QP that does not send or receive. A
    window has `mpr` packets, or the power of two above `carries` where that is less.
    """

    qps: int
    planes: int
    mpr: int
    sends: Any
    receives: Any
    evs: Any  # of all planes
    order_len: Any  # of the rotation of one plane
    carries: Any = NEVER  # packets that a QP sends in all, where that is known


def _slots(rooms: Rooms) -> Index:
    """Slots of a QP that sends. One more than the packets suffices: a ring that never wraps behaves
    like the longest.
    """
    most = pow2_at_least(rooms.mpr)
    carries = np.minimum(np.asarray(rooms.carries, np.int64), most - 1)
    return 1 << np.frexp(carries.astype(np.float64))[1].astype(np.int64)


def new_state(
    parameters: Parameters, rooms: Rooms, *, nics: int, peers: int, regions: int, **world: int
) -> State:
    """Return a State of this capacity, with every queue pair in its place, in RESET.

    `world` are the fields of CONFIG that the surrounding world sets, by name.
    """
    given = completed(parameters)
    n, planes = rooms.qps, rooms.planes
    sends, receives, evs, order_len = (
        np.broadcast_to(np.asarray(each, np.int64), n)
        for each in (rooms.sends, rooms.receives, rooms.evs, rooms.order_len)
    )
    slots = np.where(sends > 0, _slots(rooms), 0)
    words = pow2_at_least(rooms.mpr + BITMAP_SLACK) // 64
    both = (sends > 0) & (receives > 0)  # these need two bitmaps, others one
    bitmaps = np.where(both, 2 * words, words)
    messages, rx_messages = max(int(sends.sum()), 1), max(int(receives.sum()), 1)
    guarded = bool(world.get("guarded"))
    brought = given.paths not in PATHS or given.cc not in CONGESTION
    recycles = PATHS.get(given.paths, OWN_PATHS).number == PATHS_REPS
    st = State(
        config=records(1, es.CONFIG),
        qp=records(n, es.QP),
        slot=records(max(int(slots.sum()), 1), es.SLOT),
        plane=records(n * planes, es.PLANE),
        ev=records(int(evs.sum()), es.EV),
        blame=records(int(evs.sum()) + 1, es.BLAME),
        order=np.zeros(int(order_len.sum()) * planes, np.int16),
        message=records(messages, es.MESSAGE),
        rx_message=records(rx_messages, es.RX_MESSAGE),
        bits=np.zeros(int(bitmaps.sum()), np.uint64),
        under_way=records(rx_messages if guarded else 1, es.UNDER_WAY),
        guard=records(n if guarded else 1, es.GUARD),
        marks=records(n * es.MARKS_PER_QP if given.always_skip_after > 0 else 1, es.MARKS),
        region=records(regions, es.REGION),
        nic=records(nics, es.NIC),
        peer=records(peers, es.PEER),
        request=np.full(nics * es.REQUESTS, -1, np.int32),
        stream=np.ones(n, np.uint64),
        own=np.zeros((n if brought else 1, policy.OWN)),
        reps=records(n * planes if recycles else 1, es.REPS),
        out=records(es.OUT_MAX, PACKET),
        done=records(es.DONE_MAX, es.COMPLETION),
        account=records(1, account.RECORD),
        tally=np.zeros((1, 2), np.int32),
        count=np.zeros(es.COUNTS, np.int64),
    )
    configure(st.config[0], parameters, **world)
    st.blame[0] = ev.INNOCENT
    q = st.qp
    q.index = np.arange(n)
    q.n_planes = planes
    q.plane0 = np.arange(n) * planes
    q.mpr = rooms.mpr
    q.rx_mpr = rooms.mpr
    q.untrimmable = not given.trim_nack  # until a peer says otherwise
    q.dynamic_mpr = given.dynamic_mpr
    q.slot0, q.slot_mask = rings(slots)
    q.msg0, q.msg_mask = rings(sends)
    q.rmsg0, q.rmsg_mask = rings(receives)
    q.acked0 = starts_of(bitmaps)
    q.rx0 = q.acked0 + np.where(both, words, 0)
    q.ring_mask = words * 64 - 1
    q.ev0 = starts_of(evs)
    q.order_len = order_len
    q.order0 = starts_of(order_len * planes)
    return st


def configure(c: Any, parameters: Parameters, **world: int) -> None:
    """Write the CONFIG record: parameters, values derived from them, and those that the surrounding
    world sets.
    """
    given = completed(parameters)
    for name, _ in RECORDED:
        c[name] = getattr(given, name)
    chosen = PATHS.get(given.paths, OWN_PATHS)
    c.paths = chosen.number
    c.reverse = chosen.reverse
    c.path_choose = c.path_learn = policy.BUILT_IN if chosen.chooses else 0
    c.cc = CONGESTION.get(given.cc, CC_OWN)
    c.rto_base_ps = RTO_UNIT_PS << given.rto_exponent
    c.ignore_marks = not given.ecn_skip
    for name, value in world.items():
        c[name] = value


def set_nics(st: State, planes: int, data_packet_bytes: int) -> None:
    """Bring up all ports of all NICs; `data_packet_bytes`, the longest packet on the wire, is the
    unit of the probe budget (row 11).
    """
    n = st.nic
    n.n_ports = planes
    n.up_mask = (1 << planes) - 1
    rate_bps, packet_bits = int(st.config[0].port_rate_bps), 8 * data_packet_bytes
    n.probe_rate = probes.PROBE_SHARE * rate_bps * planes / packet_bits / S
    n.probe_tokens[:] = np.inf  # full: `take_probe_token` limits it to the burst
    n.deadline = NEVER
    n.silent_until = LONG_AGO


def set_peers(peer: Any, remote: Any, qp: Any, planes: int) -> None:
    """Fill records of PEER, one or many: `remote` is reached by `qp`, and all its ports are up."""
    peer.remote = remote
    peer.qp = qp
    peer.remote_mask = (1 << planes) - 1
    peer.next_at = NEVER
    peer.down_probe_at = NEVER


def set_paths(st: State, qps: Index, plane: int, values: Index, active: int) -> None:
    """Give queue pairs their EVs of one plane, `values` [qp, k]; the first `active` of each are in
    the rotation, the others backup (MRC 3.1).
    """
    _lay_paths(st, qps, plane, np.ascontiguousarray(values, np.int64), active)


@compiled
def _lay_paths(st, qps, plane, values, active):
    """The same, EV by EV: NumPy takes ten times as long to write columns of scattered records."""
    n = values.shape[1]
    for row in range(qps.shape[0]):
        q = st.qp[qps[row]]
        first = int(q.n_evs)  # after those of the planes before
        q.n_evs = first + n
        p = st.plane[q.plane0 + plane]
        p.ev0 = first
        p.n_evs = n
        p.n_active = active
        p.share = active
        if n > 0:
            p.reverse_ev = values[row, 0]
        for i in range(n):
            e = st.ev[q.ev0 + first + i]
            e.value = values[row, i]
            e.plane = plane
            e.active = i < active
        for i in range(active):
            st.order[q.order0 + plane * q.order_len + i] = first + i


@compiled
def open_qp(st, qi):
    """Bring a QP that has its place, paths and peer to RTS (MRC 1.7)."""
    q = st.qp[qi]
    q.cack = q.rx_high = q.rx_done = q.query_id = q.lost_plane = -1
    timers.stop(q)
    q.lost_hint = NEVER
    q.charged_at = q.evidence_at = q.again_evidence_at = q.cut_started = LONG_AGO
    q.doubt = q.rtt_least = q.answer_at = NEVER
    q.quiet_from = q.quiet_until = LONG_AGO
    q.asked_seq = q.probed_bytes = -1
    q.came_now = q.came_before = -1  # all planes deliver until a view shows otherwise
    q.last_adjust = q.last_dec = q.tx_data_at = LONG_AGO
    q.trimmed_at = q.trimmed_units = LONG_AGO
    q.mpr_now = q.rx_mpr
    ev.begin(st, q)
    for k in range(q.n_planes):
        plane = st.plane[q.plane0 + k]
        plane.delivered_at = -1
        plane.heard_at = LONG_AGO
        plane.trial_id = plane.proven = plane.clean = -1
    q.state = RTS
    ports.refresh_qp(st, q, 0)
    if st.config[0].check_paths:
        probes.check_all(st, q, 0)
    q.doubted_end = 0
    q.two_packets = int(2.0 * q.pkt * PS_BITS / st.config[0].port_rate_bps)
