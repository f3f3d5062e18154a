"""A NIC of any shared library that has the symbols of mrc_ctl.h.

The library is not trusted to return: each call runs on a thread of its own, and while one has not
returned, others are refused. Nor are its counts: what it says is checked against what was asked, so
that a wrong answer becomes `Refused` with its reason, or is left out.
"""

from __future__ import annotations

import ctypes
import errno
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from openmrc.capi import layouts as mrc
from openmrc.capi.calls import CTL_CALLS, MRC_CALLS, NEGATIVE, NOTHING, NULL, VERBS_CALLS
from openmrc.capi.control import layouts
from openmrc.capi.control.formats import FIELDS_MAX, Ev
from openmrc.capi.control.layouts import EV_BYTES, NSCC_NAME, NUMBERS
from openmrc.capi.control.profiles import State
from openmrc.capi.control.queues import EvEvent
from openmrc.capi.layouts import Struct
from openmrc.capi.places import Block, Refused
from openmrc.errors import InputError
from openmrc.nics.nic import QUERY_ARRAY, Answer, Device, Entry, Request, Shown

WORD = ctypes.c_int64
PATIENCE_S = 10.0  # for a call, beyond the time that it was given: a busy host is slow, too
OPENING_S = 0.5  # between two questions whether to wait on for a device to open
TRIES = 16  # of a call that signals interrupt
NUMBERS_OF_REQUESTS = 1 << 16
EVS_MAX = 4096  # of one profile, for which there is room
VERBS = "libibverbs.so.1"
CALLS = {one.name: one for one in (*MRC_CALLS, *CTL_CALLS, *VERBS_CALLS)}
STATE, NUMBER = "profile_state", Struct("", (("uint32_t", "value"),))


