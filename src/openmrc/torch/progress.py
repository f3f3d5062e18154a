"""What is posted, what has arrived, and which operation continues.

An operation is a generator. It posts sends and receives, yields those that it waits for, and is
resumed when all of them are complete. The posting thread takes the first steps itself, unless
another thread is doing so; a thread that waits for an operation takes the next ones (`drive`), so
that none of them costs a change of threads; and the progress thread takes those for which no thread
waits. No thread waits for anything but the lock's holder, which never waits.

A message is known by its key at both ends, so operations of many groups share one queue pair, and
their order never matters. Large messages wait until their receiver is ready; none is buffered.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any

import numpy as np

from openmrc.errors import OpenMrcError
from openmrc.live.endpoint.loop import CAME, ELSEWHERE, NOTHING
from openmrc.torch import call
from openmrc.torch.callbacks import Callbacks
from openmrc.torch.memory import Bytes
from openmrc.torch.pair import (
    CALL,
    DATA,
    EAGER,
    OFFER,
    PING,
    PLACED_MAX,
    READY,
    REFUSED,
    Header,
    Key,
    Pair,
)
from openmrc.torch.shared import Bell, Shared
from openmrc.verbs.cq import CompletionQueue, WorkCompletion
from openmrc.verbs.region import MemoryRegion
from openmrc.verbs.status import Opcode, Status

SUCCESS, WRITTEN = Status.SUCCESS, Opcode.RDMA_WRITE  # looked up once
IN_PLACE = 1 << 18  # from this size on a receive gets a registration of its own
TICK_S = 0.25  # the precision of timeouts
BEHIND_S = 0.001  # retry interval after a queue was full
LEFT_S = 0.002  # after a waiting thread has gone on, the progress thread takes over with this delay
CALLS_KEPT = 64  # collectives of a group whose calls are remembered after their end
RECEIVING, SENDING, SENT = range(3)  # the peer's part in a message that is refused
SPIN_NS = 100_000  # a waiting thread polls the ports for this long, and then sleeps


class Flag:
    """Whether something is complete."""

    __slots__ = ("up",)

    def __init__(self) -> None:
        self.up = False


class Transfer:
    """One send or receive of an operation."""

    __slots__ = ("data", "done", "exposed", "key", "op", "peer", "room", "strand")

    def __init__(self, op: Operation, peer: int, key: Key, data: Bytes) -> None:
        self.op, self.peer, self.key, self.data = op, peer, key, data
        self.done = False
        self.strand = -1  # the operation's strand that waits for this
        self.exposed: MemoryRegion | None = None  # where the peer writes
        self.room = False  # ... is scratch memory, to be copied from


Strand = Generator[Iterable[Transfer], None, None]


class Operation:
    """An operation that an application posted; `strands` proceed in parallel.

    `call` says what it is, to be compared with its peers'; `number` is a collective's group and
    number there, None for a message between two ranks.
    """

    def __init__(
        self,
        name: str,
        ranks: Iterable[int],
        timeout_s: float,
        call: bytes,
        group: int,
        seq: int | None,
    ) -> None:
        self.name, self.ranks = name, frozenset(ranks)
        self.call, self.group = call, group
        self.number = None if seq is None else (group, seq)
        self.asked = False  # whether peers were asked what they call
        self.strands: list[Strand] = []
        self.timeout_s = timeout_s
        self.posted_at = time.monotonic()
        self.live: set[Transfer] = set()
        self.waits: dict[int, int] = {}  # strand -> number of transfers that it waits for
        self.running = 0  # strands that have not ended
        self.scratch: list[Bytes] = []
        self.keep: Any = ()  # what owns the memory that it uses
        self.error: BaseException | None = None
        self.over = False
        self.source: int | None = None  # of a receive from any rank
        self.on_finish: Callable[[], None] = nothing


def nothing() -> None:
    """A callback that does nothing."""


class Progress:
    """All messages of one process."""

    def __init__(self, me: int, names: Sequence[int]) -> None:
        self.me, self.names = me, names  # `names[i]` is rank i in errors
        self.pairs: dict[int, Pair | Shared] = {}
        self.bell: Bell | None = None  # rung by ranks of this host
        self._shared: list[Shared] = []
        self.gone: dict[int, BaseException] = {}  # nothing can be done with them any more
        self.departed: dict[int, BaseException] = {}  # left in order: what they sent has arrived
        self.ops: dict[Operation, None] = {}
        self._by_qp: list[tuple[CompletionQueue, dict[int, Pair]]] = []
        self._scratch: dict[int, list[Bytes]] = {}
        self._inbox: deque[Callable[[], None]] = deque()
        self._runnable: deque[tuple[Operation, int]] = deque()
        self._finished: list[Operation] = []
        self._expected: dict[tuple[int, Key], Transfer] = {}
        self._unexpected: dict[tuple[int, Key], tuple[Header, bytes]] = {}
        self._sends: dict[tuple[int, Key], Transfer] = {}
        self._ready: dict[tuple[int, Key], Header] = {}
        self._offers: dict[tuple[int, Key], Header] = {}
        self._placed: dict[int, Transfer] = {}
        self._waiting_ready: deque[Transfer] = deque()
        self._writing: dict[int, Transfer] = {}
        self._lingering: dict[int, Any] = {}  # memory of writes whose operation has failed
        self._of_anybody: dict[tuple[int, int], deque[Transfer]] = {}
        self._sent_seq: dict[tuple[int, int, int], int] = {}
        self._received_seq: dict[tuple[int, int, int], int] = {}
        self._called: dict[tuple[int, int], Operation] = {}  # by group and number
        self._last: dict[int, int] = {}  # group -> number of its last collective
        self._early: dict[tuple[int, int], dict[int, bytes]] = {}  # calls of peers that are ahead
        self._refused: dict[tuple[int, int], BaseException] = {}  # what they say is no match
        self.late: dict[int, BaseException] = {}  # group -> error of what has returned already
        self._numbers = 0
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

    # --- for everybody

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
            self._inbox.append(lambda: self._begin(op))
            if not self._try():
                self._wake()
            return
        try:
            if self._stopped:
                self._inbox.append(lambda: self._begin(op))
                self._fail_all()
            else:
                self._begin(op)
                self._step()
        finally:
            self._lock.release()
        self._finish()

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

        While all messages are small the device's loop runs on this thread; with large ones its own
        thread and this one both have enough to do.
        """
        behind = self._is_behind()
        most_s = BEHIND_S if behind else left_s
        if self._queue is not None:
            if self._writing or self._placed:
                self._queue.hear()
            else:
                said = self._queue.look(SPIN_NS, int(most_s * 1e9))
                if said in (NOTHING, CAME):
                    return behind or said == CAME
                most_s = most_s if said == ELSEWHERE else 0.0
        came = self._driver_poll.poll(most_s * 1000)
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

    # --- steps

    def _run(self) -> None:
        tick_at = time.monotonic() + TICK_S
        seen = 0
        while not self._stopped:
            now = time.monotonic()
            wait_s = max(min(tick_at, self._due()) - now, 0.0)
            driven, seen = self._drives != seen or self._driver is not None, self._drives
            if driven:
                came = self._rest_poll.poll(min(wait_s, LEFT_S) * 1000)
                now = time.monotonic()
                if not came and not self._inbox and now < min(tick_at, self._due()):
                    continue
            else:
                behind = self._is_behind()
                came = self._poll.poll((BEHIND_S if behind else wait_s) * 1000)
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
                self._time_out(now)
                if now >= tick_at:
                    tick_at = now + TICK_S
                    self.on_tick(now)
                self._step()
            self._finish()

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
        self._finish()
        return True

    def _fail_all(self) -> None:
        """All is over: what is posted fails."""
        while self._inbox:
            self._inbox.popleft()()
        for op in list(self.ops):
            self.fail(op, OpenMrcError(f"{op.name}: the process group was destroyed"))

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
            while self._runnable:
                self._resume(*self._runnable.popleft())
            busy = self._take()
            for pair in self.pairs.values():
                if pair.behind:
                    pair.flush()
            for near in self._shared:
                busy = self._have_left(near) or busy
            if busy or self._runnable or self._inbox:
                continue
            came = [near.look_away(True) for near in self._shared]
            if not any(came):
                return

    def _have_left(self, pair: Shared) -> bool:
        """Process large messages in transit to a rank of this host; False if there are none."""
        if not pair.sent:
            return False
        for number in pair.sent:
            if (t := self._writing.pop(number, None)) is not None:
                pair.written += 1
                self._over(t)
        pair.sent.clear()
        return True

    def _take(self) -> bool:
        """Process arrivals; False if there are none."""
        busy = False
        for near in self._shared:
            busy = near.take(self._on_header, self._on_piece) or busy
        for cq, pairs in self._by_qp:
            done = cq.take(256)
            busy = busy or bool(done)
            for one in done:
                if (pair := pairs.get(one.qp_num)) is not None:
                    self._on_completion(pair, one)
        return busy

    def _finish(self) -> None:
        """Report ends to waiting threads; without the lock, because a future may call code that
        posts.
        """
        while self._finished:
            op = self._finished.pop()
            tell, op.on_finish = op.on_finish, nothing
            tell()

    # --- operations

    def _begin(self, op: Operation) -> None:
        self.ops[op] = None
        for rank in op.ranks:
            if rank in self.gone:
                self.fail(op, self.gone[rank])
                return
        if not self._agreed(op):
            return
        op.running = len(op.strands)
        for number in range(len(op.strands)):
            self._resume(op, number)

    def _resume(self, op: Operation, number: int) -> None:
        if op.over:
            return
        while True:
            try:
                transfers = next(op.strands[number])
            except StopIteration:
                op.running -= 1
                if op.running == 0:
                    self._end(op)
                return
            except BaseException as error:
                if not op.over:
                    self._give_up(op, error)
                return
            if op not in self.ops:  # it failed meanwhile
                return
            pending = [t for t in transfers if not t.done]
            if pending:
                op.waits[number] = len(pending)
                for t in pending:
                    t.strand = number
                return

    def _end(self, op: Operation) -> None:
        op.over = True
        for memory in op.scratch:
            self._scratch.setdefault(memory.nbytes, []).append(memory)
        op.scratch = []
        op.strands = []  # they refer to the operation: without a cycle all is freed at once
        self.ops.pop(op, None)
        self._finished.append(op)

    def fail(self, op: Operation, error: BaseException) -> None:
        """End an operation with an error."""
        if op.over:
            return
        op.error = error
        for strand in op.strands:
            try:
                strand.close()
            except ValueError:  # it is the strand that runs
                continue
        for t in list(op.live):
            self._drop(t)
        op.scratch = []  # a peer may still write there
        self._end(op)

    def _over(self, t: Transfer) -> None:
        t.done = True
        t.op.live.discard(t)
        if t.strand < 0:
            return
        t.op.waits[t.strand] -= 1
        if t.op.waits[t.strand] == 0:
            self._runnable.append((t.op, t.strand))

    def _drop(self, t: Transfer) -> None:
        at = (t.peer, t.key)
        for table in (self._expected, self._sends):
            if table.get(at) is t:
                del table[at]
        for numbered in (self._placed, self._writing):
            for number in [n for n, one in numbered.items() if one is t]:
                del numbered[number]
                if isinstance(pair := self.pairs[t.peer], Shared):
                    pair.keep(number)
                elif numbered is self._writing:  # the device still reads it
                    self._lingering[number] = (t.data, t.op.keep)
        if t.exposed is not None and not t.room:
            t.exposed.dereg()

    def _due(self) -> float:
        """When the next operation times out."""
        ops = list(self.ops)
        return min((op.posted_at + op.timeout_s for op in ops), default=float("inf"))

    def _time_out(self, now: float) -> None:
        for op in list(self.ops):
            if now - op.posted_at >= op.timeout_s:
                self.fail(op, self.timed_out(op, now))

    def timed_out(self, op: Operation, now: float) -> BaseException:
        """Return the error of an operation that timed out; `World` says more."""
        return OpenMrcError(f"{op.name}: Timed out after {op.timeout_s:g} s")

    def left(self, peer: int, placed: int, error: BaseException) -> None:
        """A peer left after it had received so many large messages: what it sent has arrived, and
        missing acknowledgements count as received. Only operations that need more from it fail.
        """
        self._take()
        sent = [n for n, t in sorted(self._writing.items()) if t.peer == peer]
        for number in sent[: max(placed - self.pairs[peer].written, 0)]:
            self._over(self._writing.pop(number))
        while self._runnable:
            self._resume(*self._runnable.popleft())
        self.departed[peer] = error
        for op in list(self.ops):
            if any(t.peer == peer for t in op.live):
                self._give_up(op, error)

    def fail_peer(self, rank: int, error: BaseException) -> None:
        """A peer is gone: fail all operations with it, and future ones."""
        if rank in self.gone:
            return
        self.gone[rank] = error
        for op in list(self.ops):
            if rank in op.ranks:
                self.fail(op, error)

    # --- whether all ranks call the same

    def _agreed(self, op: Operation) -> bool:
        """Whether a new operation fits what peers have said so far; if not, it fails."""
        if op.number is not None:
            group, seq = op.number
            self._called[op.number], self._last[group] = op, seq
            self._called.pop((group, seq - CALLS_KEPT), None)
        if self.late and (late := self.late.pop(op.group, None)) is not None:
            self._give_up(op, late)
            return False
        if op.number is None:
            return True
        if (refused := self._refused.pop(op.number, None)) is not None:
            self.fail(op, refused)
            return False
        for peer, its in self._early.pop(op.number, {}).items():
            if its != op.call:
                self._differs(op, peer, its)
                return False
        return True

    def _agrees(self, peer: int, h: Header) -> bool:
        """Whether a message of a collective belongs to the one with its number here."""
        at = (h.key.group, h.key.seq)
        op = self._called.get(at)
        if op is not None:
            if op.call == h.call:
                return True
            if op.error is None:
                self._differs(op, peer, h.call)
            return False
        if h.key.seq > self._last.get(h.key.group, -1):
            self._early.setdefault(at, {})[peer] = h.call
        return True

    def _differs(self, op: Operation, peer: int, its: bytes) -> None:
        assert op.number is not None
        calls = sorted(((self.names[self.me], op.call), (self.names[peer], its)))
        told = ", ".join(f"rank {rank} calls {call.told(one)}" for rank, one in calls)
        group = op.name.partition(" of ")[2]
        self._refuse(
            op,
            OpenMrcError(
                f"operation {op.number[1]} of {group}: {told}: all ranks must call the same, in"
                " the same order, with the same types and sizes"
            ),
        )

    def _refuse(self, op: Operation, error: BaseException) -> None:
        """Fail a collective at all its ranks; where it has returned already, the group's next
        operation fails.
        """
        self._tell_all(op, error, SENT)
        self._fail_or_note(op, error)

    def _give_up(self, op: Operation, error: BaseException) -> None:
        """Fail an operation that cannot go on here, and a collective also where it is not over."""
        self._tell_all(op, error, SENDING)
        self.fail(op, error)

    def _tell_all(self, op: Operation, error: BaseException, part: int) -> None:
        if op.number is not None:
            key = Key(op.number[0], 0, op.number[1], 0)
            for peer in op.ranks:
                self._tell(peer, key, error, part)

    def _tell(self, peer: int, key: Key, error: BaseException, part: int) -> None:
        """Tell a peer that its part of a message, or of a collective, is refused: SENT, that it
        must know even if that has returned.
        """
        if peer == self.me or peer in self.gone or peer in self.departed:
            return
        words = np.frombuffer(str(error).encode()[:EAGER], np.uint8)
        self.pairs[peer].send(Header(REFUSED, key, len(words), number=part), words)

    def _fail_or_note(self, op: Operation, error: BaseException) -> None:
        if not op.over:
            self.fail(op, error)
        elif op.error is None:
            op.error = error  # several peers may say so: it is noted once
            self._note(op.group, error)

    def _note(self, group: int, error: BaseException) -> None:
        """What has returned was refused: fail what the group does now, or will do next. Where that
        is over already nobody need be told: all its ranks are told of what was refused.
        """
        for op in self.ops:
            if op.group == group:
                self._give_up(op, error)
                return
        self.late[group] = error

    def _on_refused(self, peer: int, h: Header, words: str) -> None:
        error = OpenMrcError(words)
        if h.key.lane:
            table = self._expected if h.number == RECEIVING else self._sends
            if h.number == SENT:
                self._note(h.key.group, error)
            elif (t := table.get((peer, h.key))) is not None:
                self.fail(t.op, error)
            return
        at = (h.key.group, h.key.seq)
        if (op := self._called.get(at)) is not None:
            if h.number == SENT or not op.over:
                self._fail_or_note(op, error)
        elif h.key.seq > self._last.get(h.key.group, -1):
            self._refused[at] = error

    def ask_calls(self, now: float) -> None:
        """Tell peers for whom a collective waits what it is: it may be that no message would ever
        say so, as with two ranks that both receive.
        """
        for op in self.ops:
            if op.number is None or op.asked or now - op.posted_at < TICK_S:
                continue
            op.asked = True
            key = Key(op.number[0], 0, op.number[1], 0)
            for peer in {t.peer for t in op.live} - self.gone.keys() - self.departed.keys():
                self.pairs[peer].send(Header(CALL, key, 0, call=op.call))

    # --- sends and receives, called by operations

    def scratch(self, op: Operation, n: int) -> Bytes:
        """Memory for an operation, until it ends."""
        size = 1 << max(n - 1, 1).bit_length()
        free = self._scratch.get(size)
        memory = free.pop() if free else np.empty(size, np.uint8)
        op.scratch.append(memory)
        return memory[:n]

    def send_small(self, op: Operation, peer: int, key: Key, data: Bytes) -> None:
        """Send up to `EAGER` bytes, which may change afterwards."""
        if peer not in self.departed:  # otherwise it has received all that it needs
            self.pairs[peer].send(Header(DATA, key, len(data), 0, 0, 0, op.call), data)

    def send(self, op: Operation, peer: int, key: Key, data: Bytes) -> Transfer:
        """Send; complete when `data` may change."""
        t = self._transfer(op, peer, key, data)
        if data.nbytes <= EAGER:
            t.done = True
            self.send_small(op, peer, key, data)
            return t
        if peer in self.departed:
            raise self.departed[peer]
        op.live.add(t)
        if key.lane:  # announces the message to a receive from any rank
            self.pairs[peer].send(Header(OFFER, key, data.nbytes, call=op.call))
        at = (peer, key)
        if at in self._ready:
            self._write(t, self._ready.pop(at))
        else:
            self._sends[at] = t
        return t

    def send_next(self, op: Operation, peer: int, group: int, tag: int, data: Bytes) -> Transfer:
        """Send the next message to a peer with this tag."""
        key = self._next(self._sent_seq, peer, group, tag + 1)
        return self.send(op, peer, key, data)

    def receive_next(self, op: Operation, peer: int, group: int, tag: int, data: Bytes) -> Transfer:
        """Receive the next message from a peer with this tag."""
        key = self._next(self._received_seq, peer, group, tag + 1)
        return self.receive(op, peer, key, data)

    def receive_any(self, op: Operation, group: int, tag: int, data: Bytes) -> Transfer:
        """Receive the next message from any rank with this tag; `op.source` is the sender."""
        lane = tag + 1
        for peer, key in [*self._unexpected, *self._offers]:
            if (key.group, key.lane) == (group, lane) and self._is_next(peer, key):
                op.source = peer
                return self.receive_next(op, peer, group, tag, data)
        t = self._transfer(op, -1, Key(group, lane, 0, 0), data)
        op.live.add(t)
        self._of_anybody.setdefault((group, lane), deque()).append(t)
        return t

    def receive(self, op: Operation, peer: int, key: Key, data: Bytes) -> Transfer:
        """Receive; complete when `data` is filled."""
        t = self._transfer(op, peer, key, data)
        at = (peer, key)
        if (early := self._unexpected.pop(at, None)) is not None:
            self._deliver(t, *early)
            return t
        if peer in self.departed:
            raise self.departed[peer]
        op.live.add(t)
        self._expected[at] = t
        offer = self._offers.pop(at, None)
        if offer is not None and not self._fits(t, offer):
            return t
        if data.nbytes > EAGER:
            self._invite(t)
        return t

    @staticmethod
    def _transfer(op: Operation, peer: int, key: Key, data: Bytes) -> Transfer:
        """A new transfer. The operation may have failed by the last one, in the middle of a step:
        it raises, for nobody keeps its memory any more, and what came would still be placed there.
        """
        if op.error is not None:
            raise op.error
        return Transfer(op, peer, key, data)

    @staticmethod
    def _next(table: dict[tuple[int, int, int], int], peer: int, group: int, lane: int) -> Key:
        seq = table.get((peer, group, lane), 0)
        table[peer, group, lane] = seq + 1
        return Key(group, lane, seq, 0)

    def _is_next(self, peer: int, key: Key) -> bool:
        return key.seq == self._received_seq.get((peer, key.group, key.lane), 0)

    def _invite(self, t: Transfer) -> None:
        """Announce the destination of a large message."""
        if len(self._placed) >= PLACED_MAX:
            self._waiting_ready.append(t)
            return
        n = t.data.nbytes
        pair = self.pairs[t.peer]
        self._numbers = self._numbers % ((1 << 30) - 1) + 1
        self._placed[self._numbers] = t
        if isinstance(pair, Shared):
            pair.send(Header(READY, t.key, n, 0, 0, self._numbers, t.op.call))
            return
        t.room = n < IN_PLACE
        told = pair.rooms.take(n) if t.room else pair.device.reg_mr(t.data)
        t.exposed = told
        pair.send(Header(READY, t.key, n, told.addr, told.rkey, self._numbers, t.op.call))

    def _write(self, t: Transfer, to: Header) -> None:
        if not self._fits(t, to, sends=True):
            return
        self._numbers = self._numbers % ((1 << 30) - 1) + 1
        self._writing[self._numbers] = t
        self.pairs[t.peer].write(self._numbers, t.data, to)

    def _fits(self, t: Transfer, h: Header, sends: bool = False) -> bool:
        """Whether a message has the type and the size of its other end; if not, both fail."""
        if t.data.nbytes == h.n and (t.op.call == h.call or not t.key.lane):
            return True
        mine, its = self.names[self.me], self.names[t.peer]
        if t.key.lane:
            own, other = call.message(t.op.call), call.message(h.call)
        else:
            own, other = f"{t.data.nbytes} bytes", f"{h.n} bytes"
        a, b = ((mine, own), (its, other)) if sends else ((its, other), (mine, own))
        error = OpenMrcError(
            f"{t.op.name}: rank {a[0]} sends {a[1]}, rank {b[0]} receives {b[1]}:"
            " both must pass the same type and size"
        )
        if t.key.lane:
            its_part = RECEIVING if sends else SENT if h.kind == DATA else SENDING
            self._tell(t.peer, t.key, error, its_part)
            self.fail(t.op, error)
        else:
            self._refuse(t.op, error)
        return False

    # --- what came

    def _on_completion(self, pair: Pair, done: WorkCompletion) -> None:
        if self._lingering:
            self._lingering.pop(done.wr_id, None)
        if done.status != SUCCESS:
            self.on_broken(pair, done.status)
            return
        if done.opcode == WRITTEN:
            if (sent := self._writing.pop(done.wr_id, None)) is not None:
                pair.written += 1
                self._over(sent)
            return
        header, data, number = pair.on_receive(done)
        if number is not None:
            if (t := self._placed.pop(number, None)) is not None:
                self._on_placed(t)
        elif header is not None and data is not None:
            self._on_header(pair.peer, header, data)
            pair.emptied()

    def on_broken(self, pair: Pair, status: Status) -> None:
        """A queue pair has failed; `World` says more."""
        self.fail_peer(pair.peer, OpenMrcError(f"rank {pair.peer}: {status.name}"))

    def _on_piece(self, number: int, at: int, data: memoryview) -> None:
        """A piece of a large message from a rank of this host; its receive may have been
        abandoned.
        """
        t = self._placed.get(number)
        if t is None:
            return
        end = at + len(data)
        t.data[at:end] = data
        if end == t.data.nbytes:
            del self._placed[number]
            self.pairs[t.peer].placed += 1
            self._on_placed(t)

    def _on_placed(self, t: Transfer) -> None:
        self._expected.pop((t.peer, t.key), None)
        if t.room and t.exposed is not None:
            t.data[:] = t.exposed.view[: t.data.nbytes]
            pair = self.pairs[t.peer]
            assert isinstance(pair, Pair)
            pair.rooms.give(t.exposed)
        elif t.exposed is not None:
            t.exposed.dereg()
        t.exposed = None
        self._over(t)
        while self._waiting_ready and len(self._placed) < PLACED_MAX:
            other = self._waiting_ready.popleft()
            if not other.op.over:
                self._invite(other)

    def _on_header(self, peer: int, h: Header, data: Bytes | memoryview) -> None:
        at = (peer, h.key)
        kind = h.kind
        if kind == REFUSED:
            self._on_refused(peer, h, bytes(data).decode(errors="replace"))
        elif kind == PING or not (h.key.lane or self._agrees(peer, h)):
            return
        elif kind == READY:
            if (t := self._sends.pop(at, None)) is not None:
                self._write(t, h)
            else:
                self._ready[at] = h
        elif kind == DATA:
            t = self._expected.pop(at, None) or self._take_of_anybody(peer, h.key)
            if t is None:
                self._unexpected[at] = h, data.tobytes()
            else:
                self._deliver(t, h, data)
        elif kind == OFFER:
            self._on_offer(peer, h)

    def _on_offer(self, peer: int, h: Header) -> None:
        at = (peer, h.key)
        if (t := self._expected.get(at)) is not None:
            self._fits(t, h)
        elif h.key.seq >= self._received_seq.get((peer, h.key.group, h.key.lane), 0):
            t = self._take_of_anybody(peer, h.key)
            if t is None:
                self._offers[at] = h
            else:
                self._expected[at] = t
                if self._fits(t, h):
                    self._invite(t)

    def _take_of_anybody(self, peer: int, key: Key) -> Transfer | None:
        waiting = self._of_anybody.get((key.group, key.lane))
        while waiting and self._is_next(peer, key):
            t = waiting.popleft()
            if not t.op.over:
                t.peer, t.op.source = peer, peer
                t.key = self._next(self._received_seq, peer, key.group, key.lane)
                return t
        return None

    def _deliver(self, t: Transfer, h: Header, data: Bytes | memoryview | bytes) -> None:
        if not self._fits(t, h):
            return
        if h.n:
            memoryview(t.data)[:] = memoryview(data)  # type: ignore[arg-type]  # a tensor's array
        self._over(t)
