"""EV profiles: published examples, draws, and denylists held against the routes themselves."""

from __future__ import annotations

from collections import Counter
from ipaddress import IPv6Address

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.errors import InputError
from openmrc.fabric import Fabric, denylist, fat_tree, multiplane
from openmrc.fabric.clos import Tier, build
from openmrc.fabric.places import switches
from openmrc.wire.profile import (
    WIDTH_MAX,
    Form,
    Format,
    FormatField,
    Masked,
    denied,
    deny,
    generate,
)

GBPS = 10**9
REPEATABLE = settings(derandomize=True, database=None, deadline=None)

TWO = multiplane(22, 3, GBPS, 4, 3, 0, 0)
THREE = fat_tree(30, GBPS, 2, 3, 0, 0, tiers=3, t1_down=3, t1_up=2)
# pairs of parallel links between T0s and T1s
BUNDLED = build("htsim", 6, 2, [Tier(2, 6, GBPS, 0, 0), Tier(0, 0, GBPS, 0, 0, bundle=2)])


def address(text: str) -> int:
    return int(IPv6Address(text))


# MRC 2.12: the example as published. `ps_mask` picks what fills the template's mask, and the low
# two bits of the EV are the NIC's port.
LOCAL = Masked(address("2001:db8:0:101::"), address("0:0:70::"), ps_mask=28, port_mask=3)
ACROSS = Masked(
    address("2001:db8::1:104:0:0"), address("0:0:70:7003:70::"), ps_mask=8188, port_mask=3
)


@pytest.mark.parametrize(
    ("template", "ev", "carrier", "port"),
    [
        (LOCAL, 4, "2001:db8:10:101::", 0),
        (LOCAL, 9, "2001:db8:20:101::", 1),
        (LOCAL, 14, "2001:db8:30:101::", 2),
        (LOCAL, 19, "2001:db8:40:101::", 3),
        (ACROSS, 1156, "2001:db8:10:1000:11:104::", 0),
        (ACROSS, 1188, "2001:db8:10:1001:11:104::", 0),
        (ACROSS, 1220, "2001:db8:10:1002:11:104::", 0),
        (ACROSS, 1252, "2001:db8:10:1003:11:104::", 0),
        (ACROSS, 2313, "2001:db8:20:2000:21:104::", 1),
        (ACROSS, 4723, "2001:db8:40:4003:41:104::", 3),
    ],
)
def test_the_published_templates_give_the_published_carriers(
    template: Masked, ev: int, carrier: str, port: int
) -> None:
    assert IPv6Address(template.address(ev)) == IPv6Address(carrier)
    assert template.port(ev) == port


# The published EVs, field by field: the plane once per uSID that it fills, one more than the port.
PUBLISHED = Form("structured", (3, 3, 2, 3, 2), (5, 5, 4, 5, 4))


def test_the_sixteen_evs_of_the_published_example_are_four_planes_with_four_t1s() -> None:
    evs = [
        PUBLISHED.pack(plane, plane, t1, plane, plane - 1)
        for plane in range(1, 5)
        for t1 in range(4)
    ]
    assert [evs[0], evs[1], evs[2], evs[3], evs[4], evs[-1]] == [1156, 1188, 1220, 1252, 2313, 4723]
    for ev in evs:
        plane, _, t1, _, port = PUBLISHED.unpack(ev)
        text = f"2001:db8:{plane}0:{plane}00{t1}:{plane}1:104::"
        assert ACROSS.address(ev) == address(text)
        assert ACROSS.port(ev) == port


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ps_mask": 12}, "2 bits of the EV for 3 bits of the template; the masks need equally"),
        ({"ps_mask": 7 << 30}, "template.ps_mask: 0x1c0000000 does not fit 32 bits"),
        ({"template": 1 << 128}, "template.template: .* does not fit 128 bits"),
        ({"template_mask": -1}, "template.template_mask: -0x1 does not fit 128 bits"),
        ({"port_mask": 1 << 32}, "template.port_mask: .* does not fit 32 bits"),
    ],
)
def test_masks_that_do_not_fit_each_other_are_refused(change: dict[str, int], message: str) -> None:
    right = {name: getattr(LOCAL, name) for name in LOCAL.__dataclass_fields__}
    with pytest.raises(InputError, match=message):
        Masked(**right | change)


