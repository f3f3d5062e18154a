"""A capture of a RoCE world is its record: what its counters count is there, frame by frame."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from openmrc.errors import InputError
from openmrc.fabric.faults import Fault
from openmrc.fabric.model import Fabric
from openmrc.sim.roce import pfc
from openmrc.sim.roce.capture import RoceCapture
from openmrc.sim.watch.forms import IPV4, IPV6
from openmrc.sim.world import World
from openmrc.wire import DecodedFrame, decode_roce, dissector
from openmrc.wire.addresses import whose
from openmrc.wire.pcap import Captured, read
from openmrc.wire.roce import opcodes as roce
from openmrc.wire.roce import pause
from openmrc.workload import incast, permutation, ring_all_reduce
from openmrc.workload.patterns import stream
from tests.sim.lab import US, tree
from tests.sim.roce import worlds
from tests.sim.roce.lab import all_complete, leaf_spine, roce_world, side
from tests.sim.roce.lab import roce as counters_of

BESIDE_THE_FRAME = 24  # bytes: FCS 4, preamble 8, gap 12
TSHARK = shutil.which("tshark")
needs_tshark = pytest.mark.skipif(
    TSHARK is None, reason="RoCE CAPTURES NOT READ BY WIRESHARK: no tshark here, apt install tshark"
)

Make = Callable[[RoceCapture], World]


@dataclass
class Seen:
    """A world that ran to its end, and its capture."""

    world: World
    packets: list[tuple[Captured, DecodedFrame]] = field(default_factory=list)
    pauses: list[tuple[Captured, pause.Pause]] = field(default_factory=list)
    charged: list[int] = field(default_factory=list)  # wire bytes by the simulator, as noted

    def of(
        self, *opcodes: int, at: Callable[[str], bool] = lambda name: True
    ) -> list[DecodedFrame]:
        """Packets of some opcodes at some interfaces."""
        return [p for c, p in self.packets if p["BTH"]["opcode"] in opcodes and at(c.interface)]


DATA = tuple(range(roce.WRITE_FIRST, roce.LAST_DATA + 1))
IMMEDIATE = (roce.WRITE_LAST_IMM, roce.WRITE_ONLY_IMM)


def leaves_nic(name: str) -> bool:
    return name.startswith("nic ") and " > " in name


def reaches_nic(name: str) -> bool:
    return name.startswith("nic ") and " < " in name


def run(path: Path, fabric: Fabric, make: Make, *where: str, check: bool = True) -> Seen:
    """Run a world with a capture, and read that back."""
    with path.open("wb") as stream:
        file = RoceCapture(stream, fabric, where or ["everywhere"])
        world = make(file)
        seen = Seen(world)
        take = file.take

        def watch(of: World) -> None:
            n = of.net.ctl[0].tap_n
            seen.charged.extend(of.net.tap.frame_bytes[:n].tolist())
            take(of)

        file.take = watch  # type: ignore[assignment]
        world.run()
    for captured in read(path):
        if pause.is_mac_control(captured.data):
            seen.pauses.append((captured, pause.read(captured.data)))
        else:
            found = decode_roce(captured.data, check=check)
            assert not found.notes or not check
            seen.packets.append((captured, found))
    assert len(seen.packets) + len(seen.pauses) == file.n_frames
    return seen


@pytest.fixture(scope="module")
def tight(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """An incast that pauses links of NICs and between switches."""
    path = tmp_path_factory.mktemp("tight") / "a.pcapng"
    seen = run(path, leaf_spine(), lambda file: worlds.tight(cc="none", capture=file))
    all_complete(seen.world)
    return seen


def test_everywhere_is_every_link_traversal_once(tight: Seen) -> None:
    c = tight.world.counters()
    assert len(tight.packets) == c["link_traversals"]
    assert len(tight.of(*DATA, at=leaves_nic)) == c["data"] == 7 * 30
    assert c["retransmitted"] == 0
    assert len(tight.of(roce.ACKNOWLEDGE, at=leaves_nic)) == c["roce.acks"] > 0
    assert (
        len(tight.of(*DATA, at=reaches_nic)) + len(tight.of(roce.ACKNOWLEDGE, at=reaches_nic))
        == (c["delivered"])
    )
    times = [captured.time_ns for captured, _ in [*tight.packets, *tight.pauses]]
    assert None not in times


def test_a_file_is_in_the_order_of_its_times(tight: Seen, tmp_path: Path) -> None:
    path = tmp_path / "a.pcapng"
    run(path, leaf_spine(), lambda file: worlds.tight(cc="none", capture=file))
    times = [cast(int, captured.time_ns) for captured in read(path)]
    assert times == sorted(times)


def test_a_frame_is_as_long_as_its_time_on_the_wire(tight: Seen) -> None:
    frames = [c.original_length for c, _ in [*tight.packets, *tight.pauses]]
    assert Counter(n + BESIDE_THE_FRAME for n in frames) == Counter(tight.charged)
    assert {pfc.FRAME_BYTES, 4178, 4194} <= set(tight.charged)


def test_pause_frames_are_those_that_were_sent_and_say_how_long(tight: Seen) -> None:
    """Each stretch from a frame with a time to the next one without is a pause of a port."""
    told = counters_of(tight.world)
    asks: dict[str, list[int]] = defaultdict(list)
    for captured, found in tight.pauses:
        assert found.destination == "01:80:c2:00:00:01"
        assert list(found.quanta) == [pause.DATA_PRIORITY]
        asks[captured.interface].append(found.quanta[pause.DATA_PRIORITY])
    flat = [quanta for row in asks.values() for quanta in row]
    assert set(flat) == {0, pfc.QUANTA_MAX}
    assert sum(quanta > 0 for quanta in flat) == told["pause_frames"]
    begun = sum(
        quanta > 0 and before == 0
        for row in asks.values()
        for before, quanta in zip([0, *row], row, strict=False)
    )
    assert begun == told["pauses"] > 10
    assert len(asks) == told["paused_ports"]
    # on the way back of a link, from the switch that asks: towards NICs, and between switches
    fabric = tight.world.fabric
    by_name = {fabric.port_name(port): port for port in range(fabric.n_ports)}
    paused = {int(fabric.port_reverse[by_name[name]]) for name in asks}
    counted = side(tight.world).state.pause.pauses
    assert paused == {port for port in range(fabric.n_ports) if counted[port]}
    assert any(reaches_nic(name) for name in asks)
    assert any("t1" in name for name in asks)
    for captured, found in tight.pauses:
        switch = int(fabric.port_switch[by_name[captured.interface]])
        assert found.source == f"02:ff:00:00:00:{switch:02x}"


def test_while_a_port_is_paused_no_data_leaves_it(tight: Seen) -> None:
    """From the arrival of a pause frame to that of the next one at a NIC's port."""
    fabric = tight.world.fabric
    duration = pfc.FRAME_BYTES * 80 + 500_000  # at 100 Gb/s, and the link
    for nic in range(1, 8):
        held_from = None
        stretches = []
        for captured, found in tight.pauses:
            if captured.interface != f"nic {nic} plane 0 < t0":
                continue
            at = cast(int, captured.time_ns) + duration // 1000
            if found.quanta[pause.DATA_PRIORITY]:
                held_from = at if held_from is None else held_from
            elif held_from is not None:
                stretches.append((held_from, at))
                held_from = None
        assert stretches, fabric.port_name(nic)
        sent = [
            cast(int, c.time_ns)
            for c, p in tight.packets
            if c.interface == f"nic {nic} plane 0 > t0" and p["BTH"]["opcode"] in DATA
        ]
        assert not [t for t in sent for a, b in stretches if a + 260 < t < b - 1]


