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
def schedule(net, node, at):
    """Let event `node` happen at `at`, less than the wheel's span from now."""
    ctl = net.ctl[0]
    e = net.node[node]
    e.at = at
    e.next = -1
    number = at >> ctl.shift
    ctl.n_wheel += 1
    if number <= ctl.bucket:
        _insert_into_open(net, ctl, node, at)
        return
    b = number & ctl.bucket_mask
    if net.bucket_head[b] < 0:
        net.bucket_head[b] = node
        bits.set_in_summary(net.bucket_bits, net.bucket_summary, b)
    else:
        net.node[net.bucket_tail[b]].next = node
    net.bucket_tail[b] = node


@inner
def _insert_into_open(net, ctl, node, at):
    """Into the bucket that is being emptied, in its place (rare: buckets are narrower than a
    transmission).
    """
    if ctl.open_head < 0:
        ctl.open_head = node
        ctl.open_tail = node
        return
    if net.node[ctl.open_tail].at <= at:
        net.node[ctl.open_tail].next = node
        ctl.open_tail = node
        return
    before = -1
    here = int(ctl.open_head)
    while net.node[here].at <= at:
        before = here
        here = int(net.node[here].next)
    net.node[node].next = here
    if before < 0:
        ctl.open_head = node
    else:
        net.node[before].next = node


@inner
def _merge(net, left, right):
    """Merge two ordered lists; of equal times the left one comes first. Returns the head."""
    head = -1
    tail = -1
    while left >= 0 or right >= 0:
        if right < 0 or (left >= 0 and net.node[left].at <= net.node[right].at):
            taken = left
            left = int(net.node[left].next)
        else:
            taken = right
            right = int(net.node[right].next)
        if tail < 0:
            head = taken
        else:
            net.node[tail].next = taken
        tail = taken
    return head


@inner
def _sort(net, head, n):
    """Merge sort of a list of `n` events, stable. Returns the head."""
    if n < 2:
        net.node[head].next = -1
        return head
    middle = head
    for _ in range(n // 2 - 1):
        middle = int(net.node[middle].next)
    right = int(net.node[middle].next)
    net.node[middle].next = -1
    left = _sort(net, head, n // 2)
    right = _sort(net, right, n - n // 2)
    return _merge(net, left, right)


@inner
def _put_in_order(net, ctl, head):
    """Sort the list that was just opened."""
    n = 0
    node = head
    while node >= 0:
        n += 1
        node = int(net.node[node].next)
    head = int(_sort(net, head, n))
    ctl.open_head = head
    while net.node[head].next >= 0:
        head = int(net.node[head].next)
    ctl.open_tail = head


@inlined
def next_at(net):
    """Time of the wheel's next event (NEVER if it is empty); opens its bucket."""
    ctl = net.ctl[0]
    if ctl.open_head >= 0:
        return net.node[ctl.open_head].at
    if ctl.n_wheel == 0:
        return NEVER
    here = ctl.bucket & ctl.bucket_mask
    b = bits.next_set(net.bucket_bits, net.bucket_summary, (here + 1) & ctl.bucket_mask)
    ctl.bucket += ((b - here - 1) & ctl.bucket_mask) + 1
    head = int(net.bucket_head[b])
    ctl.open_head = head
    ctl.open_tail = net.bucket_tail[b]
    net.bucket_head[b] = -1
    bits.clear_in_summary(net.bucket_bits, net.bucket_summary, b)
    node = int(net.node[head].next)
    at = net.node[head].at
    while node >= 0:
        if net.node[node].at < at:
            _put_in_order(net, ctl, head)
            break
        at = net.node[node].at
        node = int(net.node[node].next)
    return net.node[ctl.open_head].at


@inlined
def take(net):
    """Remove the event that `next_at` announced, and return it."""
    ctl = net.ctl[0]
    node = int(ctl.open_head)
    ctl.open_head = net.node[node].next
    ctl.n_wheel -= 1
    return node


@inner
def rewind(net, at):
    """The heap comes first: close an open bucket that lies later than `at`, so that events may be
    put before it.
    """
    ctl = net.ctl[0]
    number = at >> ctl.shift
    if number >= ctl.bucket:
        return
    if ctl.open_head >= 0:
        b = ctl.bucket & ctl.bucket_mask
        net.bucket_head[b] = ctl.open_head
        net.bucket_tail[b] = ctl.open_tail
        bits.set_in_summary(net.bucket_bits, net.bucket_summary, b)
        ctl.open_head = -1
    ctl.bucket = number


@inner
def push(net, at, kind, number):
    """Put an entry into the heap."""
    ctl = net.ctl[0]
    what = (kind << KIND_SHIFT) | number
    i = ctl.heap_n
    ctl.heap_n = i + 1
    while i > 0:
        parent = (i - 1) >> 1
        if not _before(at, what, net.heap_at[parent], net.heap_what[parent]):
            break
        net.heap_at[i] = net.heap_at[parent]
        net.heap_what[i] = net.heap_what[parent]
        i = parent
    net.heap_at[i] = at
    net.heap_what[i] = what


@inlined
def _before(at, what, other_at, other_what):
    """The heap's order: by time, then kind and number, so that a run does not depend on the heap's
    history.
    """
    return at < other_at or (at == other_at and what < other_what)


@inner
def pop(net):
    """Remove the heap's first entry and return its `kind << 40 | number`."""
    ctl = net.ctl[0]
    first = net.heap_what[0]
    n = ctl.heap_n - 1
    ctl.heap_n = n
    at = net.heap_at[n]
    what = net.heap_what[n]
    i = 0
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        if child + 1 < n and _before(
            net.heap_at[child + 1],
            net.heap_what[child + 1],
            net.heap_at[child],
            net.heap_what[child],
        ):
            child += 1
        if not _before(net.heap_at[child], net.heap_what[child], at, what):
            break
        net.heap_at[i] = net.heap_at[child]
        net.heap_what[i] = net.heap_what[child]
        i = child
    net.heap_at[i] = at
    net.heap_what[i] = what
    return first
