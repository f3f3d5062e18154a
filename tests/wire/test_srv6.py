"""Carriers in bytes: spelled as the plan does, and walked through the real tables to their NIC."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv6Address
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.fabric import Fabric, fat_tree, multiplane
from openmrc.fabric.tables import OWN, table
from openmrc.fabric.usid import BLOCK, UsidPlan
from openmrc.jit import compiled, records
from openmrc.sim.net.network import switches_of
from openmrc.sim.net.state import CONTROL
from openmrc.sim.net.switch import egress
from openmrc.wire import srv6
from openmrc.wire.srv6 import (
    BAD_FRAME,
    END_OF_CARRIER,
    HOP_LIMIT,
    NO_ROUTE,
    NOT_MINE,
    Tables,
    build_headend,
    build_tables,
    forward_frame,
    write_carrier,
)

GBPS = 10**9
Bytes = npt.NDArray[np.uint8]
REPEATABLE = settings(derandomize=True, database=None, deadline=None, max_examples=100)

TWO_TIERS = multiplane(16, 4, GBPS, 4, 4, 0, 0)
UNEVEN = multiplane(11, 3, GBPS, 4, 3, 0, 0)  # no powers of two, the last T0 not full
THREE_TIERS = fat_tree(32, GBPS, 2, 3, 0, 0, tiers=3, t1_down=3, t1_up=2)  # nor the last pod
TABLES = build_tables(UsidPlan(TWO_TIERS))
THREE_TABLES = build_tables(UsidPlan(THREE_TIERS))


# `inlined` functions can be called from compiled code only; in plain Python these are plain too.
@compiled
def step(data: Any, at: int, tables: Any, switch: int) -> Any:
    return srv6.step(data, at, tables, switch)


@compiled
def shift(data: Any, at: int) -> None:
    srv6.shift(data, at)


@compiled
def front(data: Any, at: int) -> Any:
    return srv6.front(data, at)


@compiled
def look_up(tables: Any, switch: int, usid: int) -> Any:
    return srv6.look_up(tables, switch, usid)


@compiled
def by_arithmetic(control: Any, switches: Any, switch: int, dst: int, ev: int) -> Any:
    return egress(control[0], switches[switch], dst, ev)


def address(text: str) -> Bytes:
    return np.frombuffer(IPv6Address(text).packed, np.uint8).copy()


def text(data: Bytes) -> str:
    return str(IPv6Address(data.tobytes()))


def spelled(headend: srv6.Headend, src: int, dst: int, ev: int) -> Bytes:
    data = np.full(16, 0xEE, np.uint8)
    assert write_carrier(data, 0, headend, src, dst, ev) >= 2
    return data


def walk(fabric: Fabric, tables: Tables, src: int, plane: int, data: Bytes) -> list[int]:
    """The directed ports that a packet takes from NIC `src`, by look-ups alone; the last element
    is negative where it is lost.
    """
    ports = [fabric.nic_port(src, plane)]
    while ports[-1] >= 0 and (switch := int(fabric.port_peer_switch[ports[-1]])) >= 0:
        ports.append(step(data, 0, tables, switch))
    return ports


def simulated(fabric: Fabric) -> tuple[Any, Any]:
    """The records that the simulated switch calculates with."""
    control = records(1, CONTROL)
    for name in ("up0", "up1"):
        control[f"{name}_shift"] = getattr(fabric, f"ev_{name}_shift")
        control[f"{name}_mask"] = (1 << getattr(fabric, f"ev_{name}_bits")) - 1
    return control, switches_of(fabric, seed=0)


@pytest.mark.parametrize(
    ("fabric", "n_carriers"),
    [
        # pairs x planes x paths: below one T0 one path, else as many as there are uplinks
        (TWO_TIERS, 4 * (16 * 3 + 16 * 12 * 4)),
        (UNEVEN, 3 * (30 + 80 * 3)),
        (THREE_TIERS, 32 + 120 * 3 + 840 * 6),
    ],
    ids=["two tiers", "uneven", "three tiers"],
)
@pytest.mark.parametrize("sids", ["uN", "uA"])
def test_every_carrier_takes_the_ports_that_the_ev_names(
    sids: str, fabric: Fabric, n_carriers: int
) -> None:
    """By the tables, by `Fabric.route` and by the arithmetic of the simulated switch."""
    fabric = replace(fabric, sids=sids)
    plan = UsidPlan(fabric)
    tables, headend = build_tables(plan), build_headend(plan)
    control, switches = simulated(fabric)
    walked = 0
    for src in range(fabric.n_nics):
        for dst in set(range(fabric.n_nics)) - {src}:
            for plane in range(fabric.n_planes):
                for index in range(fabric.n_paths(src, dst, plane)):
                    ev = fabric.ev_of_path(src, dst, plane, index)
                    data = spelled(headend, src, dst, ev)
                    ports = walk(fabric, tables, src, plane, data)
                    assert ports == fabric.route(src, dst, ev)
                    assert fabric.port_peer_nic[ports[-1]] == dst
                    # what arrives is the NIC's own uSID, and nothing behind it
                    assert int.from_bytes(data.tobytes()) == (BLOCK << 16 | plan.nic(dst)) << 80
                    assert ports[1:] == [
                        by_arithmetic(
                            control, switches, int(fabric.port_peer_switch[port]), dst, ev
                        )
                        for port in ports[:-1]
                    ]
                    walked += 1
    assert walked == n_carriers


@st.composite
def fabrics(draw: st.DrawFn) -> Fabric:
    def up_to(most: int) -> int:
        return draw(st.integers(1, most))

    nics = draw(st.integers(2, 300))
    if draw(st.booleans()):
        return multiplane(nics, up_to(9), GBPS, up_to(40), up_to(40), 0, 0)
    return fat_tree(nics, GBPS, up_to(9), up_to(9), 0, 0, tiers=3, t1_down=up_to(9), t1_up=up_to(9))


@REPEATABLE
@given(fabrics(), st.data())
def test_a_carrier_is_what_the_plan_says_for_any_ev_whatever(
    fabric: Fabric, data: st.DataObject
) -> None:
    plan = UsidPlan(fabric)
    headend = build_headend(plan)
    for _ in range(10):
        src, dst = (data.draw(st.integers(0, fabric.n_nics - 1)) for _ in range(2))
        ev = data.draw(st.integers(0, 2**32 - 1))
        room = np.full(40, 0xEE, np.uint8)
        n = write_carrier(room, 9, headend, src, dst, ev)
        carrier = plan.carrier(src, dst, ev)
        assert room.tobytes() == b"\xee" * 9 + carrier.to_bytes(16) + b"\xee" * 15
        assert carrier >> (96 - 16 * n) & 0xFFFF != 0
        assert carrier & (1 << 96 - 16 * n) - 1 == 0


@REPEATABLE
@given(fabrics())
def test_a_packed_table_says_what_the_table_says_and_nothing_else(fabric: Fabric) -> None:
    plan = UsidPlan(fabric)
    tables = build_tables(plan)
    for switch in range(0, fabric.n_switches, 1 + fabric.n_switches // 4):
        routes = {prefix & 0xFFFF: port for prefix, port in table(plan, switch).items()}
        assert routes.pop(int(tables.switch[switch].own)) == OWN
        size = 1 << int(tables.switch[switch].slot_bits)
        assert 2 * len(routes) <= size < 4 * len(routes)
        known = {
            usid: look_up(tables, switch, usid)
            for usid in {*routes, *(usid ^ bit for usid in routes for bit in (1, 0x8000)), 1}
        }
        assert {usid: port for usid, port in known.items() if port != NO_ROUTE} == routes


def test_a_carrier_is_not_written_where_there_is_no_nic_or_no_room() -> None:
    headend = build_headend(UsidPlan(UNEVEN))
    data = np.full(20, 0xEE, np.uint8)
    for at, src, dst in ((0, -1, 1), (0, 11, 1), (0, 1, -1), (0, 1, 11), (-1, 0, 1), (5, 0, 1)):
        assert write_carrier(data, at, headend, src, dst, 0) == -1
    assert set(data.tolist()) == {0xEE}
    assert write_carrier(data, 4, headend, 0, 10, 0) == 4


@REPEATABLE
@given(st.binary(min_size=24, max_size=24), st.integers(0, 8))
def test_a_shift_keeps_the_block_and_fills_with_zeros(before: bytes, at: int) -> None:
    data = np.frombuffer(before, np.uint8).copy()
    assert front(data, at) == int.from_bytes(before[at + 4 : at + 6])
    shift(data, at)
    shifted = before[at : at + 4] + before[at + 6 : at + 16] + bytes(2)
    assert data.tobytes() == before[:at] + shifted + before[at + 16 :]


def test_a_switch_takes_its_own_usid_and_leaves_the_next_in_front() -> None:
    plan = UsidPlan(TWO_TIERS)
    data = spelled(build_headend(plan), 0, 15, TWO_TIERS.ev(0, 2))
    assert text(data) == "2001:db8:4000:2002:4003:1003::"
    assert step(data, 0, TABLES, 0) == TWO_TIERS.sw_first_up[0] + 2
    assert text(data) == "2001:db8:2002:4003:1003::"


@pytest.mark.parametrize(
    ("arrives", "reason"),
    [
        ("2001:db9:4000:2002:4003:1003::", NOT_MINE),
        ("fd6d:7263::1", NOT_MINE),
        ("2001:db8::", END_OF_CARRIER),
        ("2001:db8:0:2002:4003:1003::", END_OF_CARRIER),
        ("2001:db8:4000::", END_OF_CARRIER),  # ends here
        ("2001:db8:4000:0:4003:1003::", END_OF_CARRIER),
        ("2001:db8:4000:4000:2002::", NO_ROUTE),  # its own twice
        ("2001:db8:4000:2012:4003:1003::", NO_ROUTE),  # a T1 of another plane
        ("2001:db8:4001:2002:4003:1003::", NO_ROUTE),  # another T0
        ("2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", NO_ROUTE),
    ],
)
def test_what_is_not_forwarded_says_why_and_stays_as_it_is(arrives: str, reason: int) -> None:
    data = address(arrives)
    assert step(data, 0, TABLES, 0) == reason
    assert text(data) == arrives


def test_a_neighbours_usid_in_front_is_only_looked_up() -> None:
    """As at the tier-1 switch on the way down from a third tier, which carriers do not name."""
    data = address("2001:db8:1002::")
    assert step(data, 0, TABLES, 0) == TWO_TIERS.sw_first_down[0] + 2
    assert text(data) == "2001:db8:1002::"


def test_a_carrier_on_the_wrong_plane_is_lost_at_the_first_switch() -> None:
    plan = UsidPlan(TWO_TIERS)
    data = spelled(build_headend(plan), 0, 15, TWO_TIERS.ev(0, 2))
    assert walk(TWO_TIERS, TABLES, 0, 1, data)[1:] == [NO_ROUTE]


@REPEATABLE
@given(st.binary(min_size=12, max_size=12), st.integers(0, TWO_TIERS.n_switches - 1))
def test_no_carrier_goes_round_for_ever(usids: bytes, switch: int) -> None:
    """Every step either ends, or goes to a NIC, or takes a uSID, or goes down a tier."""
    data = np.frombuffer(BLOCK.to_bytes(4) + usids, np.uint8).copy()
    steps = 0
    while (port := step(data, 0, TABLES, switch)) >= 0:
        steps += 1
        switch = int(TWO_TIERS.port_peer_switch[port])
        if switch < 0:
            break
    assert steps <= 12


def frame(
    carrier: str, segment: str = "", segments_left: int = 1, hop_limit: int = 64
) -> npt.NDArray[np.uint8]:
    """Ethernet, outer IPv6, the SRH if there is a segment, and bytes that stand for the rest."""
    srh = b""
    if segment:
        srh = bytes([41, 2, 4, segments_left, 0, 0, 0, 0]) + IPv6Address(segment).packed
    rest = srh + b"the packet inside"
    ip = bytes.fromhex("60000000") + len(rest).to_bytes(2) + bytes([43 if srh else 41, hop_limit])
    addresses = IPv6Address("fd6d:7263::1").packed + IPv6Address(carrier).packed
    ethernet = bytes(12) + bytes.fromhex("86dd")
    return np.frombuffer(ethernet + ip + addresses + rest, np.uint8).copy()


def forwarded(data: Bytes, switch: int = 0) -> int:
    port: int = forward_frame(data, len(data), TABLES, switch)
    return port


def test_a_frame_is_forwarded_as_its_carrier_is_and_loses_a_hop() -> None:
    data = frame("2001:db8:4000:2002:4003:1003::")
    assert forwarded(data) == TWO_TIERS.sw_first_up[0] + 2
    assert data.tobytes() == frame("2001:db8:2002:4003:1003::", hop_limit=63).tobytes()


def test_a_segment_takes_the_place_of_a_carrier_that_ends_here() -> None:
    """The path of test_a_carrier_spells_its_path, in two halves: MRC 2.12, RFC 9800 4.1.1."""
    data = frame("2001:db8:4000::", "2001:db8:2002:4003:1003::")
    port = forwarded(data)
    assert port == TWO_TIERS.sw_first_up[0] + 2
    after = frame("2001:db8:2002:4003:1003::", "2001:db8:2002:4003:1003::", 0, hop_limit=63)
    assert data.tobytes() == after.tobytes()
    while (switch := int(TWO_TIERS.port_peer_switch[port])) >= 0:
        port = forwarded(data, switch)
    assert TWO_TIERS.port_peer_nic[port] == 15


def test_a_copy_of_the_carrier_for_debugging_changes_nothing() -> None:
    """An SRH with no segments left, MRC 2.12."""
    carrier = "2001:db8:4000:2002:4003:1003::"
    data = frame(carrier, carrier, segments_left=0)
    assert forwarded(data) == TWO_TIERS.sw_first_up[0] + 2
    after = frame("2001:db8:2002:4003:1003::", carrier, segments_left=0, hop_limit=63)
    assert data.tobytes() == after.tobytes()


@pytest.mark.parametrize(
    ("carrier", "segment", "segments_left", "reason"),
    [
        ("2001:db8:4000::", "", 0, END_OF_CARRIER),
        ("2001:db8:4000::", "2001:db8:2002:4003:1003::", 0, END_OF_CARRIER),
        ("2001:db8::", "2001:db8:2002:4003:1003::", 1, END_OF_CARRIER),  # not this switch's end
        ("2001:db8:4000:0:1::", "2001:db8:2002:4003:1003::", 1, END_OF_CARRIER),
        ("2001:db8:4000::", "2001:db8:2002:4003:1003::", 2, BAD_FRAME),
        ("2001:db8:4000::", "2001:db9:2002:4003:1003::", 1, NOT_MINE),
        ("2001:db8:4000::", "2001:db8::", 1, NO_ROUTE),
        ("2001:db8:4000::", "2001:db8:4000:2002::", 1, NO_ROUTE),  # begins where the other ended
    ],
)
def test_a_segment_that_leads_nowhere_says_why_and_changes_nothing(
    carrier: str, segment: str, segments_left: int, reason: int
) -> None:
    data = frame(carrier, segment, segments_left)
    assert forwarded(data) == reason
    assert data.tobytes() == frame(carrier, segment, segments_left).tobytes()


@pytest.mark.parametrize(
    ("at", "value", "reason"),
    [
        (srv6.ETHERTYPE_AT, 0x08, BAD_FRAME),
        (srv6.ETHERTYPE_AT + 1, 0, BAD_FRAME),
        (srv6.IP_AT, 0x40, BAD_FRAME),
        (srv6.HOP_LIMIT_AT, 1, HOP_LIMIT),
        (srv6.HOP_LIMIT_AT, 0, HOP_LIMIT),
        (srv6.NEXT_HEADER_AT, 41, END_OF_CARRIER),
        (srv6.SRH_UNITS_AT, 4, BAD_FRAME),
        (srv6.ROUTING_TYPE_AT, 2, BAD_FRAME),
        (srv6.LAST_ENTRY_AT, 1, BAD_FRAME),
    ],
)
def test_one_wrong_byte_stops_a_frame(at: int, value: int, reason: int) -> None:
    data = frame("2001:db8:4000::", "2001:db8:2002:4003:1003::")
    data[at] = value
    before = data.tobytes()
    assert forwarded(data) == reason
    assert data.tobytes() == before


def test_a_frame_cut_off_anywhere_is_refused_before_its_end_is_read() -> None:
    whole = frame("2001:db8:4000::", "2001:db8:2002:4003:1003::")
    for n in range(srv6.SRH_END):
        data = np.full(len(whole), 0xEE, np.uint8)  # what lies behind the end is not the frame's
        data[:n] = whole[:n]
        assert forward_frame(data, n, TABLES, 0) == BAD_FRAME
    assert forward_frame(whole[:60].copy(), 94, TABLES, 0) == BAD_FRAME


@REPEATABLE
@given(st.binary(max_size=110), st.integers(0, THREE_TIERS.n_switches - 1))
def test_any_bytes_get_a_port_of_the_switch_or_a_reason(noise: bytes, switch: int) -> None:
    data = np.frombuffer(noise, np.uint8).copy()
    port = forward_frame(data, len(data), THREE_TABLES, switch)
    if port < 0:
        assert BAD_FRAME <= port <= NOT_MINE
        assert data.tobytes() == noise
    else:
        assert THREE_TIERS.port_switch[port] == switch
