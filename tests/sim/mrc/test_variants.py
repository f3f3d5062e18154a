"""Ablations of MRC: without SRv6, without trimming, without ECN skip; and REPS."""

from __future__ import annotations

import io
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openmrc.engine import packet as pk
from openmrc.engine.ev import ASSUMED_BAD, DENIED
from openmrc.errors import InputError
from openmrc.fabric.faults import Fault
from openmrc.fabric.model import Fabric
from openmrc.fabric.queues import Queues
from openmrc.jit import compiled
from openmrc.sim.mrc.capture import Capture
from openmrc.sim.mrc.transport import Transport
from openmrc.sim.net import switch
from openmrc.sim.world import World
from openmrc.wire import decode
from openmrc.wire.addresses import whose
from openmrc.wire.pcap import Captured, Reader, read
from openmrc.workload.patterns import incast, permutation, stream
from tests.sim import plain
from tests.sim.lab import (
    MS,
    STEADY_FROM,
    US,
    all_complete,
    clos,
    evs,
    goodput_gbps,
    plane_turns,
    sender,
    stream_world,
    tree,
    world_of,
)

AT = 50 * US


@compiled
def _hash(src, dst, plane, ev):  # type: ignore[no-untyped-def]
    return switch.hashed_ev(switch.tuple_flow(src, dst, plane), ev)


@compiled
def _next_port(ctl, s, dst, hashed):  # type: ignore[no-untyped-def]
    return switch.egress(ctl, s, dst, hashed)


STRUCTURED = Transport(srv6=False, ev_fields=True)


def route_of(world: World, e: Any) -> list[int]:
    """The directed ports that data on an EV of the first sender takes: what its switches do."""
    return followed(world, e, 0, int(e.value))


def route(world: World, e: Any, qp: int = 0) -> list[int]:
    """The same where switches hash."""
    src, dst = int(world.traffic.qp_src[qp]), int(world.traffic.qp_dst[qp])
    return followed(world, e, qp, int(_hash(src, dst, int(e.plane), int(e.value))))


def followed(world: World, e: Any, qp: int, hashed: int) -> list[int]:
    src, dst = int(world.traffic.qp_src[qp]), int(world.traffic.qp_dst[qp])
    found = [src * world.fabric.n_planes + int(e.plane)]
    while (at := int(world.fabric.port_peer_switch[found[-1]])) >= 0:
        found.append(int(_next_port(world.net.ctl[0], world.net.switch[at], dst, hashed)))
    return found


# --- fields of an EV


@pytest.mark.parametrize("fabric", [clos(planes=2, up=3), tree(32)], ids=["two tiers", "three"])
def test_fields_of_an_ev_select_the_uplink_at_each_tier(fabric: Fabric, tmp_path: Path) -> None:
    """What frames show: without a carrier, each leaves by the ports that its own EV names."""
    n = fabric.n_nics
    traffic = permutation(n, 20_000, 3)
    with (tmp_path / "a.pcapng").open("wb") as file:
        capture = Capture.of(file, fabric, ["everywhere"], STRUCTURED)
        all_complete(world_of(fabric, traffic, srv6=False, ev_fields=True, capture=capture))
    names = {fabric.port_name(port): port for port in range(fabric.n_ports)}
    ups = set()
    for frame in read(tmp_path / "a.pcapng"):
        p = decode(frame.data)
        src, dst = whose(p.envelope.inner_src), whose(p.envelope.inner_dst)
        assert not p.envelope.srv6
        assert src is not None
        assert dst is not None
        ev, port = int(p.record.ev), names[frame.interface]
        assert port in fabric.route(src.nic, dst.nic, ev)
        at = int(fabric.port_switch[port])
        if at >= 0 and port >= int(fabric.sw_first_up[at]) >= 0:
            ups.add((int(fabric.sw_tier[at]), port - int(fabric.sw_first_up[at])))
    assert {tier for tier, _ in ups} == set(range(fabric.n_tiers - 1))
    assert len(ups) > fabric.n_tiers


