"""The calls of a C program for each message, compiled: no interpreter's lock, and no Python at all.

`mrc_post_send` and `mrc_post_recv` check a request and put it into the ring from which the loop of
the endpoint takes (`live.endpoint.loop`); `mrc_poll_cq` converts the loop's entries to `ibv_wc`. C
structures are read in place. A handle is a number and never an address: each record here knows its
own, so a wrong handle, or that of a destroyed queue, is detected and does no harm.

Several threads may call at once: one lock guards posting, and one each completion queue.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np

from openmrc.capi.layouts import NUMBERS, RECV_WR, SEND_WR, SGE, WC
from openmrc.engine import state as es
from openmrc.fabric.clos import multiplane
from openmrc.jit import (
    compiled,
    fields,
    inlined,
    inner,
    interpreted,
    offset_of,
    record_type,
    records,
)
from openmrc.jit.byref import by_reference
from openmrc.jit.shared import exchange, give_way
from openmrc.jit.warmup import once
from openmrc.live import memory
from openmrc.live.endpoint import state
from openmrc.live.endpoint.host import Host
from openmrc.live.endpoint.limits import Limits, Port
from openmrc.live.memory import fence
from openmrc.live.syscalls import write_count
from openmrc.wire.words import put_bytes

EINVAL, ENOMEM, EIO, EBUSY = 22, 12, 5, 16
NO_REGION = -1
SGES_MAX = 16  # buffers of one request: the number in a work queue entry of common NICs
INLINE_MAX = 1024  # bytes; larger data is better sent in place
SPINS_MAX = 1 << 20  # iterations of waiting for room in the ring; a loop that has ended makes none
MESSAGE_MAX = 1 << 31  # bytes
REGION_MASK = (1 << es.REGION_INDEX_BITS) - 1
INDEX_MASK = 0xFFFF  # low bits of a handle: the record's index

# The loop's counts are read only when their cached values leave no room: they are in cache lines
# that the loop writes all the time.
CALL_QP = record_type(
    ("handle", "i8"),  # 0: unused
    *fields("i8", "sent", "received"),  # posted in all
    *fields("i8", "sent_done", "received_done"),  # completed ones, as last read
    *fields("i4", "max_send", "max_recv", "send_cq", "recv_cq", "sig_all", "born", "qpn"),
    *fields("i4", "may_send", "may_receive"),  # whether the queue pair's state allows it
    *fields("i4", "max_send_sge", "max_recv_sge", "max_inline"),
)
CALL_CQ = record_type(
    ("handle", "i8"),
    ("promised", "i8"),  # completions that posted requests have brought or may still bring
    ("gone", "i8"),  # of these, polled, or never to come, as last read
    *fields("i8", "depth", "lock"),
)
DOOR = record_type(("lock", "i8"), ("taken", "i8"))  # `taken` of the ring, as last read
CALL_PROFILE = record_type(  # with `n` EVs (`control.states`) at `rows`
    *fields("i8", "number", "rows", "n")
)
CONTEXTS_MAX = 1024
PROFILES_MAX = 256  # of EVs
CALL_CQ_BYTES, LOCK_AT = CALL_CQ.itemsize, offset_of(CALL_CQ, "lock")

SEND_FIELDS, RECV_FIELDS = SEND_WR.dtype, RECV_WR.dtype
SGE_FIELDS, WC_FIELDS = SGE.dtype, WC.dtype
SEND_BYTES, RECV_BYTES = SEND_FIELDS.itemsize, RECV_FIELDS.itemsize
SGE_BYTES, WC_BYTES = SGE_FIELDS.itemsize, WC_FIELDS.itemsize
WR_WRITE, WR_WRITE_IMM = NUMBERS["IBV_WR_RDMA_WRITE"], NUMBERS["IBV_WR_RDMA_WRITE_WITH_IMM"]
SIGNALED, INLINE = NUMBERS["IBV_SEND_SIGNALED"], NUMBERS["IBV_SEND_INLINE"]
# Flags without a meaning for MRC that do no harm: there are no reads, so there is nothing to wait
# for, and every completion wakes waiting threads.
FLAGS = SIGNALED | INLINE | NUMBERS["IBV_SEND_FENCE"] | NUMBERS["IBV_SEND_SOLICITED"]
WITH_IMM = NUMBERS["IBV_WC_WITH_IMM"]


@by_reference
class Calls(NamedTuple):
    """The state of the calls, in addition to the endpoint's. Every field is an array."""

    door: Any  # DOOR, one record
    qp: Any  # CALL_QP, one for each QP of the engine
    cq: Any  # CALL_CQ, one for each CQ of the endpoint
    room: Any  # int64 [2], room for the kernel, under the door's lock
    copied: Any  # int64 [queue pair, slot], addresses of copies of gathered data; 0: none
    source: Any  # int32 [queue pair, slot], regions that requests send from, or NO_REGION
    context: Any  # int64, handles of contexts; 0: unused
    profile: Any  # CALL_PROFILE; those that may be changed by compiled code have `rows`
    ev_profile: Any  # int64, one for each QP of the engine: the number of its profile


