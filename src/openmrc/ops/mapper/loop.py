"""An agent's rounds in real time: sleep, receive, judge, send; compiled.

It returns to plain Python when that is needed: for a message of the controller, for a loss, for a
probe of a burst. Without faults Python runs no more often than it asks for, so that an idle agent
takes little of a core.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from openmrc.jit import compiled, fields, inlined, record_type, records
from openmrc.jit.byref import by_reference
from openmrc.jit.warmup import once
from openmrc.live.syscalls import (
    MESSAGE_BYTES,
    POLL,
    POLL_IN,
    POLL_OUT,
    Batch,
    copy,
    new_batch,
    receive,
    send_at,
    time_ps,
    wait,
)
from openmrc.ops.mapper import tally
from openmrc.ops.mapper.tally import PERIOD_AT, ROOM
from openmrc.ops.schedule import PAYLOAD_BYTES, TURNS

PS_PER_NS = 1000
ASKED = -1
PATIENCE, ROOM_AGAIN_NS = 20, 1_000_000  # when a queue of the kernel is full
NOBODY = -1  # as a descriptor: the kernel ignores it
EINTR, EAGAIN, ENOBUFS = 4, 11, 105

WAY = record_type(*fields("i8", "fd", "at", "started_ns"))


@by_reference
class Wires(NamedTuple):
    """The socket's two directions: `way`, and the fields of two batches (`syscalls.Batch`)."""

    way: Any  # WAY, one record: the socket, where payloads begin, when the clock began
    poll: Any  # POLL [2]: readable when the controller has sent a message, or a port has changed
    room_poll: Any  # POLL [1]: the socket, writable
    room: Any  # int64 [2], for the kernel
    in_message: Any
    in_iov: Any
    in_data: Any
    in_name: Any
    in_control: Any
    out_message: Any  # [TURNS x n]: a period's probes, turn by turn
    out_iov: Any
    out_data: Any
    out_name: Any
    out_control: Any
    check_message: Any  # [planes]
    check_iov: Any
    check_data: Any
    check_name: Any
    check_control: Any


def new_wires(out: Batch, check: Batch, fd: int, at: int, started_ns: int) -> Wires:
    """Return the wires of a socket; `out` holds the frames of all turns."""
    way, poll, room_poll = records(1, WAY), records(2, POLL), records(1, POLL)
    way[0].fd, way[0].at, way[0].started_ns = fd, at, started_ns
    poll.fd, poll.events = NOBODY, POLL_IN
    room_poll[0].fd, room_poll[0].events = fd, POLL_OUT
    room = np.zeros(2, np.int64)
    inbox = new_batch(ROOM, at + PAYLOAD_BYTES)
    return Wires(way, poll, room_poll, room, *inbox, *out, *check)


@inlined
def _take(t, w, now_ps):
    """Receive everything that arrived; return how many probes are of bursts: those may be
    incomplete.
    """
    at = w.way[0].at
    while True:
        batch = Batch(w.in_message, w.in_iov, w.in_data, w.in_name, w.in_control)
        got = receive(w.way[0].fd, batch, ROOM)
        if got <= 0:
            return 0
        n = 0
        for i in range(got):
            if w.in_message[i].length >= at + PAYLOAD_BYTES:
                row = w.in_data.ctypes.data + i * w.in_data.shape[1]
                copy(t.inbox.ctypes.data + n * PAYLOAD_BYTES, row + at, PAYLOAD_BYTES)
                n += 1
        others = tally.take(t, n, now_ps)
        if others > 0 or got < ROOM:
            return others


@inlined
def _put(w, at, n):
    """Send the `n` messages that begin at this address. Those that the kernel refuses because a
    port is down count as lost; if it has no room the call is repeated.
    """
    patience = PATIENCE
    while n > 0:
        sent = send_at(w.way[0].fd, at, n)
        if sent <= 0 and patience > 0 and (sent == -EAGAIN or sent == -ENOBUFS or sent == -EINTR):
            patience -= 1
            wait(w.room_poll, ROOM_AGAIN_NS, w.room)
        else:
            n -= max(sent, 1)
            at += max(sent, 1) * MESSAGE_BYTES


@compiled
def put(w, at, n):
    """The same, for plain Python; returns 0."""
    _put(w, at, n)
    return 0


@inlined
def _number(data, at, first, last, number):
    """Write the number of a period, or of a check, into these frames."""
    for i in range(first, last):
        for byte in range(4):
            data[i, at + PERIOD_AT + byte] = number >> 24 - 8 * byte & 0xFF


@inlined
def _send(t, w, tick):
    """Send a tick's probes."""
    ticks = t.book[0].ticks
    period, part, n = tick // ticks, tick % ticks, t.loops.shape[1]
    base = period % TURNS * n
    first, last = base + part * n // ticks, base + (part + 1) * n // ticks
    _number(w.out_data, w.way[0].at, first, last, period)
    _put(w, w.out_message.ctypes.data + first * MESSAGE_BYTES, last - first)


@inlined
def _check(t, w):
    """Send a check."""
    n = w.check_data.shape[0]
    _number(w.check_data, w.way[0].at, 0, n, t.book[0].check)
    _put(w, w.check_message.ctypes.data, n)
    t.book[0].check_now = 0


@compiled
def go(t, w, until_ps):
    """Run an agent's rounds until this time, or until Python is needed; return how many probes of
    bursts are in `t.other`, or `ASKED`: a message has arrived, and all earlier probes are
    processed.
    """
    b = t.book[0]
    while True:
        now_ps = time_ps(w.way[0].started_ns, w.room)
        next_ps = min(b.due_ps, b.look_at_ps, until_ps)
        asked = wait(w.poll, max(next_ps - now_ps + PS_PER_NS - 1, 0) // PS_PER_NS, w.room)
        now_ps = time_ps(w.way[0].started_ns, w.room)
        if asked == 0 and now_ps < min(b.due_ps, b.look_at_ps):
            if now_ps >= until_ps:
                return 0
            continue
        # Arrivals first: an agent that slept for long must not take them for lost.
        others = _take(t, w, now_ps)
        if others > 0:
            return others
        if asked != 0:
            return ASKED
        tick = tally.advance(t, now_ps)
        if b.check_now != 0:
            _check(t, w)
        if tick >= 0:
            _send(t, w, tick)
        if b.n_lost > 0 or b.n_late > 0 or b.busy > 0:
            return 0


@once("mapper")
def warm_up() -> None:
    """Compile everything that an agent needs."""
    from openmrc.jit.bound import Bound

    books = tally.new_tally(1, 1, 1, 1)
    batch = new_batch(1, PAYLOAD_BYTES, 1)
    wires = new_wires(batch, batch, NOBODY, 0, 0)
    Bound(tally.arrive, (books,), 2)
    Bound(tally.due, (books,), 1)
    Bound(put, (wires,), 2)
    Bound(go, (books, wires), 1)
