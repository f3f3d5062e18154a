"""Who advances the operations: the threads of one process.

The posting thread takes the first steps of an operation itself, unless another thread is doing so;
a thread that waits for an operation takes the next ones (`drive`), so that none of them costs a
change of threads; and the progress thread takes those for which no thread waits. No thread waits
for anything but the lock's holder, which never waits.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from openmrc.errors import OpenMrcError
from openmrc.live.endpoint.loop import CAME, ELSEWHERE, NOTHING
from openmrc.torch import streams
from openmrc.torch.agreement import Agreement
from openmrc.torch.callbacks import Callbacks
from openmrc.torch.matching import Matching
from openmrc.torch.operation import Flag, Operation
from openmrc.torch.pair import Pair
from openmrc.torch.running import Running
from openmrc.torch.shared import Bell, Shared
from openmrc.torch.staging import Staging
from openmrc.verbs.cq import CompletionQueue

TICK_S = 0.25  # the precision of timeouts
BEHIND_S = 0.001  # retry interval after a queue was full
LEFT_S = 0.002  # after a waiting thread has gone on, the progress thread takes over with this delay
SPIN_NS = 100_000  # a waiting thread polls the ports for this long, and then sleeps


class Progress:
    """The threads of one process, and what they advance. `names[i]` is rank i in errors."""

    def __init__(self, me: int, names: Sequence[int]) -> None:
        self.pairs: dict[int, Pair | Shared] = {}
        self.running = Running()
        self.agreement = Agreement(me, names, self.pairs, self.running)
        self.matching = Matching(me, names, self.pairs, self.running, self.agreement)
        self.running.drop = self.matching.drop
        self.running.agreed = self.agreement.agreed
        self.running.give_up = self.agreement.give_up
        self.staging = Staging(streams.door, self.running.over)
        self.bell: Bell | None = None  # rung by ranks of this host
        self._shared: list[Shared] = []
        self._by_qp: list[tuple[CompletionQueue, dict[int, Pair]]] = []
        self._inbox: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._wake_fd, select.POLLIN)
        self._watched: dict[int, Callable[[], None]] = {}
        self._queue_at: dict[int, CompletionQueue] = {}
        self.on_tick: Callable[[float], None] = lambda now: None
        self._driving = threading.Lock()  # held by the thread that drives
        self._driver: int | None = None  # its thread
        self._drives = 0  # how often a thread did
        self._driver_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._driver_poll = select.poll()
        self._driver_poll.register(self._driver_fd, select.POLLIN)
        self._queue: CompletionQueue | None = None  # of the device whose loop the driver runs
        self._rest_poll = select.poll()  # of the progress thread, while another drives
        self._rest_poll.register(self._wake_fd, select.POLLIN)
        self._stopped = False
        self.forked = False  # this process is a child that has inherited the object
        self._fds = threading.RLock()  # held to ring, and to close what is rung
        self.callbacks = Callbacks()
        self._thread = threading.Thread(target=self._run, name="mrc torch", daemon=True)

    def start(self) -> None:
        """Start the progress thread."""
        wired = [pair for pair in self.pairs.values() if isinstance(pair, Pair)]
        self._shared = [pair for pair in self.pairs.values() if isinstance(pair, Shared)]
        if self.bell is not None:
            self._poll.register(self.bell.fileno(), select.POLLIN)
            self._driver_poll.register(self.bell.fileno(), select.POLLIN)
        queues = {id(pair.cq): pair.cq for pair in wired}
        for cq in queues.values():
            pairs = {pair.qp.qp_num: pair for pair in wired if pair.cq is cq}
            self._by_qp.append((cq, pairs))
            self._poll.register(cq.fileno(), select.POLLIN)
            self._driver_poll.register(cq.fileno(), select.POLLIN)
            self._queue_at[cq.fileno()] = cq
        if len(queues) == 1:
            (self._queue,) = queues.values()
            bell = [] if self.bell is None else [self.bell.fileno()]
            self._queue.watch([self._driver_fd, *bell])
        self._thread.start()

    def watch(self, fd: int, on_readable: Callable[[], None]) -> None:
        """Call this on the thread when a descriptor is readable; before `start` or on the
        thread.
        """
        self._watched[fd] = on_readable
        self._poll.register(fd, select.POLLIN)
        self._rest_poll.register(fd, select.POLLIN)

    def unwatch(self, fd: int) -> None:
        """Stop watching a descriptor."""
        if self._watched.pop(fd, None) is not None:
            self._poll.unregister(fd)
            self._rest_poll.unregister(fd)

    def post(self, op: Operation) -> None:
        """Begin an operation; never waits."""
        if self._inbox or not self._lock.acquire(blocking=False):
            self._inbox.append(lambda: self.running.begin(op))
            if not self._try():
                self._wake()
            return
        try:
            if self._stopped:
                self._inbox.append(lambda: self.running.begin(op))
                self._fail_all()
            else:
                self.running.begin(op)
                self._step()
        finally:
            self._lock.release()
        self.running.finish()
        if self.staging.is_due:  # nothing rings when a copy arrives
            self._wake()

    def drive(self, over: Flag, seconds: float | None) -> None:
        """Run operations on this thread until `over` is set, or for `seconds`. Returns at once if
        another thread does so already.
        """
        until = float("inf") if seconds is None else time.monotonic() + seconds
        if not self._driving.acquire(blocking=False):
            return
        self._driver = threading.get_ident()
        try:
            while not (over.up or self._stopped):
                left_s = min(until - time.monotonic(), TICK_S)
                if left_s <= 0:
                    return
                self._drives += 1
                if self._came(left_s):
                    self._try(wait=True)
        finally:
            self._driver = None
            self._driving.release()

    def _came(self, left_s: float) -> bool:
        """Wait, for `left_s` at most; False if there is nothing to do but to wait again.

        The device's loop runs on this thread, unless messages are so long that its own thread and
        this one both have enough to do.
        """
        pause_s = self.staging.pause_s()
        behind = self._is_behind() or pause_s < left_s
        most_s = min(BEHIND_S, pause_s) if behind else left_s
        if self._queue is not None:
            if self.matching.is_long:
                self._queue.hear()
            else:
                most_ns = int(most_s * 1e9)
                said = self._queue.look(min(SPIN_NS, most_ns), most_ns)
                if said in (NOTHING, CAME):
                    return behind or said == CAME
                most_s = most_s if said == ELSEWHERE else 0.0
        came = _polled(self._driver_poll, most_s)
        for fd, _ in came:
            if fd == self._driver_fd:
                os.eventfd_read(fd)
            else:
                self._heard(fd)
        return behind or bool(came)

    def _is_behind(self) -> bool:
        for pair in self.pairs.values():  # noqa: SIM110  a third of the time of `any`
            if pair.behind:
                return True
        return False

    def finished(self) -> None:
        """The end of an operation was reported: the driver may wait for that."""
        if self._driver is not None and self._driver != threading.get_ident():
            self._ring(self._driver_fd)

    def left(self, peer: int, placed: int, error: BaseException) -> None:
        """A peer left after it had received so many large messages."""
        self._take()
        self.matching.left(peer, placed, error)

    def do(self, action: Callable[[], None]) -> None:
        """Run an action between two steps."""
        self._inbox.append(action)
        self._wake()

    def stop(self) -> None:
        """Stop the thread, if it was started; what is posted fails."""
        if self._stopped:
            return
        self._stopped = True
        self._wake()
        if self._thread.ident is not None and threading.current_thread() is not self._thread:
            self._thread.join()
        self._try(wait=True)
        if self._driver != threading.get_ident():
            self._ring(self._driver_fd)
            self._driving.acquire()  # a driving thread sees that it is over
        self.callbacks.close()
        with self._fds:
            os.close(self._wake_fd)
            os.close(self._driver_fd)
            self._wake_fd = self._driver_fd = -1

    def forget(self) -> None:
        """In a forked child: nothing here is this process's. Takes no lock, for a thread that does
        not exist here may hold it.
        """
        self._stopped = self.forked = True
        for fd in (self._wake_fd, self._driver_fd):
            if fd >= 0:
                os.close(fd)
        self._wake_fd = self._driver_fd = -1

    def _wake(self) -> None:
        self._ring(self._wake_fd)

    def _ring(self, fd: int) -> None:
        with self._fds:
            if self._wake_fd >= 0:
                os.eventfd_write(fd, 1)

    def _run(self) -> None:
        tick_at = time.monotonic() + TICK_S
        seen = 0
        while not self._stopped:
            now = time.monotonic()
            wait_s = max(min(tick_at, self.running.due()) - now, 0.0)
            wait_s = min(wait_s, self.staging.pause_s())
            driven, seen = self._drives != seen or self._driver is not None, self._drives
            if driven:
                came = self._rest_poll.poll(min(wait_s, LEFT_S) * 1000)
                now = time.monotonic()
                if not came and not self._inbox and now < min(tick_at, self.running.due()):
                    continue
            else:
                behind = self._is_behind()
                came = _polled(self._poll, min(BEHIND_S, wait_s) if behind else wait_s)
            for fd, _ in came:
                if fd == self._wake_fd:
                    os.eventfd_read(fd)
                elif (on_readable := self._watched.get(fd)) is not None:
                    on_readable()
                else:
                    self._heard(fd)
            with self._lock:
                self._step()
                now = time.monotonic()
                self.running.time_out(now)
                if now >= tick_at:
                    tick_at = now + TICK_S
                    self.on_tick(now)
                self._step()
            self.running.finish()

    def _try(self, wait: bool = False) -> bool:
        """Take the steps that are possible now; if another thread is doing so, `wait` or return
        False.
        """
        if not self._lock.acquire(blocking=wait):
            return False
        try:
            if self._stopped:
                self._fail_all()
            else:
                self._step()
        finally:
            self._lock.release()
        self.running.finish()
        return True

    def _fail_all(self) -> None:
        """All is over: what is posted fails."""
        while self._inbox:
            self._inbox.popleft()()
        for op in list(self.running.ops):
            self.running.fail(op, OpenMrcError(f"{op.name}: the process group was destroyed"))

    def _heard(self, fd: int) -> None:
        if self.bell is not None and fd == self.bell.fileno():
            self.bell.heard()
        elif (cq := self._queue_at.get(fd)) is not None:
            cq.clear()

    def _step(self) -> None:
        for near in self._shared:
            near.look_away(False)
        while True:
            while self._inbox:
                self._inbox.popleft()()
            self.running.resume_all()
            busy = self.staging.take()
            busy = self._take() or busy
            for pair in self.pairs.values():
                if pair.behind:
                    pair.flush()
            for near in self._shared:
                busy = self.matching.have_left(near) or busy
            if busy or self.running.runnable or self._inbox:
                continue
            came = [near.look_away(True) for near in self._shared]
            if not any(came):
                return

    def _take(self) -> bool:
        """Process arrivals; False if there are none."""
        busy = False
        for near in self._shared:
            busy = near.take(self.matching.on_header, self.matching.on_piece) or busy
        for cq, pairs in self._by_qp:
            done = cq.take(256)
            busy = busy or bool(done)
            for one in done:
                if (pair := pairs.get(one.qp_num)) is not None:
                    self.matching.on_completion(pair, one)
        return busy


def _polled(poll: Any, most_s: float) -> list[tuple[int, int]]:
    """What came at descriptors within `most_s`; the kernel counts in milliseconds, rounded up."""
    if most_s >= BEHIND_S:
        return list(poll.poll(most_s * 1000))
    came = list(poll.poll(0))
    if not came and most_s > 0:
        time.sleep(most_s)
    return came
