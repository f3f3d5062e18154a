"""The functions of the controller's half of MRC's C API, as methods.

Those that change anything, and those that show more than the device, need CAP_NET_ADMIN: EPERM
without. A call that blocks (`mrc_ctl_ep_batch_send_wait`) lets others pass while it waits.
"""

from __future__ import annotations

import ctypes
import errno
import math
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from openmrc.capi import layouts as mrc_layouts
from openmrc.capi.control import layouts, profiles
from openmrc.capi.control.formats import FIELDS_MAX, UNPOPULATED, Ev, Field
from openmrc.capi.control.layouts import EV_BYTES, NSCC_NAME, NUMBERS
from openmrc.capi.control.live import Live
from openmrc.capi.control.probing import BATCH_MAX, Prober
from openmrc.capi.control.profiles import (
    AUTO,
    DENIED,
    GOOD,
    UNKNOWN,
    CcProfile,
    EvProfile,
    FormatProfile,
    Profile,
    State,
)
from openmrc.capi.control.queues import EventQueue
from openmrc.capi.devices import GIDS, Nic, text
from openmrc.capi.layouts import Struct
from openmrc.capi.objects import IS_CQ, Channel, Cq, Library
from openmrc.capi.places import Block, Refused, at, put
from openmrc.live.endpoint.control import Paths, Question
from openmrc.verbs import AsyncEvent, QueuePair

CAP_NET_ADMIN = 12
QUEUE_MAX = 1 << 16  # EV events
NAME_MAX = 64  # bytes of an algorithm's name
QA_GATE_MAX = 31
ID_MASK = (1 << 64) - 1
MASK = (1 << 32) - 1
OPTIONS = sum(
    NUMBERS[f"MRC_CTL_OPT_CAP_{name}"]
    for name in (
        *("EV_PROFILE_MODIFY_ONLINE", "CC_PROFILE_MODIFY_ONLINE", "EV_EVENT"),
        *("EV_EVENT_PRECISE_DROP_CNT", "EP_OP_EV_PROBE"),
    )
)
F, E, C = (
    {name.removeprefix(prefix): value & MASK for name, value in layouts.ENUMS[enum].items()}
    for enum, prefix in (
        ("mrc_ctl_ev_fmt_profile_attr_mask", "MRC_CTL_EV_FMT_PROFILE_"),
        ("mrc_ctl_ev_profile_attr_mask", "MRC_CTL_EV_PROFILE_"),
        ("mrc_ctl_cc_profile_attr_mask", "MRC_CTL_CC_PROFILE_"),
    )
)
VENDOR = 1 << 31
REPLACE, MODIFY_STATE, QUERY_STATE, QUERY_ARRAY = range(4)
MODIFY_FIELDS, QUERY_FIELDS = range(2)
PROBE, PORT_STATUS = range(2)
SETTABLE = {GOOD, profiles.ASSUMED_BAD, DENIED}
NEVER_NEGATIVE = ("eta", "fi", "fi_scale", "gamma", "max_md_jump")


def is_privileged() -> bool:
    """Whether this process has CAP_NET_ADMIN."""
    with open("/proc/thread-self/status", encoding="ascii") as lines:
        found = next(line for line in lines if line.startswith("CapEff:"))
    return bool(int(found.split()[1], 16) >> CAP_NET_ADMIN & 1)


def array_at(address: int, struct: Struct, n: int) -> Any:
    """`n` structures at an address, to read and write; EINVAL for NULL."""
    if not address:
        raise Refused(errno.EINVAL, f"{struct.name}: NULL")
    room = (ctypes.c_char * (n * struct.dtype.itemsize)).from_address(address)
    return np.frombuffer(memoryview(room), struct.dtype)