class _Request(NamedTuple):
    """A request for the ring; all fields are int64."""

    kind: Any
    cq: Any
    wr_id: Any
    address: Any
    length: Any
    remote_address: Any
    rkey: Any
    imm: Any
    signaled: Any
    region: Any  # that it sends from, or NO_REGION


def new_calls(qps: int, cqs: int, sends: int) -> Calls:
    """A zeroed Calls with this capacity, with `sends` requests per queue pair.

    A slot for a copy is reused after twice as many requests: by then as many have completed since
    the previous one, so that the loop no longer needs its bytes.
    """
    return Calls(
        records(1, DOOR),
        records(qps, CALL_QP),
        records(cqs, CALL_CQ),
        np.zeros(2, "i8"),
        np.zeros((qps, 2 * sends), "i8"),
        np.full((qps, sends), NO_REGION, "i4"),
        np.zeros(CONTEXTS_MAX, "i8"),
        records(PROFILES_MAX, CALL_PROFILE),
        np.zeros(qps, "i8"),
    )


if interpreted():

    def bytes_at(address: int, n: int) -> Any:
        """As `memory.bytes_at`; a view as a record has its fields as attributes."""
        return memory.bytes_at(address, n).view(np.recarray)

    _libc = ctypes.CDLL(None)
    _libc.realloc.restype = ctypes.c_void_p
    _libc.realloc.argtypes = ctypes.c_void_p, ctypes.c_size_t
    _libc.free.argtypes = (ctypes.c_void_p,)

    def reallocate(address: int, n: int) -> int:
        """Reallocate memory at an address to `n` bytes; return its address, or 0."""
        return _libc.realloc(int(address), int(n)) or 0

    def release(address: int) -> None:
        """Free memory."""
        _libc.free(int(address))

else:
    from numba import types

    bytes_at = memory.bytes_at

    reallocate = types.ExternalFunction("realloc", types.int64(types.int64, types.int64))
    release = types.ExternalFunction("free", types.void(types.int64))


@inlined
def signed(value):
    """The int64 with the same 64 bits: all numbers here are int64."""
    return np.int64(value)


@inlined
def _lock(address):
    while exchange(address, 1) != 0:
        give_way()


@inlined
def _unlock(address):
    exchange(address, 0)


@inlined
def _turned(value):
    """32 bits in the other byte order: an immediate is sent in network order."""
    return (
        (value >> 24 & 0xFF) | (value >> 8 & 0xFF00) | (value & 0xFF00) << 8 | (value & 0xFF) << 24
    )


@inlined
def _has_room(ep, calls):
    """Wait for a slot of the ring; False if the loop has ended."""
    ctl, door = ep.ctl[0], calls.door[0]
    for _ in range(SPINS_MAX):
        if ctl.posted - door.taken < ep.post.shape[0]:
            return True
        fence()
        door.taken = ctl.taken
        if ctl.posted - door.taken >= ep.post.shape[0]:
            give_way()
    return False


