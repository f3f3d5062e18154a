"""Endpoint requests: probes of EVs, and the status of ports, in batches with a timeout.

The requests of a batch leave at once. What was answered is returned in the order of arrival; an
answer that comes later is nobody's.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from openmrc.capi.places import Refused
from openmrc.live.endpoint import state
from openmrc.live.endpoint.control import Question
from openmrc.live.endpoint.host import Host
from openmrc.units import NS

BATCH_MAX = 1024
OPEN_MAX = state.ECHOES // 2  # of all batches: rows are found by the low bits of a number
LOOK_S = 0.0002
NS_PER_S = 10**9


class Response(NamedTuple):
    """An answer: to which request of the batch, on which port (from 1 on), and after how long."""

    which: int
    port: int
    rtt_ns: int


class Prober:
    """Asks other NICs over the ports of a device; any number of threads may wait at once."""

    def __init__(self, host: Host) -> None:
        self._host, self._open, self._lock = host, 0, threading.Lock()

    def ask(self, questions: Sequence[Question], timeout_ns: int) -> list[Response]:
        """Return the answers that came within `timeout_ns`. EAGAIN if too many are awaited."""
        with self._lock:
            if self._open + len(questions) > OPEN_MAX:
                raise Refused(errno.EAGAIN, f"{self._open} requests wait for their answers")
            self._open += len(questions)
        try:
            rows = self._host.between(lambda: self._host.ask(questions))
            self._wait(rows, timeout_ns / NS_PER_S)
            return self._host.between(lambda: self._take(rows))
        finally:
            with self._lock:
                self._open -= len(questions)

    def _wait(self, rows: np.ndarray, timeout_s: float) -> None:
        until, echo = time.monotonic() + timeout_s, self._host.ep.echo
        while not echo[rows, state.ANSWERED_AT].all():
            left = until - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, LOOK_S))

    def _take(self, rows: np.ndarray) -> list[Response]:
        """Return what was answered; later answers find no row."""
        echo = self._host.ep.echo
        found = echo[rows].copy()
        echo[rows, state.SENT_AT] = 0
        came = found[:, state.ANSWERED_AT]
        rtt_ns = (came - found[:, state.SENT_AT]) // NS
        order = [i for i in np.argsort(came, kind="stable").tolist() if came[i]]
        return [Response(i, int(found[i, state.CAME_ON]) + 1, int(rtt_ns[i])) for i in order]
