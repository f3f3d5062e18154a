"""The states of EVs, which controllers change while traffic runs: compiled, without the
interpreter's lock.

A profile's EVs are an array of ROW, which these functions and Python share. Python withdraws it
from the table of profiles before it changes anything but a state, so a call from C finds either the
whole array, or nothing. What is not a plain change of states, or would be refused, is left to
Python, which knows the reason.
"""

from __future__ import annotations

import numpy as np

from openmrc.capi.control.layouts import (
    ASSUMED_BAD,
    DENIED,
    ENTRY,
    EV,
    EV_ATTR,
    EV_BYTES,
    GOOD,
    NUMBERS,
)
from openmrc.capi.hot import INDEX_MASK, bytes_at, signed, wake
from openmrc.engine import ev
from openmrc.engine.state import RTS
from openmrc.jit import compiled, inlined, inner, offset_of, record_type
from openmrc.jit.shared import give_way
from openmrc.live import syscalls
from openmrc.live.endpoint import loop

CAP_NET_ADMIN = 12
ROOM_BYTES = 32
DONE, ELSEWHERE, BUSY = range(3)  # it is done; Python has to; another thread has the loop
TRIES = 16  # to get between two rounds of the loop, which Python can ask to let go
ENTRIES_MAX = 4096  # of one operation

# An EV of a profile: its bytes, and its port from 1 on (0: not populated), as the API has them, its
# value in a packet, and its state: ASSUMED_BAD if a queue pair is known to hold it so.
_ROW = (("wire", "i8"), ("state", "i4"), ("port", "i4"))
HEAD = record_type(*_ROW)
ROW = np.dtype([*_ROW, ("value", f"V{EV_BYTES}")])
ROW_BYTES, HEAD_BYTES = ROW.itemsize, HEAD.itemsize

OP = EV_ATTR.dtype["ev_op"]
OP_AT, OP_BYTES = offset_of(EV_ATTR.dtype, "ev_op"), OP.itemsize
WANTED = record_type(("state", "i4"), ("flag_bits", "i4"))
ENTRY_BYTES, WANTED_AT = ENTRY.dtype.itemsize, offset_of(ENTRY.dtype, "state")
PORT_AT = offset_of(EV.dtype, "port")
MODIFY_STATE = NUMBERS["MRC_CTL_EV_OP_MODIFY_EV_STATE"]
EV_OP_ALONE = NUMBERS["MRC_CTL_EV_PROFILE_EV_OP"]


@inlined
def _row(at):
    return bytes_at(at, HEAD_BYTES).view(HEAD)[0]


@inlined
def _wanted(at):
    return bytes_at(at + WANTED_AT, 8).view(WANTED)[0]


@inlined
def _is_row(row_at, port, value):
    """Whether the row at an address is this EV."""
    if _row(row_at).port != port:
        return False
    own, differs = bytes_at(row_at + HEAD_BYTES, EV_BYTES), 0
    for i in range(EV_BYTES):
        differs |= own[i] ^ value[i]
    return differs == 0


@inner
def _is_known(profile, at):
    """Whether an entry at an address names an EV of the profile, and a state."""
    wanted, port = _wanted(at), int(bytes_at(at + PORT_AT, 1)[0])
    if wanted.flag_bits & ~1 or port == 0:
        return False
    if wanted.state != GOOD and wanted.state != ASSUMED_BAD and wanted.state != DENIED:
        return False
    value, is_there = bytes_at(at, EV_BYTES), False
    for i in range(profile.n):
        is_there = is_there or _is_row(profile.rows + i * ROW_BYTES, port, value)
    return is_there


@inner
def _enter(profile, at):
    """The rows of the EV in an entry have its state; return the EV in a packet. What is assumed to
    be bad is the word of queue pairs: theirs comes as an event.
    """
    to, port, wire = int(_wanted(at).state), int(bytes_at(at + PORT_AT, 1)[0]), 0
    value = bytes_at(at, EV_BYTES)
    for i in range(profile.n):
        if _is_row(profile.rows + i * ROW_BYTES, port, value):
            row = _row(profile.rows + i * ROW_BYTES)
            wire = int(row.wire)
            if to != ASSUMED_BAD or row.state == DENIED:
                row.state = DENIED if to == DENIED else GOOD
    return wire


@inner
def _declare(ep, st, ways, calls, profile, at):
    """Do what an entry asks, in the profile and in its queue pairs."""
    wire, plane = _enter(profile, at), int(bytes_at(at + PORT_AT, 1)[0]) - 1
    wanted = int(_wanted(at).state)
    to = ev.GOOD if wanted == GOOD else ev.DENIED if wanted == DENIED else ev.ASSUMED_BAD
    for qi in range(calls.ev_profile.shape[0]):
        if calls.ev_profile[qi] != profile.number or calls.qp[qi].handle == 0:
            continue
        if st.qp[qi].state == RTS:
            loop.declare(ep, st, ways, qi, wire, plane, to)


@compiled
def change(ep, st, ways, calls, number, at, n):
    """Give EVs of a profile their states, `n` entries at an address, all or, if one of them cannot
    be done, none: DONE, ELSEWHERE, or BUSY.
    """
    if loop.attempt(ep) == 0:
        return BUSY
    answer = _change(ep, st, ways, calls, number, at, n)
    loop.leave(ep)
    if ep.ctl[0].posted != ep.ctl[0].taken:
        wake(ep, calls)  # what other threads posted meanwhile
    return answer


@inner
def _change(ep, st, ways, calls, number, at, n):
    for i in range(calls.profile.shape[0]):
        profile = calls.profile[i]
        if profile.number != number or profile.rows == 0:
            continue
        for k in range(n):
            if not _is_known(profile, at + k * ENTRY_BYTES):
                return ELSEWHERE
        for k in range(n):
            _declare(ep, st, ways, calls, profile, at + k * ENTRY_BYTES)
        return DONE
    return ELSEWHERE


@compiled
def modify(ep, st, ways, calls, room, context, number, attr, mask):
    """`mrc_ctl_modify_ev_profile`, if it changes nothing but states of known EVs: DONE or
    ELSEWHERE. There is `room` for the kernel at an address.
    """
    i = context & INDEX_MASK
    if i >= calls.context.shape[0] or context == 0 or calls.context[i] != context:
        return ELSEWHERE
    if mask != EV_OP_ALONE or attr == 0:
        return ELSEWHERE
    op = bytes_at(attr + OP_AT, OP_BYTES).view(OP)[0]
    n, at = int(op.entry_count), signed(op.entries)
    if op.op != MODIFY_STATE or n < 1 or n > ENTRIES_MAX or at == 0:
        return ELSEWHERE
    if not syscalls.has_capability(CAP_NET_ADMIN, bytes_at(room, ROOM_BYTES).view(np.int32)):
        return ELSEWHERE
    for _ in range(TRIES):
        answer = change(ep, st, ways, calls, number, at, n)
        if answer != BUSY:
            return answer
        give_way()
    return ELSEWHERE