def test_fields_of_an_ev_take_as_many_paths_as_there_are_and_no_bytes() -> None:
    """Paths are known, as with carriers, and none is hashed; frames are shorter by a header."""
    world = stream_world(clos(up=2), srv6=False, ev_fields=True)
    assert len(evs(world)) == 8 * 2
    assert world.derived()["data_packet_wire_bytes"] == 4096 + 126
    assert {tuple(route_of(world, e)) for e in evs(world)} == {
        tuple(world.fabric.route(0, int(world.traffic.qp_dst[0]), int(e.value))) for e in evs(world)
    }


# --- without SRv6


def hashing(fabric: Fabric | None = None, **more: Any) -> World:
    return stream_world(fabric, **({"srv6": False} | more))


def test_evs_are_source_ports_all_different_and_as_many_as_asked_for() -> None:
    world = hashing(clos(up=2))
    q, e = sender(world), evs(world)
    assert len(e) == 192, "though a plane has two paths"
    assert len(set(e.value.tolist())) == 192
    assert int(e.value.max()) < 1 << 16
    assert np.bincount(e.plane).tolist() == [24] * 8
    assert (int(q.n_evs), int(e.active.sum())) == (192, 128)


def test_several_evs_lie_on_one_path_and_all_paths_have_some() -> None:
    world = hashing(clos(up=4))
    ways = [tuple(route(world, e)) for e in evs(world)]
    assert len(set(ways)) == 8 * 4
    assert len(ways) == 192


def test_frames_have_one_ipv6_header() -> None:
    world = hashing(stop=1 * MS)
    world.run()
    most = 800 * 4096 / (4096 + 126)
    assert goodput_gbps(world, STEADY_FROM, 1 * MS) == pytest.approx(most, abs=1)
    assert world.derived()["data_packet_wire_bytes"] == 4096 + 126


def captured(world_arguments: dict[str, Any], path: Path) -> tuple[World, list[Any]]:
    with path.open("wb") as file:
        fabric = world_arguments["fabric"]
        capture = Capture(file, fabric, ["everywhere"], hashed=True)
        world = all_complete(world_of(**world_arguments, srv6=False, capture=capture))
    return world, [(frame, decode(frame.data)) for frame in read(path)]


def test_every_switch_hashes_the_five_tuple_control_packets_too(tmp_path: Path) -> None:
    """What frames show: a switch sends a 5-tuple by one port always, and different switches, with
    salts of their own, choose differently.
    """
    fabric = tree(32, 2, 4)
    many = {"fabric": fabric, "traffic": permutation(32, 60_000, 3), "evs_active": 32}
    world, frames = captured(many, tmp_path / "a.pcapng")
    names = {fabric.port_name(port): port for port in range(fabric.n_ports)}
    chosen: dict[Any, set[int]] = defaultdict(set)
    opcodes = set()
    for frame, p in frames:
        port = names[frame.interface]
        at = int(fabric.port_switch[port])
        assert not p.envelope.srv6
        opcodes.add(int(p.record.opcode))
        source = (whose(p.envelope.inner_src), whose(p.envelope.inner_dst), int(p.record.ev))
        if at >= 0 and port >= int(fabric.sw_first_up[at]):
            chosen[at, source].add(port - int(fabric.sw_first_up[at]))
    assert {pk.SACK, pk.ACKNOWLEDGE, pk.WRITE_MIDDLE} <= opcodes
    assert all(len(uplinks) == 1 for uplinks in chosen.values())
    assert {min(uplinks) for uplinks in chosen.values()} == {0, 1, 2, 3}
    climbed = defaultdict(list)
    for (at, source), uplinks in chosen.items():
        climbed[source].append((int(fabric.sw_tier[at]), min(uplinks)))
    pairs = [[up for _, up in sorted(way)] for way in climbed.values() if len(way) == 2]
    together = np.bincount([4 * first + second for first, second in pairs], minlength=16)
    mean = len(pairs) / 16
    assert mean > 20
    assert float(((together - mean) ** 2 / mean).sum()) < 3 * 16, "the two tiers agree in nothing"
    assert world.counters()["retransmitted"] == 0


