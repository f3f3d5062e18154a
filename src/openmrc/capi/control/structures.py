"""The C structures of a controller's calls, read and written in place, and their masks."""

from __future__ import annotations

import ctypes
import errno
import math
from typing import Any

import numpy as np

from openmrc.capi.control import layouts, profiles
from openmrc.capi.control.formats import FIELDS_MAX, Ev, Field
from openmrc.capi.control.layouts import EV_BYTES, NSCC_NAME, UNKNOWN
from openmrc.capi.control.live import Live
from openmrc.capi.control.profiles import AUTO, EvProfile, FormatProfile
from openmrc.capi.layouts import Struct
from openmrc.capi.places import Refused, at

NAME_MAX = 64  # bytes of an algorithm's name
QA_GATE_MAX = 31
MASK = (1 << 32) - 1
F, E, C = (
    {name.removeprefix(prefix): value & MASK for name, value in layouts.ENUMS[enum].items()}
    for enum, prefix in (
        ("mrc_ctl_ev_fmt_profile_attr_mask", "MRC_CTL_EV_FMT_PROFILE_"),
        ("mrc_ctl_ev_profile_attr_mask", "MRC_CTL_EV_PROFILE_"),
        ("mrc_ctl_cc_profile_attr_mask", "MRC_CTL_CC_PROFILE_"),
    )
)
MODIFY_FIELDS, QUERY_FIELDS = range(2)
NEVER_NEGATIVE = ("eta", "fi", "fi_scale", "gamma", "max_md_jump")


def array_at(address: int, struct: Struct, n: int) -> Any:
    """`n` structures at an address, to read and write; EINVAL for NULL."""
    if not address:
        raise Refused(errno.EINVAL, f"{struct.name}: NULL")
    room = (ctypes.c_char * (n * struct.dtype.itemsize)).from_address(address)
    return np.frombuffer(memoryview(room), struct.dtype)


def count_of(value: Any, most: int) -> int:
    """A count of entries; EINVAL for none, E2BIG for more than `most`."""
    n = int(value)
    if n < 1:
        raise Refused(errno.EINVAL, f"{n} entries")
    if n > most:
        raise Refused(errno.E2BIG, f"{n} entries: {most} are the most")
    return n


def _room(op: Any, name: str, needed: int) -> None:
    """E2BIG, with the number that is needed, if a caller's array is too short."""
    n = int(op[name])
    op[name] = needed
    if n < needed:
        raise Refused(errno.E2BIG, f"room for {n} of {needed}")


def show_widths(one: FormatProfile, op: Any) -> None:
    """Write the widths of a format's fields where a query wants them."""
    if int(op["op"]) != QUERY_FIELDS:
        raise Refused(errno.EINVAL, f"operation {int(op['op'])}")
    _room(op, "fmt_field_count", len(one.widths))
    if one.widths:
        rows = array_at(int(op["fmt_fields"]), layouts.FMT_FIELD, len(one.widths))
        rows["width"] = one.widths


def ev_changes(a: Any, mask: int) -> profiles.Changes:
    """The attributes of an EV profile that a mask names."""
    wanted = (
        ("mode", "MODE", "ev_mode"),
        ("format", "FMT_ID", "ev_fmt_profile_id"),
        ("count", "COUNT", "ev_count"),
        ("min_active", "MIN_ACTIVE", "ev_min_active"),
        ("event_mask", "EVENT_MASK", "ev_event_mask"),
    )
    return {key: int(a[name]) for key, bit, name in wanted if mask & E[bit]}


def check_ops(mask: int) -> None:
    """EINVAL for both kinds of operations at once."""
    if mask & E["EV_OP"] and mask & E["EV_FIELDS_OP"]:
        raise Refused(errno.EINVAL, "an operation on EVs and one on fields in one call")


def fields_of(op: Any) -> tuple[Field, ...]:
    """The fields that a caller gives an EV profile."""
    rows = array_at(int(op["fields"]), layouts.FIELD, count_of(op["field_count"], FIELDS_MAX))
    return tuple(Field(*row.tolist()) for row in rows)


def show_fields(one: EvProfile, op: Any) -> None:
    """Write the fields of an EV profile where a query wants them."""
    _room(op, "field_count", len(one.fields))
    if one.fields:
        rows = array_at(int(op["fields"]), layouts.FIELD, len(one.fields))
        for row, its in zip(rows, one.fields, strict=True):
            row["width"], row["init_val"], row["min_val"], row["max_val"], row["mask"] = its


def show_evs(live: Live, one: EvProfile, op: Any) -> None:
    """Write the EVs of a profile, and their states, where a query wants them."""
    states = live.states(one)
    evs = one.evs if one.mode != AUTO else sorted(states)
    _room(op, "entry_count", len(evs))
    if evs:
        rows = array_at(int(op["entries"]), layouts.ENTRY, len(evs))
        for row, ev in zip(rows, evs, strict=True):
            write_ev(row["ev"], ev)
            row["state"] = states.get(ev, UNKNOWN)


def ev_of(row: Any) -> Ev:
    """An EV as callers write it."""
    return Ev(row["val"].tobytes(), int(row["port"]))


def write_ev(row: Any, ev: Ev) -> None:
    """Write an EV as callers read it."""
    row["val"] = np.frombuffer(ev.value, np.uint8, EV_BYTES)
    row["port"] = ev.port


def algorithm_of(address: int) -> str | None:
    """The name of an algorithm, or None for NULL; EINVAL for one that is not there."""
    if not address:
        return None
    named = b""
    while len(named) < NAME_MAX and (one := ctypes.string_at(address + len(named), 1)) != b"\0":
        named += one
    if named.decode("latin-1") != NSCC_NAME:
        raise Refused(errno.EINVAL, f"algorithm {named!r}: {NSCC_NAME} is there")
    return NSCC_NAME


def config_of(address: int) -> dict[str, float]:
    """The configuration of NSCC; EINVAL for values without a meaning."""
    row = at(address, layouts.NSCC_CFG)
    config = {name: row[name].item() for name in layouts.NSCC_CFG.dtype.names or ()}
    for name in NEVER_NEGATIVE:
        if not math.isfinite(config[name]) or config[name] < 0:
            raise Refused(errno.EINVAL, f"{name} {config[name]}")
    if config["max_md_jump"] > 1 or config["qa_gate"] > QA_GATE_MAX:
        raise Refused(errno.EINVAL, f"max_md_jump {config['max_md_jump']}, or qa_gate")
    for name in ("base_rtt", "max_cwnd", "target_delay"):
        if not config[name]:
            raise Refused(errno.EINVAL, f"{name} 0")
    return config
