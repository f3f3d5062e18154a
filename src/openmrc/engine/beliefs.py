"""Path state inference: from feedback on a QP's packets to the states of its EVs.

Losses, deliveries, marks, answered probes and denials are reported here. This module decides which
EV changes as a result, and what that means for its plane; `ev.enter` makes the change. A plane that
loses packets and delivers none in between is *silent*: it takes no turn, its EVs are probed, and it
is back in service as soon as one of them is revived (rows 10 to 12).
"""

from __future__ import annotations

from openmrc.engine import account, nic_planes, policy, rotation
from openmrc.engine import ev as evs
from openmrc.engine.account import PLANE_SILENT
from openmrc.engine.policy import PATHS_MRC, REVERSE_PROBED
from openmrc.jit import compiled, inlined, inner

LAST_PATH_LOSSES = 3  # row 10
CHANCE = 1 / 256  # of a run of losses that is not blamed on its plane
DEMOTION_MEMORY_PS = 100_000_000_000  # row 11: demotions within 100 ms count together
MARKS_TO_LEAVE = 8  # row 23
DEMOTIONS_MAX = 100  # higher counts change nothing, and the field holds this one


@inner
def on_loss(st, q, ev, sent_at, nominal, now):
    """A packet sent on this EV at `sent_at` was judged lost, not trimmed (MRC 3.3, rows 10, 12).
    `nominal` is its size with headers, bytes.
    """
    rotation.learn(st, q, ev, policy.HEARD_LOST, sent_at, now)
    if st.config[0].paths != PATHS_MRC:
        return
    e = st.ev[q.ev0 + ev]
    k = int(e.plane)
    plane = st.plane[q.plane0 + k]
    if not (rotation.ports_up(st, q) >> k) & 1:
        return  # the port's state explains the loss: the path is not to blame
    if e.blame != 0:
        evs.note_outcome(st.blame[e.blame], 0)
    evs.note_outcome(plane, 0)
    if sent_at > plane.delivered_at:
        if plane.losses == 0:
            plane.first_lost_at = sent_at
        plane.losses += 1
        nic_planes.note_loss(st, q, k, sent_at, now)
    if not evs.usable(e.state) or sent_at <= st.blame[e.blame].demoted_at:
        return  # a loss from before the last demotion says nothing of a path revived since
    if plane.n_good <= 1 and plane.losses < LAST_PATH_LOSSES:
        return
    payload = nominal - int(st.config[0].nominal_overhead)
    _demote(st, q, plane, ev, evs.LOSS, now)
    evs.note_lost(st.blame[e.blame], payload)
    if plane.n_good == 0 or _is_silent(st, q, plane, k):
        _silence(st, q, plane, payload, now)
        return
    _keep_floor(st, q, plane, k, now)
    rotation.refresh_planes(st, q, now)


