"""What switches are told at boot: every carrier goes where the fabric says, on every platform."""

from __future__ import annotations

import json
import re
import tempfile
from ipaddress import IPv6Address, IPv6Network
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.cli import main
from openmrc.engine import packet
from openmrc.fabric.model import Fabric
from openmrc.fabric.usid import UsidPlan
from openmrc.ops.export import cumulus, sonic
from openmrc.ops.export.command import PLATFORMS
from openmrc.ops.export.files import PLATFORMS as WRITERS
from openmrc.ops.export.files import write
from openmrc.ops.export.switches import Plant
from openmrc.scenario.scenario import load_lab, parse_scenario
from openmrc.wire import layout
from tests.ops.export import grammar, walk
from tests.ops.export.conftest import FABRICS, Export

SNAPSHOTS = Path(__file__).with_name("snapshots")
Out = pytest.CaptureFixture[str]


def built(fabric: str, place: Path) -> Fabric:
    (place / "x.toml").write_text(FABRICS[fabric])
    return load_lab(place / "x.toml").fabric.build()


def place_of(fabric: Fabric, platform: str, port: int) -> walk.Place:
    """The machine and the interface of a directed port, as the platform calls them."""
    nic, switch = int(fabric.port_nic[port]), int(fabric.port_switch[port])
    if nic >= 0:
        plane = port % fabric.n_planes
        return (f"h{nic}", f"e{plane}") if platform == "linux" else (f"nic{nic}", f"plane {plane}")
    place = (fabric.sw_plane[switch], fabric.sw_tier[switch], fabric.sw_index[switch])
    number = port - int(np.flatnonzero(fabric.port_switch == switch)[0])
    up = int(fabric.sw_first_up[switch]) - int(fabric.sw_first_down[switch])
    is_up = fabric.sw_n_up[switch] > 0 and number >= up
    words = {
        "sonic": f"Ethernet{number}",
        "frr": f"swp{number + 1}",
        "containerlab": f"swp{number + 1}",
        "cumulus": f"swp{number + 1}",
        "linux": f"u{number - up}" if is_up else f"d{number}",
    }
    return "p{}-t{}-{}".format(*place), words[platform]


WRITES_LINKS = [platform for platform in PLATFORMS if platform != "cumulus"]


@pytest.mark.parametrize(
    ("platform", "fabric"),
    [
        *product(PLATFORMS, ["planes", "three tiers"]),
        *product(WRITES_LINKS, ["links", "three tiers of links"]),
    ],
)
def test_every_carrier_takes_the_ports_that_its_ev_names(
    platform: str, fabric: str, exported: Export, tmp_path: Path
) -> None:
    model = built(fabric, tmp_path)
    plan, plant = UsidPlan(model), walk.read(platform, exported(platform, fabric))
    assert len(plant.tables) == model.n_switches
    n = 0
    for src in range(model.n_nics):
        for dst in set(range(model.n_nics)) - {src}:
            for plane in range(model.n_planes):
                for path in range(model.n_paths(src, dst, plane)):
                    ev = model.ev_of_path(src, dst, plane, path)
                    ways = [place_of(model, platform, port) for port in model.route(src, dst, ev)]
                    assert plant.walk(ways[0], plan.carrier(src, dst, ev)) == ways
                    n += 1
    # 8 NICs: 6 others behind 3 uplinks, 1 below the same T0; 16: 12 by 4 paths, 2 by 2, 1 by 1
    assert n == (16 * (12 * 4 + 2 * 2 + 1) if "tiers" in fabric else 2 * 8 * (6 * 3 + 1))


@pytest.mark.parametrize("platform", PLATFORMS)
def test_who_forwards_by_no_fields_of_an_ev_refuses_them(
    platform: str, tmp_path: Path, capsys: Out
) -> None:
    keys = "[transport]\nsrv6 = false\nev_fields = true\n"
    (tmp_path / "x.toml").write_text(FABRICS["smallest"] + keys)
    assert main(["switches", platform, str(tmp_path / "x.toml")]) == 2
    assert "transport.ev_fields: no platform here takes ports by" in capsys.readouterr().err


