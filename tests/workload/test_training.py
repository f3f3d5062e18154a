"""Training steps: carried out symbolically, counted, and timed by hand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.errors import InputError
from openmrc.traffic.earliest import earliest_ps, no_cost
from openmrc.traffic.traffic import Traffic, unroll
from openmrc.workload.dag import Dag
from openmrc.workload.layout import Layout, make_layout
from openmrc.workload.model import Sizes
from openmrc.workload.phases import REDUCE_SCATTER, Work
from openmrc.workload.training import training

US = 10**6
SIZES = Sizes(tp=4_000, pp=3_000, ep=2_001, dp=6_000, expert=4_003)
WORK = Work(
    steps=2,
    microbatches=2,
    layers=2,
    forward_ps=100 * US,
    backward_ps=200 * US,
    optimizer_ps=10 * US,
    jitter=0.0,
    sizes=SIZES,
    bucket_bytes=7_000,
)


@dataclass
class Collective:
    """One copy of a collective, as the DAG was told to make it."""

    kind: str
    n: int
    entries: range  # of the traffic
    ranks: list[int]  # NIC of each of its ranks
    gates: list[int]  # entry that each rank begins with

    def __post_init__(self) -> None:
        # [rank, block, contributor]: nothing before the rank has begun
        self.holds = np.zeros((self.n, self.n, self.n), int)
        self.begun: set[int] = set()

    def begin(self, rank: int) -> None:
        """What the rank itself brings."""
        self.begun.add(rank)
        if self.kind == "all-gather":
            self.holds[rank, rank, rank] = 1
        else:
            self.holds[rank, :, rank] += 1

    def right(self, rank: int) -> bool:
        """Whether a rank has what it should have in the end."""
        if rank not in self.begun:
            return False
        mine = self.holds[rank]
        if self.kind == "all-gather":
            return bool((mine == np.eye(self.n, dtype=int)).all())
        if self.kind == "reduce-scatter":
            return bool((mine[rank] == 1).all())
        return bool((mine == 1).all())


class Spy(Dag):
    """Notes which collectives are made."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[tuple[Traffic, npt.NDArray[Any], int]] = []

    def copies(self, collective: Traffic, qps: Any, n: int) -> Any:
        codes = super().copies(collective, qps, n)
        self.noted.append((collective, codes, n))
        return codes


def spied(
    monkeypatch: pytest.MonkeyPatch, layout: Layout, work: Work, seed: int = 1
) -> tuple[Traffic, list[Collective]]:
    """A job's workload, and its collectives."""
    spies: list[Spy] = []

    def make() -> Spy:
        spies.append(Spy())
        return spies[-1]

    monkeypatch.setattr("openmrc.workload.training.Dag", make)
    traffic = training(layout.n_ranks, layout, work, seed)
    giving, released = traffic.edges
    found = []
    for made, codes, n in spies[0].noted:
        for copy in codes.reshape(n, made.n_msgs):
            ranks = [0] * made.n_nics
            gates = [0] * made.n_nics
            for entry, own in zip(copy.tolist(), range(made.n_msgs), strict=True):
                rank = int(made.msg_src[own])
                ranks[rank] = int(traffic.msg_src[entry])
                before = giving[(released == entry) & (giving >= traffic.n_msgs)]
                (gates[rank],) = set(before.tolist())
            kind = "all-reduce" if made.kind == "ring-all-reduce" else made.kind
            entries = range(int(copy[0]), int(copy[-1]) + 1)
            found.append(Collective(kind, made.n_nics, entries, ranks, gates))
    return traffic, found


