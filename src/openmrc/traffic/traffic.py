"""A workload as arrays: queue pairs, the messages they carry, and which message releases which.

An entry of the `msg_` arrays is one message or, where `msg_count` is above 1, a *series*: that many
messages on the same QP, in sequence. A ring of n ranks is n series instead of 2n(n - 1) messages: a
rule, not a list. `unroll` writes the list out.

Message k of an entry, k = 0 for a single one, is posted when `msg_deps + k` releases have arrived:
`msg_compute_ps` after the last of them, and not before `msg_start_ps`. Where `msg_deps + k` is 0 or
less it needs none. A message gives releases of two kinds: to the entries of its `recv` row when the
receiver has it, to those of its `sent` row when its sender has the last acknowledgement. The
receiver has a message when its last byte is placed; one with an immediate when that is delivered,
in the order of messages (MRC 1.3). Surplus releases change nothing, so a message that needs k of n
releases waits for the k-th. The rows are compressed: entry m's are `next[first[m] : first[m + 1]]`.

A *computation* is numbered after the messages: entry `n_msgs + c` is computation c. It begins when
its `calc_deps` releases have arrived, not before `calc_start_ps`, and when its core is free: those
of one core run one at a time, in the order in which they could begin. Core 0 means no core: such
computations wait for no other. It takes `calc_ps`; then it gives the releases of its `recv` row;
its `sent` row is empty.

Series and entries that happen once may release each other. A message or a computation that releases
a series is a *gate*: no message of the series is posted before all its gates are open, whatever
`msg_deps` says. An entry that happens once gets one release from a series for each of its messages.

Message k carries block `(msg_block - k) mod msg_blocks` of its data, and is `msg_bytes` long, one
byte more if that block is below `msg_longer`.

A workload with `ends_on_error` ends with the first error of a queue pair, as a synchronous job
does. A workload in which some message could never be posted is refused when it is created.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from openmrc.errors import InputError
from openmrc.traffic.releases import Places, mixed_waves, waves

IntArray = npt.NDArray[np.int32]
LongArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Edges = tuple[npt.ArrayLike, npt.ArrayLike]  # (giving messages, released messages)

NO_EDGES: Edges = ((), ())

QPS_MAX = 1 << 22  # as many as an rkey can name; each takes tens of kilobytes in a run
MESSAGES_MAX = 20_000_000  # listed messages, or computations: each takes 200 B in a run
NO_CORE = 0  # of a computation that waits for no other

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
    msg_compute_ps: LongArray  # from a release to the posting
    msg_deps: IntArray  # releases needed
    msg_imm: BoolArray  # WRITE_WITH_IMM
    msg_count: IntArray  # messages in the series
    msg_block: IntArray  # which block the first one carries,
    msg_blocks: IntArray  # of so many,
    msg_longer: IntArray  # of which this many, the first, are a byte longer
    recv_first: IntArray  # [entries + 1]
    recv_next: IntArray
    sent_first: IntArray  # [entries + 1]
    sent_next: IntArray
    msg_job: IntArray  # index into `jobs`; 0 where there are none
    jobs: tuple[str, ...] = ()
    calc_ps: LongArray = field(default_factory=lambda: np.zeros(0, np.int64))  # [computations]
    calc_start_ps: LongArray = field(default_factory=lambda: np.zeros(0, np.int64))
    calc_core: IntArray = field(default_factory=lambda: np.zeros(0, np.int32))  # 0 if it needs none
    calc_deps: IntArray = field(default_factory=lambda: np.zeros(0, np.int32))
    ends_on_error: bool = False
    # [steps, ranks]: the computations with which the ranks of a training job end its steps
    step_ends: LongArray | None = None

    def __post_init__(self) -> None:
        _check_numbers(self)
        _check_series(self)
        _check_all_posted(self)

    @property
    def n_qps(self) -> int:
        """How many queue pairs there are."""
        return len(self.qp_src)

    @property
    def n_msgs(self) -> int:
        """How many entries there are: messages, a series counting once."""
        return len(self.msg_qp)

    @property
    def n_calcs(self) -> int:
        """How many computations there are."""
        return len(self.calc_ps)

    @property
    def n_entries(self) -> int:
        """How many entries can be released: messages, then computations."""
        return self.n_msgs + self.n_calcs

    @property
    def deps(self) -> IntArray:
        """Releases needed by each entry, messages first."""
        return np.concatenate([self.msg_deps, self.calc_deps])

    @property
    def counts(self) -> IntArray:
        """How often each entry happens, messages first: a computation once."""
        return np.concatenate([self.msg_count, np.ones(self.n_calcs, np.int32)])

    @property
    def edges(self) -> tuple[LongArray, IntArray]:
        """All releases as (giving entries, released entries): by arrival, then when sent."""
        rows = ((self.recv_first, self.recv_next), (self.sent_first, self.sent_next))
        giving = [np.repeat(np.arange(self.n_entries), np.diff(first)) for first, _ in rows]
        return np.concatenate(giving), np.concatenate([self.recv_next, self.sent_next])

    @property
    def msg_gates(self) -> IntArray:
        """How many gates each series has; 0 for a single message."""
        giving, released = self.edges
        many = self.counts > 1
        shut = many[released] & ~many[giving]
        return np.bincount(released[shut], minlength=self.n_entries)[: self.n_msgs].astype(np.int32)

    @property
    def mixed(self) -> bool:
        """Whether series and what happens once release each other."""
        giving, released = self.edges
        many = self.counts > 1
        return bool((many[giving] != many[released]).any())

    @property
    def n_sends(self) -> int:
        """How many messages there are, with all those of each series."""
        return int(self.msg_count.sum(dtype=np.int64))

    @property
    def msg_long(self) -> LongArray:
        """How many messages of each entry are one byte longer than `msg_bytes`."""
        # block (b - k) mod n for k = 0 ... count - 1, from the last to the first: a run of integers
        end = self.msg_block.astype(np.int64) + 1
        turns = -(-self.msg_count // self.msg_blocks) * self.msg_blocks.astype(np.int64)
        long: LongArray = self._longer_below(turns + end) - self._longer_below(
            turns + end - self.msg_count
        )
        return long

    def _longer_below(self, x: LongArray) -> LongArray:
        """Return how many of the integers 0 to x - 1 are, modulo `msg_blocks`, longer blocks."""
        in_last: LongArray = np.minimum(x % self.msg_blocks, self.msg_longer)
        return x // self.msg_blocks * self.msg_longer + in_last

    @property
    def msg_total_bytes(self) -> LongArray:
        """The bytes of each entry: the sum of its messages."""
        return self.msg_bytes * self.msg_count + self.msg_long

    def as_one(self, kind: str) -> Traffic:
        """Return the same messages as one job of this kind."""
        return replace(self, kind=kind, jobs=(), msg_job=np.zeros_like(self.msg_job))

    def packets(self, pmtu: int) -> LongArray:
        """Return the packets of each entry: the sum of its messages."""
        long = self.msg_long
        short = self.msg_count - long
        return short * (-(-self.msg_bytes // pmtu)) + long * (-(-(self.msg_bytes + 1) // pmtu))

    @property
    def msg_src(self) -> IntArray:
        """The sending NIC of each message."""
        return self.qp_src[self.msg_qp]

    @property
    def msg_dst(self) -> IntArray:
        """The receiving NIC of each message."""
        return self.qp_dst[self.msg_qp]


class Calcs(NamedTuple):
    """Computations for `make_traffic`; columns but `ps` may be one value for all."""

    ps: npt.ArrayLike
    core: npt.ArrayLike = NO_CORE
    start_ps: npt.ArrayLike = 0


NO_CALCS = Calcs(())


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
    compute_ps: npt.ArrayLike = 0,
    count: npt.ArrayLike = 1,
    blocks: tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike] = (0, 1, 0),
    calcs: Calcs = NO_CALCS,
) -> Traffic:
    """Return a workload from plain lists or arrays.

    Columns but `msg_qp` may be one value for all messages; `blocks` is `msg_block`, `msg_blocks`
    and `msg_longer`. `recv` and `sent` are pairs (giving, released) of entry numbers. Without
    `deps` a message waits for every release it is given, as a computation always does. Raises
    `InputError` for a workload that could not run.
    """
    qps = np.asarray(msg_qp, np.int32)
    calc_ps = np.asarray(calcs.ps, np.int64)
    n, n_calcs = len(qps), len(calc_ps)
    recv_first, recv_next = _rows(recv, n + n_calcs)
    sent_first, sent_next = _rows(sent, n + n_calcs)
    counts = np.concatenate([_column(count, n, np.int64), np.ones(n_calcs, np.int64)])
    given = np.zeros(n + n_calcs, np.int64)
    for giving, released in (recv, sent):
        to = np.asarray(released, np.int64)
        np.add.at(given, to, np.where(counts[to] > 1, 1, counts[np.asarray(giving, np.int64)]))
    if deps is None:
        deps = given[:n]
    return Traffic(
        kind=kind,
        n_nics=n_nics,
        qp_src=np.asarray(qp_src, np.int32),
        qp_dst=np.asarray(qp_dst, np.int32),
        msg_qp=qps,
        msg_bytes=_column(msg_bytes, n, np.int64),
        msg_start_ps=_column(msg_start_ps, n, np.int64),
        msg_compute_ps=_column(compute_ps, n, np.int64),
        msg_deps=_column(deps, n, np.int32),
        msg_imm=_column(imm, n, np.bool_),
        msg_count=_column(count, n, np.int32),
        msg_block=_column(blocks[0], n, np.int32),
        msg_blocks=_column(blocks[1], n, np.int32),
        msg_longer=_column(blocks[2], n, np.int32),
        recv_first=recv_first,
        recv_next=recv_next,
        sent_first=sent_first,
        sent_next=sent_next,
        msg_job=np.zeros(n, np.int32),
        calc_ps=calc_ps,
        calc_start_ps=_column(calcs.start_ps, n_calcs, np.int64),
        calc_core=_column(calcs.core, n_calcs, np.int32),
        calc_deps=given[n:].astype(np.int32),
    )


def unroll(traffic: Traffic) -> Traffic:
    """Return the same workload with every message listed, those of an entry in sequence.

    It runs exactly as the original does, to the picosecond; its results are per message.
    """
    check_listed(traffic.n_sends)
    entry = np.repeat(np.arange(traffic.n_msgs), traffic.msg_count)
    ends = np.cumsum(traffic.msg_count, dtype=np.int64)
    k = np.arange(len(entry)) - (ends - traffic.msg_count)[entry]
    begin = np.concatenate([ends - traffic.msg_count, ends[-1] + np.arange(traffic.n_calcs)])
    block = (traffic.msg_block[entry] - k) % traffic.msg_blocks[entry]
    series = traffic.msg_count > 1
    deps = traffic.msg_deps[entry]
    listed = make_traffic(
        traffic.kind,
        traffic.n_nics,
        traffic.qp_src,
        traffic.qp_dst,
        msg_qp=traffic.msg_qp[entry],
        msg_bytes=traffic.msg_bytes[entry] + (block < traffic.msg_longer[entry]),
        msg_start_ps=traffic.msg_start_ps[entry],
        recv=_unrolled(traffic, begin, traffic.recv_first, traffic.recv_next),
        sent=_unrolled(traffic, begin, traffic.sent_first, traffic.sent_next),
        deps=np.where(series[entry], (deps + k > 0) + traffic.msg_gates[entry], deps),
        imm=traffic.msg_imm[entry],
        compute_ps=traffic.msg_compute_ps[entry],
        blocks=(block, traffic.msg_blocks[entry], 0),
        calcs=Calcs(traffic.calc_ps, traffic.calc_core, traffic.calc_start_ps),
    )
    return replace(
        listed,
        msg_job=traffic.msg_job[entry],
        jobs=traffic.jobs,
        ends_on_error=traffic.ends_on_error,
        step_ends=traffic.step_ends,
    )


def check_listed(n: int) -> None:
    """Refuse to list more messages than fit in memory, before allocating them."""
    if n > MESSAGES_MAX:
        raise InputError(f"workload: {n} messages to list; at most {MESSAGES_MAX} are accepted")


def _unrolled(traffic: Traffic, begin: LongArray, first: IntArray, nxt: IntArray) -> Edges:
    """Return the releases of one kind between listed messages; entry m's begin at `begin[m]`."""
    giving = np.repeat(np.arange(traffic.n_entries), np.diff(first))
    counts = traffic.counts
    to, by = counts[nxt], counts[giving]
    times = np.where(to > 1, to, by)
    edge = np.repeat(np.arange(len(nxt)), times)
    k = np.arange(len(edge)) - (np.cumsum(times, dtype=np.int64) - times)[edge]
    # Message k of a series waits for message k + deps - 1 of another, and for each gate; what
    # happens once waits for every message of a series.
    to, by, deps = to[edge], by[edge], traffic.deps[nxt][edge]
    giver = np.where(by > 1, np.where(to > 1, k + deps - 1, k), 0)
    there = giver >= 0
    edge, giver, k = edge[there], giver[there], np.where(to > 1, k, 0)[there]
    return begin[giving[edge]] + giver, begin[nxt[edge]] + k


