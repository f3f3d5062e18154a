"""Every kind of fault: what it takes, what it leaves alone, and how its end is noticed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from openmrc.engine.ev import DENIED
from openmrc.engine.packet import CLASS_DATA
from openmrc.engine.state import NEVER, RTS
from openmrc.fabric.denylist import denied, entrances
from openmrc.fabric.faults import Fault
from openmrc.fabric.model import Fabric
from openmrc.fabric.places import links
from openmrc.sim.net.state import FINISHED
from openmrc.sim.roce.transport import RoceTransport
from openmrc.sim.watch.books import queues_of
from openmrc.sim.world import World
from openmrc.workload.patterns import incast, permutation, stream
from tests.sim import bench
from tests.sim.lab import (
    ENDLESS,
    MS,
    NS,
    STEADY_FROM,
    US,
    all_complete,
    clos,
    conserved,
    data_under_way,
    evs,
    evs_over,
    faulty_ports,
    finished,
    goodput_gbps,
    in_service,
    plane_turns,
    rtt,
    run_until,
    sender,
    stream_world,
    tree,
    under_way,
    world_of,
)

Flags = npt.NDArray[np.bool_]

BYTE = 80  # ps at 100 Gb/s
PACKET = 4262 * BYTE
AT = 1 * MS
LOSING_ALL = 1.0


def lost(world: World) -> int:
    return world.counters()["dropped_fault"]


def two_nics(paths: int = 1, planes: int = 1) -> Fabric:
    """NIC 0 and NIC 1 on T0s of their own."""
    return clos(nics=2, planes=planes, down=1, up=paths)


# --- what exactly is lost ---------------------------------------------------------------------


@pytest.mark.parametrize("at_ns", [20_000, 20_100, 20_321])
def test_what_is_on_the_wire_when_a_link_goes_down_is_lost_and_nothing_else(at_ns: int) -> None:
    """Packet k is on the link from the T0 to the T1 from (k+1) x 340.96 ns + 750 ns on, and at
    its T1 340.96 + 750 ns later; a blink of 1 ps takes what is there.
    """
    at = at_ns * NS
    where = "plane 0 t0 0 > t1 0"
    world = stream_world(two_nics(), [Fault(at, "link-down", where, for_ps=1)], stop=at + 3 * US)
    world.run(until_ps=at - 1)
    assert lost(world) == 0
    world.run()
    k = np.arange(at // PACKET + 2)
    first_bit = (k + 1) * PACKET + 750 * NS
    arrival = first_bit + PACKET + 750 * NS
    expected = int(((first_bit <= at + 1) & (at <= arrival)).sum())
    assert expected in (3, 4)
    assert lost(world) == expected
    conserved(world)


def test_what_waits_at_a_port_that_goes_down_is_lost_too() -> None:
    fabric = clos(nics=16)
    world = world_of(
        fabric,
        incast(16, 8, 2_000_000),
        [Fault(20 * US, "link-down", "nic 0 plane 0 < t0", for_ps=1)],
        stop=20 * US,
    )
    world.run(until_ps=20 * US - 1)
    port = int(fabric.sw_first_down[0])
    queued = sum(len(queue) for queue in queues_of(world, port))
    assert queued > 20
    assert lost(world) == 0
    world.run()
    assert lost(world) == queued
    assert queues_of(world, port) == [[], [], []]
    world = world_of(
        fabric,
        incast(16, 8, 2_000_000),
        [Fault(20 * US, "link-down", "nic 0 plane 0 < t0", for_ps=1)],
    )
    all_complete(world)
    assert queued < lost(world) <= queued + 3  # and what was on the wire


def test_one_direction_down_leaves_the_other_alone() -> None:
    """Upwards only: no data of NIC 0 passes. Downwards only: data flows, its SACKs do not."""
    for arrow, passes in ((">", False), ("<", True)):
        fault = Fault(0, "link-down", f"plane 0 t0 0 {arrow} t1 0")
        world = stream_world(two_nics(), [fault], size=100_000, stop=200 * US)
        world.run()
        assert (world.bytes_verified == 100_000) == passes
        assert world.flows()["done_ps"].tolist() == [-1]
        assert lost(world) > 0


def test_both_directions_down_stop_everything_until_they_are_up() -> None:
    faults = [
        Fault(20 * US, "link-down", "plane 0 t0 0 - t1 0"),
        Fault(500 * US, "link-up", "plane 0 t0 0 - t1 0"),
    ]
    world = stream_world(two_nics(), faults, size=3_000_000)
    world.run(until_ps=100 * US)
    stopped = world.bytes_verified
    world.run(until_ps=499 * US)
    assert world.bytes_verified == stopped < 3_000_000
    all_complete(world)
    done = int(world.flows()["done_ps"][0])
    assert 500 * US < done < 1500 * US  # the only path was asked for again and again


def test_a_pause_for_a_time_is_the_same_as_down_and_up() -> None:
    where = "plane 0 t0 0 - t1 3"
    pair = [Fault(50 * US, "link-down", where), Fault(250 * US, "link-up", where)]
    for_a_time = [Fault(50 * US, "link-down", where, for_ps=200 * US)]
    a, b = (all_complete(stream_world(faults=f, size=20_000_000)) for f in (pair, for_a_time))
    assert a.counters() == b.counters()
    assert a.flows()["done_ps"].tolist() == b.flows()["done_ps"].tolist()


# --- losing links -----------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.001, 0.02, 0.3])
def test_a_losing_link_loses_its_share(rate: float) -> None:
    """Binomial: every data packet of NIC 0 crosses the link once, four sigmas either way."""
    fault = Fault(0, "link-loss", "nic 0 plane 0 > t0", rate=rate)
    world = all_complete(stream_world(two_nics(paths=4), [fault], size=20_000 * 4096))
    sent = 20_000 + world.counters()["retransmitted"]
    arrived = 20_000 + world.counters()["duplicates"]
    sigma = np.sqrt(sent * rate * (1 - rate))
    assert sent - arrived == pytest.approx(sent * rate, abs=4 * sigma)
    assert lost(world) >= sent - arrived  # probes are lost as well


def test_a_link_that_loses_with_probability_0_or_for_no_longer_loses_nothing() -> None:
    faults = [
        Fault(0, "link-loss", "nic 0 plane 0", rate=0.0),
        Fault(10 * US, "link-loss", "nic 0 plane 0", rate=0.5),
        Fault(20 * US, "link-loss", "nic 0 plane 0", rate=0.0),
    ]
    world = stream_world(two_nics(paths=4), faults, stop=2 * MS)
    world.run(until_ps=10 * US)
    assert lost(world) == 0
    world.run(until_ps=20 * US)
    some = lost(world)
    assert some > 10
    world.run()
    assert lost(world) == some


def test_losses_are_drawn_from_the_seed() -> None:
    fault = Fault(0, "link-loss", "nic 0 plane *", rate=0.01)
    counts = []
    for seed in (1, 1, 2, 3):
        world = stream_world(faults=[fault], size=4_000_000, seed=seed)
        counts.append(all_complete(world).counters())
    assert counts[0] == counts[1]
    assert len({c["dropped_fault"] for c in counts}) > 1
    assert counts[1] != counts[2] != counts[3]


@pytest.mark.parametrize("rate", [0.2, 0.5])
def test_a_path_that_loses_a_fifth_is_left_and_the_line_rate_kept(rate: float) -> None:
    """Sixteen paths, two per plane, one of them lossy (reference 8, B12)."""
    fabric = clos(up=2)
    fault = Fault(AT, "link-loss", "plane 0 t0 0 > t1 0", rate=rate)
    world = stream_world(fabric, [fault], stop=3 * MS)
    world.run(until_ps=AT)
    (lossy,) = np.flatnonzero(evs_over(world, faulty_ports(world)))
    found = run_until(world, lambda: not in_service(world)[lossy], rtt(world) // 20, AT + 100 * US)
    assert found - AT < 10 * rtt(world)
    world.run()
    before = goodput_gbps(world, STEADY_FROM, AT)
    assert goodput_gbps(world, 2 * MS, 3 * MS) > 0.98 * before
    assert world.bytes_wrong == 0


def fates(fault: Fault, seed: int, packets: int) -> Flags:
    """Which of so many packets, one behind the other, a switch's port loses under a fault."""
    world = stream_world(two_nics(), [fault], seed=seed)
    world.run(until_ps=0)
    found = np.zeros(packets, bool)
    bench.fates(world.net, int(world.fabric.sw_first_up[0]), 1000, CLASS_DATA, found)
    return found


