"""Ways to train that lay out ranks otherwise, in one world of four: each by what it computes."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

pytest.importorskip("torch", reason="the extra openmrc[torch] is not installed")

import torch
import torch.distributed as dist
from torch import nn

from tests.torch.ranks import run

RANKS, STEPS = 4, 2


def _model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def _batch(rank: int) -> torch.Tensor:
    return torch.randn(4, 8, generator=torch.Generator().manual_seed(rank))


def _step(model: Any, optimizer: Any, batch: torch.Tensor) -> None:
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()


def _wanted() -> list[torch.Tensor]:
    """Weights after the same steps on all ranks' batches, in one process."""
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    whole = torch.cat([_batch(rank) for rank in range(RANKS)])
    for _ in range(STEPS):
        _step(model, optimizer, whole)
    return [p.detach() for p in model.parameters()]


def _near(got: list[torch.Tensor]) -> None:
    for mine, its in zip(got, _wanted(), strict=True):
        torch.testing.assert_close(mine, its)


def fsdp1(rank: int) -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(_model(), device_id=torch.device("cpu"), use_orig_params=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        _step(model, optimizer, _batch(rank))
    with FullyShardedDataParallel.summon_full_params(model):
        _near([p.detach().clone() for p in model.parameters()])


def hsdp(rank: int) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model: Any = _model()
    fully_shard(model, mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("copies", "shards")))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        _step(model, optimizer, _batch(rank))
    _near([p.full_tensor() for p in model.parameters()])


def zero(rank: int) -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(_model())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
    for _ in range(STEPS):
        _step(model, optimizer, _batch(rank))
    _near([p.detach() for p in model.parameters()])


def pipeline(rank: int) -> None:
    """Two stages each way at once, by the `batch_isend_irecv` of torch's schedules."""
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    group: Any = dist.new_subgroups(2)[0]
    stage = dist.get_rank(group)
    whole = _model()
    part = nn.Sequential(*whole[:2]) if stage == 0 else nn.Sequential(*whole[2:])
    schedule = ScheduleGPipe(
        PipelineStage(part, stage, 2, torch.device("cpu"), group=group), n_microbatches=2
    )
    batch = _batch(0)
    got = schedule.step(batch) if stage == 0 else schedule.step()
    if stage == 1:
        torch.testing.assert_close(got, whole(batch))


def compiled(rank: int) -> None:
    import torch.distributed._functional_collectives as functional

    def work(x: torch.Tensor) -> torch.Tensor:
        total = functional.all_reduce(x * 2, "sum", dist.group.WORLD)
        parts = functional.all_gather_tensor(total + rank, 0, dist.group.WORLD)
        return functional.reduce_scatter_tensor(parts, "sum", 0, dist.group.WORLD) + 1

    graph = torch.compile(work, backend="aot_eager", fullgraph=True)
    x = torch.arange(4.0) + rank
    got, want = graph(x), work(x)
    assert torch.equal(got + 0, want + 0)
    total = 2 * (torch.arange(4.0) * RANKS + 6)
    assert torch.equal(got + 0, (total + rank) * RANKS + 1)


def every_way(rank: int, n: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for way in (fsdp1, hsdp, zero, pipeline, compiled):
            way(rank)
            dist.barrier()


def test_every_way_to_lay_out_a_training_computes_what_one_process_does() -> None:
    run(RANKS, every_way, OPENMRC_PLANES="1")
