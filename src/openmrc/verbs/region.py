"""Memory that the engine reads and writes, and its keys."""

from __future__ import annotations

import secrets
from typing import Any, Protocol

import numpy as np

from openmrc.engine import state as es
from openmrc.errors import InputError, OpenMrcError
from openmrc.live.endpoint.host import Host
from openmrc.verbs.attributes import RemoteRegion

LOCAL_WRITE, REMOTE_WRITE = 1, 2  # access rights of a region, as IBV_ACCESS_...


class Sender(Protocol):
    """A queue pair, as a region knows it."""

    qp_num: int

    def has_completed(self, number: int) -> bool:
        """Whether nothing is read any more for the first `number` requests that were posted."""


class Regions:
    """All registered memory of a device."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._at: dict[int, MemoryRegion] = {}  # keeps the memory of each alive

    def __len__(self) -> int:
        return len(self._at)

    def add(self, mr: MemoryRegion) -> int:
        """Register a region; return the key by which it can be reached from now on."""
        return self._host.between(lambda: self._place(mr))

    def _place(self, mr: MemoryRegion) -> int:
        table, most = self._host.st.region, self._host.limits.regions
        if len(self) >= most:
            raise OpenMrcError(f"no memory region left: the device has {most}")
        while (i := secrets.randbelow(len(table))) in self._at:
            pass
        self._at[i] = mr
        key = secrets.randbits(32 - es.REGION_INDEX_BITS) << es.REGION_INDEX_BITS | i
        r = table[i]
        r.va, r.length, r.rkey = mr.addr, mr.length, key
        r.nic = self._host.nic if mr.access & REMOTE_WRITE else -1
        self._host.ep.region[i] = mr.addr
        return key

    def move(self, rkey: int, addr: int) -> None:
        """Place at this address from now on what arrives for a key."""

        def move() -> None:
            self._host.ep.region[rkey & ((1 << es.REGION_INDEX_BITS) - 1)] = addr

        if not self._host.closed:
            self._host.between(move)

    def withdraw(self, rkey: int) -> None:
        """Remove a key; the memory itself may then be freed."""

        def clear() -> None:
            i = rkey & ((1 << es.REGION_INDEX_BITS) - 1)
            self._host.st.region[i].nic = -1
            self._host.st.region[i].length = 0
            del self._at[i]

        if not self._host.closed:
            self._host.between(clear)


class MemoryRegion:
    """A registered buffer: any object with a writable buffer, zero copy (`ibv_mr`)."""

    def __init__(self, regions: Regions, buffer: Any, access: int) -> None:
        self._regions = regions
        self.buffer = buffer
        self.view = _writable(buffer)
        self.addr = int(self.view.__array_interface__["data"][0])
        self.length = self.view.nbytes
        self.access = access
        self.rkey = self.lkey = regions.add(self)
        self.last: dict[Sender, int] = {}  # the newest request of each queue pair
        self.open = True

    @classmethod
    def local(cls, view: Any) -> MemoryRegion:
        """Memory that is only sent from: no peer gets a key to it, so it takes no place in the
        device's table. `view` is a contiguous array of uint8.
        """
        one = cls.__new__(cls)
        one.buffer = one.view = view
        one.addr, one.length = int(view.__array_interface__["data"][0]), view.nbytes
        one.last, one.open = {}, True
        return one

    @property
    def remote(self) -> RemoteRegion:
        """The address, length and key with which a peer can write here."""
        return RemoteRegion(self.addr, self.length, self.rkey)

    def rereg(self, buffer: Any) -> None:
        """Put other memory behind the same keys and remote address (`ibv_rereg_mr`, a change of
        translation): nothing is placed in the old one afterwards. Nothing is sent from this region.
        """
        view = _writable(buffer)
        if view.nbytes != self.length or self.last:
            raise InputError(f"memory region {self.rkey:#x}: {self.length} bytes, never sent from")
        self._regions.move(self.rkey, int(view.__array_interface__["data"][0]))
        self.buffer, self.view = buffer, view

    def dereg(self) -> None:
        """Invalidate the keys; nothing is placed here or sent from here afterwards.

        `OpenMrcError` (EBUSY of ibverbs) while a request that sends from here is not complete: the
        engine still reads the memory.
        """
        self._regions._host.check_own()
        if not self.open:
            return
        self.open = False  # first: no other thread posts from here now
        try:
            if under_way := [qp for qp, n in list(self.last.items()) if not qp.has_completed(n)]:
                raise OpenMrcError(
                    f"memory region {self.rkey:#x}: QP {under_way[0].qp_num:#x} still sends from"
                    " it; take its completions first, or destroy it"
                )
            self._regions.withdraw(self.rkey)
        except OpenMrcError:
            self.open = True
            raise


def _writable(buffer: Any) -> Any:
    """The bytes of a buffer as a uint8 array over the same memory."""
    if hasattr(buffer, "detach") and hasattr(buffer, "numpy"):  # a torch tensor
        buffer = buffer.detach().numpy()
    try:
        view = memoryview(buffer)
    except TypeError:
        raise InputError(f"{type(buffer).__name__}: not a buffer") from None
    if view.readonly:
        raise InputError(f"{type(buffer).__name__}: read-only memory cannot be registered")
    if not view.c_contiguous:
        raise InputError(f"{type(buffer).__name__}: only contiguous memory can be registered")
    if isinstance(buffer, np.ndarray):
        return buffer.reshape(-1).view(np.uint8)
    return np.frombuffer(view.cast("B"), np.uint8)
