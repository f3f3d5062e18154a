"""The paths of a QP: which EV the next packet takes, and what is believed of each.

An EV (entropy value) names one path. A QP holds equally many per plane, part of them active (in the
rotation), the rest backup, and replaces an EV only by one of the same plane, so that planes stay
evenly loaded (MRC 3.4).

    GOOD         -- mark, trim --------------> SKIP
    SKIP         -- the rotation reaches it -> GOOD (that packet takes the next)
    GOOD, SKIP   -- loss, ALWAYS_SKIP -------> ASSUMED_BAD
    ASSUMED_BAD  -- enough probes answered --> GOOD (SKIP, if the last answer was marked)
    any          -- denylist ----------------> DENIED
    DENIED       -- lifted ------------------> GOOD

A plane all of whose losses are unbroken by a delivery is *silent*: it gets no turn, its EVs are
probed, and it is back with the first of them that is revived (rows 10 to 12).
"""

from __future__ import annotations

import numpy as np

from openmrc.callref import call, call_int
from openmrc.engine import bits, policy, reps
from openmrc.engine.packet import CLASS_DATA, NO_TRIM, PROBE, TIMESTAMP_UNIT_PS
from openmrc.engine.state import (
    BUILT_IN,
    EV_DENIED,
    NEVER,
    PATHS_MRC,
    REVERSE_PROBED,
    emit,
    signed,
)
from openmrc.jit import compiled, inlined, inner

GOOD, SKIP, ASSUMED_BAD, DENIED = 1, 2, 3, EV_DENIED  # MRC 3.3

LAST_PATH_LOSSES = 3  # row 10
DEMOTION_MEMORY_PS = 100_000_000_000  # row 11: demotions within 100 ms count together
ANSWERS_MAX = 8  # row 11
SPACING_MAX_PS = 100_000_000_000  # row 11
PROBE_BURST = 16  # probes a NIC may send at once before the 1 % budget (row 11) spaces them
PROBE_SHARE = 0.01


@inlined
def choose_plane(st, q, free_ports):
    """The plane whose turn it is among the usable ones with a free port, or -1 (row 13)."""
    mask = q.planes_ok & free_ports
    best = -1
    best_turn = NEVER
    for p in range(q.n_planes):
        if (mask >> p) & 1:
            turn = st.plane[q.plane0 + p].turn
            if turn < best_turn:
                best = p
                best_turn = turn
    return best


@inlined
def charge_turn(q, plane):
    """Count a packet given to a plane; a plane that was passed over catches up one round, not more
    (row 13).
    """
    plane.turn = max(plane.turn, q.turn_max - 1) + 1
    q.turn_max = max(q.turn_max, plane.turn)


@inner
def _shuffle(st, stream, first, n):
    for i in range(n - 1, 0, -1):
        j = bits.draw_below(st.stream, stream, i + 1)
        kept = st.order[first + i]
        st.order[first + i] = st.order[first + j]
        st.order[first + j] = kept


@inner
def _choose_around_skips(st, q, plane, first, avoid):
    """The next GOOD EV when the one at the head is not; the first SKIP EV met is restored and loses
    this turn.

    What was passed over but not restored keeps its place at the head.
    """
    n = int(plane.n_active)
    pos = int(plane.pos)
    restored = -1
    chosen = -1
    for k in range(n):
        i = st.order[first + (pos + k) % n]
        e = st.ev[q.ev0 + i]
        if e.state == GOOD and i != avoid:
            chosen = k
            break
        if e.state == SKIP and restored < 0:
            restored = k
            e.state = GOOD
    if chosen < 0:  # all are SKIP, or the only GOOD one is the one to avoid
        chosen = restored if restored >= 0 else 0
        restored = -1
    chosen_ev = st.order[first + (pos + chosen) % n]
    for k in range(chosen, 0, -1):
        st.order[first + (pos + k) % n] = st.order[first + (pos + k - 1) % n]
    st.order[first + pos] = chosen_ev
    used = 1
    if restored >= 0:
        moved = st.order[first + (pos + restored + 1) % n]
        for k in range(restored + 1, 0, -1):
            st.order[first + (pos + k) % n] = st.order[first + (pos + k - 1) % n]
        st.order[first + pos] = moved
        used = 2
    plane.pos = (pos + used) % n
    return int(chosen_ev)


