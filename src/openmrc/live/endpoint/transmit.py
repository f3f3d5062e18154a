"""From the engine to frames: each port has a part of one batch, filled here and passed to the
kernel as a whole.

A port accepts data no faster than its link sends it, a little ahead so that frames leave several at
a time: packets queued below cannot take another path when the link dies. A port whose socket is
full keeps its frames, and its plane is not free until they have gone: the engine sends elsewhere or
waits, and nothing is lost. A port that is gone accepts nothing; its packets are lost as on a cut
cable, and the engine detects that.
"""

from __future__ import annotations

import errno

import numpy as np

from openmrc.engine import endpoint, place
from openmrc.engine import state as es
from openmrc.engine.state import NEVER
from openmrc.jit import inlined, inner
from openmrc.live import syscalls
from openmrc.live.endpoint import ip, udp
from openmrc.live.endpoint.state import IP, TX_FULL, TX_SLOTS, UDP
from openmrc.live.memory import bytes_at
from openmrc.wire import addresses, codec, srv6
from openmrc.wire.framing import PREAMBLE_GAP_AND_FCS

EAGAIN, ENOBUFS, EINTR = errno.EAGAIN, errno.ENOBUFS, errno.EINTR


@inlined
def _room(ep, plane, most):
    """Number of the slot of the transmit batch for the port's next frame, or -1."""
    port = ep.port[plane]
    if port.first == port.end:
        port.first = 0
        port.end = 0
    return plane * TX_SLOTS + port.end if port.end < most else -1


@inner
def _write(ep, tx, headend, slot, p, payload, source_qpn):
    """Write the frame of a packet into a slot; it waits there for `flush`."""
    plane = int(p.plane)
    e = ep.envelope[plane]
    e.spdcid = source_qpn & 0xFFFF
    e.dpdcid = p.dst_qpn & 0xFFFF
    if ep.ctl[0].mode == UDP:
        if udp.write(tx, slot, p, e, payload, headend):
            _occupy(ep, plane, int(tx.iov[slot].length) + udp.AT)
        return
    if ep.ctl[0].mode == IP:
        if ip.write(ep, tx, slot, p, e, payload):
            _occupy(ep, plane, np.int64(tx.iov[slot].length) + udp.AT)
        return
    srv6.write_carrier(e.carrier, 0, headend, int(p.src), int(p.dst), int(p.ev))
    addresses.write_ipv6(e.inner_dst, 0, int(p.dst), plane)
    n = codec.encode(p, e, payload, tx.data[slot], 1)
    if n > 0:
        tx.iov[slot].length = n
        _occupy(ep, plane, n)


@inlined
def _occupy(ep, plane, n):
    """Account for a frame of `n` bytes that was written for a port."""
    ctl = ep.ctl[0]
    port = ep.port[plane]
    port.end += 1
    began = max(port.free_at, ctl.now)
    port.free_at = began + (n + PREAMBLE_GAP_AND_FCS) * ctl.ps_per_byte


@inner
def send_out(ep, st, tx, headend, source_qpn):
    """Build frames of the packets that the engine emits for a QP, or for the endpoint itself; a
    control packet without room counts as lost in the network.
    """
    for i in range(st.count[es.OUT]):
        p = st.out[i]
        plane = int(p.plane)
        slot = _room(ep, plane, TX_SLOTS)
        if slot < 0:
            ep.reason[plane, TX_FULL] += 1
        else:
            _write(ep, tx, headend, slot, p, tx.data[slot, :0], source_qpn)
    st.count[es.OUT] = 0


@inlined
def free_ports(ep):
    """Mask of the ports that accept more data packets."""
    ctl = ep.ctl[0]
    mask = 0
    for plane in range(ctl.n_planes):
        port = ep.port[plane]
        room = port.first == port.end or port.end < ctl.tx_most
        if room and not port.full and port.free_at <= ctl.now + ctl.lead_ps:
            mask |= 1 << plane
    return mask


@inlined
def next_free(ep):
    """When to check a port again that is ahead of its link, ps: when half of its lead is gone.

    A port that could accept packets now, and gets none because its plane is out of service, is not
    waited for.
    """
    ctl = ep.ctl[0]
    first = NEVER
    for plane in range(ctl.n_planes):
        port = ep.port[plane]
        if not port.full and port.free_at > ctl.now + ctl.lead_ps:
            first = min(first, port.free_at - ctl.lead_ps // 2)
    return first


@inner
def pump(ep, st, tx, headend, now, most):
    """Give every free port packets, QP by QP in turn, until no QP may send, or `most` are sent;
    return how many.
    """
    ctl = ep.ctl[0]
    n_qps = int(ctl.n_qps)
    sent = 0
    idle = 0
    ctl.paced = 0
    free = free_ports(ep)
    p = st.out[st.out.shape[0] - 1]
    while free != 0 and idle < n_qps and sent < most:
        qi = int(ctl.turn)
        ctl.turn = qi + 1 if qi + 1 < n_qps else 0
        q = st.qp[qi]
        plane = endpoint.next_packet(st, q, free, now, p)
        if plane < 0:
            if plane == endpoint.PORTS_BUSY:
                ctl.paced = 1
            idle += 1
            continue
        idle = 0
        sent += 1
        slot = _room(ep, plane, ctl.tx_most)
        at = place.message(q, st.count[es.SENT_MESSAGE])
        address = ep.local[at].address + (p.va - st.message[at].remote_va)
        length = int(p.payload_len)
        _write(ep, tx, headend, slot, p, bytes_at(address, length), int(q.qpn))
        live = ep.qp[qi]
        live.tx_packets += 1
        live.tx_bytes += length
        s = st.slot[place.slot(q, st.count[es.SENT_SEQ])]
        ep.ev_count[place.ev(q, s.ev)] += 1
        if ep.port[plane].end >= ctl.tx_most:
            flush(ep, tx, plane)
        free = free_ports(ep)
    if free == 0:
        ctl.paced = 1
    return sent


@inner
def flush(ep, tx, plane):
    """Pass a port's frames to the kernel; a port that is down takes none.

    The kernel reports an interface without a carrier like one whose queue is full (ENOBUFS):
    waiting for room there would mean waiting for the cable, polling without a pause.
    """
    port = ep.port[plane]
    if port.down:
        port.tx_lost += port.end - port.first
        port.first = port.end
    while port.first < port.end:
        first = plane * TX_SLOTS + int(port.first)
        if ep.ctl[0].mode == IP:
            n = ip.send(ep, tx, plane, first, int(port.end - port.first))
        else:
            port.full_fd = port.fd
            n = syscalls.send(port.fd, tx, first, port.end - port.first)
        if n < 0:
            if n == -EINTR:
                continue
            if n == -EAGAIN or n == -ENOBUFS:
                if n == -ENOBUFS and not port.full:
                    port.failed = ENOBUFS  # there may be no cable: checked once
                port.blocked += 1 - port.full
                port.full = 1
                return
            port.failed = -n
            lost = port.end - port.first
            if ep.ctl[0].mode == IP:
                lost = 1  # the next packet may be for another peer
            port.tx_lost += lost
            port.first += lost
            continue
        for i in range(first, first + n):
            port.tx_bytes += tx.iov[i].length
        port.tx_packets += n
        port.first += n
    port.full = 0


@inlined
def flush_all(ep, tx):
    """Flush every port; those whose sockets were full are tried again."""
    for plane in range(ep.ctl[0].n_planes):
        flush(ep, tx, plane)