@pytest.mark.parametrize(
    ("rate", "burst", "in_a_row", "n"),
    [
        (0.2, None, 1.25, 800),
        (0.2, 1.0, 1.0, 800),
        (0.2, 5.0, 5.0, 800),
        (0.01, 20.0, 20.0, 4000),
        (0.75, 3.0, 3.0, 800),
    ],
)
def test_losses_come_one_by_one_or_in_bursts_of_a_mean_length(
    rate: float, burst: float | None, in_a_row: float, n: int
) -> None:
    """One by one at a rate of p, 1 / (1 - p) in a row are lost on average all the same. Twenty
    streams; a run's length is geometric, four sigmas either way.
    """
    fault = Fault(0, "link-loss", "plane 0 t0 0 > t1 0", rate=rate, burst=burst)
    each = [fates(fault, seed, n) for seed in range(1, 21)]
    n_lost = sum(int(found.sum()) for found in each)
    runs = sum(int((np.diff(np.append(0, found.astype(int))) == 1).sum()) for found in each)
    sigma = in_a_row * np.sqrt(1 - 1 / in_a_row) / np.sqrt(runs)
    assert n_lost / runs == pytest.approx(in_a_row, abs=max(4 * sigma, 1e-9))
    assert n_lost / (20 * n) == pytest.approx(rate, rel=8 * np.sqrt(1 / runs))