@inner
def _choose_own(st, q, p, plane, avoid):
    """The EV that REPS or the user's policy chooses; what is not of the plane is taken for its
    first.
    """
    if st.config[0].path_choose == BUILT_IN:
        ev = reps.choose(st, q, plane, st.reps[q.plane0 + p], avoid)
    else:
        ev = call_int(st.config[0].path_choose, (st, q, p, avoid))
    if ev < plane.ev0 or ev >= plane.ev0 + plane.n_evs:
        ev = int(plane.ev0)
    st.ev[q.ev0 + ev].used += 1
    return ev


@inlined
def learn(st, q, ev, event, now):
    """Tell REPS or the user's policy what was heard of an EV."""
    if st.config[0].path_learn != 0:
        _tell(st, q, ev, event, now)


@inner
def _tell(st, q, ev, event, now):
    if st.config[0].path_learn == BUILT_IN:
        reps.learn(q, st.config[0], st.reps[q.plane0 + st.ev[q.ev0 + ev].plane], ev, event, now)
    else:
        call(st.config[0].path_learn, (st, q, ev, event, now))


@inlined
def choose_ev(st, q, p, avoid):
    """Index (within the QP) of the EV for the next packet on plane `p`; `avoid` is one it should
    not take, or -1.
    """
    plane = st.plane[q.plane0 + p]
    if st.config[0].path_choose != 0:
        return _choose_own(st, q, p, plane, avoid)
    first = q.order0 + p * q.order_len
    n = int(plane.n_active)
    if plane.picks >= st.config[0].shuffle_rounds * n:
        _shuffle(st, q.index, first, n)
        plane.picks = 0
    plane.picks += 1
    ev = int(st.order[first + plane.pos])
    if st.ev[q.ev0 + ev].state == GOOD and ev != avoid:
        pos = plane.pos + 1
        plane.pos = 0 if pos >= n else pos
    else:
        ev = _choose_around_skips(st, q, plane, first, avoid)
    st.ev[q.ev0 + ev].used += 1
    return ev


@inlined
def ports_up(st, q):
    """Mask of planes whose own and remote port are up (MRC 3.10)."""
    return st.nic[q.nic].up_mask & st.peer[q.peer].remote_mask


@inlined
def control_planes(st, q):
    """Mask of planes for control packets: up at both ends, and not denied altogether if any is."""
    up = ports_up(st, q)
    allowed = up & ~q.planes_denied
    return allowed if allowed != 0 else up


@inner
def refresh_planes(st, q):
    """Work out which planes may take a turn; one that comes back starts level with the others."""
    up = ports_up(st, q)
    ok = 0
    for p in range(q.n_planes):
        plane = st.plane[q.plane0 + p]
        if (up >> p) & 1 and plane.silent == 0 and plane.n_active > 0:
            ok |= 1 << p
    if ok == 0:  # row 12: where every plane is silent, the oldest ASSUMED_BAD EV of each serves
        for p in range(q.n_planes):
            plane = st.plane[q.plane0 + p]
            if (up >> p) & 1 and (plane.n_active > 0 or _serve_oldest_bad(st, q, plane, p)):
                plane.silent = 0
                plane.losses = 0
                ok |= 1 << p
    for p in range(q.n_planes):
        if (ok >> p) & 1 and not (q.planes_ok >> p) & 1:
            st.plane[q.plane0 + p].turn = q.turn_max
    q.planes_ok = ok


@inner
def _activate(st, q, plane, p, ev):
    """Put an EV at the end of its plane's rotation."""
    st.order[q.order0 + p * q.order_len + plane.n_active] = ev
    plane.n_active += 1
    st.ev[q.ev0 + ev].active = 1


