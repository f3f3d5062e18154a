"""Which of an agent's probes returned and which did not: the part of it that handles every probe.

Compiled, because an agent handles thousands a second with a few per cent of a core. `agent`
explains the rules, and this is its state; time is an argument here too.

What it waits for may stand still, with its host or alone. So before it takes anything for lost it
sends a check: a local loop on each plane. Whatever left `timeout_ps` before a check that has
returned has had its time (`checked_ps`).

A period's probes of one NIC have positions, 0 to n - 1. The states of those of the last `WINDOW`
periods are kept; a probe that is still out when its period leaves the window counts as lost. A
one-way probe has a rank, period x n + position, in which it is sent; those of `RANK_PERIODS` are
kept for each sender.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from openmrc.jit import compiled, fields, inlined, offset_of, record_type, records
from openmrc.jit.byref import by_reference
from openmrc.ops.mapper.probe import CHECK, LAYOUT, MAGIC, SCHEDULED
from openmrc.ops.schedule import PAYLOAD_BYTES, TURNS
from openmrc.units import MS, S

WINDOW = 1024  # periods
RANK_PERIODS = 32
ROOM = 512  # probes that one call takes
LOSSES_MAX = 4096  # until they are reported
GAP_PERIODS = 4  # by which a peer is ahead: then it was restarted
NEVER_PS = 1 << 62
CHECKS = 64  # of which the time of sending is remembered
CHECK_LOOK_PS = MS // 2  # after sending one it looks for it; then after twice that, and so on
LATE_MEMORY_PS = 2 * S  # after which it is forgotten that a probe was late
PERIODS_MASK = (1 << 32) - 1  # the width of a period's number
OUT, LOST = 1, 2  # of a position; 0: it returned, or was never out
HEARD, MISSED = 1, 2  # of a rank

KIND_AT, PLANE_AT, NIC_AT, PERIOD_AT, NUMBER_AT = (
    offset_of(LAYOUT, name) for name in ("kind", "plane", "nic", "period", "number")
)
BOOK = record_type(
    *fields("i8", "nic", "first_nic", "n_planes", "ticks"),
    *fields("i8", "timeout_ps", "margin_ps", "silence_ps"),  # without the lateness
    *fields("i8", "tick_ps", "look_ps"),
    *fields("i8", "due_ps", "look_at_ps", "look_next_ps", "busy"),  # busy: a burst is out
    *fields("i8", "may_check", "check", "check_now", "check_look_ps"),  # check: number of the last
    *fields("i8", "burst_ps"),  # from when on a burst needs a check
    *fields("i8", "first_tick", "next_tick"),
    *fields("i8", "oldest", "waiting"),  # oldest tick with a probe out; number of probes out
    *fields("i8", "heard_ps", "judged_ps", "came", "gaps"),
    *fields("i8", "need_ps"),  # a check sent from then on
    # A check that counts for all planes, for what returns here and for what others count; when the
    # next will.
    *fields("i8", "settled_ps", "known_ps", "settles_ps"),
    *fields("i8", "n_lost", "n_late", "n_other"),
    ("late_ps", "f8"),  # the most by which recent probes exceeded `timeout_ps` and missed a check
)
PEER = record_type(*fields("i8", "known", "frontier", "latest", "latest_ps"))


@by_reference
class Tally(NamedTuple):
    """All that an agent knows of its probes and of those that are sent to it one way."""

    book: Any  # BOOK, one record
    inbox: Any  # uint8 [ROOM, PAYLOAD_BYTES]: probes that arrived
    other: Any  # int64 [ROOM, 5]: those of bursts: kind, NIC, burst, row, `checked_ps` before it
    loops: Any  # uint8 [TURNS, n]: whether it returns here
    numbers: Any  # int64 [TURNS, n]: in the schedule
    period: Any  # int64 [WINDOW]: the period that has this row
    state: Any  # uint8 [WINDOW, n]
    sent_ps: Any  # int64 [WINDOW, ticks]
    out: Any  # int64 [WINDOW, ticks]: how many of a tick's probes are out
    check_ps: Any  # int64 [CHECKS]: when each was sent ...
    back_ps: Any  # int64 [CHECKS]: ... and when it first returned on any plane
    checked_ps: Any  # int64 [planes]: when the latest was sent that returned there ...
    took_ps: Any  # int64 [planes]: ... and how long it took
    peer: Any  # PEER [NICs of the T0]
    expected: Any  # int32 [TURNS, NICs of the T0 x n]: number of what they send here, else -1
    rank: Any  # uint8 [NICs of the T0, RANK_PERIODS x n]
    rank_ps: Any  # int64, as `rank`: when a miss was noticed
    lost: Any  # int64 [LOSSES_MAX, 3]: number, turn, when
    late: Any  # the same, of those that arrived after all


def new_tally(nics: int, n_planes: int, slots: int, ticks: int) -> Tally:
    """A zeroed Tally for a T0 with this many NICs."""
    n = n_planes * slots
    return Tally(
        book=records(1, BOOK),
        inbox=np.zeros((ROOM, PAYLOAD_BYTES), np.uint8),
        other=np.zeros((ROOM, 5), np.int64),
        loops=np.zeros((TURNS, n), np.uint8),
        numbers=np.zeros((TURNS, n), np.int64),
        period=np.full(WINDOW, -1, np.int64),
        state=np.zeros((WINDOW, n), np.uint8),
        sent_ps=np.zeros((WINDOW, ticks), np.int64),
        out=np.zeros((WINDOW, ticks), np.int64),
        check_ps=np.full(CHECKS, -NEVER_PS, np.int64),
        back_ps=np.full(CHECKS, NEVER_PS, np.int64),
        checked_ps=np.full(n_planes, -NEVER_PS, np.int64),
        took_ps=np.zeros(n_planes, np.int64),
        peer=records(nics, PEER),
        expected=np.full((TURNS, nics * n), -1, np.int32),
        rank=np.zeros((nics, RANK_PERIODS * n), np.uint8),
        rank_ps=np.zeros((nics, RANK_PERIODS * n), np.int64),
        lost=np.zeros((LOSSES_MAX, 3), np.int64),
        late=np.zeros((LOSSES_MAX, 3), np.int64),
    )


@inlined
def _word(row, at):
    """Read four bytes in network order."""
    found = np.int64(0)
    for i in range(4):
        found = found << 8 | np.int64(row[at + i])
    return found


@inlined
def _tell(log, n, number, turn, at_ps):
    log[n, 0] = number
    log[n, 1] = turn
    log[n, 2] = at_ps


@inlined
def _first_place(t, part):
    """The first position of this part of a period; parts are ticks."""
    return part * t.loops.shape[1] // t.book[0].ticks


@inlined
def _part(t, place):
    """The tick of its period in which a position is sent."""
    part = place * t.book[0].ticks // t.loops.shape[1]
    return part + 1 if _first_place(t, part + 1) <= place else part


@inlined
def _send(t, now_ps):
    """Record that the next tick's probes leave now; return its number."""
    b = t.book[0]
    tick = b.next_tick
    period, part = tick // b.ticks, tick % b.ticks
    row, turn = period % WINDOW, period % TURNS
    if part == 0:
        for each in range(b.ticks):  # losses of this row's previous period, if not reported
            b.waiting -= t.out[row, each]
            t.out[row, each] = 0
        t.period[row] = period
        b.oldest = max(b.oldest, tick - (WINDOW - 1) * b.ticks)
    first, last = _first_place(t, part), _first_place(t, part + 1)
    n = 0
    for place in range(first, last):
        is_loop = t.loops[turn, place]
        t.state[row, place] = OUT if is_loop else 0
        n += int(is_loop)
    t.sent_ps[row, part] = now_ps
    t.out[row, part] = n
    b.waiting += n
    b.next_tick = tick + 1
    return tick


