"""The workload at run time: messages are posted when they may be, completions release others,
failures orphan them.

An entry of the workload is a message, a series of messages, or a computation. Of a series only the
next message and the number posted are kept. The engine's messages refer to their entry by number:
`wr_id`.
"""

from __future__ import annotations

from openmrc.engine import endpoint, place
from openmrc.engine import state as es
from openmrc.jit import inlined, inner
from openmrc.sim.net import events
from openmrc.sim.net.state import (
    AT_MESSAGE,
    BIN_GOODPUT,
    BIN_RETRANSMITTED,
    COMPLETED,
    FAILED,
    OPEN,
    ORPHAN,
)

SECOND_TURN = 0x8000  # above any length: the largest PMTU is 16,384 B


@inlined
def unit_of(seq, ring_mask, length):
    """The record of a payload unit from its first transmission until it is placed; it may only be
    placed as recorded. It holds the length, and the parity of the turn round the ring, so that it
    is not confused with the unit one window earlier or later.
    """
    return length | SECOND_TURN if seq & (ring_mask + 1) else length


@inlined
def entry_of(st, q, number):
    """The workload's entry that message `number` of a sending QP belongs to."""
    return st.message[place.message(q, number)].wr_id


@inlined
def next_length(net, mi):
    """Bytes of the next message of an entry."""
    m = net.message[mi]
    length = int(m.bytes)
    if m.many:
        s = net.series[mi]
        if s.block < s.longer:
            length += 1
    return length


@inlined
def note_posted(net, mi):
    """Record that the next message of an entry was posted."""
    if net.message[mi].many:
        s = net.series[mi]
        s.n_posted += 1
        s.block = s.block - 1 if s.block > 0 else s.blocks - 1


