"""The names of places: what they stand for, and what is said where there is nothing."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmrc.errors import InputError
from openmrc.fabric import Fabric, fat_tree, multiplane
from openmrc.fabric.clos import Tier, build
from openmrc.fabric.places import (
    by_link,
    kind_of,
    links,
    nic_ports,
    nics,
    planes,
    split,
    switches,
    transceivers,
)

GBPS = 10**9
TWO = multiplane(32, 8, 100 * GBPS, 4, 4, 10**6, 0)
THREE = fat_tree(128, 100 * GBPS, 4, 4, 10**6, 0, tiers=3)
BUNDLED = build("htsim", 4, 1, [Tier(2, 4, GBPS, 1, 0), Tier(2, 0, GBPS, 1, 0, bundle=2)])


def named(fabric: Fabric, where: str) -> list[str]:
    return [fabric.link_name(port) for port in links(fabric, where).tolist()]


def test_a_dash_names_both_directions_and_an_arrow_one() -> None:
    both = links(TWO, "plane 3 t0 5 - t1 2").tolist()
    up = links(TWO, "plane 3 t0 5 > t1 2").tolist()
    down = links(TWO, "plane 3 t0 5 < t1 2").tolist()
    assert both == up + down
    assert TWO.port_reverse[up] == down
    assert TWO.switch_name(int(TWO.port_switch[up[0]])) == "plane 3 t0 5"
    assert links(TWO, "plane 3 t1 2 < t0 5").tolist() == up
    assert links(TWO, "plane 3 t1 2 > t0 5").tolist() == down
    assert sorted(links(TWO, "plane 3 t1 2 - t0 5").tolist()) == sorted(both)


def test_the_link_of_a_nic() -> None:
    assert links(TWO, "nic 5 plane 3 > t0").tolist() == [43]
    assert links(TWO, "nic 5 plane 3 < t0").tolist() == [TWO.port_reverse[43]]
    both = [43, TWO.port_reverse[43]]
    assert links(TWO, "nic 5 plane 3").tolist() == both
    assert links(TWO, "nic 5  plane 3 - t0").tolist() == both
    assert nic_ports(TWO, " nic 5 plane 3 ").tolist() == [43]


def test_a_star_stands_for_all_that_exist() -> None:
    assert len(links(TWO, "nic 5 plane *")) == 16
    assert len(links(TWO, "nic * plane 2 > t0")) == 32
    assert named(TWO, "plane 3 t0 5 > t1 *") == [f"plane 3 t0 5 - t1 {n}" for n in range(4)]
    assert named(TWO, "plane * t0 5 > t1 1") == [f"plane {p} t0 5 - t1 1" for p in range(8)]
    assert [TWO.switch_name(s) for s in switches(TWO, "plane 1 t1 *").tolist()] == [
        f"plane 1 t1 {n}" for n in range(4)
    ]
    # In three tiers a star takes just the switches that are linked.
    assert named(THREE, "plane 0 t1 * > t2 9") == [
        f"plane 0 t1 {4 * pod + 2} - t2 9" for pod in range(8)
    ]


def test_one_of_several_parallel_links() -> None:
    assert len(links(BUNDLED, "plane 0 t0 1 - t1 0")) == 4
    assert named(BUNDLED, "plane 0 t0 1 > t1 0 link 1") == ["plane 0 t0 1 - t1 0 link 1"]
    with pytest.raises(InputError, match="there is no parallel link 2; 0 to 1 exist"):
        links(BUNDLED, "plane 0 t0 1 - t1 0 link 2")


@pytest.mark.parametrize("fabric", [TWO, THREE, BUNDLED], ids=["two", "three", "bundled"])
@given(data=st.data())
def test_every_link_is_found_again_by_its_name(fabric: Fabric, data: st.DataObject) -> None:
    port = data.draw(st.integers(0, fabric.n_ports - 1))
    found = links(fabric, fabric.link_name(port)).tolist()
    assert sorted(found) == sorted([port, int(fabric.port_reverse[port])])


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("plane 9 t0 5 - t1 2", "there is no plane 9; 0 to 7 exist"),
        ("plane 3 t0 8 - t1 2", "there is no t0 8; 0 to 7 exist"),
        ("plane 3 t0 5 - t1 4", "there is no t1 4; 0 to 3 exist"),
        ("plane 3 t0 5 - t0 4", "t0 and t0 are not linked; name neighbouring tiers"),
        ("plane 3 t1 1 - t2 4", "there is no tier t2; t0 to t1 exist"),
        ("nic 32 plane 0", "there is no nic 32; 0 to 31 exist"),
        (f"nic {'9' * 70} plane 0", f"there is no nic {'9' * 70}; 0 to 31 exist"),
        ("nic 3 plane 8", "there is no plane 8; 0 to 7 exist"),
        ("plane 3 t0 5", 'not a link; "plane 3 t0 5 - t1 2" or "nic 5 plane 3" is accepted'),
        ("nic -1 plane 8", 'not a link; "plane 3 t0 5 - t1 2" or "nic 5 plane 3" is accepted'),
        ("", 'not a link; "plane 3 t0 5 - t1 2" or "nic 5 plane 3" is accepted'),
    ],
)
def test_a_link_that_is_not_there_is_refused_with_what_is(where: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        links(TWO, where)
    assert str(refused.value) == message


def test_switches_of_different_pods_are_not_linked() -> None:
    with pytest.raises(InputError) as refused:
        links(THREE, "plane 0 t0 5 - t1 0")
    assert str(refused.value) == "no link from t0 5 to t1 0; it has links to t1 4, 5, 6, 7"


def test_the_other_kinds_of_places_refuse_a_link() -> None:
    with pytest.raises(InputError, match='not a switch; "plane 3 t0 5" is accepted'):
        switches(TWO, "nic 5 plane 3")
    with pytest.raises(InputError, match="""not a NIC's port; "nic 5 plane 3" is accepted"""):
        nic_ports(TWO, "nic 5 plane 3 > t0")


