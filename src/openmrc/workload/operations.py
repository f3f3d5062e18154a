"""The elements of traces: operations of ranks that wait for each other, and their conversion to a
DAG.

A rank computes, sends, and receives; an operation begins when those that it waits for are complete.
As messages and computations of `traffic` this is:

* a computation ends after its time, on its core if it has one, which runs one at a time;
* a send is a message, posted when the send may begin; it completes with the last acknowledgement;
* a receive completes when what it waits for is complete and its message has arrived. A message does
  not wait for its receive: an RDMA WRITE needs no action at the other end;
* the k-th send of a rank to another with some tag belongs to the k-th receive of that tag there;
* messages of 0 bytes are 1 byte long: without one there is nothing to send.

A *unit* is the owner of one NIC: NIC i of rank r is unit `r * rank_nics + i`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from openmrc.errors import InputError
from openmrc.traffic.releases import waves
from openmrc.traffic.traffic import NO_CORE, BoolArray, Calcs, LongArray, Traffic, make_traffic

CALC, SEND, RECV = 0, 1, 2
OPERATIONS_MAX = 20_000_000
TIME_MAX_PS = 1 << 60  # of one computation: safe to calculate with in int64

Pairs = tuple[LongArray, LongArray]
NO_PAIRS: Pairs = (np.zeros(0, np.int64), np.zeros(0, np.int64))


class Messages(NamedTuple):
    """Messages of collectives, numbered from 0, and how they and operations wait for each other."""

    src: LongArray  # units
    dst: LongArray
    channel: LongArray
    size: LongArray
    recv: Pairs  # (giving, released) messages, by arrival
    sent: Pairs  # by the last acknowledgement
    gates: Pairs  # (operation, message): not before it is complete
    arrivals: Pairs  # (message, operation): complete when it has arrived,
    completions: Pairs  # or when its sender has the last acknowledgement


_NONE = np.zeros(0, np.int64)
NO_MESSAGES = Messages(_NONE, _NONE, _NONE, _NONE, *[NO_PAIRS] * 5)


@dataclass
class Operations:
    """Operations in the order of ranks, then of their file. Columns are appended to, never read.

    `place(operation)` returns where one is defined, for errors.
    """

    n_ranks: int
    place: Callable[[int], str]
    rank_nics: int = 1
    kind: array[int] = field(default_factory=lambda: array("b"))
    amount: array[int] = field(default_factory=lambda: array("q"))  # ps, or bytes
    own: array[int] = field(default_factory=lambda: array("q"))  # unit; of a computation: a core
    peer: array[int] = field(default_factory=lambda: array("q"))  # rank
    tag: array[int] = field(default_factory=lambda: array("q"))
    before: array[int] = field(default_factory=lambda: array("q"))  # `after` waits for its end,
    after: array[int] = field(default_factory=lambda: array("q"))
    started: array[int] = field(default_factory=lambda: array("q"))  # `then` for its beginning
    then: array[int] = field(default_factory=lambda: array("q"))

    def add(self, kind: int, amount: int, own: int, peer: int = 0, tag: int = 0) -> int:
        """Append an operation and return its number."""
        self.kind.append(kind)
        self.amount.append(amount)
        self.own.append(own)
        self.peer.append(peer)
        self.tag.append(tag)
        return len(self.kind) - 1

    def wait(self, later: int, earlier: int) -> None:
        """Make `later` wait until `earlier` is complete."""
        self.before.append(earlier)
        self.after.append(later)


def picoseconds(place: str, amount: int, unit_ps: int, scale: float) -> int:
    """Return a computation's time, scaled, ps; `InputError` at `place` if it is too long."""
    ps = amount * unit_ps if scale == 1 else amount * unit_ps * scale
    if not 0 <= ps <= TIME_MAX_PS:
        raise InputError(f"{place}: computes for {ps} ps; at most {TIME_MAX_PS} are accepted")
    return round(ps)


