"""The collectives, carried out symbolically: who holds which part of which sum when all is done.

A message is delivered whenever the DAG allows it, in any order that its QPs allow: what a rank
sends is what it holds then, so a missing dependency shows as a wrong sum.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.errors import InputError
from openmrc.traffic.releases import waves
from openmrc.traffic.traffic import Traffic, make_traffic, unroll
from openmrc.workload import (
    all_gather,
    all_to_all,
    broadcast,
    halving_doubling_all_reduce,
    reduce_scatter,
    ring_all_reduce,
    send_recv,
)

Ints = npt.NDArray[np.int64]
MB = 10**6


def rows(first: npt.NDArray[np.int32], nxt: npt.NDArray[np.int32]) -> list[list[int]]:
    return [nxt[a:b].tolist() for a, b in pairwise(first.tolist())]


def carry_out(
    traffic: Traffic, draw: np.random.Generator, send: Callable[[int], Callable[[], None]]
) -> None:
    """Post each message when its releases are there, deliver posted ones in a drawn order.

    `send(m)` is called when m leaves, some time after its posting, and returns what its delivery
    does. A QP carries its messages in order, and immediates are delivered in order.
    """
    assert traffic.msg_imm.all()
    assert not len(traffic.sent_next)
    released = rows(traffic.recv_first, traffic.recv_next)
    waits_for = traffic.msg_deps.tolist()
    queues: list[list[int]] = [[] for _ in range(traffic.n_qps)]
    sent: dict[int, Callable[[], None]] = {}
    for m in np.flatnonzero(traffic.msg_deps == 0).tolist():
        queues[traffic.msg_qp[m]].append(m)
    delivered = 0
    while busy := [qp for qp, queue in enumerate(queues) if queue]:
        qp = busy[int(draw.integers(len(busy)))]
        m = queues[qp][0]
        if m not in sent:
            sent[m] = send(m)
            continue
        queues[qp].pop(0)
        sent.pop(m)()
        delivered += 1
        for other in released[m]:
            waits_for[other] -= 1
            if waits_for[other] == 0:
                queues[traffic.msg_qp[other]].append(other)
    assert delivered == traffic.n_msgs


class Ranks:
    """What each rank holds: how often rank k's part is in its sum of a block, `[rank, lane, block,
    k]`; at the start its own part once.
    """

    def __init__(self, traffic: Traffic, n: int, size: int, blocks: int, chunks: int) -> None:
        self.traffic, self.n, self.blocks, self.chunks = traffic, n, blocks, chunks
        self.lanes = traffic.n_msgs and _channels(traffic) * chunks
        self.holds = np.zeros((n, self.lanes, blocks, n), int)
        for rank in range(n):
            self.holds[rank, :, :, rank] = 1
        count = blocks * self.lanes  # parts differ by a byte, the larger ones first
        each = [size // count + (part < size % count) for part in range(count)]
        self.part_bytes = np.array(each).reshape(blocks, self.lanes)
        self.rank_of = {int(nic): rank for rank, nic in enumerate(_ring_order(traffic, n))}

    def message(self, m: int, lane: int, blocks: slice, adds: bool) -> Callable[[], None]:
        """Take what the sender holds now; the receiver adds it to its own or keeps it instead."""
        src, dst = self.ends(m)
        assert self.traffic.msg_bytes[m] == self.part_bytes[blocks, lane].sum()
        taken = self.holds[src, lane, blocks].copy()

        def arrive() -> None:
            if adds:
                self.holds[dst, lane, blocks] += taken
            else:
                self.holds[dst, lane, blocks] = taken

        return arrive

    def ends(self, m: int) -> tuple[int, int]:
        """Who sends a message, who receives it."""
        src, dst = self.traffic.msg_src[m], self.traffic.msg_dst[m]
        return self.rank_of[int(src)], self.rank_of[int(dst)]


def _channels(traffic: Traffic) -> int:
    pairs = set(zip(traffic.qp_src.tolist(), traffic.qp_dst.tolist(), strict=True))
    return traffic.n_qps // len(pairs)


def _ring_order(traffic: Traffic, n: int) -> list[int]:
    """The NICs in the order of ranks: as their first QPs stand in the workload."""
    return list(dict.fromkeys([*traffic.qp_src.tolist(), *traffic.qp_dst.tolist()]))[:n]


shapes = st.tuples(
    st.integers(2, 9), st.integers(1, 3), st.integers(1, 3), st.integers(0, 400), st.integers(0, 99)
)
Shape = tuple[int, int, int, int, int]


def ring(make: Any, shape: Shape, adding: Callable[[int], int], spare: int = 3) -> Ranks:
    """A ring collective on some NICs of a larger fabric, carried out; `adding(n)` of its steps
    add.
    """
    n, channels, chunks, more, seed = shape
    draw = np.random.default_rng(seed)
    nics = draw.permutation(n + spare)[:n]
    size = n * channels * chunks + more
    series = make(n + spare, size, channels=channels, chunks=chunks, ranks=nics)
    traffic = unroll(series)
    steps = series.msg_count[0]
    assert (series.n_msgs, traffic.n_msgs) == (n * channels * chunks, n * channels * chunks * steps)
    ranks = Ranks(traffic, n, size, n, chunks)
    assert list(ranks.rank_of) == nics.tolist()

    def send(m: int) -> Callable[[], None]:
        entry, step = divmod(m, steps)
        lane, rank = divmod(entry, n)
        assert ranks.ends(m) == (rank, (rank + 1) % n)
        assert traffic.msg_qp[m] == lane // chunks * n + rank
        block = int(traffic.msg_block[m])
        return ranks.message(m, lane, slice(block, block + 1), step < adding(n))

    carry_out(traffic, draw, send)
    tables = ((traffic.recv_first, traffic.recv_next), (traffic.sent_first, traffic.sent_next))
    assert sum(1 for _ in waves(tables, traffic.msg_deps)) == steps
    return ranks


@settings(max_examples=60)
@given(shapes)
def test_after_a_ring_all_reduce_everybody_holds_every_sum(shape: Shape) -> None:
    ranks = ring(ring_all_reduce, shape, adding=lambda n: n - 1)
    assert (ranks.holds == 1).all()


@settings(max_examples=60)
@given(shapes)
def test_after_a_reduce_scatter_rank_r_holds_the_sum_of_block_r(shape: Shape) -> None:
    ranks = ring(reduce_scatter, shape, adding=lambda n: n - 1)
    for rank in range(ranks.n):
        assert (ranks.holds[rank, :, rank] == 1).all()


@settings(max_examples=60)
@given(shapes)
def test_after_an_all_gather_everybody_holds_everybodys_block(shape: Shape) -> None:
    ranks = ring(all_gather, shape, adding=lambda n: 0)
    for block in range(ranks.n):
        assert (ranks.holds[:, :, block, block] == 1).all()


@settings(max_examples=60)
@given(st.integers(1, 4), st.integers(1, 2), st.integers(1, 3), st.integers(0, 99))
def test_halving_and_doubling_sums_everything_everywhere(
    m: int, channels: int, chunks: int, seed: int
) -> None:
    n, draw = 1 << m, np.random.default_rng(seed)
    lanes = channels * chunks
    size = n * lanes + int(draw.integers(0, 400))
    traffic = halving_doubling_all_reduce(n, size, channels=channels, chunks=chunks)
    assert traffic.n_msgs == lanes * 2 * m * n
    assert traffic.n_qps == channels * m * n
    ranks = Ranks(traffic, n, size, n, chunks)
    ranks.rank_of = {nic: nic for nic in range(n)}

    def send(message: int) -> Callable[[], None]:
        lane, step, rank = map(int, np.unravel_index(message, (lanes, 2 * m, n)))
        span = n >> (step + 1) if step < m else 1 << (step - m)
        src, dst = ranks.ends(message)
        assert (src, dst) == (rank, rank ^ span)
        # the half that the other one keeps; then all that I have
        first = (dst if step < m else src) // span * span
        return ranks.message(message, lane, slice(first, first + span), step < m)

    carry_out(traffic, draw, send)
    assert (ranks.holds == 1).all()
    tables = ((traffic.recv_first, traffic.recv_next), (traffic.sent_first, traffic.sent_next))
    assert sum(1 for _ in waves(tables, traffic.msg_deps)) == 2 * m


def test_without_one_of_its_dependencies_a_sum_comes_out_wrong() -> None:
    """What the tests above would notice."""
    whole = halving_doubling_all_reduce(8, 64)
    given_by = np.repeat(np.arange(whole.n_msgs), np.diff(whole.recv_first))
    # step 2 without what step 0 brought
    kept = ~((given_by < 8) & (whole.recv_next >= 16) & (whole.recv_next < 24))
    loose = make_traffic(
        "loose", 8, whole.qp_src, whole.qp_dst, whole.msg_qp, whole.msg_bytes,
        recv=(given_by[kept], whole.recv_next[kept]), imm=True,
    )  # fmt: skip
    wrong = 0
    for seed in range(20):
        ranks = Ranks(loose, 8, 64, 8, 1)
        ranks.rank_of = {nic: nic for nic in range(8)}

        def send(message: int, ranks: Ranks = ranks) -> Callable[[], None]:
            step, rank = divmod(message, 8)
            span = 8 >> (step + 1) if step < 3 else 1 << (step - 3)
            first = (rank ^ span if step < 3 else rank) // span * span
            return ranks.message(message, 0, slice(first, first + span), step < 3)

        carry_out(loose, np.random.default_rng(seed), send)
        wrong += not (ranks.holds == 1).all()
    assert wrong > 0


@settings(max_examples=60)
@given(shapes, st.sampled_from(["chain", "tree"]))
def test_a_broadcast_reaches_everybody_and_nobody_sends_what_it_has_not(
    shape: Shape, way: str
) -> None:
    n, channels, chunks, more, seed = shape
    size = channels * chunks + more
    series = broadcast(n, size, channels=channels, chunks=chunks, shape=way)
    assert (series.n_msgs, series.n_sends) == ((n - 1) * channels, (n - 1) * channels * chunks)
    traffic = unroll(series)
    has = np.zeros((n, channels, chunks), int)  # bytes
    has[0] = 1

    def send(m: int) -> Callable[[], None]:
        entry, chunk = divmod(m, chunks)
        channel = entry // (n - 1)
        assert has[traffic.msg_src[m], channel, chunk] > 0

        def arrive() -> None:
            assert has[traffic.msg_dst[m], channel, chunk] == 0
            has[traffic.msg_dst[m], channel, chunk] = traffic.msg_bytes[m]

        return arrive

    carry_out(traffic, np.random.default_rng(seed), send)
    assert (has[1:].sum(axis=(1, 2)) == size).all()
    assert has[1:].max() - has[1:].min() <= 1  # equal parts, to within a byte
    depth = n - 1 if way == "chain" else max(rank.bit_count() for rank in range(n))
    tables = ((traffic.recv_first, traffic.recv_next), (traffic.sent_first, traffic.sent_next))
    assert sum(1 for _ in waves(tables, traffic.msg_deps)) == depth


@settings(max_examples=40)
@given(shapes)
def test_neighbours_pass_on_what_they_were_sent(shape: Shape) -> None:
    n, channels, chunks, more, seed = shape
    lanes, steps = channels * chunks, 1 + seed % 5
    traffic = unroll(send_recv(n, lanes + more, channels, chunks=chunks, steps=steps))
    token = np.tile(np.arange(n), (lanes, 1))  # rank r's own, at first

    def send(m: int) -> Callable[[], None]:
        lane, rank = divmod(m // steps, n)
        taken, to = token[lane, rank], (rank + 1) % n

        def arrive() -> None:
            arrived[lane, to] += traffic.msg_bytes[m]
            later.setdefault((lane, to), []).append(taken)

        # what came in the step before is what leaves now
        if m % steps:
            taken = later[lane, rank][m % steps - 1]
        return arrive

    later: dict[tuple[int, int], list[int]] = {}
    arrived = np.zeros((lanes, n), int)
    carry_out(traffic, np.random.default_rng(seed), send)
    assert (arrived.sum(axis=0) == steps * (lanes + more)).all()
    for (_, rank), tokens in later.items():
        assert tokens == [(rank - 1 - step) % n for step in range(steps)]


@given(st.integers(2, 12), st.integers(1, 3), st.integers(0, 300))
def test_in_an_all_to_all_every_pair_exchanges_its_block(n: int, channels: int, more: int) -> None:
    size = n * channels + more
    traffic = all_to_all(n, size, channels)
    table = np.zeros((n, n), int)
    np.add.at(table, (traffic.msg_src, traffic.msg_dst), traffic.msg_bytes)
    assert (np.diag(table) == 0).all()
    blocks = table.max(axis=0)  # of every receiver, the same from everybody
    assert (table + np.diag(blocks) == blocks).all()
    assert blocks.sum() == size
    # in the n-th of a rank's transfers nobody receives from two
    order = traffic.msg_dst.reshape(channels, n - 1, n)
    assert all(len(set(to)) == n for to in order.reshape(-1, n).tolist())
    assert not traffic.msg_deps.any()


def test_an_all_to_all_in_turn_keeps_so_many_under_way() -> None:
    traffic = all_to_all(6, 600, at_once=2)
    waits = rows(traffic.sent_first, traffic.sent_next)
    for message, released in enumerate(waits):  # the one two further on, from the same rank
        distance, rank = divmod(message, 6)
        assert released == ([(distance + 2) * 6 + rank] if distance < 3 else [])
    assert traffic.msg_deps.reshape(5, 6).tolist() == [[0] * 6] * 2 + [[1] * 6] * 3


def test_a_ring_of_four_in_full() -> None:
    series = ring_all_reduce(4, 10)  # blocks of 3, 3, 2 and 2 B
    assert series.qp_src.tolist() == [0, 1, 2, 3]
    assert series.qp_dst.tolist() == [1, 2, 3, 0]
    assert series.msg_count.tolist() == [6] * 4
    assert series.msg_total_bytes.tolist() == [15, 16, 15, 14]
    traffic = unroll(series)
    assert traffic.msg_qp.tolist() == [0] * 6 + [1] * 6 + [2] * 6 + [3] * 6
    # Rank 0 sends block 0, then 3, which has just arrived, then 2 ...
    assert traffic.msg_block.tolist()[:6] == [0, 3, 2, 1, 0, 3]
    assert traffic.msg_bytes.tolist()[:6] == [3, 2, 2, 3, 3, 2]
    assert traffic.msg_deps.tolist() == [0, 1, 1, 1, 1, 1] * 4
    # Rank 0's first message releases rank 1's second, rank 3's releases rank 0's.
    assert [traffic.recv_next[traffic.recv_first[m]] for m in (0, 6, 12, 18)] == [7, 13, 19, 1]
    assert len(traffic.sent_next) == 0
    assert traffic.msg_imm.all()


def test_each_rank_computes_for_a_time_of_its_own() -> None:
    traffic = unroll(ring_all_reduce(4, 100, compute_ps=[10, 20, 30, 40]))
    assert traffic.msg_compute_ps.reshape(4, 6)[:, 0].tolist() == [10, 20, 30, 40]
    tree = broadcast(4, 100, compute_ps=[10, 20, 30, 40])
    assert tree.msg_compute_ps.tolist() == [10, 20, 30]  # of who sends


@pytest.mark.parametrize(
    ("make", "messages"),
    [
        (ring_all_reduce, 2 * 8191 * 8192),
        (reduce_scatter, 8191 * 8192),
        (all_gather, 8191 * 8192),
        (lambda n, size: send_recv(n, size, steps=1000), 1000 * 8192),
        (lambda n, size: broadcast(n, size, chunks=1000), 1000 * 8191),
        (lambda n, size: broadcast(n, size, chunks=1000, shape="tree"), 1000 * 8191),
    ],
    ids=["all-reduce", "reduce-scatter", "all-gather", "send-recv", "chain", "tree"],
)
def test_8192_ranks_are_a_megabyte(make: Any, messages: int) -> None:
    """100 B a rank in the end, three times that while it is made and checked."""
    make(16, 16_000)  # what is imported and cached on first use
    tracemalloc.start()
    traffic = make(8192, 8192 * 1000)
    kept, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert traffic.n_sends == messages
    assert kept < 8192 * 100
    assert most < 8192 * 300


def test_halving_and_doubling_for_8192_ranks_is_listed() -> None:
    traffic = halving_doubling_all_reduce(8192, 8192 * 100)
    assert traffic.n_msgs == 26 * 8192
    assert traffic.n_qps == 13 * 8192
    assert len(traffic.recv_next) == 8192 * sum(range(26))
    assert traffic.msg_bytes.reshape(26, 8192).sum(axis=1).tolist() == [
        8192 * 8192 * 100 // 2 // 2**k for k in [*range(13), *range(12, -1, -1)]
    ]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: ring_all_reduce(8, 15, 2),
            "workload.size: 15 B cannot be cut into 16 parts; 16 B or more can",
        ),
        (
            lambda: broadcast(8, 5, chunks=6),
            "workload.size: 5 B cannot be cut into 6 parts; 6 B or more can",
        ),
        (
            lambda: ring_all_reduce(8, 80, ranks=[1, 2, 1]),
            "workload.ranks: two or more different NICs below 8 are needed",
        ),
        (
            lambda: all_gather(8, 80, ranks=[1, 8]),
            "workload.ranks: two or more different NICs below 8 are needed",
        ),
        (lambda: send_recv(1, 8), "workload.ranks: two or more different NICs below 1 are needed"),
        (lambda: send_recv(4, 8, steps=0), "workload.steps: 0; 1 or more is accepted"),
        (lambda: all_gather(4, 8, channels=0), "workload.channels: 0; 1 or more is accepted"),
        (lambda: broadcast(4, 8, chunks=0), "workload.chunks: 0; 1 or more is accepted"),
        (
            lambda: all_gather(4, 8, compute_ps=-1),
            "workload.compute: -1 ps; 0 or more is accepted",
        ),
        (
            lambda: broadcast(4, 8, shape="star"),
            "workload.shape: 'star'; accepted: chain, tree",
        ),
        (lambda: all_to_all(4, 8, at_once=0), "workload.at_once: 0; 1 or more is accepted"),
        (
            lambda: halving_doubling_all_reduce(24, 1000),
            "workload.ranks: 24 is no power of two, which halving and doubling needs;"
            " 16 and 32 are",
        ),
        (
            lambda: all_to_all(8192, MB),
            "workload.ranks: 8192 ranks need 67100672 queue pairs; at most 4194304 are accepted,"
            " take fewer ranks or channels",
        ),
        (
            lambda: halving_doubling_all_reduce(8192, 2**30, chunks=100),
            "workload: 21299200 messages to list; at most 20000000 are accepted",
        ),
        (
            lambda: unroll(ring_all_reduce(8192, MB)),
            "workload: 134201344 messages to list; at most 20000000 are accepted",
        ),
    ],
)
def test_what_cannot_be_made_is_refused_by_key(make: Callable[[], Traffic], message: str) -> None:
    with pytest.raises(InputError) as refused:
        make()
    assert str(refused.value) == message
