"""What a lab is made of, without making it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from openmrc.errors import InputError
from openmrc.fabric import actions, compile_faults, fat_tree, multiplane
from openmrc.fabric.kinds import Fault
from openmrc.fabric.model import Fabric
from openmrc.fabric.queues import Queues
from openmrc.live.lab.health import Health, healing, refuse_denials
from openmrc.live.lab.linux import OWN_LINES, LinuxFabric
from openmrc.live.lab.namespaces import Batch
from openmrc.live.lab.topology import (
    End,
    Settings,
    Topology,
    management_address,
    prefix,
    topology,
)
from openmrc.scenario.fabric import FABRICS, Multiplane
from openmrc.scenario.lab import LabSection


def small(**changes: Any) -> Fabric:
    sizes: dict[str, Any] = {
        "nics": 4,
        "planes": 2,
        "port_rate_bps": 10**8,
        "t0_down": 2,
        "t0_up": 2,
        "link_delay_ps": 0,
        "switch_delay_ps": 0,
    }
    return multiplane(**(sizes | changes))


def built(switch: str = "linux", mode: str = "native", mtu: int = 9000) -> Topology:
    return topology(small(), Settings(switch, mode, mtu))


def test_linux_s_switches_are_namespaces_with_a_link_each() -> None:
    made = built("linux")
    assert made.hosts == ("h0", "h1", "h2", "h3")
    assert made.switches[:2] == ("plane 0 t0 0", "plane 0 t0 1")
    assert len(made.switches) == 8
    assert len(made.links) == 4 * 2 + 2 * 2 * 2
    nic = made.links[3 * 2 + 1]  # NIC 3, plane 1
    assert nic.lower == End("h3", "e1", "02:01:00:00:00:04")
    assert nic.upper == End("plane 1 t0 1", "d1", "02:ff:00:00:00:03")
    up = made.links[8]
    assert (up.lower.interface, up.upper.namespace, up.upper.interface) == (
        "u0",
        "plane 0 t1 0",
        "d0",
    )


def test_our_switches_are_one_namespace_in_which_hosts_links_end() -> None:
    made = built("openmrc")
    assert made.switches == ("fabric",)
    assert len(made.links) == 4 * 2
    assert made.links[7].upper == End("fabric", "n3p1", "02:ff:00:00:00:03")
    # In the order of NIC ports, which is that of the loop's descriptors.
    assert [link.port for link in made.links] == list(range(8))


def test_the_switch_s_end_of_a_link_is_the_same_in_both_directions_of_a_nic_s() -> None:
    made = built("linux")
    there = int(made.fabric.port_reverse[5])
    assert made.switch_end(5) == made.switch_end(there) == End(*made.links[5].upper)


def test_addresses_are_those_of_the_plans() -> None:
    assert prefix(0x4001) == "2001:db8:4001::/48"
    assert management_address(0) == "198.18.0.1"
    assert management_address(299) == "198.18.1.44"


@pytest.mark.parametrize(
    ("fabric", "settings", "words"),
    [
        (small(), Settings("overlay"), "overlay"),
        (small(nics=600, t0_down=300), Settings(), "namespaces; at most 512"),
        (small(nics=256, planes=16), Settings(), "links; at most 2048"),
        (
            fat_tree(
                nics=8,
                tiers=3,
                port_rate_bps=10**9,
                t0_down=2,
                t0_up=2,
                t1_down=2,
                t1_up=2,
                link_delay_ps=0,
                switch_delay_ps=0,
            ),
            Settings(mode="udp"),
            "three uSIDs",
        ),
    ],
)
def test_what_no_lab_can_be_is_refused(fabric: Fabric, settings: Settings, words: str) -> None:
    with pytest.raises(InputError, match=words):
        topology(fabric, settings)


def test_the_table_of_a_scenario_becomes_settings() -> None:
    assert LabSection().build() == Settings("openmrc", "native", 9000)
    assert Multiplane.kind in FABRICS


class Recorder:
    """In place of namespaces: keeps the batches that would have been run."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []

    def run(self, batches: Any) -> None:
        self.batches += [batch for batch in batches if batch.lines]


