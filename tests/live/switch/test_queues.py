"""Egress ports of live switches: classes, service, marks, trims, limits; time given by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from openmrc.engine.packet import (
    CE,
    CLASS_CONTROL,
    CLASS_DATA,
    CLASS_RETRANSMIT,
    NO_TRIM,
    RTX,
    TRIMMED,
    TRIMMED_LASTHOP,
)
from openmrc.errors import InputError
from openmrc.fabric.actions import PORT_RATE
from openmrc.fabric.dscp import TRIM_LENGTHS, Dscps
from openmrc.fabric.queues import Queues, bounds_of, sizes_at
from openmrc.live.switch.state import FOLLOW_THE_RATE
from openmrc.live.switch.switches import Switches
from openmrc.sim.mrc.derive import derive
from openmrc.sim.mrc.transport import Transport
from openmrc.wire import decode, frame
from openmrc.wire.framing import MRC_FRAMING
from tests.live.switch.switching import GBPS, MS, US, Rig, decoded, on_wire_ps, small

PAYLOAD = 1000


def _psns(frames: list[bytes]) -> list[int]:
    return [int(decoded(data)[1].psn) for data in frames]


def _marked(data: bytes) -> bool:
    return bool(decoded(data)[1].flag_bits & CE)


def test_a_link_is_served_at_its_rate_to_the_picosecond() -> None:
    with Rig(rules=Queues(queue_bytes=10**6, queue_last_hop_bytes=10**6)) as rig:
        frames = [rig.frame(0, 1, psn=i, payload=PAYLOAD + i) for i in range(50)]
        rig.send(0, 0, *frames)
        ended = rig.run()
        assert _psns(rig.got(1, 0)) == list(range(50))
        # all bits of all frames, once more those of the last one, and the way
        service = sum(on_wire_ps(data, GBPS) for data in frames)
        assert ended == service + on_wire_ps(frames[-1], GBPS) + 2 * US + US // 2


def test_control_goes_before_retransmissions_before_data_and_each_in_order() -> None:
    with Rig() as rig:
        kinds = (CLASS_DATA, CLASS_RETRANSMIT, CLASS_CONTROL)
        frames = [
            rig.frame(
                0, 1, psn=10 * klass + i, klass=klass, flags=RTX * (klass == CLASS_RETRANSMIT)
            )
            for i in range(4)
            for klass in kinds
        ]
        rig.send(0, 0, *frames)
        rig.run()
        got = [decoded(data)[1] for data in rig.got(1, 0)]
        assert [int(p.klass) for p in got] == [
            CLASS_DATA,  # it found the port idle
            *[CLASS_CONTROL] * 4,
            *[CLASS_RETRANSMIT] * 4,
            *[CLASS_DATA] * 3,
        ]
        for klass in (CLASS_RETRANSMIT, CLASS_DATA):
            assert [int(p.psn) % 10 for p in got if p.klass == klass] == [0, 1, 2, 3]


def _collide(rig: Rig, n: int, dst: int = 3, **more: Any) -> list[bytes]:
    """NICs 0 and 1, of one T0, send `n` frames each at once to one NIC over one uplink."""
    ev = rig.fabric.ev(0, 0)
    for src in (0, 1):
        rig.send(
            src, 0, *[rig.frame(src, dst, ev, 100 * src + i, PAYLOAD, **more) for i in range(n)]
        )
    rig.run()
    return rig.got(dst, 0)


FRAME = 1142  # bytes of these frames
ON_WIRE = FRAME + 24


def test_marks_begin_above_the_lower_threshold_and_are_certain_above_the_upper() -> None:
    """The uplink's queue grows by one frame for every two that come."""
    bdp = 20 * ON_WIRE
    rules = Queues(queue_bytes=10**6, queue_last_hop_bytes=10**6, ecn_low=0.25, ecn_high=0.25)
    base_rtt = bdp * 8000  # at 1 Gb/s
    with Rig(rules=rules, base_rtt_ps=base_rtt, pmtu=PAYLOAD) as rig:
        low = int(rig.switches.net.port.ecn_low_bytes.min())
        assert low == 5 * (PAYLOAD + 166)
        got = _collide(rig, 20)
        assert len(got) == 40
        marks = [_marked(data) for data in got]
        # frame k leaves k + 1 behind while both send, the last ones 5, 4, 3 ...; the first finds
        # the port idle; 6 frames are above the threshold of 5
        assert marks == [False] * 5 + [True] * 29 + [False] * 6
        c = rig.switches.counters()
        assert c.ecn_marked.sum() == sum(marks)
        (port,) = c.ecn_marked.nonzero()[0].tolist()
        assert rig.fabric.port_name(port) == "plane 0 t0 0 > t1 0"
        assert all(decoded(data)[0] == frame.OK for data in got)  # a mark is outside the iCRC


