"""How much a device's packets carry, and what two devices agree on (row 20)."""

from __future__ import annotations

from ipaddress import ip_address
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmrc.engine.parameters import PMTUS
from openmrc.errors import InputError
from openmrc.live.endpoint.planes import Plane
from openmrc.live.endpoint.pmtu import Pmtu, largest, most_payload, of_ports

MTUS = st.integers(1156, 9216)


def port(mtu: int, address: str = "10.0.0.1") -> Any:
    plane = Plane("e0", ip_address(address), mtu, None)
    return SimpleNamespace(interface="e0", mtu=mtu, sockets=SimpleNamespace(plane=plane))


@pytest.mark.parametrize(
    ("mtu", "address", "size"),
    [
        (1500, "10.0.0.1", 1428),  # 20 + 8 + 12 + 4 + 4 + 16 + 4 + 4 bytes of headers and iCRC
        (1500, "fd00::1", 1408),
        (1503, "10.0.0.1", 1428),
        (1504, "10.0.0.1", 1432),
        (8263, "10.0.0.1", 8188),
        (8264, "10.0.0.1", 8192),
        (9000, "10.0.0.1", 8192),
        (65_536, "10.0.0.1", 8192),
    ],
)
def test_packets_of_plain_udp_fill_the_mtu(mtu: int, address: str, size: int) -> None:
    found = of_ports([port(mtu, address), port(9000)], 8192, fills=True)
    assert (found.size, found.offered) == (size, size)
    assert found.stated == largest(mtu, 8192)
    assert (found.note == "") == (size == 8192)


def test_elsewhere_it_is_one_of_four() -> None:
    found = of_ports([port(1500)], 4096, fills=False)
    assert (found.size, found.stated, found.offered) == (1024, 1024, 0)
    assert found.note == (
        "PMTU 1024 B in place of 4096: e0 has an MTU of 1500, 4096 needs 4228 on the whole path"
        " (ip link set DEVICE mtu 4228)"
    )
    with pytest.raises(InputError, match="MTU 1155 has no room for 1024 B of data; set it to 1156"):
        of_ports([port(1155)], 4096, fills=False)


@given(MTUS, st.booleans(), MTUS, st.booleans())
def test_two_agree_on_one_that_both_have_room_for(
    mtu: int, fills: bool, other_mtu: int, other_fills: bool
) -> None:
    one, other = (
        of_ports([port(each)], 8192, each_fills)
        for each, each_fills in ((mtu, fills), (other_mtu, other_fills))
    )
    size = one.agreed(other.stated, other.offered)
    assert size == other.agreed(one.stated, one.offered)
    assert size <= most_payload(min(mtu, other_mtu), True, 8192)
    assert (fills and other_fills) or size in PMTUS
    lowered = one.lowered(size, "the peer")
    assert other.agreed(lowered.stated, lowered.offered) == size, "whoever connects second"


def test_what_was_lowered_is_said() -> None:
    found = Pmtu(8192, 8192, fills=True).lowered(1428, "the peer")
    assert (found.size, found.stated, found.offered) == (1428, 1024, 1428)
    assert found.note == "PMTU 1428 B in place of 8192: the peer has room for no more"
    assert Pmtu(1428, 1024, fills=True).lowered(1024, "a path").offered == 0
