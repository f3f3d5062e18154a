"""The address plan, forwards and back, in text and in bytes."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, IPv6Network
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.errors import InputError
from openmrc.fabric.clos import PLANES_BUILT_MAX
from openmrc.fabric.usid import BLOCK, BLOCK_BITS
from openmrc.wire import addresses
from openmrc.wire.addresses import (
    IPV4_NICS_MAX,
    NICS_MAX,
    Port,
    ipv4,
    ipv6,
    nic_mac,
    switch_mac,
    whose,
)

REPEATABLE = settings(derandomize=True, database=None, deadline=None)
NICS = st.integers(0, NICS_MAX - 1)
PLANES = st.integers(0, PLANES_BUILT_MAX - 1)


def mac_bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


@pytest.mark.parametrize(
    ("nic", "plane", "six", "four", "mac"),
    [
        (0, 0, "fd6d:7263::1", "10.0.0.1", "02:00:00:00:00:01"),
        (7, 3, "fd6d:7263:3::8", "10.3.0.8", "02:03:00:00:00:08"),
        (65_533, 31, "fd6d:7263:1f::fffe", "10.31.255.254", "02:1f:00:00:ff:fe"),
    ],
)
def test_the_addresses_of_a_port_end_alike(
    nic: int, plane: int, six: str, four: str, mac: str
) -> None:
    assert ipv6(nic, plane) == IPv6Address(six)
    assert ipv4(nic, plane) == IPv4Address(four)
    assert nic_mac(nic, plane) == mac
    for address in (IPv6Address(six).packed, IPv4Address(four).packed, mac_bytes(mac)):
        assert whose(address) == Port(nic, plane)


@REPEATABLE
@given(NICS, PLANES)
def test_an_address_is_unicast_local_and_never_a_carrier(nic: int, plane: int) -> None:
    address = ipv6(nic, plane)
    assert address in IPv6Network("fc00::/7")  # RFC 4193
    assert address in IPv6Network(f"fd6d:7263:{plane:x}::/48")
    assert int(address) >> 128 - BLOCK_BITS != BLOCK
    assert whose(address.packed) == Port(nic, plane)
    mac = mac_bytes(nic_mac(nic, plane))
    assert mac[0] & 3 == 2  # locally administered, not a group
    assert whose(mac) == Port(nic, plane)


@REPEATABLE
@given(st.integers(0, IPV4_NICS_MAX - 1), PLANES)
def test_ipv4_names_the_first_65534_nics(nic: int, plane: int) -> None:
    assert whose(ipv4(nic, plane).packed) == Port(nic, plane)


def test_a_switch_has_a_mac_that_no_nic_has() -> None:
    assert switch_mac(0) == "02:ff:00:00:00:00"
    assert switch_mac(6143) == "02:ff:00:00:17:ff"
    assert whose(mac_bytes(switch_mac(5))) is None


@pytest.mark.parametrize(
    "address",
    [
        IPv6Address("fd6d:7263::").packed,  # NIC -1
        IPv6Address("fd6d:7263::8000:0").packed,
        IPv6Address("fd6d:7263:20::1").packed,  # plane 32
        IPv6Address("fd6d:7263:100::1").packed,
        IPv6Address("fd6d:7263:0:1::1").packed,
        IPv6Address("fd6d:7263:0:100::1").packed,
        IPv6Address("fd6d:7263::1:0:1").packed,
        IPv6Address("fd6d:7264::1").packed,
        IPv6Address("2001:db8:4000:1000::").packed,
        IPv4Address("10.0.0.0").packed,
        IPv4Address("10.0.255.255").packed,
        IPv4Address("10.32.0.1").packed,
        IPv4Address("11.0.0.1").packed,
        bytes.fromhex("020000000000"),
        bytes.fromhex("022000000001"),
        bytes.fromhex("020080000000"),
        bytes.fromhex("000000000001"),
        b"",
        b"10.0.0.1",
    ],
    ids=bytes.hex,
)
def test_an_address_of_nobody(address: bytes) -> None:
    assert whose(address) is None


@REPEATABLE
@given(st.binary(max_size=16))
def test_what_is_read_is_what_would_be_written(address: bytes) -> None:
    port = whose(address)
    if port is not None:
        texts: dict[int, Any] = {4: ipv4, 6: nic_mac, 16: ipv6}
        packed = texts[len(address)](*port)
        assert (mac_bytes(packed) if isinstance(packed, str) else packed.packed) == address


@pytest.mark.parametrize(
    ("make", "nic", "plane", "message"),
    [
        (ipv6, NICS_MAX, 0, "nic 2147483647 plane 0 has no address; nics 0 to 2147483646 and"),
        (ipv6, -1, 0, "nic -1 plane 0 has no address; .* and planes 0 to 31 have"),
        (ipv6, 0, 32, "nic 0 plane 32 has no address"),
        (ipv4, 65_534, 0, "nic 65534 plane 0 has no address; nics 0 to 65533 and"),
        (ipv4, 0, -1, "nic 0 plane -1 has no address"),
        (nic_mac, 2**80, 0, "has no address"),
        (nic_mac, 0, -(2**80), "has no address"),
    ],
)
def test_a_port_beyond_the_plan_is_refused(make: Any, nic: int, plane: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make(nic, plane)


def test_a_switch_beyond_the_plan_is_refused() -> None:
    for switch in (-1, NICS_MAX):
        with pytest.raises(InputError, match=f"switch {switch} has no MAC; 0 to 2147483646 have"):
            switch_mac(switch)


@pytest.mark.parametrize(
    ("write", "read", "n"),
    [
        (addresses.write_ipv6, addresses.read_ipv6, 16),
        (addresses.write_ipv4, addresses.read_ipv4, 4),
        (addresses.write_nic_mac, addresses.read_nic_mac, 6),
    ],
    ids=["IPv6", "IPv4", "MAC"],
)
def test_compiled_writers_and_readers_stay_in_their_bytes(write: Any, read: Any, n: int) -> None:
    data = np.full(n + 6, 0xEE, np.uint8)
    assert write(data, 3, 1000, 5) == n
    assert set(data[:3].tolist()) == set(data[3 + n :].tolist()) == {0xEE}
    assert read(data, 3) == 5 << 32 | 1000
    before = data.tobytes()
    for at in (-1, 7):
        assert write(data, at, 1000, 5) == -1
        assert read(data, at) == -1
    assert data.tobytes() == before


def test_a_switch_mac_stays_in_its_bytes() -> None:
    data = np.full(10, 0xEE, np.uint8)
    assert addresses.write_switch_mac(data, 2, 258) == 6
    assert data.tobytes() == bytes.fromhex("eeee02ff00000102eeee")
    assert addresses.write_switch_mac(data, 5, 258) == -1
    assert addresses.write_switch_mac(data, -1, 258) == -1