def linux(**queues: Any) -> tuple[LinuxFabric, Recorder]:
    recorder = Recorder()
    made = LinuxFabric(built("linux"), recorder, Queues(**queues))  # type: ignore[arg-type]
    return made, recorder


def test_a_linux_switch_knows_its_table_and_nothing_else() -> None:
    made, _ = linux()
    batches = {(batch.namespace, batch.tool): list(batch.lines) for batch in made.batches()}
    neighbour = "neigh add fe80::1 lladdr"
    assert batches["plane 0 t0 1", "ip"] == [
        *OWN_LINES,
        f"{neighbour} 02:00:00:00:00:03 dev d0 nud permanent",
        f"{neighbour} 02:00:00:00:00:04 dev d1 nud permanent",
        f"{neighbour} 02:ff:00:00:00:04 dev u0 nud permanent",
        f"{neighbour} 02:ff:00:00:00:05 dev u1 nud permanent",
        "route add 2001:db8:4001::/48 encap seg6local action End flavors next-csid"
        " lblen 32 nflen 16 count dev sid0",
        "route add 2001:db8:1000::/48 via fe80::1 dev d0",
        "route add 2001:db8:1001::/48 via fe80::1 dev d1",
        "route add 2001:db8:2000::/48 via fe80::1 dev u0",
        "route add 2001:db8:2001::/48 via fe80::1 dev u1",
    ]


def test_every_port_has_a_bucket_of_its_rate_and_the_queue_that_is_asked_for() -> None:
    made, _ = linux(queue_bytes=100_000, queue_last_hop_bytes=200_000)
    batches = {batch.namespace: list(batch.lines) for batch in made.batches() if batch.tool == "tc"}
    assert sum(map(len, batches.values())) == 2 * (8 + 8)
    # Half a millisecond of 100 Mb/s is less than three frames of 9038 B on the wire.
    shape = "root tbf rate 100000000bit burst 27114 limit"
    assert f"qdisc add dev u0 {shape} 127114 overhead 24" in batches["plane 0 t0 0"]
    assert f"qdisc add dev d0 {shape} 227114 overhead 24" in batches["plane 0 t0 0"]  # to a NIC
    host = (16 << 20) + 27114  # more than a socket's buffer
    assert f"qdisc add dev e1 {shape} {host} overhead 24" in batches["h2"]


def events(fabric: Fabric, kind: str, where: str, **how: Any) -> Any:
    return compile_faults([Fault(at_ps=0, kind=kind, where=where, **how)], fabric).events


def test_faults_are_filters_of_the_switch_at_which_the_link_ends() -> None:
    made, recorder = linux()
    fabric = small()
    made.act(events(fabric, "link-loss", "nic 0 plane 0 > t0", rate=0.25))
    made.act(events(fabric, "link-loss", "plane 0 t0 0 > t1 1", rate=1.0))
    ours = [batch for batch in recorder.batches if batch.namespace == "plane 0 t0 0"]
    assert [batch.tool for batch in ours] == ["nft", "nft"]
    hook = 'type filter hook {} device "{}" priority 0; policy accept;'
    random = "numgen random mod 1000000 < 250000 drop"
    assert ours[1].lines == [
        "flush ruleset",
        "table netdev faults {",
        f"chain ingress_d0 {{ {hook.format('ingress', 'd0')} {random}; }}",
        f"chain egress_u1 {{ {hook.format('egress', 'u1')} drop; }}",
        "}",
    ]
    made.act(healing(fabric, "plane 0 t0 0"))
    assert recorder.batches[-1].lines == ["flush ruleset", "table netdev faults {", "}"]
    before = len(recorder.batches)
    made.act(healing(fabric, "everywhere"))
    assert len(recorder.batches) == before  # nothing has changed


def test_a_slow_link_is_another_bucket() -> None:
    made, recorder = linux()
    made.act(events(small(), "link-slow", "plane 1 t0 0 > t1 0", factor=0.5))
    (batch,) = recorder.batches
    assert batch.namespace == "plane 1 t0 0"
    assert batch.lines[0].startswith("qdisc change dev u0 root tbf rate 50000000bit ")


