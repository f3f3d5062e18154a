"""MRC's own objects: contexts, completion queues and channels, hints, queue pairs, events.

A caller holds handles, numbers that are never an address: the kind, a count that never repeats, an
index. So a handle of a destroyed object, or of another kind, is detected (EINVAL) and not followed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import threading
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from openmrc.capi import hot, layouts
from openmrc.capi.control.profiles import signed_id
from openmrc.capi.control.queues import EventQueue
from openmrc.capi.devices import Nic, Verbs, mtu_bytes, mtu_word
from openmrc.capi.layouts import MPR_UNIT, NUMBERS
from openmrc.capi.places import Refused, at, put, refused_as
from openmrc.errors import OpenMrcError
from openmrc.verbs import AsyncEvent, CompletionQueue, EventKind, QpState, QueuePair

IS_CONTEXT, IS_CQ, IS_QP, IS_HINT, IS_CHANNEL = (ord(c) << 48 for c in "XCQHN")
HINTS_MAX = 1 << 16
COUNT_MASK = (1 << 32) - 1
EVENTS = {
    EventKind.QP_ERROR: NUMBERS["IBV_EVENT_QP_FATAL"],
    EventKind.PORT_DOWN: NUMBERS["IBV_EVENT_PORT_ERR"],
    EventKind.PORT_UP: NUMBERS["IBV_EVENT_PORT_ACTIVE"],
}
CAP_KNOWN = sum(layouts.MRC_ENUMS["mrc_qp_cap"].values())
V, M = ({name: NUMBERS[name] for name in layouts.VERBS_ENUMS["ibv_qp_attr_mask"]},
        {name: NUMBERS[name] for name in layouts.MRC_ENUMS["mrc_qp_attr_mask"]})  # fmt: skip
V_KNOWN = sum(V.values())
NEEDED = {  # attributes needed, in addition to the state, for a transition to it
    QpState.INIT: 0,
    QpState.RTR: V["IBV_QP_AV"] | V["IBV_QP_DEST_QPN"] | V["IBV_QP_RQ_PSN"],
    QpState.RTS: V["IBV_QP_SQ_PSN"],
    QpState.ERROR: 0,
}
MRC_AT = {  # the step at which each attribute is used (MRC 1.7)
    QpState.INIT: M["MRC_QP_HINT"] | M["MRC_QP_EV_PROFILE_ID"] | M["MRC_QP_CC_PROFILE_ID"],
    QpState.RTR: M["MRC_QP_MAX_WIMM_DEST"] | M["MRC_QP_MPR_DEST"] | M["MRC_QP_CAP"],
    QpState.RTS: M["MRC_QP_MAX_WIMM"]
    | M["MRC_QP_MPR"]
    | M["MRC_QP_RETRY_CNT"]
    | M["MRC_QP_TIMEOUT"],
    QpState.ERROR: 0,
}


@dataclass
class Channel:
    """Reports completions in any of its queues: an epoll descriptor."""

    handle: int
    context: int
    epoll: select.epoll
    cqs: dict[int, Cq] = field(default_factory=dict)  # by descriptor


@dataclass
class Cq:
    """A completion queue."""

    handle: int
    context: int
    queue: CompletionQueue | EventQueue
    cq_context: int
    channel: Channel | None
    got: int = 0  # events that were taken
    acknowledged: int = 0


@dataclass
class Hint:
    """An application's expectation of its traffic; the engine does not use it, so it is only
    stored.
    """

    handle: int
    context: int
    record: Any


@dataclass
class Qp:
    """A queue pair, and the attributes that its caller has set."""

    handle: int
    context: int
    pair: QueuePair
    init: Any  # mrc_qp_init_attr
    said: Any  # ibv_qp_attr
    mrc: Any  # mrc_qp_attr
    step: QpState = QpState.RESET  # the state that its caller has set
    profiles: dict[str, int] = field(default_factory=dict)  # by the names of both, from INIT on

    @property
    def state(self) -> QpState:
        """The actual state: a queue pair may fail by itself. Internally it is connected from RTR
        on, because peers may write to it then; only its caller's requests wait for RTS.
        """
        return QpState.ERROR if self.pair.state == QpState.ERROR else self.step


class Library:
    """All open objects; the functions of MRC's API are its methods."""

    controller: Any  # set by it

    def __init__(self, verbs: Verbs, lock: threading.RLock) -> None:
        verbs.above = self
        self._verbs, self._lock = verbs, lock
        self._count = 0
        self._contexts: dict[int, int] = {}  # with ibverbs' context
        self._versions: dict[int, int] = {}  # of the API, by context
        self._cqs: dict[int, Cq] = {}
        self._qps: dict[int, Qp] = {}
        self._hints: dict[int, Hint] = {}
        self._channels: dict[int, Channel] = {}
        self._acknowledged = threading.Condition(lock)

    @property
    def calls(self) -> hot.Calls:
        """The state of compiled calls; a device is open."""
        assert self._verbs.nic is not None
        return self._verbs.nic.calls

    def _handle(self, kind: int, index: int = 0) -> int:
        self._count += 1
        return kind | (self._count & COUNT_MASK) << 16 | index

    def _nic(self, context: int) -> Nic:
        if context not in self._contexts:
            raise Refused(errno.EINVAL, "no MRC context")
        return self._verbs.context_nic(self._contexts[context])

    def _check_same(self, context: int, other: int) -> None:
        """EINVAL unless objects of these MRC contexts may be used together."""
        if self._contexts[context] != self._contexts[other]:
            raise Refused(errno.EINVAL, "it belongs to another context of ibverbs")

    # --- what controllers ask

    def nic_of(self, context: int) -> Nic:
        """The device of a context of MRC; EINVAL if it is none."""
        return self._nic(context)

    def nic_of_verbs(self, context: int) -> Nic:
        """The device of a context of ibverbs; EINVAL if it is none."""
        return self._verbs.context_nic(context)

    def version_of(self, context: int) -> int:
        """The version of the API that a context was created for."""
        return self._versions[context]

    def queue_pairs(self) -> list[Qp]:
        """All queue pairs."""
        return list(self._qps.values())

    def profile_of(self, qp_num: int) -> int | None:
        """The EV profile of the queue pair with this number."""
        for qp in self._qps.values():
            if qp.pair.qp_num == qp_num:
                return qp.profiles.get("ev_profile_id")
        return None

    def hear(self, nic: Nic, event: AsyncEvent) -> None:
        """A path of a queue pair was set aside, or is back."""
        self.controller.hear(nic, event)

    def cq_of(self, cq: int) -> Cq:
        """A queue of completions or of EV events; EINVAL if it is none."""
        return self._cq(cq)

    def channel_for(self, context: int, channel: int) -> Channel:
        """The channel of a new queue of a context."""
        told = self._channel(channel)
        self._check_same(context, told.context)
        return told

    def keep_cq(
        self, kind: int, context: int, queue: Any, cq_context: int, told: Channel | None
    ) -> int:
        """Give a new queue its handle, and its channel."""
        one = Cq(self._handle(kind, queue.index & hot.INDEX_MASK), context, queue, cq_context, told)
        if told is not None:
            told.epoll.register(queue.fileno(), 0)
            told.cqs[queue.fileno()] = one
        self._cqs[one.handle] = one
        return one.handle

    # --- what ibverbs asks before it lets go of an object

    def has_pd(self, pd: int) -> bool:
        """Whether a queue pair belongs to a protection domain."""
        return any(int(qp.init["pd"]) == pd for qp in self._qps.values())

    def withdraw(self, lkey: int) -> bool:
        """Let nothing send from a region any more; False if a request still does."""
        nic = self._verbs.nic
        return nic is None or not hot.withdraw(nic.host.st, nic.calls, lkey)

    def leave(self, context: int) -> None:
        """Destroy all objects of a context of ibverbs, as closing the device of a NIC does."""
        own = {handle for handle, of in self._contexts.items() if of == context}
        for qp in [one for one in self._qps.values() if one.context in own]:
            with contextlib.suppress(OpenMrcError):  # the loop has failed: all are flushed
                self.mrc_destroy_qp(qp.handle)
        for cq in [one for one in self._cqs.values() if one.context in own]:
            with contextlib.suppress(OpenMrcError):
                self._drop_cq(cq)
        self._acknowledged.notify_all()  # whoever waits to destroy one finds it gone
        for channel in [one for one in self._channels.values() if one.context in own]:
            self.mrc_destroy_comp_channel(channel.handle)
        for hint in [one for one in self._hints.values() if one.context in own]:
            del self._hints[hint.handle]
        for handle in own:
            self._drop_context(handle)

    # --- device and context

    def mrc_query_device_ex(self, context: int, mcontext: int, attr: int, supported: int) -> int:
        """As `mrc_query_device`, for the context's version of the API."""
        if mcontext and mcontext not in self._contexts:
            raise Refused(errno.EINVAL, "no MRC context")
        return self.mrc_query_device(context, attr, supported)

    def mrc_query_device(self, context: int, attr: int, supported: int) -> int:
        """The capabilities of the device."""
        limits = self._verbs.context_nic(context).host.limits
        a = at(attr, layouts.MRC_DEVICE_ATTR)
        put(supported, "i4", 1)
        a[...] = 0
        a["mrc_protocol_version"] = NUMBERS["MRC_PROTOCOL_VERSION_1"]
        a["wimm_attr"]["max_wimm"] = a["wimm_attr"]["max_wimm_dest"] = limits.max_wimm
        a["mpr_attr"]["max_mpr"], a["mpr_attr"]["mpr_resolution"] = limits.mpr // MPR_UNIT, 1
        a["qp_attr"]["max_qp_hint"] = HINTS_MAX
        a["cap"] = NUMBERS["MRC_DEVICE_CAP_DYNAMIC_MPR"] * limits.dynamic_mpr
        a["cap"] |= NUMBERS["MRC_DEVICE_CAP_TRIM_NACK"] * (limits.trimming and limits.trim_nack)
        return 0

    def mrc_query_version(self, current: int, oldest: int, vendor: int, vendor_oldest: int) -> int:
        """Versions of the API, and of a vendor's part, which is empty."""
        for place, value in (
            (current, layouts.API_VERSION),
            (oldest, layouts.API_OLDEST),
            (vendor, layouts.version(1, 0, 0)),
            (vendor_oldest, 0),
        ):
            if place:
                put(place, "u4", value)
        return 0

    def mrc_create_context(self, context: int, attr: int) -> int:
        """The parent of all other objects."""
        nic = self._verbs.context_nic(context)
        wanted = layouts.API_VERSION
        if attr:
            wanted = int(at(attr, layouts.MRC_CONTEXT_ATTR)["mrc_api_version_used"])
            if wanted > layouts.API_VERSION:
                raise Refused(
                    errno.EINVAL, f"version {wanted:#x}: {layouts.API_VERSION:#x} is here"
                )
        free = np.flatnonzero(nic.calls.context == 0)
        if not len(free):
            raise Refused(errno.ENOMEM, f"{hot.CONTEXTS_MAX} contexts are there")
        handle = self._handle(IS_CONTEXT, int(free[0]))
        self._contexts[handle], self._versions[handle] = context, wanted
        nic.calls.context[free[0]] = handle
        return handle

    def _drop_context(self, context: int) -> None:
        self.calls.context[context & hot.INDEX_MASK] = 0
        del self._contexts[context]

    def mrc_destroy_context(self, context: int) -> int:
        """EBUSY while objects of it exist."""
        self._nic(context)
        owned = (self._cqs, self._qps, self._hints, self._channels)
        if any(one.context == context for known in owned for one in known.values()):
            raise Refused(errno.EBUSY, "something of it is left")
        self._drop_context(context)
        return 0

    # --- completion channels and queues

    def mrc_create_comp_channel(self, context: int, channel: int) -> int:
        """A descriptor for waiting for completions."""
        self._nic(context)
        put(channel, "u8", 0)
        one = Channel(self._handle(IS_CHANNEL), context, select.epoll())
        self._channels[one.handle] = one
        put(channel, "u8", one.handle)
        return 0

    def _channel(self, channel: int) -> Channel:
        if channel not in self._channels:
            raise Refused(errno.EINVAL, "no completion channel")
        return self._channels[channel]

    def mrc_get_comp_channel_fd(self, channel: int, fd: int) -> int:
        """Readable when a queue that requested it has a completion."""
        put(fd, "i4", self._channel(channel).epoll.fileno())
        return 0

    def mrc_destroy_comp_channel(self, channel: int) -> int:
        """EBUSY while a completion queue reports to it."""
        one = self._channel(channel)
        if one.cqs:
            raise Refused(errno.EBUSY, "a completion queue uses it")
        one.epoll.close()
        del self._channels[channel]
        return 0

    def mrc_create_cq(
        self, context: int, cqe: int, cq_context: int, channel: int, vector: int
    ) -> int:
        """Create a completion queue with room for `cqe` entries."""
        nic = self._nic(context)
        if not 1 <= cqe <= nic.host.limits.cq_depth or vector:
            raise Refused(errno.EINVAL, f"cqe {cqe}, vector {vector}")
        told = self.channel_for(context, channel) if channel else None
        with refused_as(errno.ENOMEM):
            queue = nic.device.create_cq(cqe)
        handle = self.keep_cq(IS_CQ, context, queue, cq_context, told)
        c = self.calls.cq[queue.index]
        c.promised = c.gone = c.lock = 0
        c.depth = cqe
        c.handle = handle
        return handle

    def _cq(self, cq: int) -> Cq:
        if cq not in self._cqs:
            raise Refused(errno.EINVAL, "no completion queue")
        return self._cqs[cq]

    def mrc_destroy_cq(self, cq: int) -> int:
        """EBUSY while a queue pair uses it. Waits until its events are acknowledged."""
        one = self._unused_cq(cq)
        self._acknowledged.wait_for(lambda: cq not in self._cqs or one.acknowledged >= one.got)
        self._drop_cq(self._unused_cq(cq))
        return 0

    def _unused_cq(self, cq: int) -> Cq:
        one = self._cq(cq)
        if any(one.queue in (qp.pair.send_cq, qp.pair.recv_cq) for qp in self._qps.values()):
            raise Refused(errno.EBUSY, "a queue pair uses it")
        return one

    def _drop_cq(self, one: Cq) -> None:
        if not isinstance(one.queue, EventQueue):
            hot.forget_cq(self.calls, one.queue.index)
        if one.channel is not None:
            one.channel.epoll.unregister(one.queue.fileno())
            del one.channel.cqs[one.queue.fileno()]
        del self._cqs[one.handle]
        nic = self._nic(one.context)
        if isinstance(one.queue, EventQueue):
            self.controller.drop_queue(nic, one.queue)
        else:
            nic.device.destroy_cq(one.queue)

    def mrc_req_notify_cq(self, cq: int, solicited_only: int) -> int:
        """Request one event for the next completion; every completion counts as solicited."""
        one = self._cq(cq)
        if one.channel is None:
            raise Refused(errno.EINVAL, "the queue has no channel")
        fd = one.queue.fileno()
        _clear(fd)
        one.channel.epoll.modify(fd, select.EPOLLIN | select.EPOLLONESHOT)
        return 0

    def mrc_get_cq_event(self, channel: int, cq: int, cq_context: int) -> int:
        """The queue that has a completion; EAGAIN if there is none and the descriptor is
        non-blocking.
        """
        one = self._channel(channel)
        put(cq, "u8", 0)
        waits = not fcntl.fcntl(one.epoll.fileno(), fcntl.F_GETFL) & os.O_NONBLOCK
        ready = one.epoll.poll(-1 if waits else 0, 1)
        with self._lock:
            found = one.cqs.get(ready[0][0]) if ready else None
            if found is None:
                raise Refused(errno.EAGAIN)
            found.got += 1
            put(cq, "u8", found.handle)
            if cq_context:
                put(cq_context, "u8", found.cq_context & (1 << 64) - 1)
        return 0

    def mrc_ack_cq_events(self, cq: int, n: int) -> int:
        """Acknowledge events: `mrc_destroy_cq` waits for this."""
        one = self._cq(cq)
        one.acknowledged += n
        self._acknowledged.notify_all()
        return 0

    # --- hints

    def mrc_create_qp_hint(self, context: int, attr: int) -> int:
        """Store an expectation of traffic."""
        self._nic(context)
        given = at(attr, layouts.HINT_INIT_ATTR)["attr"].copy()
        if len(self._hints) >= HINTS_MAX:
            raise Refused(errno.ENOMEM, f"{HINTS_MAX} hints are there")
        one = Hint(self._handle(IS_HINT), context, given)
        self._hints[one.handle] = one
        return one.handle

    def _hint(self, hint: int) -> Hint:
        if hint not in self._hints:
            raise Refused(errno.EINVAL, "no hint")
        return self._hints[hint]

    def mrc_destroy_qp_hint(self, hint: int) -> int:
        """EBUSY while a queue pair uses it."""
        self._hint(hint)
        if any(int(qp.mrc["qp_hint"]) == hint for qp in self._qps.values()):
            raise Refused(errno.EBUSY, "a queue pair has it")
        del self._hints[hint]
        return 0

    def mrc_query_qp_hint(self, hint: int, attr: int, mask: int) -> int:
        """Read the stored hint."""
        kept, a = self._hint(hint).record, at(attr, layouts.HINT_ATTR)
        for name in _hint_fields(mask):
            a[name] = kept[name]
        return 0

    def mrc_modify_qp_hint(self, hint: int, attr: int, mask: int) -> int:
        """Replace the stored hint."""
        kept, a = self._hint(hint).record, at(attr, layouts.HINT_ATTR)
        for name in _hint_fields(mask):
            kept[name] = a[name]
        return 0

    # --- queue pairs

    def mrc_create_qp(self, context: int, attr: int) -> int:
        """Create a queue pair in RESET; its actual attributes are written back."""
        nic, a = self._nic(context), at(attr, layouts.MRC_QP_INIT_ATTR)
        send, receive = self._cq(int(a["send_cq"])), self._cq(int(a["recv_cq"]))
        if isinstance(send.queue, EventQueue) or isinstance(receive.queue, EventQueue):
            raise Refused(errno.EINVAL, "a queue of EV events takes no completions")
        _, pd_context = self._verbs.pds.get(int(a["pd"]), (None, 0))
        if pd_context != self._contexts[context]:
            raise Refused(errno.EINVAL, "no protection domain of this context")
        for cq in (send, receive):
            self._check_same(context, cq.context)
        if int(a["protocol_version"]) not in (0, NUMBERS["MRC_PROTOCOL_VERSION_1"]):
            raise Refused(errno.EINVAL, f"protocol version {int(a['protocol_version'])}")
        cap, limits = a["cap"], nic.host.limits
        for name, most in (
            ("max_send_wr", limits.send_depth),
            ("max_recv_wr", limits.receive_depth),
            ("max_send_sge", hot.SGES_MAX),
            ("max_recv_sge", hot.SGES_MAX),
            ("max_inline_data", hot.INLINE_MAX),
        ):
            if int(cap[name]) > most:
                raise Refused(errno.EINVAL, f"{name} {int(cap[name])}: up to {most}")
        sends, receives = max(int(cap["max_send_wr"]), 1), max(int(cap["max_recv_wr"]), 1)
        with refused_as(errno.ENOMEM):
            pair = nic.device.create_qp(send.queue, receive.queue, sends, receives)
        for name in ("max_send_sge", "max_recv_sge"):
            cap[name] = max(int(cap[name]), 1)
        mrc = np.zeros((), layouts.MRC_QP_ATTR.dtype)
        mrc["mpr"]["mpr"] = mrc["mpr"]["mpr_dest"] = limits.mpr // MPR_UNIT
        mrc["wimm"]["max_wimm"] = mrc["wimm"]["max_wimm_dest"] = limits.max_wimm
        mrc["timeout"] = limits.rto_exponent
        mrc["retry"]["linear_cnt"], mrc["retry"]["exp_cnt"] = limits.linear_cnt, limits.exp_cnt
        said = np.zeros((), layouts.QP_ATTR.dtype)
        said["cap"], said["port_num"] = cap, 1
        said["path_mtu"] = mtu_word(nic.device.pmtu)
        handle = self._handle(IS_QP, pair.index)
        self._qps[handle] = Qp(handle, context, pair, a.copy(), said, mrc)
        call = self.calls.qp[pair.index]
        call.sent = call.received = call.sent_done = call.received_done = 0
        call.may_send = call.may_receive = 0
        call.max_send_sge, call.max_recv_sge = cap["max_send_sge"], cap["max_recv_sge"]
        call.max_inline = cap["max_inline_data"]
        call.max_send, call.max_recv = sends, receives
        call.send_cq, call.recv_cq = send.queue.index, receive.queue.index
        call.sig_all, call.born, call.qpn = bool(a["sq_sig_all"]), pair._born, pair.qp_num
        call.handle = handle
        return handle

    def _qp(self, qp: int) -> Qp:
        if qp not in self._qps:
            raise Refused(errno.EINVAL, "no queue pair")
        return self._qps[qp]

    def mrc_destroy_qp(self, qp: int) -> int:
        """Destroy a queue pair: `mrc_poll_cq` returns nothing of it afterwards."""
        one = self._qp(qp)
        nic = self._nic(one.context)
        hot.forget_qp(self.calls, one.pair.index)
        try:
            one.pair.destroy()
        finally:  # it is gone, even if the loop has failed
            hot.forget_copies(self.calls, one.pair.index)
            del self._qps[qp]
            self.controller.forget(nic, one.pair.qp_num)
        return 0

    def mrc_get_qpn(self, qp: int, qpn: int) -> int:
        """The number by which a peer addresses it."""
        put(qpn, "u4", self._qp(qp).pair.qp_num)
        return 0

    def mrc_query_qp(
        self, qp: int, verbs: int, verbs_mask: int, attr: int, mask: int, init: int
    ) -> int:
        """The attributes set for a queue pair, and its state."""
        one = self._qp(qp)
        one.said["qp_state"] = one.said["cur_qp_state"] = int(one.state)
        if verbs or verbs_mask:
            at(verbs, layouts.QP_ATTR)[...] = one.said
        if attr or mask:
            at(attr, layouts.MRC_QP_ATTR)[...] = one.mrc
        if init:
            at(init, layouts.MRC_QP_INIT_ATTR)[...] = one.init
        return 0

    def mrc_modify_qp(self, qp: int, verbs: int, verbs_mask: int, attr: int, mask: int) -> int:
        """Go to another state, with the attributes for it.

        Attributes of ibverbs that MRC lacks (ports, RNR, retries of RC) have no effect, as the
        public example expects.
        """
        one = self._qp(qp)
        nic = self._nic(one.context)
        verbs_mask, mask = verbs_mask & 0xFFFFFFFF, mask & 0xFFFFFFFF
        v = at(verbs, layouts.QP_ATTR).copy()
        m = at(attr, layouts.MRC_QP_ATTR).copy() if mask else one.mrc
        now = one.state
        if verbs_mask & ~V_KNOWN:
            raise Refused(errno.EINVAL, f"mask {verbs_mask:#x}")
        if verbs_mask & V["IBV_QP_CUR_STATE"] and int(v["cur_qp_state"]) != now:
            raise Refused(errno.EINVAL, f"the queue pair is in {now.name}")
        if not verbs_mask & V["IBV_QP_STATE"]:
            raise Refused(errno.EINVAL, "no state: MRC's attributes change with it")
        try:
            to = QpState(int(v["qp_state"]))
        except ValueError:
            raise Refused(errno.EINVAL, f"state {int(v['qp_state'])}") from None
        if to not in NEEDED or (to != QpState.ERROR and to != now + 1):
            raise Refused(errno.EINVAL, f"{now.name} -> {to.name} is no step")
        if NEEDED[to] & ~verbs_mask:
            raise Refused(errno.EINVAL, f"mask {verbs_mask:#x}: {NEEDED[to]:#x} is needed")
        if mask & ~MRC_AT[to]:
            raise Refused(errno.EINVAL, f"MRC mask {mask:#x}: {MRC_AT[to]:#x} is taken here")
        steps = {QpState.INIT: self._init, QpState.RTR: self._ready, QpState.RTS: self._run}
        steps.get(to, _fail)(nic, one, v, verbs_mask, m, mask)
        one.step = to
        call = self.calls.qp[one.pair.index]
        call.may_receive, call.may_send = 1, to in (QpState.RTS, QpState.ERROR)
        _keep(one.said, v, verbs_mask)
        return 0

    def _init(self, nic: Nic, one: Qp, v: Any, verbs_mask: int, m: Any, mask: int) -> None:
        profiles = {"ev_profile_id": 0, "cc_profile_id": 0}
        for name in profiles:
            if mask & M[f"MRC_QP_{name.upper()}"]:
                profiles[name] = int(m["profile"][name])
        self.controller.check_profiles(nic, *profiles.values())
        if mask & M["MRC_QP_HINT"]:
            if int(m["qp_hint"]):
                self._check_same(one.context, self._hint(int(m["qp_hint"])).context)
            one.mrc["qp_hint"] = m["qp_hint"]
        one.pair.modify(QpState.INIT)
        for name, value in profiles.items():
            one.mrc["profile"][name] = value
        self.calls.ev_profile[one.pair.index] = signed_id(profiles["ev_profile_id"])
        one.profiles = profiles

    def _ready(self, nic: Nic, one: Qp, v: Any, verbs_mask: int, m: Any, mask: int) -> None:
        if not int(v["ah_attr"]["is_global"]):
            raise Refused(errno.EINVAL, "ah_attr: no GID")
        limits, kept = nic.host.limits, one.mrc
        _take(
            kept["mpr"], "mpr_dest", m["mpr"], mask & M["MRC_QP_MPR_DEST"], limits.mpr // MPR_UNIT
        )
        wimm_mask = mask & M["MRC_QP_MAX_WIMM_DEST"]
        _take(kept["wimm"], "max_wimm_dest", m["wimm"], wimm_mask, limits.max_wimm)
        cap = int(m["cap"]) if mask & M["MRC_QP_CAP"] else 0
        if cap & ~CAP_KNOWN:
            raise Refused(errno.EINVAL, f"cap {cap:#x}")
        pmtu = nic.device.pmtu
        if verbs_mask & V["IBV_QP_PATH_MTU"]:
            pmtu = mtu_bytes(int(v["path_mtu"]))
            if pmtu > nic.device.pmtu:
                raise Refused(errno.EINVAL, f"path_mtu {pmtu}: {nic.device.pmtu} is the port's")
        own = one.pair.attributes
        trims = own.trim_nack and not cap & NUMBERS["MRC_QP_CAP_TRIM_NACK_DEST_UNSUPPORTED"]
        remote = replace(
            own,
            **nic.attributes_of(v["ah_attr"]["grh"]["dgid"]["raw"].tobytes()),
            qp_num=int(v["dest_qp_num"]),
            psn=int(v["rq_psn"]) & 0xFFFFFF,
            pmtu=pmtu,
            trim_nack=trims,
            dynamic_mpr=bool(cap & NUMBERS["MRC_QP_CAP_DYNAMIC_MPR"]),
        )
        one.pair.begin_with(*self.controller.given(nic, *one.profiles.values()))
        one.pair.connect(remote)
        kept["cap"] = cap

    def _run(self, nic: Nic, one: Qp, v: Any, verbs_mask: int, m: Any, mask: int) -> None:
        limits, kept = nic.host.limits, one.mrc
        _take(kept["mpr"], "mpr", m["mpr"], mask & M["MRC_QP_MPR"], limits.mpr // MPR_UNIT)
        wimm_mask = mask & M["MRC_QP_MAX_WIMM"]
        _take(kept["wimm"], "max_wimm", m["wimm"], wimm_mask, limits.max_wimm)
        if mask & M["MRC_QP_TIMEOUT"]:
            if int(m["timeout"]) > layouts.TIMEOUT_MAX:
                raise Refused(errno.EINVAL, f"timeout {int(m['timeout'])}")
            kept["timeout"] = m["timeout"]
        if mask & M["MRC_QP_RETRY_CNT"]:
            linear, exponential = int(m["retry"]["linear_cnt"]), int(m["retry"]["exp_cnt"])
            if linear > layouts.LINEAR_MAX or exponential > layouts.EXP_MAX:
                raise Refused(errno.EINVAL, f"retry {linear}, {exponential}")
            kept["retry"] = m["retry"]
        if mask & (M["MRC_QP_TIMEOUT"] | M["MRC_QP_RETRY_CNT"]):
            retry = kept["retry"]
            nic.device.set_retries(
                int(kept["timeout"]), int(retry["linear_cnt"]), int(retry["exp_cnt"])
            )
        one.pair.set_first_psn(int(v["sq_psn"]) & 0xFFFFFF)
        one.pair.limit(int(kept["mpr"]["mpr"]) * MPR_UNIT, int(kept["wimm"]["max_wimm"]))

    # --- events

    def mrc_get_async_event(self, context: int, event: int) -> int:
        """Wait for an event of a queue pair or a port."""
        nic, e = self._nic(context), at(event, layouts.MRC_ASYNC_EVENT)
        waiting = self._verbs.contexts[self._contexts[context]][1]
        waits = not fcntl.fcntl(waiting.fileno(), fcntl.F_GETFL) & os.O_NONBLOCK
        while waiting.poll(-1 if waits else 0, 1):
            if (one := nic.take_event()) is None:
                continue
            by_number = {qp.pair.qp_num: qp.handle for qp in self._qps.values()}
            e["element"]["cq"] = by_number.get(one.qp_num, 0 if one.qp_num else 1)
            e["event_type"] = EVENTS[one.kind]
            return 0
        raise Refused(errno.EAGAIN)

    def mrc_ack_async_event(self, event: int) -> int:
        """Do nothing: no call waits for it."""
        at(event, layouts.MRC_ASYNC_EVENT)
        return 0


def _clear(fd: int) -> None:
    try:
        os.eventfd_read(fd)
    except BlockingIOError:
        return


def _hint_fields(mask: int) -> list[str]:
    names = layouts.MRC_ENUMS["mrc_qp_hint_attr_mask"]
    known = {
        bit & 0xFFFFFFFF: name.removeprefix("MRC_QP_HINT_").lower() for name, bit in names.items()
    }
    mask &= 0xFFFFFFFF
    if not mask or mask & ~sum(known):
        raise Refused(errno.EINVAL, f"mask {mask:#x}")
    return [name for bit, name in known.items() if mask & bit]


def _take(kept: Any, name: str, given: Any, wanted: int, most: int) -> None:
    """Store an attribute that the mask names; EINVAL if it is out of its range."""
    if not wanted:
        return
    if not 1 <= int(given[name]) <= most:
        raise Refused(errno.EINVAL, f"{name} {int(given[name])}: 1 to {most}")
    kept[name] = given[name]


def _fail(nic: Nic, one: Qp, v: Any, verbs_mask: int, m: Any, mask: int) -> None:
    one.pair.modify(QpState.ERROR)


def _keep(said: Any, v: Any, verbs_mask: int) -> None:
    """Store what the mask names, for `mrc_query_qp`."""
    for bit, name in (
        ("IBV_QP_AV", "ah_attr"),
        ("IBV_QP_PATH_MTU", "path_mtu"),
        ("IBV_QP_DEST_QPN", "dest_qp_num"),
        ("IBV_QP_RQ_PSN", "rq_psn"),
        ("IBV_QP_SQ_PSN", "sq_psn"),
        ("IBV_QP_ACCESS_FLAGS", "qp_access_flags"),
        ("IBV_QP_PKEY_INDEX", "pkey_index"),
    ):
        if verbs_mask & V[bit]:
            said[name] = v[name]