@inner
def _leave_rotation(st, q, plane, p, ev):
    """Take an EV out of the rotation; a usable backup of the same plane takes its place, if there
    is one.
    """
    first = q.order0 + p * q.order_len
    place = -1
    for i in range(plane.n_active):
        if st.order[first + i] == ev:
            place = i
            break
    st.ev[q.ev0 + ev].active = 0
    if place < 0:
        return
    for i in range(plane.n_evs):
        e = st.ev[q.ev0 + plane.ev0 + i]
        if e.active == 0 and (e.state == GOOD or e.state == SKIP):
            e.active = 1
            st.order[first + place] = plane.ev0 + i
            return
    last = plane.n_active - 1
    for i in range(place, last):
        st.order[first + i] = st.order[first + i + 1]
    plane.n_active = last
    if plane.pos > place:
        plane.pos -= 1
    if plane.pos >= last:
        plane.pos = 0


@inner
def _restore(st, q, plane, p, ev, state):
    """An EV in ASSUMED_BAD becomes usable."""
    e = st.ev[q.ev0 + ev]
    e.state = state
    e.probe_id = -1
    e.probe_at = NEVER
    q.n_bad -= 1
    plane.n_good += 1
    if plane.n_active < plane.share and e.active == 0:
        _activate(st, q, plane, p, ev)


@inner
def _serve_oldest_bad(st, q, plane, p):
    """Row 12: at the floor the EV that was demoted longest ago serves again; False if there is
    none.
    """
    oldest = -1
    since = NEVER
    for i in range(plane.n_evs):
        e = st.ev[q.ev0 + plane.ev0 + i]
        if e.state == ASSUMED_BAD and e.demoted_at < since:
            oldest = plane.ev0 + i
            since = e.demoted_at
    if oldest < 0:
        return False
    _restore(st, q, plane, p, oldest, GOOD)
    return True


@inner
def _set_bad(q, plane, e, now):
    e.state = ASSUMED_BAD
    e.answers = 0
    e.probe_id = -1
    e.spacing = 2 * q.base_rtt
    e.probe_at = now + q.base_rtt  # row 11: first probe one RTT after the demotion
    q.ev_probe_at = min(q.ev_probe_at, e.probe_at)
    q.n_bad += 1
    plane.n_good -= 1


@inner
def _silence(st, q, plane, p, now):
    """Nothing of a plane arrives: it gets no turn, and each of its EVs must prove itself."""
    for i in range(plane.n_evs):
        e = st.ev[q.ev0 + plane.ev0 + i]
        if e.state == GOOD or e.state == SKIP:
            _set_bad(q, plane, e, now)
            e.demoted_at = now
        e.active = 0
    plane.n_active = 0
    plane.pos = 0
    plane.silent = 1
    refresh_planes(st, q)


@inner
def _demote(st, q, plane, p, ev, now):
    e = st.ev[q.ev0 + ev]
    if now - e.demoted_at > DEMOTION_MEMORY_PS:
        e.demotions = 0
    e.demotions = min(e.demotions + 1, 100)
    _set_bad(q, plane, e, now)
    _leave_rotation(st, q, plane, p, ev)
    e.demoted_at = now
    q.n_bad_total += 1


@inner
def _keep_floor(st, q, plane, p, now):
    """Row 12, `ev_min_active`: a plane that delivers keeps a quarter of its EVs in service."""
    if 4 * plane.n_good < plane.n_evs and now - plane.heard_at < q.rto:
        _serve_oldest_bad(st, q, plane, p)