@inlined
def _latest_checked(t):
    """When the latest check was sent that returned on any plane."""
    latest_ps = t.checked_ps[0]
    for plane in range(1, t.checked_ps.shape[0]):
        latest_ps = max(latest_ps, t.checked_ps[plane])
    return latest_ps


@inlined
def _is_late(t, came_ps, plane, ripe_ps):
    """Whether a probe misses a check of its plane, or by far one of another."""
    b = t.book[0]
    if t.checked_ps[plane] >= ripe_ps:
        return True
    back_ps = NEVER_PS
    if _latest_checked(t) >= ripe_ps:
        for i in range(CHECKS):
            if t.check_ps[i] >= ripe_ps:
                back_ps = min(back_ps, t.back_ps[i])
    return back_ps < came_ps - b.margin_ps // 2


@inlined
def _take_back(t, now_ps, period, place):
    """One of this agent's own probes has returned."""
    b = t.book[0]
    b.came = 1
    row = period % WINDOW
    was = t.state[row, place]
    sent_ps = t.sent_ps[row, _part(t, place)]
    if was == 0:
        return
    t.state[row, place] = 0
    ripe_ps = sent_ps + b.timeout_ps
    came_ps = min(now_ps, b.due_ps, b.look_at_ps)  # if the agent is late itself, others may not be
    if was == LOST or _is_late(t, came_ps, place % b.n_planes, ripe_ps):
        b.late_ps = max(b.late_ps, float(came_ps - ripe_ps))
    if was == OUT:
        t.out[row, _part(t, place)] -= 1
        b.waiting -= 1
    elif b.n_late < LOSSES_MAX:
        turn = period % TURNS
        _tell(t.late, b.n_late, t.numbers[turn, place], turn, sent_ps)
        b.n_late += 1


