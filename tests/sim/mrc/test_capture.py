"""What a capture holds is what crossed the links: every frame, as it stood on that link."""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from openmrc.engine import packet as pk
from openmrc.errors import InputError
from openmrc.fabric.dscp import Dscps
from openmrc.fabric.faults import Fault
from openmrc.fabric.model import Fabric
from openmrc.fabric.queues import Queues
from openmrc.fabric.usid import USID_BITS, UsidPlan
from openmrc.sim.mrc.capture import Capture
from openmrc.sim.mrc.transport import Transport
from openmrc.sim.watch.capture import ports_at, switches_passed
from openmrc.sim.watch.forms import FORMS, IPV4, IPV6, NATIVE
from openmrc.sim.world import World
from openmrc.traffic.traffic import Traffic
from openmrc.wire import Packet, decode
from openmrc.wire.addresses import whose
from openmrc.wire.frame import WireError
from openmrc.wire.pcap import Captured, read
from openmrc.workload.patterns import incast, permutation, stream
from tests.sim.lab import US, all_complete, clos, tree, world_of

BESIDE_THE_FRAME = 24  # bytes: FCS 4, preamble 8, gap 12


def capture(
    path: Path,
    fabric: Fabric,
    traffic: Traffic,
    *where: str,
    faults: tuple[Fault, ...] = (),
    queues: Queues | None = None,
    rules: str = "mrc",
) -> tuple[World, list[tuple[Captured, Packet]]]:
    """Run a world to its end; every packet of its capture, decoded."""
    with path.open("wb") as stream:
        file = Capture(stream, fabric, where, hashed=rules == "peer")
        world = world_of(fabric, traffic, faults, queues=queues, rules=rules, capture=file)
        all_complete(world)
    found = [(captured, decode(captured.data)) for captured in read(path)]
    assert len(found) == file.n_frames
    return world, found


