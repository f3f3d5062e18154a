"""`write_bw`: every queue pair keeps `tx_depth` writes posted; completions are counted."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict

from openmrc.errors import OpenMrcError
from openmrc.perf.channel import RETRY_EXCEEDED
from openmrc.perf.ends import End
from openmrc.perf.figures import PEAK_MESSAGES, Bandwidth, bandwidth
from openmrc.verbs import Status, WorkCompletion

LOOK_S = 0.05  # between two checks for a stop


class FailedError(OpenMrcError):
    """A queue pair went to ERROR while it was measured."""


def check(end: End, done: WorkCompletion) -> None:
    """Raise `FailedError` unless a request succeeded; `PeerGoneError` if nobody answers it."""
    if done.status != Status.SUCCESS:
        qp = end.qps[end.number[done.qp_num]]
        if qp.error == RETRY_EXCEEDED:
            raise end.channel.gone(qp.error)
        raise FailedError(f"QP {done.qp_num:#x}: {done.status.name}: {qp.error or 'flushed'}")


class Sender:
    """Writes messages of one size on all queue pairs of an end."""

    def __init__(self, end: End, size: int) -> None:
        self._end, self._size = end, size
        self._left = [end.plan.iterations] * len(end.qps)
        self._open = [0] * len(end.qps)
        self._posted_ns: list[int] = []
        self._done_ns: list[int] = []
        self._completed = 0

    def run(self, stop: Callable[[], bool]) -> Bandwidth:
        """Send until all messages or the duration are over, or `stop()`; requests still posted then
        complete, but do not count.
        """
        end = self._end
        timed = end.plan.duration_s > 0
        started = time.perf_counter()
        until = started + end.plan.duration_s
        look = started + LOOK_S
        while True:
            self._post(timed)
            if not any(self._open):
                break
            self._take(end.cq.wait(1, timeout=LOOK_S))
            now = time.perf_counter()
            if timed and now >= until:
                break
            if now >= look:
                look = now + LOOK_S
                end.channel.check()
                if stop():
                    break
        seconds = time.perf_counter() - started
        found = bandwidth(self._size, self._completed, seconds, self._posted_ns, self._done_ns)
        while any(self._open):
            self._take(end.cq.wait(1, timeout=LOOK_S))
            end.channel.check()
        return found

    def _post(self, timed: bool) -> None:
        """Post one message on each queue pair with room, repeatedly until none has room."""
        end, more = self._end, True
        while more:
            more = False
            for i, qp in enumerate(end.qps):
                if self._open[i] == end.plan.tx_depth or not (timed or self._left[i]):
                    continue
                if len(self._posted_ns) < PEAK_MESSAGES:
                    self._posted_ns.append(time.perf_counter_ns())
                at = end.at(i)
                qp.post_write(
                    i,
                    end.source,
                    at,
                    self._size,
                    remote_addr=end.remote.addr + at,
                    rkey=end.remote.rkey,
                )
                self._open[i] += 1
                self._left[i] -= 1
                more = True

    def _take(self, first: list[WorkCompletion]) -> None:
        taken = first + self._end.cq.poll(256) if first else first
        now = time.perf_counter_ns()
        for done in taken:
            check(self._end, done)
            self._open[done.wr_id] -= 1
            self._completed += 1
            if len(self._done_ns) < PEAK_MESSAGES:
                self._done_ns.append(now)


def run_client(end: End, size: int, stop: Callable[[], bool]) -> Bandwidth:
    """Measure one line: this end's writes and, if bidirectional, the other's as well."""
    end.channel.send({"size": size})
    found = Sender(end, size).run(stop)
    end.channel.send({"sent": asdict(found), "stopped": stop()})
    other = end.channel.receive()["sent"]
    return found.plus(Bandwidth(**other)) if other else found


def run_server(end: End, size: int) -> Bandwidth:
    """The same line at the other end."""

    def stopped() -> bool:
        message = end.channel.peek()
        return bool(message and message["stopped"])

    own = Sender(end, size).run(stopped) if end.plan.bidirectional else None
    theirs = Bandwidth(**end.channel.receive()["sent"])
    end.channel.send({"sent": asdict(own) if own else None})
    return theirs.plus(own) if own else theirs
