"""A fabric from a list of links: the Clos that it is, or what keeps it from being one."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from openmrc.errors import InputError
from openmrc.fabric.clos import Tier, build, fat_tree, multiplane
from openmrc.fabric.links import load_links
from openmrc.fabric.model import Fabric
from openmrc.ops.export.files import links as exported_links
from openmrc.ops.export.switches import Plant
from openmrc.scenario.scenario import parse_scenario
from openmrc.units import NS

LINK = (100 * 10**9, 500 * NS, 250 * NS)
TWO = """\
a,b,rate,delay
nic0,leaf1,100Gbps,500ns
nic1,leaf1,100Gbps,500ns
nic2,leaf2,100Gbps,500ns
nic3,leaf2,100Gbps,500ns
leaf1,spine1,100Gbps,500ns
leaf1,spine2,100Gbps,500ns
leaf2,spine1,100Gbps,500ns
spine2,leaf2,100Gbps,500ns
"""


def listed(fabric: Fabric, seed: int = 1) -> str:
    """The links of a fabric, shuffled, with names that say nothing of tiers."""
    mixed = random.Random(seed)
    lines = []
    for port in range(fabric.n_ports):
        own, far = int(fabric.port_switch[port]), int(fabric.port_peer_switch[port])
        if far < 0 or (own >= 0 and fabric.sw_tier[own] > fabric.sw_tier[far]):
            continue
        ends = [f"s{own}" if own >= 0 else f"nic {fabric.port_nic[port]}", f"s{far}"]
        mixed.shuffle(ends)
        rate, delay = int(fabric.port_rate_bps[port]), int(fabric.port_delay_ps[port])
        plane = int(fabric.sw_plane[far])
        lines.append(f"{ends[0]},{ends[1]},{rate},{delay}ps,{plane}")
    mixed.shuffle(lines)
    return "\n".join(["a,b,rate,delay,plane", *lines])


def load(tmp_path: Path, text: str) -> Fabric:
    (tmp_path / "x.csv").write_text(text)
    return load_links(tmp_path / "x.csv", 250 * NS)


def refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(InputError) as error:
        load(tmp_path, text)
    return str(error.value).replace(f"{tmp_path}/", "")


def assert_equal(found: Fabric, built: Fabric) -> None:
    for name, column in vars(built).items():
        if isinstance(column, np.ndarray):
            assert getattr(found, name).tolist() == column.tolist(), name
        elif name not in ("kind", "dscps"):
            assert getattr(found, name) == column, name


@pytest.mark.parametrize(
    "built",
    [
        multiplane(10, 3, LINK[0], 4, 3, *LINK[1:]),
        multiplane(32, 1, LINK[0], 8, 8, *LINK[1:]),
        fat_tree(30, LINK[0], 4, 2, *LINK[1:], tiers=3, t1_down=3, t1_up=2),
        build(
            "htsim",
            16,
            1,
            [Tier(4, 4, *LINK), Tier(2, 4, *LINK, bundle=2), Tier(0, 0, *LINK, bundle=2)],
        ),
    ],
    ids=["planes", "square", "three tiers", "bundles"],
)
def test_the_list_of_a_closs_links_is_that_clos(tmp_path: Path, built: Fabric) -> None:
    assert_equal(load(tmp_path, listed(built)), built)


def test_each_link_keeps_its_rate_and_delay(tmp_path: Path) -> None:
    text = TWO.replace("leaf2,spine1,100Gbps,500ns", "leaf2,spine1,40Gbps,3us")
    fabric = load(tmp_path, text)
    odd = np.flatnonzero(fabric.port_rate_bps == 40 * 10**9)
    assert {fabric.link_name(int(port)) for port in odd} == {"plane 0 t0 1 - t1 0"}
    assert fabric.port_delay_ps[odd].tolist() == [3000 * NS] * 2
    assert (fabric.port_rate_bps == 100 * 10**9).sum() == fabric.n_ports - 2


def test_what_is_exported_is_read(tmp_path: Path) -> None:
    text = '[fabric]\nnics = 8\nplanes = 2\nt0_down = 4\nlink_delay = "500ns"\n'
    plant = Plant(parse_scenario(f'{text}[workload]\nkind = "permutation"\n'))
    assert_equal(load(tmp_path, exported_links("sonic", plant)), plant.fabric)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("a,b,rate,delay", "a,b,delay", "x.csv:1: no column rate or rate_bps; accepted: a,b,rate"),
        ("nic0,leaf1,100Gbps,500ns", "nic0,leaf1,100Gbps", "x.csv:2: 3 cells in a table of 4 col"),
        ("nic0,leaf1,100Gbps", "nic0,leaf1,fast", "x.csv:2: 'fast' is not a rate; a rate with its"),
        ("nic0,leaf1,100Gbps", "nic0,leaf1,0Gbps", "x.csv:2: rate '0Gbps'; more than 0 is"),
        ("nic0,leaf1", "nic0,nic0", "x.csv:2: ends 'nic0' and 'nic0'; name two"),
        ("nic3,", "nic7,", "x.csv: 4 NICs, nic 7 the last; two or more, nic 0, nic 1 ... without"),
        ("leaf1,spine2,", "leaf1,leaf2,", "x.csv:7: leaf1 and leaf2 are no neighbours in tiers"),
        ("leaf1,spine2,100Gbps,500ns\n", "", "x.csv: plane 0: spine1 and leaf2: all T0s of a pod"),
        ("nic1,leaf1,", "nic1,leaf3,", "x.csv: plane 0: leaf1 serves 1 NIC; the others serve as"),
        ("leaf1,spine1,100Gbps,500ns\n", "leaf1,spine1,100Gbps,500ns\n" * 2,
         "x.csv: plane 0: 1 and 2 links between two switches of the same tiers; all have the"),
        ("nic3,leaf2,100Gbps,500ns\n", "nic3,leaf2,100Gbps,500ns\nnic3,leaf1,100Gbps,500ns\n",
         "x.csv: plane 0: nic 3 has 2 T0s; one link to one is accepted"),
    ],
)  # fmt: skip
def test_what_is_no_clos_is_refused_by_name(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert old in TWO
    assert refusal(tmp_path, TWO.replace(old, new)).startswith(message)


def test_planes_are_numbered_and_alike(tmp_path: Path) -> None:
    one = TWO.splitlines()[1:]
    text = "\n".join(["a,b,rate,delay,plane", *(f"{line},{k}" for k in (0, 2) for line in one)])
    assert refusal(tmp_path, text).startswith("x.csv: planes 0, 2; 0, 1, 2 ... are accepted")
    other = [line for line in one if "spine2" not in line]
    text = "\n".join(["a,b,rate,delay,plane", *(f"{line},0" for line in one),
                      *(f"{line},1" for line in other)])  # fmt: skip
    assert refusal(tmp_path, text).startswith("x.csv: plane 1 is a Clos of other sizes than plane")
