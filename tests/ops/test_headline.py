"""What to do at a place, by what it is and how it broke."""

from __future__ import annotations

from typing import Any

import pytest

from openmrc.ops.headline import NAMED_MAX, Bad, headline, remedy

DEAD = Bad("plane 1 t0 1 > t1 3", "link", dead=True, over=False)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "replace the transceiver that sends, then the one that receives"),
        (
            {"ends": ("a port 1", "b port 2")},
            "replace the transceiver that sends (a port 1), then the",
        ),
        ({"where": "plane 1 t0 1 - t1 3"}, "reseat or replace the cable, then its transceivers"),
        ({"where": "nic 3 plane 1"}, "reseat or replace the cable, then its transceivers"),
        ({"where": "plane 1 t0 1 > t1 *"}, "check what these links share, first plane 1 t0 1"),
        ({"where": "nic 3 plane * < t0"}, "check what these links share, first nic 3"),
        ({"where": "nic 3 plane 0 > t0, nic 3 plane 1 > t0"}, "replace the transceiver"),
        ({"where": "plane 1 t1 3", "kind": "switch"}, "reboot it"),
        ({"kind": "switch", "dead": False}, "keep traffic off it (deny it), and reboot or replace"),
        ({"where": "plane 1 t1 *", "kind": "switch"}, "check what its switches share: power"),
        ({"kind": "nic"}, "keep its node out of jobs; reset the NIC, then replace it"),
        ({"kind": "plane"}, "check what its switches share: power, configuration"),
        ({"narrow": True}, "set the MTU of every port on the way"),
        ({"others": ("nic 7", "nic 8")}, "find out which it is, by probes (mrc ops agent)"),
        ({"others": ("plane 1 t1 3",)}, "plane 1 t1 3: reboot it; if it stays bad, look at its"),
        (
            {"where": "plane 1 t1 3", "others": ("plane 1 t0 1 > t1 3",)},
            "reboot it; if it stays bad, look at its links",
        ),
        ({"over": True}, "nothing: it works again"),
        ({"over": True, "times": 3}, "replace the transceiver that sends"),
    ],
)
def test_each_place_has_its_remedy(changes: dict[str, Any], said: str) -> None:
    assert remedy(DEAD._replace(**changes)).startswith(said)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ([], "Nothing broke."),
        ([DEAD], "Still broken: plane 1 t0 1 > t1 3."),
        ([DEAD._replace(others=("nic 7",))], "one of 2 places, such as plane 1 t0 1 > t1 3."),
        ([DEAD._replace(others=("plane 1 t1 3",))], "broken: one of 2 places at plane 1 t1 3."),
        ([DEAD._replace(over=True)], "Nothing is broken any more; plane 1 t0 1 > t1 3 was."),
        ([DEAD._replace(over=True)] * 2, "Nothing is broken any more; 2 places were."),
        ([DEAD._replace(over=True, times=3)], "Comes and goes: plane 1 t0 1 > t1 3."),
        ([DEAD] * (NAMED_MAX + 2), "; and 2 more."),
    ],
)
def test_the_first_line_says_whether_something_is_broken(bad: list[Bad], said: str) -> None:
    assert headline(bad, str).state.endswith(said)


def test_only_what_is_to_be_done_is_printed_and_a_long_list_is_cut() -> None:
    head = headline([DEAD, DEAD._replace(over=True), *[DEAD] * 9], str)
    lines = head.lines(str)
    assert len(head.to_do) == 11
    assert len(lines) == 10
    assert lines[-1] == "  And 2 more places (--json)."


@pytest.mark.parametrize(
    ("where", "others", "device"),
    [
        ("plane 2 t1 3", ("plane 2 t0 0 > t1 3, plane 2 t0 1 > t1 3",), "plane 2 t1 3"),
        ("plane 2 t0 1 > t1 3", ("plane 2 t0 1 - t1 3",), ""),  # both ends
        ("plane 2 t0 1 > t1 3", ("plane 2 t0 1 > t1 4",), "plane 2 t0 1"),
        ("nic 3 plane 1", ("nic 3", "nic 3 plane * > t0"), "nic 3"),
        ("nic 3 plane 1 > t0", ("plane 1 t0 0 transceiver 0",), ""),
        ("plane 1 t0 2 transceiver 1", ("plane 1 t0 2",), "plane 1 t0 2"),
        ("plane 1 t0 * > t1 3", ("plane 1",), ""),
        ("plane 2 t1 3", (), ""),
    ],
)
def test_places_that_share_a_device_are_at_it(
    where: str, others: tuple[str, ...], device: str
) -> None:
    assert DEAD._replace(where=where, others=others).device == device
