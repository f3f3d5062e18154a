"""The queue of events: a wheel of narrow buckets for packets, a heap for the few events far away.

Almost every event is one transmission or one link away, so the wheel is a ring of buckets that
spans the longest of those; a bucket is a list, appended to in O(1) and put in order when its time
comes. A bitmap with a summary finds the next bucket that holds anything. Timers, faults and the
starts of messages go to a binary heap. Events of equal time keep the order in which they were
scheduled.
"""

from __future__ import annotations

from openmrc.engine import bits
from openmrc.engine.state import NEVER
from openmrc.jit import inlined, inner

KIND_SHIFT = 40


@inlined
def _at(ctl, ports, hops, event):
    """When an event happens."""
    return ports[event].free_at if event < ctl.n_ports else hops[event - ctl.n_ports].at


@inlined
def _next(ctl, ports, hops, event):
    """The event behind it in its list, or -1."""
    if event < ctl.n_ports:
        return int(ports[event].next)
    return int(hops[event - ctl.n_ports].next)


@inlined
def _link(ctl, ports, hops, event, following):
    """Put `following` behind an event."""
    if event < ctl.n_ports:
        ports[event].next = following
    else:
        hops[event - ctl.n_ports].next = following


@inlined
def schedule_port(net, port_no, port):
    """The end of a port's transmission, at its `free_at`."""
    port.next = -1
    _schedule(net, port_no, port.free_at)


@inlined
def schedule_packet(net, n, h, at):
    """The arrival of a packet."""
    h.at = at
    h.next = -1
    _schedule(net, net.ctl[0].n_ports + n, at)


@inlined
def _schedule(net, event, at):
    """Let an event happen at `at`, less than the wheel's span from now."""
    ctl = net.ctl[0]
    number = at >> ctl.shift
    ctl.n_wheel += 1
    if number <= ctl.bucket:
        _insert_into_open(ctl, net.port, net.hop, event, at)
        return
    bucket = net.bucket[number & ctl.bucket_mask]
    if bucket.head < 0:
        bucket.head = event
        bits.set_in_summary(net.bucket_bits, net.bucket_summary, number & ctl.bucket_mask)
    else:
        _link(ctl, net.port, net.hop, bucket.tail, event)
    bucket.tail = event


@inner
def _insert_into_open(ctl, ports, hops, event, at):
    """Into the bucket that is being emptied, in its place.

    Rare: buckets are narrower than a transmission.
    """
    if ctl.open_head < 0:
        ctl.open_head = event
        ctl.open_tail = event
        return
    if _at(ctl, ports, hops, ctl.open_tail) <= at:
        _link(ctl, ports, hops, ctl.open_tail, event)
        ctl.open_tail = event
        return
    before = -1
    here = int(ctl.open_head)
    while _at(ctl, ports, hops, here) <= at:
        before = here
        here = _next(ctl, ports, hops, here)
    _link(ctl, ports, hops, event, here)
    if before < 0:
        ctl.open_head = event
    else:
        _link(ctl, ports, hops, before, event)


@inner
def _merge(ctl, ports, hops, left, right):
    """Merge two ordered lists; of equal times the left one comes first. Returns the head."""
    head = -1
    tail = -1
    while left >= 0 or right >= 0:
        from_left = right < 0 or (
            left >= 0 and _at(ctl, ports, hops, left) <= _at(ctl, ports, hops, right)
        )
        if from_left:
            taken = left
            left = _next(ctl, ports, hops, left)
        else:
            taken = right
            right = _next(ctl, ports, hops, right)
        if tail < 0:
            head = taken
        else:
            _link(ctl, ports, hops, tail, taken)
        tail = taken
    return head


