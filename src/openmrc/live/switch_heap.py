"""When what happens next: a binary heap of arrivals and of ends of transmissions.

It holds at most one entry for each frame in flight and one for each port with a queue.
"""

from __future__ import annotations

from openmrc.jit import inlined


@inlined
def push(ctl, heap, at, what):
    """Put an entry into the heap; there is always room."""
    i = int(ctl.heap_n)
    ctl.heap_n = i + 1
    while i > 0:
        parent = (i - 1) >> 1
        above = heap[parent]
        if at > above.at or (at == above.at and what >= above.what):
            break
        heap[i].at = above.at
        heap[i].what = above.what
        i = parent
    heap[i].at = at
    heap[i].what = what


@inlined
def pop(ctl, heap):
    """Remove the earliest entry and return what it is about."""
    first = int(heap[0].what)
    n = int(ctl.heap_n) - 1
    ctl.heap_n = n
    at = int(heap[n].at)
    what = int(heap[n].what)
    i = 0
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        if child + 1 < n and _before(heap[child + 1], heap[child]):
            child += 1
        below = heap[child]
        if at < below.at or (at == below.at and what <= below.what):
            break
        heap[i].at = below.at
        heap[i].what = below.what
        i = child
    heap[i].at = at
    heap[i].what = what
    return first


@inlined
def _before(a, b):
    return a.at < b.at or (a.at == b.at and a.what < b.what)