def test_the_walk_of_these_tests_is_the_way_that_frames_take(tmp_path: Path) -> None:
    fabric = clos(planes=2, up=4)
    world, frames = captured(
        {"fabric": fabric, "traffic": stream(0, 7, 400_000)}, tmp_path / "a.pcapng"
    )
    names = {fabric.port_name(port): port for port in range(fabric.n_ports)}
    ways: dict[int, set[int]] = defaultdict(set)
    for frame, p in frames:
        if p.record.opcode <= pk.LAST_DATA:
            ways[int(p.record.ev)].add(names[frame.interface])
    assert len(ways) > 60
    for e in evs(world):
        assert ways.get(int(e.value), set(route(world, e))) == set(route(world, e))


def test_two_queue_pairs_of_a_pair_of_nics_share_their_hash() -> None:
    """A 5-tuple has no queue pair number: the same source port takes the same way."""
    world = world_of(clos(planes=2), permutation(8, 8192, 1, channels=2), srv6=False)
    first, second = 0, 1
    assert world.traffic.qp_dst[first] == world.traffic.qp_dst[second]
    e = evs(world, first)[0]
    assert route(world, e, first) == route(world, e, second)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_cut_takes_the_evs_that_lie_over_it_and_others_of_their_plane_replace_them(
    seed: int,
) -> None:
    fabric = clos(planes=4, up=4)
    fault = Fault(AT, "link-down", "plane 1 t0 0 > t1 2")
    world = hashing(fabric, faults=[fault], size=20_000_000, seed=seed)
    (cut,) = {port for e in evs(world) for port in route(world, e) if _is(fabric, port, 1, 2)}
    world.run(until_ps=AT)
    before = plane_turns(world)
    world.run(until_ps=AT + 100 * US)
    e = evs(world)
    over = np.array([cut in route(world, one) for one in e])
    bad = np.asarray(e.state) == ASSUMED_BAD
    assert 3 <= over.sum() < 24
    assert bad.any()
    assert not (bad & ~over).any(), "no other EV was blamed"
    assert not (np.asarray(e.active)[over & bad]).any()
    given = np.array(plane_turns(world)) - before
    assert given.max() - given.min() <= 0.02 * given.max(), "planes stay evenly loaded"
    all_complete(world)


def _is(fabric: Fabric, port: int, plane: int, up: int) -> bool:
    """Whether a port is the uplink of the first T0 of a plane to its T1 number `up`."""
    at = int(fabric.port_switch[port])
    return at >= 0 and fabric.port_name(port).startswith(f"plane {plane} t0 0 > t1 {up}")


@pytest.mark.parametrize(
    ("where", "planes_denied"),
    [
        ("plane 1 t1 2", []),  # some ways of the plane lead past it
        ("plane 1 t0 0 - t1 *", [1]),
        ("plane 1 t1 *, plane 3 t1 0", [1]),
        ("plane 2", [2]),
        ("plane 0 t0 1", [0]),  # the receiver's T0
        ("nic 7 plane 3 - t0", [3]),
    ],
)
def test_a_denylist_acts_on_what_every_way_of_a_plane_crosses(
    where: str, planes_denied: list[int]
) -> None:
    deny = Fault(AT, "deny", where, for_ps=100 * US)
    world = hashing(clos(planes=4, up=4), faults=[deny], size=20_000_000)
    world.run(until_ps=AT + 1)
    e = evs(world)
    denied = np.asarray(e.state) == DENIED
    assert (denied == np.isin(e.plane, planes_denied)).all()
    turns = plane_turns(world)
    world.run(until_ps=AT + 99 * US)
    took = np.array(plane_turns(world)) - turns
    assert [int(plane) for plane in np.flatnonzero(took == 0)] == planes_denied
    world.run(until_ps=AT + 101 * US)
    assert not (np.asarray(evs(world).state) == DENIED).any()
    all_complete(world)


