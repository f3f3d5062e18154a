"""The part of ibverbs that libmrc uses: devices, contexts, protection domains and memory regions.

A process has one device: the NIC of the host file (`OPENMRC_HOST`), or on an ordinary network the
planes that `OPENMRC_INTERFACES` names. The first context opens it, the last one closes it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import os
import select
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from openmrc.capi import hot, layouts, reach
from openmrc.capi.layouts import NUMBERS
from openmrc.capi.places import Block, Refused, at, is_mapped, put, refused_as
from openmrc.errors import OpenMrcError
from openmrc.fabric.clos import PLANES_BUILT_MAX
from openmrc.verbs import AsyncEvent, EventKind, hostfile
from openmrc.verbs.device import Device
from openmrc.verbs.region import LOCAL_WRITE, REMOTE_WRITE, MemoryRegion
from openmrc.version import __version__
from openmrc.wire import addresses

INTERFACES = "OPENMRC_INTERFACES"
NAME = "mrc0"
GIDS = 16  # entries of the table, all of them this device's
PKEY = 0xFFFF
MESSAGE_MAX = 1 << 31
PMTU_MAX = 4096  # `ibv_mtu` has no larger value
LIMITS: dict[str, Any] = {
    "qps": 256,
    "send_depth": 512,
    "receive_depth": 512,
    "regions": 4096,
    "cqs": 64,
    "cq_depth": 16_384,
    "dynamic_mpr": True,  # each queue pair says whether it takes part
}
EVENTS_MAX = 4096
EVENT_FLAGS = os.EFD_NONBLOCK | os.EFD_CLOEXEC
OF_PATHS = {EventKind.PATH_BAD, EventKind.PATH_REVIVED}
IS_EXTENDED = (1 << 64) - 1  # of a context: functions of extensions precede it
PHYS_LINK_UP, WIDTH_4X, SPEED_25G = 5, 2, 32
RIGHTS = LOCAL_WRITE | REMOTE_WRITE
# There is no read access to grant, and optional rights may be ignored.
ACCESS_KNOWN = RIGHTS | NUMBERS["IBV_ACCESS_REMOTE_READ"] | NUMBERS["IBV_ACCESS_REMOTE_ATOMIC"]
ACCESS_OPTIONAL = 0x3FF << 20


_POINTER = ctypes.c_void_p


# ctypes has no types for its prototypes as decorators
@ctypes.CFUNCTYPE(_POINTER, _POINTER, _POINTER, use_errno=True)  # type: ignore[untyped-decorator]
def _no_qp(context: int, attr: int) -> None:
    """Placeholder of an extension that shims replace, which they may only do if there is one."""
    ctypes.set_errno(errno.EOPNOTSUPP)


_TEXTS: dict[str, Any] = {}  # strings that callers hold


class Nic:
    """The open device."""

    def __init__(self, wanted: Mapping[str, Any]) -> None:
        self.device = opened(wanted)
        self.host = self.device._host
        self.events: deque[AsyncEvent] = deque(maxlen=EVENTS_MAX)  # not yet reported
        self.control: Any = None  # of controllers, from the first of their calls on
        self.prober: Any = None
        limits = self.host.limits
        self.calls = hot.new_calls(limits.qps, limits.cqs, limits.send_depth)
        self.answering: reach.Answering | None = None
        n = self.device.n_planes
        if not self.host.reach:
            planes = [plane if plane < n else 0 for plane in range(GIDS)]
            self.gids = [addresses.ipv6(self.device.nic, plane).packed for plane in planes]
            return
        try:
            self.gids = [reach.gid_of(self.host.reach[0])] * GIDS
            self.answering = reach.Answering(self.host.reach)
        except BaseException:
            self.device.close()
            raise

    def listen(self, lock: threading.RLock, hear: Callable[[Nic, AsyncEvent], None]) -> None:
        """Pass events of paths to `hear`, and keep all others for whoever asks, from a thread of
        its own, until the device is closed.
        """
        self.async_fd, self._stop_fd = (os.eventfd(0, EVENT_FLAGS) for _ in range(2))
        self._closed = False

        def listen() -> None:
            fds = [self.device.event_fileno(), self._stop_fd]
            with contextlib.suppress(OSError):  # it was closed before this thread waits again
                while self._take_events(lock, hear):
                    select.select(fds, [], [])
            os.close(self._stop_fd)

        threading.Thread(target=listen, name="mrc events", daemon=True).start()

    def _take_events(self, lock: threading.RLock, hear: Callable[[Nic, AsyncEvent], None]) -> bool:
        """Take what has happened; False once the device is closed."""
        with lock:
            if self._closed:
                return False
            for one in self.device.events():
                if one.kind in OF_PATHS:
                    hear(self, one)
                else:
                    self.events.append(one)
                    os.eventfd_write(self.async_fd, 1)
            return True

    def take_event(self) -> AsyncEvent | None:
        """The oldest event of a port or a queue pair."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.async_fd)
        try:
            found = self.events.popleft()
        except IndexError:  # another thread was faster
            return None
        if self.events:  # still readable
            os.eventfd_write(self.async_fd, 1)
        return found

    def attributes_of(self, gid: bytes) -> dict[str, Any]:
        """The address of the peer with this GID, as in `QpAttributes`; EINVAL if there is none."""
        if self.host.reach:
            return {"nic": 0, "planes": reach.ask(gid)}
        port = addresses.whose(gid)
        if port is None or not 0 <= port.plane < PLANES_BUILT_MAX:
            raise Refused(errno.EINVAL, f"GID {gid.hex()}: no NIC's")
        return {"nic": port.nic, "planes": ()}

    def close(self) -> None:
        """Flush every queue pair and stop."""
        if self.answering is not None:
            self.answering.close()
        self._closed = True
        os.eventfd_write(self._stop_fd, 1)
        self.device.close()
        os.close(self.async_fd)


