"""Profiles without a device: their steps, what each needs, and which EVs they have."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from openmrc.capi.control import formats, profiles
from openmrc.capi.control.formats import UNPOPULATED, Ev, Field
from openmrc.capi.control.layouts import ASSUMED_BAD, DENIED, GOOD
from openmrc.capi.control.profiles import (
    AUTO,
    EXPLICIT,
    GENERATED,
    STEV,
    CcProfile,
    EvProfile,
    FormatProfile,
    Profiles,
    State,
)
from openmrc.capi.places import Refused

INIT, OFFLINE, ONLINE = State
LIMITS = profiles.Limits(ports=2, evs=16, format_modes=STEV, ev_modes=AUTO | EXPLICIT | GENERATED)
BOTH = GOOD | ASSUMED_BAD


@contextmanager
def refused(code: int) -> Iterator[None]:
    with pytest.raises(Refused) as found:
        yield
    assert errno.errorcode[found.value.code] == errno.errorcode[code], found.value


def ev(number: int, port: int) -> Ev:
    return formats.packed(number, 32, port)


class Device:
    """Profiles of a device, and how many queue pairs use each."""

    def __init__(self) -> None:
        self.users: dict[str, int] = {}
        self.all = Profiles(LIMITS, lambda one: self.users.get(str(one), 0))

    def form(self, number: int = 13, widths: tuple[int, ...] = (16, 16)) -> FormatProfile:
        one: FormatProfile = self.all.find(self.all.format, FormatProfile, number)
        self.all.modify_format(one, OFFLINE, {"mode": STEV, "widths": widths})
        self.all.modify_format(one, ONLINE, {})
        return one

    def explicit(self, number: int = 1, count: int = 4) -> EvProfile:
        """A profile in OFFLINE, none of whose EVs is populated."""
        one: EvProfile = self.all.find(self.all.ev, EvProfile, number)
        given = {"mode": EXPLICIT, "format": 13, "count": count}
        self.all.modify_ev(one, OFFLINE, {**given, "min_active": 2, "event_mask": BOTH})
        return one

    def populated(self, number: int = 1, count: int = 4) -> EvProfile:
        one = self.explicit(number, count)
        for i in range(count):
            self.all.replace(one, UNPOPULATED, ev(100 + i, i % 2 + 1), GOOD, every=False)
        self.all.modify_ev(one, ONLINE, {})
        return one


@pytest.fixture
def device() -> Device:
    return Device()


def test_each_kind_goes_one_step_at_a_time(device: Device) -> None:
    device.form()
    made: list[tuple[Any, Callable[..., None], dict[str, Any]]] = [
        (FormatProfile(20), device.all.modify_format, {"mode": STEV, "widths": (32,)}),
        (
            EvProfile(20),
            device.all.modify_ev,
            {"mode": AUTO, "min_active": 0, "event_mask": 0},
        ),
        (CcProfile(20), device.all.modify_cc, {"algorithm": None}),
    ]
    for one, modify, needed in made:
        with refused(errno.EINVAL):  # no step over one
            modify(one, ONLINE, needed)
        with refused(errno.EINVAL):  # the first step needs more
            modify(one, OFFLINE, {})
        modify(one, OFFLINE, needed)
        modify(one, ONLINE, {})
        with refused(errno.EINVAL):
            modify(one, INIT, {})
        modify(one, OFFLINE, {})
        modify(one, INIT, {})
        assert one.state == INIT
    assert sorted(device.all.format) == [13]
    assert sorted(device.all.ev) == sorted(device.all.cc) == [0]


def test_a_format_in_use_stays(device: Device) -> None:
    form, one = device.form(), device.populated()
    with refused(errno.EBUSY):
        device.all.modify_format(form, OFFLINE, {})
    device.all.modify_ev(one, OFFLINE, {})
    device.all.modify_format(form, OFFLINE, {})
    with refused(errno.EINVAL):  # its format is gone
        device.all.modify_ev(one, ONLINE, {})


def test_a_format_that_is_too_wide_or_empty_is_refused(device: Device) -> None:
    one: FormatProfile = device.all.find(device.all.format, FormatProfile, 2)
    for widths, code in (((16, 17), errno.E2BIG), ((), errno.EINVAL), ((0, 8), errno.EINVAL)):
        with refused(code):
            device.all.modify_format(one, OFFLINE, {"mode": STEV, "widths": widths})
    with refused(errno.EINVAL):
        device.all.modify_format(one, OFFLINE, {"mode": profiles.SRV6})
    assert one.state == INIT
    assert device.all.format == {}


def test_explicit_evs_are_replaced_before_they_are_used(device: Device) -> None:
    device.form()
    one = device.explicit()
    assert one.evs == [UNPOPULATED] * 4
    with refused(errno.EINVAL):
        device.all.modify_ev(one, ONLINE, {})
    device.all.replace(one, UNPOPULATED, ev(7, 1), DENIED, every=False)
    assert one.evs == [ev(7, 1), *[UNPOPULATED] * 3]
    device.all.replace(one, UNPOPULATED, ev(8, 2), GOOD, every=True)
    device.all.modify_ev(one, ONLINE, {})
    assert one.evs == [ev(7, 1), *[ev(8, 2)] * 3]
    assert one.denied == {ev(7, 1)}
    with refused(errno.ENOENT):
        device.all.replace(one, ev(9, 1), ev(10, 1), GOOD, every=False)
    with refused(errno.EINVAL):  # no such port
        device.all.replace(one, ev(8, 2), ev(10, 3), GOOD, every=False)


def test_what_queue_pairs_use_keeps_its_state_and_its_ports(device: Device) -> None:
    device.form()
    one = device.populated()
    device.users[str(one)] = 1
    with refused(errno.EBUSY):
        device.all.modify_ev(one, OFFLINE, {})
    with refused(errno.EINVAL):
        device.all.replace(one, ev(100, 1), ev(50, 2), GOOD, every=False)
    device.all.replace(one, ev(100, 1), ev(50, 1), GOOD, every=False)
    device.all.modify_ev(one, ONLINE, {"event_mask": 0})  # the capability MODIFY_ONLINE
    with refused(errno.EINVAL):
        device.all.modify_ev(one, ONLINE, {"count": 2})
    assert (one.evs[0], one.event_mask, one.count) == (ev(50, 1), 0, 4)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"count": 18}, errno.E2BIG),
        ({"count": 3}, errno.EINVAL),  # no multiple of the ports
        ({"count": 0}, errno.EINVAL),
        ({"min_active": 5}, errno.EINVAL),
        ({"event_mask": DENIED}, errno.EINVAL),
        ({"format": 99}, errno.EINVAL),
        ({"mode": 8}, errno.EINVAL),
        ({"fields": (Field(16, 0, 0, 0, 0),) * 3}, errno.E2BIG),
        ({"fields": (Field(16, 1 << 16, 0, 0, 0),)}, errno.EINVAL),
        ({"fields": (Field(16, 0, 0, 4, 3),)}, errno.EINVAL),
    ],
)
def test_what_fits_nobody_changes_nothing(
    device: Device, changes: dict[str, Any], code: int
) -> None:
    device.form()
    one: EvProfile = device.all.find(device.all.ev, EvProfile, 1)
    given = {"mode": EXPLICIT, "format": 13, "count": 4, "min_active": 2, "event_mask": BOTH}
    with refused(code):
        device.all.modify_ev(one, OFFLINE, {**given, **changes})
    assert (one.state, one.evs, sorted(device.all.ev)) == (INIT, [], [0])


def test_evs_of_all_profiles_are_counted(device: Device) -> None:
    device.form()
    before = device.all.evs_left
    one = device.explicit(count=6)
    assert device.all.evs_left == before - 6
    device.all.modify_ev(one, INIT, {})
    assert device.all.evs_left == before


def test_generated_evs_are_different_within_bounds_and_equally_many_a_port(device: Device) -> None:
    device.form(widths=(8, 4, 4))
    one: EvProfile = device.all.find(device.all.ev, EvProfile, 5)
    fields = (Field(8, 0x10, 0, 1, 1), Field(4, 0, 3, 12, 0xF), Field(4, 2, 0, 0, 0))
    given = {"mode": GENERATED, "format": 13, "count": 8, "fields": fields}
    device.all.modify_ev(one, OFFLINE, {**given, "min_active": 0, "event_mask": 0})
    device.all.modify_ev(one, ONLINE, {})
    assert len(set(one.evs)) == 8
    assert profiles.counts(one.evs, 2) == [4, 4]
    for each in one.evs:
        wire = device.all.wire(one, each)
        assert wire >> 24 == 0x10 | (each.port - 1)  # the first field names the port
        assert 3 <= wire >> 20 & 0xF <= 12
        assert wire & 0xFFFFF == 2 << 16  # fixed; zeros follow the last field
    again: EvProfile = device.all.find(device.all.ev, EvProfile, 6)
    device.all.modify_ev(again, OFFLINE, {**given, "count": 2, "min_active": 0, "event_mask": 0})
    with refused(errno.EINVAL):  # there are no more
        device.all.modify_ev(again, OFFLINE, {"count": 16, "fields": fields[2:]})


def test_fields_take_the_bits_of_an_ev_under_their_masks() -> None:
    """OCP's example with a mask of two parts: the highest bit of the mask takes the next bit."""
    fields = (Field(16, 0x1000, 0, 0xFF, 0x0F0F), Field(16, 0x2000, 0, 0xFF, 0x0F0F))
    one = formats.packed(0x12_34, 16, 1)
    assert formats.expanded(one, (16, 16), fields, 32) == 0x1102_2304
    with refused(errno.EINVAL):  # bits that no field takes
        formats.expanded(formats.packed(0x12_34_01, 24, 1), (16, 16), fields, 32)


