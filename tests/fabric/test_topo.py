"""htsim's .topo text: what it builds, and one line of complaint for every wrong word."""

from __future__ import annotations

from pathlib import Path

import pytest

from openmrc.errors import InputError
from openmrc.fabric import load_topo

THREE_TIERS = """\
# a comment
Nodes 128
Tiers 3
Podsize 16

Tier 0
Oversubscribed 1
Downlink_speed_Gbps 100
Radix_Down 4
Radix_Up 4
Downlink_Latency_ns 1000
Switch_Latency_ns 0

Tier 1
Downlink_speed_Gbps 100
Radix_Down 4
Radix_Up 4
Downlink_Latency_ns 2000
Switch_Latency_ns 5
Bundle 1

Tier 2
Downlink_speed_Gbps 100
Radix_Down 8
Downlink_Latency_ns 3000
"""

TWO_TIERS = """\
nodes 32
tiers 2
podsize 32
tier 0
downlink_speed_gbps 100
radix_down 8
radix_up 2
downlink_latency_ns 1000
oversubscribed 4
tier 1
downlink_speed_gbps 100
radix_down 4
downlink_latency_ns 1000
"""

BUNDLED = """\
Nodes 8
Tiers 3
Podsize 4
Tier 0
Downlink_speed_Gbps 200
Radix_Down 2
Radix_Up 2
Downlink_Latency_ns 1000
Tier 1
Downlink_speed_Gbps 200
Radix_Down 2
Radix_Up 4
Downlink_Latency_ns 1000
Tier 2
Downlink_speed_Gbps 100
Radix_Down 4
Downlink_Latency_ns 1000
Bundle 2
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "x.topo"
    path.write_text(text)
    return path


def test_three_tiers_with_the_links_of_each(tmp_path: Path) -> None:
    fabric = load_topo(write(tmp_path, THREE_TIERS))
    assert (fabric.kind, fabric.n_nics, fabric.n_planes) == ("htsim", 128, 1)
    assert fabric.tier_counts == (32, 32, 16)
    ports = fabric.longest_path_ports()
    assert fabric.port_delay_ps[ports].tolist() == [
        1_000_000, 2_000_000, 3_000_000, 3_000_000, 2_000_000, 1_000_000
    ]  # fmt: skip
    assert fabric.sw_delay_ps[[0, 32, 64]].tolist() == [0, 5_000, 0]


def test_two_tiers_in_lower_case_and_oversubscribed(tmp_path: Path) -> None:
    fabric = load_topo(write(tmp_path, TWO_TIERS))
    assert fabric.tier_counts == (4, 2)
    assert fabric.n_paths(0, 31, 0) == 2


def test_a_bundle_is_several_links_to_one_neighbour(tmp_path: Path) -> None:
    fabric = load_topo(write(tmp_path, BUNDLED))
    assert fabric.tier_counts == (4, 4, 4)
    assert fabric.n_paths(0, 7, 0) == 8
    assert fabric.port_rate_bps[fabric.longest_path_ports()].tolist() == [
        200 * 10**9, 200 * 10**9, 100 * 10**9, 100 * 10**9, 200 * 10**9, 200 * 10**9
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("Nodes 128", "Nodes many", "x.topo:2: Nodes 'many' is not a whole number"),
        ("Nodes 128", "Nodes 0", "x.topo:2: Nodes 0 is out of range; 2 to 1152921504606846976"),
        ("Nodes 128", "Nodes -128", "x.topo:2: Nodes -128 is out of range"),
        ("Nodes 128", "Nodes 1_28", "x.topo:2: Nodes '1_28' is not a whole number"),
        ("Nodes 128", "Nodes 128 x", "x.topo:2: 'Nodes 128 x'; a key and one number"),
        ("Nodes 128", "Nodes", "x.topo:2: 'Nodes'; a key and one number"),
        ("Nodes 128\n", "", "x.topo: Nodes is missing; state it before Tier 0"),
        ("Nodes 128", "Nodes 120", "x.topo:2: Nodes 120 is no multiple of Podsize 16"),
        ("Tiers 3", "Tiers 4", "x.topo:3: Tiers 4 is not supported; 2 or 3 is"),
        ("Podsize 16", "Hosts 16", "x.topo:4: unknown key 'Hosts'; nodes, tiers, podsize or tier"),
        ("Tier 2", "Tier 3", "x.topo:22: Tier 3; each of 0, 1 and 2 may occur once"),
        ("Tier 2", "Tier 1", "x.topo:22: Tier 1; each of 0, 1 and 2 may occur once"),
        ("Radix_Down 8", "Radix_Down 4", "x.topo:24: Radix_Down 4 of tier 2; 8 neighbours"),
        ("Radix_Down 8\n", "", "x.topo: tier 2 has no radix_down; add it"),
        ("Radix_Down 8", "Radix_Down 8\nRadix_Up 4", "x.topo:25: the top tier has no Radix_Up"),
        ("Radix_Down 8", "Radix_Down 8\nRadix_Down 8", "x.topo:25: Radix_Down is given twice;"),
        ("Radix_Down 8", "Radix_Down 8\nQueue_Down 9", "x.topo:25: Queue_Down is not supported"),
        ("Radix_Down 8", "Radix_Down 8\nColour 9", "x.topo:25: unknown key 'Colour'; downlink"),
        ("Oversubscribed 1", "Oversubscribed 2", "x.topo:7: Oversubscribed 2, but 400G down and"),
        ("Bundle 1", "Bundle 3", "x.topo:10: Radix_Up 4 is no multiple of Bundle of tier 1 3"),
        ("Bundle 1", "Bundle 2", "x.topo:16: Radix_Down 4 of tier 1; 4 neighbours x Bundle 2 need"),
        ("Oversubscribed 1", "Bundle 2", "x.topo:7: Bundle of tier 0 must be 1"),
    ],
)
def test_each_wrong_word_is_refused_in_one_line(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert old in THREE_TIERS
    path = write(tmp_path, THREE_TIERS.replace(old, new, 1))
    with pytest.raises(InputError) as refused:
        load_topo(path)
    assert str(refused.value).startswith(str(tmp_path / message))


def test_two_tiers_are_one_pod(tmp_path: Path) -> None:
    path = write(tmp_path, TWO_TIERS.replace("podsize 32", "podsize 16"))
    with pytest.raises(InputError, match="Podsize 16 with two tiers; all 32 nodes are one pod"):
        load_topo(path)


def test_a_missing_tier_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, TWO_TIERS.replace("tiers 2", "tiers 3"))
    with pytest.raises(InputError, match="no section for tier 2"):
        load_topo(path)


def test_files_that_hold_no_topology(tmp_path: Path) -> None:
    for text, message in (("", "nothing in it"), ("# only this\n\n", "nothing in it")):
        with pytest.raises(InputError, match=rf"{message}; name an htsim \.topo file"):
            load_topo(write(tmp_path, text))
    with pytest.raises(
        InputError, match=r"\(No such file or directory\); name an htsim \.topo file"
    ):
        load_topo(tmp_path / "none.topo")
    with pytest.raises(InputError, match="Is a directory"):
        load_topo(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00Nodes")
    with pytest.raises(InputError, match="is not UTF-8 text"):
        load_topo(tmp_path / "binary")