def test_three_tiers_are_denied_as_a_whole_or_not_at_all() -> None:
    for where, denied in (("plane 0 t2 *", True), ("plane 0 t0 0 - t1 1", False)):
        world = hashing(tree(32, 2, 4), faults=[Fault(AT, "deny", where, for_ps=9 * US)])
        world.run(until_ps=AT + 1)
        assert ((np.asarray(evs(world).state) == DENIED) == denied).all()


def test_one_hashed_path_moves_when_routing_has_converged() -> None:
    world = hashing(paths="single")
    (e,) = evs(world)
    up = world.fabric.port_name(route(world, e)[1]).replace(" > ", " - ")
    fault = Fault(AT, "link-down", up)
    world = hashing(paths="single", faults=[fault], size=4_000_000, convergence_ps=100 * US)
    world.run(until_ps=AT + 100 * US - 1)
    before = route(world, evs(world)[0])
    world.run(until_ps=AT + 100 * US)
    assert route(world, evs(world)[0]) != before
    all_complete(world)


def test_tables_of_usids_are_not_looked_at() -> None:
    worlds = [
        all_complete(
            world_of(
                clos(planes=2),
                permutation(8, 100_000, 1),
                srv6=False,
                queues=Queues(by_usid=by_usid),
            )
        )
        for by_usid in (False, True)
    ]
    assert plain.outcome(worlds[0]) == plain.outcome(worlds[1])


def test_a_sampled_run_names_no_paths() -> None:
    world = hashing(clos(planes=2), size=100_000)
    world.sample(None, 20)
    world.run()
    samples = world.samples()
    assert samples is not None
    assert set(samples.qp.names.values()) == {"hashed by the switches"}


def test_peer_rules_hash_by_themselves() -> None:
    with pytest.raises(InputError, match=r"^transport.srv6: rules = 'peer' hashes EVs by itself"):
        world_of(tree(16, 2, 2), stream(0, 15, 10), rules="peer", srv6=False)


def test_a_capture_refuses_nothing_and_has_no_carriers() -> None:
    file = io.BytesIO()
    fabric = clos(planes=2)
    capture = Capture(file, fabric, ["nic 0"], hashed=Transport(srv6=False).hashed)
    world_of(fabric, stream(0, 7, 100_000), srv6=False, capture=capture).run()
    assert capture.n_frames > 24


# --- without trimming


def test_a_transport_says_whether_switches_trim_or_the_fabric_does() -> None:
    def run(fabric_trims: bool, trim: bool | None) -> World:
        return all_complete(
            world_of(
                clos(planes=2),
                incast(8, 6, 400_000),
                queues=Queues(trim=fabric_trims),
                trim=trim,
            )
        )

    with_trims, without = run(True, None), run(False, None)
    assert with_trims.counters()["trimmed"] > 0
    assert without.counters()["trimmed"] == 0
    assert without.counters()["dropped_queue"] > 0
    assert plain.outcome(run(True, False)) == plain.outcome(without)
    assert plain.outcome(run(False, True)) == plain.outcome(with_trims)
    t = with_trims.values.base_rtt_ps
    assert with_trims.engine.qp[0].target == 3 * t // 4
    assert run(True, False).engine.qp[0].target == t


# --- capabilities


def test_without_trim_nacks_nothing_may_be_trimmed() -> None:
    """MRC 1.9: the receivers answer no header, so full queues drop what is sent NO_TRIM."""
    world = all_complete(world_of(clos(planes=2), incast(8, 6, 400_000), trim_nack=False))
    counters = world.counters()
    assert counters["trimmed"] == counters["nack"] == 0
    assert counters["dropped_queue"] > 0


def test_with_dynamic_mpr_each_sack_says_the_window() -> None:
    """MRC 1.5: in units of 128 packets; without it 0, and all else is the same."""
    said, outcomes = {}, {}
    for enabled in (True, False):
        file = io.BytesIO()
        fabric = clos(planes=2)
        capture = Capture(file, fabric, ["nic 0"])
        world = all_complete(
            world_of(fabric, stream(0, 7, 400_000), capture=capture, mpr=768, dynamic_mpr=enabled)
        )
        file.seek(0)
        sacks = [p for p in map(decoded, Reader(file, "x")) if p.opcode == pk.SACK]
        said[enabled] = {int(p.mpr) for p in sacks}
        outcomes[enabled] = world.counters()
    assert said == {True: {6}, False: {0}}
    assert outcomes[True] == outcomes[False]