def to_traffic(
    kind: str,
    n_nics: int,
    nics: LongArray,
    ops: Operations,
    source: str,
    collectives: Messages = NO_MESSAGES,
) -> Traffic:
    """Return the operations of the file `source` as a workload, with unit u on NIC `nics[u]`.

    The messages of sends come first, in the order of operations, then those of collectives.
    `InputError` names the place of a send or receive without its counterpart, and of an operation
    that waits for itself.
    """
    what, amount = _array(ops.kind), _array(ops.amount)
    own = _array(ops.own)
    sends, recv_of = _match(ops, what, amount, own)
    n, n_sends = len(what), len(sends)
    message = np.full(n, -1)  # of each send and receive
    message[sends] = np.arange(n_sends)
    message[recv_of] = np.arange(n_sends)

    before, after, begins = _begin_together(ops, n)
    what, amount, own, message = (
        np.concatenate([column, np.full(begins, none)])
        for column, none in ((what, CALC), (amount, 0), (own, NO_CORE), (message, -1))
    )
    n += begins
    *_, gates, arrivals, completions = collectives
    waits = np.bincount(np.concatenate([after, arrivals[1], completions[1]]), minlength=n) > 0
    needed = np.bincount(np.concatenate([before, gates[0]]), minlength=n) > 0

    received = what == RECV
    busy = (what == CALC) & (amount > 0)
    is_calc, entry = _entries(what, busy, message, waits, needed, n_sends + len(collectives.src))
    giver = np.where(received & ~waits, message, entry)

    by_sent = what[before] == SEND
    listed = (giver[before] >= 0) & (entry[after] >= 0)
    own_message = received & waits
    gate = giver[gates[0]] >= 0
    gate_sent = what[gates[0]] == SEND
    arrives, completes = (entry[pairs[1]] >= 0 for pairs in (arrivals, completions))
    recv = _joined(
        (giver[before], entry[after], listed & ~by_sent),
        (message, entry, own_message),
        (giver[gates[0]], gates[1] + n_sends, gate & ~gate_sent),
        (collectives.recv[0] + n_sends, collectives.recv[1] + n_sends, None),
        (arrivals[0] + n_sends, entry[arrivals[1]], arrives),
    )
    sent = _joined(
        (giver[before], entry[after], listed & by_sent),
        (giver[gates[0]], gates[1] + n_sends, gate & gate_sent),
        (collectives.sent[0] + n_sends, collectives.sent[1] + n_sends, None),
        (completions[0] + n_sends, entry[completions[1]], completes),
    )
    src = nics[np.concatenate([own[sends], collectives.src])]
    dst = nics[np.concatenate([own[recv_of], collectives.dst])]
    channel = np.concatenate([np.zeros(n_sends, np.int64), collectives.channel])
    qps, qp = np.unique((channel * n_nics + src) * n_nics + dst, return_inverse=True)
    try:
        return make_traffic(
            kind,
            n_nics,
            qp_src=qps // n_nics % n_nics,
            qp_dst=qps % n_nics,
            msg_qp=qp,
            msg_bytes=np.concatenate([np.maximum(amount[sends], 1), collectives.size]),
            recv=recv,
            sent=sent,
            imm=True,
            calcs=Calcs(np.where(received, 0, amount)[is_calc], _cores(busy, own)[is_calc]),
        )
    except InputError as error:
        _refuse_circles(ops, (before, after), (sends, recv_of), collectives, n)
        raise error.at(source) from None


def _entries(
    what: LongArray,
    busy: BoolArray,
    message: LongArray,
    waits: BoolArray,
    needed: BoolArray,
    n: int,
) -> tuple[BoolArray, LongArray]:
    """Which operations are computations of the workload, and the entry that each is, after
    `n` messages: neither a receive that waits for its message alone, nor an operation that only
    joins others and does so at the very beginning or for none.
    """
    joins = (what == CALC) & ~busy
    is_calc = busy | (joins & waits & needed) | ((what == RECV) & waits)
    entry = np.full(len(what), -1)
    entry[what == SEND] = message[what == SEND]
    entry[is_calc] = n + np.arange(int(is_calc.sum()))
    return is_calc, entry


def _array(column: array[int]) -> LongArray:
    return np.array(column, np.int64)


def _joined(*parts: tuple[LongArray, LongArray, npt.NDArray[np.bool_] | None]) -> Pairs:
    """Return the pairs of all parts, of each part those that are chosen."""
    chosen = [
        (giving, released) if these is None else (giving[these], released[these])
        for giving, released, these in parts
    ]
    giving, released = (np.concatenate(ends) for ends in zip(*chosen, strict=True))
    return giving, released


def _cores(busy: npt.NDArray[np.bool_], own: LongArray) -> LongArray:
    """Return the core of each operation, numbered from 1 without gaps; 0 for those not `busy`."""
    cores = np.zeros(len(busy), np.int64)
    cores[busy] = np.unique(own[busy], return_inverse=True)[1] + 1
    return cores