@inlined
def _count(t, now_ps, who, wire_period, place):
    """One of another NIC's probes has arrived."""
    b = t.book[0]
    n = t.loops.shape[1]
    turn = wire_period % TURNS
    number = t.expected[turn, who * n + place]
    if number < 0:
        return
    peer = t.peer[who]
    rank = wire_period * n + place
    ahead = rank - peer.frontier + n
    cell = rank % (RANK_PERIODS * n)
    if peer.known == 0 or ahead < 0 or ahead > GAP_PERIODS * n:
        # It starts, or restarted: what it sent before is not judged.
        peer.known = 1
        peer.frontier = rank
        peer.latest = rank
        peer.latest_ps = now_ps
        t.rank[who, :] = 0
        return
    # Without checks, what a later probe has overtaken tells how late others may come.
    if b.may_check == 0 and rank <= peer.frontier and t.rank[who, cell] == MISSED:
        b.late_ps = max(b.late_ps, float(now_ps - t.rank_ps[who, cell] - b.margin_ps))
    elif b.may_check == 0 and peer.frontier < rank < peer.latest:
        b.late_ps = max(b.late_ps, float(now_ps - peer.latest_ps))
    if rank <= peer.frontier:
        if t.rank[who, cell] == MISSED and b.n_late < LOSSES_MAX:
            _tell(t.late, b.n_late, number, turn, t.rank_ps[who, cell])
            b.n_late += 1
            t.rank[who, cell] = 0
        return
    t.rank[who, cell] = HEARD
    if rank > peer.latest:
        peer.latest = rank
        peer.latest_ps = now_ps


@inlined
def _checked(t, now_ps, number, plane):
    """A check has returned."""
    b = t.book[0]
    age = (b.check - number) & PERIODS_MASK
    if age < min(CHECKS, b.check) and plane < b.n_planes:
        b.came = 1
        i = (b.check - age) % CHECKS
        if t.check_ps[i] > t.checked_ps[plane]:
            t.checked_ps[plane], t.took_ps[plane] = t.check_ps[i], now_ps - t.check_ps[i]
        t.back_ps[i] = min(t.back_ps[i], now_ps)