def test_profile_0_stays(device: Device) -> None:
    own: EvProfile = device.all.ev[0]
    with refused(errno.EINVAL):
        device.all.modify_ev(own, OFFLINE, {})
    with refused(errno.EINVAL):
        device.all.modify_cc(device.all.cc[0], OFFLINE, {})
    device.all.modify_ev(own, ONLINE, {"event_mask": BOTH})
    assert (own.state, own.event_mask) == (ONLINE, BOTH)


def test_an_algorithm_needs_its_configuration_and_none_needs_nothing(device: Device) -> None:
    one: CcProfile = device.all.find(device.all.cc, CcProfile, 3)
    device.all.modify_cc(one, OFFLINE, {"algorithm": "uet-1.0-nscc"})
    with refused(errno.EINVAL):
        device.all.modify_cc(one, ONLINE, {})
    device.all.modify_cc(one, ONLINE, {"config": {"eta": 1.0}})
    device.users[str(one)] = 1
    with refused(errno.EBUSY):
        device.all.modify_cc(one, OFFLINE, {})
    with refused(errno.EINVAL):
        device.all.modify_cc(one, ONLINE, {"algorithm": None})
    device.all.modify_cc(one, ONLINE, {"config": {"eta": 2.0}})
    assert one.config == {"eta": 2.0}