def test_what_an_rdma_write_is_on_the_wire(tmp_path: Path) -> None:
    fabric = leaf_spine()
    size = 5 * 4096 + 1001
    seen = run(
        tmp_path / "a.pcapng",
        fabric,
        lambda file: roce_world(fabric, stream(0, 7, size), capture=file),
        "nic 0",
    )
    all_complete(seen.world)
    sent = seen.of(*DATA, at=leaves_nic)
    assert [p["BTH"]["opcode"] for p in sent] == [6, 7, 7, 7, 7, 8]
    psns = [p["BTH"]["psn"] for p in sent]
    assert psns == [(psns[0] + i) % 2**24 for i in range(6)]
    assert sum(p.payload_length for p in sent) == size == sent[0]["RETH"]["dma_length"]
    assert [p["BTH"]["a"] for p in sent] == [0, 0, 0, 0, 0, 1]
    assert [p["BTH"]["pad"] for p in sent] == [0, 0, 0, 0, 0, 3]
    udp = sent[0]["UDP"]
    sport = int(side(seen.world).state.qp.sport[seen.world.ends.sender[0]])
    assert (udp["src_port"], udp["dst_port"], udp["checksum"]) == (sport, 4791, 0)
    acks = seen.of(roce.ACKNOWLEDGE, at=reaches_nic)
    assert [(p["BTH"]["psn"] - psns[0]) % 2**24 for p in acks] == [3, 5]
    assert [(p["AETH"]["syndrome"], p["AETH"]["msn"]) for p in acks] == [(0x1F, 0), (0x1F, 1)]
    q = seen.world.engine.qp
    sender = int(seen.world.ends.sender[0])
    receiver = int(seen.world.ends.other[sender])
    assert {p["BTH"]["dest_qpn"] for p in sent} == {int(q.qpn[receiver])}
    assert {p["BTH"]["dest_qpn"] for p in acks} == {int(q.qpn[sender])}
    # what the pad adds is what the simulation does not charge
    assert sum(c.original_length + BESIDE_THE_FRAME for c, _ in seen.packets) == (
        sum(seen.charged) + 3
    )


