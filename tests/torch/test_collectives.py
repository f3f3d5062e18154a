"""What torch.distributed asks of a backend, on two to four ranks of this machine."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="the extra openmrc[torch] is not installed")

import torch
import torch.distributed as dist

from openmrc.torch.matching import KEPT_MAX
from openmrc.torch.pair import EAGER, SLOT, SLOTS
from tests.torch.ranks import run

SIZES = (0, 1, 1000, 30_001, 300_001)  # nothing, slots, several, in place


def _values(rank: int, size: int, dtype: torch.dtype) -> Any:
    generator = torch.Generator().manual_seed(rank)
    return torch.randint(0, 9, (size,), generator=generator).to(dtype)


def all_collectives(rank: int, n: int) -> None:
    for size in SIZES:
        for dtype in (torch.float32, torch.int64):
            mine = [_values(r, size, dtype) for r in range(n)]
            total = torch.stack(mine).sum(0).to(dtype)
            x = mine[rank].clone()
            dist.all_reduce(x)
            assert torch.equal(x, total)
            x = mine[rank].clone()
            dist.reduce(x, 1)
            assert torch.equal(x, total if rank == 1 else mine[rank])
            x = mine[rank].clone()
            dist.broadcast(x, n - 1)
            assert torch.equal(x, mine[n - 1])
            parts = [torch.zeros_like(x) for _ in range(n)]
            dist.all_gather(parts, mine[rank])
            assert all(map(torch.equal, parts, mine))
            x = torch.zeros_like(x)
            dist.reduce_scatter(x, [part + r for r, part in enumerate(mine)])
            assert torch.equal(x, n * (mine[rank] + rank))
            x = torch.zeros_like(x)
            dist.scatter(x, [part + 1 for part in mine] if rank == 0 else None, 0)
            assert torch.equal(x, mine[rank] + 1)
            parts = [torch.zeros_like(x) for _ in range(n)]
            dist.gather(mine[rank], parts if rank == 0 else None, 0)
            assert rank or all(map(torch.equal, parts, mine))
            parts = [torch.zeros_like(x) for _ in range(n)]
            dist.all_to_all(parts, [mine[rank] + r for r in range(n)])
            assert all(torch.equal(part, mine[r] + rank) for r, part in enumerate(parts))
            dist.barrier()


def point_to_point(rank: int, n: int) -> None:
    right, left = (rank + 1) % n, (rank - 1) % n
    for size in (3, 1 << 20):  # everybody sends first: no send waits for a receive
        out, into = torch.full((size,), float(rank)), torch.zeros(size)
        work = [dist.isend(out, right), dist.irecv(into, left)]
        for one in work:
            assert one is not None
            one.wait()
        assert (into == left).all()
        ops = [dist.P2POp(dist.isend, out, left), dist.P2POp(dist.irecv, into, right)]
        for one in dist.batch_isend_irecv(ops):
            one.wait()
        assert (into == right).all()
    if rank:  # small and large, of anybody
        dist.send(torch.full((2,), float(rank)), 0)
        dist.send(torch.full((1 << 17,), float(rank)), 0, tag=7)
    else:
        for size, tag in ((2, 0), (1 << 17, 7)):
            seen = set()
            for _ in range(n - 1):
                x = torch.zeros(size)
                seen.add(dist.recv(x, tag=tag))
                assert (x == x[0]).all()
                assert int(x[0]) in seen
            assert seen == set(range(1, n))


def unwanted(rank: int, n: int) -> None:
    """Rank 0 sends three times as much as is kept, and rank 1 wants the last message first."""
    count, size = 3 * KEPT_MAX >> 16, 1 << 14
    if rank == 0:
        work = [dist.isend(torch.full((size,), float(k)), 1, tag=k) for k in range(count)]
        for one in work:
            assert one is not None
            one.wait()
        return
    if rank > 1:
        return
    group: Any = dist.group.WORLD
    for k in reversed(range(count)):
        x = torch.zeros(size)
        dist.recv(x, 0, tag=k)
        assert (x == k).all()
        kept = group._world.progress.matching._kept[0]
        assert kept <= KEPT_MAX + SLOTS * SLOT + EAGER  # a ring, and one that waits for room


def groups_and_objects(rank: int, n: int) -> None:
    objects: list[Any] = [None] * n
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": r} for r in range(n)]
    for ranks in ([0, 1], [1, 2], [2, 0]):
        group = dist.new_group(ranks)
        if rank in ranks:
            x = torch.tensor([float(rank)])
            dist.all_reduce(x, group=group)
            assert x == sum(ranks)
    core: Any = dist.group.WORLD
    # one queue pair for each pair of ranks, whatever the number of groups
    wired = core._world._wired.values()
    assert all(len(pair.device.queue_pairs) == 1 for pair in wired)
    assert len(wired) + len(core._world.hall.pairs) == n - 1
    odd = torch.arange(12.0).view(3, 4).t()  # not contiguous: a copy, copied back
    dist.all_reduce(odd)
    assert torch.equal(odd, n * torch.arange(12.0).view(3, 4).t())
    with dist._coalescing_manager():
        tensors = [torch.full((k + 1,), 1.0) for k in range(3)]
        for x in tensors:
            dist.all_reduce(x)
    assert all((x == n).all() for x in tensors)


def everything(rank: int, n: int) -> None:
    all_collectives(rank, n)
    point_to_point(rank, n)
    unwanted(rank, n)
    groups_and_objects(rank, n)


def test_three_ranks_do_whatever_torch_can_ask() -> None:
    run(3, everything)


def each_algorithm(rank: int, n: int) -> list[bytes]:
    import os

    bits = []
    for name in ("direct", "ring", "tree", "halving"):
        os.environ["OPENMRC_ALL_REDUCE"] = name
        for dtype in (torch.float32, torch.bfloat16):
            x = torch.randn(2501, generator=torch.Generator().manual_seed(rank)).to(dtype)
            dist.all_reduce(x)
            bits.append(x.view(torch.uint8).numpy().tobytes())
    os.environ["OPENMRC_ALL_REDUCE"] = "fastest"
    with pytest.raises(Exception, match="direct, ring, tree, halving are accepted"):
        dist.all_reduce(torch.zeros(1))
    del os.environ["OPENMRC_ALL_REDUCE"]
    return bits


def test_all_ranks_have_the_same_bits_by_every_algorithm() -> None:
    told = run(3, each_algorithm)
    assert told[0] == told[1] == told[2]
    every = [torch.randn(2501, generator=torch.Generator().manual_seed(r)) for r in range(3)]
    near = sum(every[1:], every[0])
    for i in range(0, 8, 2):
        got = torch.frombuffer(bytearray(told[0][i]), dtype=torch.float32)
        assert torch.allclose(got, near, atol=1e-5)
    # "direct" adds in rank order, as torch would
    short = every[0].bfloat16() + every[1].bfloat16() + every[2].bfloat16()
    assert torch.equal(torch.frombuffer(bytearray(told[0][1]), dtype=torch.bfloat16), short)


def test_the_same_bits_by_plain_udp_on_addresses_that_are_named() -> None:
    """As between hosts of an ordinary network: one device a rank, a plane an address."""
    told = run(2, each_algorithm, OPENMRC_INTERFACES="127.0.0.1, 127.0.0.2")
    assert told[0] == told[1] == run(2, each_algorithm)[0]


def reductions(rank: int, n: int) -> None:
    whole = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
    real = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    op = dist.ReduceOp
    for dtype in (*whole, *real, torch.complex64):
        mine = [_values(r, 50, dtype) for r in range(n)]
        wants = {op.SUM: mine[0] + mine[1]}
        if not dtype.is_complex:
            wants |= {op.PRODUCT: mine[0] * mine[1]}
            wants |= {op.MIN: torch.minimum(*mine), op.MAX: torch.maximum(*mine)}
        if dtype in whole:
            wants |= {op.BAND: mine[0] & mine[1], op.BOR: mine[0] | mine[1]}
            wants |= {op.BXOR: mine[0] ^ mine[1]}
        if dtype in real:
            wants |= {op.AVG: (mine[0] + mine[1]) / 2}
        for kind, want in wants.items():
            x = mine[rank].clone()
            dist.all_reduce(x, kind)
            assert torch.equal(x, want), (dtype, kind)
    x = torch.tensor([rank == 0, True, False])
    dist.all_reduce(x, op.BAND)
    assert x.tolist() == [False, True, False]
    with pytest.raises(Exception, match=r"BXOR of torch.float32: there is no such reduction"):
        dist.all_reduce(torch.zeros(1), op.BXOR)


def test_all_reductions_of_all_types() -> None:
    run(2, reductions)
