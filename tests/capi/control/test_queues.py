"""Queues of EV events: what is dropped is counted, by the next event that has room."""

from __future__ import annotations

import os

import pytest

from openmrc.capi.control.formats import packed
from openmrc.capi.control.queues import EventQueue


def test_the_next_event_tells_how_many_were_dropped() -> None:
    queue = EventQueue(2)
    for number in range(5):
        queue.put(7, packed(number, 32, 1), 2)
    first = queue.take(8)
    assert [(one.ev, one.dropped) for one in first] == [
        (packed(0, 32, 1), 0),
        (packed(1, 32, 1), 0),
    ]
    queue.lose(4)  # the device itself had no room
    queue.put(7, packed(9, 32, 1), 1)
    [last] = queue.take(1)
    assert (last.ev, last.state, last.dropped) == (packed(9, 32, 1), 1, 3 + 4)
    assert queue.take(1) == []
    queue.close()


def test_its_descriptor_is_readable_when_an_event_came() -> None:
    queue = EventQueue(1)
    with pytest.raises(BlockingIOError):
        os.eventfd_read(queue.fileno())
    queue.put(0, packed(1, 32, 1), 2)
    assert os.eventfd_read(queue.fileno()) == 1
    queue.close()
