"""One NIC, opened: it creates regions, completion queues and queue pairs."""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Sequence
from typing import Any

import numpy as np

from openmrc.engine import account, endpoint
from openmrc.engine.parameters import RTO_UNIT_PS
from openmrc.errors import InputError, OpenMrcError
from openmrc.fabric.model import Fabric, LongArray
from openmrc.jit.warmup import announcement, is_cached
from openmrc.live.closing import Closing
from openmrc.live.endpoint import state
from openmrc.live.endpoint.host import Host
from openmrc.live.endpoint.limits import Limits, Port
from openmrc.live.endpoint.warmup import warm_up
from openmrc.live.syscalls import PS_PER_NS
from openmrc.say import say
from openmrc.verbs import advised, events, hostfile, network
from openmrc.verbs.cq import CompletionQueue
from openmrc.verbs.events import AsyncEvent
from openmrc.verbs.qp import QueuePair
from openmrc.verbs.region import LOCAL_WRITE, REMOTE_WRITE, MemoryRegion, Regions
from openmrc.verbs.status import QpState
from openmrc.verbs.tally import Sums, Tally
from openmrc.wire import layout
from openmrc.wire.frame import REASONS
from openmrc.wire.framing import probe_bytes

MODE_NAMES = {state.NATIVE: "native", state.UDP: "udp", state.IP: "ip"}


