"""Ranks of a job as processes here: `run(3, story)` calls `story(rank, size)` in each."""

from __future__ import annotations

import ctypes
import gc
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


def ends(n: int, story: Story, *args: Any, **env: str) -> list[tuple[int | None, str]]:
    """How each rank's process ended, and what it wrote: after the story Python shuts down as at the
    end of a script, with whatever is under way. A negative number is a signal, None: it hangs.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.torch.preloaded"])
    with tempfile.TemporaryDirectory() as place:
        processes = [
            context.Process(target=_ending, args=(story, rank, n, place, env, args), daemon=True)
            for rank in range(n)
        ]
        for one in processes:
            one.start()
        for one in processes:
            one.join(PATIENCE_S)
            if one.exitcode is None:
                one.kill()
        said = [Path(place, f"said-{rank}").read_text(encoding="utf-8") for rank in range(n)]
        return [(one.exitcode, words) for one, words in zip(processes, said, strict=True)]


def _ending(story: Story, rank: int, n: int, place: str, env: dict[str, str], args: Any) -> None:
    import torch.distributed as dist

    said = os.open(Path(place, f"said-{rank}"), os.O_WRONLY | os.O_CREAT)
    os.dup2(said, 2)
    os.environ.update({"OPENMRC_SHARED_MEMORY": "0", **env})
    store = f"file://{Path(place) / 'store'}"
    dist.init_process_group("mrc", init_method=store, rank=rank, world_size=n, timeout=TIMEOUT)
    story(rank, n, *args)
    exit_python()


def exit_python(status: int = 0) -> None:
    """End this process as the end of a script does; `sys.exit` of a child would not."""
    gc.freeze()  # what was imported need not be searched once more
    ctypes.pythonapi.Py_Exit(status)


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