# --- damage -----------------------------------------------------------------------------------


def test_a_damaged_packet_travels_its_whole_way_and_the_receiver_discards_it() -> None:
    """Ten packets, four links each; the first timer is far away."""
    fault = Fault(0, "link-corrupt", "nic 0 plane 0 > t0", rate=1.0)
    world = stream_world(two_nics(), [fault], size=10 * 4096)
    world.run(until_ps=8 * US)
    c = world.counters()
    assert (c["injected"], c["link_traversals"], c["in_flight"]) == (10, 40, 0)
    assert (c["dropped_corrupt"], c["dropped_fault"], c["delivered"]) == (10, 0, 0)
    assert world.timeline()["lost"].sum() == 10
    assert int(world.net.ctl[0].first_fault_drop_at) == 4 * PACKET + 3 * 750 * NS + 500 * NS
    conserved(world)


@pytest.mark.parametrize("rate", [0.001, 0.02, 0.3])
def test_a_link_damages_its_share_and_every_byte_arrives(rate: float) -> None:
    fault = Fault(0, "link-corrupt", "nic 0 plane 0 > t0", rate=rate)
    world = all_complete(stream_world(two_nics(paths=4), [fault], size=20_000 * 4096))
    c = world.counters()
    sent = 20_000 + c["retransmitted"] + c["probe"]
    sigma = np.sqrt(sent * rate * (1 - rate))
    assert c["dropped_corrupt"] == pytest.approx(sent * rate, abs=4 * sigma)
    assert c["dropped_fault"] == 0


def test_a_damaged_control_packet_is_discarded_too() -> None:
    fault = Fault(0, "link-corrupt", "nic 0 plane 0 < t0", rate=1.0)
    world = stream_world(two_nics(), [fault], size=100_000, stop=200 * US)
    world.run()
    assert world.bytes_verified == 100_000
    assert world.flows()["done_ps"].tolist() == [-1]
    assert lost(world) == 0 < world.counters()["dropped_corrupt"]
    conserved(world)


def test_what_is_cut_off_a_trimmed_packet_takes_the_damage_with_it() -> None:
    """All data is damaged on the first link; of it only trimmed headers are of use. What damages
    the last link finds headers, which have no iCRC, and whole packets.
    """
    faults = [
        Fault(0, "link-corrupt", "nic * plane 0 > t0", rate=1.0),
        Fault(0, "link-corrupt", "nic 0 plane 0 < t0", rate=1.0),
    ]
    world = world_of(clos(nics=16, planes=1), incast(16, 8, 2_000_000), faults, stop=100 * US)
    world.run()
    c = world.counters()
    assert c["trimmed"] > 100
    assert world.bytes_verified == 0
    under_way = 2 * 64  # headers in the control queue of the last hop and on its link
    assert c["trimmed"] - under_way <= c["nack"] <= c["trimmed"]
    conserved(world)


# --- MTUs -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mtu", "passes"), [(4224, True), (4223, False)])
def test_an_mtu_of_the_packet_lets_it_pass_and_one_less_lets_nothing_large_pass(
    mtu: int, passes: bool
) -> None:
    """A full packet is 4,262 B on the wire, 38 of them around the IP packet."""
    fault = Fault(0, "mtu", "nic 0 plane 0 > t0", mtu=mtu)
    world = stream_world(two_nics(), [fault], size=10 * 4096)
    world.run(until_ps=8 * US)
    c = world.counters()
    assert (c["delivered"] > 10, c["dropped_fault"]) == (passes, 0 if passes else 10)


def test_a_plane_whose_mtu_shrinks_costs_three_silences_and_then_one_packet_a_trial() -> None:
    """And when it is wide again, it carries its share."""
    fault = Fault(1 * MS, "mtu", "plane 1 t0 * - t1 *", mtu=1500, for_ps=2 * MS)
    world = stream_world(clos(), [fault], stop=8 * MS)
    world.run(until_ps=2 * MS)
    before = world.counters()
    world.run(until_ps=3 * MS)
    c = world.counters()
    lost, tried = (c[name] - before[name] for name in ("dropped_fault", "trials"))
    assert abs(lost - tried) <= 1  # one may be under way at either end
    assert c["revived"] == before["revived"]
    world.run()
    top = goodput_gbps(world, STEADY_FROM, 1 * MS)
    assert goodput_gbps(world, 2 * MS, 3 * MS) / top == pytest.approx(7 / 8, abs=0.01)
    assert goodput_gbps(world, 7 * MS, 8 * MS) / top == pytest.approx(1, abs=0.01)