class Device(Closing):
    """One NIC: a port per plane, an engine, and a thread that never waits for Python.

    `nic` is its number in the fabric, `n_planes` how many ports it has. With `check_mtu`,
    `exchange` tests whether paths carry full packets (`QueuePair.check_path_mtu`).
    """

    def __init__(
        self,
        fabric: Fabric,
        nic: int,
        ports: Sequence[Port],
        limits: Limits | None = None,
        base_rtt_ps: int | None = None,
        mode: int = state.NATIVE,
    ) -> None:
        if not is_cached("live"):
            say(announcement("live endpoints", "about a minute"))
            warm_up()
        self._host = Host(fabric, nic, ports, limits or Limits(), base_rtt_ps, mode)
        self.nic, self.n_planes = nic, fabric.n_planes
        self.check_mtu = self._host.limits.check_mtu
        self._regions = Regions(self._host)
        self._qps: list[QueuePair] = []
        self._tally = Tally()
        self._n_cqs = 0  # created so far, including destroyed ones
        self._free_cqs: list[int] = []
        self._cq_fds: list[int] = []
        self._owned_fds: list[int] = []
        self._follower: advised.Follower | None = None
        self._host.start()

    @classmethod
    def open(cls, path: str | os.PathLike[str] | None = None, **limits: Any) -> Device:
        """Open the device that a host file describes (default: `$OPENMRC_HOST`); it follows the
        denylist at `$OPENMRC_DENYLIST`, if that is set.
        """
        with hostfile.attached(path, **limits) as at:
            device = cls(at.fabric, at.nic, at.ports, at.limits, at.base_rtt_ps, at.mode)
            device.adopt([one.detach() for one in at.sockets])
        if where := os.environ.get(advised.VARIABLE):
            try:
                device.follow(where, hostfile.secret(path))
            except BaseException:
                device.close()
                raise
        return device

    @classmethod
    def on_network(
        cls,
        planes: Sequence[str],
        *,
        port: int | None = None,
        rate_bps: int | None = None,
        base_rtt_ps: int | None = None,
        dscp: str = "",
        **limits: Any,
    ) -> Device:
        """Open a device on an ordinary network, by plain UDP: each plane is an interface, or an
        address, of this host.

        It listens on UDP port `port` of each (default: 4791, or the next that is free). `rate_bps`
        is the rate of a plane, if interfaces report none or one that is too high; `dscp` gives the
        network's DSCPs of classes that differ from the defaults: "control=48, trimmable=26".
        Packets fill the MTU, unless `pmtu` says how much they carry (row 20).
        """
        with network.attached(planes, port, rate_bps, base_rtt_ps, dscp, **limits) as at:
            device = cls(at.fabric, at.nic, at.ports, at.limits, at.base_rtt_ps, at.mode)
            device.adopt([one.detach() for one in at.sockets])
        return device

    @property
    def mode(self) -> str:
        """How it sends: "native", "udp" or "ip"."""
        return MODE_NAMES[self._host.mode]

    @property
    def probe_bytes(self) -> int:
        """The IP packet of a probe of a path, bytes."""
        if self._host.mode == state.NATIVE:
            return probe_bytes(layout.IPV6, layout.IPV6)
        is_ipv4 = any(":" not in plane.address for plane in self._host.reach)
        return probe_bytes(layout.IPV4 if is_ipv4 else layout.IPV6)

    @property
    def planes(self) -> list[str]:
        """The addresses of its planes on an ordinary network, else none."""
        return network.planes_of(self._host.reach)

    @property
    def pmtu(self) -> int:
        """Payload of a full packet, bytes."""
        return self._host.pmtu

    @property
    def pmtu_note(self) -> str:
        """Why `pmtu` is smaller than requested, in one line (row 20); "" if it is not."""
        return self._host.sizes.note

    @property
    def queue_pairs(self) -> list[QueuePair]:
        """Queue pairs that were created and not destroyed."""
        return list(self._qps)

    @property
    def base_rtt_us(self) -> float:
        """The base round trip, us, from which all time constants follow (T of MRC 4.6)."""
        return self._host.base_rtt_ps / 1e6

    def reg_mr(self, buffer: Any, access: int = LOCAL_WRITE | REMOTE_WRITE) -> MemoryRegion:
        """Register a writable buffer: NumPy, bytearray, mmap, a CPU tensor, shared memory."""
        return MemoryRegion(self._regions, buffer, access)

    def create_cq(self, depth: int | None = None) -> CompletionQueue:
        """A completion queue with room for `depth` completions, or for as many as there may be."""
        limits, cqs = self._host.limits, self._host.ep.cq
        depth = limits.cq_depth if depth is None else depth
        if not 1 <= depth <= limits.cq_depth:
            raise InputError(f"depth {depth}: 1 to {limits.cq_depth} are accepted")
        if self._free_cqs:
            index = self._free_cqs.pop()
        elif self._n_cqs == len(cqs):
            raise OpenMrcError(f"no completion queue left: the device has {len(cqs)}")
        else:
            index = self._n_cqs
            self._n_cqs += 1
        ring = 1 << max(depth - 1, 1).bit_length()
        fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._cq_fds.append(fd)

        def place() -> None:
            c = cqs[index]
            c.cqe0 = index * (len(self._host.ep.cqe) // len(cqs))
            c.mask, c.fd = ring - 1, fd
            c.written = c.read = c.told = c.silent = 0

        self._host.call(place)
        return CompletionQueue(self._host, index, depth)

    def destroy_cq(self, cq: CompletionQueue) -> None:
        """Release a completion queue with its completions; no queue pair may use it any more."""
        if any(cq in (qp.send_cq, qp.recv_cq) for qp in self._qps):
            raise OpenMrcError(f"completion queue {cq.index}: a queue pair uses it")
        fd = cq.fileno()
        self._cq_fds.remove(fd)

        def clear() -> None:
            self._host.ep.cq[cq.index].fd = -1

        self._host.call(clear)
        os.close(fd)
        self._free_cqs.append(cq.index)

    def create_qp(
        self,
        send_cq: CompletionQueue,
        recv_cq: CompletionQueue | None = None,
        max_send_wr: int = 128,
        max_recv_wr: int = 128,
    ) -> QueuePair:
        """Return a new queue pair in RESET."""
        limits = self._host.limits
        for name, value, most in (
            ("max_send_wr", max_send_wr, limits.send_depth),
            ("max_recv_wr", max_recv_wr, limits.receive_depth),
        ):
            if not 1 <= value <= most:
                raise InputError(f"{name} {value}: 1 to {most} are accepted")
        recv_cq = recv_cq or send_cq
        index = self._host.call(lambda: self._host.new_qp(send_cq.index, recv_cq.index))
        qp = QueuePair(self, index, send_cq, recv_cq, max_send_wr, max_recv_wr)
        self._qps.append(qp)
        return qp

    def _forget(self, qp: QueuePair) -> None:
        self._tally.retire(qp, self._qps.remove)

    def set_retries(self, rto_exponent: int, linear_cnt: int, exp_cnt: int) -> None:
        """Set the RTO, 1.024 us * 2^rto_exponent, and the number of RTOs that a queue pair waits
        (row 9). They hold for the whole device: raises `OpenMrcError` if a queue pair has already
        sent with other values.
        """
        st, ctl = self._host.st, self._host.ep.ctl[0]
        wanted = (RTO_UNIT_PS << rto_exponent, linear_cnt, exp_cnt)

        def place() -> None:
            c = st.config[0]
            if wanted == (int(c.rto_base_ps), int(c.linear_cnt), int(c.exp_cnt)):
                return
            connected = [qp for qp in self._qps if qp.state == QpState.RTS]
            if any(qp._q.nxt > 0 for qp in connected):
                raise OpenMrcError(
                    "retries are the device's, and a queue pair has sent with others"
                )
            c.rto_base_ps, c.linear_cnt, c.exp_cnt = wanted
            for qp in connected:
                endpoint.refresh_qp(st, qp._q, int(ctl.now))

        self._host.call(place)

    def adopt(self, descriptors: Sequence[int]) -> None:
        """Take over these file descriptors: they are closed with the device."""
        self._owned_fds += descriptors

    def event_fileno(self) -> int:
        """A descriptor that is readable when there are events; `events` clears it."""
        return int(self._host.ep.ctl[0].event_fd)

    def events(self, timeout: float | None = 0.0) -> list[AsyncEvent]:
        """Return the asynchronous events, waiting up to `timeout` seconds for the first one."""
        if not (taken := list(events.taken(self._host))):
            ready, _, _ = select.select([self.event_fileno()], [], [], timeout)
            taken = list(events.taken(self._host)) if ready else []
        return taken

    def set_port(self, plane: int, up: bool) -> None:
        """Report a port that went down or came up, if the kernel cannot know."""
        self._host.call(lambda: self._host.apply_port(plane, up))

    def enable_port(self, plane: int, enabled: bool) -> None:
        """Take a port down, or allow it again, whatever the state of its link; peers are told."""
        self._host.call(lambda: self._host.enable_port(plane, enabled))

    def keep_off(self, denied: LongArray) -> None:
        """Stop using paths across these directed ports of the fabric, and allow all others again,
        until the next call: an operator's advice (EV state DENIED, MRC 3.3). Packets in flight are
        not lost.
        """
        fabric = self.fabric
        if fabric is None:
            raise InputError("a device on an ordinary network knows no paths to keep off")
        denied = np.asarray(denied, np.int64)
        if len(denied) and not (denied.min() >= 0 and denied.max() < fabric.n_ports):
            raise InputError(f"keep_off: ports 0 to {fabric.n_ports - 1} are accepted")
        self._host.keep_off(denied)

    def follow(self, where: str, secret: bytes = b"") -> None:
        """Follow the denylist at `where`, a controller's address or a file, until the device is
        closed; `secret` is the job's. It replaces a denylist that was followed before.
        """
        if self._follower is not None:
            self._follower.close()
        self._follower = advised.Follower(self, where, secret)

    def counters(self) -> dict[str, Any]:
        """Return the counters of each port (frames, bytes, refusals by reason), and of the loop."""
        ep = self._host.ep
        names = (*REASONS, *state.REASON_NAMES)
        fields = (
            "rx_packets",
            "rx_bytes",
            "tx_packets",
            "tx_bytes",
            "tx_lost",
            "blocked",
            "unstamped",
        )
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

    def sums(self) -> Sums:
        """Sums over all queue pairs, including destroyed ones."""
        return self._tally.read(lambda: list(self._qps))

    def totals(self) -> dict[str, int]:
        """Return sums over all queue pairs, including destroyed ones: data packets sent,
        retransmissions, and how often a path was set aside.
        """
        found = self._tally.counters(lambda: list(self._qps))
        names = {"sent": "tx_packets", "again": "rtx", "set_aside": "paths_bad"}
        return {name: found[key] for name, key in names.items()}

    def account(self) -> tuple[Any, int]:
        """Return what the engine decided since the last call (`engine.account.RECORD`), at ps of
        CLOCK_MONOTONIC, and how many records are missing. A device keeps it if its limits have room
        for an `account`.
        """
        found, missing = self._host.between(lambda: account.take(self._host.st))
        for when in ("at", "sent_at"):
            found[when] += int(self._host.ep.ctl[0].started_ns) * PS_PER_NS
        return found, missing

    @property
    def fabric(self) -> Fabric | None:
        """The fabric of its paths; `None` on an ordinary network."""
        return None if self._host.mode == state.IP else self._host.fabric

    def close(self) -> None:
        """Flush every queue pair and stop. A child of fork only closes its descriptors."""
        if self._host.closed:
            return
        if not self._host.inherited:
            if self._follower is not None:
                self._follower.close()
            for qp in list(self._qps):
                with contextlib.suppress(OpenMrcError):  # if the loop has failed, all are flushed
                    qp.destroy()
        self._host.close()
        for fd in (*self._cq_fds, *self._owned_fds):
            os.close(fd)
        self._cq_fds, self._owned_fds = [], []