@inlined
def note_retransmitted(net, mi, now):
    """Record that a packet of an entry is retransmitted."""
    ctl = net.ctl[0]
    net.message[mi].retransmitted += 1
    ctl.retransmitted += 1
    net.timeline[now // ctl.bin_ps, BIN_RETRANSMITTED] += 1


@inlined
def note_placed(net, length, is_right, now):
    """Count placed payload: `is_right` if it is what the sender read from its memory and arrives
    for the first time, else wrong.
    """
    ctl = net.ctl[0]
    if is_right:
        ctl.verified_bytes += length
    else:
        ctl.wrong_bytes += length
    ctl.placed_at = now
    net.timeline[now // ctl.bin_ps, BIN_GOODPUT] += length


@inlined
def rates_are_kept(net):
    """Whether rates by flow or job are kept."""
    return net.rate.shape[1] > 0


@inlined
def note_rate(net, mi, length, now):
    """Count placed payload for the rates by flow or job."""
    net.rate[now // net.ctl[0].bin_ps, net.column[mi]] += length


@inner
def _hand_over(net, st, mi):
    """Post the next message of an entry to its QP; False if the send queue is full."""
    m = net.message[mi]
    qi = int(m.qp)
    q = st.qp[qi]
    region = st.region[net.qp[qi].region]
    length = next_length(net, mi)
    va = region.va + q.seq_end * net.ctl[0].pmtu
    imm = mi & 0xFFFF_FFFF if m.imm else endpoint.NO_IMM
    if not endpoint.post_write(st, qi, mi, length, va, int(region.rkey), imm):
        return False
    note_posted(net, mi)
    return True


@inner
def post(net, st, mi, now):
    """An entry's next message is due and has its releases: post it, after any that wait for room in
    the send queue.
    """
    m = net.message[mi]
    if m.posted_at < 0:
        m.posted_at = now
    lq = net.qp[m.qp]
    if lq.failed:
        lose(net, mi, FAILED)
        return
    for _ in range(let_through(net, mi)):
        if lq.waiting_head >= 0 or not _hand_over(net, st, mi):
            stand_in_line(net, lq, mi)


@inlined
def let_through(net, mi):
    """How many messages of an entry may be posted now: one, or, for a series whose last gate has
    just opened, all that waited for it.
    """
    m = net.message[mi]
    if m.many == 0 or net.series[mi].n_gated == 0:
        return 1
    n = int(net.series[mi].n_gated)
    net.series[mi].n_gated = 0
    return n


@inner
def stand_in_line(net, lq, mi):
    """The send queue is full: an entry's next message waits for room in it."""
    m = net.message[mi]
    if m.many:
        net.series[mi].n_waiting += 1
        if net.series[mi].n_waiting > 1:  # it is in the queue already
            return
    m.next = -1
    if lq.waiting_head < 0:
        lq.waiting_head = mi
    else:
        net.message[lq.waiting_tail].next = mi
    lq.waiting_tail = mi


@inlined
def leave_line(net, lq):
    """Remove the message that waited longest, which was posted."""
    mi = int(lq.waiting_head)
    m = net.message[mi]
    if m.many:
        net.series[mi].n_waiting -= 1
        if net.series[mi].n_waiting > 0:
            return
    lq.waiting_head = m.next


@inner
def _fill(net, st, lq):
    """A send queue has room: post the messages that wait for it."""
    while lq.waiting_head >= 0:
        mi = int(lq.waiting_head)
        if not _hand_over(net, st, mi):
            return
        leave_line(net, lq)


@inner
def _release(net, mi, by_series, now):
    """Give an entry, a series or not, one of its releases; when a message has all of them, the heap
    posts it.
    """
    m = net.message[mi]
    if m.fate != OPEN:
        return
    if m.many:
        s = net.series[mi]
        if by_series:
            if s.n_let == s.n:
                return
            s.n_let += 1
            if s.gates > 0:
                return
        else:
            s.gates -= 1
            if s.gates != 0 or s.n_let == 0:
                return
            s.n_gated = s.n_let
    else:
        m.deps -= 1
        if m.deps != 0:
            return
    if m.qp < 0:
        _begin(net, mi, now)
    else:
        events.push(net, max(now + m.compute_ps, m.start_at), AT_MESSAGE, mi)


@inlined
def _begin(net, mi, now):
    """A computation has all its releases: it begins when its core is free."""
    m = net.message[mi]
    core = -1 - int(m.qp)
    at = max(now, m.start_at, net.core_free_at[core])
    if core > 0:  # core 0 means no core
        net.core_free_at[core] = at + m.compute_ps
    events.push(net, at + m.compute_ps, AT_MESSAGE, mi)


@inner
def end_computation(net, mi, now):
    """A computation is over: release what waits for it."""
    m = net.message[mi]
    m.done_at = now
    m.fate = COMPLETED
    net.ctl[0].messages_open -= 1
    for k in range(m.recv0, m.end):
        _release(net, int(net.release[k]), False, now)


@inner
def start(net, mi):
    """At the start of the run: put the messages that need no release into the heap."""
    m = net.message[mi]
    if m.qp < 0:
        if m.deps == 0:
            _begin(net, mi, 0)
        return
    n = 1 if m.deps == 0 else 0
    if m.many:
        n = int(net.series[mi].n_let) if net.series[mi].gates == 0 else 0
    for _ in range(n):
        events.push(net, m.start_at, AT_MESSAGE, mi)


@inlined
def collect(net, st, now):
    """Process the engine's completions."""
    for i in range(st.count[es.DONE]):
        c = st.done[i]
        if c.kind == es.DONE_SEND:
            _on_sent(net, st, int(c.id), now)
        else:
            _on_received(net, st, net.qp[c.qp].other, c.id, c.kind == es.DONE_DELIVERED, now)
    st.count[es.DONE] = 0


@inner
def _on_received(net, st, sender, number, placed, now):
    """A message is received when all of it is placed, or when its immediate is delivered, which
    tells the receiver that it has this message and all before it (MRC 1.3).
    """
    m = net.message[entry_of(st, st.qp[sender], number)]
    if placed:
        m.delivered_at = now
        if m.imm:
            return
    let_receiver(net, m, now)


@inlined
def let_receiver(net, m, now):
    """The receiver of a message knows that it has it: release the entries that wait for that."""
    for k in range(m.recv0, m.sent0):
        _release(net, int(net.release[k]), m.many != 0, now)


@inner
def _on_sent(net, st, mi, now):
    """The sender has the last acknowledgement of a message."""
    acknowledged(net, mi, now)
    _fill(net, st, net.qp[net.message[mi].qp])


@inlined
def acknowledged(net, mi, now):
    """A message is complete at its sender: complete its entry if it is the last, and release the
    entries that wait for it.
    """
    ctl = net.ctl[0]
    m = net.message[mi]
    m.done_at = now
    ctl.sends_done += 1
    ended = True
    if m.many:
        s = net.series[mi]
        s.n_done += 1
        ended = s.n_done == s.n
    if ended:
        m.fate = COMPLETED
        ctl.messages_done += 1
        ctl.messages_open -= 1
    for k in range(m.sent0, m.end):
        _release(net, int(net.release[k]), m.many != 0, now)


@inner
def lose(net, mi, fate):
    """An entry will never complete; the entries that wait for it are orphaned."""
    ctl = net.ctl[0]
    m = net.message[mi]
    if m.fate != OPEN:
        return
    m.fate = fate
    ctl.messages_open -= 1
    if fate == FAILED:
        ctl.messages_failed += 1
    else:
        ctl.messages_orphaned += 1
    if ctl.n_shards > 1:  # until the window ends its waiters may belong to others
        m.deps = ctl.lost_entry
        ctl.lost_entry = mi
        return
    orphan_all(net, mi)


@inner
def orphan_all(net, mi):
    """Orphan the entries that wait for one that will never complete, and those that wait for
    them.
    """
    m = net.message[mi]
    stack = mi
    m.deps = -1  # a stack linked through `deps`, whose count is no longer needed
    while stack >= 0:
        mi = stack
        m = net.message[mi]
        stack = int(m.deps)
        for k in range(m.recv0, m.end):
            stack = _orphan(net, int(net.release[k]), stack)


@inlined
def _orphan(net, mi, stack):
    m = net.message[mi]
    if m.fate != OPEN:
        return stack
    if m.many:
        s = net.series[mi]
        if s.n_let == s.n and s.gates <= 0:
            return stack
    elif m.deps <= 0:
        return stack
    m.fate = ORPHAN
    if m.qp >= 0:
        net.ctl[0].messages_orphaned += 1
    net.ctl[0].messages_open -= 1
    m.deps = stack
    return mi


@inner
def fail_qp(net, st, qi):
    """A QP is in error: fail its incomplete messages, whichever end noticed the error."""
    lq = net.qp[qi]
    other = int(lq.other)
    ctl = net.ctl[0]
    here = ctl.qp0 <= other < ctl.qp_end
    if lq.failed == 0:
        lose_roster(net, lq)
        if not here:
            lq.waiting_tail = ctl.failed_qp
            ctl.failed_qp = qi
    if here:
        fail_other(net, st, other)


@inner
def fail_other(net, st, qi):
    """The other end of a QP is in error: fail the messages that this end has posted."""
    if st.qp[qi].msg_end != 0 and net.qp[qi].failed == 0:
        lose_roster(net, net.qp[qi])


@inner
def lose_roster(net, lq):
    """Fail all incomplete entries of a QP, and those that come later. If this ends the job, nothing
    more happens.
    """
    net.ctl[0].ended = net.ctl[0].ends_on_error
    lq.failed = 1
    first = int(lq.roster0)
    last = first + int(lq.n_roster)
    lq.waiting_head = -1
    for k in range(first, last):
        mi = int(net.roster[k])
        if net.message[mi].fate == OPEN:
            lose(net, mi, FAILED)