@inlined
def take(t, n, now_ps):
    """Process the first `n` probes of the inbox; return how many are of no schedule."""
    b = t.book[0]
    b.n_other = 0
    for i in range(n):
        row = t.inbox[i]
        if np.int64(row[0]) << 8 | np.int64(row[1]) != MAGIC:
            continue
        kind, plane = np.int64(row[KIND_AT]), np.int64(row[PLANE_AT])
        nic, period, number = _word(row, NIC_AT), _word(row, PERIOD_AT), _word(row, NUMBER_AT)
        if kind == CHECK:
            if nic == b.nic:
                _checked(t, now_ps, period, plane)
        elif kind != SCHEDULED and plane < b.n_planes:
            t.other[b.n_other, 0] = kind
            t.other[b.n_other, 1] = nic
            t.other[b.n_other, 2] = period
            t.other[b.n_other, 3] = number
            t.other[b.n_other, 4] = t.checked_ps[plane]
            b.n_other += 1
        elif kind == SCHEDULED and number < t.loops.shape[1] and plane == number % b.n_planes:
            if nic != b.nic:
                who = nic - b.first_nic
                if 0 <= who < t.peer.shape[0]:
                    _count(t, now_ps, who, period, number)
                continue
            latest = (b.next_tick - 1) // b.ticks
            mine = latest - ((latest - period) & PERIODS_MASK)
            if t.period[mine % WINDOW] == mine:
                _take_back(t, now_ps, mine, number)
    return b.n_other


@compiled
def arrive(t, n, now_ps):
    """The same, for plain Python."""
    return take(t, n, now_ps)


@compiled
def lateness(late_ps):
    """By how much probes are expected to be late, in whole milliseconds."""
    return int(late_ps) // MS * MS


