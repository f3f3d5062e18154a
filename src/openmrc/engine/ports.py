"""An endpoint's view of ports: its own, and its peers' through Port Status Updates (MRC 3.10, row
19).

A port is a plane. When a port goes down, every QP stops using it at once and all peers are
informed: an ENDPOINT_REQUEST with the mask of ports that are up, repeated each RTO (doubling to 1
s) until answered, and once a second while any port is down. A plane that a peer reported as down is
probed once a second; an answer clears that state. The same request type carries the EV probes that
keep the reverse path fresh (MRC 3.9, row 14).
"""

from __future__ import annotations

from openmrc.engine import account, loss, nic_planes, place, pool, probes, rotation
from openmrc.engine import packet as pk
from openmrc.engine import state as es
from openmrc.engine.account import OWN, PEERS, PORT_DOWN, PORT_UP
from openmrc.engine.parameters import PLANES_MAX
from openmrc.engine.verdict import CONTRADICTORY, HEARD, NO_PEER, OUT_OF_PLACE
from openmrc.jit import compiled, inlined, inner
from openmrc.units import S

REPEAT_MAX_PS = S  # row 19: one second
PER_PEER_MAX = PLANES_MAX + 1  # packets that one peer may receive at one deadline


@compiled
def refresh_qp(st, q, now):
    """Ports went down or came up: update which planes take turns, which EVs to probe, and the
    window's constants.
    """
    rotation.refresh_planes(st, q, now)
    if q.n_bad > 0:
        q.ev_probe_at = now
    if pool.configure(st, q, pool.senders(st, q) if st.config[0].share_window else 1):
        return
    if q.state == es.RTS and not loss.outstanding(q):
        loss.first_sent(q, now)  # also if nothing can be sent: without timers a QP never fails


@inner
def _qps_of_peer(st, nic, remote, now):
    """Refresh all QPs between two endpoints."""
    n = st.nic[nic]
    for qi in range(n.qp0, n.qp0 + n.n_qps):
        if st.qp[qi].peer_nic == remote:
            refresh_qp(st, st.qp[qi], now)


@compiled
def set_local_port(st, nic, port, up, now):
    """The endpoint's own port goes down or comes up: update its QPs and inform its peers."""
    n = st.nic[nic]
    mask = n.up_mask | (1 << port) if up else n.up_mask & ~(1 << port)
    if mask == n.up_mask:
        return
    n.up_mask = mask
    account.note_plane(st, nic, -1, port, PORT_UP if up else PORT_DOWN, OWN, now)
    for qi in range(n.qp0, n.qp0 + n.n_qps):
        refresh_qp(st, st.qp[qi], now)
    for i in range(n.peer0, n.peer0 + n.n_peers):
        peer = st.peer[i]
        peer.next_at = now
        _begin_status(st, n, peer)
    n.deadline = now


@inner
def _set_remote(st, nic, peer, mask, now):
    """Ports of a peer went down or came up."""
    for k in range(st.nic[nic].n_ports):
        if (peer.remote_mask ^ mask) >> k & 1:
            what = PORT_UP if mask >> k & 1 else PORT_DOWN
            account.note_plane(st, nic, peer.qp, k, what, PEERS, now)
    peer.remote_mask = mask


@inlined
def _begin_status(st, n, peer):
    """Start sending the port status to a peer, at first every RTO, until it is answered."""
    peer.pending = 1
    peer.spacing = st.qp[peer.qp].rto
    peer.request_id = _next_request(n)


@inlined
def _next_request(n):
    """The id of a NIC's next request."""
    n.request_id = (n.request_id + 1) & 0xFFFF
    return n.request_id


@inlined
def emit(st, opcode, nic, remote, plane):
    """Emit an endpoint request or response (MRC 2.10); the caller sets the EV."""
    p = es.emit(st, opcode)
    p.src = nic
    p.dst = remote
    p.dst_qpn = pk.ENDPOINT_QPN
    p.klass = pk.CLASS_CONTROL
    p.plane = plane
    return p


