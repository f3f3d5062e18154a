"""How a rank ends, and who is one: exits in any order, children, callbacks that wait."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from datetime import timedelta
from typing import Any

import pytest

pytest.importorskip("torch", reason="the extra openmrc[torch] is not installed")

import torch
import torch.distributed as dist

from openmrc.torch.group import MrcProcessGroup
from tests.torch.ranks import TIMEOUT, ends, exit_python, run

LARGE = 1_000_000
KILLED_S = 10.0  # a second, and what a busy machine adds


def _post() -> Any:
    return dist.all_reduce(torch.ones(LARGE), async_op=True)


def leaves(rank: int, n: int) -> None:
    _post()


def is_alone(rank: int, n: int) -> None:
    if rank == 0:
        _post()
    else:
        time.sleep(1)


def destroys(rank: int, n: int) -> None:
    _post()
    dist.destroy_process_group()


def aborts(rank: int, n: int) -> None:
    work = _post()
    if rank == 0:
        pg: Any = dist.group.WORLD
        pg.abort()
    del work


def posts_on(rank: int, n: int) -> None:
    def post() -> None:
        while True:
            try:
                _post().wait()
            except Exception:
                return

    for _ in range(2):
        threading.Thread(target=post, daemon=True).start()
    time.sleep(0.2)


def has_callbacks(rank: int, n: int) -> None:
    for _ in range(4):
        future = _post().get_future()
        future.then(lambda f: _post().get_future().wait())


@pytest.mark.parametrize("story", [leaves, is_alone, destroys, aborts, posts_on, has_callbacks])
def test_whatever_is_under_way_a_process_ends_without_a_signal(story: Any) -> None:
    for status, said in ends(2, story, OPENMRC_PLANES="1"):
        assert status == 0, said
        assert "Fatal" not in said
        assert "terminate called" not in said
    if story is is_alone:
        told = ends(2, story, OPENMRC_SHARED_MEMORY="1")[0][1]
        assert "mrc: rank 0 has ended without waiting for all_reduce of group '0'" in told


def forks(rank: int, n: int) -> str:
    dist.barrier()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            dist.all_reduce(torch.ones(1))
        except dist.DistBackendError as error:
            os.write(write, str(error).encode())
        except BaseException as error:
            os.write(write, repr(error).encode())
        exit_python()
    os.close(write)
    _, status = os.waitpid(child, 0)
    assert status == 0
    said = os.read(read, 1000).decode()
    os.close(read)
    time.sleep(0.2)
    x = torch.ones(1000)
    dist.all_reduce(x)
    assert x[0] == n
    return said


@pytest.mark.parametrize("shared", ["0", "1"])
def test_a_forked_child_is_no_rank(shared: str) -> None:
    for rank, said in enumerate(run(3, forks, OPENMRC_SHARED_MEMORY=shared)):
        assert f"this process was forked from rank {rank}, and is no rank itself" in said


def _for_ever() -> None:
    while True:
        dist.all_reduce(torch.ones(3))


def killed_with_a_child(rank: int, n: int) -> float:
    dist.barrier()
    if rank == 2:
        if os.fork() == 0:  # as a worker of a DataLoader, which lives on for a while
            time.sleep(2 * KILLED_S)
            os._exit(0)
        dist.all_reduce(torch.ones(3))
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(3))
    started = time.monotonic()
    with pytest.raises(dist.DistBackendError, match="has ended: its process is gone"):
        _for_ever()
    return time.monotonic() - started


def test_a_killed_process_is_noticed_though_its_child_lives() -> None:
    assert max(run(3, killed_with_a_child, killed=(2,))[:2]) < KILLED_S


def nested(depth: int) -> Any:
    """A sum whose callback sums again, and waits."""
    work: Any = dist.all_reduce(torch.ones(3), async_op=True)

    def then(future: Any) -> Any:
        first = future.wait()[0].sum().item()
        return first + (nested(depth - 1).wait() if depth else 0)

    return work.get_future().then(then)


def callbacks_wait(rank: int, n: int) -> None:
    for _ in range(10):
        assert nested(4).wait() == 5 * 3 * n
    many = [nested(3) for _ in range(6)]  # at a time
    assert [one.wait() for one in many] == [4 * 3 * n] * 6
    every_hook(rank, n)
    # a timeout ends what a callback waits for, while the callback waits
    pg: Any = dist.group.WORLD
    future = pg.allreduce(torch.ones(1)).get_future()
    if rank == 0:
        pg.set_timeout(timedelta(seconds=0.5))
        late = future.then(lambda f: pg.recv([torch.ones(1)], 1, 5).wait())
        with pytest.raises(RuntimeError, match=r"Timed out waiting for .* after 0\.5 s"):
            late.wait()
        pg.set_timeout(TIMEOUT)
    dist.barrier()


def _hooks() -> dict[str, Any]:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks as default
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power

    def state() -> Any:
        return power.PowerSGDState(
            None, matrix_approximation_rank=1, start_powerSGD_iter=2, min_compression_rate=0.5
        )

    return {
        "all_reduce": (None, default.allreduce_hook),
        "fp16": (None, default.fp16_compress_hook),
        "wrapped": (None, default.fp16_compress_wrapper(default.allreduce_hook)),
        "power": (state(), power.powerSGD_hook),
        "power of fp16": (state(), default.fp16_compress_wrapper(power.powerSGD_hook)),
    }


def _trained(hook: Any, state: Any) -> list[torch.Tensor]:
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(1)
    layers = [torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=0.01)
    model.register_comm_hook(state, hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(dist.get_rank())
    for _ in range(6):
        optimizer.zero_grad()
        model(torch.randn(16, 32)).square().mean().backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]


def every_hook(rank: int, n: int) -> None:
    """Each ends, with the same weights on all ranks, near those of a plain training."""
    plain = _trained(*reversed(_hooks()["all_reduce"]))
    for name, (state, hook) in _hooks().items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got = _trained(hook, state)
        for mine, its in zip(got, plain, strict=True):
            assert torch.allclose(mine, its, atol=0.05), name
            other = mine.clone()
            dist.broadcast(other, 1)
            assert torch.equal(other, mine), name


@pytest.mark.parametrize("shared", ["0", "1"])
def test_a_callback_may_post_and_wait(shared: str) -> None:
    run(2, callbacks_wait, OPENMRC_SHARED_MEMORY=shared, OPENMRC_PLANES="1")


def drops(rank: int, n: int) -> None:
    """Groups of their own, made and dropped without a word, as torchft does."""
    import gc

    def held() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    store = dist.distributed_c10d._get_default_store()
    dist.barrier()
    before = held()
    for turn in range(6):
        mine: Any = dist.distributed_c10d.PrefixStore(f"group {turn}", store)
        pg = MrcProcessGroup(mine, rank, n, TIMEOUT)
        x = torch.ones(3)
        last = pg.allreduce(x)
        last.wait()
        assert x.tolist() == [n] * 3
        if turn == 5:
            pg.barrier().wait()
            if rank == 0:
                work = pg.recv([torch.ones(1)], 1, 0)  # keeps the group until it is over
        del pg, last
        gc.collect()
    if rank == 0:
        started = time.monotonic()
        with pytest.raises(dist.DistBackendError, match=r"rank 1 .* has left the job"):
            work.wait()
        assert time.monotonic() - started < KILLED_S
        del work
    until = time.monotonic() + 10
    while held() != before and time.monotonic() < until:
        time.sleep(0.02)
    assert held() == before
    dist.barrier()


def test_a_group_that_is_dropped_is_left() -> None:
    run(2, drops, OPENMRC_SHARED_MEMORY="1")
    run(2, drops, OPENMRC_PLANES="1")
