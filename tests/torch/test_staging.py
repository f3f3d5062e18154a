"""Tensors of a GPU are staged in the right order, whatever order copies and messages come in.

The GPU is the stand-in: its streams do nothing until they are told to. Two ranks live in this
thread, and a drawn schedule says which stream or rank does the next piece of work.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pytest

pytest.importorskip("torch", reason="the extra openmrc[torch] is not installed")

import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.errors import InputError
from openmrc.torch import streams
from openmrc.torch.collectives import Collectives
from openmrc.torch.progress import Progress
from openmrc.torch.shared import WORDS_BYTES, Bell, Ring, Shared
from openmrc.torch.span import Whole
from openmrc.torch.staging import Staged, Staging
from openmrc.torch.work import MrcWork
from tests.torch.ranks import run
from tests.torch.stand_in import DEVICE, Event, Gpu

RING_BYTES = 1 << 14  # large messages come in pieces
SUM, AVG = dist.ReduceOp.SUM, dist.ReduceOp.AVG
Checks = list[tuple[str, torch.Tensor, torch.Tensor]]  # name, found, wanted


class World:
    """What `Collectives` asks of one."""

    closed = False

    def __init__(self, progress: Progress) -> None:
        self.progress = progress

    def turn_of(self, members: Sequence[int]) -> int:
        """There is one group."""
        return 0


class Rank:
    """A rank with a GPU; no thread of its own."""

    def __init__(self, me: int, pair: Shared) -> None:
        self.me = me
        self.gpu: Any = Gpu()  # a door whose streams are of its own kind
        self.progress = Progress(me, range(2))
        self.progress.staging = Staging(cast(Any, self.gpu), self.progress.running.over)
        self.progress.pairs[1 - me] = pair
        self.progress._shared = [pair]
        self.calls = Collectives(World(self.progress), "g", [0, 1], me, 60.0)  # type: ignore[arg-type]  # what it uses of a world

    def late(self, value: torch.Tensor) -> torch.Tensor:
        """A tensor that has its value once the current stream has come so far."""
        x = self.gpu.tensor(torch.full_like(value, 55))
        self.gpu.do(lambda: x.copy_(value))
        return x

    def look(self, checks: Checks) -> None:
        """Compare in the current stream; then the tensors serve another purpose."""

        def work() -> None:
            for name, found, want in checks:
                if not torch.equal(found, want):
                    self.gpu.wrong.append(f"{name} at rank {self.me}: {found}, not {want}")
                found.fill_(99)

        self.gpu.do(work)


class Two:
    """Both ranks, and a schedule: numbers of what does the next piece of work."""

    def __init__(self, schedule: Sequence[int] = ()) -> None:
        self._bells = [Bell(), Bell()]
        memory = [memoryview(bytearray(WORDS_BYTES + RING_BYTES)) for _ in range(2)]
        fence = threading.Lock()
        self.ranks = []
        for me in range(2):
            out, into = Ring(memory[me], fence), Ring(memory[1 - me], fence)
            pair = Shared(1 - me, out, into, self._bells[me], self._bells[1 - me].name)
            self.ranks.append(Rank(me, pair))
        self._schedule = iter(schedule)

    def close(self) -> None:
        """Close what is open."""
        for rank in self.ranks:
            rank.progress.stop()
        for bell in self._bells:
            bell.close()

    def _actors(self) -> list[Callable[[], object]]:
        steps: list[Callable[[], object]] = [rank.progress._try for rank in self.ranks]
        return steps + [one.go_on for rank in self.ranks for one in rank.gpu.streams]

    def some(self) -> None:
        """A few pieces of work, as drawn."""
        for number in self._schedule:
            if number == 0:
                return
            actors = self._actors()
            actors[number % len(actors)]()

    def until(self, works: Sequence[MrcWork]) -> None:
        """Go on as drawn, and then in turn, until operations are over at the host."""
        self.some()
        for _ in range(10_000):
            if all(work.is_completed() for work in works):
                return
            for act in self._actors():
                act()
        raise TimeoutError("operations do not end")


Case = Callable[[Rank, list[torch.Tensor]], tuple[MrcWork, Checks]]


def _all_reduce(rank: Rank, parts: list[torch.Tensor]) -> tuple[MrcWork, Checks]:
    x = rank.late(parts[rank.me])
    return rank.calls.all_reduce([x], SUM), [("all_reduce", x, parts[0] + parts[1])]


def _average(rank: Rank, parts: list[torch.Tensor]) -> tuple[MrcWork, Checks]:
    x = rank.late(parts[rank.me])
    return rank.calls.all_reduce([x], AVG), [("average", x, (parts[0] + parts[1]) / 2)]


def _strides(rank: Rank, parts: list[torch.Tensor]) -> tuple[MrcWork, Checks]:
    of = [part.view(2, -1).t() for part in parts]
    x = rank.late(of[rank.me])
    return rank.calls.all_reduce([x], SUM), [("in strides", x, of[0] + of[1])]


def _reduce(rank: Rank, parts: list[torch.Tensor]) -> tuple[MrcWork, Checks]:
    x = rank.late(parts[rank.me])
    want = parts[0] + parts[1] if rank.me == 1 else parts[0]
    return rank.calls.reduce(x, SUM, 1), [("reduce", x, want)]


def _broadcast(rank: Rank, parts: list[torch.Tensor]) -> tuple[MrcWork, Checks]:
    x = rank.late(parts[rank.me])

    def read() -> None:
        if not torch.equal(x, parts[rank.me]):
            rank.gpu.wrong.append("the broadcast overwrote what earlier work reads")

    rank.gpu.do(read)
    work = rank.calls.broadcast([x], 1)
    return work, [("broadcast", x, parts[1])]


def _all_gather(rank: Rank, parts: list[torch.Tensor]) -> tuple[MrcWork, Checks]:
    whole = rank.late(torch.zeros(2 * len(parts[0])))
    work = rank.calls.all_gather([Whole(whole, [len(parts[0])] * 2)], [rank.late(parts[rank.me])])
    return work, [("all_gather", whole, torch.cat(parts))]


def _reduce_scatter(rank: Rank, parts: list[torch.Tensor]) -> tuple[MrcWork, Checks]:
    x = rank.late(torch.zeros_like(parts[0]))
    work = rank.calls.reduce_scatter([x], [[rank.late(part + rank.me) for part in parts]], SUM)
    return work, [("reduce_scatter", x, 2 * parts[rank.me] + 1)]


def _all_to_all(rank: Rank, parts: list[torch.Tensor]) -> tuple[MrcWork, Checks]:
    found = [rank.late(torch.zeros_like(part)) for part in parts]
    work = rank.calls.all_to_all(found, [rank.late(parts[rank.me] + r) for r in range(2)])
    return work, [("all_to_all", found[r], parts[r] + rank.me) for r in range(2)]


def _message(rank: Rank, parts: list[torch.Tensor]) -> tuple[MrcWork, Checks]:
    x = rank.late(parts[rank.me])
    if rank.me == 0:
        return rank.calls.send(x, 1, 3), [("send", x, parts[0])]
    return rank.calls.receive(x, 0, 3), [("receive", x, parts[0])]


CASES: list[Case] = [
    _all_reduce,
    _average,
    _strides,
    _reduce,
    _broadcast,
    _all_gather,
    _reduce_scatter,
    _all_to_all,
    _message,
]
SIZES = (2, 600, 80_000)  # elements; the last is beyond `EAGER`


@dataclass(frozen=True)
class Call:
    """One collective at both ranks; `waits`: before the next one is posted; `looks`: at its values,
    where otherwise the tensors are dropped after waiting.
    """

    case: Case
    count: int
    waits: bool
    looks: bool


def play(calls: Sequence[Call], schedule: Sequence[int]) -> None:
    """Post and wait as a script does, and fail if any value or order is wrong."""
    two = Two(schedule)
    gc.freeze()  # so that only what is made here is looked through
    try:
        posted: list[tuple[Rank, MrcWork, Checks]] = []

        def wait() -> None:
            two.until([work for _, work, _ in posted])
            for rank, work, checks in posted:
                work.wait()
                if checks:
                    rank.look(checks)
            posted.clear()

        for number, call in enumerate(calls):
            parts = [torch.arange(call.count) % 97.0 + number + 10 * r for r in range(2)]
            for rank in two.ranks:
                work, checks = call.case(rank, parts)
                posted.append((rank, work, checks if call.looks else []))
                del work, checks
                two.some()
            if call.waits:
                wait()
                gc.collect()  # what is dropped is freed now, however busy the collector is
        wait()
        gc.collect()
        for rank in two.ranks:
            rank.gpu.finish()
    finally:
        gc.unfreeze()
        two.close()


some_calls = st.lists(
    st.builds(Call, st.sampled_from(CASES), st.sampled_from(SIZES), st.booleans(), st.booleans()),
    min_size=1,
    max_size=5,
)
schedules = st.lists(st.integers(0, 20), max_size=120)


@settings(max_examples=40)
@given(some_calls, schedules)
def test_whatever_order_work_is_done_in(calls: list[Call], schedule: list[int]) -> None:
    play(calls, schedule)


EACH = [
    Call(case, count, waits, looks)
    for waits, looks in ((False, True), (True, False))
    for case in CASES
    for count in SIZES
]


# What is in turn (2, 3 and 4 are streams of rank 0's GPU: the current one, to and from the host):
# nothing, all, all but one stream, and only messages.
SCHEDULES: list[list[int]] = [
    [],
    [8, 1, 2, 3, 4, 5, 6, 7] * 3 + [0],
    *([n for n in (8, 1, 2, 3, 4, 5, 6, 7) if n != late] * 3 + [0] for late in range(2, 8)),
    [8, 1, 8, 1, 0],
]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_collective_while_a_stream_is_late(schedule: list[int]) -> None:
    play(EACH, schedule * 100)


def test_pinned_memory_is_used_again_once_its_copies_are_over() -> None:
    gpu: Any = Gpu()
    one = Staging(gpu, lambda t: None)
    span = Staged(one, gpu.tensor(torch.ones(4)))
    first = span.memory.data_ptr()
    span.put()
    one.leave([span])
    early = one.pinned(16)
    assert early.data_ptr() != first  # its copy has not come
    gpu.finish()
    assert one.pinned(16).data_ptr() == first


def test_a_graph_that_is_recorded_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(InputError, match="call it outside of the graph"):
        streams.Cuda().current(DEVICE)


# --- wrong orders: each must be found


def _at_once(at: pytest.MonkeyPatch, name: str) -> None:
    """A copy does not wait for the work before the posting."""
    original = getattr(Staged, name)

    def hasty(span: Any, *given: Any) -> Any:
        posted, span._posted = span._posted, Event(span._staging.door)
        span._posted.is_over = True
        told = original(span, *given)
        span._posted = posted
        return told

    at.setattr(Staged, name, hasty)


def _reads_early(at: pytest.MonkeyPatch) -> None:
    """The copy to the host goes before the work before the posting."""
    _at_once(at, "arrive")


def _overwrites(at: pytest.MonkeyPatch) -> None:
    """The copy back goes before the work before the posting."""
    _at_once(at, "put")


def _begins_early(at: pytest.MonkeyPatch) -> None:
    """The strand does not wait for the copy to the host."""
    arrive = Staged.arrive
    at.setattr(Staged, "arrive", lambda *given: arrive(*given)[:0])


def _does_not_wait(at: pytest.MonkeyPatch) -> None:
    """The current stream does not wait for the copy back."""
    wait = MrcWork.wait

    def hasty(work: MrcWork, timeout: Any = None) -> bool:
        work.left = {}
        return wait(work, timeout)

    at.setattr(MrcWork, "wait", hasty)


def _frees(at: pytest.MonkeyPatch) -> None:
    """Nothing holds a tensor's memory for a copy."""
    at.setattr(Gpu, "keep", lambda *given: None)


