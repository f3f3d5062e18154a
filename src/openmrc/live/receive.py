"""From a frame to the engine: who may speak, and where payload goes.

Nothing of a frame is believed before its iCRC was found right (a trimmed one has none, and brings
no payload). What is not for the engine is counted by reason, and changes nothing.
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
from openmrc.live import udp
from openmrc.live.state import (
    BAD_KEY,
    DUPLICATE,
    MEASURE_BIT,
    NOT_MINE,
    OUT_OF_WINDOW,
    QP_NOT_READY,
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
# A peer that writes where it may not sends its oldest refused packet again and again; a stranger's
# guess comes once. What is refused so often is answered as MRC 1.3 says: it ends the QP.
REFUSED_MAX = 3
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
    if not _is_mine(e, p, speller, ctl):
        ep.reason[plane, NOT_MINE] += 1
        return NOBODY
    there = addresses.read_ipv6(e.inner_src, 0)
    if there < 0:
        ep.reason[plane, UNKNOWN_SOURCE] += 1
        return NOBODY
    p.src = there & NIC_MASK
    p.dst = ctl.nic
    p.plane = plane
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
    if p.opcode == SACK:
        requester.on_sack(st, qi, p, now)
    elif p.opcode == NACK:
        requester.on_nack(st, qi, p, now)
    elif p.opcode == ACKNOWLEDGE:
        requester.on_ack(st, qi, p, now)
    elif p.opcode == PROBE:
        responder.on_probe(st, qi, p, now)
    return qi


@inlined
def _is_mine(e, p, speller, ctl):
    """Is a frame addressed to this NIC?"""
    if e.ipv4:
        return False
    if ctl.mode == UDP:
        return udp.accept(e, p, speller, int(ctl.nic))
    here = addresses.read_ipv6(e.inner_dst, 0)
    return here >= 0 and here & NIC_MASK == ctl.nic


@inlined
def _on_endpoint_packet(ep, st, p, plane, now):
    """Requests and answers between endpoints; every QP of the NIC may have news."""
    ctl = ep.ctl[0]
    if p.dst_qpn != ENDPOINT_QPN:
        ep.reason[plane, UNWANTED] += 1
    elif p.opcode == ENDPOINT_REQUEST:
        ports.on_request(st, int(ctl.nic), p, now)
    elif ctl.measuring and p.psn & MEASURE_BIT:
        at = int(p.psn) & (ep.echo.shape[1] - 1)
        if ep.echo[1, at] == 0:
            ep.echo[1, at] = now
    else:
        ports.on_response(st, int(ctl.nic), p, now)


@inlined
def _on_data(ep, st, data, qi, p, plane, now):
    """A data packet: checked against window and memory here, so that each refusal is counted."""
    q = st.qp[qi]
    live = ep.qp[qi]
    trimmed = p.flag_bits & (TRIMMED | TRIMMED_LASTHOP)
    if p.payload_len > st.config[0].pmtu:
        ep.reason[plane, TOO_LONG] += 1
        return NOBODY
    seq = unwrap(int(p.psn), q.peer_psn, q.cack + 1)
    if seq > q.cack + q.mpr_now:
        ep.reason[plane, OUT_OF_WINDOW] += 1
    elif responder.received(st, q, seq):
        ep.reason[plane, DUPLICATE] += 1
    elif not trimmed and responder.region_of(st, q, p) < 0:
        ep.reason[plane, BAD_KEY] += 1
        if seq == q.cack + 1:
            live.refused = live.refused + 1 if live.refused_psn == p.psn else 1
            live.refused_psn = p.psn
        if seq > q.cack + 1 or live.refused < REFUSED_MAX:
            return NOBODY
    if responder.on_data(st, qi, p, now) == responder.PLACED:
        length = st.count[PLACED_LENGTH]
        to = ep.region[st.count[PLACED_REGION]] + st.count[PLACED_OFFSET]
        e = ep.envelope[ep.ctl[0].n_planes]
        copy(to, data.ctypes.data + e.payload_at, length)
        live.rx_packets += 1
        live.rx_bytes += length
        number = int(p.msn) & int(q.rmsg_mask)
        ep.length[q.rmsg0 + number] = p.dma_len
    return qi
