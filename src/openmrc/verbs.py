"""What an application holds: devices, memory regions, queue pairs and completion queues.

Names and meaning are ibverbs', so whoever knows those needs no manual:

    with Device.open() as device:                    # the host file says which NIC this is
        mr = device.reg_mr(bytearray(1 << 20), REMOTE_WRITE)
        cq = device.create_cq()
        qp = device.create_qp(cq)
        with exchange.connect(qp, "10.0.0.7", 7471, secret) as peer:
            qp.post_write(1, mr, remote_addr=peer.regions[0].addr, rkey=peer.regions[0].rkey)
            [done] = cq.wait()

Two operations (MRC 1.2): RDMA WRITE, and WRITE with immediate data, which completes a posted
receive at the peer, and is the ordering point: it is reported after everything posted before it has
arrived (MRC 1.3). Data lands in any order.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import os
import select
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from openmrc import jit
from openmrc.closing import Closing
from openmrc.engine import state as es
from openmrc.engine.packet import ENDPOINT_QPN
from openmrc.engine.paths import ev_states
from openmrc.errors import InputError, OpenMrcError
from openmrc.fabric.model import Fabric
from openmrc.live import path_mtu, state
from openmrc.live.host import MPR_MAX, PMTUS, SEND_DEPTH_MAX, Host, Limits, Port
from openmrc.wire.frame import REASONS

LOCAL_WRITE, REMOTE_WRITE = 1, 2  # access rights of a region, as IBV_ACCESS_...


class QpState(enum.IntEnum):
    """MRC 1.7."""

    RESET = es.RESET
    INIT = es.INIT
    RTR = es.RTR
    RTS = es.RTS
    ERROR = es.ERROR


class Status(enum.IntEnum):
    """Of a work completion, as `ibv_wc_status`."""

    SUCCESS = state.SUCCESS
    RETRY_EXC_ERR = state.RETRY_EXC_ERR
    REM_ACCESS_ERR = state.REM_ACCESS_ERR
    REM_INV_REQ_ERR = state.REM_INV_REQ_ERR
    REM_OP_ERR = state.REM_OP_ERR
    WR_FLUSH_ERR = state.WR_FLUSH_ERR
    GENERAL_ERR = state.GENERAL_ERR


class Opcode(enum.IntEnum):
    """Of a work completion, as `ibv_wc_opcode`."""

    RDMA_WRITE = state.RDMA_WRITE
    RECV_RDMA_WITH_IMM = state.RECV_RDMA_WITH_IMM


class EventKind(enum.IntEnum):
    """Of an asynchronous event."""

    PATH_BAD = state.PATH_BAD
    PATH_REVIVED = state.PATH_REVIVED
    PORT_DOWN = state.PORT_DOWN
    PORT_UP = state.PORT_UP
    QP_ERROR = state.QP_ERROR


@dataclass(frozen=True)
class WorkCompletion:
    """What became of a work request (`ibv_wc`). `byte_len` is that of the whole message."""

    wr_id: int
    status: Status
    opcode: Opcode
    qp_num: int
    byte_len: int
    imm_data: int | None


@dataclass(frozen=True)
class AsyncEvent:
    """Something that happened to a path, a port or a queue pair. `qp_num` 0: none in particular."""

    kind: EventKind
    at_us: float  # since the device was opened
    qp_num: int
    plane: int
    ev: int
    error: str


@dataclass(frozen=True)
class RemoteRegion:
    """Memory of a peer: where it begins, how long it is, and the key to it."""

    addr: int
    length: int
    rkey: int

    def check(self) -> None:
        """Raise `InputError`, which names the field, unless it can be a region of a peer."""
        for name, (least, most) in REGION_RANGES.items():
            _within(name, getattr(self, name), least, most, "region's ")
        if self.addr + self.length > 1 << 64:
            raise InputError(f"peer's region's length {self.length}: it ends behind all memory")


# What a peer's attributes may be, by name: least and most.
ATTRIBUTE_RANGES = {
    "nic": (0, (1 << 31) - 1),  # those of the fabric are counted apart
    "qp_num": (ENDPOINT_QPN + 1, (1 << 24) - 1),
    "psn": (0, (1 << 24) - 1),
    "pmtu": (PMTUS[0], PMTUS[-1]),
    "mpr": (1, MPR_MAX),
    "max_wimm": (1, MPR_MAX),
    "send_depth": (1, SEND_DEPTH_MAX),
}
REGION_RANGES = {"addr": (0, (1 << 64) - 1), "length": (0, 1 << 62), "rkey": (0, (1 << 32) - 1)}


@dataclass(frozen=True)
class QpAttributes:
    """What a peer must know to connect (MRC 1.7 to 1.9): sent by the application's own means, or by
    `openmrc.live.exchange`.
    """

    nic: int
    qp_num: int
    psn: int
    pmtu: int
    mpr: int  # packets that this end can track: MPR_DEST of the other
    max_wimm: int  # MAX_WIMM_DEST of the other
    send_depth: int
    trim_nack: bool = True

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def check(self) -> None:
        """Raise `InputError`, which names the field, unless a peer could have these attributes.

        None is believed as it comes: with an `mpr` of 0, nothing would ever be sent.
        """
        for name, (least, most) in ATTRIBUTE_RANGES.items():
            _within(name, getattr(self, name), least, most)
        if self.pmtu not in PMTUS:
            accepted = ", ".join(map(str, PMTUS))
            raise InputError(f"peer's pmtu {self.pmtu}: {accepted} are accepted (row 20)")
        if type(self.trim_nack) is not bool:
            raise InputError(f"peer's trim_nack {self.trim_nack!r}: true or false is accepted")


class MemoryRegion:
    """A registered buffer: any object with a writable buffer, zero copy (`ibv_mr`)."""

    def __init__(self, device: Device, buffer: Any, access: int) -> None:
        self._device = device
        self.buffer = buffer
        self.view = _writable(buffer)
        self.addr = int(self.view.__array_interface__["data"][0])
        self.length = self.view.nbytes
        self.access = access
        self.rkey = self.lkey = device._register(self)
        self.open = True

    @property
    def remote(self) -> RemoteRegion:
        """What a peer needs to write here."""
        return RemoteRegion(self.addr, self.length, self.rkey)

    def dereg(self) -> None:
        """Withdraw the keys; nothing is placed here afterwards."""
        if self.open:
            self.open = False
            self._device._unregister(self)


class CompletionQueue:
    """Completions in the order in which they came (`ibv_cq`)."""

    def __init__(self, device: Device, index: int, depth: int) -> None:
        self._device, self._index = device, index
        self.depth = depth
        self._ring = device._host.ep.cq[index]
        first = int(self._ring.cqe0)
        self._entries = device._host.ep.cqe[first : first + int(self._ring.mask) + 1]
        self.promised = 0  # completions that posted requests may still bring, and unread ones

    def fileno(self) -> int:
        """A descriptor that is readable when completions have come; `poll` clears it."""
        return int(self._ring.fd)

    def poll(self, n: int = 64) -> list[WorkCompletion]:
        """Take up to `n` completions; an empty list if there are none."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.fileno())
        ring = self._ring
        read = int(ring.read)
        ready = int(ring.written) - read
        taken = [self._entry(read + i) for i in range(min(n, ready))]
        ring.read = read + len(taken)
        self.promised -= len(taken)
        if ready > len(taken):
            os.eventfd_write(self.fileno(), 1)
        return taken

    def _entry(self, number: int) -> WorkCompletion:
        c = self._entries[number & int(self._ring.mask)]
        return WorkCompletion(
            int(c.wr_id),
            Status(int(c.status)),
            Opcode(int(c.kind)),
            int(c.qpn),
            int(c.length),
            int(c.imm) if c.with_imm and c.kind == state.RECV_RDMA_WITH_IMM else None,
        )

    def wait(self, n: int = 1, timeout: float | None = None) -> list[WorkCompletion]:
        """Wait until `n` completions are there and take them; fewer after `timeout` seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        taken = self.poll(n)
        while len(taken) < n:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                break
            ready, _, _ = select.select([self.fileno()], [], [], left)
            if not ready:
                break
            taken += self.poll(n - len(taken))
        return taken

    async def get(self) -> WorkCompletion:
        """Wait for one completion within an asyncio loop."""
        running = asyncio.get_running_loop()
        while True:
            if taken := self.poll(1):
                return taken[0]
            readable = running.create_future()
            running.add_reader(self.fileno(), _resolve, readable)
            try:
                await readable
            finally:
                running.remove_reader(self.fileno())

    async def __aiter__(self) -> AsyncIterator[WorkCompletion]:
        """Completions for as long as one asks."""
        while True:
            yield await self.get()


class QueuePair:
    """One end of a connection (`ibv_qp`)."""

    def __init__(
        self,
        device: Device,
        index: int,
        send_cq: CompletionQueue,
        recv_cq: CompletionQueue,
        max_send_wr: int,
        max_recv_wr: int,
    ) -> None:
        self.device, self.index = device, index
        self.send_cq, self.recv_cq = send_cq, recv_cq
        self.max_send_wr, self.max_recv_wr = max_send_wr, max_recv_wr
        host = device._host
        self._host, self._q, self._live = host, host.st.qp[index], host.ep.qp[index]
        self.qp_num = int(self._q.qpn)
        self._born = int(self._live.born)
        self._sent = self._received = 0
        self._destroyed = False

    @property
    def state(self) -> QpState:
        """Where in its life the queue pair is."""
        return QpState(int(self._q.state))

    @property
    def error(self) -> str:
        """Why it is in ERROR, or ""."""
        return es.ERROR_TEXTS[int(self._q.error)] if self._q.error else ""

    @property
    def attributes(self) -> QpAttributes:
        """What the peer must know."""
        host = self._host
        return QpAttributes(
            nic=host.nic,
            qp_num=self.qp_num,
            psn=int(self._q.first_psn),
            pmtu=host.pmtu,
            mpr=host.limits.mpr,
            max_wimm=host.limits.max_wimm,
            send_depth=host.limits.send_depth,
            trim_nack=host.limits.trimming,
        )

    def modify(self, to: QpState, remote: QpAttributes | None = None) -> None:
        """Go to the next state: RESET -> INIT -> RTR (needs `remote`) -> RTS; or to ERROR.

        Going to ERROR flushes what is outstanding.
        """
        now = self.state
        if to == QpState.ERROR:
            self._host.call(self._fail)
            return
        if (int(now), int(to)) not in ((0, 1), (1, 2), (2, 3)):
            raise OpenMrcError(f"QP {self.qp_num:#x}: {now.name} -> {to.name} is no step")
        if to == QpState.RTR:
            if remote is None:
                raise OpenMrcError(f"QP {self.qp_num:#x}: RTR needs the peer's attributes")
            self._check(remote)
            self._remote = remote
        if to == QpState.RTS:
            r = self._remote
            self._host.call(
                lambda: self._host.open_qp(self.index, r.nic, r.qp_num, r.psn, r.mpr, r.max_wimm)
            )
            return
        self._host.call(lambda: self._set_state(to))

    def connect(self, remote: QpAttributes) -> None:
        """All steps to RTS that are left. Receives may be posted from INIT on, before the peer can
        send.
        """
        for to in (QpState.INIT, QpState.RTR, QpState.RTS):
            if to > self.state:
                self.modify(to, remote)

    def _check(self, remote: QpAttributes) -> None:
        host = self._host
        remote.check()
        if not 0 <= remote.nic < host.fabric.n_nics or remote.nic == host.nic:
            raise InputError(
                f"peer's nic {remote.nic}: another of 0 to {host.fabric.n_nics - 1} is accepted"
            )
        if remote.pmtu < host.pmtu:  # row 20: the smaller one is used
            host.call(lambda: host.lower_pmtu(remote.pmtu))
        if remote.send_depth > host.limits.send_depth:
            raise InputError(
                f"peer's send_depth is {remote.send_depth}, this device tracks"
                f" {host.limits.send_depth}: open both with the same"
            )

    def _set_state(self, to: QpState) -> None:
        self._q.state = int(to)

    def _fail(self) -> None:
        self._host.end_qp(self.index)

    def measure_rtt(self) -> float | None:
        """Measure the idle round trip to the peer, whose end must be connected too: every time
        constant follows it. In us; None if nothing came back. `exchange` does this.
        """
        rtt = self._host.measure(int(self._q.peer_nic))
        return None if rtt is None else rtt / 1e6

    def check_path_mtu(self) -> None:
        """Ask paths of every plane that is up whether they carry full packets (row 20), before the
        first request is posted; the peer's end must be connected too. `exchange` does this, unless
        the device was opened with `check_mtu=False`.

        `OpenMrcError`, with the remedy, names the planes that carry only small ones; a plane that
        carries nothing at all is no question of its MTU.
        """
        if self.state != QpState.RTS or self._q.nxt > 0:
            raise OpenMrcError(
                f"QP {self.qp_num:#x} is in {self.state.name} and has sent {int(self._q.nxt)}"
                " packets: paths are asked after RTS, before the first request"
            )
        if narrow := path_mtu.narrow(self._host, self.index):
            raise OpenMrcError(path_mtu.remedy(narrow, self._host.pmtu))

    def post_write(
        self,
        wr_id: int,
        mr: MemoryRegion,
        offset: int = 0,
        length: int | None = None,
        *,
        remote_addr: int,
        rkey: int,
        signaled: bool = True,
    ) -> None:
        """Write `length` bytes of `mr` from `offset` on to the peer's memory (`IBV_WR_RDMA_WRITE`).

        `mr` must not change before the completion. `OpenMrcError` if the queue is full (ENOMEM).
        """
        self._send(state.POST_WRITE, wr_id, mr, offset, length, remote_addr, rkey, 0, signaled)

    def post_write_imm(
        self,
        wr_id: int,
        mr: MemoryRegion,
        offset: int = 0,
        length: int | None = None,
        *,
        remote_addr: int,
        rkey: int,
        imm_data: int,
        signaled: bool = True,
    ) -> None:
        """Write, and complete a receive of the peer with `imm_data` (32 bits)."""
        kind = state.POST_WRITE_IMM
        self._send(kind, wr_id, mr, offset, length, remote_addr, rkey, imm_data, signaled)

    def _send(
        self,
        kind: int,
        wr_id: int,
        mr: MemoryRegion,
        offset: int,
        length: int | None,
        remote_addr: int,
        rkey: int,
        imm: int,
        signaled: bool,
    ) -> None:
        length = mr.length - offset if length is None else length
        if offset < 0 or length < 0 or offset + length > mr.length or not mr.open:
            raise InputError(
                f"{length} bytes from {offset} on: the region has {mr.length if mr.open else 0}"
            )
        if self._q.state in (es.RESET, es.INIT, es.RTR):
            raise OpenMrcError(f"QP {self.qp_num:#x} is in {self.state.name}: connect it first")
        if self._sent - int(self._q.msg_done) >= self.max_send_wr:
            raise QueueFullError(f"QP {self.qp_num:#x}: {self.max_send_wr} requests are posted")
        self._promise(self.send_cq)
        self._sent += 1
        self._host.post(
            (
                wr_id,
                mr.addr + offset,
                length,
                remote_addr,
                rkey,
                imm,
                self.index,
                self._born,
                kind,
                int(signaled),
            )
        )

    def post_recv(self, wr_id: int) -> None:
        """Be ready for one immediate (MRC 1.2: there is no second chance for one that is not)."""
        if self._destroyed or self._q.state == es.RESET:
            raise OpenMrcError(f"QP {self.qp_num:#x} is in RESET")
        if self._received - int(self._live.recv_head) >= self.max_recv_wr:
            raise QueueFullError(f"QP {self.qp_num:#x}: {self.max_recv_wr} receives are posted")
        self._promise(self.recv_cq)
        self._received += 1
        kind = state.POST_RECV
        self._host.post((wr_id, 0, 0, 0, 0, 0, self.index, self._born, kind, 1))

    def _promise(self, cq: CompletionQueue) -> None:
        if cq.promised - int(cq._ring.silent) >= cq.depth:
            raise QueueFullError(
                f"completion queue: {cq.depth} completions may come; poll, or make it deeper"
            )
        cq.promised += 1

    def counters(self) -> dict[str, int]:
        """Packets and payload bytes sent and received, retransmissions, and the paths' history."""
        q, live = self._q, self._live
        names = ("n_rtx", "n_dup", "n_sack", "n_nack", "n_probe", "n_false", "n_inferred")
        own = {name.removeprefix("n_"): int(q[name]) for name in names}
        return {
            **{key: int(live[key]) for key in ("tx_packets", "tx_bytes", "rx_packets", "rx_bytes")},
            **own,
            "timeouts": int(q.n_timeouts),
            "paths_bad": int(q.n_bad_total),
            "paths_revived": int(q.n_revived),
            "paths_skipped": int(q.n_skips),
            "cwnd_bytes": int(q.cwnd),
            "inflight_bytes": int(q.inflight),
        }

    def evs(self) -> list[dict[str, Any]]:
        """Each path: its EV, plane, state, whether it is in the rotation, packets sent on it."""
        host, q, names = self._host, self._q, ev_states()
        first, n = int(q.ev0), int(q.n_evs)
        return [
            {
                "ev": int(e.value),
                "plane": int(e.plane),
                "state": names[int(e.state)],
                "active": bool(e.active),
                "packets": int(host.ep.ev_count[first + i]),
            }
            for i, e in enumerate(host.st.ev[first : first + n])
        ]

    def destroy(self) -> None:
        """Flush what is outstanding and give the queue pair back; its number rests (row 28)."""
        if not self._destroyed:
            self._destroyed = True
            self._host.call(self._give_back)
            self.device._forget(self)

    def _give_back(self) -> None:
        self._fail()
        self._host.drop_qp(self.index)