def test_the_controllers_fields_say_the_same_as_the_template() -> None:
    """MRC 2.12: a locator of 32 bits and four fields of 16, 96 bits in all."""
    fields = Format(
        "srv6",
        (
            FormatField(32, 0x2001_0DB8, 0),
            FormatField(16, 0, 0x70),
            FormatField(16, 0, 0x7003),
            FormatField(16, 1, 0x70),
            FormatField(16, 0x104, 0),
        ),
    )
    assert (fields.bits, fields.ev_bits) == (96, 11)
    for ev in (1156, 1252, 2313, 4723):
        assert fields.addresses(ev >> 2) == (ACROSS.address(ev),)
    assert fields.expand(1156 >> 2) == ACROSS.address(1156) >> 32


def test_fields_beyond_one_address_fill_the_segment_of_an_srh() -> None:
    """MRC 2.12: 32 + 6 x 16 and 32 + 4 x 16 bits, 224 in all."""
    usid, block = FormatField(16, 0x4000, 0x000F), FormatField(32, 0x2001_0DB8, 0)
    fields = Format("srv6+srh", (block, *[usid] * 6, block, *[usid] * 4))
    assert (fields.bits, fields.ev_bits) == (224, 40)
    carrier, segment = fields.addresses(0x12_3456_789A)
    assert carrier == address("2001:db8:4001:4002:4003:4004:4005:4006")
    assert segment == address("2001:db8:4007:4008:4009:400a::")


@REPEATABLE
@given(
    st.lists(st.tuples(st.integers(1, 24), st.integers(0), st.integers(0)), max_size=10),
    st.integers(0),
)
def test_expansion_pulls_the_next_most_significant_bit_into_each_mask_bit(
    raw: list[tuple[int, int, int]], ev: int
) -> None:
    """Against the sentence of MRC 2.12, bit by bit on text."""
    fields = tuple(FormatField(n, init % (1 << n), mask % (1 << n)) for n, init, mask in raw)
    form = Format("srv6+srh", fields)
    ev %= 1 << form.ev_bits
    bits = iter(f"{ev:0{form.ev_bits}b}")
    text = "".join(
        next(bits) if taken == "1" else init
        for field in fields
        for init, taken in zip(
            f"{field.init_val:0{field.bits}b}", f"{field.mask:0{field.bits}b}", strict=True
        )
    )
    assert form.expand(ev) == int(text or "0", 2)