@inner
def _is_silent(st, q, plane, k):
    """Whether a plane is to blame for what it lost, not its paths: half of the rotation lost
    packets in a row and nothing was delivered, and so many losses are no chance by what the best
    other plane loses. Trying the backups one after the other would cost a round trip each. Where
    nothing trims, full queues at the receiver lose such runs on all planes.
    """
    if plane.losses < max(LAST_PATH_LOSSES, (plane.share + 1) // 2):
        return False
    best = 0
    for other in range(q.n_planes):
        if other != k and (q.planes_ok >> other) & 1:
            best = max(best, st.plane[q.plane0 + other].delivers)
    return (1.0 - best / evs.WHOLE) ** plane.losses <= CHANCE


@inner
def on_always_skip(st, q, ev, now):
    """The responder reports the path as persistently bad (MRC 2.6, m = ALWAYS_SKIP)."""
    e = st.ev[q.ev0 + ev]
    k = int(e.plane)
    plane = st.plane[q.plane0 + k]
    if st.config[0].paths == PATHS_MRC and plane.n_good > 1 and evs.usable(e.state):
        _demote(st, q, plane, ev, evs.ALWAYS_SKIP, now)
        _keep_floor(st, q, plane, k, now)
        rotation.refresh_planes(st, q, now)


@inner
def _demote(st, q, plane, ev, event, now):
    """Blame one EV: it leaves the rotation, and demotions in quick succession are counted
    (row 11).
    """
    e = st.ev[q.ev0 + ev]
    b = evs.blame_of(st, e)
    if now - b.demoted_at > DEMOTION_MEMORY_PS:
        b.demotions = 0
    b.demotions = min(b.demotions + 1, DEMOTIONS_MAX)
    _assume_bad(st, q, plane, ev, event, now)
    rotation.leave(st, q, plane, int(e.plane), ev)


@inner
def _assume_bad(st, q, plane, ev, event, now):
    """A usable EV becomes ASSUMED_BAD; its first probe leaves one RTT later (row 11)."""
    if evs.enter(st, q, plane, ev, event, now):
        b = st.blame[st.ev[q.ev0 + ev].blame]
        b.demoted_at = now
        b.probe_at = now + q.base_rtt
        q.ev_probe_at = min(q.ev_probe_at, b.probe_at)


@inner
def _silence(st, q, plane, payload, now):
    """A plane delivers nothing: it gets no turns, and each of its EVs must answer a probe. Packets
    of this payload are lost on all of them.
    """
    for i in range(plane.n_evs):
        e = st.ev[q.ev0 + plane.ev0 + i]
        if evs.usable(e.state):
            _assume_bad(st, q, plane, plane.ev0 + i, evs.SILENCE, now)
            evs.note_lost(st.blame[e.blame], payload)
        e.active = 0
    plane.n_active = 0
    plane.pos = 0
    plane.silent = 1
    k = int(st.ev[q.ev0 + plane.ev0].plane)
    account.note_plane(st, q.nic, q.index, k, PLANE_SILENT, 0, now)
    rotation.refresh_planes(st, q, now)


@inner
def _keep_floor(st, q, plane, k, now):
    """Row 12, `ev_min_active`: a plane that delivers keeps a part of its EVs in service."""
    if 100 * plane.n_good < plane.keep * plane.n_evs and now - plane.heard_at < q.rto:
        rotation.recall_likeliest(st, q, plane, k, 0, now)


@inlined
def on_delivery(st, q, ev, sent_at, nominal, now):
    """A packet sent once, on this EV, is known received: `nominal` bytes of it with headers.

    A path that delivers data also serves control packets (MRC 3.9). This holds not only for the
    path that a SACK reflects: SACKs come at intervals of packets, planes take turns, and the two
    periods may coincide.
    """
    e = st.ev[q.ev0 + ev]
    plane = st.plane[q.plane0 + e.plane]
    e.marks = -max(e.marks, 0)
    if e.blame != 0:  # it was lost on before
        _note_passed(st, st.blame[e.blame], sent_at, nominal)
    if e.state == evs.GOOD and st.config[0].reverse == REVERSE_PROBED:
        rotation.answer_on(plane, e.value, 1)
    plane.heard_at = now
    evs.note_outcome(plane, 1)
    if sent_at > plane.delivered_at:
        plane.delivered_at = sent_at
        plane.proven = ev
        nic_planes.note_delivery(st, q, int(e.plane), sent_at)
        if sent_at >= plane.first_lost_at:
            plane.losses = 0


@inner
def _note_passed(st, b, sent_at, nominal):
    """A packet sent on a path since it was last avoided was delivered."""
    evs.note_outcome(b, 1)
    if sent_at > b.demoted_at:
        b.answers = max(b.answers, 0)
        evs.note_passed(b, nominal - int(st.config[0].nominal_overhead))


@inner
def on_mark(st, q, ev, now):
    """A CE mark that counts or a trim in the fabric: the EV skips one turn (MRC 3.3), and is
    replaced by a backup EV after several marks in a row, unless all paths are marked (row 23).
    """
    if st.config[0].paths != PATHS_MRC:
        return
    e = st.ev[q.ev0 + ev]
    plane = st.plane[q.plane0 + e.plane]
    e.marks = abs(e.marks) + 1
    entered = evs.enter(st, q, plane, ev, evs.MARK, now)
    if e.active:
        rotation.skip_turns(st, q, plane, e, entered)
    if e.marks == MARKS_TO_LEAVE:
        if plane.n_good > plane.n_active and not _mostly_marked(st, q, plane):
            on_always_skip(st, q, ev, now)
        e.marks = 1


@inner
def _mostly_marked(st, q, plane):
    """True if more than half of a plane's active paths are marked: another path would be no
    better.
    """
    marked = 0
    for i in range(plane.n_evs):
        e = st.ev[q.ev0 + plane.ev0 + i]
        marked += e.active != 0 and e.marks != 0
    return 2 * marked > plane.n_active + 1


@inner
def revive(st, q, ev, event, now):
    """Return an EV from ASSUMED_BAD to service; ANSWER, MARKED_ANSWER or FALSE_ALARM says why."""
    k = int(st.ev[q.ev0 + ev].plane)
    plane = st.plane[q.plane0 + k]
    if not rotation.has_proven(st, q, plane, k) or now - plane.heard_at >= q.rto:
        rotation.heard_again(st, q, plane, k, now)
        plane.losses = 0
        plane.delivered_at = now
        for i in range(plane.n_evs):  # the plane works again: probe its other paths soon
            e = st.ev[q.ev0 + plane.ev0 + i]
            if e.state == evs.ASSUMED_BAD and plane.ev0 + i != ev:
                b = st.blame[e.blame]
                b.spacing = 2 * q.base_rtt
                b.probe_at = now
                evs.ask(q, b, evs.NONE)
        q.ev_probe_at = now
    plane.heard_at = now
    back = rotation.restore(st, q, plane, k, ev, event, now)
    if back and event != evs.MARKED_ANSWER and st.config[0].reverse == REVERSE_PROBED:
        rotation.answer_on(plane, st.ev[q.ev0 + ev].value, 1)
    rotation.refresh_planes(st, q, now)
    nic_planes.note_answer(st, q, k, now)


@compiled
def deny(st, q, ev, denied, now):
    """A denylist takes an EV out of service, or returns it to service (MRC 3.3); False if it is as
    asked already.
    """
    e = st.ev[q.ev0 + ev]
    if denied == (e.state == evs.DENIED):
        return False
    k = int(e.plane)
    plane = st.plane[q.plane0 + k]
    if denied:
        if evs.enter(st, q, plane, ev, evs.DENY, now):
            rotation.leave(st, q, plane, k, ev)
    elif rotation.restore(st, q, plane, k, ev, evs.LIFT, now):
        rotation.heard_again(st, q, plane, k, now)
    _review_reverse(st, q, plane, k)
    rotation.refresh_planes(st, q, now)
    return True


@compiled
def declare(st, q, ev, state, now):
    """A controller states that an EV is DENIED, ASSUMED_BAD, or GOOD. What is ASSUMED_BAD by its
    word is probed, and returns, as any other; the last usable EV of a plane stays usable.
    """
    deny(st, q, ev, state == evs.DENIED, now)
    if state == evs.ASSUMED_BAD:
        on_always_skip(st, q, ev, now)
    elif state == evs.GOOD and st.ev[q.ev0 + ev].state == evs.ASSUMED_BAD:
        revive(st, q, ev, evs.RECALL, now)


@compiled
def replace(st, q, ev, value, now):
    """An EV stands for another path of its plane from now on, GOOD. Packets in flight stay with the
    old one: what was sent before is no evidence against the new one.
    """
    declare(st, q, ev, evs.GOOD, now)
    e = st.ev[q.ev0 + ev]
    plane = st.plane[q.plane0 + e.plane]
    if plane.trial_ev == e.value:
        plane.trial_id = -1
    if plane.reverse_ev == e.value:
        rotation.answer_on(plane, value, 0)
    e.value = value
    e.marks = 0
    b = evs.blame_of(st, e)
    evs.acquit(b)
    b.demoted_at = now


@inner
def _review_reverse(st, q, plane, k):
    """Control packets avoid denied EVs, as long as there are others."""
    first = -1
    kept = False
    for i in range(plane.n_evs):
        e = st.ev[q.ev0 + plane.ev0 + i]
        if e.state != evs.DENIED:
            first = i if first < 0 else first
            kept = kept or e.value == plane.reverse_ev
        elif e.value == plane.trial_ev:
            plane.trial_id = -1
    if first < 0:
        q.planes_denied |= 1 << k
        return
    q.planes_denied &= ~(1 << k)
    if not kept:
        rotation.answer_on(plane, st.ev[q.ev0 + plane.ev0 + first].value, 0)
