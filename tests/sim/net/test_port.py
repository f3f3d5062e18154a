"""An egress port alone: order, times, thresholds; just inside passes, just outside does not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from openmrc.engine.packet import (
    CE,
    CLASS_CONTROL,
    CLASS_DATA,
    CLASS_RETRANSMIT,
    TRIMMED,
    TRIMMED_LASTHOP,
)
from openmrc.fabric.queues import Queues, control_queue_bytes
from tests.sim.bench import PortBench, lose_queue
from tests.sim.lab import clos, stream_world

BYTE = 80  # ps at 100 Gb/s
FULL = 4262
WAY = 750_000  # 500 ns of link and the 250 ns of the switch at its end


def uplink(**queues: float | bool) -> PortBench:
    """The first uplink of the first T0."""
    world = stream_world(clos(planes=1), queues=Queues(**queues))  # type: ignore[arg-type]
    return PortBench(world, int(world.fabric.sw_first_up[0]))


def downlink(**queues: float | bool) -> PortBench:
    """The port of the first T0 that leads to NIC 0."""
    world = stream_world(clos(planes=1), queues=Queues(**queues))  # type: ignore[arg-type]
    return PortBench(world, int(world.fabric.sw_first_down[0]))


Make = Callable[[], PortBench]


def fill(bench: PortBench, n_bytes: int) -> None:
    """Queue exactly so many bytes of data behind a packet under way, in packets of full size and
    one that makes it even.
    """
    bench.offer(FULL, CLASS_DATA)
    while n_bytes > 2 * FULL:
        bench.offer(FULL, CLASS_DATA)
        n_bytes -= FULL
    bench.offer(n_bytes - n_bytes // 2, CLASS_DATA)
    bench.offer(n_bytes // 2, CLASS_DATA)


# --- times and order --------------------------------------------------------------------------


def test_an_idle_port_sends_at_once() -> None:
    bench = uplink()
    n = bench.offer(FULL, CLASS_DATA)
    assert bench.sent == [(n, 0, FULL * BYTE + WAY)]
    assert not bench.record.armed  # one event, its arrival


def test_the_last_hop_has_no_switch_behind_it() -> None:
    bench = downlink()
    n = bench.offer(FULL, CLASS_DATA)
    assert bench.sent == [(n, 0, FULL * BYTE + 500_000)]


@pytest.mark.parametrize("when", [0, 1, FULL * BYTE - 1])
def test_service_is_not_interrupted(when: int) -> None:
    bench = uplink()
    data = bench.offer(FULL, CLASS_DATA)
    bench.now = when
    control = bench.offer(178, CLASS_CONTROL)
    bench.run()
    end = FULL * BYTE
    assert bench.sent == [(data, 0, end + WAY), (control, end, end + 178 * BYTE + WAY)]


def test_a_byte_may_take_a_fraction_of_a_picosecond() -> None:
    bench = uplink()
    bench.kind.rate_bps, bench.kind.byte_ps = 30 * 10**9, 0
    n = bench.offer(FULL, CLASS_DATA)
    assert bench.sent == [(n, 0, FULL * 800 // 3 + WAY)]


def test_a_packet_that_comes_as_the_last_bit_leaves_follows_at_once() -> None:
    bench = uplink()
    bench.offer(FULL, CLASS_DATA)
    bench.now = FULL * BYTE
    n = bench.offer(100, CLASS_DATA)
    assert bench.sent[1] == (n, FULL * BYTE, FULL * BYTE + 100 * BYTE + WAY)


def test_three_strict_classes_each_in_order() -> None:
    bench = uplink()
    bench.offer(FULL, CLASS_DATA)
    data = [bench.offer(FULL, CLASS_DATA) for _ in range(3)]
    again = [bench.offer(FULL, CLASS_RETRANSMIT) for _ in range(3)]
    control = [bench.offer(178, CLASS_CONTROL) for _ in range(3)]
    late = []
    order = [bench.over() for _ in range(4)]
    late.append(bench.offer(178, CLASS_CONTROL))  # while a retransmission is on the wire
    order += [bench.over()]
    late.append(bench.offer(FULL, CLASS_RETRANSMIT))
    order += bench.run()
    assert order == [*control, again[0], late[0], again[1], again[2], late[1], *data]


def test_a_busy_port_never_rests_and_never_overlaps() -> None:
    bench = uplink()
    sizes = [FULL, 178, 500, 166, FULL, 1000]
    for i, size in enumerate(sizes):
        bench.offer(size, (CLASS_DATA, CLASS_CONTROL, CLASS_RETRANSMIT)[i % 3])
    bench.run()
    starts = [start for _, start, _ in bench.sent]
    ends = [arrival - WAY for _, _, arrival in bench.sent]
    assert starts == [0, *ends[:-1]]
    assert ends[-1] == sum(sizes) * BYTE


# --- limits -----------------------------------------------------------------------------------


def test_limits_are_one_bdp_and_one_and_a_half_on_the_last_hop() -> None:
    assert uplink().kind.queue_bytes == 21 * FULL
    assert downlink().kind.queue_bytes == 31 * FULL


@pytest.mark.parametrize("make", [uplink, downlink])
def test_data_fills_its_limit_to_the_byte(make: Make) -> None:
    bench = make()
    fill(bench, int(bench.kind.queue_bytes))
    assert bench.record.data_queued_bytes == bench.kind.queue_bytes
    assert bench.net.ctl[0].trimmed == 0


@pytest.mark.parametrize(("make", "mark"), [(uplink, TRIMMED), (downlink, TRIMMED_LASTHOP)])
def test_one_byte_more_is_trimmed(make: Make, mark: int) -> None:
    bench = make()
    fill(bench, int(bench.kind.queue_bytes) - 99)
    n = bench.offer(100, CLASS_DATA)
    net = bench.net
    assert net.ctl[0].trimmed == 1
    assert bench.record.control_queued_bytes == 166
    header = int(bench.record.head[CLASS_CONTROL])
    assert net.hop[header].frame_bytes == 166  # row 21
    assert net.hop[header].marks == mark
    assert net.hop[header].tag == -1
    assert bench.over() == header  # a header overtakes all data
    assert bench.record.data_queued_bytes <= bench.kind.queue_bytes
    assert n >= 0


def test_the_arriving_or_the_last_queued_packet_is_cut_by_a_coin() -> None:
    bench = uplink()
    fill(bench, int(bench.kind.queue_bytes))
    size = int(bench.net.hop[int(bench.record.tail[CLASS_DATA])].frame_bytes)
    stays = 0
    for name in range(1, 401):
        bench.offer(size, CLASS_DATA, name=name)
        stays += int(bench.net.hop[int(bench.record.tail[CLASS_DATA])].dst) == name
    assert bench.net.ctl[0].trimmed == 400
    assert bench.record.data_queued_bytes == bench.kind.queue_bytes
    assert stays == pytest.approx(200, abs=40)  # four sigmas of 400 coins


def test_a_packet_displaces_none_that_leaves_it_too_little_room() -> None:
    bench = uplink()
    fill(bench, int(bench.kind.queue_bytes))
    for _ in range(100):
        bench.offer(FULL + 1, CLASS_DATA, name=1)
    assert bench.net.ctl[0].trimmed == 100
    assert bench.net.hop[int(bench.record.tail[CLASS_DATA])].dst == 0


def test_what_may_not_be_trimmed_is_dropped_and_counted() -> None:
    for bench, trimmable in ((uplink(), False), (uplink(), True)):
        fill(bench, int(bench.kind.queue_bytes))
        bench.offer(100, CLASS_RETRANSMIT, trimmable=trimmable)
        c = bench.net.ctl[0]
        assert (c.trimmed, c.dropped_queue) == ((1, 0) if trimmable else (0, 1))


def test_control_has_its_own_limit_to_the_byte() -> None:
    bench = uplink()
    bench.offer(FULL, CLASS_DATA)
    limit = int(bench.kind.control_queue_bytes)
    assert limit == 65_536
    for _ in range(limit // 178):
        bench.offer(178, CLASS_CONTROL)
    bench.offer(limit % 178, CLASS_CONTROL)
    c = bench.net.ctl[0]
    assert (bench.record.control_queued_bytes, c.dropped_control) == (limit, 0)
    bench.offer(1, CLASS_CONTROL)
    assert (bench.record.control_queued_bytes, c.dropped_control) == (limit, 1)
    bench.over()  # one leaves, and one fits again
    bench.offer(178, CLASS_CONTROL)
    assert (bench.record.control_queued_bytes, c.dropped_control) == (limit, 1)


def test_a_header_that_finds_the_control_class_full_is_dropped() -> None:
    bench = uplink()
    fill(bench, int(bench.kind.queue_bytes))
    for _ in range(65_536 // 512):
        bench.offer(512, CLASS_CONTROL)
    bench.offer(FULL, CLASS_DATA)
    c = bench.net.ctl[0]
    assert (c.trimmed, c.dropped_control, c.dropped_queue) == (1, 1, 0)


def test_the_control_limit_holds_the_headers_of_all_line_rate_starts() -> None:
    """1.5 BDP of a port from each sender (row 15)."""
    from openmrc.workload.patterns import incast
    from tests.sim.lab import world_of

    fabric = clos(nics=301, planes=1, down=301, up=1)
    for n in (60, 300):
        d = world_of(fabric, incast(301, n, 1000)).derived()
        packets = -(-3 * d["base_rtt_ps"] // (2 * BYTE * FULL))
        assert packets > 10
        assert d["control_queue_bytes"] == 256 * n * packets > 65_536


@pytest.mark.parametrize(
    ("senders", "packets", "limit"),
    [(8, 32, 65_536), (9, 32, 73_728), (256, 32, 2**21), (257, 32, 2**21), (8193, 32, 2_097_408)],
)
def test_the_control_limit_at_its_bounds(senders: int, packets: int, limit: int) -> None:
    assert control_queue_bytes(senders, packets) == limit
    assert control_queue_bytes(senders) == max(65_536, 256 * senders)  # where nothing is trimmed


def test_a_flushed_port_loses_all_it_holds() -> None:
    bench = uplink()
    for klass in (CLASS_DATA, CLASS_RETRANSMIT, CLASS_CONTROL, CLASS_DATA, CLASS_CONTROL):
        bench.offer(200, klass)
    lose_queue(bench.net, bench.number)
    assert bench.net.ctl[0].dropped_fault == 4  # the first was on the wire
    assert (bench.record.data_queued_bytes, bench.record.control_queued_bytes) == (0, 0)
    assert bench.over() == -1


# --- marks ------------------------------------------------------------------------------------


def marks_of(bench: PortBench, left: int, heads: int = 300) -> list[bool]:
    """Which of `heads` packets of 1 B are marked; the last of them leaves `left` bytes behind."""
    bench.offer(FULL, CLASS_DATA)
    for _ in range(heads):
        bench.offer(1, CLASS_DATA)
    while left > 2 * FULL:
        bench.offer(FULL, CLASS_DATA)
        left -= FULL
    bench.offer(left, CLASS_DATA)
    return [bool(bench.net.hop[bench.over()].marks & CE) for _ in range(heads)]


def test_marks_begin_above_the_lower_threshold() -> None:
    assert uplink().kind.ecn_low_bytes == 5 * FULL
    assert not any(marks_of(uplink(), 5 * FULL - 299))
    one_byte_wide = uplink()
    one_byte_wide.kind.ecn_high_bytes = 5 * FULL + 1
    assert marks_of(one_byte_wide, 5 * FULL - 150) == [True] * 149 + [False] * 151


def test_everything_is_marked_from_the_upper_threshold_on() -> None:
    assert uplink().kind.ecn_high_bytes == 17 * FULL
    assert all(marks_of(uplink(), 17 * FULL))
    assert not all(marks_of(uplink(), 17 * FULL - 20_000))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_between_the_thresholds_the_chance_grows_in_proportion(share: float) -> None:
    marks = marks_of(uplink(), int((5 + 12 * share) * FULL) - 500, heads=1000)
    sigma = np.sqrt(share * (1 - share) / 1000)
    assert np.mean(marks) == pytest.approx(share, abs=4 * sigma + 0.01)


def test_the_last_hop_marks_nothing_unless_asked() -> None:
    assert not any(marks_of(downlink(), 25 * FULL))
    assert all(marks_of(downlink(ecn_last_hop=True), 25 * FULL))


def test_control_is_never_marked_and_retransmissions_are() -> None:
    for klass, marked in ((CLASS_CONTROL, False), (CLASS_RETRANSMIT, True)):
        bench = uplink()
        bench.offer(FULL, CLASS_DATA)
        n = bench.offer(100, klass)
        fill(bench, 18 * FULL)
        assert bench.over() == n
        assert bool(bench.net.hop[n].marks & CE) == marked
        assert bench.net.ctl[0].ecn_marked == marked


def test_an_idle_port_marks_nothing() -> None:
    bench = uplink(ecn_low=0.0, ecn_high=0.0)
    n = bench.offer(FULL, CLASS_DATA)
    assert bench.net.hop[n].marks == 0


def test_thresholds_follow_the_option() -> None:
    bench = uplink(ecn_low=0.1, ecn_high=0.5)
    assert (bench.kind.ecn_low_bytes, bench.kind.ecn_high_bytes) == (3 * FULL, 11 * FULL)