def test_roce_has_a_black_hole_there() -> None:
    """It sends what is lost again on the same path, in vain."""
    fault = Fault(0, "mtu", "nic 0 plane 0 > t0", mtu=1500)
    traffic = stream(0, 1, 100 * 4096)
    world = world_of(two_nics(), traffic, [fault], kind=RoceTransport, stop=1 * MS)
    world.run()
    assert world.flows()["done_ps"].tolist() == [-1]
    assert world.counters()["dropped_fault"] > 0
    conserved(world)


# --- slow links -------------------------------------------------------------------------------


def alone(fault: Fault | None = None, packets: int = 1) -> int:
    """When the last byte of so many packets is placed, over one path of four links."""
    faults = [] if fault is None else [fault]
    world = all_complete(stream_world(two_nics(), faults, size=packets * 4096))
    return int(world.flows()["delivered_ps"][0])


@pytest.mark.parametrize(("factor", "packets"), [(0.5, 5), (0.1, 1), (0.1, 5), (0.001, 1)])
@pytest.mark.parametrize(
    "where",
    ["nic 0 plane 0 > t0", "plane 0 t0 0 > t1 0", "plane 0 t1 0 > t0 1", "nic 1 plane 0 < t0"],
)
def test_a_slow_link_takes_exactly_so_much_longer(where: str, factor: float, packets: int) -> None:
    whole = 4 * PACKET + 3 * 750 * NS + 500 * NS
    assert alone() == whole
    slow = round(PACKET / factor)
    fault = Fault(0, "link-slow", where, factor=factor)
    assert alone(fault, packets) == whole - PACKET + packets * slow


