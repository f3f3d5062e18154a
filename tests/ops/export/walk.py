"""A fabric of exported files, walked: each platform's own words read back into tables and cables.

Knows nothing of `fabric.tables`: a carrier goes where the written routes say, shifted where a
written SID says so.
"""

from __future__ import annotations

import csv
import json
import re
from dataclasses import dataclass, field
from ipaddress import IPv6Address, IPv6Network
from pathlib import Path

OWN, NOWHERE = "own", "nowhere"
LINK = "uA "  # before an interface: the uSID has done its part
BLOCK_BITS, USID_BITS = 32, 16
REST_BITS = 128 - BLOCK_BITS

Table = dict[IPv6Network, str]  # to an interface, OWN or NOWHERE
Place = tuple[str, str]  # a machine and its interface


@dataclass
class Plant:
    """What the files of an export say: by machine its table, and the far end of each interface."""

    tables: dict[str, Table] = field(default_factory=dict)
    far: dict[Place, Place] = field(default_factory=dict)

    def walk(self, start: Place, carrier: int) -> list[Place]:
        """Where a packet with this destination leaves each machine, until it is at a NIC."""
        at, destination, way = start, carrier, [start]
        while (machine := self.far[at][0]) in self.tables:
            table = self.tables[machine]
            out = best(table, destination)
            if out == OWN:
                destination = shifted(destination)
                out = best(table, destination)
            if out.startswith(LINK):
                destination, out = shifted(destination), out.removeprefix(LINK)
            assert out not in (OWN, NOWHERE), (machine, IPv6Address(destination))
            at = (machine, out)
            way.append(at)
        return way


def shifted(carrier: int) -> int:
    """A carrier without its first uSID."""
    low = carrier << USID_BITS & (1 << REST_BITS) - 1
    return carrier >> REST_BITS << REST_BITS | low


def best(table: Table, destination: int) -> str:
    """The longest prefix that holds the destination; a switch has no default route."""
    address = IPv6Address(destination)
    return table[max((p for p in table if address in p), key=lambda prefix: prefix.prefixlen)]


def read(platform: str, out: Path) -> Plant:
    """Read what `mrc switches PLATFORM --out` wrote."""
    plant = Plant()
    if platform == "linux":
        cables = linux_cables((out / "setup.sh").read_text())
        ends: dict[str, dict[str, str]] = {}
    else:
        rows = links(out)
        sides = [
            [
                (row[side], row[f"{side}_port"], row[f"{side}_address"])
                for side in ("lower", "upper")
            ]
            for row in rows
        ]
        cables = [((a[0], a[1]), (b[0], b[1])) for a, b in sides]
        ends = {}  # of each machine: by the next hop's address the interface that leads there
        for a, b in sides:
            ends.setdefault(a[0], {})[b[2]] = a[1]
            ends.setdefault(b[0], {})[a[2]] = b[1]
    for lower, upper in cables:
        plant.far[lower], plant.far[upper] = upper, lower
    for file in out.iterdir():
        if re.match(r"p\d+-t\d-\d+\.", file.name):
            of_machine = READERS[platform](file.read_text(), ends.get(file.stem, {}))
            plant.tables[file.stem] = of_machine
    return plant


def links(out: Path) -> list[dict[str, str]]:
    """The rows of `links.csv`."""
    return list(csv.DictReader((out / "links.csv").read_text().splitlines()))


def sonic(text: str, ends: dict[str, str]) -> Table:
    config = json.loads(text)
    table: Table = {}
    for key, row in config["STATIC_ROUTE"].items():
        vrf, _, prefix = key.partition("|")
        assert vrf == "default"
        if row.get("blackhole") == "true":
            table[IPv6Network(prefix)] = NOWHERE
        else:
            assert ends[row["nexthop"]] == row["ifname"]
            table[IPv6Network(prefix)] = row["ifname"]
    for key, row in config["SRV6_MY_SIDS"].items():
        locator, _, prefix = key.partition("|")
        if row["action"] == "uA":
            assert config["SRV6_MY_LOCATORS"][locator]["func_len"] == "16"
            assert ends[row["adj"]] == row["interface"]
            table[IPv6Network(prefix)] = LINK + row["interface"]
            continue
        assert row["action"] == "uN"
        length = sum(int(config["SRV6_MY_LOCATORS"][locator][k]) for k in ("block_len", "node_len"))
        of_locator = f"{config['SRV6_MY_LOCATORS'][locator]['prefix']}/{length}"
        assert IPv6Network(of_locator) == IPv6Network(prefix)
        table[IPv6Network(prefix)] = OWN
    return table


def frr(text: str, ends: dict[str, str]) -> Table:
    table: Table = {}
    for prefix, hop, interface in re.findall(r"^ipv6 route (\S+) (\S+) (\S+)$", text, re.M):
        assert ends[hop] == interface
        table[IPv6Network(prefix)] = interface
    for prefix in re.findall(r"^ipv6 route (\S+) blackhole$", text, re.M):
        table[IPv6Network(prefix)] = NOWHERE
    for prefix in re.findall(r"^   sid (\S+) locator MAIN behavior uN$", text, re.M):
        assert f"    prefix {prefix} block-len 32 node-len 16" in text
        table[IPv6Network(prefix)] = OWN
    line = r"^   sid (\S+) locator MAIN behavior uA interface (\S+) nexthop (\S+)$"
    for prefix, interface, hop in re.findall(line, text, re.M):
        assert ends[hop] == interface
        table[IPv6Network(prefix)] = LINK + interface
    return table


def cumulus(text: str, ends: dict[str, str]) -> Table:
    table: Table = {}
    for prefix, hop in re.findall(
        r"^nv set vrf default router static (\S+) via (\S+)$", text, re.M
    ):
        table[IPv6Network(prefix)] = NOWHERE if hop == "blackhole" else ends[hop]
    for prefix in re.findall(r" static srv6-sid (\S+) behavior uN$", text, re.M):
        table[IPv6Network(prefix)] = OWN
    return table


def linux(text: str, _: dict[str, str]) -> Table:
    table: Table = {}
    for prefix, interface in re.findall(r"^route add (\S+) via fe80::1 dev (\S+)$", text, re.M):
        table[IPv6Network(prefix)] = interface
    for prefix in re.findall(
        r"^route add (\S+) encap seg6local action End flavors next-csid", text, re.M
    ):
        table[IPv6Network(prefix)] = OWN
    line = r"^route add (\S+) encap seg6local action End.X nh6 (\S+) flavors next-csid .*dev (\S+)$"
    for prefix, hop, interface in re.findall(line, text, re.M):
        assert f"route add {hop}/128 dev {interface}" in text
        table[IPv6Network(prefix)] = LINK + interface
    for prefix in re.findall(r"^route add blackhole (\S+)$", text, re.M):
        table[IPv6Network(prefix)] = NOWHERE
    return table


def linux_cables(text: str) -> list[tuple[Place, Place]]:
    found = re.findall(r"name (\S+) netns (\S+) type veth peer name (\S+) netns (\S+)$", text, re.M)
    return [((host, one), (peer, other)) for one, host, other, peer in found]


READERS = {
    "sonic": sonic,
    "frr": frr,
    "cumulus": cumulus,
    "linux": linux,
    "containerlab": frr,
}
