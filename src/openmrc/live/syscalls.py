"""System calls for compiled code: batches of datagrams, waiting, the clock, memory.

Addresses are integers (`array.ctypes.data`), arrays of the kernel's structures are NumPy records.
Each function returns what the call returns, or -errno. Numba finds the C library's functions by
name, and code that calls them can be cached; plain Python calls the same functions through ctypes.
"""

from __future__ import annotations

import ctypes
import os
import platform
import select
from typing import Any, NamedTuple

import numpy as np

from openmrc.jit import compiled, inlined, interpreted, records

IOVEC = np.dtype([("address", "u8"), ("length", "u8")])  # struct iovec
MESSAGE = np.dtype(  # struct mmsghdr of a 64-bit Linux
    [
        ("name", "u8"),
        ("name_length", "u4"),
        ("_pad0", "u4"),
        ("iov", "u8"),
        ("iov_length", "u8"),
        ("control", "u8"),
        ("control_length", "u8"),
        ("flag_bits", "i4"),
        ("_pad1", "u4"),
        ("length", "u4"),  # bytes sent or received
        ("_pad2", "u4"),
    ]
)
POLL = np.dtype([("fd", "i4"), ("events", "i2"), ("revents", "i2")])  # struct pollfd

# struct epoll_event, its data a number for the waiter; packed on x86, aligned elsewhere
_PACKED = platform.machine() in ("x86_64", "AMD64")
EPOLL = np.dtype(
    [("events", "u4"), ("which", "i4"), ("_pad0", "u4")]
    if _PACKED
    else [("events", "u4"), ("_pad0", "u4"), ("which", "i4"), ("_pad1", "u4")]
)

POLL_IN, POLL_OUT = select.POLLIN, select.POLLOUT
POLL_PROBLEM = select.POLLERR | select.POLLHUP | select.POLLNVAL
DONT_WAIT = 0x40  # MSG_DONTWAIT
TRUNCATED = 0x20  # MSG_TRUNC: the datagram was longer than its room
EPOLL_DELETE, EPOLL_MODIFY = 2, 3  # EPOLL_CTL_DEL, EPOLL_CTL_MOD
CLOCK_MONOTONIC = 1
CAPABILITIES_VERSION = 0x20080522  # of capget(2): three sets of two words each
TIMER_ABSOLUTE = 1  # TFD_TIMER_ABSTIME
PS_PER_NS, NS_PER_S = 1000, 1_000_000_000

if interpreted():
    _libc = ctypes.CDLL(None, use_errno=True)

    def _external(name: str, result: str, *arguments: str) -> Any:
        kinds = {"int32": ctypes.c_int32, "uint32": ctypes.c_uint32, "intp": ctypes.c_ssize_t}
        function = getattr(_libc, name)
        function.restype = kinds[result]
        function.argtypes = [kinds[kind] for kind in arguments]
        return lambda *values: function(*map(int, values))

    def _errno() -> int:
        return ctypes.get_errno()