def test_a_slow_port_holds_and_marks_by_its_rate_until_it_is_whole_again() -> None:
    where = "plane 0 t0 0 > t1 0"
    faults = [
        Fault(0, "link-slow", where, factor=0.25, for_ps=100 * US),
        Fault(200 * US, "link-slow", where, factor=0.001),
    ]
    world = stream_world(clos(), faults)
    port = int(world.fabric.sw_first_up[0])

    def limits() -> list[int]:
        kind = world.net.port_kind[int(world.net.port[port].kind)]
        return [
            int(kind[name])
            for name in ("queue_bytes", "ecn_low_bytes", "ecn_high_bytes", "control_queue_bytes")
        ]

    whole = limits()
    world.run(until_ps=1 * US)
    assert limits() == [*(n_bytes // 4 for n_bytes in whole[:3]), whole[3]]
    world.run(until_ps=101 * US)
    assert limits() == whole
    world.run(until_ps=201 * US)
    assert limits() == [4 * 4262, 4262, 3 * 4262, whole[3]]


def test_a_transmission_ends_at_the_rate_that_it_began_with() -> None:
    """The link slows down while the first of two packets is on it, and is whole again while the
    second is: 341 ns, then 3410.
    """
    where = "nic 0 plane 0 > t0"
    whole = 4 * PACKET + 3 * 750 * NS + 500 * NS
    assert alone(packets=3) == whole + 2 * PACKET
    slow = Fault(100 * NS, "link-slow", where, factor=0.1, for_ps=1000 * NS)
    assert alone(slow) == whole
    assert alone(slow, packets=2) == whole + 10 * PACKET
    assert alone(slow, packets=3) == whole + 11 * PACKET


def test_what_was_sent_before_a_link_slowed_down_is_lost_with_it_and_what_came_after_is_not() -> (
    None
):
    """The cut comes 100 ns behind a change of rate, with three packets on the link; the blink
    spares what leaves later.
    """
    where = "plane 0 t0 0 > t1 0"
    for factor in (0.1, 0.5):
        at = 20_321 * NS
        faults = [
            Fault(at - 100 * NS, "link-slow", where, factor=factor),
            Fault(at, "link-down", where, for_ps=1),
        ]
        world = stream_world(two_nics(), faults, stop=at + 20 * US)
        world.run(until_ps=at - 1)
        port = int(world.fabric.sw_first_up[0])
        free_at = int(world.net.port[port].free_at)
        on_the_link = [n for n in data_under_way(world) if world.net.hop[n].port == port]
        waiting = [n for queue in queues_of(world, port) for n in queue]
        moving = [n for n in on_the_link if n not in waiting]
        assert max(int(world.net.hop[n].at) for n in moving) == free_at + 750 * NS
        world.run()
        assert lost(world) == len(moving) + len(waiting) >= 3
        conserved(world)


def test_a_link_at_a_tenth_carries_a_tenth_and_is_whole_afterwards() -> None:
    fault = Fault(1 * MS, "link-slow", "nic 0 plane 0", factor=0.1, for_ps=2 * MS)
    world = stream_world(clos(planes=1), [fault], stop=5 * MS)
    world.run()
    before = goodput_gbps(world, STEADY_FROM, 1 * MS)
    assert before == pytest.approx(96.1, abs=0.1)
    assert goodput_gbps(world, 2 * MS, 3 * MS) == pytest.approx(9.61, abs=0.1)
    assert goodput_gbps(world, 4 * MS, 5 * MS) == pytest.approx(before, abs=0.1)
    assert lost(world) == 0


# --- denylists --------------------------------------------------------------------------------


def crossing(world: World, ports: npt.ArrayLike) -> int:
    """Packets under way that a directed port of these sent."""
    hop = world.net.hop
    return int(np.isin([hop[n].port for n in under_way(world)], ports).sum())


def denied_evs(world: World, ports: npt.ArrayLike, qp: int = 0) -> Flags:
    src, dst = int(world.traffic.qp_src[qp]), int(world.traffic.qp_dst[qp])
    return denied(world.fabric, ports, src, dst, evs(world, qp).value)


@pytest.mark.parametrize(
    "where",
    [
        "plane 3",
        "plane 3 t0 0",
        "plane 3 t0 1",
        "plane 3 t1 5",
        "plane 3 t0 0 > t1 5",
        "nic 7 plane 3",
    ],
)
def test_nothing_crosses_what_is_denied_until_it_is_lifted(where: str) -> None:
    """Neither data nor what answers it, nor any probe; and nothing is lost."""
    fault = Fault(AT, "deny", where, for_ps=1 * MS)
    world = stream_world(faults=[fault], stop=4 * MS)
    ports = entrances(world.fabric, where).targets
    world.run(until_ps=AT - 1)
    assert crossing(world, ports) > 0
    world.run(until_ps=AT)
    mine = denied_evs(world, ports)
    assert 0 < mine.sum() < len(mine)
    assert ((evs(world).state == DENIED) == mine).all()
    used = evs(world).used[mine].copy()
    for step in range(1, 50):
        world.run(until_ps=AT + 10 * US + step * 20 * US)
        assert crossing(world, ports) == 0
    assert (evs(world).used[mine] == used).all()
    world.run()
    assert in_service(world).all()
    assert (evs(world).used[mine] > used + 100).all()
    assert lost(world) == 0
    assert world.counters()["assumed_bad"] == 0
    share = 7 / 8 if mine.sum() == 8 else 1
    before, during = goodput_gbps(world, STEADY_FROM, AT), goodput_gbps(world, 1.2 * MS, 2 * MS)
    assert during / before == pytest.approx(share, abs=0.01)
    assert goodput_gbps(world, 3 * MS, 4 * MS) == pytest.approx(before, abs=0.5)


def test_denied_by_two_lists_an_ev_is_given_back_by_the_last() -> None:
    faults = [
        Fault(100 * US, "deny", "plane 3 t1 5"),
        Fault(200 * US, "deny", "plane 3", for_ps=200 * US),
        Fault(300 * US, "allow", "plane 3 t1 5"),
    ]
    world = stream_world(faults=faults, stop=600 * US)
    denials = []
    for at in (150, 250, 350, 450):
        world.run(until_ps=at * US)
        denials.append(int((evs(world).state == DENIED).sum()))
    assert denials == [1, 8, 8, 0]


def test_only_the_nics_named_obey_a_list_of_their_own() -> None:
    faults = [
        Fault(0, "deny", "plane 1", nics="0-3"),
        Fault(0, "deny", "plane 2", nics="2-5", for_ps=50 * US),
    ]
    world = world_of(clos(planes=4), permutation(8, 5_000_000, 1), faults)
    world.run(until_ps=20 * US)
    for qp in range(8):
        nic = int(world.traffic.qp_src[qp])
        turns = plane_turns(world, qp)
        unused = {p for p, nics in ((1, range(4)), (2, range(2, 6))) if nic in nics}
        assert {plane for plane in range(4) if turns[plane] <= 2} == unused
    all_complete(world)
    for qp in range(8):
        nic = int(world.traffic.qp_src[qp])
        assert plane_turns(world, qp)[2] > 100
        assert (plane_turns(world, qp)[1] > 100) == (nic > 3)


def test_one_hashed_path_that_is_denied_is_left_when_routing_has_converged() -> None:
    fabric = two_nics(paths=4, planes=2)
    fault = Fault(AT, "deny", "plane 0")
    for seed in range(1, 6):
        world = stream_world(
            fabric, [fault], seed=seed, paths="single", convergence_ps=100 * US, stop=2 * MS
        )
        world.run(until_ps=AT)
        before = int(evs(world)[0].plane)
        world.run(until_ps=AT + 100 * US - 1)
        assert int(evs(world)[0].plane) == before
        world.run(until_ps=AT + 100 * US)
        assert int(evs(world)[0].plane) == 1
        world.run()
        assert lost(world) == 0


# --- transceivers, flapping, construction -----------------------------------------------------


def test_a_transceiver_takes_its_links_at_one_instant() -> None:
    """Four NICs below one T0 lose the same plane; the fifth port it holds is another T0's."""
    where = ("nic 0 plane 2", "nic 1 plane 2", "nic 3 plane 2", "plane 2 t0 1 - t1 4")
    world = stream_world(faults=[Fault(AT, "transceiver-down", where, for_ps=1 * MS)], stop=4 * MS)
    world.run(until_ps=AT)
    without = 0xFF & ~(1 << 2)
    masks = world.engine.nic.up_mask.tolist()
    assert masks == [without if nic in (0, 1, 3) else 0xFF for nic in range(8)]
    assert int((world.net.port.up == 0).sum()) == 8
    world.run()
    assert (world.net.port.up == 1).all()
    assert in_service(world).all()


def test_the_transceiver_of_a_nic_is_its_single_point_of_failure() -> None:
    faults = [Fault(50 * US, "transceiver-down", "nic 0 transceiver 0", for_ps=MS, links=8)]
    world = stream_world(faults=faults, size=20_000_000)
    world.run(until_ps=50 * US)
    assert int(world.engine.nic.up_mask[0]) == 0
    all_complete(world)
    assert int(world.flows()["done_ps"][0]) > 1050 * US


def test_a_flapping_link_is_down_for_its_share_of_each_period() -> None:
    """A fifth of each 500 us, from 1 ms up to 2.8: 4 times, the last one cut short."""
    where = "plane 2 t0 0 - t1 3"
    fault = Fault(AT, "link-down", where, period_ps=500 * US, duty=0.8, until_ps=2800 * US)
    world = stream_world(faults=[fault], stop=6 * MS)
    (port, _) = links(world.fabric, where).tolist()
    seen = []
    for at in range(950, 3100, 50):
        world.run(until_ps=at * US)
        seen.append(int(world.net.port[port].up))
    cycle = [0] * 8 + [1] * 2
    assert seen == [1, *cycle, *cycle, *cycle, *([0] * 6), *([1] * 6)]
    world.run()
    assert in_service(world).all()
    assert world.counters()["dropped_fault"] > 0


def test_a_hall_under_construction_has_dead_links_from_the_start_and_whole_ones_at_the_end() -> (
    None
):
    fabric = clos(nics=16, planes=4)
    fault = Fault(
        0,
        "link-construction",
        "plane * t0 * - t1 *",
        mtbf_ps=270 * US,
        mttr_ps=30 * US,
        until_ps=900 * US,
    )
    world = world_of(fabric, permutation(16, 40_000_000, 1), [fault])
    world.run(until_ps=0)
    dead = int((world.net.port.up == 0).sum()) // 2
    assert 4 <= dead <= 22  # of 128 links, a tenth on average: four sigmas
    all_complete(world)
    assert (world.net.port.up == 1).all()
    assert lost(world) > 0


def test_a_long_schedule_is_not_kept_in_the_heap() -> None:
    """A hundred thousand actions: as many entries as without a fault."""
    fault = Fault(
        0, "link-down", "plane * t0 * - t1 *", mtbf_ps=20 * US, mttr_ps=5 * US, until_ps=10 * MS
    )
    worlds = [stream_world(faults=faults, size=5_000_000) for faults in ([], [fault])]
    assert len(worlds[1].net.fault) > 100_000
    assert len(worlds[0].net.heap) == len(worlds[1].net.heap)
    for world in worlds:
        world.run(until_ps=1 * MS)
    assert len(worlds[0].net.heap) == len(worlds[1].net.heap)


# --- switches ---------------------------------------------------------------------------------


def test_a_silent_switch_takes_what_reaches_it_and_keeps_its_links_up() -> None:
    fault = Fault(AT, "switch-silent", "plane 2 t1 *", for_ps=1 * MS)
    world = stream_world(faults=[fault], stop=4 * MS)
    world.run(until_ps=AT + 500 * US)
    assert (world.net.port.up == 1).all()
    assert (world.engine.nic.up_mask == 0xFF).all()
    assert lost(world) > 0
    turns = plane_turns(world)[2]
    world.run()
    assert plane_turns(world)[2] > turns  # probes noticed that it forwards again
    assert in_service(world).all()
    conserved(world)


@pytest.mark.parametrize("where", ["plane 2 t0 0", "plane 2 t0 1"])
def test_a_t0_that_goes_down_takes_the_ports_of_its_nics_with_it(where: str) -> None:
    world = stream_world(faults=[Fault(AT, "switch-down", where, for_ps=1 * MS)], stop=4 * MS)
    world.run(until_ps=AT)
    nics = range(4) if where.endswith("0") else range(4, 8)
    without = 0xFF & ~(1 << 2)
    masks = world.engine.nic.up_mask.tolist()
    assert masks == [without if nic in nics else 0xFF for nic in range(8)]
    world.run()
    assert (world.engine.nic.up_mask == 0xFF).all()
    before = goodput_gbps(world, STEADY_FROM, AT)
    during = goodput_gbps(world, AT + STEADY_FROM, 2 * MS)
    assert 100 * during / before == pytest.approx(87.5, abs=2)
    assert goodput_gbps(world, 3 * MS, 4 * MS) == pytest.approx(before, abs=0.5)
    assert world.counters()["assumed_bad"] == 0


def test_a_t1_that_goes_down_and_comes_back() -> None:
    world = stream_world(
        faults=[Fault(AT, "switch-down", "plane 2 t1 1", for_ps=1 * MS)], stop=4 * MS
    )
    world.run(until_ps=AT + 500 * US)
    assert (world.engine.nic.up_mask == 0xFF).all()  # no NIC hangs on it
    assert in_service(world).sum() == 63
    world.run()
    assert in_service(world).all()
    assert world.counters()["revived"] == 1


# --- ports ------------------------------------------------------------------------------------


def one_way() -> int:
    """Longest time an endpoint request needs: at each port a data packet may be on the wire."""
    return 2_750 * NS + 4 * (158 * BYTE + PACKET)


@pytest.mark.parametrize("nic", [0, 7])
def test_the_peer_is_told_of_a_port_within_one_way(nic: int) -> None:
    fault = Fault(AT, "port-down", f"nic {nic} plane 3", for_ps=1 * MS)
    world = stream_world(faults=[fault], stop=3 * MS)
    other = 7 - nic
    (peer,) = np.flatnonzero(world.engine.peer.remote[: world.engine.nic.n_peers.sum()] == nic)
    for at, mask in ((AT, 0xF7), (2 * MS, 0xFF)):
        world.run(until_ps=at)
        assert int(world.engine.nic.up_mask[nic]) == mask
        assert int(world.engine.nic.up_mask[other]) == 0xFF
        assert int(world.engine.peer.remote_mask[peer]) != mask
        world.run(until_ps=at + one_way())
        assert int(world.engine.peer.remote_mask[peer]) == mask
    world.run()
    assert in_service(world).all()
    assert (world.engine.peer.pending == 0).all()


@pytest.mark.parametrize("nic", [0, 7])
def test_a_lost_port_status_is_repeated_after_an_rto(nic: int) -> None:
    """Port 0 of 2 goes down while plane 1 forwards nothing: the update is lost. Then plane 1
    works again, and the repetition arrives.
    """
    faults = [
        Fault(AT, "port-down", f"nic {nic} plane 0"),
        Fault(AT - 10 * US, "link-loss", "plane 1 t0 * - t1 *", for_ps=110 * US, rate=LOSING_ALL),
    ]
    world = stream_world(clos(planes=2), faults, stop=4 * MS)
    peer = world.engine.peer[world.engine.peer.remote == nic]
    rto = world.values.rto_ps
    world.run(until_ps=AT + rto - 1)
    assert peer.remote_mask.tolist() == [0b11]
    world.run(until_ps=AT + rto + one_way())
    peer = world.engine.peer[world.engine.peer.remote == nic]
    assert peer.remote_mask.tolist() == [0b10]
    world.run()
    half = goodput_gbps(world, 3 * MS, 4 * MS)
    assert half == pytest.approx(96.1, abs=1)
    assert sender(world).state == RTS


def test_all_ports_down_and_up_again() -> None:
    fault = Fault(50 * US, "port-down", "nic 0 plane *", for_ps=2 * MS)
    world = stream_world(faults=[fault], size=20_000_000)
    world.run(until_ps=1 * MS)
    got = world.bytes_verified
    world.run(until_ps=2 * MS)
    assert world.bytes_verified == got
    all_complete(world)
    assert 2050 * US < int(world.flows()["done_ps"][0]) < 6 * MS


def test_a_run_is_never_asked_for_what_is_due_at_never(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who sample a run ask for later and later times, at last for one after the last."""
    world = stream_world(clos(planes=2), size=4096)
    asked: list[int] = []

    def advance(until: int) -> int:
        asked.append(until)
        return FINISHED

    monkeypatch.setattr(world, "_advance", advance)
    for until_ps in (None, int(NEVER) - 1, int(NEVER) + 1):
        assert world.run(until_ps=until_ps)
    assert asked == 3 * [int(NEVER) - 1]


def test_a_port_that_flaps_a_hundred_times() -> None:
    faults = [
        Fault((50 + 20 * i) * US, "port-down", f"nic {7 * (i % 2)} plane {i % 8}", for_ps=15 * US)
        for i in range(100)
    ]
    world = all_complete(stream_world(faults=faults, size=200_000_000))
    assert (world.engine.nic.up_mask == 0xFF).all()
    assert (world.engine.peer.remote_mask == 0xFF).all()


def test_ports_of_all_nics_go_one_by_one_and_return() -> None:
    """A staircase: each port down costs an eighth (reference 8, B6)."""
    faults = [
        Fault((1 + p) * MS, "port-down", f"nic 0 plane {p}", for_ps=(8 - p) * MS) for p in range(7)
    ]
    world = world_of(clos(), stream(0, 1, ENDLESS), faults, stop=10 * MS)
    world.run()
    top = goodput_gbps(world, STEADY_FROM, 1 * MS)
    for down in range(1, 8):
        step = goodput_gbps(world, down * MS + STEADY_FROM, (down + 1) * MS)
        assert 100 * step / top == pytest.approx(100 * (8 - down) / 8, abs=2)
    assert goodput_gbps(world, 9 * MS + STEADY_FROM, 10 * MS) == pytest.approx(top, abs=1)


# --- many at once -----------------------------------------------------------------------------

STORMS = {
    "damage": [Fault(0, "link-corrupt", "plane * t0 * - t1 *", rate=0.01)],
    "bursts": [Fault(0, "link-loss", "nic * plane *", rate=0.01, burst=20.0)],
    "flapping": [
        Fault(9 * US, "port-down", "nic * plane 1", period_ps=60 * US, duty=0.2, until_ps=1 * MS),
        Fault(0, "switch-down", "plane 2 t1 *", period_ps=90 * US, duty=0.5, until_ps=1 * MS),
    ],
    "construction": [
        Fault(
            0,
            "link-construction",
            "plane * t0 * - t1 *, nic * plane *",
            mtbf_ps=300 * US,
            mttr_ps=100 * US,
            until_ps=2 * MS,
        )
    ],
    "slow links and denied ones": [
        Fault(0, "link-slow", "plane * t0 * - t1 *", factor=0.1, share=0.3, for_ps=3 * MS),
        Fault(30 * US, "deny", "plane 1, plane 2 t1 0", for_ps=2 * MS),
        Fault(60 * US, "link-loss", "nic 3 plane 0", rate=0.2, for_ps=1 * MS),
        Fault(90 * US, "deny", "nic 3 plane 0", for_ps=1 * MS, nics="0-5"),
    ],
    "links": [
        Fault(i * 10 * US, "link-down", f"plane {i % 4} t0 {i % 2} - t1 {i % 5}", for_ps=35 * US)
        for i in range(40)
    ],
    "switches": [
        Fault(i * 30 * US, "switch-silent", f"plane {i % 4} t1 {i % 5}", for_ps=50 * US)
        for i in range(20)
    ],
    "loss everywhere": [Fault(0, "link-loss", "plane * t0 * - t1 *", rate=0.01)],
    "all of it": [
        Fault(5 * US, "link-loss", "nic * plane *", rate=0.005),
        Fault(20 * US, "switch-down", "plane 0 t0 0", for_ps=100 * US),
        Fault(40 * US, "port-down", "nic 3 plane 1", for_ps=200 * US),
        Fault(60 * US, "switch-silent", "plane 2 t1 *", for_ps=300 * US),
    ],
}


@pytest.mark.parametrize("storm", STORMS)
@pytest.mark.parametrize("seed", [1, 2])
def test_every_byte_arrives_through_a_storm(storm: str, seed: int) -> None:
    fabric = clos(planes=4, up=5)
    world = world_of(fabric, permutation(8, 20_000_000, seed), STORMS[storm], seed=seed)
    all_complete(world)
    c = world.counters()
    assert c["dropped_fault"] + c["dropped_corrupt"] > 0


@pytest.mark.parametrize("dead", [8, 12])
@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_three_tiers_survive_dead_top_switches(dead: int, seed: int) -> None:
    """Of sixteen paths in one plane half or three quarters die at once, the way back among them."""
    faults = [Fault(50 * US, "switch-silent", f"plane 0 t2 {i}") for i in range(dead)]
    world = all_complete(stream_world(tree(), faults, size=20_000_000, seed=seed))
    assert in_service(world).sum() == 16 - dead
    if dead == 8:
        assert int(world.flows()["done_ps"][0]) < 2500 * US  # of which 1665 us on an empty line


def test_a_fabric_that_is_cut_in_two_ends_in_an_error_that_says_why() -> None:
    fault = Fault(50 * US, "link-down", "plane * t0 0 - t1 *")
    world = finished(stream_world(faults=[fault], size=20_000_000))
    assert world.flows()["failed"].tolist() == [True]
    assert world.errors() == ["retry counter exceeded"]
    (line,) = world.qp_errors()
    q = sender(world)
    assert line.startswith(f"QP {int(q.qpn):#08x} of nic 0 to nic 7: retry counter exceeded at ")
    waited = int(q.error_at) - 50 * US
    assert waited == pytest.approx(2053 * world.values.rto_ps, rel=0.01)  # row 9: 0.54 s
