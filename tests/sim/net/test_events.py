"""The queue of events against a plain sorted list: any order, any bursts, at any time scale."""

from __future__ import annotations

from bisect import insort

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.sim.net import events
from openmrc.sim.net import state as ss
from openmrc.sim.net.events import SHORT
from openmrc.sim.world import World
from tests.sim.bench import HEAP, TAKE, WHEEL, play_events
from tests.sim.lab import MS, US, all_complete, bins, clos, stream_world

Operation = tuple[int, int, int]


def empty_world() -> World:
    """Nothing is scheduled in it; its packets serve as events."""
    return stream_world(clos(nics=2, planes=1, down=1, up=1))


def span_ps(world: World) -> int:
    """The wheel takes events up to this far away."""
    c = world.net.ctl[0]
    return (int(c.bucket_mask) - 1) << int(c.shift)


class Model:
    """Sorted by time; a heap entry before the wheel's; entries by kind and number, packets by the
    order in which they were scheduled.
    """

    def __init__(self) -> None:
        self.now = 0
        self.events: list[tuple[int, int, int, int]] = []  # at, is of the wheel, order, what
        self.scheduled = 0

    def play(self, operations: list[Operation]) -> list[list[int]]:
        taken = []
        for kind, first, delay in operations:
            if kind == WHEEL:
                self.scheduled += 1
                insort(self.events, (self.now + delay, 1, self.scheduled, first))
            elif kind == HEAP:
                what = (first // 1000) << events.KIND_SHIFT | first % 1000
                insort(self.events, (self.now + delay, 0, what, -1 - what))
            else:
                self.now, _, _, what = self.events.pop(0)
                taken.append([self.now, what])
        return taken


@st.composite
def histories(draw: st.DrawFn) -> list[Operation]:
    """Schedulings and takings in which no more is taken than was scheduled, and each event of the
    wheel is pending once.
    """
    span = span_ps(empty_world())
    # few different delays, so that bursts at one instant and equal times are common
    delays = st.one_of(
        st.sampled_from([0, 1, 340_960, 341_000, 750_000, span - 1]), st.integers(0, span - 1)
    )
    far = st.one_of(st.sampled_from([0, 340_960, 100 * MS]), st.integers(0, 3 * span))
    operations: list[Operation] = []
    node = pending = 0
    for kind in draw(st.lists(st.sampled_from([WHEEL, WHEEL, HEAP, TAKE, TAKE]), max_size=200)):
        if kind == WHEEL:
            operations.append((WHEEL, node, draw(delays)))
            node += 1
        elif kind == HEAP:
            operations.append((HEAP, draw(st.integers(0, 4999)), draw(far)))
        elif pending:
            operations.append((TAKE, 0, 0))
        pending += (kind != TAKE) - (kind == TAKE and pending > 0)
    return operations + [(TAKE, 0, 0)] * pending


@settings(max_examples=150)
@given(histories())
def test_events_come_as_from_a_sorted_list(operations: list[Operation]) -> None:
    assert play_events(empty_world(), operations).tolist() == Model().play(operations)


def compare(operations: list[Operation]) -> None:
    assert play_events(empty_world(), operations).tolist() == Model().play(operations)


def test_a_burst_at_one_instant_keeps_its_order() -> None:
    burst = [(WHEEL, n, 340_960) for n in range(3000)]
    compare(burst + [(TAKE, 0, 0)] * 3000)


def test_a_burst_while_its_bucket_is_open() -> None:
    into_open = [
        operation for n in range(1500) for operation in ((TAKE, 0, 0), (WHEEL, 1500 + n, 0))
    ]
    burst = [(WHEEL, n, 340_960) for n in range(1500)]
    compare(burst + into_open + [(TAKE, 0, 0)] * 1500)


@pytest.mark.parametrize("n", [2, SHORT, SHORT + 1, 1000])
def test_a_bucket_filled_backwards_is_put_in_order(n: int) -> None:
    backwards = [(WHEEL, k, 340_960 + 1000 - k) for k in range(n)]
    compare(backwards + [(TAKE, 0, 0)] * n)


@pytest.mark.parametrize("n", [3, SHORT, SHORT + 1])
def test_equal_times_of_two_lists_keep_their_order(n: int) -> None:
    lists = [(WHEEL, k, 340_960 + 10 * (k % (n // 2))) for k in range(n)]
    compare(lists + [(TAKE, 0, 0)] * n)


def test_the_heap_may_come_before_a_bucket_that_is_open_already() -> None:
    """The wheel was asked for its next event, far away; then an entry of the heap comes first, and
    schedules something in between.
    """
    span = span_ps(empty_world())
    compare(
        [
            (WHEEL, 0, span - 1),
            (HEAP, 1, 1000),
            (TAKE, 0, 0),
            (WHEEL, 1, 5),
            (WHEEL, 2, span - 1),
            (HEAP, 2, 5),
            *([(TAKE, 0, 0)] * 4),
        ]
    )


def test_the_wheel_turns_many_times() -> None:
    span = span_ps(empty_world())
    operations = [(WHEEL, 0, span - 1)]
    for n in range(1, 500):
        operations += [(TAKE, 0, 0), (WHEEL, n, span - 1 - n)]
    compare([*operations, (TAKE, 0, 0)])


def test_an_empty_wheel_after_a_long_silence() -> None:
    operations = [(HEAP, 0, 10**15), (TAKE, 0, 0), (WHEEL, 0, 7), (TAKE, 0, 0)]
    compare([*operations, (HEAP, 0, 10**15), (TAKE, 0, 0), (WHEEL, 1, 7), (TAKE, 0, 0)])


# --- room -------------------------------------------------------------------------------------


def test_the_pool_of_packets_grows_without_a_trace() -> None:
    """The same run with room for all packets at once and with hardly any."""
    plain = all_complete(stream_world(size=3_000_000))
    tight = stream_world(size=3_000_000)
    net, keep = tight.net, 1100  # little more than one event may need
    net.hop.next[keep - 2] = -1
    net.ctl[0].n_free = net.ctl[0].n_packets = keep - 1
    tight.net = net._replace(hop=net.hop[:keep].copy(), packet=net.packet[:keep].copy())
    all_complete(tight)
    assert len(tight.net.hop) > keep
    assert tight.flows()["done_ps"].tolist() == plain.flows()["done_ps"].tolist()
    assert tight.counters() == plain.counters()


def test_the_heap_grows_without_a_trace() -> None:
    plain = all_complete(stream_world(size=3_000_000))
    tight = stream_world(size=3_000_000)
    tight.net = tight.net._replace(heap=tight.net.heap[:2].copy())
    all_complete(tight)
    assert tight.flows()["done_ps"].tolist() == plain.flows()["done_ps"].tolist()
    assert tight.counters() == plain.counters()


def test_a_coarser_timeline_keeps_its_sums() -> None:
    fine = stream_world(stop=1 * MS)
    fine.run()
    coarse = stream_world(stop=1 * MS)
    coarse.net = coarse.net._replace(
        timeline=np.zeros((16, ss.BIN_COLUMNS), np.int64), rate=np.zeros((16, 1), np.int64)
    )
    coarse.run()
    assert coarse.bin_ps == 80 * US  # 16 bins of 10 us, doubled until 1 ms fits
    t = coarse.timeline()
    for n, at in enumerate(t["t_ps"].tolist()):
        width = min(80 * US, 1010 * US - at)
        assert t["goodput_bytes"][n] == bins(fine, at, at + width).sum()
    assert t["goodput_bytes"].sum() == fine.timeline()["goodput_bytes"].sum()
    assert coarse.placed()["flow"][:, 0].tolist() == t["goodput_bytes"].tolist()
    assert coarse.counters() == fine.counters()


def test_an_event_for_the_open_bucket_after_a_long_silence() -> None:
    operations = [(HEAP, 0, 10**15), (TAKE, 0, 0), (WHEEL, 0, 0), (WHEEL, 1, 1), (TAKE, 0, 0)]
    compare([*operations, (WHEEL, 2, 0), (TAKE, 0, 0), (TAKE, 0, 0)])


@pytest.mark.parametrize("stop_us", [9, 10, 11, 20])
def test_a_timeline_ends_with_the_run(stop_us: int) -> None:
    world = stream_world(stop=stop_us * US)
    world.run()
    t = world.timeline()
    assert t["t_ps"].tolist() == [10 * US * n for n in range(stop_us // 10 + 1)]
    assert t["goodput_bytes"].sum() == world.bytes_verified