def test_messages_are_numbered_and_immediates_are_said(tmp_path: Path) -> None:
    fabric = leaf_spine(4, 2, 2, 2)
    seen = run(
        tmp_path / "a.pcapng",
        fabric,
        lambda file: roce_world(fabric, ring_all_reduce(4, 40_001), qps=2, capture=file),
    )
    all_complete(seen.world)
    sent = seen.of(*DATA, at=leaves_nic)
    ends = [p for p in sent if p["BTH"]["a"]]
    assert {p["BTH"]["opcode"] for p in ends} == set(IMMEDIATE) - {roce.WRITE_ONLY_IMM}
    assert all(p["ImmDt"]["imm"] == 0 for p in ends)
    n_sends = seen.world.traffic.n_sends
    assert len(ends) == 2 * n_sends  # a part on each QP
    firsts = [p for p in sent if p["BTH"]["opcode"] == roce.WRITE_FIRST]
    assert sum(p["RETH"]["dma_length"] for p in firsts) == sum(p.payload_length for p in sent)
    highest: Counter[int] = Counter()
    for p in seen.of(roce.ACKNOWLEDGE, at=leaves_nic):
        qpn = p["BTH"]["dest_qpn"]
        assert p["AETH"]["msn"] >= highest[qpn]
        highest[qpn] = p["AETH"]["msn"]
    assert sum(highest.values()) == 2 * n_sends
    # a key and an address for each QP of the workload: both of its QPs write to one memory
    assert len({p["RETH"]["rkey"] for p in firsts}) == seen.world.traffic.n_qps
    # a bond has one address, that of plane 0, whatever plane a packet takes
    ports = {(whose(p["IPv4"]["src"].to_bytes(4, "big")), c.interface) for c, p in seen.packets}
    assert {port.plane for port, _ in ports if port is not None} == {0}
    assert {name.split()[3] for _, name in ports if leaves_nic(name)} == {"0", "1"}


def test_the_ttl_counts_the_switches_that_were_passed(tmp_path: Path) -> None:
    fabric = tree(16, 2, 2)
    seen = run(
        tmp_path / "a.pcapng",
        fabric,
        lambda file: roce_world(fabric, permutation(16, 9_000, 2), capture=file),
    )
    all_complete(seen.world)
    on_the_way: dict[Any, list[int]] = defaultdict(list)
    for _, p in seen.packets:
        key = p["BTH"]["dest_qpn"], p["BTH"]["psn"], p["BTH"]["opcode"], len(p.frame)
        on_the_way[key].append(p["IPv4"]["ttl"])
    for ttls in on_the_way.values():
        assert ttls == list(range(64, 64 - len(ttls), -1))
    assert {len(ttls) for ttls in on_the_way.values()} == {2, 4, 6}


# Losses


