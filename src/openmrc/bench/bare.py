"""The lower bound of an endpoint's cost: frames with a correct iCRC through the same system calls.

`mrc bench live` compares the engine with these two loops. They move frames of the same length in
batches of the same length over the same kind of sockets, and compute the same checksum over every
one of them; there is no protocol, no header is read or written, no payload is copied. Frames in
flight are bounded as by the engine's window, by counts in memory that both threads share: no packet
is sent back.
"""

from __future__ import annotations

import numpy as np

from openmrc.jit import compiled, inlined, record_type
from openmrc.live import syscalls
from openmrc.live.endpoint.state import TX_FRAMES
from openmrc.live.memory import fence
from openmrc.live.syscalls import POLL_IN
from openmrc.wire.icrc import icrc

SENT, RECEIVED, LOST, WRONG, STOP, SLEEPS = 0, 1, 2, 3, 4, 5  # of `count`, int64[6]
ICRC_BYTES = 4
WORK = record_type(  # of both loops
    ("ip_at", "i8"),  # byte of a frame at which its IP header begins
    ("end", "i8"),  # bytes of a frame
    ("check", "i8"),  # 1: iCRCs are written and compared
    ("window", "i8"),  # maximum number of frames in flight
    ("wake_fd", "i8"),  # eventfd by which `receive` wakes `send`
)
PATIENCE_NS = 100_000_000  # frames in flight for longer are lost: the sockets have milliseconds


@inlined
def _under_way(count):
    return count[SENT] - count[LOST] - count[RECEIVED]


@inlined
def _sum(data, ip_at, end):
    return icrc(data, ip_at, end - ICRC_BYTES)


@inlined
def _write_sum(data, ip_at, end):
    crc = _sum(data, ip_at, end)
    for i in range(ICRC_BYTES):
        data[end - ICRC_BYTES + i] = crc >> 8 * i & 0xFF


@inlined
def _read_sum(data, end):
    crc = np.int64(0)
    for i in range(ICRC_BYTES):
        crc |= np.int64(data[end - ICRC_BYTES + i]) << 8 * i
    return crc


@inlined
def _wait_for_room(count, window, poll, room):
    """Sleep until half of the window is free; frames that never arrive are counted as lost."""
    before = count[RECEIVED]
    count[SLEEPS] = 1
    fence()
    if _under_way(count) > window // 2:
        syscalls.wait(poll, PATIENCE_NS, room)
    count[SLEEPS] = 0
    syscalls.read_count(poll[0].fd, room)
    if count[RECEIVED] == before:
        count[LOST] += _under_way(count)


@compiled
def send(fds, batch, work, count, poll, room):
    """Send the frames of `batch`, TX_FRAMES on each of the sockets `fds` in turn, repeatedly until
    `count[STOP]`; each gets its iCRC first, if `check` of the one record of `work`.

    `poll` is one POLL record with its eventfd, `room` int64[2].
    """
    w = work[0]
    plane = 0
    while count[STOP] == 0:
        if _under_way(count) + TX_FRAMES > w.window:
            _wait_for_room(count, w.window, poll, room)
            continue
        first = plane * TX_FRAMES
        if w.check:
            for i in range(first, first + TX_FRAMES):
                _write_sum(batch.data[i], w.ip_at, w.end)
        n = syscalls.send(fds[plane], batch, first, TX_FRAMES)
        if n > 0:
            count[SENT] += n
        plane = plane + 1 if plane + 1 < fds.shape[0] else 0
        fence()


@compiled
def receive(fds, batch, work, count, poll, room):
    """Receive the frames of `send`, compare the iCRC of each, if `check`, until `count[STOP]`.

    `poll` has one POLL record for each of the sockets `fds`.
    """
    w = work[0]
    while count[STOP] == 0:
        syscalls.wait(poll, PATIENCE_NS, room)
        for plane in range(fds.shape[0]):
            if poll[plane].revents & POLL_IN:
                n = syscalls.receive(fds[plane], batch, batch.message.shape[0])
                for i in range(n):
                    end = int(batch.message[i].length)
                    data = batch.data[i]
                    if w.check and _sum(data, w.ip_at, end) != _read_sum(data, end):
                        count[WRONG] += 1
                count[RECEIVED] += max(n, 0)
        fence()
        if count[SLEEPS] and _under_way(count) <= w.window // 2:
            syscalls.write_count(w.wake_fd, room)