def test_who_has_no_usids_of_links_refuses_them(tmp_path: Path, capsys: Out) -> None:
    (tmp_path / "x.toml").write_text(FABRICS["links"])
    assert main(["switches", "cumulus", str(tmp_path / "x.toml")]) == 2
    said = capsys.readouterr().err
    assert 'fabric.sids: "uA" is not in the documented commands of Cumulus Linux' in said


@settings(max_examples=12)
@given(
    platform=st.sampled_from(PLATFORMS),
    nics=st.integers(2, 24),
    planes=st.integers(1, 4),
    t0_down=st.integers(1, 8),
    t0_up=st.integers(1, 5),
    data=st.data(),
)
def test_carriers_of_any_fabric_do(
    platform: str, nics: int, planes: int, t0_down: int, t0_up: int, data: st.DataObject
) -> None:
    text = f"[fabric]\nnics = {nics}\nplanes = {planes}\nt0_down = {t0_down}\nt0_up = {t0_up}\n"
    workload = '[workload]\nkind = "permutation"\nsize = "1MB"\n'
    plant = Plant(parse_scenario(text + workload))
    with tempfile.TemporaryDirectory() as place:
        assert write(platform, plant, plant.switches(), Path(place)) == plant.fabric.n_switches
        read = walk.read(platform, Path(place))
    for _ in range(8):
        src, dst = data.draw(st.permutations(range(nics)), "pair")[:2]
        plane = data.draw(st.integers(0, planes - 1), "plane")
        path = data.draw(st.integers(0, plant.fabric.n_paths(src, dst, plane) - 1), "path")
        ev = plant.fabric.ev_of_path(src, dst, plane, path)
        ports = plant.fabric.route(src, dst, ev)
        ways = [place_of(plant.fabric, platform, port) for port in ports]
        assert read.walk(ways[0], plant.plan.carrier(src, dst, ev)) == ways


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_usid_that_nobody_has_ends_at_the_first_switch(platform: str, exported: Export) -> None:
    plant = walk.read(platform, exported(platform, "planes"))
    nobody = 0x2001_0DB8_DFFF << 80
    for table in plant.tables.values():
        assert walk.best(table, nobody) == walk.NOWHERE
        assert list(table.values()).count(walk.OWN) == 1


@pytest.mark.parametrize("platform", PLATFORMS)
def test_the_smallest_fabric_is_told_this(
    platform: str, exported: Export, tmp_path: Path, capsys: Out
) -> None:
    """`mrc switches PLATFORM` of the fabric "smallest" in `conftest` writes it anew."""
    (tmp_path / "x.toml").write_text(FABRICS["smallest"])
    assert main(["switches", platform, str(tmp_path / "x.toml")]) == 0
    printed = capsys.readouterr()
    assert printed.out == (SNAPSHOTS / f"{platform}.txt").read_text()
    out = exported(platform, "smallest")
    said = (out / "cannot.txt").read_text().splitlines()
    assert printed.err == "".join(f"not in it: {line}\n" for line in said)


def test_the_platforms_of_the_command_are_those_that_are_written() -> None:
    assert tuple(WRITERS) == PLATFORMS


def test_a_file_is_the_switch_as_it_is_printed(exported: Export, capsys: Out) -> None:
    out = exported("frr", "planes")
    file = str(out.parent / "x.toml")
    capsys.readouterr()
    for name in ("plane 1 t0 2", "p1-t0-2"):
        assert main(["switches", "frr", file, "--switch", name]) == 0
        assert capsys.readouterr().out == f"! --- p1-t0-2\n{(out / 'p1-t0-2.conf').read_text()}"


def test_addresses_of_links_are_told_apart(exported: Export) -> None:
    """Each once, none a NIC's own, both ends in one /127, and none in the block of the uSIDs."""
    rows = walk.links(exported("sonic", "planes"))
    pairs = [(row["lower_address"], row["upper_address"]) for row in rows]
    assert len(pairs) == 2 * (8 + 4 * 3)
    addresses = [IPv6Address(address) for pair in pairs for address in pair]
    assert len(set(addresses)) == len(addresses)
    for lower, upper in pairs:
        assert int(IPv6Address(lower)) % 2 == 0
        assert int(IPv6Address(upper)) == int(IPv6Address(lower)) + 1
    assert all(address in IPv6Network("fd6d:7263:ff00::/40") for address in addresses)
    assert not any(int(address) & (1 << 64) - 1 == 0 for address in addresses)