def replay(packets: Iterable[DecodedFrame]) -> Counter[str]:
    """What responders do with data that arrives, told from its PSNs alone."""
    expected: dict[int, int] = {}
    what: Counter[str] = Counter()
    for p in packets:
        qpn, psn = p["BTH"]["dest_qpn"], p["BTH"]["psn"]
        due = expected.setdefault(qpn, psn)  # no first packet of a QP is lost here
        seq = unwrap_psn(psn, due)
        what["in order" if seq == due else "discarded" if seq > due else "duplicates"] += 1
        if seq == due:
            expected[qpn] = due + 1
    return what


def unwrap_psn(psn: int, near: int) -> int:
    return near + (psn - near + 2**23) % 2**24 - 2**23


@pytest.fixture(scope="module")
def lossy(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """Losses behind the first switch, from a time on at which every QP has been heard."""
    fabric = leaf_spine(4, 1, 2, 2)
    faults = [Fault(4 * US, "link-loss", "plane 0 t0 * > t1 *", rate=0.04)]
    path = tmp_path_factory.mktemp("lossy") / "a.pcapng"
    return run(
        path,
        fabric,
        lambda file: roce_world(
            fabric, permutation(4, 900_000, 1), faults, rto_ps=200 * US, capture=file
        ),
    )


def test_go_back_n_is_there_packet_by_packet(lossy: Seen) -> None:
    all_complete(lossy.world)
    c = lossy.world.counters()
    sent = lossy.of(*DATA, at=leaves_nic)
    assert len(sent) == c["data"] + c["retransmitted"]
    highest: dict[int, int] = {}
    again = 0
    for p in sent:
        qpn = p["BTH"]["dest_qpn"]
        seq = unwrap_psn(p["BTH"]["psn"], highest.get(qpn, p["BTH"]["psn"]))
        again += seq <= highest.get(qpn, seq - 1)
        highest[qpn] = max(highest.get(qpn, seq), seq)
    assert again == c["retransmitted"] > 100


def test_a_responder_does_what_the_psns_ask_for(lossy: Seen) -> None:
    c = lossy.world.counters()
    what = replay(lossy.of(*DATA, at=reaches_nic))
    assert what == {
        "in order": c["data"],
        "discarded": c["roce.discarded"],
        "duplicates": c["duplicates"],
    }
    assert what["discarded"] > 50


def test_naks_name_what_is_missing_and_acks_what_has_come(lossy: Seen) -> None:
    c = lossy.world.counters()
    answers = lossy.of(roce.ACKNOWLEDGE, at=leaves_nic)
    kinds = Counter(p["AETH"]["syndrome"] for p in answers)
    assert kinds == {0x1F: c["roce.acks"], 0x60: c["roce.naks"]}
    assert c["roce.naks"] > 5
    assert lossy.of(roce.CNP) == []
    heard = [p for p in lossy.of(roce.ACKNOWLEDGE, at=reaches_nic) if p["AETH"]["syndrome"] == 0x60]
    assert c["roce.go_backs"] <= len(heard)
    # each NAK's PSN is sent again by the requester that hears of it
    sent = Counter((p["BTH"]["psn"]) for p in lossy.of(*DATA, at=leaves_nic))
    assert all(sent[p["BTH"]["psn"]] > 1 for p in heard)


def test_what_a_fault_swallows_did_not_cross(lossy: Seen) -> None:
    at_t1 = [p for c, p in lossy.packets if " > t1" in c.interface]
    from_t1 = [p for c, p in lossy.packets if " < t1" in c.interface]
    assert len(at_t1) == len(from_t1)
    from_nics = [p for c, p in lossy.packets if leaves_nic(c.interface)]
    crossing = [p for p in from_nics if (p["IPv4"]["src"] - 1) // 2 != (p["IPv4"]["dst"] - 1) // 2]
    assert len(crossing) - len(at_t1) == lossy.world.counters()["dropped_fault"] > 0


def test_what_a_fault_damages_has_a_wrong_icrc_from_there_on(tmp_path: Path) -> None:
    fabric = leaf_spine()
    faults = [Fault(0, "link-corrupt", "plane 0 t0 * > t1 *", rate=0.05)]
    seen = run(
        tmp_path / "a.pcapng",
        fabric,
        lambda file: roce_world(
            fabric, stream(0, 7, 400_000), faults, rto_ps=200 * US, capture=file
        ),
        check=False,
    )
    all_complete(seen.world)
    bad = Counter(c.interface.split()[0] for c, p in seen.packets if not p.icrc_ok)
    damaged = seen.world.counters()["dropped_corrupt"]
    assert damaged > 0
    assert bad == {"plane": 2 * damaged, "nic": damaged}


# Marks


def test_marks_are_made_by_switches_and_answered_with_cnps(tmp_path: Path) -> None:
    fabric = leaf_spine()
    seen = run(
        tmp_path / "a.pcapng",
        fabric,
        lambda file: roce_world(fabric, incast(8, 7, 250_000), capture=file),
    )
    all_complete(seen.world)
    c = seen.world.counters()
    ecn = {
        name: Counter(p["IPv4"]["ecn"] for p in seen.of(*DATA, at=at))
        for name, at in (("from", leaves_nic), ("to", reaches_nic))
    }
    assert set(ecn["from"]) == {2}  # ECT(0)
    assert ecn["to"][3] == c["ecn_marked"] > 0
    assert seen.world.net.tally.marked.sum() == c["ecn_marked"]  # by the port that made them
    cnps = seen.of(roce.CNP, at=leaves_nic)
    assert len(cnps) == c["roce.cnps"] > 0
    assert {(p["BTH"]["becn"], p["BTH"]["psn"], p["IPv4"]["ecn"]) for p in cnps} == {(1, 0, 0)}
    # a CNP goes back to who sent what was marked
    marked = {p["IPv4"]["src"] for p in seen.of(*DATA, at=reaches_nic) if p["IPv4"]["ecn"] == 3}
    assert {p["IPv4"]["dst"] for p in cnps} <= marked


def test_without_dcqcn_data_takes_no_part_in_ecn(tight: Seen) -> None:
    assert {p["IPv4"]["ecn"] for p in tight.of(*DATA)} == {0}
    assert {p["IPv4"]["dscp"] for p in tight.of(*DATA)} == {26}
    assert {p["IPv4"]["dscp"] for p in tight.of(roce.ACKNOWLEDGE)} == {48}


# The file and the run


def captured_world(fabric: Fabric, *more: Any, **named: Any) -> World:
    file = RoceCapture(io.BytesIO(), fabric, ["everywhere"])
    return roce_world(fabric, *more, **named, capture=file)


def test_to_look_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = worlds.worlds()
    monkeypatch.setattr(worlds, "roce_world", captured_world)
    for name, seen in worlds.worlds().items():
        for world in (plain[name], seen):
            world.run()
        c = plain[name].counters()
        assert seen.counters() == c, name
        ends = [world.flows()["done_ps"].tolist() for world in (seen, plain[name])]
        assert ends[0] == ends[1], name
        assert seen.capture is not None
        assert seen.capture.n_frames >= c["link_traversals"] - c["dropped_fault"] > 100, name


def test_only_the_places_named_are_captured(tmp_path: Path) -> None:
    fabric = leaf_spine()
    seen = run(
        tmp_path / "a.pcapng",
        fabric,
        lambda file: worlds.tight(cc="none", capture=file),
        "nic 3",
        "plane 0 t0 1 > t1 0",
    )
    names = {c.interface for c, _ in [*seen.packets, *seen.pauses]}
    assert names <= {"nic 3 plane 0 > t0", "nic 3 plane 0 < t0", "plane 0 t0 1 > t1 0"}
    assert {"nic 3 plane 0 > t0", "nic 3 plane 0 < t0"} <= names
    assert {c.interface for c, _ in seen.pauses} == {"nic 3 plane 0 < t0"}


def test_a_pause_frame_is_written_when_it_has_begun_to_leave(tmp_path: Path) -> None:
    """It is asked for while its port sends a packet, and follows that."""
    fabric = leaf_spine()
    whole = run(tmp_path / "a.pcapng", fabric, lambda file: worlds.tight(cc="none", capture=file))
    times = sorted({cast(int, c.time_ns) for c, _ in whole.pauses})
    with (tmp_path / "b.pcapng").open("wb") as stream:
        file = RoceCapture(stream, fabric, ["everywhere"])
        world = worlds.tight(cc="none", capture=file)
        for at in times[:40]:  # stop shortly before each one begins, and go on
            world.run(until_ps=at * 1000 - 1)
        world.run()

    def told(path: Path) -> list[tuple[int | None, str, bytes]]:
        return sorted((c.time_ns or 0, c.interface, c.data) for c in read(path))

    assert told(tmp_path / "a.pcapng") == told(tmp_path / "b.pcapng")
    inside = [cast(int, c.time_ns) for c in read(tmp_path / "b.pcapng")]
    assert inside == sorted(inside)


def test_a_world_without_capture_keeps_no_room_for_one() -> None:
    world = worlds.tight()
    assert len(world.net.tap) == len(world.net.tap_packet) == 0
    assert not world.net.port.tapped.any()


def test_a_fabric_of_more_nics_than_addresses_is_refused() -> None:
    class Large:
        n_nics = 65_535

    with pytest.raises(InputError, match="65535 NICs have no addresses; at most 65534"):
        RoceCapture.check(cast(Fabric, Large()))
    Large.n_nics = 65_534
    RoceCapture.check(cast(Fabric, Large()))


def test_a_place_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match="--at 'nic 8': there is no nic 8"):
        RoceCapture(io.BytesIO(), leaf_spine(), ["nic 8"])


def test_htsims_sizes_are_charged_and_frames_are_those_of_rocev2(tmp_path: Path) -> None:
    fabric = leaf_spine(4, 1, 2, 2)
    seen = run(
        tmp_path / "a.pcapng",
        fabric,
        lambda file: roce_world(
            fabric, permutation(4, 80_000, 4), rules="peer", pmtu=4086, cc="none", capture=file
        ),
    )
    all_complete(seen.world)
    assert len(seen.packets) == seen.world.counters()["link_traversals"]


# Wireshark


def shark(home: Path, file: Path, *options: str) -> list[list[str]]:
    places = {name: str(home) for name in ("HOME", "XDG_CONFIG_HOME", "WIRESHARK_CONFIG_DIR")}
    done = subprocess.run(
        [str(TSHARK), "-n", "-r", str(file), "-T", "fields", *options],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | places | {"LC_ALL": "C.UTF-8"},
    )
    return [line.split("\t") for line in done.stdout.splitlines()]


FIELDS = (
    "frame.protocols",
    "_ws.malformed",
    "_ws.expert.message",
    "infiniband.bth.opcode",
    "infiniband.bth.psn",
    "infiniband.bth.destqp",
    "infiniband.reth.dmalen",
    "infiniband.aeth.syndrome",
    "infiniband.aeth.msn",
    "infiniband.immdt",
    "macc.cbfc.enbv",
    "macc.cbfc.pause_time.c3",
    "ip.checksum.status",
)


def eventful() -> dict[str, tuple[set[int], Make]]:
    """Worlds, and opcodes that are in their captures."""
    small = leaf_spine(4, 2, 2, 2)
    ack = roce.ACKNOWLEDGE
    losses = [Fault(4 * US, "link-loss", "plane 0 t0 * > t1 *", rate=0.02)]
    return {
        "pauses and losses": (
            {6, 7, 8, ack},
            lambda file: worlds.tight(losses, cc="none", rto_ps=100 * US, capture=file),
        ),
        "marks": (
            {6, 7, 8, ack, roce.CNP},
            lambda file: roce_world(leaf_spine(), incast(8, 7, 250_000), capture=file),
        ),
        "immediates": (
            {6, 7, 9, ack},
            lambda file: roce_world(small, ring_all_reduce(4, 80_001), qps=2, capture=file),
        ),
        "short messages": (
            {11, ack},
            lambda file: roce_world(small, ring_all_reduce(4, 4_003), qps=2, capture=file),
        ),
    }


def test_over_ipv6_stand_the_same_packets(tmp_path: Path) -> None:
    """The same run in both forms: all behind UDP is the same but for the iCRC, which is right."""
    seen = {}
    for form in (IPV4, IPV6):
        with (tmp_path / form).open("wb") as stream:
            file = RoceCapture(stream, leaf_spine(4, 2, 2, 2), ["nic 1"], form)
            fabric = leaf_spine(4, 2, 2, 2)
            all_complete(roce_world(fabric, ring_all_reduce(4, 8_001), qps=2, capture=file))
        seen[form] = [(c.time_ns, c.interface, decode_roce(c.data)) for c in read(tmp_path / form)]
    assert len(seen[IPV6]) == len(seen[IPV4]) > 10
    for (*place, six), (*before, four) in zip(seen[IPV6], seen[IPV4], strict=True):
        assert place == before
        assert six["IPv6"]["hop_limit"] == four["IPv4"]["ttl"]
        for name in ("dscp", "ecn"):
            assert six["IPv6"][name] == four["IPv4"][name]
        own, there = (whose(six["IPv6"][end].to_bytes(16, "big")) for end in ("src", "dst"))
        assert own == whose(four["IPv4"]["src"].to_bytes(4, "big"))
        assert there == whose(four["IPv4"]["dst"].to_bytes(4, "big"))
        beside = {"Ethernet", "IPv4", "IPv6", "iCRC"}
        inside = [
            {v.name: v.fields for v in p.headers if v.name not in beside} for p in (six, four)
        ]
        assert inside[0] == inside[1]
        assert len(six.frame) == len(four.frame) + 20


@needs_tshark
def test_wireshark_reads_rocev2_over_ipv6(tmp_path: Path) -> None:
    path = tmp_path / "a.pcapng"
    fabric = leaf_spine(4, 2, 2, 2)
    with path.open("wb") as stream:
        file = RoceCapture(stream, fabric, ["nic 1"], IPV6)
        all_complete(roce_world(fabric, ring_all_reduce(4, 8_001), qps=2, capture=file))
    options = [word for field in FIELDS for word in ("-e", field)]
    rows = [dict(zip(FIELDS, row, strict=True)) for row in shark(tmp_path, path, *options)]
    found = [decode_roce(captured.data) for captured in read(path)]
    assert {row["_ws.malformed"] for row in rows} == {""}
    for row, p in zip(rows, found, strict=True):
        assert row["frame.protocols"].startswith("eth:ethertype:ipv6:udp:infiniband")
        assert int(row["infiniband.bth.psn"], 0) == p["BTH"]["psn"]
        assert int(row["infiniband.bth.opcode"], 0) == p["BTH"]["opcode"]


@needs_tshark
@pytest.mark.parametrize("lua", [False, True], ids=["alone", "beside MRC's dissector"])
@pytest.mark.parametrize("name", eventful())
def test_wireshark_reads_every_frame_alike(tmp_path: Path, name: str, lua: bool) -> None:
    opcodes, make = eventful()[name]
    fabric = leaf_spine(4, 2, 2, 2) if name in ("immediates", "short messages") else leaf_spine()
    path = tmp_path / "a.pcapng"
    seen = run(path, fabric, make)
    all_complete(seen.world)
    assert {p["BTH"]["opcode"] for _, p in seen.packets} >= opcodes
    assert (len(seen.pauses) > 0) == (name == "pauses and losses")
    options = [word for field in FIELDS for word in ("-e", field)]
    options += ["-o", "ip.check_checksum:TRUE"]
    options += ["-X", f"lua_script:{dissector.path()}"] if lua else []
    rows = [dict(zip(FIELDS, row, strict=True)) for row in shark(tmp_path, path, *options)]
    assert len(rows) == len(seen.packets) + len(seen.pauses)
    assert {row["_ws.malformed"] for row in rows} == {""}
    assert {row["_ws.expert.message"] for row in rows} == {""}
    paused = [row for row in rows if row["frame.protocols"] == "eth:ethertype:macc"]
    assert [(row["macc.cbfc.enbv"], int(row["macc.cbfc.pause_time.c3"], 0)) for row in paused] == [
        ("0x0008", found.quanta[3]) for _, found in seen.pauses
    ]
    told = [row for row in rows if row not in paused]
    for row, (_, p) in zip(told, seen.packets, strict=True):
        assert row["frame.protocols"].startswith("eth:ethertype:ip:udp:infiniband")
        headers = {view.name: view.fields for view in p.headers}
        expected = {
            "infiniband.bth.opcode": p["BTH"]["opcode"],
            "infiniband.bth.psn": p["BTH"]["psn"],
            "infiniband.bth.destqp": p["BTH"]["dest_qpn"],
            "infiniband.reth.dmalen": headers.get("RETH", {}).get("dma_length"),
            "infiniband.aeth.syndrome": headers.get("AETH", {}).get("syndrome"),
            "infiniband.aeth.msn": headers.get("AETH", {}).get("msn"),
            "ip.checksum.status": 1,
        }
        assert {k: int(row[k], 0) if row[k] else None for k in expected} == expected
        assert bool(row["infiniband.immdt"]) == ("ImmDt" in headers)