def test_random_paths_are_remembered_while_something_is_said_of_them(device: Device) -> None:
    own, most = device.all.ev[0], profiles.EVS_MAX
    for number in (1, 2, 3):
        device.all.know(own, ev(number, 1))
    assert own.evs == [ev(3, 1)]  # of the others there was nothing to remember
    own.rows["state"] = DENIED
    device.all.know(own, ev(4, 2))
    device.all.know(own, ev(4, 2))
    assert (own.evs, own.denied) == ([ev(3, 1), ev(4, 2)], {ev(3, 1)})
    for port in (0, 3):
        with refused(errno.ENOENT):
            device.all.know(own, ev(5, port))
    own.rows = np.repeat(own.rows[:1], most)  # all of them DENIED
    with refused(errno.E2BIG):
        device.all.know(own, ev(5, 1))
    assert len(own.rows) == most


def test_compiled_code_finds_a_profile_but_while_it_changes(device: Device) -> None:
    device.form()
    one, table = device.populated(number=1 << 63 | 9), device.all.table

    def found() -> dict[int, int]:
        return {int(row.number): int(row.n) for row in table if row.rows}

    number = profiles.signed_id(one.number)
    assert (number < 0, found()) == (True, {})  # `changing` has not been used yet
    with device.all.changing(one):
        pass
    assert found() == {number: 4}
    with device.all.changing(one):
        assert found() == {}
    assert found() == {number: 4}
    other = device.populated(number=2, count=2)
    with device.all.changing(other):
        pass
    assert found() == {number: 4, 2: 2}
    with device.all.changing(one):
        for state in (OFFLINE, INIT):
            device.all.modify_ev(one, state, {})
    assert found() == {2: 2}
    third = device.populated(number=3)
    with device.all.changing(third):
        pass
    assert (third.place, found()) == (one.place, {2: 2, 3: 4})  # its place is free again
