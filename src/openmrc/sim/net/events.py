"""The event queue: a timing wheel of narrow buckets for packets, a heap for the few distant events.

Almost every event is one transmission or one link delay in the future, so the wheel is a ring of
buckets that spans the longest of those; a bucket is a list with O(1) append, which records whether
it is out of order and is sorted when it is opened. A bitmap with a summary finds the next non-empty
bucket. Timers, faults and the starts of messages go to a binary heap. Events of equal time keep the
order in which they were scheduled.

The lists are linked through an array of links alone (`Net.after`), which stays in the caches when
the records of packets do not, so that appending to a list and walking it (`scout.py`) do not wait
for memory.
"""

from __future__ import annotations

from openmrc.engine import bits
from openmrc.engine.state import NEVER
from openmrc.jit import heap, inlined, inner
from openmrc.jit.instructions import prefetch

KIND_SHIFT = 40
SPARE_BUCKETS = 4  # of the wheel, in addition to those of its span
# The events of one kind, as acknowledgements on their links, are scheduled at ever later times: the
# next ones go to the buckets behind this one's, which have left the caches since they were used.
BUCKETS_AHEAD = 16
SHORT = 16  # events that are sorted faster by insertion
UNORDERED = -1  # BUCKET.last: some event was scheduled for an earlier time than the one before


@inlined
def _at(net, event):
    """The time of an event."""
    n = event - net.ctl[0].n_ports
    return net.port[event].free_at if n < 0 else net.hop[n].at


@inlined
def schedule_port(net, port_no, port):
    """Schedule the end of a port's transmission, at its `free_at`."""
    _schedule(net, port_no, port.free_at)


@inlined
def schedule_packet(net, n, h, at):
    """Schedule the arrival of a packet."""
    h.at = at
    _schedule(net, net.ctl[0].n_ports + n, at)


@inlined
def _schedule(net, event, at):
    """Schedule an event at `at`, less than the wheel's span from now."""
    ctl = net.ctl[0]
    number = at >> ctl.shift
    ctl.n_wheel += 1
    net.after[event] = -1
    if number < ctl.scout_bucket:  # the scout has passed it
        ctl.scout_lead += 1
    if number <= ctl.bucket:
        _insert_into_open(net, event, at)
        return
    prefetch(net.bucket, (number + BUCKETS_AHEAD) & ctl.bucket_mask, 0)
    bucket = net.bucket[number & ctl.bucket_mask]
    within = at - (number << ctl.shift)
    if bucket.head < 0:
        bucket.head = event
        bucket.last = within
        bits.set_in_summary(net.bucket_bits, net.bucket_summary, number & ctl.bucket_mask)
    else:
        net.after[bucket.tail] = event
        bucket.last = within if within >= bucket.last >= 0 else UNORDERED
    bucket.tail = event


@inner
def _insert_into_open(net, event, at):
    """Insert an event into the open bucket, in order."""
    ctl = net.ctl[0]
    if ctl.open_head < 0:
        ctl.open_head = event
        ctl.open_tail = event
        return
    if _at(net, ctl.open_tail) <= at:
        net.after[ctl.open_tail] = event
        ctl.open_tail = event
        return
    before = -1
    here = int(ctl.open_head)
    while _at(net, here) <= at:
        before = here
        here = int(net.after[here])
    net.after[event] = here
    if before < 0:
        ctl.open_head = event
    else:
        net.after[before] = event


@inner
def _merge(net, left, right):
    """Merge two ordered lists; of equal times the left one comes first. Returns the head."""
    head = -1
    tail = -1
    while left >= 0 or right >= 0:
        from_left = right < 0 or (left >= 0 and _at(net, left) <= _at(net, right))
        if from_left:
            taken = left
            left = int(net.after[left])
        else:
            taken = right
            right = int(net.after[right])
        if tail < 0:
            head = taken
        else:
            net.after[tail] = taken
        tail = taken
    return head