class Library:
    """A NIC of the library at `path`; `device` is its name there (none: the first).

    A device may take any time to open: libmrc loads all of its code then. While it does, `waits`
    is asked from time to time whether to wait on.
    """

    def __init__(
        self,
        path: Path,
        device: str = "",
        patience_s: float = PATIENCE_S,
        waits: Callable[[], bool] = lambda: True,
    ) -> None:
        self._patience_s = patience_s
        self._loaded = [_load(path)]
        beside = path.parent / VERBS
        if beside.exists() or not hasattr(self._loaded[0], "ibv_open_device"):
            self._loaded.append(_load(beside if beside.exists() else Path(VERBS)))
        self._jobs: queue.Queue[Callable[[], None]] = queue.Queue()
        self._stuck = ""
        threading.Thread(target=self._work, name="nic", daemon=True).start()
        self._open(device, waits)

    def _open(self, wanted: str, waits: Callable[[], bool]) -> None:
        n = Block(Struct("", (("int", "value"),)))
        devices = self._must("ibv_get_device_list", n)
        found = ctypes.cast(devices, ctypes.POINTER(ctypes.c_uint64))
        names: list[str] = []
        self.context = 0
        for i in range(max(int(n.record["value"]), 0)):
            if self.context or not found[i]:
                break  # the list ends with NULL, whatever its length is said to be
            names.append(ctypes.string_at(self._must("ibv_get_device_name", found[i])).decode())
            if names[-1] == wanted or not wanted:
                self.context = self._must("ibv_open_device", found[i], waits=waits)
        if not self.context:
            raise Refused(errno.ENODEV, f"{wanted or 'no device'}: {', '.join(names) or 'none'}")
        self._must("ibv_free_device_list", devices)
        self.gid = self._own_gid()
        used = min(self.query_version(), layouts.API_VERSION)
        self._with_state = used >= layouts.WITH_STATE
        version = Block(mrc.MRC_CONTEXT_ATTR)
        version.record["mrc_api_version_used"] = used
        self.mrc = self._must("mrc_create_context", self.context, version)
        self._queue = self._asked = 0

    def close(self) -> None:
        """Close the device, unless a call has not returned."""
        if self._stuck:
            return
        if self._queue:
            self._must("mrc_destroy_cq", self._queue)
        self._must("mrc_destroy_context", self.mrc)
        self._must("ibv_close_device", self.context)

    # --- calls

    def _work(self) -> None:
        while True:
            self._jobs.get()()

    def _call(
        self,
        name: str,
        *given: Any,
        takes_s: float = 0.0,
        kept: Any = None,
        waits: Callable[[], bool] | None = None,
    ) -> tuple[int, int]:
        """What a function returns, and the errno if it has failed; ETIMEDOUT if it does not return
        in time, or before `waits` says no. `given`, and what is `kept` to which it refers, stay in
        place until it does.
        """
        if self._stuck:
            raise Refused(errno.ETIMEDOUT, f"{self._stuck} has not returned")
        function = next((getattr(one, name) for one in self._loaded if hasattr(one, name)), None)
        if function is None:
            raise Refused(errno.ENOSYS, f"{name} is missing")
        answers = CALLS[name].answers
        function.argtypes = [WORD] * len(given)
        function.restype = WORD if answers == NULL else ctypes.c_int
        found: list[tuple[int, int]] = []
        done = threading.Event()

        def work(kept: Any = kept) -> None:
            code = errno.EINTR
            for _ in range(TRIES):
                if code == errno.EINTR:
                    ctypes.set_errno(0)
                    returned = int(function(*map(_word, given)))
                    code = _code_of(answers, returned, ctypes.get_errno())
            found.append((returned, code))
            self._stuck = ""
            done.set()

        self._jobs.put(work)
        while not done.wait(OPENING_S if waits else self._patience_s + takes_s):
            if waits is not None and waits():
                continue
            self._stuck = name
            raise Refused(errno.ETIMEDOUT, f"{name} has not returned")
        return found[0]

    def _must(self, name: str, *given: Any, kept: Any = None, waits: Any = None) -> int:
        returned, code = self._call(name, *given, kept=kept, waits=waits)
        if code:
            raise Refused(code, f"{name}: {errno.errorcode[code]}")
        return returned

    def _own_gid(self) -> bytes:
        gid = Block(mrc.GID)
        self._must("ibv_query_gid", self.context, 1, 0, gid)
        return bytes(gid.record["raw"].tobytes())

    # --- device and ports

    def query_version(self) -> int:
        """The version of this half of the API."""
        found = [Block(NUMBER) for _ in range(4)]
        self._must("mrc_ctl_query_version", *found)
        return int(found[0].record["value"])

    def query_device(self) -> Device:
        """What may be configured."""
        a = Block(layouts.DEVICE_ATTR)
        self._must("mrc_ctl_query_device", self.context, a)
        return _device(a.record)

    def query_device_ex(self) -> tuple[Device, bool]:
        """The same, and whether MRC is supported at all."""
        a, supported = Block(layouts.DEVICE_ATTR), Block(NUMBER)
        self._must("mrc_ctl_query_device_ex", self.context, self.mrc, a, supported)
        return _device(a.record), bool(supported.record["value"])

    def query_port(self, port: int) -> bool:
        """Whether a port is enabled."""
        a = Block(layouts.PORT_ATTR)
        mask = NUMBERS["MRC_CTL_PORT_ADMIN_STATE"]
        self._must("mrc_ctl_query_port", self.mrc, port, a, mask)
        return bool(a.record["port_admin_state"])

    def modify_port(self, port: int, enabled: bool) -> None:
        """Disable a port, or enable it again."""
        a = Block(layouts.PORT_ATTR)
        a.record["port_admin_state"] = int(enabled)
        mask = NUMBERS["MRC_CTL_PORT_ADMIN_STATE"]
        self._must("mrc_ctl_modify_port", self.mrc, port, a, mask)

    # --- profiles

    def modify_ev_fmt_profile(
        self, number: int, to: State | None = None, mode: int = 0, widths: Sequence[int] = ()
    ) -> None:
        """Give a format its mode, and fields of these widths, and lead it to a state."""
        a, mask = Block(layouts.FMT_ATTR), _led(to)
        _lead(a, to)
        fields = np.zeros(len(widths), layouts.FMT_FIELD.dtype)
        if widths:
            fields["width"] = widths
            a.record["ev_fmt_mode"], a.record["ev_fmt_op"]["fmt_field_count"] = mode, len(widths)
            a.record["ev_fmt_op"]["fmt_fields"] = fields.ctypes.data
            mask |= _bits("MRC_CTL_EV_FMT_PROFILE_", "MODE", "OP")
        self._must("mrc_ctl_modify_ev_fmt_profile", self.mrc, number, a, mask, kept=fields)

    def query_ev_fmt_profile(self, number: int) -> Shown:
        """Read a format: mode and widths."""
        a, fields = Block(layouts.FMT_ATTR), np.zeros(FIELDS_MAX, layouts.FMT_FIELD.dtype)
        op = a.record["ev_fmt_op"]
        op["op"], op["fmt_fields"] = NUMBERS["MRC_CTL_EV_FMT_OP_QUERY_FIELDS"], fields.ctypes.data
        op["fmt_field_count"] = len(fields)
        mask = _bits("MRC_CTL_EV_FMT_PROFILE_", "STATE", "MODE", "OP")
        self._must("mrc_ctl_query_ev_fmt_profile", self.mrc, number, a, mask, kept=fields)
        n = _within(int(op["fmt_field_count"]), len(fields), "mrc_ctl_query_ev_fmt_profile")
        widths = ", ".join(map(str, fields["width"][:n].tolist()))
        mode = int(a.record["ev_fmt_mode"])
        return Shown(int(a.record[STATE]), {"mode": mode, "widths": widths})

    def modify_ev_profile(
        self,
        number: int,
        to: State | None = None,
        op: tuple[int, Sequence[Entry]] | None = None,
        attributes: Mapping[str, int] | None = None,
    ) -> None:
        """Change an EV profile, do one operation for each of these EVs, and lead it to a state."""
        a, mask = Block(layouts.EV_ATTR), _led(to)
        _lead(a, to)
        for name, value in (attributes or {}).items():
            a.record[f"ev_{name}"] = value
            bit = name.upper().replace("FMT_PROFILE_ID", "FMT_ID")
            mask |= _bits("MRC_CTL_EV_PROFILE_", bit)
        kind, entries = (0, ()) if op is None else op
        listed = np.zeros(len(entries), layouts.ENTRY.dtype)
        for row, one in zip(listed, entries, strict=True):
            _put(row["ev"], one.ev)
            _put(row["ev_new"], one.new)
            row["state"], row["flags"] = one.state, one.flags
        if entries:
            places = a.record["ev_op"]
            places["op"], places["entry_count"] = kind, len(entries)
            places["entries"] = listed.ctypes.data
            mask |= _bits("MRC_CTL_EV_PROFILE_", "EV_OP")
        self._must("mrc_ctl_modify_ev_profile", self.mrc, number, a, mask, kept=listed)

    def query_ev_profile(self, number: int) -> Shown:
        """Read an EV profile, and its EVs."""
        a, listed = Block(layouts.EV_ATTR), np.zeros(EVS_MAX, layouts.ENTRY.dtype)
        op, names = a.record["ev_op"], ("MODE", "COUNT", "MIN_ACTIVE", "EVENT_MASK")
        op["op"], op["entries"], op["entry_count"] = QUERY_ARRAY, listed.ctypes.data, len(listed)
        mask = _bits("MRC_CTL_EV_PROFILE_", "STATE", "EV_OP", *names)
        self._must("mrc_ctl_query_ev_profile", self.mrc, number, a, mask, kept=listed)
        n = _within(int(op["entry_count"]), len(listed), "mrc_ctl_query_ev_profile")
        attributes = {name.lower(): int(a.record[f"ev_{name.lower()}"]) for name in names}
        evs = {_take(row["ev"]): int(row["state"]) for row in listed[:n]}
        return Shown(int(a.record[STATE]), attributes, evs)

    def modify_cc_profile(
        self, number: int, to: State | None = None, config: Mapping[str, float] | None = None
    ) -> None:
        """Give a profile of NSCC its configuration, and lead it to a state."""
        a, values, mask = Block(layouts.CC_ATTR), Block(layouts.NSCC_CFG), _led(to)
        _lead(a, to)
        name = ctypes.create_string_buffer(NSCC_NAME.encode())
        if to == State.OFFLINE:
            a.record["algorithm"] = ctypes.addressof(name)
            mask |= _bits("MRC_CTL_CC_PROFILE_", "ALGORITHM")
        if config is not None:
            for key, value in config.items():
                values.record[key] = value
            a.record["cc_config"] = values.address
            mask |= _bits("MRC_CTL_CC_PROFILE_", "CONFIG")
        kept = (name, values)
        self._must("mrc_ctl_modify_cc_profile", self.mrc, number, a, mask, kept=kept)

    def query_cc_profile(self, number: int) -> Shown:
        """Read a profile of congestion control."""
        a = Block(layouts.CC_ATTR)
        mask = _bits("MRC_CTL_CC_PROFILE_", "STATE", "ALGORITHM", "CONFIG")
        self._must("mrc_ctl_query_cc_profile", self.mrc, number, a, mask)
        algorithm, config = int(a.record["algorithm"]), Block(layouts.NSCC_CFG)
        named = ctypes.string_at(algorithm).decode("latin-1") if algorithm else None
        found: dict[str, float | str | None] = {"algorithm": named}
        if named == NSCC_NAME and int(a.record["cc_config"]):
            source = int(a.record["cc_config"])
            ctypes.memmove(config.address, source, layouts.NSCC_CFG.dtype.itemsize)
            names = layouts.NSCC_CFG.dtype.names or ()
            found |= {name: config.record[name].item() for name in names}
        return Shown(int(a.record[STATE]), found)

    # --- events and probes

    def create_ev_event_cq(self, entries: int) -> None:
        """Create the queue of EV events."""
        self._queue = self._must("mrc_ctl_create_ev_event_cq", self.mrc, entries, 0, 0, 0)

    def poll_ev_event(self, most: int) -> list[EvEvent]:
        """Take the oldest events of the queue."""
        struct = layouts.EV_EVENT if self._with_state else layouts.EV_EVENT_BEFORE
        room = np.zeros(most, layouts.EV_EVENT.dtype)  # whatever it takes the version to be
        n = self._must("mrc_ctl_poll_ev_event", self._queue, most, room)
        rows = room.view(np.uint8)[: most * struct.dtype.itemsize].view(struct.dtype)
        return [
            EvEvent(
                int(row["profile_id"]),
                _take(row["ev"]),
                int(row["state"]) if self._with_state else 0,
                int(row["drop_count"]),
            )
            for row in rows[: _within(n, most, "mrc_ctl_poll_ev_event")]
        ]

    def ep_batch_send_wait(self, requests: Sequence[Request], timeout_ns: int) -> list[Answer]:
        """Probe, and return what was answered in time. Answers to nothing are left out, and so are
        those to the batch before, whose numbers were others.
        """
        asked = np.zeros(len(requests), layouts.REQUEST.dtype)
        answers = np.zeros(len(requests), layouts.RESPONSE.dtype)
        n, name = Block(Struct("", (("int", "value"),))), "mrc_ctl_ep_batch_send_wait"
        wanted: dict[int, Request] = {}
        for row, one in zip(asked, requests, strict=True):
            self._asked = (self._asked + 1) % NUMBERS_OF_REQUESTS
            wanted[self._asked] = one
            row["req_id"], row["ev_fmt_mode"] = self._asked, NUMBERS["MRC_CTL_EV_FMT_MODE_STEV"]
            row["sgid"]["raw"] = list(self.gid)
            row["dgid"]["raw"] = list(one.to)
            _put(row["req_ev"], one.ev)
        probe = NUMBERS["MRC_CTL_EP_OP_EV_PROBE"]
        _, code = self._call(
            name, self.mrc, 0, probe, asked, len(asked), timeout_ns, answers, n,
            takes_s=timeout_ns / 1e9,
        )  # fmt: skip
        if code not in (0, errno.ETIMEDOUT):
            raise Refused(code, f"{name}: {errno.errorcode[code]}")
        told = answers[: _within(int(n.record["value"]), len(asked), name)]
        found: dict[int, Answer] = {}
        for row in told:
            number, port = int(row["req_id"]), int(row["port"])
            question = wanted.get(number)
            if question is not None and question.ev.port == port:  # else it answers another one
                found.setdefault(number, Answer(question.number, port, int(row["rtt"])))
        return list(found.values())