@pytest.mark.parametrize("asked", [False, True])
def test_the_last_hop_marks_only_when_asked(asked: bool) -> None:
    rules = Queues(queue_last_hop_bytes=10**6, ecn_low=0, ecn_high=0, ecn_last_hop=asked)
    with Rig(rules=rules, base_rtt_ps=MS) as rig:
        for src, dst in ((0, 1), (2, 1)):
            rig.send(src, 0, *[rig.frame(src, dst, psn=i) for i in range(10)])
        rig.run()
        marked = rig.switches.counters().ecn_marked[rig.fabric.port_last_hop].sum()
        assert (marked > 5) == asked
        assert (marked == 0) != asked


def test_control_is_never_marked() -> None:
    with Rig(rules=Queues(ecn_low=0, ecn_high=0)) as rig:
        _collide(rig, 10, klass=CLASS_CONTROL)
        assert rig.switches.counters().ecn_marked.sum() == 0


@pytest.mark.parametrize("ecn", [0, 3], ids=["not-ECT", "CE already"])
def test_a_frame_that_hears_no_marks_or_has_one_is_left_as_it_is(ecn: int) -> None:
    with Rig(rules=Queues(ecn_low=0, ecn_high=0)) as rig:
        for src in (0, 1):
            data = bytearray(rig.frame(src, 3))
            data[15] = data[15] & 0xCF | ecn << 4
            rig.send(src, 0, *[bytes(data)] * 10)
        rig.run()
        assert [data[15] >> 4 & 3 for data in rig.got(3, 0)] == [ecn] * 20
        assert rig.switches.counters().ecn_marked.sum() == 0


@pytest.mark.parametrize(("last_hop", "dst"), [(False, 3), (True, 2)])
def test_what_would_be_dropped_is_cut_to_its_headers(last_hop: bool, dst: int) -> None:
    """Two senders, one link, room for four frames: all 60 arrive, whole or as headers."""
    room, much = 4 * ON_WIRE, 10**6
    rules = Queues(
        queue_bytes=much if last_hop else room, queue_last_hop_bytes=room if last_hop else much
    )
    with Rig(rules=rules) as rig:
        for src, up in ((0, 0), (1, 1 if last_hop else 0)):
            ev = rig.fabric.ev(0, up)
            rig.send(src, 0, *[rig.frame(src, dst, ev, 100 * src + i) for i in range(30)])
        rig.run()
        got = [(len(data), *decoded(data)) for data in rig.got(dst, 0)]
        assert len(got) == 60
        assert rig.drops() == {}
        cut = [p for n, code, p, e in got if p.flag_bits & (TRIMMED | TRIMMED_LASTHOP)]
        whole = [p for n, code, p, e in got if not p.flag_bits & (TRIMMED | TRIMMED_LASTHOP)]
        assert all(code == frame.OK for _, code, _, _ in got)
        assert sorted(int(p.psn) for p in cut + whole) == [*range(30), *range(100, 130)]
        for src in (0, 100):  # what is whole stays in order
            mine = [int(p.psn) for p in whole if src <= p.psn < src + 30]
            assert mine == sorted(mine)
        flag = TRIMMED_LASTHOP if last_hop else TRIMMED
        assert all(p.flag_bits & flag for p in cut)
        assert {n for n, _, p, _ in got if p in cut or p.flag_bits & flag} == {14 + 128}
        trims = rig.switches.counters().trims
        assert trims["trimmed_last_hop" if last_hop else "trimmed"] == len(cut) > 15
        assert sum(trims.values()) == len(cut)


