"""A place is the links that it consists of, with their directions, in every tier."""

from __future__ import annotations

import numpy as np
import pytest

from openmrc.errors import InputError
from openmrc.fabric import fat_tree, multiplane
from openmrc.ops.mapper.page.links import DOWN, UP, drawn, links, numbers

SMALL = multiplane(8, 4, 10**8, 4, 2, 0, 0)
TALL = fat_tree(16, 10**11, 2, 2, 0, 0, tiers=3)  # pods of 2 T0s and 2 T1s; 4 T2s
BASE = 8 * 4


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("nic 3 plane 2 > t0", [[14, UP]]),
        ("nic 3 plane 2 < t0", [[14, DOWN]]),
        ("plane 1 t0 0 < t1 1", [[BASE + 5, DOWN]]),
        ("plane 1 t0 0 - t1 1", [[BASE + 5, 3]]),
        ("plane 1 t0 0 - t1 *", [[BASE + 4, 3], [BASE + 5, 3]]),
        ("plane 1 t1 1", [[BASE + 5, 3], [BASE + 7, 3]]),
        ("nic 7", [[28 + plane, 3] for plane in range(4)]),
        ("plane 0 t0 1 transceiver 0", [[16 + 4 * i, 3] for i in range(4)]),
        (
            "plane 3",
            [[3 + 4 * nic, 3] for nic in range(8)] + [[BASE + 12 + i, 3] for i in range(4)],
        ),
        ("nic 0 plane 1 > t0, nic 1 plane 1 < t0", [[1, UP], [5, DOWN]]),
    ],
)
def test_a_place_is_its_links_with_their_directions(where: str, found: list[list[int]]) -> None:
    assert links(SMALL, where) == found


def test_links_above_the_t1s_are_numbered_after_those_below() -> None:
    assert links(TALL, "plane 0 t1 1 > t2 2") == [[16 + 16 + 2, UP]]
    assert links(TALL, "plane 0 t2 2") == [[16 + 16 + 4 * pod + 2, 3] for pod in range(4)]
    link, climbs = numbers(TALL)
    assert np.array_equal(np.bincount(link), np.full(48, 2))  # two directions each
    assert climbs.sum() == 48


def test_what_is_drawn_leads_where_the_fabric_does() -> None:
    found = drawn(TALL)
    assert (found["tiers"], found["up"], found["bundle"]) == ([8, 8, 4], [2, 2], [1, 1])
    assert found["upper"] == [[0, 1, 0, 1, 2, 3, 2, 3, 4, 5, 4, 5, 6, 7, 6, 7], [0, 1, 2, 3] * 4]


def test_what_is_no_place_is_refused() -> None:
    with pytest.raises(InputError, match="not a place"):
        links(SMALL, "the cellar")