def _match(
    ops: Operations, what: LongArray, amount: LongArray, own: LongArray
) -> tuple[LongArray, LongArray]:
    """Return the sends, in order, and the receive of each."""
    peer, tag = _array(ops.peer), _array(ops.tag)
    rank = own // ops.rank_nics
    sends, recvs = (np.flatnonzero(what == kind) for kind in (SEND, RECV))
    ends = np.stack(
        [
            np.concatenate([rank[sends], peer[recvs]]),
            np.concatenate([peer[sends], rank[recvs]]),
            np.concatenate([tag[sends], tag[recvs]]),
        ]
    )
    flow = np.unique(ends, axis=1, return_inverse=True)[1].reshape(-1)
    send_flow, recv_flow = flow[: len(sends)], flow[len(sends) :]
    n_flows = int(flow.max(initial=-1)) + 1
    for these, mine, theirs, word, other in (
        (sends, send_flow, recv_flow, "send", "receive"),
        (recvs, recv_flow, send_flow, "receive", "send"),
    ):
        there = np.bincount(theirs, minlength=n_flows)
        lone = np.flatnonzero(_nth(mine) >= there[mine])
        if len(lone):
            i = int(these[lone[0]])
            way = "to" if word == "send" else "from"
            raise InputError(
                f"{ops.place(i)}: {word} {way} rank {peer[i]} with tag {tag[i]}: that rank has no"
                f" {other} left for it; add one, or remove this"
            )
    recv_of = np.zeros(len(sends), np.int64)
    recv_of[np.argsort(send_flow, kind="stable")] = recvs[np.argsort(recv_flow, kind="stable")]
    short = np.flatnonzero(amount[recv_of] < amount[sends])
    if len(short):
        i, j = int(sends[short[0]]), int(recv_of[short[0]])
        raise InputError(
            f"{ops.place(j)}: receives {amount[j]} B of the {amount[i]} B sent at {ops.place(i)};"
            " a receive is as long as its message, or longer"
        )
    return sends, recv_of


def _nth(flow: LongArray) -> LongArray:
    """Return how many of the same flow precede each."""
    order = np.argsort(flow, kind="stable")
    counts = np.bincount(flow)
    nth = np.zeros(len(flow), np.int64)
    nth[order] = np.arange(len(flow)) - np.repeat(np.cumsum(counts) - counts, counts)
    return nth


def _begin_together(ops: Operations, n: int) -> tuple[LongArray, LongArray, int]:
    """Return all waits as pairs of operations, and how many operations were added after the n: one
    for each whose beginning another waits for, complete when all that it waits for is.
    """
    before, after = _array(ops.before), _array(ops.after)
    started, then = _array(ops.started), _array(ops.then)
    held = np.bincount(np.concatenate([after, then]), minlength=n) > 0
    known = held[started]  # the others begin at once: nothing to wait for
    started, then = started[known], then[known]
    those = np.unique(started)
    begin = np.arange(n)
    begin[those] = n + np.arange(len(those))
    return (
        np.concatenate([before, begin[started], begin[those]]),
        np.concatenate([begin[after], begin[then], those]),
        len(those),
    )


def _refuse_circles(
    ops: Operations, waits: Pairs, flows: Pairs, collectives: Messages, n: int
) -> None:
    """Raise `InputError` with the place of the first operation that can never begin."""
    giving, released = _joined(
        (*waits, None),
        (*flows, None),
        (collectives.gates[0], collectives.gates[1] + n, None),
        (collectives.recv[0] + n, collectives.recv[1] + n, None),
        (collectives.sent[0] + n, collectives.sent[1] + n, None),
        (collectives.arrivals[0] + n, collectives.arrivals[1], None),
        (collectives.completions[0] + n, collectives.completions[1], None),
    )
    total = n + len(collectives.src)
    first = np.zeros(total + 1, np.int32)
    np.cumsum(np.bincount(giving, minlength=total), out=first[1:])
    nxt = released[np.argsort(giving, kind="stable")].astype(np.int32)
    begins = np.zeros(total, np.bool_)
    for wave in waves([(first, nxt)], np.bincount(nxt, minlength=total).astype(np.int32)):
        begins[wave] = True
    never = np.flatnonzero(~begins[: len(ops.kind)])
    if len(never):
        raise InputError(
            f"{ops.place(int(never[0]))}: never begins: it waits for itself, through others, or for"
            " one that does; break the circle"
        )
