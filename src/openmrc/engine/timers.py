"""A QP's timers: fields of its record that say when something is due, `NEVER` if nothing is.

    timer             what is then due                                                      row
    rto_at            all that is overdue counts as lost; one charge, however many they are   9
    overdue_at        a packet's answer is overdue: it is lost, or a probe asks              7, 8
    finish_at         all is received, and the transport ACK is missing: a probe             17
    ev_probe_at       a probe of an EV in ASSUMED_BAD                                        11
    reverse_probe_at  an EV probe of one reverse path                                        14

`endpoint.on_deadline` checks them in this order.
"""

from __future__ import annotations

from openmrc.engine.state import NEVER
from openmrc.jit import inlined

TIMERS = ("rto_at", "overdue_at", "finish_at", "ev_probe_at", "reverse_probe_at")


@inlined
def first(q):
    """When the first of a QP's timers is due, ps."""
    own = min(min(q.overdue_at, q.rto_at), q.finish_at)
    return min(own, min(q.ev_probe_at, q.reverse_probe_at))


@inlined
def stop(q):
    """Stop all timers."""
    q.rto_at = q.overdue_at = q.finish_at = NEVER
    q.ev_probe_at = q.reverse_probe_at = NEVER
