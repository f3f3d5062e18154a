"""The conformance kit in whole frames of SRv6, against the live endpoint of another host."""

from __future__ import annotations

import json
from ipaddress import IPv6Address
from pathlib import Path

from openmrc.fabric.clos import multiplane
from openmrc.fabric.usid import UsidPlan
from openmrc.wire import addresses
from tests.live.lab.conftest import MRC, LabFile, mrc, needed, said_by

# What the kit cannot ask over plain UDP, where nothing trims, and one of each other kind.
RULES = (
    "trimmed-is-nacked",
    "trimmed-at-the-last-hop-is-said-so",
    "a-trimmed-packet-is-not-received",
    "a-trimmed-duplicate-is-not-nacked",
    "a-write-is-cut-into-packets",
    "a-port-that-goes-down-is-told",
    "sack-shows-what-came-beyond-a-hole",
)
KIT, TARGET = 2, 0  # NICs


def held(file: Path, *words: str) -> list[str]:
    """What the kit says, on the second of two hosts."""
    kit = [*MRC, "conformance", "--ranks", "--patience", "2s", *words]
    done = mrc("lab", file, "--hosts", f"{TARGET},{KIT}", "--", *kit)
    assert done.returncode == 0, done.stdout + done.stderr
    return said_by(KIT, done)


def test_rules_hold_over_srv6_and_trimmed_packets_are_among_them(lab_file: LabFile) -> None:
    rules = [word for rule in RULES for word in ("--rule", rule)]
    assert held(lab_file(needed("openmrc")), *rules)[-1] == "7 rules: 7 passed"


def test_a_file_of_ways_stands_for_a_host_file(lab_file: LabFile, tmp_path: Path) -> None:
    """As for an implementation of which nothing is known but how it is reached."""
    fabric = multiplane(4, 2, 10**8, 2, 2, 10**6, 10**6)
    plan, planes = UsidPlan(fabric), []
    for plane in range(2):
        evs = [fabric.ev_of_path(KIT, TARGET, plane, i % 2) for i in range(4)]
        switch = int(fabric.port_peer_switch[fabric.nic_port(KIT, plane)])
        planes.append(
            {
                "interface": f"e{plane}",
                "gateway_mac": addresses.switch_mac(switch),
                "mac": addresses.nic_mac(KIT, plane),
                "source": str(addresses.ipv6(KIT, plane)),
                "destination": str(addresses.ipv6(TARGET, plane)),
                "evs": [hex(ev) for ev in evs],
                "carriers": [str(IPv6Address(plan.carrier(KIT, TARGET, ev))) for ev in evs],
            }
        )
    ways = tmp_path / "ways.json"
    ways.write_text(json.dumps({"nic": KIT, "planes": planes}))
    words = ["--ways", str(ways), "--rule", "sack-names-its-trigger", "--rule", "trimmed-is-nacked"]
    assert held(lab_file(needed("openmrc")), *words)[-1] == "2 rules: 2 passed"
