"""The entry point of the engine, for the simulator and for live endpoints.

    on_packet        a packet has arrived; returns the engine's verdict
    next_packet      the NIC has free ports: a QP's next packet, if it may send one
    on_deadline      call at `next_deadline` of a QP, or later
    on_nic_deadline  the same for the endpoint itself, at `next_nic_deadline`
    post_write       the application wants to write
    set_port         a port of the NIC went down or came up
    deny             paths must not be used, or may be used again
    declare          a controller states what a path is
    replace          an EV stands for another path
    move             a QP with a single path gets another one
    fail             a QP ends; `abandon` then takes its requests one by one
    ask              a request that another NIC answers at once
    ask_size         a packet that shows whether a path carries it

After each of them: send the packets in `State.out`, report the completions in `State.done`, ask
`may_send` of the QP, and look at its next deadline. A packet for the endpoint itself, its deadline
and its ports may change all QPs of the NIC.
"""

from __future__ import annotations

from openmrc.engine import loss, ports, probes, requester, responder, timers
from openmrc.engine.beliefs import declare, deny, replace
from openmrc.engine.loss import fail
from openmrc.engine.packet import ACKNOWLEDGE, LAST_DATA, NACK, PROBE, SACK
from openmrc.engine.ports import ask, refresh_qp
from openmrc.engine.ports import on_deadline as on_nic_deadline
from openmrc.engine.ports import set_local_port as set_port
from openmrc.engine.requester import (
    NO_IMM,
    PORTS_BUSY,
    abandon,
    ask_size,
    may_send,
    message_of,
    next_packet,
    post_write,
    write_opcode,
)
from openmrc.engine.responder import post_receive
from openmrc.engine.rotation import move
from openmrc.engine.state import RTS
from openmrc.engine.verdict import OUT_OF_PLACE, QP_NOT_READY, WRONG_SOURCE
from openmrc.jit import compiled, inlined

__all__ = [  # and what is defined below
    "NO_IMM",
    "PORTS_BUSY",
    "abandon",
    "ask",
    "ask_size",
    "declare",
    "deny",
    "fail",
    "may_send",
    "message_of",
    "move",
    "next_packet",
    "on_nic_deadline",
    "post_receive",
    "post_write",
    "refresh_qp",
    "replace",
    "set_port",
    "write_opcode",
]

NOBODY = -1  # in place of a QP's index: a packet is for the endpoint itself


@inlined
def on_packet(st, nic, qi, p, now):
    """Handle packet `p`, which arrived for QP `qi` of a NIC, or for the NIC itself (`NOBODY`);
    return the verdict.
    """
    if qi < 0:
        return ports.on_packet(st, nic, p, now)
    q = st.qp[qi]
    if q.state != RTS:
        return QP_NOT_READY
    if q.peer_nic != p.src:
        return WRONG_SOURCE
    opcode = p.opcode
    if opcode <= LAST_DATA:
        return responder.on_data(st, q, p, now)
    if opcode == SACK:
        return requester.on_sack(st, q, p, now)
    if opcode == NACK:
        return requester.on_nack(st, q, p, now)
    if opcode == ACKNOWLEDGE:
        return requester.on_ack(st, q, p, now)
    if opcode == PROBE:
        return responder.on_probe(st, q, p, now)
    return OUT_OF_PLACE


@inlined
def next_deadline(st, qi):
    """When to call `on_deadline`, ps; it may become later at any time, but earlier only through a
    call on this QP.
    """
    return timers.first(st.qp[qi])


@compiled
def on_deadline(st, qi, now):
    """Run the timers of a QP that are due at `now`: they emit probes and judge packets lost."""
    q = st.qp[qi]
    if q.state != RTS:
        timers.stop(q)
        return
    loss.on_deadline(st, q, now)
    if q.ev_probe_at <= now:
        probes.probe_bad_evs(st, q, now)
    if q.reverse_probe_at <= now:
        ports.on_reverse_probe(st, q, now)


@inlined
def next_nic_deadline(st, nic):
    """When to call `on_nic_deadline`, ps."""
    return st.nic[nic].deadline
