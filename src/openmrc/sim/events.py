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
        _insert_into_open(ctl, net.node, node, at)
        return
    b = number & ctl.bucket_mask
    if net.bucket[b].head < 0:
        net.bucket[b].head = node
        bits.set_in_summary(net.bucket_bits, net.bucket_summary, b)
    else:
        net.node[net.bucket[b].tail].next = node
    net.bucket[b].tail = node


@inner
def _insert_into_open(ctl, nodes, node, at):
    """Into the bucket that is being emptied, in its place (rare: buckets are narrower than a
    transmission).
    """
    if ctl.open_head < 0:
        ctl.open_head = node
        ctl.open_tail = node
        return
    if nodes[ctl.open_tail].at <= at:
        nodes[ctl.open_tail].next = node
        ctl.open_tail = node
        return
    before = -1
    here = int(ctl.open_head)
    while nodes[here].at <= at:
        before = here
        here = int(nodes[here].next)
    nodes[node].next = here
    if before < 0:
        ctl.open_head = node
    else:
        nodes[before].next = node


@inner
def _merge(nodes, left, right):
    """Merge two ordered lists; of equal times the left one comes first. Returns the head."""
    head = -1
    tail = -1
    while left >= 0 or right >= 0:
        if right < 0 or (left >= 0 and nodes[left].at <= nodes[right].at):
            taken = left
            left = int(nodes[left].next)
        else:
            taken = right
            right = int(nodes[right].next)
        if tail < 0:
            head = taken
        else:
            nodes[tail].next = taken
        tail = taken
    return head


@inner
def _sort(nodes, head, n):
    """Merge sort of a list of `n` events, stable. Returns the head."""
    if n < 2:
        nodes[head].next = -1
        return head
    middle = head
    for _ in range(n // 2 - 1):
        middle = int(nodes[middle].next)
    right = int(nodes[middle].next)
    nodes[middle].next = -1
    left = _sort(nodes, head, n // 2)
    right = _sort(nodes, right, n - n // 2)
    return _merge(nodes, left, right)


@inner
def _put_in_order(ctl, nodes, head):
    """Sort the list that was just opened."""
    n = 0
    node = head
    while node >= 0:
        n += 1
        node = int(nodes[node].next)
    head = int(_sort(nodes, head, n))
    ctl.open_head = head
    while nodes[head].next >= 0:
        head = int(nodes[head].next)
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
    head = int(net.bucket[b].head)
    ctl.open_head = head
    ctl.open_tail = net.bucket[b].tail
    net.bucket[b].head = -1
    bits.clear_in_summary(net.bucket_bits, net.bucket_summary, b)
    node = int(net.node[head].next)
    at = net.node[head].at
    while node >= 0:
        if net.node[node].at < at:
            _put_in_order(ctl, net.node, head)
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
    _sift_up(net.ctl[0], net.heap, at, (kind << KIND_SHIFT) | number)


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
