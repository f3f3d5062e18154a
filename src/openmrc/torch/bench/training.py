"""A small transformer, and its training with DistributedDataParallel for a given time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

WIDTH, HEADS, LAYERS, TOKENS, WORDS, BATCH = 64, 4, 2, 32, 64, 4
WARM = 5  # steps before the first that is timed


def transformer() -> Any:
    """The same weights at every rank, from torch's seed."""
    layer = torch.nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, 0.0, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
    return torch.nn.Sequential(
        torch.nn.Embedding(WORDS, WIDTH), encoder, torch.nn.Linear(WIDTH, WORDS)
    )


class Trainer:
    """A model that is trained on words drawn from the rank's number."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self._optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        self._draw = torch.Generator().manual_seed(dist.get_rank())

    def step(self) -> torch.Tensor:
        """One step; its loss."""
        words = torch.randint(WORDS, (BATCH, TOKENS), generator=self._draw)
        self._optimizer.zero_grad()
        said = self.model(words).flatten(0, 1)
        loss = functional.cross_entropy(said, words.roll(1, 1).flatten())
        loss.backward()
        self._optimizer.step()
        return loss.detach()


def step_times(seconds: float, started: Callable[[], None]) -> list[tuple[float, float]]:
    """Train for `seconds`; return when each step ended, s after `started` was called, and its
    duration.
    """
    torch.manual_seed(1)
    trainer = Trainer(DistributedDataParallel(transformer()))
    for _ in range(WARM):
        trainer.step()
    dist.barrier()
    started()
    began = last = time.monotonic()
    found, going = [], torch.ones(1)
    while going:
        trainer.step()
        now = time.monotonic()
        found.append((now - began, now - last))
        last = now
        going.fill_(now - began < seconds)
        dist.all_reduce(going, dist.ReduceOp.MIN)  # the same number of steps at all ranks
    return found
