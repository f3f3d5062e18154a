"""From a frame to the engine: who may speak, and where payload goes.

Nothing of a frame is believed before its iCRC was found right (trimmed data has none, and brings no
payload; nothing else is trimmed). What is not for the engine is counted by reason, and changes
nothing. Planes are networks of their own: a frame has the addresses of the plane that it came on.
"""

from __future__ import annotations

from openmrc.engine import ports, requester, responder
from openmrc.engine.packet import (
    ACKNOWLEDGE,
    ENDPOINT_QPN,
    ENDPOINT_REQUEST,
    ENDPOINT_RESPONSE,
    LAST_DATA,
    NACK,
    OP_EV_PROBE,
    OP_PORT_STATUS,
    PROBE,
    SACK,
    TRIMMED,
    TRIMMED_LASTHOP,
)
from openmrc.engine.state import (
    PLACED_LENGTH,
    PLACED_OFFSET,
    PLACED_REGION,
    RTS,
    unwrap,
)
from openmrc.jit import inlined, inner
from openmrc.live import plausible, udp
from openmrc.live.state import (
    BAD_KEY,
    CONTRADICTORY,
    DUPLICATE,
    MEASURE_BIT,
    NEVER_SENT,
    NO_PEER,
    NOT_MINE,
    OUT_OF_WINDOW,
    QP_NOT_READY,
    SIZE_MASK,
    TOO_LONG,
    UDP,
    UNKNOWN_QP,
    UNKNOWN_SOURCE,
    UNWANTED,
    WRONG_SOURCE,
)
from openmrc.live.syscalls import copy
from openmrc.wire import addresses, codec, frame

NIC_MASK = (1 << addresses.NIC_BITS) - 1
NOBODY = -1


@inner
def on_frame(ep, st, speller, data, n, plane, now):
    """Handle the frame `data[:n]` that came in on `plane`; the QP that has news, or NOBODY."""
    ctl = ep.ctl[0]
    e = ep.envelope[ctl.n_planes]
    p = st.out[st.out.shape[0] - 1]  # room that no call of the engine reaches
    code = codec.decode(data, n, p, e, 1)
    if code != frame.OK:
        ep.reason[plane, code] += 1
        return NOBODY
    if not _is_mine(e, p, speller, ctl, plane):
        ep.reason[plane, NOT_MINE] += 1
        return NOBODY
    there = addresses.read_ipv6(e.inner_src, 0)
    if there < 0 or there >> addresses.NIC_BITS != plane:
        ep.reason[plane, UNKNOWN_SOURCE] += 1
        return NOBODY
    p.src = there & NIC_MASK
    p.dst = ctl.nic
    p.plane = plane
    if p.opcode > LAST_DATA and p.flag_bits & (TRIMMED | TRIMMED_LASTHOP):
        ep.reason[plane, UNWANTED] += 1  # only data is trimmed: this is a way around the iCRC
        return NOBODY
    if p.opcode == ENDPOINT_REQUEST or p.opcode == ENDPOINT_RESPONSE:
        _on_endpoint_packet(ep, st, p, plane, now)
        return NOBODY
    qi = int(p.dst_qpn) & int(ctl.qpn_mask)
    if p.dst_qpn == ENDPOINT_QPN or qi >= ctl.n_qps or st.qp[qi].qpn != p.dst_qpn:
        ep.reason[plane, UNKNOWN_QP] += 1
        return NOBODY
    q = st.qp[qi]
    if q.state != RTS:
        ep.reason[plane, QP_NOT_READY] += 1
        return NOBODY
    if q.peer_nic != p.src:
        ep.reason[plane, WRONG_SOURCE] += 1
        return NOBODY
    if p.opcode <= LAST_DATA:
        return _on_data(ep, st, data, qi, p, plane, now)
    true = True
    if p.opcode == SACK:
        if q.nxt == 0:  # of nothing that was sent: a question about a size is answered
            ep.qp[qi].carried |= 1 << (int(p.timestamp) & SIZE_MASK)
        true = requester.on_sack(st, qi, p, now)
    elif p.opcode == NACK:
        true = requester.on_nack(st, qi, p, now)
    elif p.opcode == ACKNOWLEDGE:
        true = requester.on_ack(st, qi, p, now)
    elif p.opcode == PROBE:
        responder.on_probe(st, qi, p, now)
    if not true:
        ep.reason[plane, NEVER_SENT] += 1
        return NOBODY
    return qi


