"""From a frame to the engine: checks who sent it, and places payload.

Nothing in a frame is trusted before its iCRC is verified (trimmed data has none, and brings no
payload; nothing else is trimmed). Frames that are not for the engine, or refused by it, are counted
by reason, and change nothing. Planes are separate networks: a frame has addresses of the plane on
which it arrived.
"""

from __future__ import annotations

from openmrc.engine import endpoint, verdict
from openmrc.engine import packet as pk
from openmrc.engine import state as es
from openmrc.jit import inlined, inner
from openmrc.live.endpoint import ip, state, udp
from openmrc.live.syscalls import copy
from openmrc.wire import addresses, codec, frame

NIC_MASK = (1 << addresses.NIC_BITS) - 1


@inner
def on_frame(ep, st, headend, data, plane, now):
    """Handle a frame that arrived on `plane`; return the QP that it was for, or endpoint.NOBODY."""
    ctl = ep.ctl[0]
    e = ep.envelope[ctl.n_planes]
    p = st.out[st.out.shape[0] - 1]  # a record that no call of the engine reaches
    code = codec.decode(data, data.shape[0], p, e, 1)
    if code != frame.OK:
        ep.reason[plane, code] += 1
        return endpoint.NOBODY
    if not _is_mine(e, p, headend, ctl, plane):
        ep.reason[plane, state.NOT_MINE] += 1
        return endpoint.NOBODY
    there = ip.whose(ep, st, e, p, plane) if ctl.mode == state.IP else _whose(e, plane)
    if there < 0:
        ep.reason[plane, state.UNKNOWN_SOURCE] += 1
        return endpoint.NOBODY
    p.src = there
    p.dst = ctl.nic
    p.plane = plane
    if p.opcode > pk.LAST_DATA and p.flag_bits & (pk.TRIMMED | pk.TRIMMED_LASTHOP):
        ep.reason[plane, state.VERDICTS + verdict.OUT_OF_PLACE] += (
            1  # only data may be trimmed: this would evade the iCRC
        )
        return endpoint.NOBODY
    if p.flag_bits & pk.UNSTAMPED:
        ep.port[plane].unstamped += 1
    qi = endpoint.NOBODY
    if p.opcode == pk.ENDPOINT_RESPONSE and _is_awaited(ep, p, now):
        return qi
    if p.opcode != pk.ENDPOINT_REQUEST and p.opcode != pk.ENDPOINT_RESPONSE:
        qi = int(p.dst_qpn) & int(ctl.qpn_mask)
        if p.dst_qpn == pk.ENDPOINT_QPN or qi >= ctl.n_qps or st.qp[qi].qpn != p.dst_qpn:
            ep.reason[plane, state.UNKNOWN_QP] += 1
            return endpoint.NOBODY
    said = endpoint.on_packet(st, int(ctl.nic), qi, p, now)
    if said >= verdict.REFUSED:
        ep.reason[plane, state.VERDICTS + said] += 1
    elif said == verdict.PLACED:
        _place(ep, st, data, qi)
    elif p.opcode == pk.SACK and st.qp[qi].nxt == 0:  # no data sent yet: it answers a size test
        ep.qp[qi].carried |= 1 << (int(p.timestamp) & state.SIZE_MASK)
    return qi


@inlined
def _is_awaited(ep, p, now):
    """Whether this is the first answer to a request that others than the engine ask."""
    e = ep.echo[int(p.psn) & (ep.echo.shape[0] - 1)]
    waits = e[state.SENT_AT] != 0 and e[state.ANSWERED_AT] == 0
    if not waits or e[state.NUMBER] != p.psn or e[state.ASKED] != p.src:
        return False
    e[state.CAME_ON] = p.plane
    e[state.ANSWERED_AT] = now
    return True


@inlined
def _is_mine(e, p, headend, ctl, plane):
    """Whether a frame is addressed to this port."""
    if ctl.mode == state.IP:  # its socket receives nothing else
        return True
    if e.ipv4:
        return False
    if ctl.mode == state.UDP:
        return udp.accept(e, p, headend, int(ctl.nic))
    return addresses.read_ipv6(e.inner_dst, 0) == (plane << addresses.NIC_BITS) | int(ctl.nic)


@inlined
def _whose(e, plane):
    """The NIC that sent a frame; -1 if its source is not a port of this plane."""
    there = addresses.read_ipv6(e.inner_src, 0)
    if there < 0 or there >> addresses.NIC_BITS != plane:
        return -1
    return there & NIC_MASK


@inlined
def _place(ep, st, data, qi):
    """Copy the payload to where the engine says."""
    length = st.count[es.PLACED_LENGTH]
    to = ep.region[st.count[es.PLACED_REGION]] + st.count[es.PLACED_OFFSET]
    e = ep.envelope[ep.ctl[0].n_planes]
    copy(to, data.ctypes.data + int(e.payload_at), length)
    live = ep.qp[qi]
    live.rx_packets += 1
    live.rx_bytes += length