@inlined
def _hand_over(ep, calls, i, call, is_full, r):
    """Put a request into the ring: 0, ENOMEM if a queue is full, EIO if the loop has ended."""
    if is_full or _is_full(ep, calls, r.cq):
        return ENOMEM
    if not _has_room(ep, calls):
        return EIO
    p = ep.post[ep.ctl[0].posted % ep.post.shape[0]]
    p.qp = i
    p.born = call.born
    p.kind = r.kind
    p.wr_id = r.wr_id
    p.address = r.address
    p.length = r.length
    p.remote_address = r.remote_address
    p.rkey = r.rkey
    p.imm = r.imm
    p.signaled = r.signaled
    calls.cq[r.cq].promised += 1
    fence()
    ep.ctl[0].posted += 1
    return 0


@inlined
def wake(ep, calls):
    """Wake the loop if it sleeps, once: until the scheduler runs it, other callers need not."""
    fence()
    ctl = ep.ctl[0]
    if ctl.sleeping:
        ctl.sleeping = 0
        fence()
        write_count(ctl.wake_fd, calls.room)


@inlined
def _is_registered(st, key, address, length):
    """Whether bytes are in the region with this key."""
    i = key & REGION_MASK
    if i >= st.region.shape[0]:
        return False
    r = st.region[i]
    inside = r.va <= address and address + length <= r.va + r.length
    return inside and signed(r.rkey) == key and r.length > 0


@inlined
def _is_full(ep, calls, cq):
    """Whether a completion queue might have no room for one more completion."""
    c = calls.cq[cq]
    if c.promised - c.gone < c.depth:
        return False
    c.gone = ep.cq[cq].silent + ep.cq[cq].read
    return c.promised - c.gone >= c.depth


@inlined
def _sends_full(st, i, call):
    if call.sent - call.sent_done < call.max_send:
        return False
    call.sent_done = st.qp[i].msg_done
    return call.sent - call.sent_done >= call.max_send and st.qp[i].state != es.ERROR


@inlined
def _receives_full(ep, st, i, call):
    if call.received - call.received_done < call.max_recv:
        return False
    call.received_done = ep.qp[i].recv_head
    return call.received - call.received_done >= call.max_recv and st.qp[i].state != es.ERROR


@inlined
def _buffer(at, k):
    """The `ibv_sge` with this index, of a list at an address: its address and its bytes."""
    s = bytes_at(at + k * SGE_BYTES, SGE_BYTES).view(SGE_FIELDS)[0]
    return signed(s.addr), signed(s.length), signed(s.lkey)


@inlined
def _length_of(st, call, at, n, inline):
    """Bytes of all buffers of a request; -1 if they are too many, or the caller may not send them.
    A request that is copied at once needs no key.
    """
    total, wrong = 0, 0
    for k in range(n):
        address, length, key = _buffer(at, k)
        total += length
        if length > 0:
            wrong |= address == 0 if inline else not _is_registered(st, key, address, length)
    most = call.max_inline if inline else MESSAGE_MAX
    return -1 if wrong or total > most else total


@inlined
def _gather(calls, i, call, at, n, length):
    """Copy all buffers of a request, concatenated; return the address, or 0 without memory."""
    place = call.sent % calls.copied.shape[1]
    room = reallocate(calls.copied[i, place], length)
    if room == 0:
        return 0
    calls.copied[i, place] = room
    to = room
    for k in range(n):
        address, n_bytes, _ = _buffer(at, k)
        if n_bytes > 0:
            put_bytes(bytes_at(to, n_bytes), 0, bytes_at(address, n_bytes))
            to += n_bytes
    return room