def carry_out(traffic: Traffic, collectives: list[Collective], draw: np.random.Generator) -> None:
    """Everything happens in some order that the DAG allows: sums must be right in all of them."""
    listed = unroll(traffic)
    entry = np.repeat(np.arange(traffic.n_msgs), traffic.msg_count)
    step = np.concatenate([np.arange(count) for count in traffic.msg_count])
    where = {e: c for c in collectives for e in c.entries}
    starts: dict[int, list[tuple[Collective, int]]] = {}
    for c in collectives:
        for rank, gate in enumerate(c.gates):
            starts.setdefault(gate - traffic.n_msgs, []).append((c, rank))
    assert listed.step_ends is not None
    ends = {int(c): (s, r) for (s, r), c in np.ndenumerate(listed.step_ends)}
    giving, released = listed.edges
    after: list[list[int]] = [[] for _ in range(listed.n_entries)]
    for by, to in zip(giving.tolist(), released.tolist(), strict=True):
        after[by].append(to)
    waits = listed.deps.tolist()
    queues: dict[int, list[int]] = {}
    ready = [n for n in range(listed.n_entries) if waits[n] == 0]
    for n in [n for n in ready if n < listed.n_msgs]:
        queues.setdefault(int(listed.msg_qp[n]), []).append(n)
    calcs = [n for n in ready if n >= listed.n_msgs]
    left: dict[int, Any] = {}
    happened = 0
    ended: set[tuple[int, int]] = set()
    while calcs or any(queues.values()):
        busy = [q for q, queue in queues.items() if queue]
        turn = int(draw.integers(len(busy) + len(calcs)))
        if turn >= len(busy):
            n = calcs.pop(turn - len(busy))
            for c, rank in starts.get(n - listed.n_msgs, []):
                c.begin(rank)
            if (end := ends.get(n - listed.n_msgs)) is not None:
                ended.add(end)
                mine = [c for c in collectives if end[1] in c.ranks and c.kind != "all-to-all"]
                so_far = [c for c in mine if len(c.begun)]
                assert all(c.right(c.ranks.index(end[1])) for c in so_far)
        else:
            n = queues[busy[turn]][0]
            collective = where.get(int(entry[n]))
            src, dst = int(listed.msg_src[n]), int(listed.msg_dst[n])
            if collective is not None and n not in left:  # it leaves now, and arrives later
                rank = collective.ranks.index(src)
                left[n] = collective.holds[rank, int(listed.msg_block[n])].copy()
                assert rank in collective.begun
                continue
            queues[busy[turn]].pop(0)
            if collective is not None and collective.kind != "all-to-all":
                rank, block = collective.ranks.index(dst), int(listed.msg_block[n])
                adds = collective.kind == "reduce-scatter" or (
                    collective.kind == "all-reduce" and step[n] < collective.n - 1
                )
                kept = collective.holds[rank, block] if adds else 0
                collective.holds[rank, block] = kept + left.pop(n)
        happened += 1
        for to in after[n]:
            waits[to] -= 1
            if waits[to] == 0 and to >= listed.n_msgs:
                calcs.append(to)
            elif waits[to] == 0:
                queues.setdefault(int(listed.msg_qp[to]), []).append(to)
    assert happened == listed.n_entries
    assert len(ended) == listed.step_ends.size


@settings(max_examples=12)
@given(
    st.sampled_from([(2, 2, 1, 2), (3, 1, 1, 2), (1, 2, 2, 2), (2, 1, 2, 2), (1, 1, 3, 1)]),
    st.booleans(),
    st.booleans(),
    st.integers(0, 99),
)
def test_every_collective_of_a_step_ends_with_the_right_sums(
    sizes: tuple[int, int, int, int], tp_scatters: bool, dp_scatters: bool, seed: int
) -> None:
    tp, pp, ep, dp = sizes
    layout = make_layout(tp * pp * ep * dp, tp, pp, ep, dp)
    work = replace(WORK, steps=1)
    if tp_scatters:
        work = replace(work, tp_collective=REDUCE_SCATTER)
    if dp_scatters:
        work = replace(work, dp_collective=REDUCE_SCATTER)
    with pytest.MonkeyPatch.context() as monkeypatch:
        traffic, collectives = spied(monkeypatch, layout, work)
    carry_out(traffic, collectives, np.random.default_rng(seed))
    for c in collectives:
        if c.kind != "all-to-all":
            assert all(c.right(rank) for rank in range(c.n)), c.kind