@inlined
def ask(st, nic, remote, op, ports_up, plane, ev, both_ways):
    """Emit a request that is not the engine's own, on EV `ev` (-1: that of control packets, if a QP
    leads to `remote`). The NIC there answers at once, and reflects the number that this returns;
    with `both_ways` a probe of an EV is answered on that EV. `ports_up` is the mask that a port
    status tells.
    """
    number = _next_request(st.nic[nic])
    st.request[nic * es.REQUESTS + number % es.REQUESTS] = -1  # no QP waits for the answer
    i = find_peer(st, nic, remote)
    if ev < 0 and i >= 0:
        ev = int(st.plane[place.plane(st.qp[st.peer[i].qp], plane)].reverse_ev)
    p = emit(st, pk.ENDPOINT_REQUEST, nic, remote, plane)
    p.reason = op
    p.ev = max(ev, 0)
    p.psn = number
    if op == pk.OP_PORT_STATUS:
        p.imm = ports_up
    elif ev >= 0 and both_ways:
        p.m = pk.SAME_EV
    return number


@inlined
def _emit(st, opcode, nic, remote, plane, ev, now):
    """The same for either opcode, with the EV and the time."""
    p = emit(st, opcode, nic, remote, plane)
    p.ev = ev
    p.timestamp = es.timestamp_of(now)
    return p


@inner
def _request(st, q, op, request, plane, ev, now):
    """Emit a request to the peer of a QP."""
    p = _emit(st, pk.ENDPOINT_REQUEST, q.nic, q.peer_nic, plane, ev, now)
    p.reason = op
    if op == pk.OP_PORT_STATUS:  # row 32: it is 0 in a probe
        p.imm = st.nic[q.nic].up_mask
    p.psn = request


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
    """The next plane of a mask in turn, or -1."""
    for step in range(1, q.n_planes + 1):
        p = (q.control_turn + step) % q.n_planes
        if (mask >> p) & 1:
            q.control_turn = p
            return p
    return -1


@inner
def on_packet(st, nic, p, now):
    """Handle an ENDPOINT_REQUEST or ENDPOINT_RESPONSE for a NIC; returns the verdict."""
    if p.dst_qpn != pk.ENDPOINT_QPN or (
        p.reason != pk.OP_EV_PROBE and p.reason != pk.OP_PORT_STATUS
    ):
        return OUT_OF_PLACE
    i = find_peer(st, nic, int(p.src))
    if i < 0:
        if p.opcode == pk.ENDPOINT_RESPONSE or p.reason != pk.OP_EV_PROBE:
            return NO_PEER
        _answer(st, nic, p, int(p.plane), int(p.ev), now)
        return HEARD
    if p.opcode == pk.ENDPOINT_RESPONSE:
        _on_response(st, nic, st.peer[i], p, now)
        return HEARD
    if p.reason == pk.OP_PORT_STATUS and (int(p.imm) >> int(p.plane)) & 1 == 0:
        return CONTRADICTORY  # a port that is down cannot have sent this status
    _on_request(st, nic, st.peer[i], p, now)
    return HEARD


@inner
def _on_request(st, nic, peer, p, now):
    """Accept the peer's port mask if it is a status; always answer, on the control class."""
    newer = es.signed(int(p.psn) - peer.status_id, 16) >= 0  # an older one was overtaken
    if p.reason == pk.OP_PORT_STATUS and newer:
        peer.status_id = p.psn
        mask = int(p.imm) & ((1 << st.nic[nic].n_ports) - 1)
        if mask != peer.remote_mask:
            _set_remote(st, nic, peer, mask, now)
            peer.down_probe_at = now + REPEAT_MAX_PS
            st.nic[nic].deadline = min(st.nic[nic].deadline, peer.down_probe_at)
            _qps_of_peer(st, nic, int(p.src), now)
    q = st.qp[peer.qp]
    if p.reason == pk.OP_EV_PROBE:
        # The plane works, so the answer takes it. A controller asks of one path both ways, whatever
        # this end believes of it. A QP asks of the way there alone, so it is answered on any path
        # that is not known to be bad: this end's reverse EV may be as dead as the one that the peer
        # wants to replace.
        plane = int(p.plane)
        chooses = st.plane[q.plane0 + plane].n_evs > 0 and int(p.m) & pk.SAME_EV == 0
        ev = _believed_ev(st, q, plane, now) if chooses else int(p.ev)
    else:
        plane = _next_plane(st, q, rotation.control_planes(st, q))
        ev = int(st.plane[q.plane0 + max(plane, 0)].reverse_ev)
    if plane >= 0:
        _answer(st, nic, p, plane, ev, now)


@inner
def _answer(st, nic, p, plane, ev, now):
    """Answer a request. A NIC to which no QP leads is answered on the plane and the EV of its
    probe: both directions of an EV cross the same switches.
    """
    answer = _emit(st, pk.ENDPOINT_RESPONSE, nic, p.src, plane, ev, now)
    answer.reason = p.reason
    answer.psn = p.psn