# --- queues, marks, trimming


def sonic_of(exported: Export, host: str) -> dict[str, Any]:
    text = (exported("sonic", "planes") / f"{host}.json").read_text()
    config: dict[str, Any] = json.loads(text)
    return config


def test_sonic_has_the_limits_that_the_simulator_has(exported: Export, tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(FABRICS["planes"])
    plant = Plant(load_lab(tmp_path / "x.toml"))
    config, switch = sonic_of(exported, "p0-t0-0"), plant.named("plane 0 t0 0")
    first = int(np.flatnonzero(plant.fabric.port_switch == switch.number)[0])
    for number in range(5):
        name = f"Ethernet{number}"
        profile = config["BUFFER_PROFILE"][config["BUFFER_QUEUE"][f"{name}|0-1"]["profile"]]
        assert int(profile["static_th"]) == plant.limits.queue_bytes[first + number]
        assert profile["packet_discard_action"] == "trim"
        headers = config["BUFFER_PROFILE"][config["BUFFER_QUEUE"][f"{name}|6"]["profile"]]
        assert int(headers["static_th"]) == plant.limits.control_queue_bytes[first + number]
        assert headers["packet_discard_action"] == "drop"
        marked = config["QUEUE"][f"{name}|0"].get("wred_profile")
        assert (marked is None) == (number < 2)  # never on the last hop (MRC 6.5)
        if marked is not None:
            wred = config["WRED_PROFILE"][marked]
            low, high = (int(wred[f"green_{end}_threshold"]) for end in ("min", "max"))
            assert low == plant.limits.ecn_low_bytes[first + number]
            assert high == plant.limits.ecn_high_bytes[first + number]


def test_sonic_puts_each_dscp_where_our_switches_put_it(exported: Export) -> None:
    config = sonic_of(exported, "p0-t0-0")
    queue = {
        layout.DSCP_NO_TRIM: "0",
        layout.DSCP_TRIMMABLE: "0",
        layout.DSCP_TRIMMABLE_RETX: "1",
        layout.DSCP_TRIMMED: "6",
        layout.DSCP_TRIMMED_LASTHOP: "6",
        layout.DSCP_CONTROL: "6",
    }
    assert set(queue) == set(layout.DSCPS)
    classes, queues = config["DSCP_TO_TC_MAP"]["mrc"], config["TC_TO_QUEUE_MAP"]["mrc"]
    assert {dscp: queues[classes[str(dscp)]] for dscp in queue} == queue


def test_row_37_switches_get_the_dscps_of_the_fabric(tmp_path: Path) -> None:
    table = 'dscp = "trimmable_retx=26, trimmed=11, trimmed_lasthop=21, control=48, no_trim=10"'
    (tmp_path / "x.toml").write_text(FABRICS["planes"] + table)
    plant = Plant(load_lab(tmp_path / "x.toml"))
    config = json.loads(sonic.config(plant, plant.named("p0-t0-0")))
    classes = config["DSCP_TO_TC_MAP"]["mrc"]
    of = {dscp: classes[str(dscp)] for dscp in (10, 4, 26, 11, 21, 48, 46, 12)}
    assert of == {10: "0", 4: "0", 26: "1", 11: "6", 21: "6", 48: "6", 46: "0", 12: "0"}
    assert config["TC_TO_DSCP_MAP"] == {"mrc": {"5": "11"}, "mrc_last_hop": {"5": "21"}}
    assert config["ACL_RULE"]["MRC_NO_TRIM|NO_TRIM"]["DSCP"] == "10"
    lines = cumulus.config(plant, plant.named("p0-t0-0")).splitlines()
    assert "nv set qos mapping default-global dscp 26 switch-priority 1" in lines
    assert "nv set qos mapping default-global dscp 48 switch-priority 6" in lines
    assert "nv set system forwarding packet-trim remark dscp 11" in lines
    assert not any(" dscp 46 " in line for line in lines)


def test_sonic_says_of_a_trimmed_packet_whether_its_nic_is_next(exported: Export) -> None:
    for host, expected in {"p0-t0-0": [16, 16, 12, 12, 12], "p0-t1-0": [12] * 4}.items():
        config = sonic_of(exported, host)
        trimming = config["SWITCH_TRIMMING"]["GLOBAL"]
        assert (trimming["dscp_value"], trimming["size"]) == ("from-tc", "128")
        # no arriving packet is of the class that is remarked
        assert trimming["tc_value"] not in config["DSCP_TO_TC_MAP"]["mrc"].values()
        found = [
            int(config["TC_TO_DSCP_MAP"][row["tc_to_dscp_map"]][trimming["tc_value"]])
            for row in config["PORT_QOS_MAP"].values()
        ]
        assert found == expected


def test_sonic_spares_what_may_not_be_cut(exported: Export) -> None:
    config = sonic_of(exported, "p0-t1-0")
    (rule,) = config["ACL_RULE"].values()
    assert (rule["DSCP"], rule["PACKET_ACTION"]) == (str(layout.DSCP_NO_TRIM), "DISABLE_TRIM")
    (table,) = config["ACL_TABLE"].values()
    assert table["ports"] == [name for name in config["INTERFACE"] if "|" not in name]
    assert table["type"] in config["ACL_TABLE_TYPE"]


@pytest.mark.parametrize("platform", PLATFORMS)
def test_what_is_not_to_trim_is_not_told_to(platform: str, tmp_path: Path, capsys: Out) -> None:
    file = tmp_path / "x.toml"
    file.write_text(FABRICS["planes"])
    texts = []
    for more in ([], ["--set", "fabric.trim=false"]):
        assert main(["switches", platform, str(file), "--switch", "p0-t0-0", *more]) == 0
        texts.append(capsys.readouterr())
    trims = [
        bool(re.search(r'packet-trim|SWITCH_TRIMMING|: "trim"|_TRIM', text.out)) for text in texts
    ]
    assert trims == [platform in ("sonic", "cumulus"), False]
    assert [bool(re.search("rimm", text.err)) for text in texts] == [True, False]


@pytest.mark.parametrize("platform", ["sonic", "frr", "cumulus"])
def test_the_mtu_that_full_packets_need_is_said(platform: str, tmp_path: Path, capsys: Out) -> None:
    (tmp_path / "x.toml").write_text(f"{FABRICS['planes']}[transport]\npmtu = 2048\n")
    assert main(["switches", platform, str(tmp_path / "x.toml"), "--switch", "plane 0 t0 0"]) == 0
    # what surrounds the payload of a write with an immediate, from the outer IPv6 header on
    headers = [layout.IPV6, layout.IPV6, layout.UDP, layout.BTH, layout.ICRC]
    headers += layout.EXTENSIONS[packet.WRITE_ONLY_IMM]
    largest = 2048 + sum(header.size_bytes for header in headers)
    assert f"MTU: the largest IP packet is {largest:,} B;" in capsys.readouterr().err


@pytest.mark.parametrize("platform", ["sonic", "frr"])
def test_what_else_sids_need_is_said(platform: str, tmp_path: Path, capsys: Out) -> None:
    (tmp_path / "x.toml").write_text(FABRICS["planes"])
    assert main(["switches", platform, str(tmp_path / "x.toml"), "--switch", "plane 0 t0 0"]) == 0
    said = capsys.readouterr().err
    assert "ip link add sr0 type dummy && ip link set sr0 up" in said
    assert "sonic-buildimage 23812" in said


def test_what_is_cut_through_is_said_to_be_the_chips(tmp_path: Path, capsys: Out) -> None:
    (tmp_path / "x.toml").write_text(f'{FABRICS["planes"]}switching = "cut-through"\n')
    assert main(["switches", "frr", str(tmp_path / "x.toml"), "--switch", "p0-t0-0"]) == 0
    assert 'not in it: switching = "cut-through" is the chip\'s.' in capsys.readouterr().err


# --- syntax


@pytest.mark.parametrize("fabric", ["planes", "three tiers", "links"])
def test_frr_and_cumulus_are_spelt_as_their_documents_spell_it(
    fabric: str, exported: Export
) -> None:
    for file in exported("frr", fabric).glob("p*.conf"):
        grammar.check_frr(file.read_text())
    if fabric == "links":
        return
    for file in exported("cumulus", fabric).glob("p*.nv"):
        grammar.check_nvue(file.read_text())


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ("ipv6 route 2001", "ipv6 rout 2001"),
        (" ipv6 address", "ipv6 address"),
        ("/127", "/129"),
        ("  exit\n", ""),
        ("behavior uN", "behavior uX"),
        ("swp1\n", "swp0\n"),
    ],
)
def test_the_grammar_of_frr_knows_what_is_wrong(was: str, becomes: str, exported: Export) -> None:
    text = (exported("frr", "smallest") / "p0-t0-0.conf").read_text()
    assert was in text
    with pytest.raises(ValueError, match=r"."):
        grammar.check_frr(text.replace(was, becomes, 1))


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ("nv set vrf", "nv sett vrf"),
        ("size 256", "size 128"),
        ("dscp 46", "dscp 64"),
        ("via blackhole", "via nowhere"),
        ("nv config apply\n", ""),
    ],
)
def test_the_grammar_of_nvue_knows_what_is_wrong(was: str, becomes: str, exported: Export) -> None:
    text = (exported("cumulus", "smallest") / "p0-t0-0.nv").read_text()
    assert was in text
    with pytest.raises(ValueError, match=r"."):
        grammar.check_nvue(text.replace(was, becomes, 1))