def opened(limits: Mapping[str, Any]) -> Device:
    """Open the device that the environment names."""
    if os.environ.get(hostfile.VARIABLE):
        return Device.open(**limits)
    if names := os.environ.get(INTERFACES):
        planes = [one.strip() for one in names.split(",")]
        return Device.on_network(planes, **{"pmtu": PMTU_MAX, **limits})
    raise Refused(errno.ENODEV, f"set {hostfile.VARIABLE} (mrc lab does) or {INTERFACES}")


def is_there() -> bool:
    """Whether the environment names a device."""
    return bool(os.environ.get(hostfile.VARIABLE) or os.environ.get(INTERFACES))


class Above(Protocol):
    """MRC's own objects, which use those of ibverbs."""

    def has_pd(self, pd: int) -> bool:
        """Whether a queue pair belongs to a protection domain."""

    def withdraw(self, lkey: int) -> bool:
        """Let nothing send from a region any more; False if a request still does."""

    def leave(self, context: int) -> None:
        """Destroy all objects of a context."""

    def hear(self, nic: Nic, event: AsyncEvent) -> None:
        """A path of a queue pair was set aside, or is back."""


class Verbs:
    """The objects that callers hold, by address; the functions of ibverbs are its methods."""

    above: Above  # set by the library
    limits: Mapping[str, Any] = LIMITS  # of the device that is opened next

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock
        self.nic: Nic | None = None
        self._device: Block | None = None
        self._lists: dict[int, Any] = {}
        self.contexts: dict[int, tuple[Block, select.epoll]] = {}  # with the epoll of its events
        self.pds: dict[int, tuple[Block, int]] = {}  # with the context
        self._mrs: dict[int, tuple[Block, MemoryRegion, int]] = {}  # with the domain

    # --- devices

    def ibv_get_device_list(self, n: int) -> int:
        """Return NULL-terminated pointers: to one device, or to none."""
        if self._device is None and is_there():
            self._device = Block(layouts.DEVICE)
            r = self._device.record
            r["node_type"], r["transport_type"] = NUMBERS["IBV_NODE_CA"], 0
            r["name"] = r["dev_name"] = NAME.encode()
        found = [self._device.address] if self._device else []
        room = (ctypes.c_uint64 * (len(found) + 1))(*found, 0)
        address = ctypes.addressof(room)
        self._lists[address] = room
        if n:
            put(n, "i4", len(found))
        return address

    def ibv_free_device_list(self, address: int) -> int:
        """Free the list; the device itself remains."""
        return 0 if self._lists.pop(address, None) else -errno.EINVAL

    def _check_device(self, device: int) -> None:
        if self._device is None or device != self._device.address:
            raise Refused(errno.ENODEV, "no device of this library")

    def ibv_get_device_name(self, device: int) -> int:
        """ "mrc0"."""
        self._check_device(device)
        return text(NAME)

    def ibv_get_device_guid(self, device: int) -> int:
        """Return the GUID in network byte order: it depends on the host and the device."""
        self._check_device(device)
        return guid()

    def ibv_open_device(self, device: int) -> int:
        """Return a context; the first one opens the device."""
        self._check_device(device)
        if self.nic is None:
            self.nic = Nic(self.limits)
            self.nic.listen(self._lock, self.above.hear)
        block = Block(layouts.EXTENDED, "context")
        whole, context = block.record, block.record["context"]
        whole["sz"] = layouts.EXTENDED.dtype.itemsize
        whole["create_qp_ex"] = ctypes.cast(_no_qp, ctypes.c_void_p).value
        context["device"], context["abi_compat"] = device, IS_EXTENDED
        # blocks by default, as that of ibverbs does; the device's own never does
        events = select.epoll()
        events.register(self.nic.async_fd, select.EPOLLIN)
        context["cmd_fd"], context["async_fd"] = -1, events.fileno()
        context["num_comp_vectors"] = 1
        self.contexts[block.address] = (block, events)
        return block.address

    def context_nic(self, context: int) -> Nic:
        """The device of a context; EINVAL if it is not a context."""
        if context not in self.contexts or self.nic is None:
            raise Refused(errno.EINVAL, "no context of this library")
        return self.nic

    def ibv_close_device(self, context: int) -> int:
        """Close a context, with everything in it; the last one closes the device."""
        self.context_nic(context)
        self.above.leave(context)
        for mr in [a for a, (_, _, pd) in self._mrs.items() if self.pds[pd][1] == context]:
            with contextlib.suppress(OpenMrcError):  # the loop has failed: it reads nothing
                self._mrs.pop(mr)[1].dereg()
        for pd in [a for a, (_, of) in self.pds.items() if of == context]:
            del self.pds[pd]
        self.contexts.pop(context)[1].close()
        if not self.contexts and self.nic is not None:
            self.nic.close()
            self.nic = None
        return 0

    # --- queries

    def ibv_query_device(self, context: int, attr: int) -> int:
        """The limits of the device."""
        limits, a = self.context_nic(context).host.limits, at(attr, layouts.DEVICE_ATTR)
        a[...] = 0
        a["fw_ver"] = __version__.encode()
        a["node_guid"] = a["sys_image_guid"] = guid()
        a["max_mr_size"], a["page_size_cap"] = 1 << 62, 4096
        a["max_qp"], a["max_qp_wr"] = limits.qps, min(limits.send_depth, limits.receive_depth)
        a["max_sge"] = hot.SGES_MAX
        a["max_cq"], a["max_cqe"] = limits.cqs, limits.cq_depth
        a["max_mr"], a["max_pd"] = limits.regions, 1 << 16
        a["max_pkeys"] = a["phys_port_cnt"] = 1
        return 0

    def ibv_query_port(self, context: int, port: int, attr: int) -> int:
        """Port 1, all planes together, unless a controller has disabled it; those from 2 on are
        planes. Fields after `link_layer` are not written: callers of this function have no room for
        them.
        """
        nic = self.context_nic(context)
        ups = [one["up"] for one in nic.device.counters()["ports"]]
        if not 1 <= port <= len(ups):
            raise Refused(errno.EINVAL, f"port {port}: 1 to {len(ups)} are there")
        whole = Block(layouts.PORT_ATTR)
        a = whole.record
        up = ups[port - 1] if port > 1 else any(ups) and nic.host.enabled[0]
        a["state"] = NUMBERS["IBV_PORT_ACTIVE" if up else "IBV_PORT_DOWN"]
        a["max_mtu"], a["active_mtu"] = NUMBERS["IBV_MTU_4096"], mtu_word(nic.device.pmtu)
        a["gid_tbl_len"], a["pkey_tbl_len"] = GIDS, 1
        a["max_msg_sz"], a["max_vl_num"] = MESSAGE_MAX, 1
        a["active_width"], a["active_speed"] = WIDTH_4X, SPEED_25G
        a["phys_state"], a["link_layer"] = (
            PHYS_LINK_UP,
            layouts.LINK_LAYERS["IBV_LINK_LAYER_ETHERNET"],
        )
        if not attr:
            raise Refused(errno.EINVAL, "NULL")
        ctypes.memmove(attr, whole.address, layouts.PORT_ATTR_OLD_BYTES)
        return 0

    def ibv_query_gid(self, context: int, port: int, index: int, gid: int) -> int:
        """The GID by which a peer names this device."""
        nic = self.context_nic(context)
        _check_port(port)
        if not 0 <= index < GIDS:
            raise Refused(errno.EINVAL, f"GID {index}: 0 to {GIDS - 1} are there")
        at(gid, layouts.GID)["raw"] = list(nic.gids[index])
        return 0

    def _ibv_query_gid_ex(
        self, context: int, port: int, index: int, entry: int, flags: int, n_bytes: int
    ) -> int:
        if flags or n_bytes < layouts.GID_ENTRY.dtype.itemsize:
            raise Refused(errno.EINVAL)
        e = at(entry, layouts.GID_ENTRY)
        self.ibv_query_gid(context, port, index, entry)
        e["gid_index"], e["port_num"], e["gid_type"], e["ndev_ifindex"] = index, port, 2, 0
        return 0

    def ibv_query_pkey(self, context: int, port: int, index: int, pkey: int) -> int:
        """The one partition key."""
        self.context_nic(context)
        _check_port(port)
        if index:
            raise Refused(errno.EINVAL, f"P_Key {index}: 0 is there")
        put(pkey, "u2", PKEY)
        return 0

    # --- memory

    def ibv_alloc_pd(self, context: int) -> int:
        """A protection domain: it associates memory with a context."""
        self.context_nic(context)
        block = Block(layouts.PD)
        block.record["context"] = context
        self.pds[block.address] = (block, context)
        return block.address

    def ibv_dealloc_pd(self, pd: int) -> int:
        """EBUSY while memory is registered in it, or a queue pair belongs to it."""
        if pd not in self.pds:
            raise Refused(errno.EINVAL, "no protection domain of this library")
        if any(of == pd for _, _, of in self._mrs.values()):
            raise Refused(errno.EBUSY, "memory is registered in it")
        if self.above.has_pd(pd):
            raise Refused(errno.EBUSY, "a queue pair belongs to it")
        del self.pds[pd]
        return 0

    def ibv_reg_mr(self, pd: int, address: int, length: int, access: int) -> int:
        """Register the caller's memory in place: nothing is copied."""
        return self.ibv_reg_mr_iova2(pd, address, length, address, access)

    def ibv_reg_mr_iova(self, pd: int, address: int, length: int, iova: int, access: int) -> int:
        """As `ibv_reg_mr_iova2`."""
        return self.ibv_reg_mr_iova2(pd, address, length, iova, access)

    def ibv_reg_mr_iova2(self, pd: int, address: int, length: int, iova: int, access: int) -> int:
        """Peers reach memory at its own address, so `iova` must equal that."""
        if pd not in self.pds:
            raise Refused(errno.EINVAL, "no protection domain of this library")
        if length <= 0 or address <= 0 or iova != address or address + length >= 1 << 63:
            raise Refused(errno.EINVAL, f"{length} bytes at {address:#x}")
        if access & ~(ACCESS_KNOWN | ACCESS_OPTIONAL):
            raise Refused(errno.EINVAL, f"access {access:#x}")
        if access & REMOTE_WRITE and not access & LOCAL_WRITE:
            raise Refused(errno.EINVAL, "REMOTE_WRITE without LOCAL_WRITE")
        if not is_mapped(address, length):
            raise Refused(errno.EFAULT, f"{length} bytes at {address:#x}: no memory")
        context = self.pds[pd][1]
        room = (ctypes.c_ubyte * length).from_address(address)
        with refused_as(errno.ENOMEM):
            mr = self.context_nic(context).device.reg_mr(room, access & RIGHTS)
        block = Block(layouts.MR)
        r = block.record
        r["context"], r["pd"], r["addr"], r["length"] = context, pd, address, length
        r["lkey"], r["rkey"] = mr.lkey, mr.rkey
        self._mrs[block.address] = (block, mr, pd)
        return block.address

    def ibv_dereg_mr(self, address: int) -> int:
        """Deregister memory: nothing is placed there or sent from there afterwards. EBUSY while a
        request that sends from it is not complete.
        """
        if address not in self._mrs:
            raise Refused(errno.EINVAL, "no memory region of this library")
        _, mr, _ = self._mrs[address]
        if not self.above.withdraw(mr.lkey):
            raise Refused(errno.EBUSY, "requests that send from it are not complete")
        mr.dereg()
        del self._mrs[address]
        return 0

    # --- strings

    def ibv_fork_init(self) -> int:
        """Do nothing: no page is pinned."""
        return 0

    def ibv_wc_status_str(self, status: int) -> int:
        """The name of a status."""
        return _word("ibv_wc_status", "IBV_WC_", status)

    def ibv_port_state_str(self, state: int) -> int:
        """The name of a port's state."""
        return _word("ibv_port_state", "IBV_PORT_", state)

    def ibv_event_type_str(self, event: int) -> int:
        """The name of an event."""
        return _word("ibv_event_type", "IBV_EVENT_", event)

    def ibv_node_type_str(self, kind: int) -> int:
        """The name of a kind of device."""
        return _word("ibv_node_type", "IBV_NODE_", kind)