@inner
def _believed_ev(st, q, plane_no, now):
    """The value of a random EV of a plane's rotation if the plane delivered within the last RTO (as
    in row 12), because its path states are still valid then; otherwise of any EV.
    """
    plane = st.plane[q.plane0 + plane_no]
    if plane.n_active == 0 or now - plane.heard_at >= q.rto:
        return rotation.random_ev(st, q, plane_no, -1, False)
    return int(st.ev[q.ev0 + rotation.random_active(st, q, plane_no)].value)


@inner
def _on_response(st, nic, peer, p, now):
    """A peer received a port status, or a path answered a probe."""
    request = int(p.psn)
    if p.reason == pk.OP_PORT_STATUS:
        if peer.pending and peer.request_id == request:
            peer.pending = 0
            _plan_status(st, nic, peer, now)
        return
    qi = int(st.request[nic * es.REQUESTS + request % es.REQUESTS])
    if qi < 0 or qi >= st.qp.shape[0] or st.qp[qi].nic != nic:
        return
    q = st.qp[qi]
    if q.peer_nic != p.src:
        return  # only the peer that was asked can answer
    for k in range(q.n_planes):
        plane = st.plane[q.plane0 + k]
        if plane.trial_id == request:
            plane.trial_id = -1
            rotation.answer_on(plane, plane.trial_ev, 1)
            if not (peer.remote_mask >> k) & 1:
                # row 19: an answer ends the "down" state
                _set_remote(st, nic, peer, peer.remote_mask | (1 << k), now)
                _qps_of_peer(st, nic, int(p.src), now)


@inlined
def _plan_status(st, nic, peer, now):
    """After an answer: repeat once a second while any own port is down, else never."""
    all_up = (1 << st.nic[nic].n_ports) - 1
    peer.next_at = es.NEVER if st.nic[nic].up_mask == all_up else now + REPEAT_MAX_PS
    st.nic[nic].deadline = min(st.nic[nic].deadline, peer.next_at)


@inner
def _probe_plane(st, nic, q, plane_no, now):
    """Send an EV probe on a random EV of a plane; once answered, it becomes the plane's reverse EV
    (MRC 3.9).
    """
    plane = st.plane[q.plane0 + plane_no]
    if plane.n_evs == 0:
        return
    request = _next_request(st.nic[nic])
    plane.trial_ev = rotation.random_ev(st, q, plane_no, int(plane.reverse_ev), True)
    plane.trial_id = request
    st.request[nic * es.REQUESTS + request % es.REQUESTS] = q.index
    _request(st, q, pk.OP_EV_PROBE, request, plane_no, plane.trial_ev, now)
    q.n_probe += 1


@inner
def on_reverse_probe(st, q, now):
    """Each RTT in which a QP received but sent nothing: probe one reverse path, within the NIC's
    budget (row 14).
    """
    if q.rx_heard_at <= now - 2 * q.base_rtt:
        q.reverse_probe_at = es.NEVER
        return
    q.reverse_probe_at = now + q.base_rtt
    if q.tx_data_at > now - q.base_rtt:
        return
    plane = _next_plane(st, q, rotation.control_planes(st, q))
    if plane >= 0 and probes.take_probe_token(st, q.nic, probes.OF_PATHS, now) == 0:
        _probe_plane(st, q.nic, q, plane, now)


@compiled
def on_deadline(st, nic, now):
    """Repeat port status where due, probe planes that peers reported as down, and try silent planes
    again.
    """
    n = st.nic[nic]
    again = nic_planes.on_deadline(st, nic, now)
    all_up = (1 << n.n_ports) - 1
    for i in range(n.peer0, n.peer0 + n.n_peers):
        if st.count[es.OUT] > es.OUT_MAX - 1 - PER_PEER_MAX:
            again = now + 1  # no room for more at once: the others remain due
            break
        peer = st.peer[i]
        q = st.qp[peer.qp]
        if peer.next_at <= now:
            if not peer.pending:
                _begin_status(st, n, peer)
            plane = _next_plane(st, q, rotation.control_planes(st, q))
            if plane >= 0:
                ev = int(st.plane[q.plane0 + plane].reverse_ev)
                _request(st, q, pk.OP_PORT_STATUS, peer.request_id, plane, ev, now)
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