def test_everywhere_is_every_link_traversal_once(tmp_path: Path) -> None:
    world, found = capture(
        tmp_path / "a.pcapng", clos(planes=2, up=2), permutation(8, 200_000, 1), "everywhere"
    )
    assert len(found) == world.counters()["link_traversals"]
    opcodes = Counter(p.record.opcode.item() for _, p in found)
    data = sum(n for opcode, n in opcodes.items() if opcode <= pk.LAST_DATA)
    climbs = world.fabric.uplinks(world.traffic.msg_src, world.traffic.msg_dst)
    packets = -(-world.traffic.msg_bytes // 4096)
    assert data == ((2 + 2 * climbs) * packets).sum()  # no packet was sent twice
    assert world.counters()["retransmitted"] == 0
    assert [c.time_ns for c, _ in found] == sorted(c.time_ns for c, _ in found)  # type: ignore[type-var]


@pytest.mark.parametrize("fabric", [clos(planes=4, up=2), tree(32)], ids=["two tiers", "three"])
def test_on_each_link_the_first_usid_is_of_what_is_behind_it(
    fabric: Fabric, tmp_path: Path
) -> None:
    traffic = permutation(fabric.n_nics, 30_000, 3)
    world, found = capture(tmp_path / "a.pcapng", fabric, traffic, "everywhere")
    plan = UsidPlan(fabric)
    behind = {fabric.port_name(port): port for port in range(fabric.n_ports)}
    seen = set()
    for captured, p in found:
        port = behind[captured.interface]
        switch = int(fabric.port_peer_switch[port])
        front = int.from_bytes(p.envelope.carrier[4:6].tobytes())
        if switch < 0:
            assert front == plan.nic(int(fabric.port_peer_nic[port]))
            assert not p.envelope.carrier[6:].any()
        elif fabric.n_tiers == 2 or fabric.sw_tier[switch] != 1:  # a way down passes T1s unnamed
            tier, plane = fabric.sw_tier[switch], int(fabric.sw_plane[switch])
            if tier == 0:
                assert front == plan.t0(plane, int(fabric.sw_index[switch]))
            else:
                assert front >> USID_BITS - 2 in (0, 2), "a T1 or T2"
        ends = [whose(p.envelope[end].tobytes()) for end in ("inner_src", "inner_dst")]
        src, dst = (end.nic for end in ends if end is not None)
        passed = 64 - int(p.envelope.hop_limit)
        assert passed == switches_passed(fabric, port, src, dst)
        seen.add(passed)
    assert seen == set(range(2 * fabric.n_tiers))
    assert world.bytes_wrong == 0


def test_a_frame_is_as_long_as_its_time_on_the_wire(tmp_path: Path) -> None:
    fabric = clos(planes=1, up=2)
    with (tmp_path / "a.pcapng").open("wb") as file:
        world = world_of(
            fabric,
            incast(8, 6, 100_000),
            capture=Capture(file, fabric, ["nic 0"]),
        )
        sizes = []
        take = world.capture.take  # type: ignore[union-attr]

        def watch(of: World) -> None:
            sizes.extend(of.net.tap.frame_bytes[: of.net.ctl[0].tap_n].tolist())
            take(of)

        world.capture.take = watch  # type: ignore[union-attr,method-assign]
        all_complete(world)
    frames = [c.original_length for c in read(tmp_path / "a.pcapng")]
    assert [n + BESIDE_THE_FRAME for n in frames] == sizes
    assert world.counters()["trimmed"] > 0  # trimmed ones among them


@pytest.mark.parametrize("lengths", ["all", "none"])
def test_trimmed_packets_are_trimmed_from_the_queue_on(tmp_path: Path, lengths: str) -> None:
    fabric = replace(clos(planes=2, up=4), trim_lengths=lengths)
    world, found = capture(tmp_path / "a.pcapng", fabric, incast(8, 7, 100_000), "nic 0")
    towards = [(c, p) for c, p in found if c.interface.endswith("< t0")]
    trimmed = [(c, p) for c, p in towards if p.trimmed]
    assert len(trimmed) == world.counters()["trimmed"]
    assert {(c.original_length, p.trim_lengths) for c, p in trimmed} == {(14 + 128, lengths)}
    assert {p.record.flag_bits.item() & pk.TRIMMED_LASTHOP for _, p in trimmed} == {
        pk.TRIMMED_LASTHOP
    }
    nacks = [p for c, p in found if p.record.opcode == pk.NACK]
    assert len(nacks) == len(trimmed)
    whole = [p for _, p in towards if p.record.opcode <= pk.LAST_DATA and not p.trimmed]
    placed = {
        (p.envelope["inner_src"].tobytes(), p.record.psn.item()): p.record.payload_len.item()
        for p in whole
    }
    assert sum(placed.values()) == 7 * 100_000
    assert len(whole) - len(placed) == world.counters()["duplicates"]


def test_marks_are_on_the_outer_header_behind_the_queue_that_made_them(tmp_path: Path) -> None:
    fabric = clos(planes=1, up=1)  # the uplink of the senders' T0 is the bottleneck
    traffic = incast(8, 3, 400_000)
    world, found = capture(tmp_path / "a.pcapng", fabric, traffic, "plane 0 t0 1 > t1 0", "nic 7")
    marked = [p for c, p in found if "t1" in c.interface and p["outer IPv6"]["ecn"] == 3]
    assert len(marked) == world.counters()["ecn_marked"] > 0
    assert all(p["IPv6"]["ecn"] == 2 for p in marked)  # the switch saw only the outer one
    from_nic = [p for c, p in found if c.interface == "nic 7 plane 0 > t0"]
    assert from_nic
    assert not any(p["outer IPv6"]["ecn"] == 3 for p in from_nic)


def test_what_a_fault_swallows_did_not_cross(tmp_path: Path) -> None:
    fabric = clos(nics=2, planes=1, down=1, up=2)
    fault = Fault(0, "link-loss", "plane 0 t0 0 > t1 0", rate=0.3)
    world, found = capture(
        tmp_path / "a.pcapng",
        fabric,
        stream(0, 1, 400_000),
        "plane 0 t0 0 > t1 0",
        "plane 0 t0 1 < t1 0",
        faults=(fault,),
    )
    # data: a probe may still be under way when all is complete and the run ends
    by_link = Counter(c.interface for c, p in found if p.record.opcode <= pk.LAST_DATA)
    assert world.counters()["dropped_fault"] > 0
    # all that crossed the lossy link also left its other end, and nothing else did
    assert by_link["plane 0 t0 0 > t1 0"] == by_link["plane 0 t0 1 < t1 0"]


def test_what_a_fault_damages_has_a_wrong_icrc_from_there_on(tmp_path: Path) -> None:
    fabric = clos(nics=2, planes=1, down=1, up=2)
    fault = Fault(0, "link-corrupt", "plane 0 t0 0 > t1 0", rate=0.2)
    places = ["nic 0 plane 0 > t0", "plane 0 t0 0 > t1 0", "nic 1 plane 0 < t0"]
    path = tmp_path / "a.pcapng"
    with path.open("wb") as file:
        capture = Capture(file, fabric, places)
        world = world_of(fabric, stream(0, 1, 400_000), [fault], capture=capture)
        all_complete(world)
    bad: Counter[str] = Counter()
    for captured in read(path):
        try:
            fine = decode(captured.data, check=False).icrc_ok
        except WireError:  # the damage is in what says how to read on
            fine = False
        bad[captured.interface] += not fine
    damaged = world.counters()["dropped_corrupt"]
    assert bad == {places[0]: 0, places[1]: damaged, places[2]: damaged}
    assert damaged > 0


def test_what_leaves_on_a_plane_without_evs_has_a_path_there(tmp_path: Path) -> None:
    """A QP on one path tells its peer of a port that is down, on whatever plane is left."""
    fabric = clos(planes=2, up=2)
    ports = [
        Fault(at * US, "port-down", f"nic 0 plane {p}", 20 * US) for p, at in ((0, 5), (1, 60))
    ]
    path = tmp_path / "a.pcapng"
    with path.open("wb") as file:
        capture = Capture(file, fabric, ["everywhere"])
        all_complete(
            world_of(fabric, stream(0, 7, 1_200_000), ports, paths="single", capture=capture)
        )
    requests = [
        captured.interface
        for captured in read(path)
        if decode(captured.data).record.opcode == pk.ENDPOINT_REQUEST
    ]
    for plane in (0, 1):
        assert f"nic 0 plane {plane} > t0" in requests


def test_hashed_evs_have_no_carrier(tmp_path: Path) -> None:
    _, found = capture(
        tmp_path / "a.pcapng", tree(16), permutation(16, 30_000, 1), "nic 3", rules="peer"
    )
    assert found
    assert not any("outer IPv6" in [h.name for h in p.headers] for _, p in found)


def test_the_other_forms_hold_the_same_packets(tmp_path: Path) -> None:
    """One run, captured in each form: the same packets at the same times, iCRCs right, and trimmed
    where they were; DSCPs are the fabric's.
    """
    dscps = Dscps(
        no_trim=10, trimmable=18, trimmable_retx=26, trimmed=11, trimmed_lasthop=21, control=48
    )
    fabric = replace(clos(planes=2, up=2), dscps=dscps)
    seen = {}
    for form in FORMS:
        path = tmp_path / form
        with path.open("wb") as file:
            taken = Capture(file, fabric, ["nic 0"], frames=form)
            all_complete(world_of(fabric, incast(8, 7, 100_000), capture=taken))
        seen[form] = [(c.time_ns, c.interface, decode(c.data, dscps=dscps)) for c in read(path)]
    for form, layers in ((IPV4, ["Ethernet", "IPv4", "UDP"]), (IPV6, ["Ethernet", "IPv6", "UDP"])):
        assert len(seen[form]) == len(seen[NATIVE])
        for (*place, found), (*as_sent, native) in zip(seen[form], seen[NATIVE], strict=True):
            assert place == as_sent
            assert [header.name for header in found.headers][:3] == layers
            for field in pk.PACKET.names or ():
                value = int(getattr(native.record, field))
                if form == IPV4 and field in ("ev", "entropy") and value:
                    value = 0xC000 | value >> 16  # row 2: IPv4 has half of it
                assert getattr(found.record, field) == value, field
    trimmed = [found for _, _, found in seen[IPV4] if found.trimmed]
    assert len(trimmed) > 10
    assert {found["IPv4"]["dscp"] for found in trimmed} == {dscps.trimmed_lasthop}
    assert {found["IPv4"]["total_length"] for found in trimmed} == {128}


@pytest.mark.parametrize("by_usid", [False, True])
def test_to_look_changes_nothing(by_usid: bool) -> None:
    queues = Queues(by_usid=by_usid)
    fabric, traffic = clos(planes=2, up=2), incast(8, 6, 100_000)
    plain = all_complete(world_of(fabric, traffic))
    seen = world_of(
        fabric, traffic, queues=queues, capture=Capture(io.BytesIO(), fabric, ["everywhere"])
    )
    all_complete(seen)
    assert seen.counters() == plain.counters()
    assert seen.flows()["done_ps"].tolist() == plain.flows()["done_ps"].tolist()


@pytest.mark.parametrize("fabric", [clos(planes=2, up=3), tree(32)], ids=["two tiers", "three"])
@pytest.mark.parametrize("paths", ["mrc", "single"])
def test_switches_that_shift_and_look_up_do_the_same(fabric: Fabric, paths: str) -> None:
    """Trims exchange packets in a queue, faults move paths: the carriers go with them."""
    n = fabric.n_nics
    faults = [Fault(20 * US, "link-down", "plane 0 t0 0 - t1 0")]
    traffic = incast(n, n - 1, 60_000)
    arithmetic, *by_usid = (
        all_complete(world_of(named, traffic, faults, queues=Queues(by_usid=used), paths=paths))
        for used, named in ((False, fabric), (True, fabric), (True, replace(fabric, sids="uA")))
    )
    assert arithmetic.counters()["trimmed"] > 0
    for way in by_usid:
        assert way.net.ctl[0].by_usid != arithmetic.net.ctl[0].by_usid
        assert way.counters() == arithmetic.counters()
        assert way.flows()["done_ps"].tolist() == arithmetic.flows()["done_ps"].tolist()


def test_places_are_taken_together_and_once() -> None:
    fabric = clos(nics=8, planes=2, up=2)
    nic = ports_at(fabric, ["nic 3"])
    assert [fabric.port_name(p) for p in nic] == [
        "nic 3 plane 0 > t0",
        "nic 3 plane 1 > t0",
        "nic 3 plane 0 < t0",
        "nic 3 plane 1 < t0",
    ]
    assert ports_at(fabric, ["nic 3", "nic 3 plane 1"]).tolist() == nic.tolist()
    assert len(ports_at(fabric, ["plane 0 t1 1"])) == 4
    assert len(ports_at(fabric, ["everywhere"])) == fabric.n_ports
    with pytest.raises(InputError, match="--at 'plane 7 t1 0': there is no plane 7"):
        ports_at(fabric, ["everywhere", "plane 7 t1 0"])


def test_a_world_without_capture_keeps_no_room_for_one() -> None:
    world = World(clos(), permutation(8, 10_000, 1), Transport())
    assert len(world.net.tap) == len(world.net.tap_packet) == 0
    assert world.net.carrier.shape == (1, 16)
