"""EVs planned for all NICs of a fabric: balanced, without denied places, deterministic."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from openmrc.errors import InputError
from openmrc.fabric import places
from openmrc.fabric.clos import multiplane
from openmrc.nics.plan import crossing, planned

FABRIC = multiplane(32, 2, 10**9, 8, 8, 0, 0)  # four T0s of eight NICs a plane, eight T1s


def ways(nic: int, most: int, denied: list[int] | None = None) -> list[tuple[int, int]]:
    """Plane and uplink of each EV."""
    found = planned(FABRIC, nic, most, denied or [])
    assert planned(FABRIC, nic, most, denied or []) == found
    hops = [FABRIC.hops(int.from_bytes(ev.value[:4], "big")) for ev in found]
    assert [one.plane + 1 for one in hops] == [ev.port for ev in found]
    return [(one.plane, one.up0) for one in hops]


def test_all_paths_if_there_is_room_and_else_all_uplinks_alike() -> None:
    assert sorted(ways(3, 256)) == [(plane, up) for plane in range(2) for up in range(8)]
    used = Counter(way for nic in range(8) for way in ways(nic, 6))  # three of each plane
    assert set(used.values()) == {3}
    assert len(used) == 16
    with pytest.raises(InputError, match="2 planes need one each"):
        planned(FABRIC, 0, 1)


def test_none_crosses_a_denied_place_that_it_need_not() -> None:
    switch = places.ports(FABRIC, "plane 1 t1 5").tolist()
    for nic in (0, 9, 31):
        assert (1, 5) not in ways(nic, 256, switch)
        assert Counter(plane for plane, _ in ways(nic, 256, switch)) == {0: 7, 1: 7}
    far = places.ports(FABRIC, "plane 0 t0 3 < t1 2").tolist()
    assert (0, 2) not in ways(0, 256, far)  # it leads there, for one of its peers
    own = places.ports(FABRIC, "nic 4 plane 0").tolist()
    assert len(ways(4, 256, own)) == 16  # whatever its EVs, they cross it
    assert not crossing(FABRIC, 0, own).any()  # and those of others need not know
    assert np.flatnonzero(crossing(FABRIC, 4, own).all(axis=1)).tolist() == [0]
