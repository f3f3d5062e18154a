"""A QP's timers: fields of its record that say when something is due, `NEVER` if nothing is.

    timer             what is then due                                                      row
    rto_at            all that is overdue counts as lost; one charge, however many they are   9
    tail_at           nothing heard for 2 x (base RTT + target): a probe, plane by plane      8
    ask_at            evidence says lost, and no snapshot covers it: a probe                  7
    finish_at         all is received, and the transport ACK missing as long: a probe        17
    ev_probe_at       a probe of an EV in ASSUMED_BAD                                        11
    reverse_probe_at  an EV probe of one way back                                            14

`endpoint.on_deadline` looks at them in this order.
"""

from __future__ import annotations

from openmrc.engine.state import NEVER
from openmrc.jit import inlined

TIMERS = ("rto_at", "tail_at", "ask_at", "finish_at", "ev_probe_at", "reverse_probe_at")


@inlined
def first(q):
    """When the first of a QP's timers is due, ps."""
    own = min(min(q.tail_at, q.rto_at), min(q.ask_at, q.finish_at))
    return min(own, min(q.ev_probe_at, q.reverse_probe_at))


@inlined
def stop(q):
    """Nothing is due any more, or not yet."""
    q.rto_at = q.tail_at = q.ask_at = q.finish_at = NEVER
    q.ev_probe_at = q.reverse_probe_at = NEVER
