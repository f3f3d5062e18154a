"""A barrier that says which rank is missing, and the state of the links to it.

torch 2.13 refuses its own `monitored_barrier` to all backends but Gloo:

    from openmrc.torch.monitored import barrier
    barrier(torch.distributed.group.WORLD.core, timedelta(seconds=30))
"""

from __future__ import annotations

import time
from datetime import timedelta

import torch
import torch.distributed as dist

from openmrc.errors import OpenMrcError
from openmrc.torch.collectives import Collectives
from openmrc.torch.work import MrcWork

TAG = (1 << 31) - 2  # of its messages


def barrier(
    core: Collectives, timeout: timedelta | None = None, wait_all_ranks: bool = False
) -> None:
    """Rank 0 receives from every other rank in turn, and answers all; `DistBackendError` names the
    first rank that does not arrive, or with `wait_all_ranks` all of them.
    """
    seconds = core.timeout_s if timeout is None else timeout.total_seconds()
    word = torch.zeros(1, dtype=torch.uint8)
    if core.rank:
        core.send(word, 0, TAG)
        if not _came(core, core.receive(word, 0, TAG), seconds):
            raise dist.DistBackendError(
                f"Rank {core.rank} successfully reached monitoredBarrier, but received errors"
                f" while waiting for send/recv from rank 0 for {seconds:g} s: {_who(core, 0)}"
            )
        return
    if seconds <= 0:
        raise dist.DistBackendError(f"Rank 0 timed out in monitoredBarrier after {seconds:g} s")
    until = time.monotonic() + seconds
    waiting = {rank: core.receive(word.clone(), rank, TAG) for rank in range(1, len(core.ranks))}
    missing = [
        rank
        for rank, work in waiting.items()
        if not _came(core, work, max(until - time.monotonic(), 0.001))
    ]
    if not missing:
        for rank in waiting:
            core.send(word, rank, TAG)
        return
    named = missing if wait_all_ranks else missing[:1]
    who = f"Rank{'s' if len(named) > 1 else ''} {', '.join(map(str, named))}"
    told = "; ".join(_who(core, rank) for rank in named)
    raise dist.DistBackendError(
        f"{who} failed to pass monitoredBarrier within {seconds:g} s: {told}"
    )


def _came(core: Collectives, work: MrcWork, seconds: float) -> bool:
    """Whether a message has arrived; if not, its receive is abandoned."""
    try:
        return work.wait(timedelta(seconds=seconds))
    except dist.DistBackendError as error:
        given_up = OpenMrcError(str(error))
        core.world.progress.do(lambda: core.world.progress.running.fail(work._op, given_up))
        return False


def _who(core: Collectives, rank: int) -> str:
    peer = core.ranks[rank]
    return f"{core.world.name(peer)}; {core.world.paths(peer)}"
