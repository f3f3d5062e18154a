"""A barrier that says who is missing, and how the links to it are.

torch 2.13 refuses its own `monitored_barrier` to all backends but Gloo:

    from openmrc.torch.monitored import barrier
    barrier(torch.distributed.group.WORLD.core, timedelta(seconds=30))
"""

from __future__ import annotations

import time
from datetime import timedelta

import torch
import torch.distributed as dist

from openmrc.torch.collectives import Collectives
from openmrc.torch.work import MrcWork

TAG = (1 << 31) - 2  # of its messages


def barrier(core: Collectives, timeout: timedelta | None = None, wait_all: bool = False) -> None:
    """Rank 0 hears of every other rank in turn, and answers all; `DistBackendError` names the
    first rank that does not come, or with `wait_all` all of them.
    """
    seconds = timeout.total_seconds() if timeout else core.timeout_s
    word = torch.zeros(1, dtype=torch.uint8)
    if core.rank != 0:
        _wait(core.send(word, 0, TAG), seconds)
        if not _came(core.receive(word, 0, TAG), seconds):
            raise dist.DistBackendError(f"rank {core.rank} has heard nothing of {_who(core, 0)}")
        return
    until = time.monotonic() + seconds
    waiting = {rank: core.receive(word.clone(), rank, TAG) for rank in range(1, len(core.ranks))}
    missing = []
    for rank, work in waiting.items():
        if not _came(work, max(until - time.monotonic(), 0.001)):
            missing.append(rank)
            if not wait_all:
                break
    if missing:
        told = "; ".join(_who(core, rank) for rank in missing)
        raise dist.DistBackendError(
            f"monitored_barrier: {len(missing)} of {len(core.ranks)} ranks"
            f" {missing} did not come within {seconds:g} s: {told}"
        )
    for rank in waiting:
        _wait(core.send(word, rank, TAG), seconds)


def _wait(work: MrcWork, seconds: float) -> None:
    work.wait(timedelta(seconds=seconds))


def _came(work: MrcWork, seconds: float) -> bool:
    try:
        _wait(work, seconds)
    except dist.DistBackendError:
        return False
    return True


def _who(core: Collectives, rank: int) -> str:
    peer = core.ranks[rank]
    return f"{core.world.name(peer)}; {core.world.paths(peer)}"
