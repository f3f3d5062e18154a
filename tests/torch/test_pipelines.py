"""Every schedule of torch's pipelines, on two ranks: the gradients of one process."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

pytest.importorskip("torch", reason="the extra openmrc[torch] is not installed")

import torch
import torch.distributed as dist
from torch import nn

from tests.torch.ranks import run

MICRO, WIDTH, RANKS = 4, 8, 2
# name -> (stages of a rank, whether they go down and up again, as a V)
SCHEDULES = {
    "ScheduleGPipe": (1, False),
    "Schedule1F1B": (1, False),
    "ScheduleLoopedBFS": (2, False),
    "ScheduleInterleaved1F1B": (2, False),
    "ScheduleInterleavedZeroBubble": (2, False),
    "ScheduleZBVZeroBubble": (2, True),
    "ScheduleDualPipeV": (2, True),
}


def _layers(n: int) -> list[nn.Module]:
    torch.manual_seed(5)
    return [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(n)]


def _loss(got: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    return (got - want).square().mean()


def schedule(name: str, rank: int) -> None:
    from torch.distributed import pipelining

    each, is_v = SCHEDULES[name]
    n = each * RANKS
    numbers = [rank, n - 1 - rank] if is_v else [rank + RANKS * i for i in range(each)]
    x, want = torch.randn(2 * MICRO, WIDTH), torch.randn(2 * MICRO, WIDTH)
    whole = _layers(n)
    for part, out in zip(x.chunk(MICRO), want.chunk(MICRO), strict=True):
        (_loss(nn.Sequential(*whole)(part), out) / MICRO).backward()
    mine = _layers(n)
    stages: Any = [pipelining.PipelineStage(mine[i], i, n, torch.device("cpu")) for i in numbers]
    pipeline = getattr(pipelining.schedules, name)(
        stages[0] if each == 1 else stages, n_microbatches=MICRO, loss_fn=_loss
    )
    given = (x,) if 0 in numbers else ()
    pipeline.step(*given, **({"target": want} if n - 1 in numbers else {}))
    for i in numbers:
        for got, right in zip(mine[i].parameters(), whole[i].parameters(), strict=True):
            torch.testing.assert_close(got.grad, right.grad, msg=f"{name}, stage {i}")


def every_schedule(rank: int, n: int) -> None:
    torch.manual_seed(11)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in SCHEDULES:
            schedule(name, rank)
            dist.barrier()
    ops = []
    out, into = [torch.full((3,), float(rank)) for _ in range(3)], [torch.zeros(3)] * 3
    for one, other in zip(out, into, strict=True):
        ops += [dist.P2POp(dist.isend, one, 1 - rank), dist.P2POp(dist.irecv, other, 1 - rank)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert all((one == 1 - rank).all() for one in into)


def test_every_pipeline_schedule_has_the_gradients_of_one_process() -> None:
    run(RANKS, every_schedule, OPENMRC_SHARED_MEMORY="1")
