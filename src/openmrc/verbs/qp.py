"""One end of a connection: its life, its requests, its counters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from openmrc.engine import ev, observe, place, setup
from openmrc.engine import qp as life
from openmrc.engine import state as es
from openmrc.engine.packet import PENALTY_MAX
from openmrc.engine.parameters import PMTUS
from openmrc.errors import InputError, OpenMrcError
from openmrc.fabric.model import LongArray
from openmrc.jit.bound import column
from openmrc.live.endpoint import path_mtu, state
from openmrc.live.endpoint.control import DRAWN, Paths
from openmrc.live.endpoint.host import Host
from openmrc.verbs.attributes import QpAttributes
from openmrc.verbs.cq import CompletionQueue, QueueFullError
from openmrc.verbs.region import MemoryRegion
from openmrc.verbs.status import QpState


class Owner(Protocol):
    """What a queue pair needs of the device that created it."""

    _host: Host
    check_mtu: bool  # whether paths are tested for full packets

    @property
    def pmtu(self) -> int:
        """Payload of a full packet, bytes."""

    def _forget(self, qp: QueuePair) -> None: ...


# Counters that have the engine's names.
COUNTED = ("rtx", "dup", "sack", "nack", "probe", "trial", "false", "inferred", "timeouts")
UNCONNECTED = (es.RESET, es.INIT, es.RTR)


class Measured(NamedTuple):
    """The idle round trip to a peer, us (None: nothing came back), and the planes that
    answered.
    """

    rtt_us: float | None
    planes: list[int]


class QueuePair:
    """One end of a connection (`ibv_qp`)."""

    def __init__(
        self,
        device: Owner,
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
        qps, lives = host.st.qp[index : index + 1], host.ep.qp[index : index + 1]
        self._state, self._msg_done = column(qps, "state"), column(qps, "msg_done")
        self._recv_head = column(lives, "recv_head")
        self._sent = self._received = 0
        self._paths = DRAWN
        self._nscc = 0
        self._destroyed = False

    @property
    def state(self) -> QpState:
        """The state of the queue pair (MRC 1.7)."""
        return QpState(self._state[0])

    @property
    def peer(self) -> int:
        """The peer's NIC; on an ordinary network the number that this host gives it."""
        return int(self._q.peer_nic)

    @property
    def rtt_us(self) -> float:
        """The round trip as congestion control knows it, us: the base and a smoothed delay."""
        return observe.rtt_ps(self._q) / 1e6

    @property
    def error(self) -> str:
        """Why it is in ERROR, or ""."""
        return observe.error_text(self._q)

    @property
    def attributes(self) -> QpAttributes:
        """The attributes that the peer needs."""
        host = self._host
        return QpAttributes(
            nic=host.nic,
            qp_num=self.qp_num,
            psn=int(self._q.first_psn),
            pmtu=host.sizes.stated,
            pmtu_offered=host.sizes.offered,
            mpr=host.limits.mpr,
            max_wimm=host.limits.max_wimm,
            send_depth=host.limits.send_depth,
            trim_nack=host.limits.trimming and host.limits.trim_nack,
            dynamic_mpr=host.limits.dynamic_mpr,
            planes=host.reach,
        )

    def set_first_psn(self, psn: int) -> None:
        """Begin at this PSN instead of a random one; the peer must be told."""
        self._check_unused()
        if not 0 <= psn < 1 << 24:
            raise InputError(f"first PSN {psn}: 0 to {(1 << 24) - 1} is accepted")
        setup.identify(self._q, first_psn=psn)

    def begin_with(self, paths: Paths, nscc: int) -> None:
        """Connect with these paths, and a record of NSCC of the device (0: derived values)."""
        self._paths, self._nscc = paths, nscc

    def limit(self, mpr: int, max_wimm: int) -> None:
        """Lower the limits of packets and of immediates in flight, if they are above these."""
        self._check_unused()
        host = self._host
        host.call(lambda: setup.limit(host.st, self.index, mpr, max_wimm))

    def _check_unused(self) -> None:
        if self._q.nxt > 0:
            raise OpenMrcError(f"QP {self.qp_num:#x}: it has sent")

    def modify(self, to: QpState, remote: QpAttributes | None = None) -> None:
        """Go to the next state: RESET -> INIT -> RTR (needs `remote`) -> RTS; or to ERROR.

        Going to ERROR flushes what is outstanding.
        """
        now = self.state
        if to == QpState.ERROR:
            self._host.call(self._fail)
            return
        if to not in life.STEPS[now]:
            raise OpenMrcError(f"QP {self.qp_num:#x}: {now.name} -> {to.name} is no step")
        if to == QpState.RTR:
            if remote is None:
                raise OpenMrcError(f"QP {self.qp_num:#x}: RTR needs the peer's attributes")
            self._check(remote)
            self._remote = remote
        if to == QpState.RTS:
            self._host.call(self._open)
            return
        self._host.call(lambda: life.step(self._q, to))

    def connect(self, remote: QpAttributes) -> None:
        """Take all remaining steps to RTS. Receives may be posted from INIT on, before the peer can
        send.
        """
        for to in (QpState.INIT, QpState.RTR, QpState.RTS):
            if to > self.state:
                self.modify(to, remote)

    def _check(self, remote: QpAttributes) -> None:
        host = self._host
        remote.check()
        if bool(remote.planes) != (host.mode == state.IP):
            raise InputError(
                "the peer's device is one of plain UDP, this one is not, or the other way round:"
                " open both in the same mode"
            )
        if host.mode == state.IP:
            host.peers.check(remote.planes)
        elif not 0 <= remote.nic < host.fabric.n_nics or remote.nic == host.nic:
            raise InputError(
                f"peer's nic {remote.nic}: another of 0 to {host.fabric.n_nics - 1} is accepted"
            )
        self.agree_pmtu(remote)
        if remote.send_depth > host.limits.send_depth:
            raise InputError(
                f"peer's send_depth is {remote.send_depth}, this device tracks"
                f" {host.limits.send_depth}: open both with the same"
            )

    def agree_pmtu(self, remote: QpAttributes) -> None:
        """The smaller PMTU of both ends is that of the device (row 20). `connect` does this; a
        device with several peers agrees with all before it connects to one, because a queue pair in
        RTS holds it.
        """
        host = self._host
        size = host.sizes.agreed(remote.pmtu, remote.pmtu_offered)
        if size < host.pmtu:
            host.call(lambda: host.lower_pmtu(size, "the peer", ()))

    def _open(self) -> None:
        r, host = self._remote, self._host
        nic = host.number_of(r.planes) if r.planes else r.nic
        host.open_qp(
            self.index, nic, r.qp_num, r.psn, r.mpr, r.max_wimm, r.trim_nack, r.dynamic_mpr,
            self._paths, self._nscc,
        )  # fmt: skip

    def _fail(self) -> None:
        self._host.end_qp(self.index)

    def set_penalty(self, level: int) -> None:
        """As a receiver, ask the peer in every SACK to give up `level` / 128 of its window per
        round trip (MRC 4.8), 1 to 127; 0, as at the start, ends that, and the peer restores it.
        """
        if not 0 <= level <= PENALTY_MAX:
            raise InputError(f"penalty: {level}; 0 to {PENALTY_MAX} are accepted")
        self._host.call(lambda: setup.set_penalty(self._host.st, self.index, level))

    def measure_rtt(self) -> float | None:
        """Measure the idle round trip to the peer, whose end must be connected too: every time
        constant follows it. In us; None if nothing came back. `exchange` does this.
        """
        return self.measure().rtt_us

    def measure(self) -> Measured:
        """The same, and which planes answered."""
        rtt, planes = self._host.measure(int(self._q.peer_nic))
        return Measured(None if rtt is None else rtt / 1e6, planes)

    def check_path_mtu(self, among: Sequence[QueuePair] = ()) -> None:
        """Test whether paths of every plane that is up carry full packets (row 20), before the
        first request is posted; the peer's end must be connected too. `exchange` does this, unless
        the device was opened with `check_mtu=False`.

        Where packets that fill the MTU do not pass, the device's PMTU becomes one of the four that
        any peer can use: then the peers must be told `device.pmtu`, and call `lower_pmtu`.
        `OpenMrcError`, with the remedy, names the planes that carry only small ones; a plane that
        carries nothing at all says nothing about its MTU.
        """
        if self.state != QpState.RTS or self._q.nxt > 0:
            raise OpenMrcError(
                f"QP {self.qp_num:#x} is in {self.state.name} and has sent {int(self._q.nxt)}"
                " packets: paths are asked after RTS, before the first request"
            )
        narrow = path_mtu.narrow(self._host, self.index)
        if narrow and self._host.sizes.fills:
            self.lower_pmtu(self._host.sizes.stated, among)
            narrow = path_mtu.narrow(self._host, self.index)
        if narrow:
            raise OpenMrcError(path_mtu.remedy(narrow, self._host))

    def lower_pmtu(self, size: int, among: Sequence[QueuePair] = ()) -> None:
        """Full packets of the device carry `size` bytes from now on, if they carried more: a path
        to the peer has room for no more. The other ends of this queue pair and of those `among` it
        do the same; none of them has sent or received anything, and the device has no others in
        RTS, else `OpenMrcError`.
        """
        host = self._host
        if size < PMTUS[0]:
            raise InputError(f"pmtu {size}: {PMTUS[0]} and more are accepted")
        if size < host.pmtu:
            together = [self.index, *(qp.index for qp in among)]
            host.call(lambda: host.lower_pmtu(size, "a path", together))

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
        if self._state[0] in UNCONNECTED:
            raise OpenMrcError(f"QP {self.qp_num:#x} is in {self.state.name}: connect it first")
        if self._sent - self._msg_done[0] >= self.max_send_wr:
            raise QueueFullError(f"QP {self.qp_num:#x}: {self.max_send_wr} requests are posted")
        self._promise(self.send_cq)
        self._sent += 1
        mr.last[self] = self._sent
        there = (mr.addr + offset, length, remote_addr, rkey, imm)
        self._host.post((wr_id, *there, self.index, self._born, kind, signaled))

    @property
    def outstanding(self) -> int:
        """Requests that were posted, and that the peer has not acknowledged yet."""
        return int(self._sent - self._msg_done[0])

    @property
    def packets_heard(self) -> int:
        """Packets that have arrived from the peer, so far; one read of memory."""
        return int(self._live.rx_packets)

    def has_completed(self, number: int) -> bool:
        """Whether nothing is read any more for the first `number` requests that were posted."""
        if self._destroyed or self._host.closed or self._state[0] == es.ERROR:
            return True
        return self._msg_done[0] >= number

    def post_recv(self, wr_id: int) -> None:
        """Post a receive for one immediate, which must not arrive before it (MRC 1.2)."""
        if self._destroyed or self._state[0] == es.RESET:
            raise OpenMrcError(f"QP {self.qp_num:#x} is in RESET")
        if self._received - self._recv_head[0] >= self.max_recv_wr:
            raise QueueFullError(f"QP {self.qp_num:#x}: {self.max_recv_wr} receives are posted")
        self._promise(self.recv_cq)
        self._received += 1
        self._host.post((wr_id, 0, 0, 0, 0, 0, self.index, self._born, state.POST_RECV, 1))
        if self._state[0] == es.ERROR:
            self._host.push()  # nothing will arrive any more: it is flushed now

    def _promise(self, cq: CompletionQueue) -> None:
        if cq.promised - cq.silent[0] >= cq.depth:
            raise QueueFullError(
                f"completion queue: {cq.depth} completions may come; poll, or make it deeper"
            )
        cq.promised += 1

    def counters(self) -> dict[str, int]:
        """Packets and payload bytes sent and received, retransmissions, and the paths' history."""
        q, live = self._q, self._live
        counts = {name: int(n) for name, n in observe.counters(q).items()}
        return {
            **{key: int(live[key]) for key in ("tx_packets", "tx_bytes", "rx_packets", "rx_bytes")},
            **{name: counts[name] for name in COUNTED},
            "paths_bad": counts["bad_total"],
            "paths_revived": counts["revived"],
            "paths_skipped": counts["skips"],
            "cwnd_bytes": int(q.cwnd),
            "inflight_bytes": int(q.inflight),
        }

    def evs(self) -> list[dict[str, Any]]:
        """Each path: its EV, plane, state, whether it is in the rotation, packets sent on it, and
        `narrow_bytes`: the payload of the smallest packet that it loses although it passes smaller
        ones, as if its MTU were too small; else 0. The evidence for that is `narrow`, how often in
        a row it passed a small packet and lost one of `lost_bytes` or more, and against it whether
        it was `blamed` for a loss and then delivered as large a packet: `lost_bytes` is 0.

        A path that the endpoint's thread is adding or removing at this moment is left out.
        """
        host, own = self._host, place.evs(self._q)
        blames = host.st.blame[host.st.ev["blame"][own]]
        return [
            {
                "ev": int(e.value),
                "plane": int(e.plane),
                "state": name,
                "active": bool(e.active),
                "packets": int(packets),
                "narrow_bytes": int(ev.narrow_bytes(blame)),
                "narrow": int(blame["narrow"]),
                "lost_bytes": max(int(blame["lost"]), 0),
                "blamed": bool(e.blame),
            }
            for e, blame, packets in zip(
                host.st.ev[own], blames, host.ep.ev_count[own], strict=True
            )
            if (name := ev.EV_STATES.get(int(e.state)))
        ]

    def path_counts(self) -> tuple[LongArray, LongArray]:
        """Return the EV of each path, and [2, paths] packets put on it, and those answered so far:
        the latter where the device keeps an account.
        """
        st, own = self._host.st, place.evs(self._q)
        answered = st.tally[own].sum(axis=1)
        values, used = (np.asarray(st.ev[name][own], np.int64) for name in ("value", "used"))
        return values, np.stack([used, answered])

    def destroy(self) -> None:
        """Flush outstanding requests and release the queue pair; its number is not reused soon (row
        28).
        """
        self._host.check_own()
        if not self._destroyed:
            self._destroyed = True
            self.device._forget(self)  # while it still has its counters
            self._host.call(self._give_back)

    def _give_back(self) -> None:
        self._fail()
        self._host.drop_qp(self.index)
