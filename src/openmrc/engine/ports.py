"""What an endpoint knows of ports: its own, and through Port Status Updates its peers' (MRC 3.10,
row 19).

A port is a plane. A port that goes down leaves every QP's turn at once and all peers are told: an
ENDPOINT_REQUEST with the mask of ports that are up, repeated each RTO (doubling to 1 s) until
answered, and once a second while any port is down. A plane that a peer said is down is probed once
a second; an answer lifts the mark. The same request type carries the EV probes that keep the
reverse path fresh (MRC 3.9, row 14).
"""

from __future__ import annotations

from openmrc.engine import bits, nscc, paths
from openmrc.engine.packet import (
    CLASS_CONTROL,
    ENDPOINT_QPN,
    ENDPOINT_REQUEST,
    ENDPOINT_RESPONSE,
    OP_EV_PROBE,
    OP_PORT_STATUS,
    TIMESTAMP_UNIT_PS,
)
from openmrc.engine.state import (
    NEVER,
    OUT,
    OUT_MAX,
    PATHS_SINGLE,
    PLANES_MAX,
    REQUESTS,
    RTS,
    emit,
    signed,
)
from openmrc.jit import compiled, inlined, inner

REPEAT_MAX_PS = 1_000_000_000_000  # row 19: one second
PER_PEER_MAX = PLANES_MAX + 1  # packets that one peer may get at a deadline


@inner
def usable_rate(st, q):
    """Sum of the rates of the planes up at both ends, bit/s; the window's constants follow it (MRC
    4.6).
    """
    c = st.config[0]
    if c.paths == PATHS_SINGLE:
        return c.port_rate_bps
    up = paths.ports_up(st, q)
    n = 0
    for p in range(q.n_planes):
        n += (up >> p) & 1
    return n * c.port_rate_bps


@compiled
def refresh_qp(st, q, now):
    """Ports came or went: which planes take turns, which EVs to probe, the window's constants."""
    paths.refresh_planes(st, q)
    if q.n_bad > 0:
        q.ev_probe_at = now
    rate = usable_rate(st, q)
    if rate > 0:
        nscc.configure(q, st.config[0], rate)


@compiled
def open_qp(st, qi):
    """Bring a QP that has its sizes, paths and peer to RTS (MRC 1.7)."""
    q = st.qp[qi]
    q.cack = -1
    q.rx_high = -1
    q.tail_at = NEVER
    q.rto_at = NEVER
    q.ask_at = NEVER
    q.finish_at = NEVER
    q.ev_probe_at = NEVER
    q.reverse_probe_at = NEVER
    q.lost_hint = NEVER
    q.query_id = -1
    q.charged_at = -NEVER // 2
    q.evidence_at = -NEVER // 2
    q.cut_started = -NEVER // 2
    q.last_adjust = -NEVER // 2
    q.last_dec = -NEVER // 2
    q.tx_data_at = -NEVER // 2
    q.mpr_now = q.rx_mpr
    q.n_bad = 0
    for p in range(q.n_planes):
        plane = st.plane[q.plane0 + p]
        plane.delivered_at = -1
        plane.heard_at = -NEVER // 2
        plane.trial_id = -1
        plane.n_good = plane.n_evs
    for i in range(q.n_evs):
        e = st.ev[q.ev0 + i]
        e.probe_at = NEVER
        e.probe_id = -1
        e.demoted_at = -NEVER // 2
    q.state = RTS
    refresh_qp(st, q, 0)
    q.reorder_window = q.base_rtt


@inner
def _qps_of_peer(st, nic, remote, now):
    """Refresh all QPs between two endpoints."""
    n = st.nic[nic]
    for qi in range(n.qp0, n.qp0 + n.n_qps):
        if st.qp[qi].peer_nic == remote:
            refresh_qp(st, st.qp[qi], now)


@compiled
def set_local_port(st, nic, port, up, now):
    """The endpoint sees its own port go down or come up: QPs follow, peers are told."""
    n = st.nic[nic]
    mask = n.up_mask | (1 << port) if up else n.up_mask & ~(1 << port)
    if mask == n.up_mask:
        return
    n.up_mask = mask
    for qi in range(n.qp0, n.qp0 + n.n_qps):
        refresh_qp(st, st.qp[qi], now)
    for i in range(n.peer0, n.peer0 + n.n_peers):
        peer = st.peer[i]
        peer.pending = 1
        peer.next_at = now
        peer.spacing = st.qp[peer.qp].rto
        n.request_id = (n.request_id + 1) & 0xFFFF
        peer.request_id = n.request_id
    n.deadline = now


