"""NSCC, the congestion control (MRC 4.6, 4.8, 4.9).

A window in bytes clocked by SACKs. Two signals, queueing delay and ECN, make four quadrants:

              |  delay < target                  |  delay >= target
    no mark   |  grow in proportion to the room  |  grow a little, equally for all
    mark      |  nothing (the path is skipped)   |  shrink by how far the average delay overshoots

In addition *quick adapt* sets the window to the achieved throughput after a burst of trims or
extreme delay. Windows are bytes as floats, times are picoseconds. The requester keeps `inflight`,
exactly.
"""

from __future__ import annotations

from openmrc.engine.packet import PENALTY_MAX, RCVD_UNIT_BYTES, RESTORE
from openmrc.engine.policy import CC_NONE, CC_NSCC
from openmrc.engine.rotation import several
from openmrc.jit import compiled, inlined
from openmrc.units import PS_BITS

GAMMA = 0.8
MAX_MD_JUMP = 0.5
QA_GATE = 3
AVERAGE_WEIGHT = 1.0 / 80.0
A_UNIT_BYTES = 150_000.0  # 100 Gb/s x 12 us
WINDOW_PACKETS_MIN = 32
ADJUST_PACKETS = 8
# The last hop sets no marks, so nothing ends the fair increase between target and T there: in an
# incast of 16 and more the queue would stand at the trim threshold. For a while after a trim at the
# last hop, the fair increase is a quarter of this.
FI_TRIMMED = 0.25
TRIMMED_RTTS = 64
# Every increase grows a window by packets per round trip, however small the window is: where
# hundreds send to one, and the share of each is a packet or two, the growth brings more trims than
# the decrease prevents. For two round trips after a trim at the last hop, and until eight packets
# have arrived, or an eighth of those that are left, the window grows by at most a quarter of what
# arrives.
GROWTH_TRIMMED = 0.25
HELD_RTTS = 2
HELD_PACKETS = 8
HELD_PART = 8
# A round trip through a full queue of the last hop, which holds 1.5 T. Packets that take longer
# waited for another class: the retransmissions of all that was trimmed there (row 15).
FULL_RTTS = 2.5


@compiled
def configure(q, c, rate_bps, share):
    """Set every constant from the usable rate of a QP (bit/s, the sum of its up ports) and T; clamp
    the window, keep the averages. `share` QPs have one window together (row 24).
    """
    t = float(c.base_rtt_ps)
    bdp = rate_bps * t / PS_BITS / share
    mss = float(c.pmtu)
    q.pkt = mss + c.nominal_overhead
    q.two_packets = int(2.0 * q.pkt * PS_BITS / c.port_rate_bps)
    q.t_config = t
    q.max_wnd = max(1.5 * bdp, WINDOW_PACKETS_MIN * q.pkt / share, q.pkt)
    a = bdp / A_UNIT_BYTES
    target = 0.75 * t if c.trimming else t
    q.target = int(target)
    time = float(c.alpha_time_ps) if c.alpha_time_ps > 0 else t
    q.alpha = 4.0 * mss * a * (target / time) / target
    q.fi = 5.0 * mss * a
    q.eta = 0.15 * mss * a
    q.fi_scale = 0.25 * a
    q.fast_below = t / 12.0
    q.qa_threshold = 4.0 * target
    q.qa_window = q.max_wnd / 2**QA_GATE
    if q.base_rtt == 0:
        q.base_rtt = c.base_rtt_ps
    # row 9
    q.rto = max(c.rto_base_ps, 4 * (c.base_rtt_ps + q.target))
    if q.cwnd == 0.0 or c.cc == CC_NONE:
        q.cwnd = q.max_wnd  # start at line rate
    q.cwnd = min(max(q.cwnd, q.pkt), q.max_wnd)


