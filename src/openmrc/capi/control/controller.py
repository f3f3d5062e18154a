"""The functions of the controller's half of MRC's C API, as methods.

Those that change anything, and those that show more than the device, need CAP_NET_ADMIN: EPERM
without. A call that blocks (`mrc_ctl_ep_batch_send_wait`) lets others pass while it waits.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import threading
from typing import Any

from openmrc.capi import layouts as mrc_layouts
from openmrc.capi.control import layouts, profiles, states
from openmrc.capi.control.configuring import Configuring
from openmrc.capi.control.layouts import NSCC_NAME, NUMBERS
from openmrc.capi.control.live import Live
from openmrc.capi.control.probing import BATCH_MAX, Prober
from openmrc.capi.control.profiles import State
from openmrc.capi.control.queues import EventQueue
from openmrc.capi.control.structures import MASK, array_at, ev_of, write_ev
from openmrc.capi.devices import GIDS, Nic, text
from openmrc.capi.hot import PROFILES_MAX
from openmrc.capi.objects import IS_CQ, Channel, Cq, Library
from openmrc.capi.places import Refused, at, put
from openmrc.errors import OpenMrcError
from openmrc.live.endpoint.control import Paths, Question
from openmrc.verbs import AsyncEvent

QUEUE_MAX = 1 << 16  # EV events
OPTIONS = sum(
    NUMBERS[f"MRC_CTL_OPT_CAP_{name}"]
    for name in (
        *("EV_PROFILE_MODIFY_ONLINE", "CC_PROFILE_MODIFY_ONLINE", "EV_EVENT"),
        *("EV_EVENT_PRECISE_DROP_CNT", "EP_OP_EV_PROBE"),
    )
)
PROBE, PORT_STATUS = range(2)


class Controller(Configuring):
    """The functions, over the objects of `library`."""

    def __init__(self, library: Library, lock: threading.RLock) -> None:
        super().__init__(library, lock)
        library.controller = self
        self._algorithms = (ctypes.c_uint64 * 2)(text(NSCC_NAME), 0)

    # --- queue pairs

    def hear(self, nic: Nic, event: AsyncEvent) -> None:
        """A path of a queue pair was set aside, or is back."""
        number = self._library.profile_of(event.qp_num)
        live = self.live(nic)
        with contextlib.suppress(Refused, OpenMrcError):  # no room for its EV; the loop has ended
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
            with contextlib.suppress(OpenMrcError):  # the loop has ended
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
            "ev_max_fmt_profiles": PROFILES_MAX,
            "ev_max_profiles": PROFILES_MAX,
            "ev_max_count": profiles.EVS_MAX,
            "ev_free_count": live.profiles.evs_left,
            "ev_max_count_profile": limits.evs,
            "ev_count_align": limits.ports,
            "ev_max_width": live.profiles.wire_bits,
            "ev_fmt_mode_mask": limits.format_modes,
            "ev_mode_mask": limits.ev_modes,
            "ev_op_max_entries": states.ENTRIES_MAX,
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
            write_ev(row["ev"], event.ev)
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
    ev = ev_of(row["req_ev"])
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
