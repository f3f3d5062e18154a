"""Ranks of a job as processes here: `run(3, story)` calls `story(rank, size)` in each."""

from __future__ import annotations

import multiprocessing
import os
import socket
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the extra openmrc[torch] is not installed")

PATIENCE_S = 120.0
TIMEOUT = timedelta(seconds=60)

Story = Callable[..., Any]


def nothing() -> None:
    """Before a rank joins."""


def run(
    n: int,
    story: Story,
    *args: Any,
    killed: tuple[int, ...] = (),
    before: Callable[[], None] = nothing,
    **env: str,
) -> list[Any]:
    """What each rank's story returned; an assertion that failed in one fails here. Ranks in
    `killed` end as they like. Each calls `before` before it joins.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.torch.preloaded"])
    with tempfile.TemporaryDirectory() as place:
        store = str(Path(place) / "store")
        pipes, processes = [], []
        for rank in range(n):
            mine, its = context.Pipe(False)
            one = context.Process(
                target=_rank, args=(its, story, rank, n, store, env, before, args), daemon=True
            )
            one.start()
            its.close()
            pipes.append(mine)
            processes.append(one)
        results: list[Any] = [None] * n
        failures = []
        for rank, (pipe, one) in enumerate(zip(pipes, processes, strict=True)):
            if rank in killed:
                continue
            if not pipe.poll(PATIENCE_S):
                failures.append(f"rank {rank} hangs")
                one.kill()
                continue
            try:
                good, results[rank] = pipe.recv()
            except EOFError:
                good, results[rank] = False, "it died"
            if not good:
                failures.append(f"rank {rank}: {results[rank]}")
        for one in processes:
            one.join(10 if not failures else 1)
            one.kill()
        assert not failures, "\n".join(failures)
        return results


def _rank(
    pipe: Any,
    story: Story,
    rank: int,
    n: int,
    store: str,
    env: dict[str, str],
    before: Callable[[], None],
    args: Any,
) -> None:
    import torch.distributed as dist

    os.environ.update({"OPENMRC_SHARED_MEMORY": "0", **env})
    try:
        before()
        dist.init_process_group(
            "mrc", init_method=f"file://{store}", rank=rank, world_size=n, timeout=TIMEOUT
        )
        told = story(rank, n, *args)
        dist.destroy_process_group()
        pipe.send((True, told))
    except BaseException:
        pipe.send((False, traceback.format_exc()))


def free_port() -> int:
    """A TCP port that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])