@pytest.mark.parametrize(
    ("mode", "fields", "message"),
    [
        (
            "structured",
            [(16, 0, 0)] * 3,
            'profile.widths: 48 bits; mode "structured" has room for 32',
        ),
        ("ecmp", [(12, 0, 0, 0, 0, 17)], 'profile.widths: 17 bits; mode "ecmp" has room for 16'),
        ("srv6", [(8, 0, 0, 0, 0, 7)], r"format.fields\[0\].wire_bits: 7 for a field of 8 bits"),
        ("srv6", [(8, 0, 3, 0, 4)], r"format.fields\[0\].max_val: 0x4 does not fit 2 bits"),
        ("srv6", [(8, 0, 3, 4)], r"format.fields\[0\].min_val: 0x4 does not fit 2 bits"),
        ("srv6", [(8, 0, 3, 3, 2)], r"format.fields\[0\].max_val: 2 is below min_val = 3"),
        ("srv6", [(16, 0, 0)] * 9, 'profile.widths: 144 bits; mode "srv6" has room for 128'),
        ("srv6+srh", [(16, 0, 0)] * 17, "272 bits; .* has room for 256"),
        ("srv6", [(16, 0, 0), (0, 0, 0)], r"format.fields\[1\]: 0 bits; 1 or more are accepted"),
        ("srv6", [(4, 16, 0)], r"format.fields\[0\].init_val: 0x10 does not fit 4 bits"),
        ("srv6", [(4, 0, 16)], r"format.fields\[0\].mask: 0x10 does not fit 4 bits"),
    ],
)
def test_a_format_that_does_not_fit_is_refused(
    mode: str, fields: list[tuple[int, ...]], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        Format(mode, tuple(FormatField(*field) for field in fields))


def test_only_srv6_has_addresses() -> None:
    with pytest.raises(InputError, match=r"format.mode: 'structured' has no address; \"srv6\" or"):
        Format("structured", (FormatField(16, 0, 0xFFFF),)).addresses(1)


def test_a_structured_format_puts_values_of_an_ev_into_wider_fields() -> None:
    """A T0 of 180 links and a T1 of 16; on the wire each in half of an EV, the T1s' under a number
    that is the same in all.
    """
    links = FormatField(8, 0, 0xFF, max_val=179, wire_bits=16)
    form = Format("structured", (links, FormatField(16, 0xAB00, 0x00F0)))
    assert (form.bits, form.ev_bits, form.choices) == (32, 12, (180, 16))
    assert form.pack(179, 5) == 0xB35
    assert form.expand(0xB35) == 0x00B3_AB50
    assert Format("ecmp", (FormatField(4, 0, 0xF, 2, 9, 16),)).expand(9) == 9


def test_generated_evs_keep_to_the_least_and_the_most_of_each_field() -> None:
    plane, link = FormatField(4, 0, 0b0011, 1, 3), FormatField(8, 0x80, 0b0101_0101, 5, 14)
    form = Format("structured", (plane, FormatField(4, 0xC, 0), link))
    found = generate(form, planes=3, count=30, seed=7)
    assert Counter(entry.plane for entry in found) == {0: 10, 1: 10, 2: 10}
    assert {(entry.ev >> 4, entry.ev & 0xF) for entry in found} == {
        (plane, link) for plane in range(1, 4) for link in range(5, 15)
    }
    assert all(entry.ev >> 4 == entry.plane + 1 for entry in found)
    wire = [form.expand(entry.ev) for entry in found]
    assert {value >> 8 & 0xF for value in wire} == {0xC}
    assert {value & 0b1010_1010 for value in wire} == {0x80}
    with pytest.raises(InputError, match="planes: 4 planes; 1 or more, at most 3, can be named"):
        generate(form, planes=4, count=4, seed=1)


def test_an_ev_wider_than_its_format_is_refused() -> None:
    with pytest.raises(InputError, match="EV: 0x10 does not fit 4 bits"):
        Format("srv6", (FormatField(16, 0, 0xF0),)).expand(16)


@pytest.mark.parametrize(
    ("widths", "values", "ev"),
    [
        ((10, 8, 4), (1, 2, 3), 1 << 12 | 2 << 4 | 3),  # MRC 2.11
        ((8, 4, 4), (179, 15, 9), 179 << 8 | 15 << 4 | 9),  # T0 with 180 links
    ],
)
def test_structured_fields_are_packed_most_significant_first(
    widths: tuple[int, ...], values: tuple[int, ...], ev: int
) -> None:
    form = Form("structured", widths, tuple(1 << width for width in widths))
    assert form.pack(*values) == ev
    assert form.unpack(ev) == values


@pytest.mark.parametrize("fabric", [TWO, THREE], ids=["two tiers", "three tiers"])
def test_the_form_of_a_fabric_is_that_of_its_evs(fabric: Fabric) -> None:
    form = Form.of(fabric)
    for plane in range(fabric.n_planes):
        for path in range(fabric.n_paths(0, fabric.n_nics - 1, plane)):
            ev = fabric.ev_of_path(0, fabric.n_nics - 1, plane, path)
            hops = tuple(fabric.hops(ev))[: fabric.n_tiers]
            assert form.unpack(ev) == hops
            assert form.pack(*hops) == ev
    assert np.prod(form.choices) == fabric.n_planes * (path + 1)


@pytest.mark.parametrize(
    ("mode", "widths", "choices", "message"),
    [
        ("random", (8,), (256,), 'profile.mode: \'random\' is not known; "ecmp", "structured"'),
        ("ecmp", (17,), (2,), 'profile.widths: 17 bits; mode "ecmp" has room for 16'),
        ("structured", (16, 17), (2, 2), "33 bits; .* has room for 32"),
        ("srv6", (32, 32, 32, 32, 1), (2,) * 5, "129 bits; .* has room for 128"),
        ("srv6+srh", (32,) * 9, (2,) * 9, "288 bits; .* has room for 256"),
        ("srv6", (33,), (2,), "one or more fields of 0 to 32 bits are accepted"),
        ("srv6", (), (), "one or more fields of 0 to 32 bits are accepted"),
        ("srv6", (-1,), (1,), "one or more fields of 0 to 32 bits are accepted"),
        ("structured", (4, 4), (16,), "profile.choices: 1 for 2 fields; name one each"),
        ("structured", (4,), (17,), "profile.choices: 17 do not fit 4 bits; 1 to 16 do"),
        ("structured", (4,), (0,), "profile.choices: 0 do not fit 4 bits; 1 to 16 do"),
    ],
)
def test_a_form_that_cannot_be_is_refused(
    mode: str, widths: tuple[int, ...], choices: tuple[int, ...], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        Form(mode, widths, choices)


def test_a_value_that_is_no_choice_is_refused() -> None:
    form = Form("structured", (4, 4), (10, 16))
    with pytest.raises(InputError, match="EV: 10 is no choice; 0 to 9 are"):
        form.pack(10, 0)
    with pytest.raises(InputError, match="EV: 3 values for 2 fields; name one each"):
        form.pack(1, 2, 3)


def test_every_mode_fills_its_whole_width_and_no_more() -> None:
    """The ceilings of MRC 2.12."""
    for mode, most in WIDTH_MAX.items():
        form = Form(mode, (16,) * (most // 16), (1 << 16,) * (most // 16))
        evs = [entry.ev for entry in generate(form, 1, 64, seed=1)]
        assert len(set(evs)) == 64
        drawn = 0
        for ev in evs:
            drawn |= ev
        assert drawn == (1 << (most if mode == "ecmp" else most - 16)) - 1  # all but the plane


@REPEATABLE
@given(st.integers(1, 8), st.integers(1, 20), st.integers(1, 9), st.data())
def test_a_generated_profile_has_equally_many_evs_per_plane_and_none_twice(
    planes: int, up0: int, up1: int, data: st.DataObject
) -> None:
    form = Form("structured", (3, 5, 4), (8, up0, up1))
    share = data.draw(st.integers(1, up0 * up1))
    seed = data.draw(st.integers(0, 2**64 - 1))
    entries = generate(form, planes, share * planes, seed)
    assert len({entry.ev for entry in entries}) == share * planes
    assert [entry.plane for entry in entries] == list(range(planes)) * share
    for ev, plane in entries:
        assert form.unpack(ev)[0] == plane
        assert form.pack(*form.unpack(ev)) == ev  # among the choices
    assert generate(form, planes, share * planes, seed) == entries


@pytest.mark.parametrize("count", [16, 40], ids=["few of many", "most of them"])
def test_every_path_is_drawn_as_often_as_any_other(count: int) -> None:
    """2000 profiles of one plane with 64 paths: each path within 5 standard deviations."""
    form = Form("structured", (0, 3, 3), (1, 8, 8))
    drawn = Counter(entry.ev for seed in range(2000) for entry in generate(form, 1, count, seed))
    share = count / 64
    deviation = (2000 * share * (1 - share)) ** 0.5
    assert len(drawn) == 64
    assert all(abs(n - 2000 * share) < 5 * deviation for n in drawn.values())


def test_hashed_evs_say_nothing_of_the_plane_and_are_dealt_in_turn() -> None:
    form = Form("ecmp", (16,), (65536,))
    entries = generate(form, 4, 65536, seed=3)
    assert {entry.ev for entry in entries} == set(range(65536))
    assert Counter(entry.plane for entry in entries) == dict.fromkeys(range(4), 16384)


@pytest.mark.parametrize(
    ("mode", "planes", "count", "message"),
    [
        ("structured", 5, 5, "profile.planes: 5 planes; 1 or more, at most 4, can be named"),
        ("structured", 0, 4, "profile.planes: 0 planes"),
        ("ecmp", 0, 4, "profile.planes: 0 planes; 1 or more, any number, can be named"),
        ("structured", 4, 6, "profile.count: 6 EVs for 4 planes; a multiple of 4, at most 65536"),
        ("structured", 4, 0, "profile.count: 0 EVs"),
        ("structured", 4, 65540, "profile.count: 65540 EVs"),
        ("structured", 4, 36, "profile.count: 9 EVs of a plane wanted, there are 8; ask for fewer"),
    ],
)
def test_a_profile_that_cannot_be_drawn_is_refused(
    mode: str, planes: int, count: int, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        generate(Form(mode, (2, 3), (4, 8)), planes, count, seed=1)


@pytest.mark.parametrize("fabric", [TWO, THREE, BUNDLED], ids=["two tiers", "three", "bundles"])
def test_a_denylist_denies_exactly_the_paths_through_the_switch(fabric: Fabric) -> None:
    places = [fabric.switch_name(switch) for switch in range(fabric.n_switches)]
    entries = [deny(fabric, place) for place in places]
    for src in range(0, fabric.n_nics, 2):
        for dst in set(range(fabric.n_nics)) - {src}:
            evs = [
                fabric.ev_of_path(src, dst, plane, path)
                for plane in range(fabric.n_planes)
                for path in range(fabric.n_paths(src, dst, plane))
            ]
            passed = np.zeros((fabric.n_switches, len(evs)), np.bool_)
            for number, ev in enumerate(evs):
                passed[fabric.port_switch[fabric.route(src, dst, ev)[1:]], number] = True
            assert passed.any(axis=0).all()
            for switch in range(fabric.n_switches):
                found = denied(fabric, entries[switch], src, dst, evs)
                assert (found == passed[switch]).all(), (places[switch], src, dst)


@pytest.mark.parametrize("where", ["plane 1", "plane 2 t0 1", "plane * t1 2"])
def test_entries_deny_what_the_fabrics_denylist_denies(where: str) -> None:
    """The one spells out bits for a NIC, the other follows each path through the ports."""
    ports = denylist.entrances(TWO, where).targets
    entries = deny(TWO, where)
    for src, dst in ((0, 21), (4, 5), (9, 6)):
        evs = [TWO.ev(plane, up0) for plane in range(3) for up0 in range(3)]
        one, other = denied(TWO, entries, src, dst, evs), denylist.denied(TWO, ports, src, dst, evs)
        assert one.tolist() == other.tolist()


def test_a_denied_plane_is_denied_to_everybody() -> None:
    evs = np.array([[TWO.ev(plane, up0) for up0 in range(3)] for plane in range(3)], np.uint32)
    found = denied(TWO, deny(TWO, "plane 1"), 0, 21, evs)
    assert found.tolist() == [[False] * 3, [True] * 3, [False] * 3]
    assert denied(TWO, deny(TWO, " plane  * "), 0, 1, evs).all()
    assert denied(
        THREE, deny(THREE, "plane 0"), 0, 1, [THREE.ev(0, 0), THREE.ev(0, 2, 1)]
    ).all()  # there is no other
    assert not denied(TWO, [], 0, 21, evs).any()


def test_entries_are_values_and_masks_over_the_bits_of_an_ev() -> None:
    """TWO has two bits each of plane and uplink; T0 2 serves NICs 8 to 11."""

    def at(bits: int) -> int:
        return bits << 16 | 0xC000  # the lower half is the same in every EV

    assert deny(TWO, "plane 1") == [(at(0b0100), at(0b1100), 0, 0, 22)]
    assert deny(TWO, "plane 1 t0 2") == [(at(0b0100), at(0b1100), 0, 8, 12)]
    assert deny(TWO, "plane 2 t1 1") == [(at(0b1001), at(0b1111), 1, 0, 22)]
    assert len(deny(TWO, "plane * t1 1")) == 3
    every = at(0b1111)
    assert deny(BUNDLED, "plane 0 t1 1") == [(at(2), every, 1, 0, 6), (at(3), every, 1, 0, 6)]


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("plane 9", "denylist 'plane 9': there is no plane 9; 0 to 2 exist"),
        ("plane 1 t1 7", "denylist 'plane 1 t1 7': there is no t1 7; 0 to 2 exist"),
        ("plane 1 t2 0", "there is no tier t2; t0 to t1 exist"),
        ("nic 3", "denylist 'nic 3': not a switch; \"plane 3 t0 5\" is accepted"),
    ],
)
def test_a_place_that_is_not_there_is_refused(where: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        deny(TWO, where)


def test_wildcards_deny_as_many_switches_as_faults_do() -> None:
    assert len(deny(THREE, "plane * t2 *")) == len(switches(THREE, "plane * t2 *")) == 6
