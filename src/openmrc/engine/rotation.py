"""The plane and the EV that carry the next packet (row 13).

Planes take turns. A QP holds equally many EVs per plane, part of them active (in the plane's
rotation), the rest backup, and replaces an EV only by one of the same plane, so that planes stay
evenly loaded (MRC 3.4). Other choices (`reps.py`, `recycling.py`, policies of users: `policy.py`)
stand before MRC's own rotation or in its place; they get the feedback on each EV.
"""

from __future__ import annotations

import numpy as np

from openmrc.engine import account, bits, recycling, reps
from openmrc.engine.account import PLANE_BACK
from openmrc.engine.ev import (
    ASSUMED_BAD,
    DENIED,
    FAILED,
    FIRST_ANSWER,
    GOOD,
    RECALL,
    SKIP,
    TURN,
    enter,
    index_of,
    is_narrow,
    is_under_check,
    usable,
)
from openmrc.engine.policy import PATHS_MRC, RECYCLING, REPS, ROTATION, SKIP_TURNS
from openmrc.engine.state import NEVER
from openmrc.jit import inlined, inner
from openmrc.jit.callref import call, call_int

# Between two views of which planes deliver: packets of each plane, in the mean, and round trips.
# Full queues differ from plane to plane, but not for so long.
ARRIVALS = 2
VIEW_RTTS = 2
EVS_PER_TURN = 16  # of a plane, for each turn that one of them skips
TURNS_MAX = 127  # a field of one byte
BURST_SHARE = 0.25  # of the window: what is left keeps the paths busy while a burst waits for room
SQUARED = SKIP_TURNS["squared"]


@inlined
def ports_up(st, q):
    """Mask of planes whose own and remote port are up (MRC 3.10)."""
    return st.nic[q.nic].up_mask & st.peer[q.peer].remote_mask


@inlined
def control_planes(st, q):
    """Mask of planes for control packets: up at both ends, with an EV that is not denied, and, if
    possible, not silent for all QPs of the NIC.
    """
    up = ports_up(st, q)
    allowed = up & ~q.planes_denied
    allowed = allowed if allowed != 0 else up
    heard = allowed & ~st.nic[q.nic].silent_mask
    heard = heard if heard != 0 else allowed
    came = heard & (q.came_now | q.came_before)
    return came if came != 0 else heard


@inlined
def note_arrival(q, k, now):
    """A packet of the peer's requester arrived on plane `k`; the first one begins a view."""
    q.came_now |= 1 << k
    q.came_left = max(q.came_left - 1, 0)
    if q.came_left == 0 and now >= q.turn_after:
        q.came_before = q.came_now
        q.came_now = 0
        q.came_left = ARRIVALS * q.n_planes
        q.turn_after = now + VIEW_RTTS * q.base_rtt


@inlined
def answer_on(plane, value, known):
    """This EV is the plane's reverse EV from now on; whether it is `known` to deliver (row 14)."""
    plane.reverse_ev = value
    plane.reverse_known = known


# --- planes


@inlined
def choose_plane(st, q, free_ports):
    """The plane whose turn it is among the usable ones with a free port, or -1 (row 13)."""
    mask = q.planes_ok & free_ports
    best = -1
    best_turn = NEVER
    for k in range(q.n_planes):
        if (mask >> k) & 1:
            turn = st.plane[q.plane0 + k].turn
            if turn < best_turn:
                best = k
                best_turn = turn
    return best


@inlined
def planes_without(st, q, ev):
    """Mask of the usable planes except that of an EV on which a packet was lost; all of them if
    there is no other, or if paths are not chosen by MRC's rotation.
    """
    others = q.planes_ok & ~(1 << st.ev[q.ev0 + ev].plane)
    return others if others != 0 and st.config[0].paths == PATHS_MRC else q.planes_ok


@inlined
def several(planes):
    """Whether a mask has more than one plane."""
    return planes & (planes - 1) != 0


@inlined
def charge_turn(q, plane, burst):
    """Count a packet given to a plane; a plane that was passed over catches up by one round at most
    (row 13). A round is a burst from each.
    """
    plane.turn = max(plane.turn, q.turn_max - burst) + 1
    q.turn_max = max(q.turn_max, plane.turn)


@inner
def begin_anywhere(st, q):
    """A message that is too short for all planes begins with a random one: those before it count as
    having had their turn. Else the short messages of an incast meet on one plane.
    """
    for k in range(bits.draw_below(st.stream, q.index, int(q.n_planes))):
        charge_turn(q, st.plane[q.plane0 + k], st.config[0].burst)


