"""Structures of callers: their arrays, and how much room these have."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest

from openmrc.capi.control import layouts as ctl_layouts
from openmrc.capi.control.structures import E, F
from openmrc.capi.linked import Api
from openmrc.capi.places import Block
from tests.capi.control.ctl import (
    FORM,
    GOOD,
    INIT,
    OFFLINE,
    ONLINE,
    QUERY_ARRAY,
    QUERY_STATE,
    REPLACE,
    STEV,
    Ctl,
    rows,
    take_ev,
)
from tests.capi.control.fixtures import TO, controlled
from tests.capi.handles import refused

MODIFY, QUERY = range(2)  # operations on fields
GUARD = 0xA7


@pytest.fixture
def ctl(api: Api, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ctl]:
    with controlled(api, monkeypatch) as found:
        yield found


def form(ctl: Ctl, number: int, *widths: int, mode: int = STEV) -> tuple[int, int]:
    listed = rows(ctl_layouts.FMT_FIELD, len(widths))
    listed["width"] = widths
    mask = F["STATE"] | F["MODE"] | F["OP"]
    given = {"profile_state": OFFLINE, "ev_fmt_mode": mode}
    return ctl.modify("ev_fmt", number, mask, (MODIFY, listed), **given)


def test_a_format_is_shown_as_it_was_given(ctl: Ctl) -> None:
    assert form(ctl, 3, 4, 12, 16) == (0, 0)
    room = rows(ctl_layouts.FMT_FIELD, 8)
    room["width"] = GUARD
    mask = F["STATE"] | F["CUR_STATE"] | F["MODE"] | F["OP"]
    shown = ctl.query("ev_fmt", 3, mask, (QUERY, room))
    assert room["width"].tolist() == [4, 12, 16, *[GUARD] * 5]
    assert int(shown["ev_fmt_op"]["fmt_field_count"]) == 3
    states = (int(shown["profile_state"]), int(shown["cur_profile_state"]))
    assert (*states, int(shown["ev_fmt_mode"])) == (OFFLINE, OFFLINE, STEV)
    # a call that modifies may query, too
    answer = ctl.modify("ev_fmt", 3, F["STATE"] | F["OP"], (QUERY, room), profile_state=ONLINE)
    assert answer == (0, 0)


def test_an_array_that_is_too_short_is_told_how_long_it_has_to_be(ctl: Ctl) -> None:
    assert form(ctl, 3, 4, 12, 16) == (0, 0)
    short = rows(ctl_layouts.FMT_FIELD, 2)
    answer, record = ctl._profile("query", "ev_fmt", 3, F["OP"], (QUERY, short), {})
    refused(answer, errno.E2BIG)
    assert (int(record["ev_fmt_op"]["fmt_field_count"]), short["width"].tolist()) == (3, [0, 0])
    ctl.form()
    evs = ctl.evs(TO)
    ctl.explicit(1, evs)
    entries = rows(ctl_layouts.ENTRY, len(evs))
    answer, record = ctl._profile("query", "ev", 1, E["EV_OP"], (QUERY_ARRAY, entries[:3]), {})
    refused(answer, errno.E2BIG)
    assert int(record["ev_op"]["entry_count"]) == len(evs)
    assert not entries["state"].any()
    shown = ctl.query("ev", 1, E["EV_OP"], (QUERY_ARRAY, entries))
    assert int(shown["ev_op"]["entry_count"]) == len(evs)
    assert [take_ev(row["ev"]) for row in entries] == evs  # in order
    assert entries["state"].tolist() == [GOOD] * len(evs)


@pytest.mark.parametrize(
    ("widths", "mode", "code"),
    [
        ((33,), STEV, errno.E2BIG),
        ((16, 16, 1), STEV, errno.E2BIG),
        ((1,) * 33, STEV, errno.E2BIG),  # more fields than there are
        ((0, 8), STEV, errno.EINVAL),
        ((8,), 2, errno.EINVAL),  # SRv6, which this device does not offer
        ((8,), 4, errno.EINVAL),  # UDP, in a fabric
        ((8,), 3, errno.EINVAL),  # two modes
    ],
)
def test_a_format_that_cannot_be_is_refused(
    ctl: Ctl, widths: tuple[int, ...], mode: int, code: int
) -> None:
    refused(form(ctl, 5, *widths, mode=mode), code)
    shown = ctl.query("ev_fmt", 5, F["STATE"] | F["MODE"])
    assert (int(shown["profile_state"]), int(shown["ev_fmt_mode"])) == (INIT, 0)


def test_operations_that_there_are_not_are_refused(ctl: Ctl) -> None:
    ctl.form()
    evs = ctl.evs(TO)
    ctl.explicit(1, evs)
    entries, widths = rows(ctl_layouts.ENTRY, 4), rows(ctl_layouts.FMT_FIELD, 4)
    for kind in (4, -1, 99):
        refused(ctl.modify("ev", 1, E["EV_OP"], (kind, entries)), errno.EINVAL)
        answer, _ = ctl._profile("query", "ev", 1, E["EV_OP"], (kind, entries), {})
        refused(answer, errno.EINVAL)
    for kind in (2, 7):
        answer, _ = ctl._profile("query", "ev_fmt", FORM, F["OP"], (kind, widths), {})
        refused(answer, errno.EINVAL)
    # a query modifies nothing
    for kind in (REPLACE, 1):
        answer, _ = ctl._profile("query", "ev", 1, E["EV_OP"], (kind, entries), {})
        refused(answer, errno.EINVAL)
    answer, _ = ctl._profile("query", "ev_fmt", FORM, F["OP"], (MODIFY, widths), {})
    refused(answer, errno.EINVAL)
    fields = (MODIFY, rows(ctl_layouts.FIELD, 1), "ev_fields_op")
    answer, _ = ctl._profile("query", "ev", 1, E["EV_FIELDS_OP"], fields, {})
    refused(answer, errno.EINVAL)
    # nor does a profile in INIT have EVs
    answer, _ = ctl._profile("query", "ev", 44, E["EV_OP"], (QUERY_STATE, entries), {})
    refused(answer, errno.EINVAL)


def test_null_is_refused_where_something_has_to_be(ctl: Ctl) -> None:
    ctl.form()
    ctl.explicit(1, ctl.evs(TO))
    attr = Block(ctl_layouts.EV_ATTR)
    for kind in (REPLACE, 1, QUERY_STATE, QUERY_ARRAY):
        attr.record["ev_op"]["op"], attr.record["ev_op"]["entry_count"] = kind, 8
        for verb in ("modify", "query"):
            name = f"mrc_ctl_{verb}_ev_profile"
            refused(ctl.api(name, ctl.mrc, 1, attr, E["EV_OP"]), errno.EINVAL)
    for what in ("ev_fmt", "ev", "cc"):
        for verb in ("modify", "query"):
            name = f"mrc_ctl_{verb}_{what}_profile"
            refused(ctl.api(name, ctl.mrc, 1, 0, 1), errno.EINVAL)
    refused(ctl.api("mrc_ctl_query_device", ctl.there.context, 0), errno.EINVAL)
    refused(ctl.api("mrc_ctl_query_port", ctl.mrc, 1, 0, 1), errno.EINVAL)


def test_a_state_that_is_not_the_current_one_stops_a_step(ctl: Ctl) -> None:
    """`cur_profile_state` is a condition: two controllers do not step on each other."""
    ctl.form()
    ctl.explicit(1, ctl.evs(TO))
    mask = E["STATE"] | E["CUR_STATE"]
    answer = ctl.modify("ev", 1, mask, profile_state=OFFLINE, cur_profile_state=OFFLINE)
    refused(answer, errno.EINVAL)
    assert int(ctl.query("ev", 1, E["STATE"])["profile_state"]) == ONLINE
    answer = ctl.modify("ev", 1, mask, profile_state=OFFLINE, cur_profile_state=ONLINE)
    assert answer == (0, 0)
    assert int(ctl.query("ev", 1, E["STATE"])["profile_state"]) == OFFLINE


def test_what_the_mask_does_not_name_is_left_alone(ctl: Ctl) -> None:
    ctl.form()
    evs = ctl.evs(TO)
    ctl.explicit(1, evs)
    attr = Block(ctl_layouts.EV_ATTR)
    attr.record["ev_min_active"] = attr.record["ev_count"] = GUARD
    refusal = ctl.api("mrc_ctl_query_ev_profile", ctl.mrc, 1, attr, E["MODE"] | E["FMT_ID"])
    assert refusal == (0, 0)
    assert (int(attr.record["ev_mode"]), int(attr.record["ev_fmt_profile_id"])) == (2, FORM)
    assert int(attr.record["ev_min_active"]) == int(attr.record["ev_count"]) == GUARD
    answer = ctl.modify("ev", 1, E["EVENT_MASK"], ev_event_mask=GOOD, ev_min_active=3)
    assert answer == (0, 0)
    shown = ctl.query("ev", 1, E["EVENT_MASK"] | E["MIN_ACTIVE"] | E["COUNT"])
    assert (int(shown["ev_event_mask"]), int(shown["ev_min_active"])) == (GOOD, 0)
    assert int(shown["ev_count"]) == len(evs)