@inner
def _send_one(ep, st, calls, i, call, at):
    """Post one request at an address; 0 or its error."""
    w = bytes_at(at, SEND_BYTES).view(SEND_FIELDS)[0]
    opcode, flag_bits, n = int(w.opcode), signed(w.send_flags), int(w.num_sge)
    if (opcode != WR_WRITE and opcode != WR_WRITE_IMM) or flag_bits & ~FLAGS:
        return EINVAL
    if n < 0 or n > call.max_send_sge or (n > 0 and w.sg_list == 0):
        return EINVAL
    inline = flag_bits & INLINE != 0
    length = _length_of(st, call, signed(w.sg_list), n, inline)
    if length < 0:
        return EINVAL
    is_full = _sends_full(st, i, call)
    address, region = 0, NO_REGION
    if n == 1 and not inline:
        address, _, key = _buffer(signed(w.sg_list), 0)
        if length > 0:
            region = key & REGION_MASK
    elif length > 0 and not is_full and st.qp[i].state != es.ERROR:  # in ERROR nothing is sent
        address = _gather(calls, i, call, signed(w.sg_list), n, length)
        if address == 0:
            return ENOMEM
    r = _Request(
        kind=state.POST_WRITE_IMM if opcode == WR_WRITE_IMM else state.POST_WRITE,
        cq=int(call.send_cq),
        wr_id=signed(w.wr_id),
        address=address,
        length=length,
        remote_address=signed(w.wr.rdma.remote_addr),
        rkey=signed(w.wr.rdma.rkey),
        imm=_turned(signed(w.imm_data)),
        signaled=1 if call.sig_all or flag_bits & SIGNALED else 0,
        region=region,
    )
    wrong = _hand_over(ep, calls, i, call, is_full, r)
    if wrong == 0:
        calls.source[i, call.sent % calls.source.shape[1]] = region
        call.sent += 1
    return wrong


@inner
def _receive_one(ep, st, calls, i, call, at):
    """Post one receive at an address; 0 or its error. It has no memory of its own."""
    w = bytes_at(at, RECV_BYTES).view(RECV_FIELDS)[0]
    if w.num_sge < 0 or w.num_sge > call.max_recv_sge:
        return EINVAL
    wr_id = signed(w.wr_id)
    r = _Request(state.POST_RECV, int(call.recv_cq), wr_id, 0, 0, 0, 0, 0, 1, NO_REGION)
    wrong = _hand_over(ep, calls, i, call, _receives_full(ep, st, i, call), r)
    call.received += wrong == 0
    return wrong


@compiled
def post_send(ep, st, calls, handle, at, bad):
    """Post the list of `ibv_send_wr` at an address: 0, or an errno with the faulty request at
    `bad`; those before it are posted. In ERROR a request is flushed, whatever the queue's depth.
    """
    return _post(ep, st, calls, handle, at, bad, True)


@compiled
def post_recv(ep, st, calls, handle, at, bad):
    """The same for a list of `ibv_recv_wr`."""
    return _post(ep, st, calls, handle, at, bad, False)


@inlined
def _post(ep, st, calls, handle, at, bad, sends):
    i = handle & INDEX_MASK
    if bad == 0 or i >= calls.qp.shape[0] or handle == 0:
        return EINVAL
    lock = calls.door.ctypes.data  # its first field
    _lock(lock)
    call = calls.qp[i]
    wrong = 0
    if call.handle != handle or (sends and st.qp[i].state < es.RTS) or st.qp[i].state == es.RESET:
        wrong = EINVAL
    first = wrong
    while at != 0 and wrong == 0:
        if sends:
            wrong = _send_one(ep, st, calls, i, call, at)
        else:
            wrong = _receive_one(ep, st, calls, i, call, at)
        if wrong == 0:
            # both kinds of request have the pointer to the next one at the same offset
            at = signed(bytes_at(at, RECV_BYTES).view(RECV_FIELDS)[0].next)
    if first == 0:
        wake(ep, calls)
    _unlock(lock)
    if wrong != 0:
        bytes_at(bad, 8).view(np.int64)[0] = at
    return wrong