def _column(values: npt.ArrayLike, n: int, dtype: type[Scalar]) -> npt.NDArray[Scalar]:
    """Return `values`, or one value for all, as a new array of length `n`."""
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
    if not traffic.n_entries:
        raise InputError("workload: no messages, no computations; at least one is needed")
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
    compute = traffic.msg_compute_ps
    _refuse(compute, compute < 0, "workload compute before message", "0 ps or more is accepted")
    count = traffic.msg_count
    _refuse(count, count < 1, "workload messages in series", "1 or more is accepted")
    calc = traffic.calc_ps
    _refuse(calc, calc < 0, "workload time of computation", "0 ps or more is accepted")
    core = traffic.calc_core
    _refuse(core, core < 0, "workload core of computation", "0 or more is accepted")
    deps = traffic.msg_deps
    _refuse(
        deps,
        (deps < 0) & (count == 1),
        "workload releases needed by message",
        "0 or more is accepted",
    )


def _check_series(traffic: Traffic) -> None:
    """Check the conditions under which counting releases is exact: they come in order, from one
    series to another.
    """
    block, blocks, longer = traffic.msg_block, traffic.msg_blocks, traffic.msg_longer
    _refuse(blocks, blocks < 1, "workload blocks of message", "1 or more is accepted")
    _refuse(
        block, (block < 0) | (block >= blocks), "workload block of message", "name one that exists"
    )
    _refuse(
        longer, (longer < 0) | (longer > blocks), "workload longer blocks of message", "0 to all"
    )
    count = traffic.msg_count
    series = count > 1
    if not series.any():
        return
    deps = traffic.msg_deps
    _refuse(
        deps, series & (deps > 1), "workload releases needed by series", "1 at most is accepted"
    )
    many = traffic.counts > 1
    giving, released = traffic.edges
    by_arrival = giving[: len(traffic.recv_next)]
    told = np.concatenate([traffic.msg_imm, np.ones(traffic.n_calcs, np.bool_)])
    _refuse(
        by_arrival,
        many[by_arrival] & ~told[by_arrival],
        "workload release by series",
        "only with immediates do the messages of a series arrive in order",
    )
    inner = many[giving] & many[released]
    giving, released = giving[inner], released[inner]
    givers = np.bincount(released, minlength=traffic.n_entries)[: traffic.n_msgs]
    _refuse(
        givers, series & (givers > 1), "workload releases given to series", "by one other at most"
    )
    given = np.bincount(released, traffic.counts[giving], traffic.n_entries)[: traffic.n_msgs]
    needed = deps + count - 1
    _refuse(
        needed, series & (needed > given), "workload releases needed by series", "fewer are given"
    )


