"""Where the parts of a QP stand in the arrays of State.

For compiled code each returns an index, of a part of record `q`; for Python those in the plural a
slice, of all such parts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from openmrc.jit import inlined

Index = npt.NDArray[np.int64]


@inlined
def slot(q, seq):
    """Index into `slot` of a packet, by its sequence."""
    return q.slot0 + (seq & q.slot_mask)


@inlined
def message(q, number):
    """Index into `message` of a message that the QP sends."""
    return q.msg0 + (number & q.msg_mask)


@inlined
def rx_message(q, number):
    """Index into `rx_message`, and `under_way`, of a message that the QP receives."""
    return q.rmsg0 + (number & q.rmsg_mask)


@inlined
def plane(q, k):
    """Index into `plane` of its record of plane `k`."""
    return q.plane0 + k


@inlined
def ev(q, i):
    """Index into `ev` of EV number `i` of the QP."""
    return q.ev0 + i


def slots(q: Any) -> slice:
    """All of its ring of packets."""
    return slice(int(q.slot0), int(q.slot0 + q.slot_mask) + 1)


def messages(q: Any) -> slice:
    """All of its ring of messages to send."""
    return slice(int(q.msg0), int(q.msg0 + q.msg_mask) + 1)


def rx_messages(q: Any) -> slice:
    """All of its ring of messages to receive."""
    return slice(int(q.rmsg0), int(q.rmsg0 + q.rmsg_mask) + 1)


def planes(q: Any) -> slice:
    """Its records of planes."""
    return slice(int(q.plane0), int(q.plane0 + q.n_planes))


def evs(q: Any) -> slice:
    """Its EVs, as many as were given to it."""
    return slice(int(q.ev0), int(q.ev0 + q.n_evs))


def runs_of_slots(q: Any) -> tuple[Index, Index]:
    """Of many QPs, where the slots of each begin, and how many it has."""
    return np.asarray(q.slot0, np.int64), np.asarray(q.slot_mask, np.int64) + 1


def runs_of_messages(q: Any) -> tuple[Index, Index]:
    """Of many QPs, where the ring of messages to send of each begins, and how many it holds."""
    return np.asarray(q.msg0, np.int64), np.asarray(q.msg_mask, np.int64) + 1


def runs_of_evs(q: Any) -> tuple[Index, Index]:
    """Of many QPs, where the EVs of each begin, and how many it has."""
    return np.asarray(q.ev0, np.int64), np.asarray(q.n_evs, np.int64)


def room_for_evs(st: Any, qi: int) -> slice:
    """The EVs that a QP has room for: up to those of the next QP."""
    end = int(st.qp[qi + 1].ev0) if qi + 1 < len(st.qp) else len(st.ev)
    return slice(int(st.qp[qi].ev0), end)