class Controller:
    """The functions, over the objects of `library`."""

    def __init__(self, library: Library, lock: threading.RLock) -> None:
        library.controller = self
        self._library, self._lock = library, lock
        self._algorithms = (ctypes.c_uint64 * 2)(text(NSCC_NAME), 0)
        self._configs: dict[int, Block] = {}  # that callers hold, by CC profile

    # --- who is asked

    def live(self, nic: Nic) -> Live:
        """The profiles of an open device."""
        if nic.control is None:
            nic.control = Live(nic.device, self._users)
            nic.prober = Prober(nic.host)
        live: Live = nic.control
        return live

    def _users(self, one: Profile) -> Iterator[QueuePair]:
        """The queue pairs that obey a profile."""
        name = "ev_profile_id" if isinstance(one, EvProfile) else "cc_profile_id"
        for qp in self._library.queue_pairs():
            if int(qp.mrc["profile"][name]) == one.number and qp.has_profiles:
                yield qp.pair

    def _privileged(self, context: int) -> tuple[Nic, Live]:
        nic = self._library.nic_of(context)
        if not is_privileged():
            raise Refused(errno.EPERM, "CAP_NET_ADMIN is needed")
        return nic, self.live(nic)

    def hear(self, nic: Nic, event: AsyncEvent) -> None:
        """A path of a queue pair was set aside, or is back."""
        number = self._library.profile_of(event.qp_num)
        live = self.live(nic)
        live.hear(event, None if number is None else live.profiles.ev.get(number))

    def check_profiles(self, nic: Nic, ev: int, cc: int) -> None:
        """EINVAL unless both profiles are ONLINE."""
        known = self.live(nic).profiles
        for kind, number, found in (("EV", ev, known.ev.get(ev)), ("CC", cc, known.cc.get(cc))):
            if found is None or found.state != State.ONLINE:
                raise Refused(errno.EINVAL, f"{kind} profile {number} is not ONLINE")

    def given(self, nic: Nic, ev: int, cc: int) -> tuple[Paths, int]:
        """What a new queue pair with these profiles begins with."""
        live = self.live(nic)
        return live.paths(live.profiles.ev[ev]), live.slot(live.profiles.cc[cc])

    def forget(self, nic: Nic, qp_num: int) -> None:
        """A queue pair is destroyed."""
        if nic.control is not None:
            nic.control.forget(qp_num)

    # --- device and ports

    def mrc_ctl_query_device_ex(
        self, context: int, mcontext: int, attr: int, supported: int
    ) -> int:
        """As `mrc_ctl_query_device`, for a context of MRC, or none."""
        if mcontext:
            self._library.nic_of(mcontext)
        self.mrc_ctl_query_device(context, attr)
        put(supported, "i4", 1)
        return 0

    def mrc_ctl_query_device(self, context: int, attr: int) -> int:
        """What a controller may configure."""
        live = self.live(self._library.nic_of_verbs(context))
        a, limits = at(attr, layouts.DEVICE_ATTR), live.profiles.limits
        a[...] = 0
        a["mrc_ctl_protocol_version"] = NUMBERS["MRC_CTL_PROTOCOL_VERSION_1"]
        for name, value in {
            "ev_max_fmt_profiles": profiles.PROFILES_MAX,
            "ev_max_profiles": profiles.PROFILES_MAX,
            "ev_max_count": profiles.EVS_MAX,
            "ev_free_count": live.profiles.evs_left,
            "ev_max_count_profile": limits.evs,
            "ev_count_align": limits.ports,
            "ev_max_width": live.wire_bits,
            "ev_fmt_mode_mask": limits.format_modes,
            "ev_mode_mask": limits.ev_modes,
            "ev_op_max_entries": profiles.OP_ENTRIES_MAX,
        }.items():
            a["ev"][name] = value
        a["cc"]["cc_max_profiles"] = profiles.CC_PROFILES_MAX
        a["cc"]["algorithms"] = ctypes.addressof(self._algorithms)
        a["phy_port_mask"] = ((1 << limits.ports) - 1) << 1
        a["opt_attr"] = OPTIONS
        return 0

    def mrc_ctl_query_version(
        self, current: int, oldest: int, vendor: int, vendor_oldest: int
    ) -> int:
        """Versions of this half of the API, and of a vendor's part, which is empty."""
        for place, value in (
            (current, layouts.API_VERSION),
            (oldest, layouts.API_OLDEST),
            (vendor, mrc_layouts.version(1, 0, 0)),
            (vendor_oldest, 0),
        ):
            if place:
                put(place, "u4", value)
        return 0

    def mrc_ctl_query_port(self, context: int, port: int, attr: int, mask: int) -> int:
        """Whether a port is enabled."""
        nic, plane, a = self._port(context, port, attr, mask)
        a["port_admin_state"] = int(nic.host.enabled[plane])
        return 0

    def mrc_ctl_modify_port(self, context: int, port: int, attr: int, mask: int) -> int:
        """Disable a port, or enable it again; peers are told."""
        nic, plane, a = self._port(context, port, attr, mask)
        if int(a["port_admin_state"]) not in (0, 1):
            raise Refused(errno.EINVAL, f"state {int(a['port_admin_state'])}: 0 or 1")
        nic.device.enable_port(plane, bool(a["port_admin_state"]))
        return 0

    def _port(self, context: int, port: int, attr: int, mask: int) -> tuple[Nic, int, Any]:
        nic, live = self._privileged(context)
        if not 1 <= port <= live.profiles.limits.ports:
            raise Refused(errno.EINVAL, f"port {port}: 1 to {live.profiles.limits.ports}")
        if mask & MASK != NUMBERS["MRC_CTL_PORT_ADMIN_STATE"]:
            raise Refused(errno.EINVAL, f"mask {mask & MASK:#x}")
        return nic, port - 1, at(attr, layouts.PORT_ATTR)

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
            n = _count(op["fmt_field_count"], FIELDS_MAX)
            rows = array_at(int(op["fmt_fields"]), layouts.FMT_FIELD, n)
            changes["widths"] = tuple(rows["width"].tolist())
        live.profiles.modify_format(one, to, changes)
        if mask & F["OP"] and int(op["op"]) != MODIFY_FIELDS:
            _show_widths(one, op)
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
            _show_widths(one, a["ev_fmt_op"])
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
        to, changes = self._target(one, a, mask), _ev_changes(a, mask)
        _check_ops(mask)
        if mask & E["EV_FIELDS_OP"]:
            op = a["ev_fields_op"]
            if int(op["op"]) == MODIFY_FIELDS:
                changes["fields"] = _fields(op)
            elif int(op["op"]) != QUERY_FIELDS:
                raise Refused(errno.EINVAL, f"operation {int(op['op'])}")
        if not mask & E["EV_OP"] or to != one.state or changes:
            live.profiles.modify_ev(one, to, changes)
            if one.state == State.ONLINE and changes.keys() - {"event_mask"}:
                live.follow(one)
        if mask & E["EV_OP"]:
            self._on_evs(live, one, a["ev_op"], queries=False)
        if mask & E["EV_FIELDS_OP"] and int(a["ev_fields_op"]["op"]) == QUERY_FIELDS:
            _show_fields(one, a["ev_fields_op"])
        return 0

    def mrc_ctl_query_ev_profile(self, context: int, number: int, attr: int, mask: int) -> int:
        """Read an EV profile."""
        live, mask = self._masked(context, mask, sum(E.values()))
        one: EvProfile = live.profiles.find(live.profiles.ev, EvProfile, number & ID_MASK)
        a = at(attr, layouts.EV_ATTR)
        _check_ops(mask)
        if mask & E["EV_OP"]:
            self._on_evs(live, one, a["ev_op"], queries=True)
        if mask & E["EV_FIELDS_OP"]:
            if int(a["ev_fields_op"]["op"]) != QUERY_FIELDS:
                raise Refused(errno.EINVAL, "a query modifies nothing")
            _show_fields(one, a["ev_fields_op"])
        self._show(one, a, mask)
        for name, bit, value in (
            ("ev_mode", "MODE", one.mode),
            ("ev_fmt_profile_id", "FMT_ID", one.format),
            ("ev_count", "COUNT", one.count or len(live.seen(one))),
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
            _show_evs(live, one, op)
            return
        if not REPLACE <= kind <= QUERY_STATE:
            raise Refused(errno.EINVAL, f"operation {kind}")
        n = _count(op["entry_count"], profiles.OP_ENTRIES_MAX)
        rows = array_at(int(op["entries"]), layouts.ENTRY, n)
        seen = live.seen(one) if kind == QUERY_STATE else {}
        try:
            for row in rows:
                old = _ev(row["ev"])
                if kind == QUERY_STATE:
                    row["state"] = _state_of(live, one, old, seen)
                    continue
                if int(row["flags"]) & ~1 or int(row["state"]) not in SETTABLE:
                    raise Refused(errno.EINVAL, f"state {int(row['state'])}")
                if kind == MODIFY_STATE:
                    live.profiles.has(one, old)
                    live.key(one, old)
                    live.declare(one, old, int(row["state"]))
                    continue
                new, every = _ev(row["ev_new"]), bool(int(row["flags"]) & 1)
                if one.mode != AUTO:
                    live.check(one, new)
                live.profiles.replace(one, old, new, int(row["state"]), every)
        finally:
            if kind == REPLACE and one.state == State.ONLINE:
                live.follow(one)

    # --- congestion control

    def mrc_ctl_modify_cc_profile(self, context: int, number: int, attr: int, mask: int) -> int:
        """Change a profile of congestion control, and lead it to a state."""
        live, mask = self._masked(context, mask, sum(C.values()))
        one: CcProfile = live.profiles.find(live.profiles.cc, CcProfile, number & ID_MASK)
        a = at(attr, layouts.CC_ATTR)
        to = self._target(one, a, mask)
        changes: profiles.Changes = {}
        if mask & C["ALGORITHM"]:
            changes["algorithm"] = _algorithm(int(a["algorithm"]))
        if mask & C["CONFIG"]:
            changes["config"] = _config(int(a["cc_config"]))
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

    # --- events

    def mrc_ctl_create_ev_event_cq(
        self, context: int, cqe: int, cq_context: int, channel: int, vector: int
    ) -> int:
        """Create a queue of EV events of the device, with room for `cqe`."""
        _, live = self._privileged(context)
        if not 1 <= cqe <= QUEUE_MAX or vector:
            raise Refused(errno.EINVAL, f"cqe {cqe}, vector {vector}")
        told: Channel | None = self._library.channel_for(context, channel) if channel else None
        queue = EventQueue(cqe)
        live.queues.append(queue)
        return self._library.keep_cq(IS_CQ, context, queue, cq_context, told)

    def drop_queue(self, nic: Nic, queue: EventQueue) -> None:
        """A queue of EV events is destroyed."""
        self.live(nic).queues.remove(queue)
        queue.close()

    def mrc_ctl_poll_ev_event(self, cq: int, n: int, events: int) -> int:
        """Take up to `n` events; return how many."""
        one: Cq = self._library.cq_of(cq)
        if not isinstance(one.queue, EventQueue) or n < 0:
            raise Refused(errno.EINVAL, f"{n} events of a queue of EV events")
        if not n:
            return 0
        if not events:
            raise Refused(errno.EINVAL, "NULL")
        with_state = self._library.version_of(one.context) >= layouts.WITH_STATE
        struct = layouts.EV_EVENT if with_state else layouts.EV_EVENT_BEFORE
        taken = one.queue.take(n)
        rows = array_at(events, struct, max(len(taken), 1))
        for row, event in zip(rows, taken, strict=False):
            row["profile_id"], row["drop_count"] = event.profile, event.dropped
            _write_ev(row["ev"], event.ev)
            if with_state:
                row["state"] = event.state
        return len(taken)

    # --- endpoint requests

    def mrc_ctl_ep_batch_send_wait(
        self,
        context: int,
        req_tc: int,
        op_type: int,
        req: int,
        num_req: int,
        timeout_ns: int,
        rsp: int,
        num_rsp: int,
    ) -> int:
        """Ask other NICs, and wait for their answers; ETIMEDOUT if some are missing, and those
        that came are returned.
        """
        with self._lock:
            nic, live = self._privileged(context)
            put(num_rsp, "i4", 0)
            if op_type not in (PROBE, PORT_STATUS) or num_req < 1:
                raise Refused(errno.EINVAL, f"operation {op_type}, {num_req} requests")
            if num_req > BATCH_MAX:
                raise Refused(errno.ENOMEM, f"{num_req} requests: {BATCH_MAX} are the most")
            if req_tc not in (0, nic.host.fabric.dscps.control):
                raise Refused(errno.ENOTSUP, f"DSCP {req_tc}: requests have that of control")
            rows = array_at(req, layouts.REQUEST, num_req).copy()
            answers = array_at(rsp, layouts.RESPONSE, num_req)
            if len(set(rows["req_id"].tolist())) < num_req:
                raise Refused(errno.EINVAL, "two requests have the same req_id")
            questions = [_question(nic, live, row, op_type) for row in rows]
            prober: Prober = nic.prober
        found = prober.ask(questions, timeout_ns & MASK)
        for answer, one in zip(answers, found, strict=False):
            answer["req_id"], answer["port"] = rows[one.which]["req_id"], one.port
            answer["rtt"], answer["adj_svc_time"] = min(one.rtt_ns, MASK), 0
        put(num_rsp, "i4", len(found))
        if len(found) < num_req:
            raise Refused(errno.ETIMEDOUT, f"{len(found)} of {num_req} were answered")
        return 0


def _question(nic: Nic, live: Live, row: Any, op_type: int) -> Question:
    """What one request asks; EINVAL if it is from another device, or to none."""
    if row["sgid"]["raw"].tobytes() not in nic.gids[:GIDS]:
        raise Refused(errno.EINVAL, "sgid: it is not this device's")
    if not int(row["ev_fmt_mode"]) & live.profiles.limits.format_modes:
        raise Refused(errno.ENOTSUP, f"EV format {int(row['ev_fmt_mode'])}")
    ev = _ev(row["req_ev"])
    if not 1 <= ev.port <= live.profiles.limits.ports:
        raise Refused(errno.EINVAL, f"port {ev.port}")
    own = live.profiles.ev[0]
    live.check(own, ev)
    value, plane = live.key(own, ev)
    there = nic.attributes_of(row["dgid"]["raw"].tobytes())
    to = nic.host.number_of(there["planes"]) if there["planes"] else there["nic"]
    if (not there["planes"] and to in (nic.host.nic,)) or not 0 <= to < nic.host.fabric.n_nics:
        raise Refused(errno.EINVAL, f"dgid: NIC {to}")
    up = int(row["op"]["port_status_update"]["port_status"]) >> 1
    return Question(to, plane, value, up if op_type == PORT_STATUS else None)


# --- C structures


def _count(value: Any, most: int) -> int:
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


def _show_widths(one: FormatProfile, op: Any) -> None:
    if int(op["op"]) != QUERY_FIELDS:
        raise Refused(errno.EINVAL, f"operation {int(op['op'])}")
    _room(op, "fmt_field_count", len(one.widths))
    if one.widths:
        rows = array_at(int(op["fmt_fields"]), layouts.FMT_FIELD, len(one.widths))
        rows["width"] = one.widths


def _ev_changes(a: Any, mask: int) -> profiles.Changes:
    wanted = (
        ("mode", "MODE", "ev_mode"),
        ("format", "FMT_ID", "ev_fmt_profile_id"),
        ("count", "COUNT", "ev_count"),
        ("min_active", "MIN_ACTIVE", "ev_min_active"),
        ("event_mask", "EVENT_MASK", "ev_event_mask"),
    )
    return {key: int(a[name]) for key, bit, name in wanted if mask & E[bit]}


def _check_ops(mask: int) -> None:
    if mask & E["EV_OP"] and mask & E["EV_FIELDS_OP"]:
        raise Refused(errno.EINVAL, "an operation on EVs and one on fields in one call")


def _fields(op: Any) -> tuple[Field, ...]:
    rows = array_at(int(op["fields"]), layouts.FIELD, _count(op["field_count"], FIELDS_MAX))
    return tuple(Field(*row.tolist()) for row in rows)


def _show_fields(one: EvProfile, op: Any) -> None:
    _room(op, "field_count", len(one.fields))
    if one.fields:
        rows = array_at(int(op["fields"]), layouts.FIELD, len(one.fields))
        for row, its in zip(rows, one.fields, strict=True):
            row["width"], row["init_val"], row["min_val"], row["max_val"], row["mask"] = its


def _show_evs(live: Live, one: EvProfile, op: Any) -> None:
    seen = live.seen(one)
    evs = one.evs if one.mode != AUTO else sorted(set(seen) | one.denied)
    _room(op, "entry_count", len(evs))
    if evs:
        rows = array_at(int(op["entries"]), layouts.ENTRY, len(evs))
        for row, ev in zip(rows, evs, strict=True):
            _write_ev(row["ev"], ev)
            row["state"] = UNKNOWN if ev == UNPOPULATED else _state_of(live, one, ev, seen)


def _state_of(live: Live, one: EvProfile, ev: Ev, seen: dict[Ev, int]) -> int:
    live.profiles.has(one, ev)
    if ev in one.denied:
        return DENIED
    if one.mode == AUTO and ev not in seen:
        raise Refused(errno.ENOENT, f"{one}: no queue pair has EV {ev.value.hex()}")
    return seen.get(ev, GOOD)


def _ev(row: Any) -> Ev:
    return Ev(row["val"].tobytes(), int(row["port"]))


def _write_ev(row: Any, ev: Ev) -> None:
    row["val"] = np.frombuffer(ev.value, np.uint8, EV_BYTES)
    row["port"] = ev.port


def _algorithm(address: int) -> str | None:
    if not address:
        return None
    named = b""
    while len(named) < NAME_MAX and (one := ctypes.string_at(address + len(named), 1)) != b"\0":
        named += one
    if named.decode("latin-1") != NSCC_NAME:
        raise Refused(errno.EINVAL, f"algorithm {named!r}: {NSCC_NAME} is there")
    return NSCC_NAME


def _config(address: int) -> dict[str, float]:
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