@inner
def _sort(net, head, n):
    """Merge sort of a list of `n` events, stable. Returns the head."""
    if n < 2:
        net.after[head] = -1
        return head
    middle = head
    for _ in range(n // 2 - 1):
        middle = int(net.after[middle])
    right = int(net.after[middle])
    net.after[middle] = -1
    left = _sort(net, head, n // 2)
    right = _sort(net, right, n - n // 2)
    return _merge(net, left, right)


@inner
def _insert_all(net, event):
    """Open a bucket with a list of events, inserted one after the other."""
    net.ctl[0].open_head = -1
    while event >= 0:
        following = int(net.after[event])
        net.after[event] = -1
        _insert_into_open(net, event, _at(net, event))
        event = following


@inner
def _put_in_order(net, head):
    """Sort the list that was just opened."""
    ctl = net.ctl[0]
    n = 0
    event = head
    while event >= 0:
        n += 1
        event = int(net.after[event])
    if n <= SHORT:
        _insert_all(net, head)
        return
    head = int(_sort(net, head, n))
    ctl.open_head = head
    following = int(net.after[head])
    while following >= 0:
        head = following
        following = int(net.after[head])
    ctl.open_tail = head


@inlined
def next_at(net):
    """Time of the wheel's next event (NEVER if it is empty); opens its bucket."""
    ctl = net.ctl[0]
    if ctl.open_head >= 0:
        return _at(net, ctl.open_head)
    if ctl.n_wheel == 0:
        return NEVER
    here = ctl.bucket & ctl.bucket_mask
    b = bits.next_set(net.bucket_bits, net.bucket_summary, (here + 1) & ctl.bucket_mask)
    ctl.bucket += ((b - here - 1) & ctl.bucket_mask) + 1
    bucket = net.bucket[b]
    head = int(bucket.head)
    ctl.open_head = head
    ctl.open_tail = bucket.tail
    bucket.head = -1
    bits.clear_in_summary(net.bucket_bits, net.bucket_summary, b)
    if bucket.last == UNORDERED:
        _put_in_order(net, head)
    return _at(net, ctl.open_head)


@inlined
def take(net):
    """Remove the event that `next_at` found, and return it."""
    ctl = net.ctl[0]
    event = int(ctl.open_head)
    ctl.open_head = int(net.after[event])
    ctl.n_wheel -= 1
    return event


@inner
def rewind(net, at):
    """The heap's first entry comes next, and everything in the wheel is later than `at`: turn the
    wheel there.

    Forwards, over the gap of an empty wheel; or back, closing the open bucket, so that events may
    be scheduled before it.
    """
    ctl = net.ctl[0]
    number = at >> ctl.shift
    if number >= ctl.bucket:
        if ctl.open_head < 0:  # the next event may belong to this very bucket
            ctl.bucket = max(ctl.bucket, number - 1)
        return
    if ctl.open_head >= 0:
        b = ctl.bucket & ctl.bucket_mask
        net.bucket[b].head = ctl.open_head
        net.bucket[b].tail = ctl.open_tail
        net.bucket[b].last = _at(net, ctl.open_tail) - (ctl.bucket << ctl.shift)
        bits.set_in_summary(net.bucket_bits, net.bucket_summary, b)
        ctl.open_head = -1
    ctl.bucket = number


@inlined
def push(net, at, kind, number):
    """Put an entry into the heap."""
    heap.push(net.ctl[0], net.heap, at, (kind << KIND_SHIFT) | int(number))


@inlined
def plan(net, timed, at, kind, number):
    """Make sure that a deadline of a QP or NIC is in the heap: `timed` is its earliest entry."""
    if at < timed.timer_at:
        at = max(at, net.ctl[0].now)
        timed.timer_at = at
        push(net, at, kind, number)


@inlined
def comes_due(timed, now):
    """A deadline's entry in the heap is due: whether it is that in `timed`, which is then
    cleared.
    """
    if timed.timer_at != now:
        return False
    timed.timer_at = NEVER
    return True


@inlined
def pop(net):
    """Remove the heap's first entry; return its kind and its number."""
    what = heap.pop(net.ctl[0], net.heap)
    return what >> KIND_SHIFT, what & ((1 << KIND_SHIFT) - 1)