def _load(path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path), use_errno=True)
    except OSError as error:
        raise InputError(f"--library {path}: {error}") from None


def _code_of(answers: str, returned: int, code: int) -> int:
    """The errno of a call that failed, 0 of one that did not."""
    failed = returned == 0 if answers == NULL else returned < 0
    failed |= returned != 0 and answers not in (NULL, NEGATIVE)
    if answers == NOTHING or not failed:
        return 0
    code = -returned if answers == NEGATIVE else code
    return code if code in errno.errorcode else errno.EIO


def _word(given: Any) -> int:
    if isinstance(given, Block):
        return given.address
    return int(given.ctypes.data) if isinstance(given, np.ndarray) else int(given)


def _device(a: Any) -> Device:
    ev = a["ev"]
    ports = int(a["phy_port_mask"])
    return Device(
        ports=tuple(port for port in range(1, 32) if ports >> port & 1),
        evs_max=int(ev["ev_max_count_profile"]),
        align=int(ev["ev_count_align"]),
        width=int(ev["ev_max_width"]),
        format_modes=int(ev["ev_fmt_mode_mask"]),
        ev_modes=int(ev["ev_mode_mask"]),
        entries_max=int(ev["ev_op_max_entries"]),
        options=int(a["opt_attr"]),
    )


def _bits(prefix: str, *names: str) -> int:
    return sum(NUMBERS[prefix + name] for name in names)


def _led(to: State | None) -> int:
    """The mask of a step; the bit is the same for all three kinds of profile."""
    return 0 if to is None else NUMBERS["MRC_CTL_EV_PROFILE_STATE"]


def _lead(a: Block, to: State | None) -> None:
    if to is not None:
        a.record[STATE] = int(to)


def _within(n: int, most: int, name: str) -> int:
    if not 0 <= n <= most:
        raise Refused(errno.EPROTO, f"{name} says {n} of {most}: nothing of it is believed")
    return n


def _put(row: Any, ev: Ev) -> None:
    row["val"], row["port"] = np.frombuffer(ev.value, np.uint8, EV_BYTES), ev.port


def _take(row: Any) -> Ev:
    return Ev(row["val"].tobytes(), int(row["port"]))