else:
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    def _external(name: str, result: str, *arguments: str) -> Any:
        kinds = [getattr(types, kind) for kind in arguments]
        return types.ExternalFunction(name, getattr(types, result)(*kinds))

    _errno_location = types.ExternalFunction("__errno_location", types.intp())

    @intrinsic  # type: ignore[untyped-decorator,unused-ignore]  # Numba has no types
    def _read_int32(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return builder.load(builder.inttoptr(values[0], ir.IntType(32).as_pointer()))

        return types.int32(types.intp), generate

    @inlined
    def _errno():
        return _read_int32(_errno_location())


_sendmmsg = _external("sendmmsg", "int32", "int32", "intp", "uint32", "int32")
_recvmmsg = _external("recvmmsg", "int32", "int32", "intp", "uint32", "int32", "intp")
_ppoll = _external("ppoll", "int32", "intp", "uint32", "intp", "intp")
_epoll_wait = _external("epoll_wait", "int32", "int32", "intp", "int32", "int32")
_epoll_ctl = _external("epoll_ctl", "int32", "int32", "int32", "int32", "intp")
_timerfd_settime = _external("timerfd_settime", "int32", "int32", "int32", "intp", "intp")
_clock_gettime = _external("clock_gettime", "int32", "int32", "intp")
_read = _external("read", "intp", "int32", "intp", "intp")
_write = _external("write", "intp", "int32", "intp", "intp")
_memcpy = _external("memcpy", "intp", "intp", "intp", "intp")
_capget = _external("capget", "int32", "intp", "intp")


@compiled
def has_capability(which, room):
    """Whether the calling thread has a capability below 32; `room` is int32[8], for the kernel."""
    room[0] = CAPABILITIES_VERSION
    room[1] = 0  # this thread
    at = room.ctypes.data
    return _capget(at, at + 8) == 0 and room[2] >> which & 1 != 0


class Batch(NamedTuple):
    """Room for `n` datagrams of `room` bytes each, made by `new_batch`.

    Message `i` is in `data[i]`; `iov[i]` and `message[i]` point there. After `receive` its length
    is `message[i].length`; before `send` it is `iov[i].length`.
    """

    message: Any  # MESSAGE [n]
    iov: Any  # IOVEC [n]
    data: Any  # uint8 [n, room]
    name: Any  # uint8 [n, name_bytes]: socket addresses
    control: Any  # uint8 [n, control_bytes]: control messages


def new_batch(n: int, room: int, name_bytes: int = 0, control_bytes: int = 0) -> Batch:
    """Return a batch whose pointers are set; it must outlive every call that uses it."""
    batch = Batch(
        records(n, MESSAGE),
        records(n, IOVEC),
        np.zeros((n, room), np.uint8),
        np.zeros((n, max(name_bytes, 1)), np.uint8),
        np.zeros((n, max(control_bytes, 1)), np.uint8),
    )
    each = np.arange(n, dtype=np.uint64)
    batch.iov.address = batch.data.ctypes.data + each * np.uint64(room)
    batch.iov.length = room
    batch.message.iov = batch.iov.ctypes.data + each * np.uint64(IOVEC.itemsize)
    batch.message.iov_length = 1
    if name_bytes:
        batch.message.name = batch.name.ctypes.data + each * np.uint64(name_bytes)
        batch.message.name_length = name_bytes
    if control_bytes:
        batch.message.control = batch.control.ctypes.data + each * np.uint64(control_bytes)
        batch.message.control_length = control_bytes
    return batch


@inlined
def send(fd, batch, first, n):
    """Send messages `first .. first + n - 1`; return how many were taken, or -errno if not even
    one.
    """
    return send_at(fd, batch.message.ctypes.data + int(first) * MESSAGE_BYTES, n)


@inlined
def send_at(fd, at, n):
    """Send the `n` messages that begin at this address, as `send` does."""
    sent = _sendmmsg(fd, at, n, DONT_WAIT)
    return sent if sent >= 0 else -_errno()


@inlined
def receive(fd, batch, n):
    """Receive up to `n` messages from the first on, without waiting; return how many, or -errno."""
    for i in range(n):
        m = batch.message[i]
        m.name_length = batch.name.shape[1] if m.name != 0 else 0
        m.control_length = batch.control.shape[1] if m.control != 0 else 0
    got = _recvmmsg(fd, batch.message.ctypes.data, n, DONT_WAIT, 0)
    return got if got >= 0 else -_errno()


@inlined
def wait(polls, timeout_ns, room):
    """Wait until one of `polls` (POLL records) is ready; return how many are, 0 after `timeout_ns`.

    `room` is an int64[2] array of the caller. A negative timeout waits for ever.
    """
    at = 0
    if timeout_ns >= 0:
        room[0] = timeout_ns // NS_PER_S
        room[1] = timeout_ns % NS_PER_S
        at = room.ctypes.data
    ready = _ppoll(polls.ctypes.data, polls.shape[0], at, 0)
    return ready if ready >= 0 else -_errno()


@inlined
def epoll_ready(epoll_fd, ready):
    """Fill `ready` (EPOLL records) with what is ready now; return how many, or -errno."""
    n = _epoll_wait(epoll_fd, ready.ctypes.data, ready.shape[0], 0)
    return n if n >= 0 else -_errno()


@inlined
def epoll_change(epoll_fd, fd, which, events, room):
    """Wait for `events` of a descriptor from now on; return 0, or -errno. `room` is one EPOLL
    record.

    The descriptor must be registered with epoll; with no events, only errors are reported.
    """
    room[0].events = events
    room[0].which = which
    done = _epoll_ctl(epoll_fd, EPOLL_MODIFY, fd, room.ctypes.data)
    return done if done >= 0 else -_errno()


@inlined
def epoll_forget(epoll_fd, fd, room):
    """Unregister a descriptor from epoll; return 0, or -errno."""
    done = _epoll_ctl(epoll_fd, EPOLL_DELETE, fd, room.ctypes.data)
    return done if done >= 0 else -_errno()


@inlined
def set_alarm(timer_fd, at_ns, room):
    """Make a timer's descriptor readable from this time of CLOCK_MONOTONIC on; return 0, or -errno.
    `room` is an int64[4] array of the caller.
    """
    room[0] = 0  # once
    room[1] = 0
    room[2] = at_ns // NS_PER_S
    room[3] = at_ns % NS_PER_S
    done = _timerfd_settime(timer_fd, TIMER_ABSOLUTE, room.ctypes.data, 0)
    return done if done >= 0 else -_errno()


@inlined
def monotonic_ns(room):
    """CLOCK_MONOTONIC in ns; `room` is an int64[2] array of the caller."""
    _clock_gettime(CLOCK_MONOTONIC, room.ctypes.data)
    return room[0] * NS_PER_S + room[1]


@inlined
def read_count(fd, room):
    """Read and clear the count of an eventfd (non-blocking); 0 if nothing was added."""
    return room[0] if _read(fd, room.ctypes.data, 8) == 8 else 0


@inlined
def write_count(fd, room):
    """Add one to an eventfd."""
    room[0] = 1
    _write(fd, room.ctypes.data, 8)


@inlined
def copy(to, source, n):
    """Copy `n` bytes between addresses."""
    _memcpy(to, source, n)


def new_alarm() -> int:
    """Return the descriptor of a timer of CLOCK_MONOTONIC, non-blocking."""
    libc = ctypes.CDLL(None, use_errno=True)
    made = libc.timerfd_create(CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
    if made < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(made)


MESSAGE_BYTES = MESSAGE.itemsize


@compiled
def time_ps(started_ns, room):
    """Picoseconds since `started_ns` of the monotonic clock: the time that the engine is given.

    It reaches `engine.state.NEVER` after 53 days.
    """
    return (monotonic_ns(room) - started_ns) * PS_PER_NS