@compiled
def obey(q, c, f):
    """Take the values of a controller in place of those that follow from rate and T; call it after
    `configure`.
    """
    q.max_wnd = max(f.max_wnd, q.pkt)
    q.target = f.target
    q.eta = f.eta
    q.fi = f.fi
    q.fi_scale = f.fi_scale
    q.t_config = float(f.base_rtt)
    q.fast_below = q.t_config / 12.0
    q.qa_threshold = float(f.qa_threshold)
    # no throughput is below -1, so that quick adapt never acts
    q.qa_window = -1.0 if f.without_qa else q.max_wnd / 2**f.qa_gate
    q.rto = max(c.rto_base_ps, 4 * (f.base_rtt + f.target))
    if f.without_cc:
        q.cwnd = q.max_wnd
    q.cwnd = min(max(q.cwnd, q.pkt), q.max_wnd)


@inlined
def _adapts(q, c, f):
    """Whether the window follows NSCC."""
    return c.cc == CC_NSCC and (q.cc == 0 or f.without_cc == 0)


@inlined
def _quick_adapt(q, now, delay, loss, ecn):
    """Step 4 of MRC 4.6; returns True if it consumes the signal."""
    if q.ignored < q.to_ignore and (ecn or loss):
        consumed = True
    else:
        consumed = False
        if now > q.qa_end:
            alarmed = q.qa_trigger != 0 or delay > q.qa_threshold
            if q.qa_end != 0 and alarmed and q.achieved < q.qa_window:
                q.cwnd = max(q.achieved, q.pkt)
                q.to_ignore = float(q.inflight)
                q.ignored = 0.0
                q.qa_trigger = 0
                consumed = True
            q.achieved = 0.0
            q.qa_end = now + q.base_rtt + q.target
    if consumed:
        q.inc = 0.0
        q.since_adjust = 0.0
    return consumed


@inlined
def _trimmed_within(q, c, rtts, now):
    """Whether the last hop, which does not mark, trimmed a packet within so many round trips."""
    return c.marks_on_last_hop == 0 and now - q.trimmed_at < rtts * q.base_rtt