@inner
def refresh_planes(st, q, now):
    """Determine which planes may take a turn; one that comes back starts level with the others."""
    up = ports_up(st, q)
    ok = 0
    for k in range(q.n_planes):
        plane = st.plane[q.plane0 + k]
        if (up >> k) & 1 and plane.silent == 0 and plane.n_active > 0:
            ok |= 1 << k
    if ok == 0:
        ok = _recall_all(st, q, up, now)
    heard = ok & ~st.nic[q.nic].silent_mask
    if heard != 0:
        ok = heard
    for k in range(q.n_planes):
        if (ok >> k) & 1 and not (q.planes_ok >> k) & 1:
            st.plane[q.plane0 + k].turn = q.turn_max
    q.planes_ok = ok


@inner
def _recall_all(st, q, up, now):
    """Row 12: where every plane is silent, the likeliest ASSUMED_BAD EV of each serves. Returns the
    mask of planes that have one.
    """
    ok = 0
    for k in range(q.n_planes):
        plane = st.plane[q.plane0 + k]
        if (up >> k) & 1 and (plane.n_active > 0 or recall_likeliest(st, q, plane, k, 1, now)):
            heard_again(st, q, plane, k, now)
            plane.losses = 0
            ok |= 1 << k
    return ok


@inner
def move(st, q, plane, value, now):
    """Give a QP with a single path another one, on any plane."""
    for k in range(q.n_planes):
        r = st.plane[q.plane0 + k]
        r.n_evs = 1 if k == plane else 0
        r.n_active = r.n_evs
        r.share = r.n_evs
        r.n_good = r.n_evs
        r.ev0 = 0
        r.pos = 0
        st.order[q.order0 + k * q.order_len] = 0
    e = st.ev[q.ev0]
    e.plane = plane
    e.value = value
    refresh_planes(st, q, now)


# --- the EV of a packet


@inlined
def choose_ev(st, q, k, avoid, now):
    """Index (within the QP) of the EV for the next packet on plane `k`; `avoid` is one to leave out
    if possible, or -1.
    """
    plane = st.plane[q.plane0 + k]
    if st.config[0].path_choose != ROTATION:
        own = _choose_own(st, q, k, plane, avoid)
        if own >= 0:
            return own
    first = q.order0 + k * q.order_len
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
        ev = _choose_around_skips(st, q, plane, first, avoid, now)
    return ev


@inlined
def carried_on(st, q, free_ports):
    """The EV of the current burst, or -1 if the burst is over: its port is busy, or its path went
    bad or was marked.
    """
    if q.burst_left <= 0:
        return -1
    q.burst_left -= 1
    e = st.ev[q.ev0 + q.burst_ev]
    if e.state != GOOD or e.active == 0 or not (q.planes_ok & free_ports) >> e.plane & 1:
        q.burst_left = 0
        return -1
    return int(q.burst_ev)


@inlined
def waits_for_burst(st, q):
    """Whether the window has too little room for a burst on each plane to begin. One that has been
    full opens by a few packets at a time, and each time would be a burst of its own.
    """
    most = st.config[0].burst
    if most <= 1 or q.burst_left > 0:
        return False
    wanted = min(most * int(q.n_planes), q.seq_end - q.nxt) * q.pkt
    return q.cwnd - q.inflight < min(wanted, BURST_SHARE * q.cwnd)


