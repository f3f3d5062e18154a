"""The heap of the event loops, beside Python's own."""

from __future__ import annotations

import heapq

import numpy as np

from openmrc.jit import heap, records
from tests.exposed import exposed

push, pop = exposed(heap.push), exposed(heap.pop)
CONTROL = np.dtype([("heap_n", "i4")])


def test_entries_come_by_time_and_then_by_what_they_are() -> None:
    rng = np.random.default_rng(1)
    ctl, entries = records(1, CONTROL)[0], records(300, heap.ENTRY)
    reference: list[tuple[int, int]] = []
    for _ in range(1500):
        if len(reference) < 300 and rng.random() < 0.6:
            entry = (int(rng.integers(40)), int(rng.integers(1 << 45)))
            push(ctl, entries, *entry)
            heapq.heappush(reference, entry)
        elif reference:
            first = heapq.heappop(reference)
            assert (int(entries[0].at), pop(ctl, entries)) == first
        assert int(ctl.heap_n) == len(reference)
