"""A live endpoint: its state, its thread, and what is changed between two rounds of its loop.

Only the holder of the loop's lock touches the engine's state: the endpoint's thread, a thread that
posts, or one that waits (`loop`). Everything else that must (`call`) is run by the endpoint's
thread between two rounds; posting and polling go through the rings of `live.state` and never wait.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import select
import struct
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

import numpy as np

from openmrc.engine import account, place, setup
from openmrc.engine import state as es
from openmrc.engine.parameters import MPR_MAX, PMTUS
from openmrc.engine.setup import pow2_at_least
from openmrc.errors import InputError, OpenMrcError
from openmrc.fabric import denylist
from openmrc.fabric.model import BoolArray, Fabric, IntArray, LongArray
from openmrc.jit import interpreted
from openmrc.jit.bound import Bound, column
from openmrc.live import syscalls
from openmrc.live.endpoint import control, ip, links, loop, pmtu, state, udp
from openmrc.live.endpoint.limits import Limits, Port
from openmrc.live.endpoint.peers import Peers, Reach
from openmrc.live.endpoint.planes import Sockets
from openmrc.say import counted
from openmrc.units import S
from openmrc.wire import addresses, srv6
from openmrc.wire.framing import MRC_FRAMING
from openmrc.wire.layout import PKEY_DEFAULT, UDP_PORT

T = TypeVar("T")

HOP_LIMIT = 64
# How far ahead of its link a port accepts data: the loop need not wake for each frame.
LEAD_FRAMES, LEAD_MIN_PS = 4, 200_000_000
# A loop that was not scheduled for a while finds frames waiting at all ports. What it takes from
# one of them at a time spans at most this part of T on its link: packets of the other planes that
# wait their turn would seem missing, with evidence against them that is too new (row 7).
TAKEN_PART = 4
# A woken thread runs when the scheduler lets it, nearly always within half a millisecond, and that
# delay is not queueing. With a smaller T, NSCC takes a busy machine for a congested network.
BASE_RTT_MIN_PS = 500_000_000
ECHO_QUANTILE = 0.9
TRIES = 16  # of another thread to get between two rounds, before the loop is asked to let go
ECHO_GAP_S, ECHO_LAST_S = 0.001, 0.02  # between measuring requests, and for the last answer
QPN_REST_S = 60.0  # row 28: the minimum time before a QPN is used again
# Slots for regions, taken at random: with the 10 bits above an index (REGION_INDEX_BITS) these are
# 26 bits of an rkey that an attacker must guess.
REGION_PLACES = 1 << 16
SEND_DEPTH_MAX = es.DONE_MAX // 2  # these, and what else one packet completes, fit `State.done`
_KINDS = "".join(state.POST[name].char for name in state.POST.names or ())
POST = struct.Struct("=" + _KINDS.replace("l", "q"))
KIND = list(state.POST.names or ()).index("kind")
RECEIVES_KEPT = 32  # receives left in the ring until some thread runs the loop anyway
PUSHED_PACKETS = 16  # that a posting thread sends itself: waking another costs as much


class Host:
    """One device's engine and loop; an application's `verbs.Device` has one."""

    def __init__(
        self,
        fabric: Fabric,
        nic: int,
        wires: Sequence[Port],
        limits: Limits,
        base_rtt_ps: int | None,
        mode: int = state.NATIVE,
    ) -> None:
        if len(wires) != fabric.n_planes:
            raise InputError(
                f"{counted(len(wires), 'port')}: the fabric has {counted(fabric.n_planes, 'plane')}"
            )
        if not 0 <= nic < fabric.n_nics:
            raise InputError(f"nic {nic}: the fabric has NICs 0 to {fabric.n_nics - 1}")
        if limits.pmtu not in PMTUS:
            raise InputError(f"pmtu {limits.pmtu}: {', '.join(map(str, PMTUS))} are accepted")
        for name, most in (
            ("send_depth", SEND_DEPTH_MAX),
            ("mpr", MPR_MAX),
            ("max_wimm", MPR_MAX),
        ):
            if not 1 <= getattr(limits, name) <= most:
                raise InputError(f"{name} {getattr(limits, name)}: 1 to {most} are accepted")
        if mode == state.UDP:
            udp.check(fabric)
        self.reach = _reach(wires) if mode == state.IP else ()
        self.fabric, self.nic, self.wires, self.limits = fabric, nic, tuple(wires), limits
        self.mode = mode
        self.sizes = pmtu.of_ports(wires, limits.pmtu, limits.fill_mtu and mode == state.IP)
        self.rate_bps = int(fabric.port_rate_bps[fabric.nic_port(nic, 0)])
        self.base_rtt_ps = base_rtt_ps or MRC_FRAMING.base_rtt_ps(fabric, self.pmtu)
        self.measures = base_rtt_ps is None
        self._tables, self.headend = srv6.of_fabric(fabric)
        self._build()
        self._lock = threading.Lock()  # of the post ring
        self._calls: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._calling = threading.Lock()  # guards `_calls` against the end of the loop
        self._failure: BaseException | None = None  # the error that ended the loop
        self._lookout = links.Lookout([port.interface for port in wires], self._hear_of_links)
        self._linked = [True] * fabric.n_planes
        self.enabled = [True] * fabric.n_planes  # ports that no administrator took down
        self._init_ports()
        self._bind()
        self.closed = False
        self.inherited = False  # this process is a child of fork: the loop is its parent's
        self._stopped = False
        self._qpn_free_at = np.zeros(limits.qps)
        self._used = np.zeros(limits.qps, bool)
        self._denied = np.zeros(0, np.int64)  # directed ports that no path may cross
        self._thread = threading.Thread(target=self._run, name=f"mrc nic {nic}", daemon=True)
        _HOSTS.add(self)

    # --- set-up ------------------------------------------------------------------------------

    def _build(self) -> None:
        fabric, limits = self.fabric, self.limits
        planes, n = fabric.n_planes, limits.qps
        sends = pow2_at_least(limits.send_depth)
        self._receives = pow2_at_least(limits.receive_depth)
        self._active, backup = limits.evs_per_plane(planes)
        self._evs = self._active + backup
        self._qpn_bits = max(n - 1, 1).bit_length()
        rooms = setup.Rooms(n, planes, limits.mpr, sends, sends, planes * self._evs, self._evs)
        self.st = setup.new_state(
            limits,
            rooms,
            nics=self.nic + 1,
            peers=n,
            regions=REGION_PLACES,
            pmtu=self.pmtu,
            nominal_overhead=MRC_FRAMING.nominal_overhead,
            port_rate_bps=self.rate_bps,
            base_rtt_ps=self.base_rtt_ps,
            trimming=limits.trimming,
            must_post_receives=1,
            guarded=1,
            local_evs=self.mode == state.IP,
        )
        if limits.account:
            self.st = account.kept(self.st, limits.account)
        setup.set_nics(self.st, planes, MRC_FRAMING.data_bytes(self.pmtu))
        setup.identify(self.st.qp, nic=self.nic)
        self._unused = self.st.qp.copy()  # each with its slots, otherwise empty
        self.st.region.nic = -1  # unowned: no key fits
        self.st.stream[:] = np.frombuffer(secrets.token_bytes(8 * n), np.uint64) | 1
        self.ep = state.new_endpoint(
            planes=planes,
            qps=n,
            messages=n * sends,
            receives=n * self._receives,
            regions=REGION_PLACES,
            cqs=limits.cqs,
            cqes=limits.cqs * pow2_at_least(limits.cq_depth),
            evs=n * planes * self._evs,
            peers=fabric.n_nics if self.mode == state.IP else 0,
        )
        room = self.pmtu + pmtu.HEADER_BYTES
        slots = planes * state.TX_SLOTS
        if self.mode == state.IP:
            self.tx, self.rx = ip.new_tx(slots, room), ip.new_rx()
        elif self.mode == state.UDP:
            self.tx, self.rx = udp.new_tx(slots, room), udp.new_rx(state.RX_FRAMES, room)
        else:
            self.tx = syscalls.new_batch(slots, room)
            self.rx = syscalls.new_batch(state.RX_FRAMES, room)
        self.peers = Peers(self.ep, self.reach)

    def _taken_at_once(self, frame_ps: int) -> int:
        """How many datagrams the loop takes from a port at a time."""
        most, frames = state.RX_FRAMES, 1
        if self.mode == state.IP:
            most, frames = state.RX_BURSTS, self.limits.burst
        t_ps = max(self.base_rtt_ps, BASE_RTT_MIN_PS) if self.measures else self.base_rtt_ps
        return min(most, max(1, t_ps // (TAKEN_PART * frames * frame_ps)))

    def _init_ports(self) -> None:
        """Set up the headers of its frames, their pace, and the descriptors that the loop waits
        for.
        """
        ep, fabric, planes = self.ep, self.fabric, self.fabric.n_planes
        ctl = ep.ctl[0]
        ctl.nic, ctl.n_planes, ctl.mode = self.nic, planes, self.mode
        ctl.ps_per_byte = 8 * S // self.rate_bps
        frame_ps = MRC_FRAMING.data_bytes(self.pmtu) * int(ctl.ps_per_byte)
        ctl.lead_ps = max(LEAD_MIN_PS, LEAD_FRAMES * frame_ps)
        ctl.rx_most = self._taken_at_once(frame_ps)
        ctl.tx_most = max(self.limits.burst, state.TX_FRAMES_LEAST)
        ctl.qpn_mask = (1 << self._qpn_bits) - 1
        ctl.spin = self.limits.spin
        ctl.started_ns = time.monotonic_ns()
        ctl.wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        ctl.event_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        for plane, wire in enumerate(self.wires):
            ep.port[plane].fd = wire.fd
            e = ep.envelope[plane]
            e.src_mac[:] = list(bytes.fromhex(addresses.nic_mac(self.nic, plane).replace(":", "")))
            e.dst_mac[:] = list(wire.gateway_mac)
            own = list(addresses.ipv6(self.nic, plane).packed)
            e.inner_src[:] = own
            e.outer_src[:] = own
            e.tseth = 1
            e.srv6 = self.mode == state.NATIVE
            e.hop_limit = e.inner_hop_limit = HOP_LIMIT
            e.udp_port, e.pkey = UDP_PORT, PKEY_DEFAULT
            if wire.sockets is not None:
                self._init_sockets(plane, wire.sockets)
        ep.envelope.ports_from_1 = self.limits.ports_from_1
        ep.envelope.dscps = fabric.dscps.packed
        self._init_polls()

    def _init_polls(self) -> None:
        """Set up the descriptors on which the thread, and a waiting reader, sleep."""
        ep = self.ep
        ctl = ep.ctl[0]
        self._ports, self._gate = select.epoll(), select.epoll()
        for wire in self.wires:
            if wire.fd >= 0:
                self._ports.register(wire.fd, select.EPOLLIN)
        self._gate.register(self._ports, select.EPOLLIN)
        ctl.ports_fd, ctl.gate_fd = self._ports.fileno(), self._gate.fileno()
        ctl.alarm_fd = syscalls.new_alarm()
        ep.poll.fd = -1
        ep.poll.fd[: state.FULL] = [ctl.wake_fd, ctl.gate_fd, ctl.alarm_fd]
        ep.poll.events = syscalls.POLL_IN
        ep.poll.events[state.FULL :] = syscalls.POLL_OUT
        ep.waits.fd = -1
        ep.waits.events = syscalls.POLL_IN

    def _bind(self) -> None:
        """Bind the functions that other threads call for every message, and those that the loop's
        thread calls in the middle of traffic: to load one from disk takes it 10 ms.
        """
        self.ways = ways = loop.Ways(*self.tx, *self.rx, *self.headend)
        self._posted, self._taken = column(self.ep.ctl, "posted"), column(self.ep.ctl, "taken")
        self._shut = column(self.ep.ctl, "shut")
        posts: Any = self.ep.post.view(np.uint8).view(np.ndarray)
        self._ring = memoryview(posts)
        self._enter = Bound(loop.enter, (self.ep,), 0)
        self._leave = Bound(loop.leave, (self.ep,), 0, keeps_gil=True)
        self._attempt = Bound(loop.attempt, (self.ep,), 0, keeps_gil=True)
        self._bound = Bound(loop.go, (self.ep, self.st, ways), 4)
        self._set_port = Bound(loop.set_port, (self.st,), 4)
        self._end_qp = Bound(loop.end_qp, (self.ep, self.st), 1)
        self._ask = Bound(loop.ask, (self.ep, self.st, ways), 5, keeps_gil=True)
        self._deny(0, state.LISTED, np.zeros(0, np.bool_))  # no QP has paths yet

    def _init_sockets(self, plane: int, sockets: Sockets) -> None:
        """Set up a plane of plain UDP: the address in its headers, and the socket of each EV."""
        port, e = self.ep.port[plane], self.ep.envelope[plane]
        own = sockets.plane
        port.ipv4 = e.ipv4 = own.ipv4
        port.segments = self.limits.burst > 1
        e.inner_src[:] = list(own.address.packed.ljust(16, b"\0"))
        for source, one in sockets.sends:
            self.ep.source[plane, source - state.SOURCE_BASE] = one.fileno()

    # --- the thread --------------------------------------------------------------------------

    def start(self) -> None:
        """Start receiving."""
        self._thread.start()
        self._lookout.start()

    def _run(self) -> None:
        try:
            self._turn()
        except BaseException as error:  # whatever it is: callers wait for this thread
            self._end_by(error)

    def _turn(self) -> None:
        ctl = self.ep.ctl[0]
        while not self._stopped:
            self._go(loop.TURN)
            try:
                ctl.attention = 0
                while self._calls:
                    _do(*self._calls.popleft())
                self._look_at_links()
            finally:
                self._leave.call()

    def _end_by(self, error: BaseException) -> None:
        """The loop has failed: flush every queue pair, and tell all callers."""
        self._enter.call()  # for good: no thread runs the loop any more
        self._failure = error  # first: a thread that waits for room in the ring holds the lock
        with self._lock, self._calling:
            for i in np.flatnonzero(self._used).tolist():
                with contextlib.suppress(Exception):  # the error may have left its state broken
                    self.end_qp(i)
            while self._calls:
                _, future = self._calls.popleft()
                future.set_exception(self._failed())

    def _failed(self) -> OpenMrcError:
        failed = OpenMrcError(f"nic {self.nic}: the device's loop has ended: {self._failure!r}")
        failed.__cause__ = self._failure
        return failed

    def _look_at_links(self) -> None:
        """On the loop's thread: have ports that failed looked at, on another one."""
        port = self.ep.port
        if port.failed.any():
            port.failed = 0
            self._lookout.ask()

    def _hear_of_links(self, states: links.States) -> None:
        """On the lookout's thread: apply the interfaces' state (MRC 3.10)."""

        def apply() -> None:
            for plane, up in states:
                self.apply_port(plane, up)

        with contextlib.suppress(OpenMrcError):  # the device was closed, or its loop has failed
            self.call(apply)

    def apply_port(self, plane: int, up: bool) -> None:
        """On the loop's thread: a link is up or down; update queue pairs and inform peers."""
        self._linked[plane] = up
        self._set_state(plane)

    def enable_port(self, plane: int, enabled: bool) -> None:
        """On the loop's thread: the same by the word of an administrator, whatever its link is."""
        self.enabled[plane] = enabled
        self._set_state(plane)

    def _set_state(self, plane: int) -> None:
        up = bool(self._linked[plane] and self.enabled[plane])
        n = self.st.nic[self.nic]
        if bool(int(n.up_mask) >> plane & 1) == up:
            return
        self.ep.port[plane].down = not up
        self._set_port.call(self.nic, plane, int(up), int(self.ep.ctl[0].now))
        kind = state.PORT_UP if up else state.PORT_DOWN
        self.tell(kind, plane)

    def tell(self, kind: int, plane: int) -> None:
        """On the loop's thread: queue an event for the application."""
        ctl, ring = self.ep.ctl[0], self.ep.event
        if ctl.events - ctl.events_read >= len(ring):
            ctl.events_lost += 1
            return
        e = ring[int(ctl.events) % len(ring)]
        e.at, e.kind, e.qpn, e.plane, e.error, e.ev = int(ctl.now), kind, 0, plane, 0, 0
        ctl.events += 1

    def wake(self) -> None:
        """Wake the loop if it sleeps."""
        os.eventfd_write(int(self.ep.ctl[0].wake_fd), 1)

    def call(self, function: Callable[[], T]) -> T:
        """Run `function` on the loop's thread, between two rounds, and return its result.

        `OpenMrcError` if the device is closed, or its loop has failed.
        """
        if threading.current_thread() is self._thread:
            return function()
        self.check_own()
        future: Future[T] = Future()
        with self._calling:
            if self.closed:
                raise OpenMrcError("the device is closed")
            if self._failure is not None:
                raise self._failed()
            self._calls.append((function, future))
            self.ep.ctl[0].attention = 1
            self.wake()
        return future.result()

    def between(self, function: Callable[[], T]) -> T:
        """As `call`, but on this thread: for what is short and frequent, and needs no change of
        threads. The loop's thread is asked to let go if it has much to do: for longer than a few
        rounds, since while it is asked nobody else runs the loop.
        """
        if threading.current_thread() is self._thread:
            return function()
        self._until(self._attempt.call)
        try:
            return function()
        finally:
            self._leave.call()
            self._push_posted()

    def repeat(self, attempt: Callable[[], int]) -> None:
        """Repeat a compiled change that needs the loop's lock until it is done (not 0): as
        `between`, but for Python the data path would have to wait.
        """
        self._until(attempt)
        self._push_posted()

    def _until(self, attempt: Callable[[], int]) -> None:
        self.check_own()
        tries = 0
        while not attempt():
            if self.closed:
                raise OpenMrcError("the device is closed")
            if self._failure is not None:
                raise self._failed()
            tries += 1
            if tries > TRIES:
                self.ep.ctl[0].attention = 1
                self.wake()
            time.sleep(0)

    def _push_posted(self) -> None:
        """Push what other threads posted while this one held the lock."""
        if self._posted[0] != self._taken[0]:
            self.push()

    def close(self) -> None:
        """Stop the loop and release what it held; the caller closes the descriptors of ports."""
        if self.closed:
            return
        if self.inherited:  # no thread to stop, and locks that nobody here will release
            self.closed = True
            self._release()
            return

        def stop() -> None:
            self._stopped = True

        with contextlib.suppress(OpenMrcError):  # a failed loop need not be stopped
            self.call(stop)
        self._thread.join()
        if self._failure is None:
            self._enter.call()  # for good
        with self._calling:
            self.closed = True
            while self._calls:  # added while the loop ended: no other thread touches the state now
                _do(*self._calls.popleft())
            self._release()
        self._lookout.close()  # last: the loop asks it, and it may be calling

    def _release(self) -> None:
        ctl = self.ep.ctl[0]
        self._gate.close()
        self._ports.close()
        for fd in (int(ctl.wake_fd), int(ctl.event_fd), int(ctl.alarm_fd)):
            os.close(fd)

    def check_own(self) -> None:
        """Raise `OpenMrcError` in a child of fork: there is no loop here that would answer, and
        what descriptors tell is the parent's to hear.
        """
        if self.inherited:
            raise OpenMrcError(
                f"nic {self.nic}: the device is that of this process's parent; after a fork a child"
                " opens its own"
            )

    # --- queue pairs, on the loop's thread ---------------------------------------------------

    def new_qp(self, send_cq: int, recv_cq: int) -> int:
        """Take a record for a QP in RESET, with a fresh number and first PSN; return its index."""
        now = time.monotonic()
        free = np.flatnonzero(~self._used & (self._qpn_free_at <= now))
        if not len(free):
            raise OpenMrcError(
                f"no queue pair left: the device has {self.limits.qps},"
                f" and a number rests {QPN_REST_S:.0f} s after use; ask for a larger `qps`"
            )
        i = int(free[0])
        self._used[i] = True
        born, live = int(self.ep.qp[i].born) + 1, self.ep.qp[i]
        setup.reset_qp(self.st, i, self._unused[i])
        self.ep.qp[i] = np.zeros((), state.LIVE_QP)
        live.born, live.send_cq, live.recv_cq = born, send_cq, recv_cq
        live.recv0, live.recv_mask = i * self._receives, self._receives - 1
        for of_ev in (self.ep.ev_state, self.ep.ev_count, self.ep.ev_denied):
            of_ev[place.room_for_evs(self.st, i)] = 0
        low = 1 << self._qpn_bits
        # 0, 1 and 2 are reserved
        qpn = i | low * (2 + secrets.randbelow((1 << 24) // low - 2))
        setup.identify(self.st.qp[i], qpn=qpn, first_psn=secrets.randbelow(1 << 24))
        ctl = self.ep.ctl[0]
        ctl.n_qps = self.st.nic[self.nic].n_qps
        return i

    def number_of(self, planes: Sequence[Reach]) -> int:
        """The number of a peer of plain UDP."""
        in_use = set(np.asarray(self.st.qp.peer_nic)[self._used].tolist())
        return self.peers.number(planes, in_use)

    def open_qp(
        self,
        i: int,
        remote: int,
        qpn: int,
        psn: int,
        mpr: int,
        max_wimm: int,
        trim_nack: bool = True,
        dynamic_mpr: bool = False,
        paths: control.Paths = control.DRAWN,
        nscc: int = 0,
    ) -> None:
        """Set a QP's peer, its paths, what both ends agreed on and the record of NSCC that it
        obeys, and bring it to RTS.
        """
        st = self.st
        setup.limit(st, i, mpr, max_wimm)
        setup.agree(st, i, trim_nack=trim_nack, dynamic_mpr=dynamic_mpr)
        if paths.evs:
            control.give_paths(st, i, paths, self._active)
        else:
            self._write_paths(i, remote)
        setup.keep_in_service(st, i, paths.keep_percent)
        if nscc:
            setup.obey_nscc(st, i, nscc, 0)
        peer = setup.add_peer(st, self.nic, remote, i, self.fabric.n_planes)
        setup.identify(st.qp[i], peer_nic=remote, peer_qpn=qpn, peer_psn=psn, peer=peer)
        setup.open_qp(st, i)
        if len(self._denied) or paths.denied:
            self._deny_all(i, paths)

    def follow(self, i: int, paths: control.Paths) -> None:
        """With the loop's lock: a QP takes the EVs of a controller, and what it states of them."""
        if paths.evs:
            control.replace(self.ep, self.st, i, paths.evs)
        setup.keep_in_service(self.st, i, paths.keep_percent)
        self._deny_all(i, paths)

    def _deny_all(self, i: int, paths: control.Paths) -> None:
        """Deny the EVs of a QP that a controller or the denylist denies."""
        self._deny(i, state.STATED, control.among(self.st, i, paths.denied))
        if len(self._denied):
            self._deny(i, state.LISTED, self._denied_evs(*self._evs_of(i)))

    def _deny(self, i: int, who: int, denied: BoolArray) -> None:
        loop.deny(self.ep, self.st, i, who, denied)

    def _write_paths(self, i: int, remote: int) -> None:
        """Draw random paths, equally many on each plane (MRC 3.1)."""
        fabric = self.fabric
        if self.mode == state.IP:
            for plane, one in enumerate(self.reach):
                mixed = random.sample(one.sources, len(one.sources))
                own = np.array([mixed[: self._evs]])
                setup.set_paths(self.st, np.array([i]), plane, own, min(self._active, len(mixed)))
            return
        n_paths = fabric.n_paths(self.nic, remote, 0)
        rng = np.random.default_rng(secrets.randbits(64))
        for plane in range(fabric.n_planes):
            chosen = rng.choice(n_paths, min(n_paths, self._evs), replace=False).tolist()
            evs = [[fabric.ev_of_path(self.nic, remote, plane, index) for index in chosen]]
            active = min(n_paths, self._active)
            setup.set_paths(self.st, np.array([i]), plane, np.array(evs), active)

    def ask(self, questions: Sequence[control.Question]) -> IntArray:
        """With the loop's lock: ask NICs; return the rows of `ep.echo` in which their answers will
        be. At most `state.ECHOES` questions may be open.
        """
        rows = [
            self._ask.call(one.to, one.plane, one.ev, one.op, one.ports_up or 0)
            for one in questions
        ]
        return np.array(rows, np.int32)

    def measure(self, remote: int, samples: int = 32) -> tuple[int | None, list[int]]:
        """Measure the round trip to a NIC, with an idle QP at both ends; T follows from it (MRC
        4.6). Returns the 90th percentile in ps, None if nothing was answered, and the planes on
        which something was.

        Not on the loop's thread.
        """
        planes, rows = self.fabric.n_planes, []
        for number in range(samples):
            question = control.Question(remote, number % planes)
            rows += self.call(partial(self.ask, [question])).tolist()
            time.sleep(ECHO_GAP_S)
        time.sleep(ECHO_LAST_S)

        def finish() -> tuple[int | None, list[int]]:
            echo = self.ep.echo[rows]
            self.ep.echo[rows, state.SENT_AT] = 0  # what comes later is nobody's
            answered = np.flatnonzero(echo[:, state.ANSWERED_AT])
            if not len(answered):
                return None, []
            rtts = echo[answered, state.ANSWERED_AT] - echo[answered, state.SENT_AT]
            rtt = int(np.quantile(rtts, ECHO_QUANTILE))
            self._follow(rtt)
            return rtt, sorted(set((answered % planes).tolist()))

        return self.call(finish)

    def _follow(self, rtt_ps: int) -> None:
        """Small packets took this long (ps): T is that plus the additional time of a full data
        packet. QPs that have sent nothing yet, and all later ones, start with the window of this T
        (MRC 4.6).
        """
        if not self.measures:
            return
        fabric, more = self.fabric, 0
        for port in fabric.longest_path_ports():
            more += 8 * self.pmtu * S // int(fabric.port_rate_bps[port])
        t = max(rtt_ps + more, self.base_rtt_ps, BASE_RTT_MIN_PS)
        self.base_rtt_ps = t
        setup.set_base_rtt(self.st, self.nic, t, int(self.ep.ctl[0].now))

    @property
    def pmtu(self) -> int:
        """Bytes of data in a full packet."""
        return self.sizes.size

    def lower_pmtu(self, size: int, whose: str, among: Sequence[int]) -> None:
        """The peer or a path (`whose`) has room for no more (row 20). All QPs of a device share one
        PMTU: those in RTS must be `among` these, whose other ends lower theirs, too, and must have
        sent and received nothing.
        """
        lowered = self.sizes.lowered(size, whose)
        rts = np.flatnonzero(self._used & (np.asarray(self.st.qp.state) == es.RTS)).tolist()
        if any(i not in among or setup.has_begun(self.st.qp[i]) for i in rts):
            raise OpenMrcError(
                f"{lowered.note}; this device's queue pairs use {self.pmtu}: open it with"
                f" pmtu={lowered.stated}"
            )
        self.sizes = lowered
        setup.set_pmtu(self.st, self.nic, size, int(self.ep.ctl[0].now))

    def keep_off(self, denied: LongArray) -> None:
        """Use no path that crosses these directed ports, and all others again (MRC 3.3): an
        operator's denylist, which replaces the previous one.

        Not on the loop's thread: paths are computed here, and only the result is applied there.
        """

        def begin() -> list[tuple[int, int, int, IntArray]]:
            self._denied = denied
            rts = np.flatnonzero(self._used & (np.asarray(self.st.qp.state) == es.RTS)).tolist()
            return [(i, int(self.ep.qp[i].born), *self._evs_of(i)) for i in rts]

        def place(i: int, born: int, found: BoolArray) -> None:
            if self.ep.qp[i].born == born and self.st.qp[i].state == es.RTS:
                self._deny(i, state.LISTED, found)

        for i, born, remote, evs in self.call(begin):
            self.call(partial(place, i, born, self._denied_evs(remote, evs)))

    def _evs_of(self, i: int) -> tuple[int, IntArray]:
        """The peer's NIC of a QP, and its EVs; on the loop's thread."""
        q = self.st.qp[i]
        return int(q.peer_nic), self.st.ev.value[place.evs(q)].copy()

    def _denied_evs(self, remote: int, evs: IntArray) -> BoolArray:
        if not len(self._denied):
            return np.zeros(len(evs), np.bool_)
        return denylist.denied(self.fabric, self._denied, self.nic, remote, evs)

    def end_qp(self, i: int) -> None:
        """Move a QP to ERROR; what is outstanding is flushed."""
        self._end_qp.call(i)

    def drop_qp(self, i: int) -> None:
        """Free a QP's record; its number is not used again for a while (row 28)."""
        setup.close_qp(self.st, i)
        self.ep.qp[i].born += 1
        self._used[i] = False
        self._qpn_free_at[i] = time.monotonic() + QPN_REST_S

    # --- posting, from any thread ------------------------------------------------------------

    def post(self, values: tuple[int, ...]) -> None:
        """Put a request (a POST record, as a tuple) into the ring."""
        self.check_own()
        with self._lock:
            number = self._posted[0]
            while number - self._taken[0] >= state.POSTS and self._failure is None:
                time.sleep(0)  # the loop is behind: wait for it
            if self._failure is not None:
                raise self._failed()
            POST.pack_into(self._ring, number % state.POSTS * POST.size, *values)
            self._posted[0] = number + 1
        # The loop takes posted receives before any frame: a receive needs no round of its own.
        if values[KIND] != state.POST_RECV or number - self._taken[0] >= RECEIVES_KEPT:
            self.push()

    def push(self) -> None:
        """Process the post ring, and send a few packets, on this thread."""
        self._go(loop.PUSH, PUSHED_PACKETS)

    def look(self, cq: int, spin_ns: int, most_ns: int) -> int:
        """Run the loop on this thread until a completion is in queue `cq`: as `loop.LOOK`."""
        return self._go(loop.LOOK, cq, spin_ns, most_ns)

    def hear(self) -> None:
        """Let the thread listen to the ports at once: `look` will not be called again soon."""
        if self._shut[0]:
            self._go(loop.HEAR)

    def _go(self, what: int, a: int = 0, b: int = 0, c: int = 0) -> int:
        self.check_own()
        try:
            return self._bound.call(what, a, b, c)
        except BaseException:
            if interpreted():  # plain Python may fail within a round, holding the lock
                self._leave.call()
            raise


def _inherit() -> None:
    """In a child of fork: mark the devices of the parent."""
    for one in list(_HOSTS):
        one.inherited = True


_HOSTS: weakref.WeakSet[Host] = weakref.WeakSet()
os.register_at_fork(after_in_child=_inherit)


def _do(function: Callable[[], Any], future: Future[Any]) -> None:
    """Call it, and pass its result or error to the caller."""
    try:
        future.set_result(function())
    except BaseException as error:
        future.set_exception(error)


def _reach(wires: Sequence[Port]) -> tuple[Reach, ...]:
    """What a peer must know of each plane of plain UDP."""
    found = []
    for wire in wires:
        assert wire.sockets is not None
        own = wire.sockets
        sources = tuple(port for port, _ in own.sends)
        found.append(Reach(str(own.plane.address), own.port, sources))
    return tuple(found)