def test_what_is_in_a_step_is_counted() -> None:
    layout = make_layout(16, tp=2, pp=2, ep=2)  # dp = 2: 16 ranks, 8 in a stage
    traffic = training(16, layout, replace(WORK, layers=4, microbatches=3, steps=1))
    # Each stage has 2 layers: in either pass of each of 3 microbatches 4 sums by tp and 4
    # all-to-alls; to and fro between stages; and at the end gradients in buckets of 7 kB or more.
    sums, to_alls = 2 * 3 * 2 * 2, 2 * 3 * 2 * 2
    dense, expert = 1, 1  # 12,000 and 8,006 B: full with the second layer
    per_rank = sums + to_alls + dense + expert
    passed = 2 * 3 * 8
    assert traffic.n_msgs == 16 * per_rank + passed
    # around a ring of n an all-reduce is 2(n - 1) messages of each rank
    assert traffic.n_sends == 16 * (sums * 2 + to_alls + dense * 6 + expert * 2) + passed
    kinds = {int(b) for b in traffic.msg_bytes}
    assert kinds == {2_000, 3_000, 1_000, 1_001, 12_000 // 4, 8_006 // 2}
    # A queue pair to the next rank of each ring, one to the other expert rank, one to a stage.
    assert traffic.n_qps == 16 * 4 + 2 * 8
    assert traffic.step_ends is not None
    assert traffic.step_ends.shape == (1, 16)
    assert traffic.ends_on_error


def test_gradients_are_summed_up_in_buckets_while_the_backward_pass_goes_on() -> None:
    layout = make_layout(4, tp=1, pp=1)
    six = replace(WORK, layers=6, microbatches=1, steps=1, sizes=replace(SIZES, expert=0))
    traffic = training(4, layout, six)
    # six layers of 6,000 B; a bucket is full with its second
    assert traffic.n_msgs == 3 * 4
    posted, _ = earliest_ps(traffic, no_cost(traffic), 1)
    at = sorted(set(posted[: traffic.n_msgs].tolist()))
    assert at == [(600 + 2 * 200) * US, (600 + 4 * 200) * US, (600 + 6 * 200) * US]
    one = training(4, layout, replace(six, bucket_bytes=10**9))
    assert (one.n_msgs, set(one.msg_total_bytes.tolist())) == (4, {36_000 // 4 * 6})


@pytest.mark.parametrize(("pp", "microbatches"), [(1, 1), (1, 4), (2, 1), (2, 5), (4, 3), (4, 8)])
def test_without_a_network_a_step_takes_as_long_as_the_pipeline_does(
    pp: int, microbatches: int
) -> None:
    """(microbatches + stages - 1) times a stage's two passes, and the optimizer."""
    layout = make_layout(2 * pp, tp=1, pp=pp)
    work = replace(WORK, layers=4, microbatches=microbatches, steps=3)
    traffic = training(2 * pp, layout, work)
    begin, _ = earliest_ps(traffic, no_cost(traffic), 1)
    assert traffic.step_ends is not None
    ends = (begin[traffic.n_msgs :] + traffic.calc_ps)[traffic.step_ends].max(axis=1)
    step = (microbatches + pp - 1) * 4 // pp * 300 * US + 10 * US
    assert np.diff(ends, prepend=0).tolist() == [step] * 3


def test_every_computation_is_drawn_by_itself_and_the_same_again() -> None:
    layout = make_layout(8, tp=2, pp=2)
    work = replace(WORK, jitter=0.25)
    traffic, again, other = (training(8, layout, work, seed) for seed in (5, 5, 6))
    assert traffic.calc_ps.tolist() == again.calc_ps.tolist()
    assert traffic.calc_ps.tolist() != other.calc_ps.tolist()
    steady = training(8, layout, WORK)
    share = traffic.calc_ps[steady.calc_ps > 0] / steady.calc_ps[steady.calc_ps > 0]
    assert ((share >= 0.75) & (share <= 1.25)).all()
    assert len(np.unique(np.round(share, 9))) > 0.9 * len(share)
    assert 0.95 < share.mean() < 1.05


def test_ranks_may_be_any_nics() -> None:
    layout = make_layout(4, tp=2, pp=1)
    nics = [9, 2, 7, 4]
    plain, placed = training(4, layout, WORK), training(12, layout, WORK, nics=nics)
    assert placed.msg_src.tolist() == np.array(nics)[plain.msg_src].tolist()
    assert placed.msg_dst.tolist() == np.array(nics)[plain.msg_dst].tolist()
    pairs = set(zip(placed.qp_src.tolist(), placed.qp_dst.tolist(), strict=True))
    assert {(9, 2), (2, 9), (7, 4), (4, 7), (9, 7)} <= pairs


@pytest.mark.parametrize(
    ("layout", "work", "message"),
    [
        (
            {"ranks": 6, "tp": 1, "pp": 3},
            {"layers": 4},
            "workload.layers: 4 cannot be divided among pp = 3 stages",
        ),
        (
            {"ranks": 8, "tp": 8, "pp": 1},
            {"sizes": replace(SIZES, tp=7)},
            "workload.tp_size: 7 B cannot be cut into 8 parts, one for each rank of a group; 8 B"
            " or more can",
        ),
        (
            {"ranks": 8, "tp": 1, "pp": 1},
            {"sizes": replace(SIZES, dp=3)},
            "workload.dp_size: 3 B cannot be cut into 8 parts, one for each rank of a group; 8 B"
            " or more can",
        ),
        (
            {"ranks": 4, "tp": 1, "pp": 2},
            {"sizes": replace(SIZES, pp=0)},
            "workload.pp_size: 0 B; with pp above 1, at least 1 byte is needed",
        ),
        (
            {"ranks": 1024, "tp": 1, "pp": 1},
            {"steps": 10_000},
            "workload.steps: 10000 steps of 1024 ranks are about 819200000 messages, series and"
            " computations; at most 16000000 are accepted, take fewer steps, layers or"
            " microbatches",
        ),
    ],
)
def test_what_cannot_be_divided_is_refused(
    layout: dict[str, Any], work: dict[str, Any], message: str
) -> None:
    made = make_layout(**layout)
    with pytest.raises(InputError) as refused:
        training(made.n_ranks, made, replace(WORK, **work))
    assert str(refused.value) == message


def test_rows_of_releases_are_whole() -> None:
    """A check of the tests' own: releases of the unrolled workload are those of the series."""
    traffic = training(4, make_layout(4, tp=2, pp=1), replace(WORK, steps=1))
    listed = unroll(traffic)
    assert listed.n_msgs == traffic.n_sends
    assert not listed.mixed
    assert traffic.mixed
    assert all(a <= b for a, b in pairwise(listed.recv_first.tolist()))
