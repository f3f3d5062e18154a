"""The calls that configure: profiles of EV formats, of EVs, and of congestion control."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from openmrc.capi.control import layouts, profiles, states
from openmrc.capi.control.formats import FIELDS_MAX
from openmrc.capi.control.layouts import ASSUMED_BAD, DENIED, GOOD, NSCC_NAME
from openmrc.capi.control.live import Live
from openmrc.capi.control.probing import Prober
from openmrc.capi.control.profiles import (
    AUTO,
    CcProfile,
    EvProfile,
    FormatProfile,
    Profile,
    State,
)
from openmrc.capi.control.states import CAP_NET_ADMIN
from openmrc.capi.control.structures import (
    MASK,
    MODIFY_FIELDS,
    QUERY_FIELDS,
    C,
    E,
    F,
    algorithm_of,
    array_at,
    check_ops,
    config_of,
    count_of,
    ev_changes,
    ev_of,
    fields_of,
    show_evs,
    show_fields,
    show_widths,
)
from openmrc.capi.devices import Nic, text
from openmrc.capi.objects import Library
from openmrc.capi.places import Block, Refused, at
from openmrc.live import syscalls
from openmrc.verbs import QueuePair

ID_MASK = (1 << 64) - 1
VENDOR = 1 << 31
REPLACE, MODIFY_STATE, QUERY_STATE, QUERY_ARRAY = range(4)
SETTABLE = {GOOD, ASSUMED_BAD, DENIED}


def is_privileged() -> bool:
    """Whether the calling thread has CAP_NET_ADMIN."""
    return bool(syscalls.has_capability(CAP_NET_ADMIN, np.zeros(8, np.int32)))


class Configuring:
    """Those functions, over the objects of `library`."""

    def __init__(self, library: Library, lock: threading.RLock) -> None:
        self._library, self._lock = library, lock
        self._configs: dict[int, Block] = {}  # that callers hold, by CC profile

    # --- who is asked

    def live(self, nic: Nic) -> Live:
        """The profiles of an open device."""
        if nic.control is None:
            nic.control = Live(nic.device, self._users, nic.calls)
            nic.prober = Prober(nic.host)
        live: Live = nic.control
        return live

    def _users(self, one: Profile) -> Iterator[QueuePair]:
        """The queue pairs that obey a profile."""
        name = "ev_profile_id" if isinstance(one, EvProfile) else "cc_profile_id"
        for qp in self._library.queue_pairs():
            if qp.profiles.get(name) == one.number:
                yield qp.pair

    def _privileged(self, context: int) -> tuple[Nic, Live]:
        nic = self._library.nic_of(context)
        if not is_privileged():
            raise Refused(errno.EPERM, "CAP_NET_ADMIN is needed")
        return nic, self.live(nic)

    # --- what profiles have in common

    def _masked(self, context: int, mask: int, known: int) -> tuple[Live, int]:
        _, live = self._privileged(context)
        if not mask & MASK or mask & MASK & ~known:
            raise Refused(errno.EINVAL, f"mask {mask & MASK:#x}: {known:#x} is known")
        return live, mask & MASK

    def _target(self, one: Profile, a: Any, mask: int) -> State:
        """The state to which a call leads a profile."""
        if mask & VENDOR:
            raise Refused(errno.EINVAL, "there is no vendor's configuration")
        if mask & F["CUR_STATE"] and int(a["cur_profile_state"]) != one.state:
            raise Refused(errno.EINVAL, f"{one} is in {one.state.name}")
        if not mask & F["STATE"]:
            return one.state
        if int(a["profile_state"]) not in list(State):
            raise Refused(errno.EINVAL, f"state {int(a['profile_state'])}")
        return State(int(a["profile_state"]))

    def _show(self, one: Profile, a: Any, mask: int) -> None:
        if mask & F["STATE"]:
            a["profile_state"] = one.state
        if mask & F["CUR_STATE"]:
            a["cur_profile_state"] = one.state
        if mask & VENDOR:
            a["vendor_cfg"] = 0

    # --- formats

    def mrc_ctl_modify_ev_fmt_profile(self, context: int, number: int, attr: int, mask: int) -> int:
        """Change a format, and lead it to a state."""
        live, mask = self._masked(context, mask, sum(F.values()))
        one: FormatProfile = live.profiles.find(
            live.profiles.format, FormatProfile, number & ID_MASK
        )
        a = at(attr, layouts.FMT_ATTR)
        to, op = self._target(one, a, mask), a["ev_fmt_op"]
        changes: profiles.Changes = {}
        if mask & F["MODE"]:
            changes["mode"] = int(a["ev_fmt_mode"])
        if mask & F["OP"] and int(op["op"]) == MODIFY_FIELDS:
            n = count_of(op["fmt_field_count"], FIELDS_MAX)
            rows = array_at(int(op["fmt_fields"]), layouts.FMT_FIELD, n)
            changes["widths"] = tuple(rows["width"].tolist())
        live.profiles.modify_format(one, to, changes)
        if mask & F["OP"] and int(op["op"]) != MODIFY_FIELDS:
            show_widths(one, op)
        return 0

    def mrc_ctl_query_ev_fmt_profile(self, context: int, number: int, attr: int, mask: int) -> int:
        """Read a format."""
        live, mask = self._masked(context, mask, sum(F.values()))
        one: FormatProfile = live.profiles.find(
            live.profiles.format, FormatProfile, number & ID_MASK
        )
        a = at(attr, layouts.FMT_ATTR)
        if mask & F["OP"]:
            if int(a["ev_fmt_op"]["op"]) == MODIFY_FIELDS:
                raise Refused(errno.EINVAL, "a query modifies nothing")
            show_widths(one, a["ev_fmt_op"])
        self._show(one, a, mask)
        if mask & F["MODE"]:
            a["ev_fmt_mode"] = one.mode
        return 0

    # --- EVs

    def mrc_ctl_modify_ev_profile(self, context: int, number: int, attr: int, mask: int) -> int:
        """Change an EV profile and its EVs, and lead it to a state."""
        live, mask = self._masked(context, mask, sum(E.values()))
        one: EvProfile = live.profiles.find(live.profiles.ev, EvProfile, number & ID_MASK)
        a = at(attr, layouts.EV_ATTR)
        to, changes = self._target(one, a, mask), ev_changes(a, mask)
        check_ops(mask)
        if mask & E["EV_FIELDS_OP"]:
            op = a["ev_fields_op"]
            if int(op["op"]) == MODIFY_FIELDS:
                changes["fields"] = fields_of(op)
            elif int(op["op"]) != QUERY_FIELDS:
                raise Refused(errno.EINVAL, f"operation {int(op['op'])}")
        if not mask & E["EV_OP"] or to != one.state or changes:
            with live.profiles.changing(one):
                live.profiles.modify_ev(one, to, changes)
            if one.state == State.ONLINE and changes.keys() - {"event_mask"}:
                live.follow(one)
        if mask & E["EV_OP"]:
            self._on_evs(live, one, a["ev_op"], queries=False)
        if mask & E["EV_FIELDS_OP"] and int(a["ev_fields_op"]["op"]) == QUERY_FIELDS:
            show_fields(one, a["ev_fields_op"])
        return 0

    def mrc_ctl_query_ev_profile(self, context: int, number: int, attr: int, mask: int) -> int:
        """Read an EV profile."""
        live, mask = self._masked(context, mask, sum(E.values()))
        one: EvProfile = live.profiles.find(live.profiles.ev, EvProfile, number & ID_MASK)
        a = at(attr, layouts.EV_ATTR)
        check_ops(mask)
        if mask & E["EV_OP"]:
            self._on_evs(live, one, a["ev_op"], queries=True)
        if mask & E["EV_FIELDS_OP"]:
            if int(a["ev_fields_op"]["op"]) != QUERY_FIELDS:
                raise Refused(errno.EINVAL, "a query modifies nothing")
            show_fields(one, a["ev_fields_op"])
        self._show(one, a, mask)
        for name, bit, value in (
            ("ev_mode", "MODE", one.mode),
            ("ev_fmt_profile_id", "FMT_ID", one.format),
            ("ev_count", "COUNT", one.count or len(live.states(one))),
            ("ev_min_active", "MIN_ACTIVE", one.min_active),
            ("ev_event_mask", "EVENT_MASK", one.event_mask),
        ):
            if mask & E[bit]:
                a[name] = value
        return 0

    def _on_evs(self, live: Live, one: EvProfile, op: Any, queries: bool) -> None:
        """Do one operation for each entry; the first that fails ends it."""
        kind = int(op["op"])
        if one.state == State.INIT or (queries and kind in (REPLACE, MODIFY_STATE)):
            raise Refused(errno.EINVAL, f"{one}: operation {kind} in {one.state.name}")
        if kind == QUERY_ARRAY:
            show_evs(live, one, op)
            return
        if not REPLACE <= kind <= QUERY_STATE:
            raise Refused(errno.EINVAL, f"operation {kind}")
        n, at = count_of(op["entry_count"], states.ENTRIES_MAX), int(op["entries"])
        rows = array_at(at, layouts.ENTRY, n)
        if kind == QUERY_STATE:
            known = live.states(one)
            for row in rows:
                if (ev := ev_of(row["ev"])) not in known:
                    raise Refused(errno.ENOENT, f"{one}: no EV {ev.value.hex()} of port {ev.port}")
                row["state"] = known[ev]
        elif kind == MODIFY_STATE:
            for i, row in enumerate(rows):
                _check_wanted(row)
                live.declare(one, ev_of(row["ev"]), at + i * states.ENTRY_BYTES)
        else:
            self._replace(live, one, rows)

    def _replace(self, live: Live, one: EvProfile, rows: Any) -> None:
        bad = rows[:0].copy()
        try:
            with live.profiles.changing(one):
                for i, row in enumerate(rows):
                    _check_wanted(row)
                    new, every = ev_of(row["ev_new"]), bool(int(row["flags"]) & 1)
                    if one.mode != AUTO:
                        live.check(one, new)
                    live.profiles.replace(one, ev_of(row["ev"]), new, int(row["state"]), every)
                    bad = rows[: i + 1][rows["state"][: i + 1] == ASSUMED_BAD]
        finally:
            if one.state == State.ONLINE:
                live.follow(one)
                bad["ev"] = bad["ev_new"]
                for i in range(len(bad)):
                    live.declare(one, ev_of(bad[i]["ev"]), bad.ctypes.data + i * states.ENTRY_BYTES)

    # --- congestion control

    def mrc_ctl_modify_cc_profile(self, context: int, number: int, attr: int, mask: int) -> int:
        """Change a profile of congestion control, and lead it to a state."""
        live, mask = self._masked(context, mask, sum(C.values()))
        one: CcProfile = live.profiles.find(live.profiles.cc, CcProfile, number & ID_MASK)
        a = at(attr, layouts.CC_ATTR)
        to = self._target(one, a, mask)
        changes: profiles.Changes = {}
        if mask & C["ALGORITHM"]:
            changes["algorithm"] = algorithm_of(int(a["algorithm"]))
        if mask & C["CONFIG"]:
            changes["config"] = config_of(int(a["cc_config"]))
        live.profiles.modify_cc(one, to, changes)
        live.obey(one)
        return 0

    def mrc_ctl_query_cc_profile(self, context: int, number: int, attr: int, mask: int) -> int:
        """Read a profile of congestion control; what it points to is the library's, and changes
        with the next query of this profile.
        """
        live, mask = self._masked(context, mask, sum(C.values()))
        one: CcProfile = live.profiles.find(live.profiles.cc, CcProfile, number & ID_MASK)
        a = at(attr, layouts.CC_ATTR)
        self._show(one, a, mask)
        algorithm = NSCC_NAME if one.number == 0 else one.algorithm
        if mask & C["ALGORITHM"]:
            a["algorithm"] = text(algorithm) if algorithm else 0
        if mask & C["CONFIG"]:
            config = live.derived() if one.number == 0 else one.config
            kept = self._configs.setdefault(one.number, Block(layouts.NSCC_CFG))
            for name, value in config.items():
                kept.record[name] = value
            a["cc_config"] = kept.address if config else 0
        return 0


def _check_wanted(row: Any) -> None:
    """EINVAL for an entry that asks for no state, or has unknown flags."""
    if int(row["flags"]) & ~1 or int(row["state"]) not in SETTABLE:
        raise Refused(errno.EINVAL, f"state {int(row['state'])}, flags {int(row['flags'])}")