# --- planes, transceivers, lists --------------------------------------------------------------


def each(fabric: Fabric, where: str, links_each: int) -> list[list[str]]:
    """The links of each transceiver, by name."""
    found = transceivers(fabric, where, links_each)
    assert len(found.targets) == found.first[-1]
    rows = [found.targets[a:b].tolist() for a, b in pairwise(found.first.tolist())]
    for ports in rows:  # both directions of every link
        assert sorted(fabric.port_reverse[ports].tolist()) == sorted(ports)
    return [sorted({fabric.link_name(port) for port in ports}) for ports in rows]


def test_the_ports_of_a_switch_share_transceivers_downwards_and_upwards_apart() -> None:
    down = [f"nic {nic} plane 3" for nic in range(20, 24)]
    up = [f"plane 3 t0 5 - t1 {n}" for n in range(4)]
    assert each(TWO, "plane 3 t0 5 transceiver *", 4) == [down, up]
    assert each(TWO, "plane 3 t0 5 transceiver *", 3) == [down[:3], down[3:], up[:3], up[3:]]
    assert each(TWO, "plane 3 t0 5 transceiver 2", 3) == [up[:3]]
    assert each(TWO, "plane 3 t0 5 transceiver *", 9) == [down, up]
    assert len(each(TWO, "plane * t1 * transceiver *", 4)) == 8 * 4 * 2
    # a T2 has ports downwards only
    assert each(THREE, "plane 0 t2 9 transceiver 1", 4) == [
        sorted(f"plane 0 t1 {4 * pod + 2} - t2 9" for pod in range(4, 8))
    ]


def test_the_ports_of_a_nic_share_transceivers_by_plane() -> None:
    assert each(TWO, "nic 5 transceiver 1", 4) == [[f"nic 5 plane {p}" for p in range(4, 8)]]
    assert each(TWO, "nic 5 transceiver 0", 8) == [[f"nic 5 plane {p}" for p in range(8)]]
    assert len(each(TWO, "nic * transceiver *", 4)) == 64


def test_a_transceiver_that_is_not_there_is_refused_with_what_is() -> None:
    for where, message in (
        ("plane 3 t0 5 transceiver 2", "there is no transceiver 2; 0 to 1 exist"),
        ("nic 32 transceiver 0", "there is no nic 32; 0 to 31 exist"),
        ("plane 8 t0 5 transceiver 0", "there is no plane 8; 0 to 7 exist"),
        (
            "plane 3 t0 5",
            'not a transceiver; "plane 3 t0 5 transceiver 1" or "nic 5 transceiver 0"',
        ),
    ):
        with pytest.raises(InputError) as refused:
            transceivers(TWO, where, 4)
        assert str(refused.value).startswith(message)


def test_planes() -> None:
    assert planes(TWO, "plane 3").tolist() == [3]
    assert planes(TWO, "plane *").tolist() == list(range(8))
    with pytest.raises(InputError, match="there is no plane 8; 0 to 7 exist"):
        planes(TWO, "plane 8")
    with pytest.raises(InputError, match='not a plane; "plane 3" is accepted'):
        planes(TWO, "plane 3 t0 5")


def test_a_place_shows_what_it_is_by_its_form() -> None:
    forms = {
        "nic 5 plane 3": "nic",
        "nic 5 plane 3 > t0": "nic",
        "plane 3 t0 5 - t1 *": "link",
        "plane 3 t0 *": "switch",
        " plane  3 ": "plane",
        "nic * transceiver 0": "transceiver",
        "plane 3 t0 5 transceiver 0": "transceiver",
        "plane": "",
        "": "",
    }
    assert {where: kind_of(where) for where in forms} == forms


def test_several_places_are_a_list_or_have_commas_between_them() -> None:
    assert split("nic 5 plane 3") == ["nic 5 plane 3"]
    assert split("nic 5 plane 3, plane 0 t0 1") == ["nic 5 plane 3", "plane 0 t0 1"]
    assert split(("a,b", "c")) == ["a", "b", "c"]


def test_ports_link_by_link() -> None:
    up = links(TWO, "plane 3 t0 5 > t1 *")
    down = links(TWO, "plane 3 t0 5 < t1 1")
    found = by_link(TWO, np.concatenate([up, down, up]))
    assert len(found) == 4
    targets, sizes = found.take(np.array([1, 0]))
    assert sizes.tolist() == [2, 1]
    assert sorted(targets.tolist()) == sorted([up[1], *down, up[0]])


def test_nics_by_number_and_range() -> None:
    assert nics(TWO, "7").tolist() == [7]
    assert nics(TWO, "0-3, 2 - 4,31").tolist() == [0, 1, 2, 3, 4, 31]
    for text, message in (
        ("32", "there is no nic 32; 0 to 31 exist"),
        ("9" * 70, f"there is no nic {10**60}; 0 to 31 exist"),
        ("4-2", "'4-2': ends before it begins; put the lower number first"),
        ("nic 3", "'nic 3': not a NIC's number or a range; \"0-7, 12\" is accepted"),
        ("", "'': not a NIC's number or a range; \"0-7, 12\" is accepted"),
    ):
        with pytest.raises(InputError) as refused:
            nics(TWO, text)
        assert str(refused.value) == message