class QueueFullError(OpenMrcError):
    """A queue has no room for another request (ENOMEM of ibverbs)."""


class Device(Closing):
    """One NIC: a port per plane, an engine, and a thread that never waits for Python."""

    def __init__(
        self,
        fabric: Fabric,
        nic: int,
        ports: Sequence[Port],
        limits: Limits | None = None,
        base_rtt_ps: int | None = None,
        mode: int = state.NATIVE,
    ) -> None:
        if not jit.is_cached("live"):
            print("openmrc: compiling live endpoints, once, in about a minute", file=sys.stderr)
            jit.warm_up(lambda what, step, steps: None, "live")
        self._host = Host(fabric, nic, ports, limits or Limits(), base_rtt_ps, mode)
        self._regions: dict[int, MemoryRegion] = {}
        self._qps: list[QueuePair] = []
        self._n_cqs = 0
        self._cq_fds: list[int] = []
        self._owned_fds: list[int] = []
        self._host.start()

    @classmethod
    def open(cls, path: str | os.PathLike[str] | None = None, **limits: Any) -> Device:
        """Open the device that a host file describes (default: `$OPENMRC_HOST`)."""
        from openmrc import hostfile  # it reads scenario tables, which stand above

        return hostfile.open_device(path, **limits)

    @property
    def nic(self) -> int:
        """Its number in the fabric."""
        return self._host.nic

    @property
    def n_planes(self) -> int:
        """How many ports it has."""
        return self._host.fabric.n_planes

    @property
    def pmtu(self) -> int:
        """Payload of a full packet, bytes."""
        return self._host.pmtu

    @property
    def pmtu_note(self) -> str:
        """Why `pmtu` is less than was asked for, in one line (row 20); "" if it is not."""
        return self._host.pmtu_note

    @property
    def check_mtu(self) -> bool:
        """Whether `exchange` asks if paths carry full packets (`QueuePair.check_path_mtu`)."""
        return self._host.limits.check_mtu

    @property
    def queue_pairs(self) -> list[QueuePair]:
        """Those that were created and not destroyed."""
        return list(self._qps)

    @property
    def base_rtt_us(self) -> float:
        """The round trip that every time constant follows (T of reference 4.6)."""
        return self._host.base_rtt_ps / 1e6

    def reg_mr(self, buffer: Any, access: int = LOCAL_WRITE | REMOTE_WRITE) -> MemoryRegion:
        """Register a writable buffer: NumPy, bytearray, mmap, a CPU tensor, shared memory."""
        return MemoryRegion(self, buffer, access)

    def _register(self, mr: MemoryRegion) -> int:
        return self._host.call(lambda: self._place_region(mr))

    def _place_region(self, mr: MemoryRegion) -> int:
        import secrets

        table = self._host.st.region
        most = self._host.limits.regions
        if len(self._regions) >= most:
            raise OpenMrcError(f"no memory region left: the device has {most}")
        while (i := secrets.randbelow(len(table))) in self._regions:
            pass
        self._regions[i] = mr
        key = secrets.randbits(32 - es.REGION_INDEX_BITS) << es.REGION_INDEX_BITS | i
        r = table[i]
        r.va, r.length, r.rkey = mr.addr, mr.length, key
        r.nic = self._host.nic if mr.access & REMOTE_WRITE else -1
        self._host.ep.region[i] = mr.addr
        return key

    def _unregister(self, mr: MemoryRegion) -> None:
        def withdraw() -> None:
            i = mr.rkey & ((1 << es.REGION_INDEX_BITS) - 1)
            self._host.st.region[i].nic = -1
            self._host.st.region[i].length = 0
            del self._regions[i]

        if not self._host.closed:
            self._host.call(withdraw)

    def create_cq(self, depth: int | None = None) -> CompletionQueue:
        """A completion queue with room for `depth` completions, or for as many as there may be."""
        limits, cqs = self._host.limits, self._host.ep.cq
        depth = limits.cq_depth if depth is None else depth
        if not 1 <= depth <= limits.cq_depth:
            raise InputError(f"depth {depth}: 1 to {limits.cq_depth} are accepted")
        if self._n_cqs == len(cqs):
            raise OpenMrcError(f"no completion queue left: the device has {len(cqs)}")
        index = self._n_cqs
        self._n_cqs += 1
        ring = 1 << max(depth - 1, 1).bit_length()
        fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._cq_fds.append(fd)

        def place() -> None:
            c = cqs[index]
            c.cqe0 = index * (len(self._host.ep.cqe) // len(cqs))
            c.mask, c.fd = ring - 1, fd

        self._host.call(place)
        return CompletionQueue(self, index, depth)

    def create_qp(
        self,
        send_cq: CompletionQueue,
        recv_cq: CompletionQueue | None = None,
        max_send_wr: int = 128,
        max_recv_wr: int = 128,
    ) -> QueuePair:
        """A queue pair in RESET."""
        limits = self._host.limits
        for name, value, most in (
            ("max_send_wr", max_send_wr, limits.send_depth),
            ("max_recv_wr", max_recv_wr, limits.receive_depth),
        ):
            if not 1 <= value <= most:
                raise InputError(f"{name} {value}: 1 to {most} are accepted")
        recv_cq = recv_cq or send_cq
        index = self._host.call(lambda: self._host.new_qp(send_cq._index, recv_cq._index))
        qp = QueuePair(self, index, send_cq, recv_cq, max_send_wr, max_recv_wr)
        self._qps.append(qp)
        return qp

    def _forget(self, qp: QueuePair) -> None:
        self._qps.remove(qp)

    def adopt(self, descriptors: Sequence[int]) -> None:
        """Close these with the device."""
        self._owned_fds += descriptors

    def event_fileno(self) -> int:
        """A descriptor that is readable when events have come; `events` clears it."""
        return int(self._host.ep.ctl[0].event_fd)

    def events(self, timeout: float | None = 0.0) -> list[AsyncEvent]:
        """Take the asynchronous events, waiting up to `timeout` seconds for the first one."""
        if not (taken := list(self._take_events())):
            ready, _, _ = select.select([self.event_fileno()], [], [], timeout)
            taken = list(self._take_events()) if ready else []
        return taken

    def _take_events(self) -> Iterator[AsyncEvent]:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.event_fileno())
        ctl, ring = self._host.ep.ctl[0], self._host.ep.event
        while ctl.events_read < ctl.events:
            e = ring[int(ctl.events_read) % len(ring)]
            text = es.ERROR_TEXTS[int(e.error)] if e.error else ""
            kind = EventKind(int(e.kind))
            yield AsyncEvent(kind, int(e.at) / 1e6, int(e.qpn), int(e.plane), int(e.ev), text)
            ctl.events_read += 1

    def set_port(self, plane: int, up: bool) -> None:
        """Say that a port went down or came up, where the kernel cannot know."""
        self._host.call(lambda: self._host.apply_port(plane, up))

    def counters(self) -> dict[str, Any]:
        """Of each port (frames, bytes, refusals by reason), and of the loop."""
        ep = self._host.ep
        names = (*REASONS, *state.REASON_NAMES)
        fields = ("rx_packets", "rx_bytes", "tx_packets", "tx_bytes", "tx_lost", "blocked")
        ports = []
        for plane in range(self.n_planes):
            refused = {n: int(k) for n, k in zip(names, ep.reason[plane], strict=True) if k}
            port = {key: int(ep.port[plane][key]) for key in fields}
            ports.append({**port, "refused": refused})
        ctl = ep.ctl[0]
        up = int(self._host.st.nic[self.nic].up_mask)
        return {
            "ports": [{"up": bool(up >> p & 1), **port} for p, port in enumerate(ports)],
            "loops": int(ctl.loops),
            "sleeps": int(ctl.sleeps),
            "events_lost": int(ctl.events_lost),
        }

    def close(self) -> None:
        """Flush every queue pair and stop."""
        if self._host.closed:
            return
        for qp in list(self._qps):
            with contextlib.suppress(OpenMrcError):  # of a loop that has ended all are flushed
                qp.destroy()
        self._host.close()
        for fd in (*self._cq_fds, *self._owned_fds):
            os.close(fd)
        self._cq_fds, self._owned_fds = [], []


def _within(name: str, value: Any, least: int, most: int, of: str = "") -> None:
    if type(value) is not int or not least <= value <= most:
        raise InputError(f"peer's {of}{name} {value!r}: {least} to {most} is accepted")


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


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