def decoded(captured: Captured) -> Any:
    return decode(captured.data).record


# --- without ECN skip


def test_marks_without_skip() -> None:
    """A slow link inside the fabric: packets are marked and trimmed there."""
    slow = [Fault(0, "link-slow", "plane 0 t0 0 > t1 *", factor=0.5)]
    found = {}
    for skip in (True, False):
        world = all_complete(
            world_of(
                clos(nics=8, planes=2, up=4), permutation(8, 2_000_000, 2), slow, ecn_skip=skip
            )
        )
        found[skip] = world.counters()
        assert found[skip]["ecn_marked"] > 50
    assert found[True]["skips"] > 50
    assert found[False]["skips"] <= found[False]["trimmed"], "only what was trimmed skips"


# --- REPS


def test_reps_carries_everything_and_gives_up_nothing() -> None:
    faults = [
        Fault(20 * US, "link-down", "plane 0 t0 0 - t1 1", for_ps=100 * US),
        Fault(0, "link-loss", "plane 1 t0 * - t1 *", rate=0.01),
    ]
    world = all_complete(
        world_of(clos(planes=4, up=4), permutation(8, 2_000_000, 1), faults, paths="reps")
    )
    c = world.counters()
    assert c["dropped_fault"] > 20
    assert c["retransmitted"] >= c["dropped_fault"] // 2
    assert (c["assumed_bad"], c["revived"], c["skips"]) == (0, 0, 0)
    rings = world.engine.reps
    assert len(rings) == 4 * world.ends.n
    assert rings.frozen.sum() > 0
    senders = rings.reshape(-1, 4)[world.ends.sender]
    assert senders.known.min() > 0
    assert not rings.reshape(-1, 4)[world.ends.receiver].known.any()


def test_reps_leaves_a_slow_link_alone_where_spraying_does_not() -> None:
    """One uplink of four at a quarter of its rate; a SACK for each packet, as REPS wants."""
    slow = [Fault(0, "link-slow", "plane 0 t0 0 > t1 1", factor=0.25)]
    fabric = clos(nics=8, planes=1, up=4)
    carried = {}
    for policy in ("reps", "oblivious"):
        world = all_complete(
            world_of(fabric, permutation(8, 4_000_000, 2), slow, paths=policy, sack_bytes=1)
        )
        uplinks = [p for p in range(fabric.n_ports) if _is_uplink(fabric, p)]
        sent = np.asarray(world.net.port.sent_bytes)[uplinks]
        carried[policy] = float(sent[1] / sent.sum())
    assert carried["oblivious"] > 0.15, "in spite of all that is cut there"
    assert 0.03 < carried["reps"] < 1 / 13, "less than what its rate is of all four"


def _is_uplink(fabric: Fabric, port: int) -> bool:
    return fabric.port_name(port).startswith("plane 0 t0 0 > t1")


# --- all of them


@pytest.mark.parametrize(
    "variant",
    [
        {"srv6": False},
        {"trim": False},
        {"ecn_skip": False},
        {"paths": "reps"},
        {"paths": "reps", "srv6": False, "trim": False},
        {"paths": "oblivious", "srv6": False},
    ],
    ids=" ".join,
)
def test_a_run_is_a_function_of_its_arguments(variant: dict[str, Any]) -> None:
    def run(seed: int) -> dict[str, Any]:
        faults = [Fault(0, "link-loss", "plane 1 t0 * - t1 *", rate=0.01)]
        world = world_of(
            clos(planes=2, up=4), permutation(8, 600_000, 3), faults, seed=seed, **variant
        )
        return plain.outcome(all_complete(world))

    assert run(1) == run(1)
    assert run(1)["engine"] != run(2)["engine"]