@inlined
def _is_held(q, c, now):
    """Whether growth is limited after a trim at the last hop: for a time, and until a few packets
    have arrived, which takes longer if the window is a packet or two.
    """
    few = min(HELD_PACKETS, (q.seq_end - q.una) // HELD_PART) * q.pkt / RCVD_UNIT_BYTES
    return _trimmed_within(q, c, HELD_RTTS, now) or (
        c.marks_on_last_hop == 0 and q.rcvd_high - q.trimmed_units < few
    )


@inlined
def _fair_increase(q, c, now):
    return FI_TRIMMED * q.fi if _trimmed_within(q, c, TRIMMED_RTTS, now) else q.fi


@inlined
def _obey_receiver(q, new, penalty):
    """What a receiver asks for (MRC 4.8): 64 in every SACK of a round trip halves the window. The
    window from before its first penalty is kept until a SACK has none, and restored if that says
    so.
    """
    if penalty & RESTORE:
        q.cwnd = max(q.cwnd, q.spared)
    level = penalty & PENALTY_MAX
    if level == 0:
        q.spared = 0.0
        return
    if q.spared == 0.0:
        q.spared = q.cwnd
    q.cwnd = max(q.cwnd - new * level / 128.0, q.pkt)
    q.fast = 0  # no fast growth either: it would outweigh the penalty
    q.calm = 0.0


@compiled
def on_sack(q, c, f, now, new_bytes, rtt_ps, ce, penalty):
    """A SACK that reports `new_bytes` more received; `rtt_ps` < 0 if it carries no sample. `f` is
    the record of NSCC that the QP obeys, if `q.cc` names one.

    MRC 4.6 steps 1 to 6.
    """
    new = float(new_bytes)
    q.achieved += new
    q.ignored += new
    q.since_adjust += new
    delay = q.avg_delay
    if rtt_ps > FULL_RTTS * q.t_config and _trimmed_within(q, c, TRIMMED_RTTS, now):
        rtt_ps = -1
    if rtt_ps >= 0:
        if rtt_ps < q.base_rtt:
            q.base_rtt = max(rtt_ps, c.base_rtt_ps // 2)
            delay = 0.0
        else:
            delay = float(rtt_ps - q.base_rtt)
    # The last hop sets no marks, so a long delay stands in for one: otherwise an incast stays at
    # the trim threshold.
    ecn = ce or (c.marks_on_last_hop == 0 and delay > q.t_config)
    if rtt_ps >= 0:
        sample = delay
        if not ecn and delay > q.target:
            sample = 0.25 * q.base_rtt
        q.avg_delay += AVERAGE_WEIGHT * (sample - q.avg_delay)
    if not _adapts(q, c, f):
        return
    if penalty != 0 or q.spared != 0.0:
        _obey_receiver(q, new, penalty)
    if _quick_adapt(q, now, delay, False, ecn):
        return
    held = _is_held(q, c, now)
    if not ecn:
        if delay >= q.target:
            q.inc += _fair_increase(q, c, now) * new
        else:
            if delay < q.fast_below:
                q.calm += new
            else:
                q.calm = 0.0
                q.fast = 0
            if q.fast != 0 or q.calm > q.cwnd:
                q.fast = 1
                q.cwnd += (min(GROWTH_TRIMMED, q.fi_scale) if held else q.fi_scale) * new
            else:
                q.inc += q.alpha * new * (q.target - delay)
    elif delay >= q.target:
        q.fast = 0
        q.calm = 0.0
        if q.avg_delay > q.target and now - q.last_dec > q.base_rtt:
            overshoot = (q.avg_delay - q.target) / q.avg_delay
            gamma = f.gamma if q.cc else GAMMA
            q.cwnd *= max(1.0 - gamma * overshoot, f.max_md_jump if q.cc else MAX_MD_JUMP)
            q.last_dec = now
    q.cwnd = min(max(q.cwnd, q.pkt), q.max_wnd)
    due = now - q.last_adjust > (f.adjust_ps if q.cc else c.base_rtt_ps)
    if q.since_adjust > (f.adjust_bytes if q.cc else ADJUST_PACKETS * q.pkt) or due:
        growth = q.inc / q.cwnd
        if due:
            growth += q.eta
            q.last_adjust = now
        q.cwnd += min(growth, GROWTH_TRIMMED * q.since_adjust) if held else growth
        q.inc = 0.0
        q.since_adjust = 0.0
    q.cwnd = min(max(q.cwnd, q.pkt), q.max_wnd)


@compiled
def on_trim(q, c, f, now):
    """A packet was trimmed, in the fabric or at the last hop (MRC 4.9); call it while the packet
    still counts as in flight.
    """
    q.ignored += q.pkt
    if c.marks_on_last_hop == 0:
        # The header took a share of the link that data regains once fewer packets are trimmed: a
        # window set to the data alone is far too small while headers of a line-rate start fill the
        # link.
        q.achieved += c.nominal_overhead
    q.avg_delay += AVERAGE_WEIGHT * (q.t_config - q.avg_delay)
    if not _adapts(q, c, f):
        return
    q.qa_trigger = 1
    if not _quick_adapt(q, now, q.avg_delay, True, False):
        q.cwnd = max(q.cwnd - q.pkt, q.pkt)


@compiled
def on_loss(q, c, f, now, k):
    """A packet was judged lost on plane `k`. True if the window was cut for it.

    Planes take turns, so congestion loses on all of them alike. A loss on the same plane as the one
    before, with others in service, is that plane's fault, and cuts nothing. All cuts within one
    round trip take at most half the window: a dead path is not congestion.
    """
    if not _adapts(q, c, f):
        return False
    again = k == q.lost_plane
    q.lost_plane = k
    if again and several(q.planes_ok):
        return False
    if now - q.cut_started > q.base_rtt:
        q.cut_started = now
        q.cut_floor = q.cwnd / 2.0
    cut_to = max(q.cwnd - q.pkt, q.cut_floor, q.pkt)
    if cut_to >= q.cwnd:
        return False
    q.cwnd = cut_to
    return True


@inlined
def undo_loss(q):
    """The loss was a false alarm: undo its cut of the window (row 7)."""
    q.cwnd = min(q.cwnd + q.pkt, q.max_wnd)