def test_a_fabric_with_dscps_of_its_own_is_served_and_cut_by_them() -> None:
    """What the defaults take for TRIMMED and for control is data there, and cut."""
    dscps = Dscps(
        no_trim=10, trimmable=12, trimmable_retx=46, trimmed=4, trimmed_lasthop=0, control=8
    )
    fabric = replace(small(), dscps=dscps)
    with Rig(fabric, Queues(queue_bytes=4 * ON_WIRE)) as rig:
        ev = fabric.ev(0, 0)
        for src in (0, 1):
            rig.send(src, 0, *[rig.frame(src, 3, ev, 100 * src + i) for i in range(20)])
            rig.send(src, 0, rig.frame(src, 3, ev, klass=CLASS_CONTROL))
        rig.run()
        got = rig.got(3, 0)
        dscp = [(int.from_bytes(data[14:16]) >> 6) & 0x3F for data in got]
        assert len(got) == 42
        assert sorted(set(dscp)) == [dscps.trimmed, dscps.control, dscps.trimmable]
        assert dscp.count(dscps.control) == 2
        assert dscp.count(dscps.trimmed) == rig.switches.counters().trims["trimmed"] > 10
        assert {len(data) for data, of in zip(got, dscp, strict=True) if of == 4} == {14 + 128}


@pytest.mark.parametrize("lengths", TRIM_LENGTHS)
def test_lengths_are_adjusted_as_the_fabric_says(lengths: str) -> None:
    """Whichever: what is cut arrives with its headers, and keeps its place before data."""
    with Rig(replace(small(), trim_lengths=lengths), Queues(queue_bytes=4 * ON_WIRE)) as rig:
        got = _collide(rig, 20)
        assert (len(got), rig.drops()) == (40, {})
        cut = [found for data in got if (found := decode(data)).trimmed]
        assert len(cut) == rig.switches.counters().trims["trimmed"] > 10
        assert {(found.length, found.trim_lengths) for found in cut} == {(14 + 128, lengths)}
        assert {decoded(found.frame)[0] for found in cut} == {frame.OK}


def test_a_frame_whose_destination_is_the_carrier_is_cut_as_well() -> None:
    with Rig(rules=Queues(queue_bytes=4 * ON_WIRE)) as rig:
        got = _collide(rig, 20, srv6_in=False)
        assert len(got) == 40
        cut = [data for data in got if decoded(data)[1].flag_bits & TRIMMED]
        assert {len(data) for data in cut} == {14 + 128}
        assert rig.switches.counters().trims == {"trimmed": len(cut), "trimmed_last_hop": 0}
        assert cut


@pytest.mark.parametrize(
    ("flags", "trim"), [(NO_TRIM, True), (0, False)], ids=["may not be cut", "trimming off"]
)
def test_what_may_not_be_cut_is_dropped_at_the_tail(flags: int, trim: bool) -> None:
    with Rig(rules=Queues(queue_bytes=4 * ON_WIRE, trim=trim)) as rig:
        got = _collide(rig, 30, flags=flags)
        lost = 60 - len(got)
        assert rig.drops() == {"queue_full": lost}
        # one leaves for every two that come, and what fits stays: half of 60, four, one under way
        assert 24 <= lost <= 27
        mine = [psn for psn in _psns(got) if psn < 100]
        assert mine == sorted(mine)
        rig.check_conserved()


def test_the_control_class_has_a_limit_too() -> None:
    """SACKs of two senders at once on one link: what is beyond the limit is lost, and counted."""
    with Rig(rules=Queues(control_queue_bytes=1024)) as rig:
        got = _collide(rig, 30, klass=CLASS_CONTROL)
        lost = 60 - len(got)
        assert rig.drops() == {"control_full": lost}
        assert 20 <= lost <= 27


def test_trimmed_headers_beyond_the_limit_of_control_are_lost_as_control() -> None:
    with Rig(rules=Queues(queue_bytes=2 * ON_WIRE, control_queue_bytes=170)) as rig:
        got = _collide(rig, 30)
        c = rig.switches.counters()
        assert c.drops["control_full"] == 60 - len(got) > 0
        assert c.trims["trimmed"] > c.drops["control_full"]


def test_a_nic_that_sends_too_fast_is_told_to_wait_and_loses_nothing() -> None:
    """The wire is not read while the NIC's queue is full; then it is again, all in order."""
    with Rig(rules=Queues(queue_bytes=8 * ON_WIRE)) as rig:
        n = 500
        rig.send(0, 0, *[rig.frame(0, 1, psn=i) for i in range(n)])
        rig.run(US)
        c = rig.switches.counters()
        assert 9 <= c.received.sum() <= 8 + 1 + 32  # what fits, one under way, and a batch
        assert c.paused.sum() == 1
        rig.run()
        assert _psns(rig.got(1, 0)) == list(range(n))
        assert rig.drops() == {}