@inner
def on_loss(st, q, ev, sent_at, now):
    """A packet sent on this EV at `sent_at` was judged lost, not trimmed (MRC 3.3, rows 10, 12)."""
    learn(st, q, ev, policy.HEARD_LOST, now)
    if st.config[0].paths != PATHS_MRC:
        return
    e = st.ev[q.ev0 + ev]
    p = int(e.plane)
    plane = st.plane[q.plane0 + p]
    if not (ports_up(st, q) >> p) & 1:
        return  # the port's state says it all: the path is not to blame
    if sent_at > plane.delivered_at:
        if plane.losses == 0:
            plane.first_lost_at = sent_at
        plane.losses += 1
    if (e.state != GOOD and e.state != SKIP) or sent_at <= e.demoted_at:
        return  # what was lost before the last demotion says nothing of a path revived since
    if plane.n_good <= 1 and plane.losses < LAST_PATH_LOSSES:
        return
    _demote(st, q, plane, p, ev, now)
    # Half of the rotation lost in a row and nothing delivered: not these paths but the plane.
    # Trying the backups one after the other would cost another round trip each.
    if plane.n_good == 0 or plane.losses >= max(LAST_PATH_LOSSES, (plane.share + 1) // 2):
        _silence(st, q, plane, p, now)
        return
    _keep_floor(st, q, plane, p, now)
    refresh_planes(st, q)


@inner
def on_always_skip(st, q, ev, now):
    """The responder thinks the path persistently bad (MRC 2.6, m = ALWAYS_SKIP)."""
    e = st.ev[q.ev0 + ev]
    p = int(e.plane)
    plane = st.plane[q.plane0 + p]
    if (
        st.config[0].paths == PATHS_MRC
        and plane.n_good > 1
        and (e.state == GOOD or e.state == SKIP)
    ):
        _demote(st, q, plane, p, ev, now)
        _keep_floor(st, q, plane, p, now)
        refresh_planes(st, q)


@inlined
def on_delivery(st, q, ev, sent_at, now):
    """A packet sent once, on this EV, is known received.

    A path that delivers serves for answers too (MRC 3.9). Not only the one that a SACK reflects:
    SACKs come every so many packets, planes take turns, and the two may keep step.
    """
    e = st.ev[q.ev0 + ev]
    plane = st.plane[q.plane0 + e.plane]
    if e.state == GOOD and st.config[0].reverse == REVERSE_PROBED:
        plane.reverse_ev = e.value
    plane.heard_at = now
    if sent_at > plane.delivered_at:
        plane.delivered_at = sent_at
        if sent_at >= plane.first_lost_at:
            plane.losses = 0


@inlined
def on_mark(st, q, ev):
    """A CE mark that counts or a trim in the fabric: one turn is skipped (MRC 3.3)."""
    e = st.ev[q.ev0 + ev]
    if e.state == GOOD and st.config[0].paths == PATHS_MRC:
        e.state = SKIP
        q.n_skips += 1


@inner
def index_of(st, q, value):
    """Index within the QP of the EV with this value, or -1."""
    for i in range(q.n_evs):
        if int(st.ev[q.ev0 + i].value) == value:
            return i
    return -1


@inner
def revive(st, q, ev, marked, now):
    """An EV in ASSUMED_BAD is believed again."""
    p = int(st.ev[q.ev0 + ev].plane)
    plane = st.plane[q.plane0 + p]
    if plane.silent:
        plane.silent = 0
        plane.losses = 0
        plane.delivered_at = now
        for i in range(plane.n_evs):  # the plane is back: ask for its other paths soon
            e = st.ev[q.ev0 + plane.ev0 + i]
            if e.state == ASSUMED_BAD and plane.ev0 + i != ev:
                e.spacing = 2 * q.base_rtt
                e.probe_at = now
                e.probe_id = -1
        q.ev_probe_at = now
    plane.heard_at = now
    _restore(st, q, plane, p, ev, SKIP if marked else GOOD)
    q.n_revived += 1
    refresh_planes(st, q)


@inner
def on_probe_answer(st, q, value, probe_id, marked, now):
    """The answer to a probe came; revives its EV once enough came in a row (row 11).

    Returns when it was sent, for it counts as an original (row 7); -NEVER if that is not known.
    """
    ev = index_of(st, q, value)
    if ev < 0:
        return -NEVER
    e = st.ev[q.ev0 + ev]
    if e.state != ASSUMED_BAD or e.probe_id != probe_id:
        return -NEVER
    sent_at = e.probe_at - e.spacing
    e.probe_id = -1
    e.answers += 1
    e.spacing = 2 * q.base_rtt
    needed = 1
    for _ in range(1, min(int(e.demotions), 4)):
        needed *= 2
    if e.answers >= min(needed, ANSWERS_MAX):
        revive(st, q, ev, marked, now)
    else:
        e.probe_at = now + e.spacing
        q.ev_probe_at = min(q.ev_probe_at, e.probe_at)
    return sent_at


@compiled
def deny(st, q, ev, denied, now):
    """A denylist takes an EV out of service, or gives it back (MRC 3.3)."""
    e = st.ev[q.ev0 + ev]
    p = int(e.plane)
    plane = st.plane[q.plane0 + p]
    if denied and e.state != DENIED:
        if e.state == ASSUMED_BAD:
            q.n_bad -= 1
        else:
            plane.n_good -= 1
        e.state = DENIED
        e.probe_at = NEVER
        _leave_rotation(st, q, plane, p, ev)
    elif not denied and e.state == DENIED:
        q.n_bad += 1
        _restore(st, q, plane, p, ev, GOOD)
        plane.silent = 0
    _review_reverse(st, q, plane, p)
    refresh_planes(st, q)


@inner
def _review_reverse(st, q, plane, p):
    """Control packets keep off what is denied, as long as there is anything else."""
    first = -1
    kept = False
    for i in range(plane.n_evs):
        e = st.ev[q.ev0 + plane.ev0 + i]
        if e.state != DENIED:
            first = i if first < 0 else first
            kept = kept or e.value == plane.reverse_ev
        elif e.value == plane.trial_ev:
            plane.trial_id = -1
    if first < 0:
        q.planes_denied |= 1 << p
        return
    q.planes_denied &= ~(1 << p)
    if not kept:
        plane.reverse_ev = st.ev[q.ev0 + plane.ev0 + first].value


@inner
def take_probe_token(st, nic, now):
    """Row 11: the NIC's budget for probes; 0 when one may go now, else the time when one may."""
    n = st.nic[nic]
    tokens = n.probe_tokens + (now - n.probe_tokens_at) * n.probe_rate
    n.probe_tokens = min(tokens, float(PROBE_BURST))
    n.probe_tokens_at = now
    if n.probe_tokens >= 1.0:
        n.probe_tokens -= 1.0
        return 0
    return now + 1 + int((1.0 - n.probe_tokens) / n.probe_rate)


@inner
def send_probe(st, q, ev, now):
    """Emit a reliability probe on an EV (MRC 2.9): data class, never trimmed. Its id."""
    q.probe_id = (q.probe_id + 1) & 0xFFFF
    p = emit(st)
    p.opcode = PROBE
    p.flag_bits = NO_TRIM
    p.klass = CLASS_DATA
    p.src = q.nic
    p.dst = q.peer_nic
    p.dst_qpn = q.peer_qpn
    p.ev = st.ev[q.ev0 + ev].value
    p.plane = st.ev[q.ev0 + ev].plane
    p.ack_offset = signed(q.probe_id, 16)
    p.timestamp = (now // TIMESTAMP_UNIT_PS) & 0xFFFF
    q.n_probe += 1
    return q.probe_id


@inner
def _most_overdue(st, q, up):
    """The ASSUMED_BAD EV, on a plane that is up, whose next probe is the earliest; -1 if none."""
    first = -1
    at = NEVER
    for i in range(q.n_evs):
        e = st.ev[q.ev0 + i]
        if e.state == ASSUMED_BAD and e.probe_at < at and (up >> e.plane) & 1:
            first = i
            at = e.probe_at
    return first


@inner
def probe_bad_evs(st, q, now):
    """Probe each ASSUMED_BAD EV that is due, longest due first; notes when to come again."""
    up = ports_up(st, q)
    while True:
        i = _most_overdue(st, q, up)
        if i < 0:
            q.ev_probe_at = NEVER
            return
        e = st.ev[q.ev0 + i]
        if e.probe_at > now:
            q.ev_probe_at = e.probe_at
            return
        wait = take_probe_token(st, q.nic, now)
        if wait > 0:
            q.ev_probe_at = wait
            return
        if e.probe_id >= 0:  # the one before was not answered
            e.answers = 0
            e.spacing = min(2 * e.spacing, SPACING_MAX_PS)
        e.probe_id = send_probe(st, q, i, now)
        e.probe_at = now + e.spacing


def ev_states() -> dict[int, str]:
    """Names of the EV states, for people."""
    return {GOOD: "GOOD", SKIP: "SKIP", ASSUMED_BAD: "ASSUMED_BAD", DENIED: "DENIED"}


assert np.int16(32767) >= 16 * 256  # an EV index of any plane fits its order entry