@inner
def _sort(ctl, ports, hops, head, n):
    """Merge sort of a list of `n` events, stable. Returns the head."""
    if n < 2:
        _link(ctl, ports, hops, head, -1)
        return head
    middle = head
    for _ in range(n // 2 - 1):
        middle = _next(ctl, ports, hops, middle)
    right = _next(ctl, ports, hops, middle)
    _link(ctl, ports, hops, middle, -1)
    left = _sort(ctl, ports, hops, head, n // 2)
    right = _sort(ctl, ports, hops, right, n - n // 2)
    return _merge(ctl, ports, hops, left, right)


@inner
def _put_in_order(ctl, ports, hops, head):
    """Sort the list that was just opened."""
    n = 0
    event = head
    while event >= 0:
        n += 1
        event = _next(ctl, ports, hops, event)
    head = int(_sort(ctl, ports, hops, head, n))
    ctl.open_head = head
    following = _next(ctl, ports, hops, head)
    while following >= 0:
        head = following
        following = _next(ctl, ports, hops, head)
    ctl.open_tail = head


@inlined
def upcoming(net):
    """The event after the one that was just taken, as far as one can know, or -1."""
    ctl = net.ctl[0]
    if ctl.open_head >= 0:
        return int(ctl.open_head)
    if ctl.n_wheel == 0:
        return -1
    here = ctl.bucket & ctl.bucket_mask
    b = bits.next_set(net.bucket_bits, net.bucket_summary, (here + 1) & ctl.bucket_mask)
    return int(net.bucket[b].head)


@inlined
def next_at(net):
    """Time of the wheel's next event (NEVER if it is empty); opens its bucket."""
    ctl = net.ctl[0]
    if ctl.open_head >= 0:
        return _at(ctl, net.port, net.hop, ctl.open_head)
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
    event = _next(ctl, net.port, net.hop, head)
    at = _at(ctl, net.port, net.hop, head)
    while event >= 0:
        following = _at(ctl, net.port, net.hop, event)
        if following < at:
            _put_in_order(ctl, net.port, net.hop, head)
            break
        at = following
        event = _next(ctl, net.port, net.hop, event)
    return _at(ctl, net.port, net.hop, ctl.open_head)


@inlined
def take(net):
    """Remove the event that `next_at` announced, and return it."""
    ctl = net.ctl[0]
    event = int(ctl.open_head)
    ctl.open_head = _next(ctl, net.port, net.hop, event)
    ctl.n_wheel -= 1
    return event


@inner
def rewind(net, at):
    """The heap comes first, and everything in the wheel is later than `at`: turn the wheel there.

    Forwards over the silence of an empty wheel; or back, closing the bucket that is open, so that
    events may be put before it.
    """
    ctl = net.ctl[0]
    number = at >> ctl.shift
    if number >= ctl.bucket:
        if ctl.open_head < 0:  # the next event may fall into this very bucket
            ctl.bucket = max(ctl.bucket, number - 1)
        return
    if ctl.open_head >= 0:
        b = ctl.bucket & ctl.bucket_mask
        net.bucket[b].head = ctl.open_head
        net.bucket[b].tail = ctl.open_tail
        bits.set_in_summary(net.bucket_bits, net.bucket_summary, b)
        ctl.open_head = -1
    ctl.bucket = number


@inner
def _sift_up(ctl, heap, at, what):
    i = ctl.heap_n
    ctl.heap_n = i + 1
    while i > 0:
        parent = (i - 1) >> 1
        above = heap[parent]
        if not _before(at, what, above.at, above.what):
            break
        heap[i].at = above.at
        heap[i].what = above.what
        i = parent
    heap[i].at = at
    heap[i].what = what


@inlined
def push(net, at, kind, number):
    """Put an entry into the heap."""
    _sift_up(net.ctl[0], net.heap, at, (kind << KIND_SHIFT) | int(number))


@inlined
def _before(at, what, other_at, other_what):
    """Order by time, then by kind and number: a run does not depend on the heap's history."""
    return at < other_at or (at == other_at and what < other_what)


@inner
def pop(ctl, heap):
    """Remove the heap's first entry and return its `kind << 40 | number`."""
    first = heap[0].what
    n = ctl.heap_n - 1
    ctl.heap_n = n
    at = heap[n].at
    what = heap[n].what
    i = 0
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        if child + 1 < n:
            right = heap[child + 1]
            if _before(right.at, right.what, heap[child].at, heap[child].what):
                child += 1
        below = heap[child]
        if not _before(below.at, below.what, at, what):
            break
        heap[i].at = below.at
        heap[i].what = below.what
        i = child
    heap[i].at = at
    heap[i].what = what
    return first