def _reuses(at: pytest.MonkeyPatch) -> None:
    """Pinned memory is used again while a copy back still reads it."""
    leave = Staging.leave

    def hasty(one: Staging, spans: Any) -> Any:
        events = leave(one, spans)
        for free in one._free.values():
            free.extend([(memory, ()) for memory, _ in (free.popleft() for _ in range(len(free)))])
        return events

    at.setattr(Staging, "leave", hasty)


WRONG = [_reads_early, _begins_early, _overwrites, _does_not_wait, _frees, _reuses]


@pytest.mark.parametrize("plant", WRONG)
def test_a_wrong_order_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    few = [call for call in EACH if call.count < max(SIZES)]
    assert any(_is_wrong(few, schedule * 100) for schedule in SCHEDULES)


def _is_wrong(calls: Sequence[Call], schedule: Sequence[int]) -> bool:
    try:
        play(calls, schedule)
    except AssertionError:
        return True
    return False


# --- with threads and processes

GPU: Any = Gpu()


def _with_a_gpu() -> None:
    streams.door = GPU


def _script(rank: int, n: int) -> None:
    """Through torch.distributed, on the default group."""
    GPU.at_random(rank)
    checks: Checks = []

    def late(value: torch.Tensor) -> torch.Tensor:
        x = GPU.tensor(torch.full_like(value, 55))
        GPU.do(lambda: x.copy_(value))
        return x

    for count in (1, 1000, 300_001):
        x = late(torch.full((count,), float(rank)))
        dist.all_reduce(x)
        checks.append(("all_reduce", x, torch.full((count,), n * (n - 1) / 2)))
        parts = [late(torch.zeros(count)) for _ in range(n)]
        dist.all_gather(parts, late(torch.full((count,), float(rank))))
        checks += [("all_gather", p, torch.full((count,), float(r))) for r, p in enumerate(parts)]
    with dist._coalescing_manager():
        several = [late(torch.full((k + 1,), 1.0)) for k in range(3)]
        for x in several:
            dist.all_reduce(x)
    checks += [("coalesced", x, torch.full_like(x, n)) for x in several]
    objects: list[Any] = [None] * n
    dist.all_gather_object(objects, rank)
    assert objects == list(range(n))
    x = late(torch.ones(5))
    future = dist.all_reduce(x, async_op=True).get_future().then(lambda f: f.value())
    future.wait()

    def compare() -> None:
        GPU.wrong.extend(name for name, found, want in checks if not torch.equal(found, want))

    GPU.do(compare)
    GPU.finish()


def test_a_script_on_threads() -> None:
    run(2, _script, before=_with_a_gpu, OPENMRC_SHARED_MEMORY="1")