def test_a_nic_that_does_not_read_loses_and_no_other_does() -> None:
    """Its socket is full, then what may wait for it; frames for others still pass."""
    with Rig() as rig:
        data = rig.frame(0, 1, payload=8000)
        n = 0
        while rig.switches.counters().drops["receiver_full"] == 0:
            rig.send(0, 0, *[data] * 20)
            rig.run()
            n += 20
            assert n < 20_000
        rig.send(0, 0, rig.frame(0, 3))
        rig.run()
        assert len(rig.got(3, 0)) == 1
        kept = len(rig.got(1, 0))
        for _ in range(10):  # there is room again: what waited comes
            rig.run()
            kept += len(rig.got(1, 0))
        rig.check_conserved()
        assert kept + rig.switches.counters().drops["receiver_full"] == n


def test_no_free_buffer_means_waiting_not_losing() -> None:
    with Rig(rules=Queues(queue_bytes=10**7, queue_last_hop_bytes=10**7), frames=64) as rig:
        for src in (0, 1):
            rig.send(src, 0, *[rig.frame(src, 3, psn=i) for i in range(200)])
        got: list[bytes] = []
        for _ in range(100):
            rig.run()
            got += rig.got(3, 0)
        assert len(got) == 400
        assert rig.drops() == {}


def test_the_limits_are_those_of_the_simulated_switches() -> None:
    fabric = small(64, 4, 200 * GBPS)
    for rules in (
        Queues(),
        Queues(ecn_low=0.1, ecn_high=0.5, queue_bytes=99_000, control_queue_bytes=7000),
    ):
        sim = derive(fabric, Transport(), rules, 63).queues
        rtt_ps = MRC_FRAMING.base_rtt_ps(fabric, 4096)
        sizes = sizes_at(fabric, rules, rtt_ps, MRC_FRAMING.data_bytes(4096))
        here = bounds_of(fabric, sizes, rules, MRC_FRAMING.data_bytes(4096)).limits
        up, last = fabric.sw_first_up[0], fabric.sw_first_down[0]
        assert here.queue_bytes[up] == sim.queue_bytes
        assert here.queue_bytes[last] == sim.queue_last_hop_bytes
        assert here.control_queue_bytes[up] == sim.control_queue_bytes
        assert (here.ecn_low_bytes[up], here.ecn_high_bytes[up]) == (
            sim.ecn_low_bytes,
            sim.ecn_high_bytes,
        )


def test_a_port_that_slows_down_holds_and_marks_by_its_rate() -> None:
    """In bytes what is stated in bytes; else as many as the rate carries, at least four packets."""
    for rules, held in ((Queues(), 0.25), (Queues(queue_bytes=99_000), 1)):
        with Rig(rules=rules, base_rtt_ps=MS) as rig:
            up = int(rig.fabric.sw_first_up[0])
            port = rig.switches.net.port[up]
            before = [int(port[name]) for name in FOLLOW_THE_RATE]
            rig.act(PORT_RATE, up, 0.25)
            shares = [int(port[name]) for name in FOLLOW_THE_RATE]
            assert shares == [int(before[0] * held), before[1] // 4, before[2] // 4]
            rig.act(PORT_RATE, up, 0.001)
            packet = MRC_FRAMING.data_bytes(4096)
            least = [4 * packet if held < 1 else 99_000, packet, 3 * packet]
            assert [int(port[name]) for name in FOLLOW_THE_RATE] == least
            rig.act(PORT_RATE, up, 1.0)
            assert [int(port[name]) for name in FOLLOW_THE_RATE] == before


def test_bad_sizes_are_refused() -> None:
    fabric = small()
    with pytest.raises(InputError, match=r"^fds: 3 descriptors; one per NIC port, 8$"):
        Switches(fabric, Queues(), [1, 2, 3])
    with pytest.raises(InputError, match=r"^mtu: 100; 1280 to 9216 is accepted$"):
        Switches(fabric, Queues(), [-1] * 8, mtu=100)
    with pytest.raises(InputError, match=r"^grain_ns: -1; 0 to 1000000000 is accepted$"):
        Switches(fabric, Queues(), [-1] * 8, grain_ns=-1)
    with pytest.raises(InputError, match=r"^frames: 3; at least 64"):
        Switches(fabric, Queues(), [-1] * 8, frames=3)
    with pytest.raises(InputError, match=r"^fds: descriptor 999999: Bad file descriptor"):
        Switches(fabric, Queues(), [999_999] * 8)
