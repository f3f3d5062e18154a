"""Ranks that do not call the same: every rank is told at once what each of them calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="the extra openmrc[torch] is not installed")

import torch
import torch.distributed as dist

from openmrc.torch.agreement import SENT
from openmrc.torch.algorithms import Context, all_gather, barrier
from openmrc.torch.call import BYTES, Call, told
from openmrc.torch.operation import Operation
from openmrc.torch.pair import DATA, EAGER, REFUSED, Header, Key
from openmrc.torch.progress import Progress
from tests.torch.ranks import run

AT_ONCE_S = 20.0  # far below the group's timeout, 60 s; the machine may be busy
SMALL, LARGE = 100, 70_000  # elements: sent unasked, and not
op = dist.ReduceOp
Cases = dict[str, tuple[Callable[[], Any], list[str]]]


def test_a_call_is_told_as_it_was_packed() -> None:
    call = Call("broadcast", torch.bfloat16, root=1, tensors=2, n=400)
    assert len(call.packed()) == BYTES == 16
    assert told(call.packed()) == "broadcast(bfloat16, 2 tensors, 400 bytes, root 1)"
    reduced = Call("all_reduce", torch.int32, int(op.MAX), n=8)
    assert told(reduced.packed()) == "all_reduce(MAX, int32, 8 bytes)"


class Silent:
    """A pair to a peer, of which the test itself is the other end; it keeps what is sent."""

    behind, full, eager = False, False, EAGER

    def __init__(self) -> None:
        self.sent: list[Header] = []

    def send(self, header: Header, data: Any = None) -> None:
        """Keep the header."""
        self.sent.append(header)


@pytest.fixture
def progress() -> Iterator[Progress]:
    """That of rank 1 of 3."""
    one = Progress(1, range(3))
    one.pairs.update({0: Silent(), 2: Silent()})  # type: ignore[dict-item]  # what it uses of them
    yield one
    one.stop()


def _operation(progress: Progress, seq: int, kind: str, strand: Callable[[Context], Any]) -> Any:
    """One of group 9, begun at rank 1."""
    op = Operation(f"{kind} of group '0'", range(3), 60.0, Call(kind).packed(), 9, seq)
    op.strands = [strand(Context(progress, op, range(3), 1, 9, seq))]
    progress.post(op)
    return op


def test_what_fails_in_the_middle_of_a_step_is_written_to_no_more(progress: Progress) -> None:
    """Rank 0's part, of another size, is here before rank 1 calls; rank 2's, which fits, after."""
    call, key = Call("all_gather").packed(), Key(9, 0, 0, 0)
    progress.matching.on_header(0, Header(DATA, key, 12, call=call), np.ones(12, np.uint8))
    parts = [np.zeros(8, np.uint8) for _ in range(3)]
    op = _operation(progress, 0, "all_gather", lambda c: all_gather(c, parts[1], parts))
    assert "rank 0 sends 12 bytes, rank 1 receives 8 bytes" in str(op.error)
    progress.matching.on_header(2, Header(DATA, key, 8, call=call), np.ones(8, np.uint8))
    assert [part.sum() for part in parts] == [0, 0, 0]  # by now their memory may be another's
    assert not op.live
    assert not progress.matching._expected


def test_what_fails_for_another_operation_is_not_told_as_its_own(progress: Progress) -> None:
    """Operation 0 has returned here and is refused: that fails 1 here, and nothing at a rank where
    1 is over, for that rank is told of 0 itself.
    """
    call = Call("all_gather").packed()
    parts = [np.zeros(8, np.uint8) for _ in range(3)]
    for peer in (0, 2):
        header = Header(DATA, Key(9, 0, 0, 0), 8, call=call)
        progress.matching.on_header(peer, header, np.ones(8, np.uint8))
    first = _operation(progress, 0, "all_gather", lambda c: all_gather(c, parts[1], parts))
    assert first.over
    second = _operation(progress, 1, "barrier", barrier)
    assert not second.over
    words = np.frombuffer(b"they differ", np.uint8)
    progress.matching.on_header(0, Header(REFUSED, Key(9, 0, 0, 0), len(words), number=SENT), words)
    assert str(second.error) == "they differ"
    pairs: Any = progress.pairs
    told = [h for pair in pairs.values() for h in pair.sent if h.kind == REFUSED]
    assert [h.key.seq for h in told] == [1, 1]
    assert all(h.number != SENT for h in told)


def _gather(n: int, x: Any) -> Any:
    return dist.all_gather([torch.zeros_like(x) for _ in range(n)], x)


def _scatter(rank: int, n: int, x: Any) -> Any:
    return dist.scatter(x, [x.clone() for _ in range(n)] if rank == 0 else None, 0)


def _cases(rank: int, n: int) -> Cases:
    """What this rank calls, and the words of which all must be in every rank's error."""
    cases = {**_cases_of(SMALL, rank, n), **_cases_of(LARGE, rank, n)}
    cases["a size on each side of the limit"] = (
        lambda: dist.broadcast(torch.ones(SMALL if rank else LARGE), 0),
        ["80000 bytes", "400 bytes"],
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
    for sent, received in ((40, 10), (80_000, 10), (10, 80_000), (90_000, 80_000)):
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
                assert 4 * sent <= EAGER
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
