"""DCQCN, the congestion control of RoCEv2 (Zhu et al., SIGCOMM 2015, section 3 and figure 7).

The *congestion point* is the switch: it marks packets (`sim/net/link.py`). The *notification point*
is the receiver: it answers marked packets with a CNP, at most one per QP and interval. The
*reaction point* is the sender: one rate limiter per QP, which a CNP cuts, and which recovers with
time and with bytes sent:

    CNP                target = rate; rate *= 1 - alpha / 2; alpha = (1 - g) alpha + g
    alpha_ps quiet     alpha *= 1 - g
    increase_ps, or byte_reset bytes, without a CNP: one round
      both counts of rounds above F    target += (smaller count - F) * hai     hyper increase
      one of them above F              target += ai                            additive increase
      neither                          target stays                            fast recovery
                                       rate = (target + rate) / 2

So F rounds of fast recovery regain 1 - 2^-F of the lost rate before the target changes. A QP whose
rate has returned to the line rate is no longer limited, and has no timers.

Rates are float bit/s; times are integers of picoseconds, passed as arguments. The next call applies
all rounds that were due, each at its own time, so a world without timer events has the same rates;
with them a waiting QP is woken as soon as its rate rises. Alpha never needs an event: its decay is
computed when a CNP arrives.
"""

from __future__ import annotations

import numpy as np

from openmrc.engine.state import NEVER
from openmrc.jit import compiled, inlined, inner

PS_BITS = 8e12  # bits per byte x picoseconds per second
RATE_UNIT_BPS = 1e6  # NICs count in Mbit/s: a rate this close to the line rate is the line rate
ALPHA_ZERO = 2.0**-20  # smaller alphas are 0; NICs keep ten bits of it

CONFIG = np.dtype(  # of all QPs; in brackets the NIC's own name of the setting
    [
        ("line_bps", "f8"),
        ("min_bps", "f8"),  # [rpg_min_rate]
        ("g", "f8"),  # weight of a CNP in alpha [dce_tcp_g: 1024 (1 - g)]
        ("initial_alpha", "f8"),  # at the first CNP [initial_alpha_value / 1024]
        ("alpha_share", "f8"),  # fraction of alpha in a cut: 0.5, or 1 [rpg_gd 11, 10]
        ("least_factor", "f8"),  # a CNP leaves at least this fraction of the rate [rpg_min_dec_fac]
        ("ai_bps", "f8"),  # [rpg_ai_rate]
        ("hai_bps", "f8"),  # [rpg_hai_rate]
        ("alpha_ps", "i8"),  # [dce_tcp_rtt]
        ("increase_ps", "i8"),  # [rpg_time_reset]
        ("byte_reset", "i8"),  # bytes on the wire; 0: time alone counts [rpg_byte_reset]
        ("cut_ps", "i8"),  # at most one cut in this time [rate_reduce_monitor_period]
        ("cnp_ps", "i8"),  # at most one CNP per QP in this time [min_time_between_cnps]
        ("fast_rounds", "i4"),  # F [rpg_threshold]
        # The target becomes the current rate at a CNP: always [clamp_tgt_rate]; else if bytes have
        # raised the rate since the last one, or, with [clamp_tgt_rate_after_time_inc], time has.
        ("clamp_target", "i1"),
        ("clamp_after_time", "i1"),
    ],
    align=True,
)

LIMITER = np.dtype(  # the reaction point: one per QP that sends
    [
        ("rate_bps", "f8"),
        ("target_bps", "f8"),
        ("alpha", "f8"),  # as it was at `alpha_at`
        ("alpha_at", "i8"),  # -1: no CNP yet
        ("next_at", "i8"),  # when the next packet may start
        ("timer_at", "i8"),  # next round by time, NEVER for a QP without a limit
        ("cut_at", "i8"),
        ("bytes", "i8"),  # since the last round by bytes
        ("cnps", "i8"),
        ("time_rounds", "i4"),
        ("byte_rounds", "i4"),
        ("limited", "i1"),
    ],
    align=True,
)

NOTIFIER = np.dtype(  # the notification point: one per QP that receives
    [("next_at", "i8"), ("cnps", "i8"), ("marked", "i8")],
    align=True,
)