def _check_port(port: int) -> None:
    if port != 1:
        raise Refused(errno.EINVAL, f"port {port}: 1 is there")


def _word(enum: str, prefix: str, value: int) -> int:
    """The text of a number: "retry exc err"."""
    names = {number: name for name, number in layouts.VERBS_ENUMS[enum].items()}
    name = names.get(value, "unknown")
    return text(name.removeprefix(prefix).replace("_", " ").lower())


def text(words: str) -> int:
    """The address of a C string, which stays valid."""
    if words not in _TEXTS:
        _TEXTS[words] = ctypes.create_string_buffer(words.encode())
    return ctypes.addressof(_TEXTS[words])


def guid() -> int:
    """Eight bytes that distinguish this device from others, as an integer in memory order."""
    about = os.environ.get(hostfile.VARIABLE) or os.environ.get(INTERFACES, "")
    digest = hashlib.sha256(f"{os.uname().nodename} {about}".encode()).digest()
    return int.from_bytes(b"\x02" + digest[:6] + b"\0", "little")


def mtu_word(pmtu: int) -> int:
    """A PMTU as `ibv_mtu`."""
    return NUMBERS[f"IBV_MTU_{min(pmtu, PMTU_MAX)}"]


def mtu_bytes(word: int) -> int:
    """The bytes of an `ibv_mtu`; EINVAL if it is not one."""
    for name, number in layouts.VERBS_ENUMS["ibv_mtu"].items():
        if number == word:
            return int(name.removeprefix("IBV_MTU_"))
    raise Refused(errno.EINVAL, f"path_mtu {word}: no ibv_mtu")
