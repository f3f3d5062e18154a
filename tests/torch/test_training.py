"""What training asks of a group: each is something that a backend in Python has failed at."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the extra openmrc[torch] is not installed")

import torch
import torch.distributed as dist
from torch import nn

from tests.torch.ranks import run


def _model() -> nn.Module:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 8))


def _train(model: nn.Module, steps: int = 6, cut_at: int = -1) -> list[bytes]:
    group: Any = dist.group.WORLD
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    torch.manual_seed(dist.get_rank())
    losses = []
    for step in range(steps):
        if step == cut_at:
            for pair in group._world.progress.pairs.values():
                pair.device.set_port(0, False)
        optimizer.zero_grad()
        loss = model(torch.randn(8, 16)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().numpy().tobytes())
    return losses


def ddp(rank: int, n: int, cut_at: int) -> list[bytes]:
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(_model())
    losses = _train(model, cut_at=cut_at if rank == 1 else -1)
    return losses + [p.detach().numpy().tobytes() for p in model.parameters()]


def test_a_cut_plane_changes_no_bit_of_a_training() -> None:
    whole, cut = run(3, ddp, -1), run(3, ddp, 2)
    assert whole == cut
    assert whole[0][6:] == whole[1][6:] == whole[2][6:]


def broken_ddp(rank: int, n: int) -> str:
    """The peer leaves: `backward` raises, where a future that holds an exception would crash."""
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(_model())
    if rank == 1:
        return ""
    with pytest.raises(RuntimeError) as raised:
        _train(model)
    return str(raised.value)


def test_an_error_is_raised_in_backward() -> None:
    assert "rank 1 (host " in run(2, broken_ddp)[0]


def shards(rank: int, n: int, place: str) -> None:
    import torch.distributed._functional_collectives as functional
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (n,))
    model = _model()
    want = [p.detach().clone() for p in model.parameters()]
    fully_shard(model, mesh=mesh)
    _train(model, 2)
    now = [p.full_tensor() for p in model.parameters()]
    assert not any(map(torch.equal, now, want))
    whole = torch.arange(24.0).view(6, 4)
    shard = distribute_tensor(whole, mesh, [Shard(0)])
    assert torch.equal(shard.redistribute(mesh, [Replicate()]).to_local(), whole)
    assert torch.equal(shard.redistribute(mesh, [Shard(1)]).to_local(), whole.chunk(n, 1)[rank])
    total = functional.all_reduce(torch.ones(3), "sum", dist.group.WORLD)
    assert (total + 0 == n).all()
    state = {"model": model.state_dict()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.async_save(state, checkpoint_id=place).result()


def test_fsdp2_dtensor_functional_collectives_and_a_checkpoint(tmp_path: Path) -> None:
    run(2, shards, str(tmp_path / "checkpoint"))
    assert (tmp_path / "checkpoint/.metadata").exists()