@compiled
def start(r, c):
    """A QP begins at line rate, with no limit (DCQCN, section 3.3)."""
    r.rate_bps = c.line_bps
    r.target_bps = c.line_bps
    r.alpha = c.initial_alpha
    r.alpha_at = -1
    r.next_at = 0
    r.timer_at = NEVER
    r.cut_at = -NEVER
    r.bytes = 0
    r.cnps = 0
    r.time_rounds = 0
    r.byte_rounds = 0
    r.limited = 0


@compiled
def alpha_of(r, c, now):
    """Alpha at `now`: its last value, decayed once for each quiet `alpha_ps` since."""
    alpha = float(r.alpha)
    if r.alpha_at < 0:
        return alpha
    periods = (now - r.alpha_at) // c.alpha_ps
    while periods > 0 and alpha >= ALPHA_ZERO:
        alpha *= 1.0 - c.g
        periods -= 1
    return alpha if alpha >= ALPHA_ZERO else 0.0


@inlined
def set_rate(r, now, rate_bps):
    """Change the rate; the remaining wait for the next packet is rescaled to the new rate."""
    if r.next_at > now:
        r.next_at = now + int((r.next_at - now) * (r.rate_bps / rate_bps))
    r.rate_bps = rate_bps


@inner
def _round(r, c, now):
    """One round of increase (DCQCN, figure 7); the caller has raised its count."""
    fewer = min(int(r.time_rounds), int(r.byte_rounds)) - int(c.fast_rounds)
    more = max(int(r.time_rounds), int(r.byte_rounds)) - int(c.fast_rounds)
    if fewer > 0:
        r.target_bps = min(r.target_bps + fewer * c.hai_bps, c.line_bps)
    elif more > 0:
        r.target_bps = min(r.target_bps + c.ai_bps, c.line_bps)
    rate_bps = (r.target_bps + r.rate_bps) / 2.0
    if rate_bps > c.line_bps - RATE_UNIT_BPS:
        set_rate(r, now, float(c.line_bps))
        r.target_bps = c.line_bps
        r.limited = 0
        r.timer_at = NEVER
    else:
        set_rate(r, now, rate_bps)


@compiled
def on_timer(r, c, now):
    """Apply the rounds by time that were due up to `now`; may be called at any time."""
    while r.timer_at <= now:
        at = int(r.timer_at)
        r.timer_at = at + c.increase_ps
        r.time_rounds += 1
        _round(r, c, at)


@compiled
def on_cnp(r, c, now):
    """A CNP has arrived at the sender. True if it cut the rate."""
    on_timer(r, c, now)
    alpha = alpha_of(r, c, now)
    r.alpha = (1.0 - c.g) * alpha + c.g
    r.alpha_at = now
    r.cnps += 1
    if now - r.cut_at < c.cut_ps:
        return False
    r.cut_at = now
    raised = r.byte_rounds > 0 or (c.clamp_after_time != 0 and r.time_rounds > 0)
    if c.clamp_target != 0 or raised or r.limited == 0:
        r.target_bps = r.rate_bps
    factor = max(1.0 - c.alpha_share * alpha, c.least_factor)
    set_rate(r, now, max(r.rate_bps * factor, c.min_bps))
    r.limited = 1
    r.time_rounds = 0
    r.byte_rounds = 0
    r.bytes = 0
    r.timer_at = now + c.increase_ps
    return True


@compiled
def on_sent(r, c, now, wire_bytes):
    """The QP began to send a packet of `wire_bytes`, preamble and gap included."""
    on_timer(r, c, now)
    if r.limited == 0:
        r.next_at = now
        return
    r.next_at = max(now, int(r.next_at)) + int(wire_bytes * PS_BITS / r.rate_bps)
    if c.byte_reset <= 0:
        return
    r.bytes += wire_bytes
    while r.limited != 0 and r.bytes >= c.byte_reset:
        r.bytes -= c.byte_reset
        r.byte_rounds += 1
        _round(r, c, now)


@inlined
def may_send_at(r):
    """When the QP may start its next packet; a past time means now. No credit accumulates."""
    return r.next_at


@inlined
def cnp_due(np_, c, now):
    """A packet with a CE mark has arrived at the receiver: whether to answer with a CNP now."""
    np_.marked += 1
    if now < np_.next_at:
        return False
    np_.next_at = now + c.cnp_ps
    np_.cnps += 1
    return True