@pytest.mark.parametrize(
    ("platform", "says"),
    [("frr", "Checked with FRR 10.6.1 "), ("cumulus", "Checked for syntax only: ")],
)
def test_what_no_switch_has_taken_says_so(platform: str, says: str, exported: Export) -> None:
    said = (exported(platform, "planes") / "cannot.txt").read_text()
    assert said.startswith(says)


# --- wrong input

BAD = {
    "switches": "the following arguments are required: platform, SCENARIO.toml",
    "switches junos x.toml": "invalid choice: 'junos'",
    "switches sonic no.toml": "no.toml: cannot be read (No such file or directory)",
    "switches sonic x.toml --switch p9-t0-0": "--switch p9-t0-0: there is no such switch; accepted:"
    ' "plane 0 t0 0" to "plane 1 t1 2"',
    "switches sonic x.toml --set fabric.nics=0": "fabric.nics: 0 is refused",
    "switches sonic x.toml --set transport.kind=roce": "transport: none is MRC's",
    "switches sonic x.toml --out x.toml": "--out x.toml: cannot be made (File exists); name",
    "switches sonic x.toml --out full": "--out full: is not empty; name another directory",
    "switches sonic x.toml --out /proc/no": "--out /proc/no: cannot be made (No such",
    "switches sonic bundle.toml": "parallel links (Bundle) have no uSIDs of their own; use",
    "switches linux x.toml --set fabric.nics=1024 --set fabric.t0_down=32": "at most 512, build a",
    "switches linux x.toml --set fabric.nics=1024 --set fabric.t0_down=32 --out big": "at most 512",
}


@pytest.mark.parametrize("line", BAD)
def test_wrong_input_is_status_2_one_line_and_nothing_written(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.toml").write_text(FABRICS["planes"])
    (tmp_path / "bundle.toml").write_text('[fabric]\nkind = "htsim"\ntopo = "a.topo"\n')
    (tmp_path / "a.topo").write_text(TOPO)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine").touch()
    before = sorted(tmp_path.rglob("*"))
    assert main(line.split()) == 2
    printed = capsys.readouterr()
    assert BAD[line] in printed.err
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert sorted(tmp_path.rglob("*")) == before


TOPO = """Nodes 4
Tiers 2
Podsize 4
Tier 0
Downlink_speed_Gbps 100
Radix_Down 2
Radix_Up 2
Downlink_Latency_ns 500
Tier 1
Downlink_speed_Gbps 100
Radix_Down 4
Bundle 2
Downlink_Latency_ns 500
"""
