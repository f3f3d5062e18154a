"""A workload as arrays: queue pairs, the messages they carry, and which message releases which.

A message is posted to its QP when the clock has reached `msg_start_ps` and `msg_deps` releases
have arrived. It gives releases of two kinds: to the messages of its `recv` row when its last byte
is placed at the receiver, to those of its `sent` row when its sender holds the last
acknowledgement. Releases beyond `msg_deps` change nothing, so a message that needs k of n
releases waits for the k-th. The rows are compressed: message m's are `next[first[m] :
first[m + 1]]`.

A workload in which some message could never be posted is refused when it is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from openmrc.errors import InputError

IntArray = npt.NDArray[np.int32]
LongArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Edges = tuple[npt.ArrayLike, npt.ArrayLike]  # (giving messages, released messages)

NO_EDGES: Edges = ((), ())

Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True, eq=False)
class Traffic:
    """A checked workload. Sizes in bytes, times in picoseconds; make one with `make_traffic`."""

    kind: str
    n_nics: int
    qp_src: IntArray  # [qps] NICs
    qp_dst: IntArray
    msg_qp: IntArray  # [messages]
    msg_bytes: LongArray
    msg_start_ps: LongArray
    msg_deps: IntArray  # releases needed
    msg_imm: BoolArray  # WRITE_WITH_IMM
    recv_first: IntArray  # [messages + 1]
    recv_next: IntArray
    sent_first: IntArray  # [messages + 1]
    sent_next: IntArray

    def __post_init__(self) -> None:
        _check_numbers(self)
        _check_all_posted(self)

    @property
    def n_qps(self) -> int:
        """How many queue pairs there are."""
        return len(self.qp_src)

    @property
    def n_msgs(self) -> int:
        """How many messages there are."""
        return len(self.msg_qp)

    @property
    def msg_src(self) -> IntArray:
        """The sending NIC of each message."""
        return self.qp_src[self.msg_qp]

    @property
    def msg_dst(self) -> IntArray:
        """The receiving NIC of each message."""
        return self.qp_dst[self.msg_qp]


def make_traffic(
    kind: str,
    n_nics: int,
    qp_src: npt.ArrayLike,
    qp_dst: npt.ArrayLike,
    msg_qp: npt.ArrayLike,
    msg_bytes: npt.ArrayLike,
    msg_start_ps: npt.ArrayLike = 0,
    recv: Edges = NO_EDGES,
    sent: Edges = NO_EDGES,
    deps: npt.ArrayLike | None = None,
    imm: npt.ArrayLike = False,
) -> Traffic:
    """Return a workload from plain lists or arrays.

    `msg_bytes`, `msg_start_ps` and `imm` may be one value for all messages. `recv` and `sent` are
    pairs (giving, released) of message numbers. Without `deps` a message waits for every release
    it is given. Raises `InputError` for whatever could not run.
    """
    qps = np.asarray(msg_qp, np.int32)
    n = len(qps)
    recv_first, recv_next = _rows(recv, n)
    sent_first, sent_next = _rows(sent, n)
    if deps is None:
        deps = np.bincount(np.concatenate([recv_next, sent_next]), minlength=n)
    return Traffic(
        kind=kind,
        n_nics=n_nics,
        qp_src=np.asarray(qp_src, np.int32),
        qp_dst=np.asarray(qp_dst, np.int32),
        msg_qp=qps,
        msg_bytes=_column(msg_bytes, n, np.int64),
        msg_start_ps=_column(msg_start_ps, n, np.int64),
        msg_deps=_column(deps, n, np.int32),
        msg_imm=_column(imm, n, np.bool_),
        recv_first=recv_first,
        recv_next=recv_next,
        sent_first=sent_first,
        sent_next=sent_next,
    )


def waves(
    rows: Sequence[tuple[IntArray, IntArray]], deps: IntArray
) -> Iterator[npt.NDArray[np.intp]]:
    """Yield the messages in the order of their release: those that need none, then the next ...

    `rows` are compressed (first, next) tables. A message is in the wave that brings its
    `deps`-th release; messages that never get theirs are in none.
    """
    waiting = deps.astype(np.int64)
    wave = np.flatnonzero(waiting <= 0)
    while wave.size:
        yield wave
        released = np.concatenate([released_by(wave, first, nxt)[1] for first, nxt in rows])
        targets, arrivals = np.unique(released, return_counts=True)
        before = waiting[targets]
        waiting[targets] = before - arrivals
        wave = targets[(before > 0) & (before <= arrivals)].astype(np.intp)


def released_by(
    messages: npt.NDArray[np.intp], first: IntArray, nxt: IntArray
) -> tuple[npt.NDArray[np.intp], IntArray]:
    """Return one pair per release that these messages give.

    The pair is (position of the giving message in `messages`, released message).
    """
    counts = (first[messages + 1] - first[messages]).astype(np.int64)
    begin = np.repeat(first[messages] - (np.cumsum(counts) - counts), counts)
    position = np.repeat(np.arange(len(messages)), counts)
    return position, nxt[begin + np.arange(len(begin))]


def _column(values: npt.ArrayLike, n: int, dtype: type[Scalar]) -> npt.NDArray[Scalar]:
    """Return `values`, or one value for all, as an own array of length `n`."""
    return np.broadcast_to(np.asarray(values, dtype), n).copy()


def _rows(edges: Edges, n: int) -> tuple[IntArray, IntArray]:
    """Return the compressed rows of `edges`; each row keeps their order."""
    giving, released = np.asarray(edges[0], np.int64), np.asarray(edges[1], np.int64)
    for ends in (giving, released):
        _refuse(ends, (ends < 0) | (ends >= n), "traffic release", f"name a message below {n}")
    order = np.argsort(giving, kind="stable")
    first = np.zeros(n + 1, np.int32)
    np.cumsum(np.bincount(giving, minlength=n), out=first[1:])
    return first, released[order].astype(np.int32)


def _check_numbers(traffic: Traffic) -> None:
    if not traffic.n_msgs:
        raise InputError("workload: no messages at all; at least one is needed")
    nics = f"name a NIC below {traffic.n_nics}"
    for name, nic in (("source", traffic.qp_src), ("destination", traffic.qp_dst)):
        _refuse(nic, (nic < 0) | (nic >= traffic.n_nics), f"workload QP {name}", nics)
    _refuse(
        traffic.qp_src,
        traffic.qp_src == traffic.qp_dst,
        "workload QP to its own NIC",
        "source and destination must differ",
    )
    qp = traffic.msg_qp
    _refuse(qp, (qp < 0) | (qp >= traffic.n_qps), "workload QP of message", "no such QP")
    size = traffic.msg_bytes
    _refuse(size, size <= 0, "workload size of message", "at least 1 byte is needed")
    start = traffic.msg_start_ps
    _refuse(start, start < 0, "workload start of message", "0 ps or later is accepted")
    deps = traffic.msg_deps
    _refuse(deps, deps < 0, "workload releases needed by message", "0 or more is accepted")


def _check_all_posted(traffic: Traffic) -> None:
    rows = ((traffic.recv_first, traffic.recv_next), (traffic.sent_first, traffic.sent_next))
    posted = np.zeros(traffic.n_msgs, np.bool_)
    for wave in waves(rows, traffic.msg_deps):
        posted[wave] = True
    if not posted.all():
        m = int(np.argmin(posted))
        raise InputError(
            f"workload message {m} (nic {traffic.msg_src[m]} to nic {traffic.msg_dst[m]}):"
            f" never posted, the {traffic.msg_deps[m]} releases it waits for cannot all come;"
            " break the circle or lower the count"
        )


def _refuse(values: npt.NDArray[np.integer], wrong: BoolArray, place: str, remedy: str) -> None:
    """Raise `InputError` for the first wrong value, if there is one."""
    if wrong.any():
        i = int(np.argmax(wrong))
        raise InputError(f"{place} {i}: {values[i]}; {remedy}")
