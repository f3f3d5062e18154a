"""A binary heap of times and events, for event loops.

The heap is an array of `ENTRY`; the field `heap_n` of a control record counts those in use. The
caller of `push` makes sure that there is room.
"""

from __future__ import annotations

from openmrc.jit.aligned import record_type
from openmrc.jit.decorators import inlined, inner

ENTRY = record_type(("at", "i8"), ("what", "i8"))


@inner
def push(ctl, heap, at, what):
    """Put an entry into the heap."""
    i = int(ctl.heap_n)
    ctl.heap_n = i + 1
    while i > 0:
        parent = (i - 1) >> 1
        above = heap[parent]
        if not _before(at, what, above.at, above.what):
            break
        _put(heap[i], above.at, above.what)
        i = parent
    _put(heap[i], at, what)


@inner
def pop(ctl, heap):
    """Remove the first entry and return its `what`."""
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
        if child + 1 < n:
            right = heap[child + 1]
            if _before(right.at, right.what, heap[child].at, heap[child].what):
                child += 1
        below = heap[child]
        if not _before(below.at, below.what, at, what):
            break
        _put(heap[i], below.at, below.what)
        i = child
    _put(heap[i], at, what)
    return first


@inlined
def _before(at, what, other_at, other_what):
    """Order by time, then by kind and number, so that a run does not depend on the heap's
    history.
    """
    return at < other_at or (at == other_at and what < other_what)


@inlined
def _put(entry, at, what):
    entry.at = at
    entry.what = what
