"""Creates an endpoint: the State with its configuration, the place of each queue pair in its
arrays, paths, peers; and leads its queue pairs through their life (the table of `qp.py`).

In this order: `new_state`, `set_nics`, `set_peers`; for each QP `identify`, `set_paths`, once for
each plane in ascending order, then `open_qp`. All but `open_qp` works on arrays: 131,072 QPs of a
simulation are laid out at once, and one QP of a live device by the same code. A live device, whose
QPs come and go, uses `reset_qp`, `agree`, `add_peer`, `open_qp`, and `close_qp` for each.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from openmrc.engine import account, ev, nscc, place, policy, ports, probes, timers
from openmrc.engine import packet as pk
from openmrc.engine import state as es
from openmrc.engine.parameters import RECORDED, RTO_UNIT_PS, Parameters, completed
from openmrc.engine.policy import CC_OWN, CONGESTION, OWN_PATHS, PATHS, PATHS_REPS
from openmrc.engine.state import ERROR, NEVER, RESET, RTS, State
from openmrc.jit import compiled, records
from openmrc.units import S

Index = npt.NDArray[np.int64]

BITMAP_SLACK = 256  # bits of a bitmap ring beyond the window: blocks reported again, and cleared
LONG_AGO = -NEVER // 2
KEEP_PERCENT = 25  # row 12


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
    rings_of_evs = PATHS.get(given.paths, OWN_PATHS).number == PATHS_REPS
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
        nscc=records(es.NSCCS, es.NSCC),
        stream=np.ones(n, np.uint64),
        own=np.zeros((n if brought else 1, policy.OWN)),
        reps=records(n * planes if rings_of_evs else 1, es.REPS),
        out=records(es.OUT_MAX, pk.PACKET),
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


def bare_state(nics: int, qps: int, sends: Index) -> State:
    """Return a State for a transport with rules of its own: the identity of its queue pairs, all
    open, and their rings of `sends` messages, a power of two or 0 for each.
    """
    one = Rooms(qps=1, planes=1, mpr=1, sends=1, receives=0, evs=1, order_len=1)
    st = new_state(Parameters(), one, nics=nics, peers=1, regions=1)._replace(
        config=records(1, es.CONFIG),
        qp=records(qps, es.QP),
        message=records(max(int(sends.sum()), 1), es.MESSAGE),
        stream=np.ones(qps, np.uint64),
    )
    st.qp.index = np.arange(qps)
    st.qp.msg0, st.qp.msg_mask = rings(sends)
    st.qp.state = RTS
    return st


def share(st: State, qp0: int) -> State:
    """Return the same State for a thread of its own, that drives the queue pairs from `qp0` on:
    with its own lists of what a call wants to send and has completed, and its own account.
    """
    own = account.emptied(
        st._replace(out=st.out.copy(), done=st.done.copy(), count=st.count.copy())
    )
    if qp0 < len(st.qp):  # the BLAME records of its own EVs
        own.count[es.BLAMED] = int(st.qp[qp0].ev0)
    return own


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
    c.path_choose = c.path_learn = chosen.chooses
    c.cc = CONGESTION.get(given.cc, CC_OWN)
    c.rto_base_ps = RTO_UNIT_PS << given.rto_exponent
    c.ignore_marks = not given.ecn_skip
    c.skip_turns = policy.skip_turns(given.skip_turns or "rtt")
    for name, value in world.items():
        c[name] = value


def set_nics(st: State, planes: int, data_packet_bytes: int) -> None:
    """Bring up all ports of all NICs; `data_packet_bytes` is the longest packet on the wire
    (row 11).
    """
    n = st.nic
    n.n_ports = planes
    n.up_mask = (1 << planes) - 1
    c = st.config[0]
    share_bytes = probes.PROBE_SHARE * int(c.port_rate_bps) * planes / 8 / S
    n.probe_rate[:, probes.OF_PATHS] = share_bytes / data_packet_bytes
    n.probe_rate[:, probes.OF_QUEUE_PAIRS] = share_bytes / (data_packet_bytes - int(c.pmtu))
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


# Who a queue pair is, and who its peer is: fields of QP.
IDENTITY = frozenset({"nic", "qpn", "first_psn", "peer", "peer_nic", "peer_qpn", "peer_psn"})


def identify(q: Any, **values: Any) -> None:
    """Write fields of `IDENTITY` of one queue pair, or of many."""
    for name in values.keys() & IDENTITY:
        q[name] = values[name]
    if unknown := values.keys() - IDENTITY:
        raise TypeError(f"{sorted(unknown)}: {sorted(IDENTITY)} are accepted")


def limit(st: State, qi: int, mpr: int, max_wimm: int) -> None:
    """Lower a queue pair's limits of packets and of immediates in flight, if they are above these;
    that of immediates is the endpoint's.
    """
    q, c = st.qp[qi], st.config[0]
    q.mpr = min(int(q.mpr), mpr)
    c.max_wimm = min(int(c.max_wimm), max_wimm)


def agree(st: State, qi: int, *, trim_nack: bool, dynamic_mpr: bool) -> None:
    """Use what the peer enables too: trimming, a dynamic MPR (MRC 1.9, 1.5)."""
    q = st.qp[qi]
    q.untrimmable = not trim_nack
    q.dynamic_mpr = bool(q.dynamic_mpr) and dynamic_mpr


def set_receives(st: State, qi: int, n: int) -> None:
    """The application has `n` receives posted."""
    st.qp[qi].receives = n


def set_penalty(st: State, qi: int, level: int) -> None:
    """From now on each SACK asks the peer to give up `level` / 128 of its window per round trip
    (MRC 4.8), 1 to 127; 0 ends that, and lets the peer restore its window.
    """
    st.qp[qi].penalty = level or pk.RESTORE


def set_reverse(st: State, plane: int, value: int) -> None:
    """Give all queue pairs this EV for control packets on a plane where they have none."""
    st.plane.reverse_ev[st.qp.plane0 + plane] = value


def planes_up(st: State, q: Any) -> list[int]:
    """The planes of a queue pair whose ports are up at both ends."""
    mask = int(st.nic[int(q.nic)].up_mask) & int(st.peer[int(q.peer)].remote_mask)
    return [k for k in range(int(q.n_planes)) if mask >> k & 1]


def set_base_rtt(st: State, nic: int, t_ps: int, now: int) -> None:
    """T is this for the open queue pairs of a NIC, and for all later ones; those that have sent
    nothing start with its window (MRC 4.6).
    """
    st.config[0].base_rtt_ps = t_ps
    for q in _open_qps(st, nic):
        if not q.cc:
            q.base_rtt = t_ps
        _configure_again(st, q, now)


def set_pmtu(st: State, nic: int, size: int, now: int) -> None:
    """Full packets of a NIC carry `size` bytes from now on (row 20); its open queue pairs have
    neither sent nor received any.
    """
    st.config[0].pmtu = size
    for q in _open_qps(st, nic):
        _configure_again(st, q, now)


def has_begun(q: Any) -> bool:
    """Whether a queue pair has sent or received any data."""
    return bool(q.nxt > 0 or q.rx_high >= 0)


def _open_qps(st: State, nic: int) -> list[Any]:
    n = st.nic[nic]
    return [q for q in st.qp[int(n.qp0) : int(n.qp0 + n.n_qps)] if q.state == RTS]


def _configure_again(st: State, q: Any, now: int) -> None:
    """Constants of the configuration have changed."""
    if q.nxt == 0:
        q.cwnd = 0.0  # not started
    ports.refresh_qp(st, q, now)


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
        p.keep = KEEP_PERCENT
        if n > 0:
            p.reverse_ev = values[row, 0]
        for i in range(n):
            e = st.ev[q.ev0 + first + i]
            e.value = values[row, i]
            e.plane = plane
            e.active = i < active
        for i in range(active):
            st.order[q.order0 + plane * q.order_len + i] = first + i


def age(st: State, qi: int, messages: int, n_bytes: int, number: int) -> None:
    """An idle queue pair has carried so much in each direction, and the last probe of it and the
    last request of its NIC had this `number`: its counters may be about to wrap.
    """
    q = st.qp[qi]
    q.msg_end = q.msg_cur = q.msg_done = q.rx_msn = q.rqmsn_next = messages
    q.rx_bytes = q.sent_bytes = n_bytes
    q.rcvd_high = n_bytes // pk.RCVD_UNIT_BYTES
    q.probe_id = st.nic[q.nic].request_id = number


def keep_in_service(st: State, qi: int, percent: int) -> None:
    """Planes of a queue pair that deliver keep this part of their EVs in service (row 12)."""
    st.plane.keep[place.planes(st.qp[qi])] = percent


def use_no_plane_without_paths(st: State, qi: int) -> None:
    """Control packets take no plane on which a queue pair was given no EV."""
    q = st.qp[qi]
    for k, n in enumerate(st.plane.n_evs[place.planes(q)].tolist()):
        q.planes_denied |= (n == 0) << k


def set_nscc(st: State, number: int, **values: Any) -> None:
    """Write values of a controller for NSCC: fields of `state.NSCC`."""
    for name, value in values.items():
        st.nscc[number][name] = value


def obey_nscc(st: State, qi: int, number: int, now: int) -> None:
    """A queue pair obeys a record of `nscc` from now on; 0: values that follow from rate and T."""
    q = st.qp[qi]
    q.cc = number
    q.base_rtt = st.nscc[number].base_rtt if number else st.config[0].base_rtt_ps
    if q.state == RTS:
        ports.refresh_qp(st, q, now)


def derived_nscc(st: State, rate_bps: int) -> dict[str, float]:
    """Return what NSCC derives from a rate and T: fields of `state.NSCC`."""
    q, c = records(1, es.QP)[0], st.config[0]
    nscc.configure(q, c, rate_bps, 1)
    names = ("eta", "fi", "fi_scale", "max_wnd", "base_rtt", "target", "qa_threshold")
    return {name: q[name].item() for name in names} | {
        "gamma": nscc.GAMMA,
        "max_md_jump": nscc.MAX_MD_JUMP,
        "adjust_bytes": float(nscc.ADJUST_PACKETS * q.pkt),
        "adjust_ps": int(c.base_rtt_ps),
        "qa_gate": nscc.QA_GATE,
        "without_qa": 0,
        "without_cc": 0,
    }


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
    if st.config[0].guarded:
        st.guard[qi].answers_at = LONG_AGO  # it begins with all the answers at once (plausible.py)
    ev.begin(st, q)
    for k in range(q.n_planes):
        plane = st.plane[q.plane0 + k]
        plane.delivered_at = -1
        plane.delivers = ev.WHOLE
        plane.heard_at = LONG_AGO
        plane.trial_id = plane.proven = plane.clean = -1
    q.state = RTS
    ports.refresh_qp(st, q, 0)
    if st.config[0].check_paths:
        probes.check_all(st, q, 0)
    q.doubted_end = 0


# --- queue pairs that come and go


def reset_qp(st: State, qi: int, unused: Any) -> None:
    """Empty a QP and all that belongs to it; `unused` is its record as `new_state` left it. A live
    NIC counts its queue pairs up to the highest ever used.
    """
    st.qp[qi] = unused
    q = st.qp[qi]
    evs = st.ev[place.room_for_evs(st, qi)]
    blame = evs.blame.copy()  # an EV's BLAME record stays with its slot
    for part in (
        st.slot[place.slots(q)],
        st.message[place.messages(q)],
        st.rx_message[place.rx_messages(q)],
        st.plane[place.planes(q)],
        st.bits[int(q.acked0) : int(2 * q.rx0 - q.acked0)],
        st.guard[qi : qi + 1],
        evs,
    ):
        part[:] = np.zeros((), part.dtype)
    evs.blame = blame
    n = st.nic[int(q.nic)]
    n.n_qps = max(int(n.n_qps), qi + 1 - int(n.qp0))


def close_qp(st: State, qi: int) -> None:
    """Return a QP to RESET, and forget its peer if no other open QP leads there. Its record must be
    reset before it is used again.
    """
    q = st.qp[qi]
    q.state = RESET
    q.n_planes = 0
    _leave_peer(st, qi)


def add_peer(st: State, nic: int, remote: int, qi: int, planes: int) -> int:
    """Return the record of the pair of a NIC and a remote one, reached by this QP. A NIC's peers
    are sorted, and State has no other NIC with any.
    """
    n = st.nic[nic]
    known = int(n.n_peers)
    at = int(np.searchsorted(np.asarray(st.peer.remote[:known]), remote))
    if at == known or st.peer[at].remote != remote:
        st.peer[at + 1 : known + 1] = st.peer[at:known].copy()
        _renumber(st, at, 1)
        st.peer[at] = np.zeros((), es.PEER)
        set_peers(st.peer[at], remote, qi, planes)
        n.n_peers = known + 1
    return at


def _leave_peer(st: State, qi: int) -> None:
    """The pairs that a QP led to are reached by another one, or dropped."""
    q = st.qp
    n = st.nic[int(q[qi].nic)]
    same = np.asarray(q.peer_nic) == q[qi].peer_nic
    others = np.flatnonzero(same & (np.asarray(q.state) == RTS))
    known = int(n.n_peers)
    for at in np.flatnonzero(np.asarray(st.peer.qp[:known]) == qi)[:1].tolist():
        if len(others):
            st.peer[at].qp = others[0]
            return
        st.peer[at : known - 1] = st.peer[at + 1 : known].copy()
        _renumber(st, at + 1, -1)
        n.n_peers = known - 1


def _renumber(st: State, first: int, by: int) -> None:
    """Records of pairs from `first` on have moved."""
    q = st.qp
    opened = (np.asarray(q.state) == RTS) | (np.asarray(q.state) == ERROR)
    q.peer[opened & (np.asarray(q.peer) >= first)] += by