@compiled
def poll_cq(ep, calls, handle, n, at):
    """Take up to `n` completions into the `ibv_wc` at an address; return how many, or -errno.

    Completions of a destroyed queue pair are taken, but not returned.
    """
    i = handle & INDEX_MASK
    if i >= calls.cq.shape[0] or handle == 0 or n < 0 or (at == 0 and n > 0):
        return -EINVAL
    c = calls.cq[i]
    lock = calls.cq.ctypes.data + i * CALL_CQ_BYTES + LOCK_AT
    _lock(lock)
    if c.handle != handle:
        _unlock(lock)
        return -EINVAL
    ring = ep.cq[i]
    taken = 0
    while taken < n and ring.read != ring.written:
        fence()
        entry = ep.cqe[ring.cqe0 + (ring.read & ring.mask)]
        call = calls.qp[entry.qpn & ep.ctl[0].qpn_mask]
        if call.qpn == entry.qpn and call.handle != 0:
            _show(bytes_at(at + taken * WC_BYTES, WC_BYTES).view(WC_FIELDS)[0], entry)
            taken += 1
        fence()
        ring.read += 1
    _unlock(lock)
    return taken


@inlined
def _show(w, entry):
    """Convert an entry of the loop to `ibv_wc`."""
    receives = entry.kind == state.RECV_RDMA_WITH_IMM
    w.wr_id = np.uint64(entry.wr_id)
    w.status = entry.status
    w.opcode = entry.kind
    w.vendor_err = 0
    w.byte_len = np.uint32(entry.length)
    w.imm_data = np.uint32(_turned(signed(entry.imm))) if receives else np.uint32(0)
    w.qp_num = np.uint32(entry.qpn)
    w.src_qp = 0
    w.wc_flags = WITH_IMM if receives and entry.status == state.SUCCESS else 0
    w.pkey_index = 0
    w.slid = 0
    w.sl = 0
    w.dlid_path_bits = 0


@compiled
def withdraw(st, calls, key):
    """Let no request send from the region with this key any more: 0; or EBUSY while one that was
    posted is not complete.
    """
    lock, region = calls.door.ctypes.data, key & REGION_MASK
    _lock(lock)
    wrong = 0
    for i in range(calls.qp.shape[0]):
        call = calls.qp[i]
        if call.handle == 0 or st.qp[i].state == es.ERROR:
            continue
        for number in range(st.qp[i].msg_done, call.sent):
            if calls.source[i, number % calls.source.shape[1]] == region:
                wrong = EBUSY
    if wrong == 0:
        st.region[region].length = 0
    _unlock(lock)
    return wrong


@compiled
def forget_qp(calls, i):
    """Invalidate the handle of a queue pair; no thread is posting with it any more."""
    lock = calls.door.ctypes.data
    _lock(lock)
    calls.qp[i].handle = 0
    _unlock(lock)


@compiled
def forget_copies(calls, i):
    """Free the copies made for a destroyed queue pair."""
    for place in range(calls.copied.shape[1]):
        if calls.copied[i, place] != 0:
            release(calls.copied[i, place])
            calls.copied[i, place] = 0


@compiled
def forget_cq(calls, i):
    """The same for a completion queue."""
    lock = calls.cq.ctypes.data + i * CALL_CQ_BYTES + LOCK_AT
    _lock(lock)
    calls.cq[i].handle = 0
    _unlock(lock)


@once("libmrc")
def warm_up() -> None:
    """Call each once, with invalid handles: that compiles everything."""
    fabric = multiplane(2, 1, 10**9, 1, 2, 0, 0)
    one = Host(fabric, 0, [Port(-1, bytes(6))], Limits(qps=2), 1_000_000)
    calls = new_calls(2, 1, 1)
    one.start()
    for post in (post_send, post_recv):
        post(one.ep, one.st, calls, 0, 0, 0)
    poll_cq(one.ep, calls, 0, 0, 0)
    withdraw(one.st, calls, 0)
    forget_qp(calls, 0)
    forget_copies(calls, 0)
    forget_cq(calls, 0)
    one.close()
