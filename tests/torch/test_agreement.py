"""Ranks that do not call the same: every rank is told at once what each of them calls."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

pytest.importorskip("torch", reason="the extra openmrc[torch] is not installed")

import torch
import torch.distributed as dist

from openmrc.torch.call import BYTES, Call, told
from tests.torch.ranks import run

AT_ONCE_S = 5.0  # far below the group's timeout, 60 s; the machine may be busy
SMALL, LARGE = 100, 5000  # elements: in a slot, and beyond one
op = dist.ReduceOp
Cases = dict[str, tuple[Callable[[], Any], list[str]]]


def test_a_call_is_told_as_it_was_packed() -> None:
    call = Call("broadcast", torch.bfloat16, root=1, tensors=2, n=400)
    assert len(call.packed()) == BYTES == 16
    assert told(call.packed()) == "broadcast(bfloat16, 2 tensors, 400 bytes, root 1)"
    reduced = Call("all_reduce", torch.int32, int(op.MAX), n=8)
    assert told(reduced.packed()) == "all_reduce(MAX, int32, 8 bytes)"


def _gather(n: int, x: Any) -> Any:
    return dist.all_gather([torch.zeros_like(x) for _ in range(n)], x)


def _scatter(rank: int, n: int, x: Any) -> Any:
    return dist.scatter(x, [x.clone() for _ in range(n)] if rank == 0 else None, 0)


def _cases(rank: int, n: int) -> Cases:
    """What this rank calls, and the words of which all must be in every rank's error."""
    cases = {**_cases_of(SMALL, rank, n), **_cases_of(LARGE, rank, n)}
    cases["a size on each side of the slot"] = (
        lambda: dist.broadcast(torch.ones(SMALL if rank else LARGE), 0),
        ["20000 bytes", "400 bytes"],
    )
    return cases


def _cases_of(size: int, rank: int, n: int) -> Cases:
    first = rank == 0
    x, i = torch.ones(size), torch.ones(size, dtype=torch.int32)
    more = torch.ones(size + first)
    return {
        f"kinds {size}": (
            lambda: dist.all_reduce(x) if first else _gather(n, x),
            ["rank 0 calls all_reduce(SUM, float32", "calls all_gather(float32)"],
        ),
        f"root sends and has returned {size}": (
            lambda: dist.broadcast(x, 0) if first else dist.all_reduce(x),
            ["rank 0 calls broadcast(float32", "calls all_reduce(SUM"],
        ),
        f"types {size}": (
            lambda: dist.all_reduce(x if first else i),
            ["rank 0 calls all_reduce(SUM, float32", "calls all_reduce(SUM, int32"],
        ),
        f"reductions {size}": (
            lambda: dist.all_reduce(x, op.MAX if first else op.SUM),
            ["all_reduce(MAX, float32", "all_reduce(SUM, float32"],
        ),
        f"sizes {size}": (
            lambda: dist.all_reduce(more),
            [f"{4 * size + 4} bytes", f"{4 * size} bytes"],
        ),
        f"roots {size}": (  # both send, both have returned
            lambda: dist.broadcast(x, 0 if first else 1),
            ["root 0)", "root 1)"],
        ),
        f"all receive {size}": (  # no message says anything
            lambda: dist.broadcast(x, 1 if first else 0),
            ["rank 0 calls broadcast", "root 0)", "root 1)"],
        ),
        f"parts {size}": (
            lambda: _gather(n, more),
            [f"{4 * size + 4} bytes", f"{4 * size} bytes"],
        ),
        f"barrier {size}": (
            lambda: dist.barrier() if first else _scatter(rank, n, x),
            ["rank 0 calls barrier()", "calls scatter(float32, root 0)"],
        ),
    }


def _raised(call: Callable[[], Any]) -> str:
    try:
        call()
    except dist.DistBackendError as error:
        return str(error)
    return ""


def disagreements(rank: int, n: int, at_the_call: bool) -> None:
    """Each case in the world, and then its next operation: there whatever has returned raises."""
    if at_the_call:
        dist.set_debug_level(dist.DebugLevel.DETAIL)
    every: Any = dist.new_group(list(range(n)))
    dist.set_debug_level(dist.DebugLevel.OFF)
    world = dist.group.WORLD
    group = every if at_the_call else world
    for name, (call, words) in _cases(rank, n).items():
        started = time.monotonic()
        dist.group.WORLD = group
        texts = [_raised(call), _raised(dist.barrier)]
        if at_the_call:
            assert texts[1] == "", name
        error = texts[0] or texts[1]
        assert error, name
        assert all(word in error for word in words), (name, error)
        assert "all ranks must call the same" in error or "both must pass" in error
        assert time.monotonic() - started < AT_ONCE_S, name
    x = torch.ones(3)
    dist.all_reduce(x)
    assert x.tolist() == [n] * 3
    dist.group.WORLD = world


def between_two(rank: int, n: int) -> None:
    """A message whose ends differ: the sender first, and the receiver first."""
    if rank == 2:
        dist.barrier()
        return
    pg: Any = dist.group.WORLD
    store = dist.distributed_c10d._get_default_store()
    turn = 0
    for sent, received in ((40, 10), (5000, 10), (10, 5000), (9000, 5000)):
        for sender_first in (True, False):
            turn += 1
            started = time.monotonic()
            first = sender_first == (rank == 0)
            if not first:
                store.get(f"posted {turn}")
            x = torch.ones(sent if rank == 0 else received)
            work = pg.send([x], 1, turn) if rank == 0 else pg.recv([x], 0, turn)
            if first:
                store.set(f"posted {turn}", "")
            text = _raised(work.wait)
            if not text:  # a small message has left: its sender's next operation raises
                assert rank == 0
                assert sent == 40 or sent == 10
                text = _raised(pg.recv([torch.ones(1)], 1, 1000 + turn).wait)
            words = f"rank 0 sends {4 * sent} bytes of float32, rank 1 receives {4 * received} by"
            assert words in text, (turn, text)
            assert time.monotonic() - started < AT_ONCE_S
            store.set(f"over {turn} {rank}", "")
            store.get(f"over {turn} {1 - rank}")
    whole = torch.ones(4, dtype=torch.int32)
    text = _raised(lambda: dist.send(torch.ones(4), 1) if rank == 0 else dist.recv(whole, 0))
    text = text or _raised(lambda: pg.recv([torch.ones(1)], 1, 2000).wait())
    assert "rank 0 sends 16 bytes of float32, rank 1 receives 16 bytes of int32" in text, text
    dist.barrier()


def in_a_subgroup(rank: int, n: int) -> None:
    """A group of two of the three; its namesake begins to count anew."""
    for _ in range(2):
        group = dist.new_group([0, 2], use_local_synchronization=True) if rank != 1 else None
        if group is not None:
            text = _raised(partial(dist.all_reduce, torch.ones(3 + rank), group=group))
            assert "rank 0 calls all_reduce(SUM, float32, 12 bytes), rank 2 calls" in text
            x = torch.ones(3)
            dist.all_reduce(x, group=group)
            assert x.tolist() == [2] * 3
            dist.destroy_process_group(group)


def whatever_differs(rank: int, n: int) -> None:
    for at_the_call in (False, True):
        disagreements(rank, n, at_the_call)
    between_two(rank, n)
    in_a_subgroup(rank, n)


@pytest.mark.parametrize("shared", ["0", "1"])
def test_ranks_that_call_different_things_are_told_so(shared: str) -> None:
    run(3, whatever_differs, OPENMRC_SHARED_MEMORY=shared, OPENMRC_PLANES="1")