@inlined
def _settle(t, now_ps):
    """Find the latest check that returned so long ago, on any plane, that all have had time."""
    b = t.book[0]
    b.settles_ps = NEVER_PS
    for i in range(CHECKS):
        back_ps = t.back_ps[i]
        if back_ps + b.margin_ps // 2 <= now_ps:
            b.known_ps = max(b.known_ps, t.check_ps[i])
        elif back_ps < NEVER_PS:
            b.settles_ps = min(b.settles_ps, back_ps + b.margin_ps // 2)
        if back_ps + b.margin_ps <= now_ps:
            b.settled_ps = max(b.settled_ps, t.check_ps[i])
        elif back_ps < NEVER_PS:
            b.settles_ps = min(b.settles_ps, back_ps + b.margin_ps)


@inlined
def _judge_tick(t, tick, now_ps, silent, timeout_ps):
    """Count as lost the probes of a tick that are out and should have returned."""
    b = t.book[0]
    period, part = tick // b.ticks, tick % b.ticks
    row, turn = period % WINDOW, period % TURNS
    gone = b.next_tick // b.ticks - period >= WINDOW - 1
    sent_ps = t.sent_ps[row, part]
    ripe_ps = sent_ps + timeout_ps
    if now_ps < ripe_ps and not gone:
        return
    for place in range(_first_place(t, part), _first_place(t, part + 1)):
        if t.state[row, place] != OUT or b.n_lost == LOSSES_MAX:
            continue
        checked = max(t.checked_ps[place % b.n_planes], b.settled_ps) >= ripe_ps
        if checked or silent or gone:
            t.state[row, place] = LOST
            t.out[row, part] -= 1
            b.waiting -= 1
            _tell(t.lost, b.n_lost, t.numbers[turn, place], turn, sent_ps)
            b.n_lost += 1
    if t.out[row, part] > 0:
        b.need_ps = max(b.need_ps, ripe_ps)


@inlined
def _misses(t, who):
    """Whether any probe is missing before the latest that arrived from a NIC."""
    peer = t.peer[who]
    n = t.loops.shape[1]
    for rank in range(peer.frontier + 1, peer.latest + 1):
        is_mine = t.expected[rank // n % TURNS, who * n + rank % n] >= 0
        if is_mine and t.rank[who, rank % (RANK_PERIODS * n)] != HEARD:
            return True
    return False


@inlined
def _judge_peer(t, who, now_ps, timeout_ps, margin_ps):
    """Count as lost what a NIC should have sent here before the latest that arrived from it."""
    b = t.book[0]
    peer = t.peer[who]
    if peer.latest <= peer.frontier:
        return
    n = t.loops.shape[1]
    ripe_ps = peer.latest_ps + timeout_ps
    checked = b.may_check == 0 or b.known_ps >= ripe_ps
    if (now_ps < peer.latest_ps + margin_ps or not checked) and _misses(t, who):
        b.gaps += 1
        if now_ps >= ripe_ps:
            b.need_ps = max(b.need_ps, ripe_ps)
        return
    for rank in range(peer.frontier + 1, peer.latest + 1):
        turn, cell = rank // n % TURNS, rank % (RANK_PERIODS * n)
        heard = t.rank[who, cell] == HEARD
        t.rank[who, cell] = 0
        number = t.expected[turn, who * n + rank % n]
        if number < 0 or heard or b.n_lost == LOSSES_MAX:
            continue
        t.rank[who, cell] = MISSED
        t.rank_ps[who, cell] = peer.latest_ps
        _tell(t.lost, b.n_lost, number, turn, peer.latest_ps)
        b.n_lost += 1
    peer.frontier = peer.latest


@inlined
def _judge(t, now_ps):
    """Find the lost probes; return how many wait to be judged."""
    b = t.book[0]
    if b.came != 0:
        b.heard_ps = now_ps
        b.came = 0
    b.late_ps *= max(0.0, 1.0 - float(now_ps - b.judged_ps) / LATE_MEMORY_PS)
    b.judged_ps = now_ps
    late_ps = lateness(b.late_ps)
    timeout_ps, margin_ps = b.timeout_ps + late_ps, b.margin_ps + late_ps
    b.need_ps = b.burst_ps if now_ps >= b.burst_ps else -NEVER_PS
    _settle(t, now_ps)
    silent = now_ps - b.heard_ps > b.silence_ps
    while b.oldest < b.next_tick and t.out[b.oldest // b.ticks % WINDOW, b.oldest % b.ticks] == 0:
        b.oldest += 1
    for tick in range(b.oldest, b.next_tick if b.waiting > 0 else b.oldest):
        if t.out[tick // b.ticks % WINDOW, tick % b.ticks] > 0:
            _judge_tick(t, tick, now_ps, silent, timeout_ps)
    b.gaps = 0
    for who in range(t.peer.shape[0]):
        if t.peer[who].known != 0:
            _judge_peer(t, who, now_ps, timeout_ps, margin_ps)
    return b.waiting + b.gaps


@inlined
def _check(t, now_ps):
    """Begin a check if one is needed: none that was sent late enough is out, or not since just
    now.
    """
    b = t.book[0]
    sent_ps = t.check_ps[b.check % CHECKS]
    if b.may_check == 0 or b.need_ps == -NEVER_PS:
        return
    if sent_ps < b.need_ps or now_ps >= sent_ps + b.look_ps:
        b.check += 1
        t.check_ps[b.check % CHECKS], t.back_ps[b.check % CHECKS] = now_ps, NEVER_PS
        b.check_now, b.check_look_ps = 1, CHECK_LOOK_PS


@inlined
def _is_check_out(t):
    """Whether the last check has not returned on all planes."""
    least_ps = t.checked_ps[0]
    for plane in range(1, t.checked_ps.shape[0]):
        least_ps = min(least_ps, t.checked_ps[plane])
    return least_ps < t.check_ps[t.book[0].check % CHECKS]


@inlined
def advance(t, now_ps):
    """Judge, and begin a tick if it is due: return its number, or -1. If `check_now` is set, the
    check with the number `check` is to be sent too. The next call is due at `due_ps`, to send, or
    at `look_at_ps`.
    """
    b = t.book[0]
    waiting = _judge(t, now_ps) + b.busy
    _check(t, now_ps)
    tick = -1
    if now_ps >= b.due_ps:
        tick = _send(t, now_ps)
        b.due_ps = max(b.due_ps + b.tick_ps, now_ps + b.tick_ps // 2)
    if tick >= 0 or now_ps >= b.look_next_ps:
        b.look_next_ps = now_ps + b.look_ps
    b.look_at_ps = b.look_next_ps if tick >= 0 or waiting > 0 else NEVER_PS
    if waiting > 0:
        b.look_at_ps = min(b.look_at_ps, b.settles_ps)
    if waiting > 0 and _is_check_out(t):
        b.look_at_ps = min(b.look_at_ps, now_ps + b.check_look_ps)
        b.check_look_ps *= 2
    return tick


@compiled
def due(t, now_ps):
    """The same, for plain Python."""
    return advance(t, now_ps)