def test_what_linux_cannot_do_is_refused_before_it_starts() -> None:
    made, _ = linux()
    for fault in (
        Fault(0, "link-corrupt", "nic 0 plane 0", rate=0.1),
        Fault(0, "link-loss", "nic 0 plane 0", rate=0.1, burst=3),
    ):
        with pytest.raises(InputError, match="Linux cannot do"):
            made.refuse(compile_faults([fault], small()))
    made.refuse(compile_faults([Fault(0, "switch-down", "plane 0 t0 0")], small()))
    with pytest.raises(InputError, match=r"fault\[1\].kind: 'allow'"):
        refuse_denials(["link-down", "allow"])


def test_health_says_what_is_broken_and_what_a_nic_notices() -> None:
    fabric = small()
    health = Health(fabric)
    health.apply(events(fabric, "link-down", "nic 1 plane 0 > t0"))
    assert health.link_up.all()  # it still receives: nothing that a NIC sees
    health.apply(events(fabric, "link-down", "nic 1 plane 0 < t0"))
    assert np.flatnonzero(~health.link_up).tolist() == [2]
    health.apply(events(fabric, "switch-silent", "plane 1 t1 0"))
    health.apply(events(fabric, "link-slow", "nic 3 plane 1 > t0", factor=0.5))
    assert health.troubles() == [
        {"place": "plane 1 t1 0", "state": "silent"},
        {"place": "nic 1 plane 0 > t0", "state": "down"},
        {"place": "nic 3 plane 1 > t0", "state": "rate x 0.5"},
        {"place": "nic 1 plane 0 < t0", "state": "down"},
    ]
    assert health.lost(2) == 1.0


def test_an_mtu_is_one_of_the_troubles_and_heals() -> None:
    fabric = small()
    health = Health(fabric)
    health.apply(events(fabric, "mtu", "nic 3 plane 1 > t0", mtu=1500))
    assert health.troubles() == [{"place": "nic 3 plane 1 > t0", "state": "mtu 1500"}]
    health.apply(healing(fabric, "nic 3"))
    assert health.troubles() == []


def test_linux_drops_what_is_longer_than_an_mtu_beside_what_a_link_loses() -> None:
    """On egress a length has the Ethernet header in it."""
    made, recorder = linux()
    fabric = small()
    made.act(events(fabric, "mtu", "nic 0 plane 0", mtu=1500))
    made.act(events(fabric, "link-loss", "nic 0 plane 0 > t0", rate=0.25))
    ours = [batch for batch in recorder.batches if batch.namespace == "plane 0 t0 0"]
    hook = 'type filter hook {} device "d0" priority 0; policy accept;'
    random = "numgen random mod 1000000 < 250000 drop"
    assert ours[1].lines == [
        "flush ruleset",
        "table netdev faults {",
        f"chain ingress_d0 {{ {hook.format('ingress')} {random}; }}",
        f"chain narrow_ingress_d0 {{ {hook.format('ingress')} meta length > 1500 drop; }}",
        f"chain narrow_egress_d0 {{ {hook.format('egress')} meta length > 1514 drop; }}",
        "}",
    ]


@pytest.mark.parametrize(
    ("where", "left"),
    [
        ("nic 1 plane 0", ["plane 0 t1 0"]),
        ("nic 1", ["plane 0 t1 0"]),
        ("plane 0", []),
        ("everywhere", []),
    ],
)
def test_healing_makes_whole_what_it_names(where: str, left: list[str]) -> None:
    fabric = small()
    health = Health(fabric)
    health.apply(events(fabric, "link-down", "nic 1 plane 0"))
    health.apply(events(fabric, "switch-silent", "plane 0 t1 0"))
    health.apply(healing(fabric, where))
    assert [trouble["place"] for trouble in health.troubles()] == left


def test_a_switch_heals_with_its_links() -> None:
    fabric = small()
    health = Health(fabric)
    health.apply(events(fabric, "switch-down", "plane 0 t0 1"))
    assert np.flatnonzero(~health.link_up).tolist() == [4, 6]
    health.apply(healing(fabric, "plane 0 t0 1"))
    assert health.troubles() == []
    assert (healing(fabric, "plane 0 t0 1")["action"] == actions.SWITCH_UP).sum() == 1


def test_a_place_that_is_not_there_cannot_heal() -> None:
    with pytest.raises(InputError, match="there is no nic 7"):
        healing(small(), "nic 7")