def _check_all_posted(traffic: Traffic) -> None:
    posted = np.zeros(traffic.n_entries, np.bool_)
    for wave in _in_order(traffic):
        posted[wave] = True
    if not posted.all():
        m = int(np.argmin(posted))
        if m >= traffic.n_msgs:
            raise InputError(
                f"workload computation {m - traffic.n_msgs}: never begins, the releases it waits"
                " for cannot all happen; break the cycle"
            )
        raise InputError(
            f"workload message {m} (nic {traffic.msg_src[m]} to nic {traffic.msg_dst[m]}):"
            f" never posted, the {traffic.msg_deps[m]} releases it waits for cannot all happen;"
            " break the cycle or lower the count"
        )


def _in_order(traffic: Traffic) -> Iterator[Places]:
    """Yield the entries that can happen, wave by wave."""
    if not traffic.mixed:
        rows = ((traffic.recv_first, traffic.recv_next), (traffic.sent_first, traffic.sent_next))
        yield from waves(rows, traffic.deps)
        return
    giving, released = traffic.edges
    many = traffic.counts > 1
    inner = many[giving] & many[released]
    among = _rows((giving[inner], released[inner]), traffic.n_entries)
    started = np.zeros(traffic.n_entries, np.bool_)  # among series alone, gates left aside
    for wave in waves((among,), np.where(many, traffic.deps, 0).astype(np.int32)):
        started[wave] = True
    for wave in mixed_waves(giving, released, traffic.deps, traffic.counts):
        yield wave[started[wave]]


def _refuse(values: npt.NDArray[np.integer], wrong: BoolArray, place: str, remedy: str) -> None:
    """Raise `InputError` for the first wrong value, if there is one."""
    if wrong.any():
        i = int(np.argmax(wrong))
        raise InputError(f"{place} {i}: {values[i]}; {remedy}")
