"""A DAG built piece by piece: columns of messages, computations and releases.

While it grows, an entry has a code: that of a message is its number, that of computation c is -1 -
c, because computations are numbered after all messages.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from openmrc.traffic.traffic import Calcs, LongArray, Traffic, make_traffic

Codes = LongArray
COLUMNS = ("msg_bytes", "msg_deps", "msg_count", "msg_block", "msg_blocks", "msg_longer")


class Dag:
    """What has been built so far; all messages have immediates."""

    def __init__(self) -> None:
        self._src: list[LongArray] = []
        self._dst: list[LongArray] = []
        self._columns: dict[str, list[LongArray]] = {name: [] for name in ("msg_qp", *COLUMNS)}
        self._calc_ps: list[LongArray] = []
        self._recv: list[tuple[Codes, Codes]] = []
        self._sent: list[tuple[Codes, Codes]] = []
        self._n_qps = self._n_msgs = self._n_calcs = 0

    def qps(self, src: npt.ArrayLike, dst: npt.ArrayLike) -> LongArray:
        """Add queue pairs between these NICs; return their numbers."""
        self._src.append(np.asarray(src, np.int64))
        self._dst.append(np.asarray(dst, np.int64))
        first, self._n_qps = self._n_qps, self._n_qps + len(self._src[-1])
        return np.arange(first, self._n_qps)

    def messages(self, qps: LongArray, size: int) -> Codes:
        """Add one message of `size` bytes on each of these queue pairs."""
        return self._add(len(qps), msg_qp=qps, msg_bytes=size, msg_count=1, msg_blocks=1)

    def copies(self, collective: Traffic, qps: LongArray, n: int) -> Codes:
        """Add `n` copies of a collective in succession; all use the queue pairs `qps`."""
        k = np.arange(n)[:, None]
        begin = self._n_msgs + k * collective.n_msgs
        each = {name: getattr(collective, name) for name in COLUMNS}
        # a "series" of one message becomes a message, whose length is fixed
        once = each["msg_count"] == 1
        each["msg_bytes"] = each["msg_bytes"] + (once & (each["msg_block"] < each["msg_longer"]))
        each["msg_longer"] = np.where(once, 0, each["msg_longer"])
        columns = {name: np.tile(column, n) for name, column in each.items()}
        on = qps[(k * collective.n_qps + collective.msg_qp).ravel()]
        codes = self._add(n * collective.n_msgs, msg_qp=on, **columns)
        for into, first, nxt in (
            (self._recv, collective.recv_first, collective.recv_next),
            (self._sent, collective.sent_first, collective.sent_next),
        ):
            giving = np.repeat(np.arange(collective.n_msgs), np.diff(first))
            into.append(((begin + giving).ravel(), (begin + nxt).ravel()))
        return codes

    def compute(self, ps: LongArray) -> Codes:
        """Add computations of these durations."""
        self._calc_ps.append(ps)
        first, self._n_calcs = self._n_calcs, self._n_calcs + len(ps)
        return -1 - np.arange(first, self._n_calcs)

    def release(self, giving: Codes, released: Codes) -> None:
        """Make each of `released` also wait for the one of `giving`: its arrival, or its end."""
        self._recv.append((giving, released))

    def traffic(self, kind: str, n_nics: int) -> Traffic:
        """Return the workload."""
        columns = {name: _joined(parts) for name, parts in self._columns.items()}
        recv, sent = (self._numbered(edges) for edges in (self._recv, self._sent))
        giving = np.concatenate([recv[0], sent[0]])
        released = np.concatenate([recv[1], sent[1]])
        counts = np.append(columns["msg_count"], np.ones(self._n_calcs, np.int64))
        deps = np.zeros(len(counts), np.int64)
        once = counts[released] == 1
        np.add.at(deps, released[once], counts[giving[once]])
        single = columns["msg_count"] == 1
        return make_traffic(
            kind,
            n_nics,
            qp_src=_joined(self._src),
            qp_dst=_joined(self._dst),
            msg_qp=columns["msg_qp"],
            msg_bytes=columns["msg_bytes"],
            recv=recv,
            sent=sent,
            deps=np.where(single, deps[: self._n_msgs], columns["msg_deps"]),
            imm=True,
            count=columns["msg_count"],
            blocks=(columns["msg_block"], columns["msg_blocks"], columns["msg_longer"]),
            calcs=Calcs(_joined(self._calc_ps)),
        )

    def _add(self, n: int, **given: npt.ArrayLike) -> Codes:
        for name, parts in self._columns.items():
            parts.append(np.broadcast_to(np.asarray(given.get(name, 0), np.int64), n))
        first, self._n_msgs = self._n_msgs, self._n_msgs + n
        return np.arange(first, self._n_msgs)

    def _numbered(self, edges: list[tuple[Codes, Codes]]) -> tuple[LongArray, LongArray]:
        ends = (_joined(list(part)) for part in zip(*edges, strict=True)) if edges else ((), ())
        giving, released = (np.asarray(codes, np.int64) for codes in ends)
        return self._number(giving), self._number(released)

    def _number(self, codes: Codes) -> LongArray:
        return np.where(codes < 0, self._n_msgs - 1 - codes, codes)


def calc_numbers(codes: Codes) -> LongArray:
    """Return the numbers of these computations, counted from 0."""
    return -1 - codes


def all_calcs(codes: Codes) -> bool:
    """Return whether all of these are computations."""
    return bool((codes < 0).all())


def _joined(parts: list[LongArray]) -> LongArray:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)
