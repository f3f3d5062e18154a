"""What a job notices of what breaks, and when: planes never, processes at once, silence in time."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the extra openmrc[torch] is not installed")

import torch
import torch.distributed as dist

from tests.torch.ranks import run

# At once, or after a silence of 30 s; the machine may be busy.
KILLED_S, SILENCE_S = 15.0, 2.0


def _world() -> Any:
    group: Any = dist.group.WORLD
    return group._world


def _reduce_for_ever() -> None:
    while True:
        dist.all_reduce(torch.ones(20_000))


def _until_it_raises() -> tuple[float, str]:
    started = time.monotonic()
    with pytest.raises(dist.DistBackendError) as raised:
        _reduce_for_ever()
    return time.monotonic() - started, str(raised.value)


def killed(rank: int, n: int) -> tuple[float, str]:
    if rank == 2:  # what it sent last may die with it: others may still be in the first one
        dist.all_reduce(torch.ones(20_000))
        os.kill(os.getpid(), signal.SIGKILL)
    return _until_it_raises()


def test_all_others_know_of_a_killed_process() -> None:
    told = run(3, killed, killed=(2,))
    for took, error in told[:2]:
        assert took < KILLED_S
        assert "rank 2 (host " in error
        assert "has ended: its process is gone" in error
        assert "plane 0: 2 good, plane 1: 2 good" in error


def cut_off(rank: int, n: int) -> tuple[float, str]:
    dist.all_reduce(torch.ones(3))
    dist.barrier()
    if rank == 1:
        for pair in _world().progress.pairs.values():
            for plane in range(2):
                pair.device.set_port(plane, False)
    return _until_it_raises()


def test_silence_on_all_paths_ends_in_the_time_that_was_asked_for() -> None:
    told = run(2, cut_off, OPENMRC_TIMEOUT=str(SILENCE_S))
    for took, error in told:
        assert took < SILENCE_S + KILLED_S
        assert "OPENMRC_TIMEOUT" in error or "has given up" in error
    assert any(f"nothing has come back on any path for {SILENCE_S:g} s" in e for _, e in told)
    assert "all planes of this host are down" in told[1][1] or "has given up" in told[1][1]


def one_plane_cut(rank: int, n: int) -> bytes:
    x = torch.randn(300_000, generator=torch.Generator().manual_seed(rank))
    for step in range(12):
        if rank == 0 and step in (3, 6):
            _world().progress.pairs[1].device.set_port(0, step == 6)
        dist.all_reduce(x)
        x /= n
    return x.numpy().tobytes()


def unharmed(rank: int, n: int) -> bytes:
    x = torch.randn(300_000, generator=torch.Generator().manual_seed(rank))
    for _ in range(12):
        dist.all_reduce(x)
        x /= n
    return x.numpy().tobytes()


def test_nobody_notices_a_plane() -> None:
    assert set(run(2, one_plane_cut)) == set(run(2, unharmed))


def unequal(rank: int, n: int) -> str:
    with pytest.raises(dist.DistBackendError) as raised:
        dist.all_reduce(torch.ones(10 + rank))
    return str(raised.value)


def test_sizes_that_differ_are_named() -> None:
    told = run(2, unequal)
    words = (
        "rank 0 calls all_reduce(SUM, float32, 40 bytes), rank 1 calls all_reduce(SUM, float32, 44"
    )
    assert all(words in error for error in told)


def again(rank: int, n: int, place: str) -> None:
    def held() -> int:
        return len(os.listdir("/proc/self/fd"))

    dist.barrier()
    dist.destroy_process_group()
    counts = []
    for turn in range(2):
        counts.append(held())
        assert [t.name for t in threading.enumerate() if "mrc" in t.name] == []
        store = f"file://{Path(place) / str(turn)}"
        dist.init_process_group("mrc", init_method=store, rank=rank, world_size=n)
        x = torch.ones(5)
        dist.all_reduce(x)
        assert (x == n).all()
        if turn == 0:
            dist.destroy_process_group()
    assert counts[0] == counts[1]


def test_a_group_that_was_destroyed_leaves_nothing(tmp_path: Path) -> None:
    run(2, again, str(tmp_path))


def missing(rank: int, n: int) -> str:
    from datetime import timedelta

    from openmrc.torch.monitored import barrier

    core: Any = dist.group.WORLD
    barrier(core.core)
    told = ""
    if rank == 0:
        with pytest.raises(dist.DistBackendError) as raised:
            barrier(core.core, timedelta(seconds=0.5))
        told = str(raised.value)
    dist.barrier()
    return told


def test_a_monitored_barrier_names_who_is_missing_and_the_links() -> None:
    told = run(2, missing)[0]
    assert "Rank 1 failed to pass monitoredBarrier within 0.5 s: rank 1 (host " in told
    assert "plane 0: 2 good, plane 1: 2 good" in told


def early_leave(rank: int, n: int) -> None:
    x = torch.full((5,), float(rank + 1))
    dist.broadcast(x, 0)
    if rank:  # rank 0 has left when this is posted: what it sent is here
        group: Any = dist.group.WORLD
        until = time.monotonic() + 20
        while 0 not in group._world.progress.running.departed:
            assert time.monotonic() < until
            time.sleep(0.01)
        dist.broadcast(x, 0)
        assert (x == 9).all()
        with pytest.raises(dist.DistBackendError, match=r"rank 0 .* has left the job"):
            dist.broadcast(x, 0)
    else:
        dist.broadcast(torch.full((5,), 9.0), 0)


def test_what_a_rank_sent_before_it_left_arrives() -> None:
    run(2, early_leave)


def test_paths_are_summed_up_in_a_few_words() -> None:
    from openmrc.torch.world import _summed

    assert _summed([0.0] * 24) == "24 good"
    assert _summed([0.0, 3.14]) == "1 good and 1 bad for 3.1 s"
    assert _summed([1.0, 2.0, 3.04]) == "3 bad for up to 3.0 s"


def stopped_or_deaf(rank: int, n: int) -> str:
    """Rank 1's process stops (its kernel lives), or its packets alone are lost."""
    dist.all_reduce(torch.ones(3))
    if rank == 1:
        child = os.fork()
        if child == 0:
            time.sleep(SILENCE_S + 3)
            os.kill(os.getppid(), signal.SIGCONT)
            os._exit(0)
        os.kill(os.getpid(), signal.SIGSTOP)
        os.waitpid(child, 0)
        with pytest.raises(dist.DistBackendError):
            _reduce_for_ever()
        return ""
    return _until_it_raises()[1]


def test_a_stopped_process_is_not_taken_for_a_cut_cable() -> None:
    told = run(2, stopped_or_deaf, OPENMRC_TIMEOUT=str(SILENCE_S))[0]
    assert "its host acknowledges by TCP, its process does not answer: stopped, or stuck" in told
    assert len(told) < 400
