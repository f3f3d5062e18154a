"""`write_lat`: sends one message back and forth, and reports half of the time.

perftest's write_lat polls memory for the last byte. In MRC data arrives in any order, so a message
of more than a packet may show its last byte before all of it has arrived; an immediate proves that
it has (MRC 1.3). So every message here is a WRITE with immediate, and each end waits for the
completion of its receive.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict

from openmrc.perf.bandwidth import LOOK_S, check
from openmrc.perf.ends import End
from openmrc.perf.figures import Latency, latency
from openmrc.verbs import WorkCompletion

PING, LAST = 1, 2  # immediates


def run_client(end: End, size: int, stop: Callable[[], bool], spin: bool) -> Latency | None:
    """Measure one line; None if it was stopped before the first round trip."""
    end.channel.send({"size": size})
    plan = end.plan
    until = time.perf_counter() + plan.duration_s
    round_trips: list[int] = []
    last = False
    while not last:
        n = len(round_trips) + 1
        over = time.perf_counter() >= until if plan.duration_s else n == plan.iterations
        last = over or stop()
        started = time.perf_counter_ns()
        _write(end, size, LAST if last else PING)
        _next(end, spin)
        round_trips.append(time.perf_counter_ns() - started)
    found = latency(size, round_trips)
    end.channel.send({"found": asdict(found) if found else None})
    return found


def run_server(end: End, size: int, spin: bool) -> Latency | None:
    """Answer each message with one like it; return the line that the client measured."""
    imm = PING
    while imm != LAST:
        imm = _next(end, spin).imm_data or LAST
        _write(end, size, imm)
    found = end.channel.receive()["found"]
    return Latency(**found) if found else None


def _write(end: End, size: int, imm: int) -> None:
    end.qps[0].post_write_imm(
        0,
        end.source,
        0,
        size,
        remote_addr=end.remote.addr,
        rkey=end.remote.rkey,
        imm_data=imm,
        signaled=False,
    )


def _next(end: End, spin: bool) -> WorkCompletion:
    """Wait for a message, and post a receive for another one."""
    while True:
        for done in end.cq.poll(1) if spin else end.cq.wait(1, timeout=LOOK_S):
            check(end, done)
            end.qps[0].post_recv(done.wr_id)
            return done
        end.channel.check()
