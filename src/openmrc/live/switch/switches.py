"""All switches of a fabric in one compiled loop over descriptors, in real time, without the GIL.

`Switches` takes the descriptors of all NIC ports and is the fabric between them: whole Ethernet
frames in, the same frames out where their carriers lead, delayed by links and queues, and marked,
trimmed or lost as the fabric and its faults require. The parts are `loop` (turns), `ports`
(queues), `wires` (descriptors) and `faults`.

A NIC's own port is simulated here too: frames that arrive faster than `port_rate` wait in a queue
of its three classes. When that is as full as a switch's queue may be, the wire is not read until it
has half emptied, so that the NIC's socket fills and pushes back: an AF_UNIX socket then refuses
(`overlay_ports(n, "local")`), UDP and packet sockets drop frames that do not fit (`socket_lost`).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from openmrc.errors import InputError
from openmrc.fabric import places
from openmrc.fabric.actions import EVENT, SWITCH_SILENT, SWITCH_UP, FaultSchedule
from openmrc.fabric.model import Fabric
from openmrc.fabric.queues import Queues, sizes_at
from openmrc.jit import records
from openmrc.live.closing import Closing
from openmrc.live.switch import loop as switch_loop
from openmrc.live.switch.counters import Counters, snapshot
from openmrc.live.switch.faults import FOR_ENDPOINTS
from openmrc.live.switch.state import ORDERS, Net, build
from openmrc.live.switch.tap import Tap, ring
from openmrc.live.syscalls import NS_PER_S, PS_PER_NS
from openmrc.wire.framing import MRC_FRAMING
from openmrc.wire.layout import ETHERNET

MTU_MIN, MTU_MAX = 1280, 9216  # the minimum of IPv6; the maximum of common Ethernet switches
FRAMES = 8192  # buffers; at 9000 B 74 MB of address space, touched only as far as queues grow
FRAMES_MIN = 64
GRAINS_PER_RTT = 32
GRAIN_NS_MIN, GRAIN_NS_MAX = 10_000, 50_000  # precision of a sleep; a delay that timers may notice
SPIN_NS = 20_000  # a sleep in the kernel ends 5 to 60 us late
ANSWER_S = 10.0  # a loop that does not answer for this long is dead
LEAVE_FOR_A_CHANGE, LEAVE_FOR_GOOD = 1, 2
_PR_SET_TIMERSLACK = 29  # linux/prctl.h; 50 us by default


class Switches(Closing):
    """The switches of `fabric`; `fds[fabric.nic_port(nic, plane)]` is the descriptor of that port.

    Descriptors are non-blocking datagram sockets, one frame a datagram; the caller closes them,
    after `close`. -1 stands for a port without a NIC. `queues` are the keys of `[fabric]` about
    queues, whose defaults are computed from `pmtu`, `base_rtt_ps` (that of the fabric's longest
    path, if `None`) and the number of QPs that send to one NIC. `mtu` is that of all links, in
    bytes of the IP packet. `seed` determines all random choices.

    While frames are inside, the loop turns once in `grain_ns`: `None` for a 32nd of the base round
    trip, 50 us at most, which no timer notices; 0 for the machine's best precision, at the cost of
    a core.

    Raises `InputError` for a fabric that has no uSIDs, and for sizes out of range.
    """

    def __init__(
        self,
        fabric: Fabric,
        queues: Queues,
        fds: npt.ArrayLike,
        seed: int = 1,
        *,
        mtu: int = 9000,
        pmtu: int = 4096,
        base_rtt_ps: int | None = None,
        senders_per_nic: int | None = None,
        frames: int = FRAMES,
        grain_ns: int | None = None,
        spin_ns: int = SPIN_NS,
    ) -> None:
        descriptors = np.asarray(fds, np.int32)
        n_wires = fabric.n_nics * fabric.n_planes
        if descriptors.shape != (n_wires,):
            raise InputError(f"fds: {descriptors.size} descriptors; one per NIC port, {n_wires}")
        if not MTU_MIN <= mtu <= MTU_MAX:
            raise InputError(f"mtu: {mtu}; {MTU_MIN} to {MTU_MAX} is accepted")
        if grain_ns is not None and not 0 <= grain_ns <= NS_PER_S:
            raise InputError(f"grain_ns: {grain_ns}; 0 to {NS_PER_S} is accepted")
        if frames < FRAMES_MIN:
            raise InputError(f"frames: {frames}; at least {FRAMES_MIN} buffers are needed")
        self.fabric = fabric
        rtt_ps = base_rtt_ps or MRC_FRAMING.base_rtt_ps(fabric, pmtu)
        packet = MRC_FRAMING.data_bytes(pmtu)
        sizes = sizes_at(fabric, queues, rtt_ps, packet, senders_per_nic)
        if grain_ns is None:
            share = min(rtt_ps // PS_PER_NS // GRAINS_PER_RTT, GRAIN_NS_MAX)
            grain_ns = share if share >= GRAIN_NS_MIN else 0
        room = mtu + ETHERNET.size_bytes
        self.net: Net = build(fabric, queues, sizes, descriptors, seed, room, frames, packet)
        self._thread: threading.Thread | None = None
        self._acting = threading.Lock()
        self._between: list[Callable[[], None]] = []  # for the thread, between two runs
        self._turned = threading.Event()
        self._error: BaseException | None = None
        self._tap: Tap | None = None
        self._closed = False
        self.net.ctl[0].grain_ns, self.net.ctl[0].spin_ns = grain_ns, spin_ns
        self._open()

    def _open(self) -> None:
        ctl, net = self.net.ctl[0], self.net
        ctl.kick_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        ctl.done_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll = select.epoll(flags=select.EPOLL_CLOEXEC)
        ctl.epoll_fd = self._epoll.fileno()
        net.poll[0].fd, net.poll[0].events = ctl.epoll_fd, select.POLLIN
        # Python's epoll registers the descriptor as data; `epoll_change` replaces it by our number.
        self._register(int(ctl.kick_fd), switch_loop.KICK)
        for number, fd in enumerate(net.wire.fd.tolist()):
            if fd < 0:
                net.wire[number].closed = 1
            else:
                self._register(fd, number)

    def _register(self, fd: int, which: int) -> None:
        try:
            self._epoll.register(fd, 0)
        except OSError as error:
            self.close()
            raise InputError(f"fds: descriptor {fd}: {error.strerror}; name open sockets") from None
        switch_loop.listen(self.net, fd, which)

    def start(self, schedule: FaultSchedule | None = None) -> None:
        """Run the loop on a thread of its own; time 0 of the schedule is now."""
        if self._thread is not None:
            raise InputError("switches: the loop is already running; stop it first")
        ctl = self.net.ctl[0]
        self._error = None
        ctl.leave = LEAVE_FOR_GOOD
        switch_loop.run(self.net)  # returns at once, compiled: time 0 must not wait for that
        ctl.leave = 0
        ctl.started_ns = time.monotonic_ns() - int(ctl.wall) // PS_PER_NS  # time never goes back
        if schedule is not None:
            self._load(schedule)
        self._thread = threading.Thread(target=self._run, name="mrc-switches", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether the loop runs on its thread: true from `start` on, unless it has failed."""
        return self._thread is not None and self._thread.is_alive()

    def stop(self) -> None:
        """Stop the loop; frames inside stay there, and `start` resumes. Does nothing if it has
        ended.
        """
        thread, self._thread = self._thread, None
        if thread is None:
            return
        with self._acting:
            self.net.ctl[0].leave = LEAVE_FOR_GOOD
            self._kick()
            thread.join()
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Stop, end a capture, and close the loop's own descriptors."""
        if self._closed:
            return
        try:
            if self._tap is not None:
                self._tap.close()
            self.stop()
        finally:
            self._closed = True
            self._epoll.close()
            os.close(int(self.net.ctl[0].kick_fd))
            os.close(int(self.net.ctl[0].done_fd))

    def play(self, schedule: FaultSchedule) -> None:
        """Carry out a schedule whose time 0 is now, in place of the rest of another."""
        self._at_rest(lambda: self._load(schedule))

    def act(self, events: npt.NDArray[Any]) -> None:
        """Carry out fault actions (dtype `fabric.actions.EVENT`; `at_ps` is ignored) now.

        They have taken effect when this returns. Those for endpoints are ignored. Raises
        `InputError` for a target that does not exist.
        """
        events = self._checked(events)
        with self._acting:
            for first in range(0, len(events), ORDERS):
                self._order(events[first : first + ORDERS])

    def step(self, now_ps: int) -> int:
        """Run one turn at a given time, without a thread: for tests and debuggers.

        Times must not decrease. Returns the time of the next event, ps, `engine.state.NEVER` if
        none.
        """
        if self._thread is not None:
            raise InputError("switches: the loop runs on its thread; stop it before stepping")
        return int(switch_loop.step(self.net, now_ps))

    def counters(self) -> Counters:
        """Return the counts so far."""
        return snapshot(self.fabric, self.net)

    def tap(self, ports: Sequence[str] | npt.ArrayLike, stream: BinaryIO, snap: int = 0) -> Tap:
        """Capture these links to `stream`, as pcapng; `Tap.close` ends it.

        `ports` are places as faults name them, or numbers of directed ports. Of each frame the
        first `snap` bytes are kept; 0: all. One capture at a time.
        """
        if self._tap is not None:
            raise InputError("switches: a capture is running; close it first")
        numbers = self._places(ports)
        kept = snap or int(self.net.ctl[0].frame_bytes_max)
        tapped, tap_bytes = ring(kept)

        def begin() -> None:
            ctl = self.net.ctl[0]
            ctl.tap_snap, ctl.tap_written, ctl.tap_read, ctl.tap_lost = kept, 0, 0, 0
            self.net = self.net._replace(tapped=tapped, tap_bytes=tap_bytes)
            self.net.port.tapped[numbers] = 1

        self._at_rest(begin)
        names = [self.fabric.port_name(port) for port in numbers.tolist()]
        self._tap = Tap(self.net, numbers, stream, names, self.untap)
        return self._tap

    def untap(self) -> None:
        """Stop capturing frames; the first step of `Tap.close`."""

        def end() -> None:
            self.net.port.tapped = 0

        self._at_rest(end)
        self._tap = None

    def _run(self) -> None:
        with contextlib.suppress(OSError, AttributeError):  # costs only precision
            ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
        try:
            while True:
                switch_loop.run(self.net)
                leave = int(self.net.ctl[0].leave)
                while self._between:
                    self._between.pop(0)()
                if leave == LEAVE_FOR_GOOD:
                    return
                self.net.ctl[0].leave = 0
                self._turned.set()
        except BaseException as error:
            self._error = error
            self._turned.set()

    def _at_rest(self, change: Callable[[], None]) -> None:
        """Let the loop's own thread change the state between two turns."""
        if self._thread is None:
            change()
            return
        with self._acting:
            self._turned.clear()
            self._between.append(change)
            self.net.ctl[0].leave = LEAVE_FOR_A_CHANGE
            self._kick()
            if not self._turned.wait(ANSWER_S) or self._error is not None:
                raise RuntimeError("the loop of the switches does not answer") from self._error

    def _order(self, events: Any) -> None:
        net = self.net
        ctl = net.ctl[0]
        given = int(ctl.orders_given)
        net.order[(given + np.arange(len(events))) % ORDERS] = events
        ctl.orders_given = given + len(events)
        if self._thread is None:
            switch_loop.obey(net)
            return
        self._kick()  # a system call: what was written before is visible after it
        while int(ctl.orders_done) != int(ctl.orders_given):
            if not select.select([int(ctl.done_fd)], [], [], ANSWER_S)[0]:
                raise RuntimeError("the loop of the switches does not answer") from self._error
            os.eventfd_read(int(ctl.done_fd))

    def _kick(self) -> None:
        os.eventfd_write(int(self.net.ctl[0].kick_fd), 1)

    def _load(self, schedule: FaultSchedule) -> None:
        events = records(len(schedule.events), EVENT)
        events[:] = schedule.events
        kept = events[~np.isin(events.action, FOR_ENDPOINTS)].copy().view(np.recarray)
        self._checked(kept)
        ctl = self.net.ctl[0]
        now_ps = int(ctl.wall)
        if self._thread is not None:
            now_ps = (time.monotonic_ns() - int(ctl.started_ns)) * PS_PER_NS
        kept.at_ps += now_ps
        ctl.next_event = 0
        self.net = self.net._replace(schedule=kept)

    def _checked(self, events: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the actions for switches and links; refuse targets that do not exist."""
        events = np.atleast_1d(np.asarray(events, EVENT))
        kept = events[~np.isin(events["action"], FOR_ENDPOINTS)]
        of_switch = (kept["action"] >= SWITCH_UP) & (kept["action"] <= SWITCH_SILENT)
        count = np.where(of_switch, self.fabric.n_switches, self.fabric.n_ports)
        bad = (kept["target"] < 0) | (kept["target"] >= count)
        if bad.any():
            first = kept[bad][0]
            most = int(count[bad][0]) - 1
            raise InputError(f"target: {first['target']} is not there; 0 to {most} are")
        return kept

    def _places(self, ports: Sequence[str] | npt.ArrayLike) -> Any:
        if isinstance(ports, str):
            ports = [ports]
        if all(isinstance(port, str) for port in ports):  # type: ignore[union-attr]
            named = [places.ports(self.fabric, str(port)) for port in ports]  # type: ignore[union-attr]
            return np.unique(np.concatenate(named)).astype(np.int64)
        numbers = np.unique(np.asarray(ports, np.int64))
        if numbers.min() < 0 or numbers.max() >= self.fabric.n_ports:
            raise InputError(f"ports: {numbers} are not all there; 0 to {self.fabric.n_ports - 1}")
        return numbers