@inner
def begin_burst(st, q, ev):
    """A new packet takes an EV: the length of the burst depends on how much may be sent now. Each
    plane gets its share of that, so that short messages spread as they would without bursts.
    """
    planes = 0
    for k in range(q.n_planes):
        planes += (q.planes_ok >> k) & 1
    room = int((q.cwnd - q.inflight) / q.pkt)
    ready = min(q.seq_end - q.nxt, q.una + q.mpr - q.nxt, room)
    q.burst_ev = ev
    q.burst_left = min(ready // max(planes, 1), st.config[0].burst) - 1


@inner
def proven(st, q, plane_no):
    """The EV of a plane on which a packet was delivered last. If it is no longer in service, the
    next one that was not just recalled for want of a better one; -1 if that is the next one anyway,
    or if MRC's rotation has no part in the choice.
    """
    c = st.config[0]
    plane = st.plane[q.plane0 + plane_no]
    rotates = c.path_choose == ROTATION or c.path_choose == RECYCLING
    if c.paths != PATHS_MRC or not rotates:
        return -1
    ev = int(plane.proven)
    if ev >= 0 and st.ev[q.ev0 + ev].state == GOOD and st.ev[q.ev0 + ev].active:
        return ev
    for step in range(plane.n_active):
        place = (int(plane.pos) + step) % plane.n_active
        ev = int(st.order[q.order0 + plane_no * q.order_len + place])
        if st.blame[st.ev[q.ev0 + ev].blame].answers != FAILED:
            return ev if step > 0 else -1
    return -1


@inner
def answer_as_it_came(st, q, plane, value):
    """Something came on this EV: answers on its plane take it, too, for both directions of an EV
    cross the same switches; unless it is denied here, or found to be bad.
    """
    ev = index_of(st, q, value)
    if ev >= 0:
        e = st.ev[q.ev0 + ev]
        is_found = e.state == ASSUMED_BAD and not is_under_check(q, st.blame[e.blame])
        if is_found or e.state == DENIED:
            return
    plane.reverse_ev = value


@inner
def random_ev(st, q, plane_no, avoid, believed):
    """The value of a random EV of a plane that is not denied; not `avoid`, if there is another, and
    not an ASSUMED_BAD one, if there is another and the states of EVs are `believed`.
    """
    plane = st.plane[q.plane0 + plane_no]
    ev = _random_of_all(st, q, plane, avoid, believed) if plane.n_evs > 0 else -1
    return int(st.ev[q.ev0 + ev].value) if ev >= 0 else int(plane.reverse_ev)


@inner
def _random_of_all(st, q, plane, avoid, believed):
    """The same as an index within the QP, of a plane that has EVs; -1 if there is none to take."""
    pick = bits.draw_below(st.stream, q.index, int(plane.n_evs))
    bad = -1
    for _ in range(plane.n_evs):
        ev = int(plane.ev0) + pick
        e = st.ev[q.ev0 + ev]
        if e.state != DENIED and int(e.value) != avoid:
            if e.state != ASSUMED_BAD or not believed:
                return ev
            bad = ev if bad < 0 else bad
        pick = pick + 1 if pick + 1 < plane.n_evs else 0
    return bad


@inlined
def random_active(st, q, plane_no):
    """Index within the QP of a random EV of a plane's rotation, which is not empty."""
    pick = bits.draw_below(st.stream, q.index, int(st.plane[q.plane0 + plane_no].n_active))
    return int(st.order[q.order0 + plane_no * q.order_len + pick])


@inner
def path_to_ask(st, q, plane_no, in_vain):
    """Index within the QP of the EV for a probe: a random one of a plane's rotation. Where paths
    are missing there, and the others were asked `in_vain`, a random one of all that are not denied.
    """
    plane = st.plane[q.plane0 + plane_no]
    if plane.n_active >= plane.share or not in_vain:
        return random_active(st, q, plane_no)
    return _random_of_all(st, q, plane, -1, False)


@inner
def _shuffle(st, stream, first, n):
    for i in range(n - 1, 0, -1):
        j = bits.draw_below(st.stream, stream, i + 1)
        kept = st.order[first + i]
        st.order[first + i] = st.order[first + j]
        st.order[first + j] = kept


@inner
def _choose_around_skips(st, q, plane, first, avoid, now):
    """The next GOOD EV when the one at the head is not GOOD; the first SKIP EV met loses this turn,
    and is restored if it was its last to lose.

    EVs that were passed over but not restored keep their places at the head.
    """
    n = int(plane.n_active)
    pos = int(plane.pos)
    restored = -1
    chosen = -1
    for step in range(n):
        i = st.order[first + (pos + step) % n]
        e = st.ev[q.ev0 + i]
        if e.state == GOOD and i != avoid:
            chosen = step
            break
        if restored < 0 and _loses_turn(st, q, plane, int(i), now):
            restored = step
    if chosen < 0:  # all are SKIP, or the only GOOD one is the one to avoid
        chosen = restored if restored >= 0 else 0
        restored = -1
    chosen_ev = st.order[first + (pos + chosen) % n]
    for step in range(chosen, 0, -1):
        st.order[first + (pos + step) % n] = st.order[first + (pos + step - 1) % n]
    st.order[first + pos] = chosen_ev
    used = 1
    if restored >= 0:
        moved = st.order[first + (pos + restored + 1) % n]
        for step in range(restored + 1, 0, -1):
            st.order[first + (pos + step) % n] = st.order[first + (pos + step - 1) % n]
        st.order[first + pos] = moved
        used = 2
    plane.pos = (pos + used) % n
    return int(chosen_ev)


@inlined
def _loses_turn(st, q, plane, ev, now):
    """Pass over a SKIP EV; False for any other."""
    e = st.ev[q.ev0 + ev]
    if e.state == SKIP and e.active > 1:
        e.active -= 1
        return True
    return enter(st, q, plane, ev, TURN, now)


@inlined
def turns_of_a_round_trip(q, plane):
    """The rounds of a plane within a base round trip, because there is no newer feedback on a
    marked path before. A round takes half of `two_packets` for each EV. With few EVs it is one
    turn, because the others must carry its packets.
    """
    rounds = 2 * q.base_rtt // (plane.share * q.two_packets)
    return max(min(rounds, plane.share // EVS_PER_TURN), 1)


@inlined
def skip_turns(st, q, plane, e, entered):
    """An EV was marked, and `entered` SKIP if it was in service: it loses turns (row 13)."""
    turns = st.config[0].skip_turns
    if turns == SQUARED:
        e.active = min(int(e.marks) ** 2 * turns_of_a_round_trip(q, plane), TURNS_MAX)
    elif entered:
        e.active = turns if turns > 0 else turns_of_a_round_trip(q, plane)


# --- members of the rotation


@inner
def leave(st, q, plane, k, ev):
    """Take an EV out of the rotation; a usable backup of the same plane takes its place, if there
    is one.
    """
    first = q.order0 + k * q.order_len
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
        if e.active == 0 and usable(e.state):
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
def restore(st, q, plane, k, ev, event, now):
    """Make an EV usable: it goes to the end of its plane's rotation if that is short, else to the
    backups. False if the event cannot happen in its state.

    One that was tried first (row 36) takes a random place: in the order in which they answer, paths
    would have one order for all QPs.
    """
    e = st.ev[q.ev0 + ev]
    if not enter(st, q, plane, ev, event, now):
        return False
    if plane.n_active < plane.share and e.active == 0:
        first = q.order0 + k * q.order_len
        place = first + plane.n_active
        if event == FIRST_ANSWER:
            place = first + bits.draw_below(st.stream, q.index, int(plane.n_active) + 1)
            st.order[first + plane.n_active] = st.order[place]
        st.order[place] = ev
        plane.n_active += 1
        e.active = 1
    return True


@inner
def heard_again(st, q, plane, k, now):
    """A plane is not silent, or no longer."""
    if plane.silent:
        account.note_plane(st, q.nic, q.index, k, PLANE_BACK, 0, now)
    plane.silent = 0


@inner
def has_proven(st, q, plane, k):
    """Whether a plane has an EV in service that was not just recalled for want of a better one."""
    for i in range(plane.n_active):
        e = st.ev[q.ev0 + st.order[q.order0 + k * q.order_len + i]]
        if st.blame[e.blame].answers != FAILED:
            return True
    return False


@inner
def nothing_proven(st, q):
    """Whether all planes in service have only paths that were recalled for want of better ones."""
    for k in range(q.n_planes):
        if (q.planes_ok >> k) & 1 and has_proven(st, q, st.plane[q.plane0 + k], k):
            return False
    return True


@inner
def recall_likeliest(st, q, plane, k, narrow, now):
    """Row 12: at the floor an ASSUMED_BAD EV returns to service, of all or of those that are not
    too `narrow`: the one that delivered most of what it carried lately; of equals the one that was
    demoted longest ago. False if there is none.
    """
    likeliest = -1
    most = -1
    since = NEVER
    for i in range(plane.n_evs):
        e = st.ev[q.ev0 + plane.ev0 + i]
        b = st.blame[e.blame]
        if e.state != ASSUMED_BAD or (is_narrow(b) and not narrow):
            continue
        if b.delivers > most or (b.delivers == most and b.demoted_at < since):
            likeliest = plane.ev0 + i
            most = int(b.delivers)
            since = b.demoted_at
    if likeliest < 0 or not restore(st, q, plane, k, likeliest, RECALL, now):
        return False
    st.blame[st.ev[q.ev0 + likeliest].blame].answers = FAILED  # until it delivers
    return True


# --- other choices of paths


@inner
def _choose_own(st, q, k, plane, avoid):
    """The EV that another built-in choice or the user's policy takes; if it is not of the plane,
    the plane's first. -1: the rotation goes on.
    """
    chooser = st.config[0].path_choose
    if chooser == RECYCLING:
        return recycling.choose(st, q, plane, avoid)
    if chooser == REPS:
        ev = reps.choose(st, q, plane, st.reps[q.plane0 + k], avoid)
    else:
        ev = call_int(chooser, (st, q, k, avoid))
    if ev < plane.ev0 or ev >= plane.ev0 + plane.n_evs:
        ev = int(plane.ev0)
    return ev


@inlined
def learn(st, q, ev, event, sent_at, now):
    """Pass feedback on an EV, from a packet sent at `sent_at`, to who chooses in place of MRC's
    rotation.
    """
    if st.config[0].path_learn != ROTATION:
        _tell(st, q, ev, event, sent_at, now)


@inner
def _tell(st, q, ev, event, sent_at, now):
    learner = st.config[0].path_learn
    if learner == RECYCLING:
        recycling.learn(st, q, ev, event, sent_at)
    elif learner == REPS:
        reps.learn(q, st.config[0], st.reps[q.plane0 + st.ev[q.ev0 + ev].plane], ev, event, now)
    else:
        call(learner, (st, q, ev, event, now))


assert np.int16(32767) >= 16 * 256  # an EV index of any plane fits its order entry