@inner
def _endpoint_packet(st, nic, remote, opcode, op, request, plane, ev, now):
    """Emit an endpoint request or response (MRC 2.10)."""
    p = emit(st)
    p.opcode = opcode
    p.reason = op
    p.src = nic
    p.dst = remote
    p.dst_qpn = ENDPOINT_QPN
    p.psn = request
    p.klass = CLASS_CONTROL
    p.plane = plane
    p.ev = ev
    p.port_mask = st.nic[nic].up_mask
    p.timestamp = (now // TIMESTAMP_UNIT_PS) & 0xFFFF


@inner
def find_peer(st, nic, remote):
    """Record of the pair (nic, remote), or -1; a NIC's peers are sorted by remote."""
    low = int(st.nic[nic].peer0)
    high = low + int(st.nic[nic].n_peers)
    while low < high:
        middle = (low + high) // 2
        if st.peer[middle].remote < remote:
            low = middle + 1
        else:
            high = middle
    end = st.nic[nic].peer0 + st.nic[nic].n_peers
    return low if low < end and st.peer[low].remote == remote else -1


@inner
def _next_plane(st, q, mask):
    """The next plane in turn out of a mask, or -1."""
    for step in range(1, q.n_planes + 1):
        p = (q.control_turn + step) % q.n_planes
        if (mask >> p) & 1:
            q.control_turn = p
            return p
    return -1


@compiled
def on_request(st, nic, p, now):
    """ENDPOINT_REQUEST: take the peer's port mask if it is a status; always answer, on the control
    class.
    """
    i = find_peer(st, nic, int(p.src))
    if i < 0:
        return
    peer = st.peer[i]
    newer = signed(int(p.psn) - peer.status_id, 16) >= 0  # an older one was overtaken on its way
    if p.reason == OP_PORT_STATUS and newer:
        peer.status_id = p.psn
        mask = int(p.port_mask) & ((1 << st.nic[nic].n_ports) - 1)
        if mask != peer.remote_mask:
            peer.remote_mask = mask
            peer.down_probe_at = now + REPEAT_MAX_PS
            st.nic[nic].deadline = min(st.nic[nic].deadline, peer.down_probe_at)
            _qps_of_peer(st, nic, int(p.src), now)
    q = st.qp[peer.qp]
    if p.reason == OP_EV_PROBE:
        # Back on the plane that works, on any path of which no ill is known: this end's reverse EV
        # may be as dead as the one that the peer wants to replace.
        plane = int(p.plane)
        ev = _believed_ev(st, q, plane, now)
    else:
        plane = _next_plane(st, q, paths.control_planes(st, q))
        ev = int(st.plane[q.plane0 + max(plane, 0)].reverse_ev)
    if plane >= 0:
        _endpoint_packet(
            st, nic, int(p.src), ENDPOINT_RESPONSE, int(p.reason), int(p.psn), plane, ev, now
        )


@inner
def _random_ev(st, q, plane_no, avoid):
    """The value of a random EV of a plane, of those that it has, good or bad, but not denied; not
    `avoid`, if there is any other.
    """
    plane = st.plane[q.plane0 + plane_no]
    if plane.n_evs == 0:
        return int(plane.reverse_ev)
    pick = bits.draw_below(st.stream, q.index, int(plane.n_evs))
    for _ in range(plane.n_evs):
        e = st.ev[q.ev0 + plane.ev0 + pick]
        if e.state != paths.DENIED and int(e.value) != avoid:
            return int(e.value)
        pick = pick + 1 if pick + 1 < plane.n_evs else 0
    return int(plane.reverse_ev)


@inner
def _believed_ev(st, q, plane_no, now):
    """The value of a random EV of a plane's rotation, if the plane delivered within the last RTO
    (as in row 12): what is known of its paths still holds. Else of any.
    """
    plane = st.plane[q.plane0 + plane_no]
    if plane.n_active == 0 or now - plane.heard_at >= q.rto:
        return _random_ev(st, q, plane_no, -1)
    first = q.order0 + plane_no * q.order_len
    ev = int(st.order[first + bits.draw_below(st.stream, q.index, int(plane.n_active))])
    return int(st.ev[q.ev0 + ev].value)


@compiled
def on_response(st, nic, p, now):
    """ENDPOINT_RESPONSE: a port status was heard, or a path proved itself."""
    i = find_peer(st, nic, int(p.src))
    if i < 0:
        return
    peer = st.peer[i]
    request = int(p.psn)
    if p.reason == OP_PORT_STATUS:
        if peer.pending and peer.request_id == request:
            peer.pending = 0
            _plan_status(st, nic, peer, now)
        return
    qi = int(st.request[nic * REQUESTS + request % REQUESTS])
    if qi < 0 or qi >= st.qp.shape[0] or st.qp[qi].nic != nic:
        return
    q = st.qp[qi]
    if q.peer_nic != p.src:
        return  # only who was asked can answer
    for k in range(q.n_planes):
        plane = st.plane[q.plane0 + k]
        if plane.trial_id == request:
            plane.trial_id = -1
            plane.reverse_ev = plane.trial_ev
            if not (peer.remote_mask >> k) & 1:
                peer.remote_mask |= 1 << k  # row 19: an answer lifts the mark
                _qps_of_peer(st, nic, int(p.src), now)


@inlined
def _plan_status(st, nic, peer, now):
    """After an answer: once a second while any own port is down, else never."""
    all_up = (1 << st.nic[nic].n_ports) - 1
    peer.next_at = NEVER if st.nic[nic].up_mask == all_up else now + REPEAT_MAX_PS
    st.nic[nic].deadline = min(st.nic[nic].deadline, peer.next_at)


@inner
def _probe_plane(st, nic, q, plane_no, now):
    """EV probe: a random EV of a plane; answered, it becomes the plane's reverse EV (MRC 3.9)."""
    plane = st.plane[q.plane0 + plane_no]
    if plane.n_evs == 0:
        return
    n = st.nic[nic]
    n.request_id = (n.request_id + 1) & 0xFFFF
    plane.trial_ev = _random_ev(st, q, plane_no, int(plane.reverse_ev))
    plane.trial_id = n.request_id
    st.request[nic * REQUESTS + n.request_id % REQUESTS] = q.index
    _endpoint_packet(
        st,
        nic,
        int(q.peer_nic),
        ENDPOINT_REQUEST,
        OP_EV_PROBE,
        int(n.request_id),
        plane_no,
        int(plane.trial_ev),
        now,
    )
    q.n_probe += 1


@compiled
def on_receiver_deadline(st, qi, now):
    """Each RTT in which a QP received but sent nothing: probe one reverse path, within the NIC's
    budget (row 14).
    """
    q = st.qp[qi]
    if q.reverse_probe_at > now:
        return
    if q.state != RTS or q.rx_heard_at <= now - 2 * q.base_rtt:
        q.reverse_probe_at = NEVER
        return
    q.reverse_probe_at = now + q.base_rtt
    if q.tx_data_at > now - q.base_rtt:
        return
    plane = _next_plane(st, q, paths.control_planes(st, q))
    if plane >= 0 and paths.take_probe_token(st, q.nic, now) == 0:
        _probe_plane(st, q.nic, q, plane, now)


@compiled
def on_deadline(st, nic, now):
    """Repeat port status where it is due, and probe planes that peers said are down."""
    n = st.nic[nic]
    again = NEVER
    all_up = (1 << n.n_ports) - 1
    for i in range(n.peer0, n.peer0 + n.n_peers):
        if st.count[OUT] > OUT_MAX - 1 - PER_PEER_MAX:
            again = now + 1  # no room for more at once: those left are still due
            break
        peer = st.peer[i]
        q = st.qp[peer.qp]
        if peer.next_at <= now:
            if not peer.pending:
                peer.pending = 1
                peer.spacing = q.rto
                n.request_id = (n.request_id + 1) & 0xFFFF
                peer.request_id = n.request_id
            plane = _next_plane(st, q, paths.control_planes(st, q))
            if plane >= 0:
                ev = int(st.plane[q.plane0 + plane].reverse_ev)
                _endpoint_packet(
                    st,
                    nic,
                    int(peer.remote),
                    ENDPOINT_REQUEST,
                    OP_PORT_STATUS,
                    int(peer.request_id),
                    plane,
                    ev,
                    now,
                )
            peer.next_at = now + peer.spacing
            peer.spacing = min(2 * peer.spacing, REPEAT_MAX_PS)
        if peer.remote_mask != all_up and peer.down_probe_at <= now:
            peer.down_probe_at = now + REPEAT_MAX_PS
            for k in range(q.n_planes):
                if not (peer.remote_mask >> k) & 1 and (n.up_mask >> k) & 1:
                    _probe_plane(st, nic, q, k, now)
        again = min(again, peer.next_at)
        if peer.remote_mask != all_up:
            again = min(again, peer.down_probe_at)
    n.deadline = again