@inlined
def _is_mine(e, p, speller, ctl, plane):
    """Is a frame addressed to this port?"""
    if e.ipv4:
        return False
    if ctl.mode == UDP:
        return udp.accept(e, p, speller, int(ctl.nic))
    return addresses.read_ipv6(e.inner_dst, 0) == (plane << addresses.NIC_BITS) | int(ctl.nic)


@inlined
def _on_endpoint_packet(ep, st, p, plane, now):
    """Requests and answers between endpoints; every QP of the NIC may have news."""
    ctl = ep.ctl[0]
    known = p.reason == OP_EV_PROBE or p.reason == OP_PORT_STATUS
    if p.dst_qpn != ENDPOINT_QPN or not known:
        ep.reason[plane, UNWANTED] += 1
    elif ports.find_peer(st, int(ctl.nic), int(p.src)) < 0:
        ep.reason[plane, NO_PEER] += 1
    elif _denies_itself(p, plane):
        ep.reason[plane, CONTRADICTORY] += 1
    elif p.opcode == ENDPOINT_REQUEST:
        ports.on_request(st, int(ctl.nic), p, now)
    elif ctl.measuring and p.psn & MEASURE_BIT:
        at = int(p.psn) & (ep.echo.shape[1] - 1)
        if ep.echo[1, at] == 0:
            ep.echo[1, at] = now
    else:
        ports.on_response(st, int(ctl.nic), p, now)


@inlined
def _denies_itself(p, plane):
    """A port that is down cannot have sent the status that says so."""
    status = p.opcode == ENDPOINT_REQUEST and p.reason == OP_PORT_STATUS
    return status and (int(p.port_mask) >> plane) & 1 == 0


@inlined
def _refuse(ep, st, q, live, p, plane, now):
    """Check a data packet against window, memory and message here, so that each refusal is counted;
    True if the engine has no need to hear of it.
    """
    seq = unwrap(int(p.psn), q.peer_psn, q.cack + 1)
    if p.payload_len > st.config[0].pmtu:
        ep.reason[plane, TOO_LONG] += 1
        return True
    if seq > q.cack + q.mpr_now:
        ep.reason[plane, OUT_OF_WINDOW] += 1
        return not plausible.may_answer(q, live, now)
    if responder.received(st, q, seq):
        answered = plausible.may_answer(q, live, now)
        if answered and seq < 0:  # asks for the path's MTU: a duplicate of nothing
            q.n_dup -= 1  # of which the engine counts one
            return False
        ep.reason[plane, DUPLICATE] += 1
        q.n_dup += 0 if answered else 1
        return not answered
    if p.flag_bits & (TRIMMED | TRIMMED_LASTHOP):
        return False
    if responder.region_of(st, q, p) < 0:
        ep.reason[plane, BAD_KEY] += 1
        return seq != q.cack + 1 or not plausible.persists(q, live, p, now)
    if not plausible.fits_message(ep, st, q, p, seq):
        ep.reason[plane, CONTRADICTORY] += 1
        return True
    return False


@inlined
def _on_data(ep, st, data, qi, p, plane, now):
    """A data packet; its payload goes where the engine says."""
    q = st.qp[qi]
    live = ep.qp[qi]
    if _refuse(ep, st, q, live, p, plane, now):
        return NOBODY
    if responder.on_data(st, qi, p, now) == responder.PLACED:
        length = st.count[PLACED_LENGTH]
        to = ep.region[st.count[PLACED_REGION]] + st.count[PLACED_OFFSET]
        e = ep.envelope[ep.ctl[0].n_planes]
        copy(to, data.ctypes.data + int(e.payload_at), length)
        live.rx_packets += 1
        live.rx_bytes += length
        plausible.earn_answers(live)
    return qi
