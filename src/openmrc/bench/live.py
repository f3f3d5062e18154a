"""`mrc bench live`: the cost of the engine over real sockets, and the lower bound of any endpoint.

`cpu`: CPU time per data packet of a sender's and a receiver's loop, by their threads' own clocks,
beside two bare loops (`bench.bare`) that move frames of the same length through the same kind of
sockets and compute the same iCRC, and the same two without it. All run in turn, round by round, so
that other load on the machine affects all; a figure is the median of its rounds, a ratio the median
of the rounds' ratios. It needs no lab: every plane is a pair of loopback sockets.

`lab`: goodput and outages beside TCP and MPTCP, in a lab (`bench.lab`). It comes first: a lab is a
child process, created while this one has no other threads.

A part of the benchmark is a function in `PARTS` that measures and returns a dict for JSON, and one
that converts it to lines.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from openmrc.bench import bare
from openmrc.bench.lab.measure import measure_lab
from openmrc.bench.lab.words import lab_lines
from openmrc.engine import packet
from openmrc.errors import OpenMrcError
from openmrc.jit import records
from openmrc.live import overlay, syscalls
from openmrc.live.endpoint import state
from openmrc.say import counted, say
from openmrc.units import US
from openmrc.verbs import Status
from openmrc.verbs.cabled import cabled, prepare
from openmrc.wire import codec
from openmrc.wire.layout import ETHERNET, IPV6

PLANES = 4
ROUNDS, ROUND_S = 7, 0.5
SETTLE_S = 0.1  # at the start of a round: not counted
MESSAGE_BYTES, MESSAGES = 1 << 20, 8  # posted in advance: Python is called once in 256 packets
WAIT_S = 20.0  # for posted requests to complete, on a busy machine
BAR = 1.5  # the engine may cost half as much again
WINDOW = 512  # packets in flight, as `Limits.mpr`
# T of the engine. On loopback delays are the scheduler's: with an idle round trip as T (0.1 ms) the
# congestion window follows other load on the machine, batches of two packets are sent between
# sleeps, and the figure is that of wake-ups. With this T the engine's window is as wide as the bare
# loops'.
BASE_RTT_PS = 1000 * US
FRAME_COST = 4  # a frame takes up to this multiple of its length in a socket's buffer
INNER_IP = ETHERNET.size_bytes + IPV6.size_bytes
SENDER, RECEIVER = "sender", "receiver"
ENGINE, BARE, BARE_NO_ICRC = "engine", "bare", "bare_without_icrc"


@dataclass(frozen=True)
class Spent:
    """Results of one round: CPU time of both sides per packet, ns, and packets per second."""

    sender: float
    receiver: float
    packets_per_s: float


def spent(
    sender: threading.Thread,
    receiver: threading.Thread,
    packets: Callable[[], int],
    work: Callable[[], None],
) -> Spent:
    """What two running threads spend during `work()`, while `packets()` grows."""
    clocks = [time.pthread_getcpuclockid(int(one.ident or 0)) for one in (sender, receiver)]

    def read() -> tuple[float, ...]:
        return (*(time.clock_gettime(clock) for clock in clocks), packets(), time.perf_counter())

    before = read()
    work()
    s, r, n, wall_s = (b - a for a, b in zip(before, read(), strict=True))
    if not n:
        raise OpenMrcError("bench live: not one packet within a round")
    return Spent(s / n * 1e9, r / n * 1e9, n / wall_s)


class Engine:
    """Two devices and a queue pair from the first to the second."""

    def __init__(self, stack: ExitStack, planes: int) -> None:
        self._devices = stack.enter_context(cabled(planes, BASE_RTT_PS))
        sender, receiver = self._devices
        self._cq = sender.create_cq()
        self._qp, other = sender.create_qp(self._cq), receiver.create_qp(receiver.create_cq())
        self._qp.connect(other.attributes)
        other.connect(self._qp.attributes)
        self.pmtu = sender.pmtu
        data = np.random.default_rng(1).integers(0, 256, MESSAGES * MESSAGE_BYTES, np.uint8)
        self._source = sender.reg_mr(data)
        self._sink = receiver.reg_mr(np.zeros_like(data)).remote
        self._posted = self._done = 0

    def frame(self) -> Any:
        """A full data frame of this sender, uint8, with zeros as payload."""
        p = records(1, packet.PACKET)[0]
        p.opcode, p.klass, p.payload_len = packet.WRITE_MIDDLE, packet.CLASS_DATA, self.pmtu
        room = np.zeros(self.pmtu + 256, np.uint8)
        envelope = self._devices[0]._host.ep.envelope[0].copy()
        envelope.carrier[:] = 1  # any path
        n = codec.encode(p, envelope, room[:0], room, 1)
        assert n > self.pmtu
        return room[:n]

    def round(self, seconds: float) -> Spent:
        """Keep `MESSAGES` messages posted for `seconds`, and let the last ones complete."""
        self._keep_posted(SETTLE_S)
        threads = [device._host._thread for device in self._devices]
        found = spent(
            threads[0],
            threads[1],
            lambda: self._qp.counters()["tx_packets"],
            lambda: self._keep_posted(seconds),
        )
        while self._done < self._posted:
            self._take()
        return found

    def retransmitted(self) -> int:
        """Retransmissions of all rounds."""
        return self._qp.counters()["rtx"]

    def _keep_posted(self, seconds: float) -> None:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            while self._posted - self._done < MESSAGES:
                self._post()
            self._take()

    def _post(self) -> None:
        at = self._posted % MESSAGES * MESSAGE_BYTES
        to, key = self._sink.addr + at, self._sink.rkey
        self._qp.post_write(self._posted, self._source, at, MESSAGE_BYTES, remote_addr=to, rkey=key)
        self._posted += 1

    def _take(self) -> None:
        done = self._cq.wait(1, timeout=WAIT_S)
        if not done or done[0].status != Status.SUCCESS:
            raise OpenMrcError(f"bench live: a write did not complete: {done or 'nothing came'}")
        self._done += 1


class Bare:
    """The two bare loops over sockets of their own."""

    def __init__(self, stack: ExitStack, planes: int, frame: Any) -> None:
        pairs = [overlay.pair() for _ in range(planes)]
        for one in (end for pair in pairs for end in pair):
            stack.callback(one.close)
        self._fds = [np.array([pair[side].fileno() for pair in pairs], np.int32) for side in (0, 1)]
        self._end = len(frame)
        self._out = syscalls.new_batch(planes * state.TX_FRAMES, self._end)
        self._out.data[:] = frame
        self._in = syscalls.new_batch(state.RX_FRAMES, self._end + 64)
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        stack.callback(os.close, self._wake)
        self._poll_out = records(1, syscalls.POLL)
        self._poll_out.fd, self._poll_out.events = self._wake, syscalls.POLL_IN
        self._poll_in = records(planes, syscalls.POLL)
        self._poll_in.fd, self._poll_in.events = self._fds[1], syscalls.POLL_IN
        room = min(pair[1].getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) for pair in pairs)
        fitting = planes * room // (FRAME_COST * self._end)
        self._window = max(min(WINDOW, fitting), 2 * state.TX_FRAMES)
        self.lost = 0
        over = np.ones(6, np.int64)  # STOP is set: this compiles, and returns
        for work in self._loops(over, 1):
            work()

    def _loops(self, count: Any, icrc: int) -> list[Callable[[], None]]:
        """Sender and receiver, ready to run."""
        to, at = self._fds
        room, other = np.zeros(2, np.int64), np.zeros(2, np.int64)
        work = records(1, bare.WORK)
        work[0] = INNER_IP, self._end, icrc, self._window, self._wake
        return [
            lambda: bare.send(to, self._out, work, count, self._poll_out, room),
            lambda: bare.receive(at, self._in, work, count, self._poll_in, other),
        ]

    def round(self, seconds: float, *, icrc: bool) -> Spent:
        """Run both loops for `seconds`."""
        count = np.zeros(6, np.int64)
        sender, receiver = (threading.Thread(target=work) for work in self._loops(count, int(icrc)))
        receiver.start()
        sender.start()
        try:
            time.sleep(SETTLE_S)
            found = spent(
                sender, receiver, lambda: int(count[bare.RECEIVED]), lambda: time.sleep(seconds)
            )
        finally:
            count[bare.STOP] = 1
            sender.join()
            receiver.join()
        if icrc and count[bare.WRONG]:
            raise OpenMrcError(f"bench live: {count[bare.WRONG]} frames came with a wrong iCRC")
        self.lost += int(count[bare.LOST])
        self._drain()
        return found

    def _drain(self) -> None:
        """Drain the sockets, so that the next round starts empty."""
        for fd in self._fds[1].tolist():
            with contextlib.suppress(BlockingIOError):
                while os.read(fd, self._end):
                    pass


def measure_cpu(
    planes: int = PLANES, rounds: int = ROUNDS, round_s: float = ROUND_S
) -> dict[str, Any]:
    """Measure CPU time per packet of engine and bare loops."""
    found: dict[str, list[Spent]] = {ENGINE: [], BARE: [], BARE_NO_ICRC: []}
    with ExitStack() as stack:
        engine = Engine(stack, planes)
        frame = engine.frame()
        loops = Bare(stack, planes, frame)
        loops.round(SETTLE_S, icrc=True)  # compiles, and fills the caches
        engine.round(SETTLE_S)
        for _ in range(rounds):
            found[ENGINE].append(engine.round(round_s))
            found[BARE].append(loops.round(round_s, icrc=True))
            found[BARE_NO_ICRC].append(loops.round(round_s, icrc=False))
        retransmitted = engine.retransmitted()
    return {
        "planes": planes,
        "pmtu_bytes": engine.pmtu,
        "frame_bytes": len(frame),
        "base_rtt_us": BASE_RTT_PS / US,
        "rounds": rounds,
        "retransmitted": retransmitted,
        "bare_lost": loops.lost,
        "bar": BAR,
        "packets_per_s": {
            name: round(_median([s.packets_per_s for s in all_])) for name, all_ in found.items()
        },
        **{side: _side(found, side) for side in (SENDER, RECEIVER)},
    }


def _side(found: dict[str, list[Spent]], side: str) -> dict[str, float]:
    of = {name: [float(getattr(s, side)) for s in all_] for name, all_ in found.items()}
    ratios = [e / b for e, b in zip(of[ENGINE], of[BARE], strict=True)]
    return {
        **{f"{name}_ns": round(_median(values), 1) for name, values in of.items()},
        "ratio": round(_median(ratios), 3),
    }


def _median(values: list[float]) -> float:
    return statistics.median(values)


def cpu_lines(found: dict[str, Any]) -> list[str]:
    """Return the lines for people."""
    rates = found["packets_per_s"]
    lines = [
        f"CPU time per data packet: {found['pmtu_bytes']} B in a frame of"
        f" {found['frame_bytes']} B, {counted(found['planes'], 'plane')} over loopback, median of"
        f" {found['rounds']} rounds",
        f"{'':10} {'engine':>10} {'bare':>10} {'of it iCRC':>12} {'ratio':>8}"
        f"   bar {found['bar']:g}",
    ]
    for side in (SENDER, RECEIVER):
        s = found[side]
        icrc = s[f"{BARE}_ns"] - s[f"{BARE_NO_ICRC}_ns"]
        verdict = "holds" if s["ratio"] <= found["bar"] else "missed"
        lines.append(
            f"{side:10} {s[f'{ENGINE}_ns']:7.0f} ns {s[f'{BARE}_ns']:7.0f} ns {icrc:9.0f} ns"
            f" {s['ratio']:8.2f}   {verdict}"
        )
    lines.append(
        f"packets/s: engine {rates[ENGINE]:,}, bare {rates[BARE]:,}, without iCRC"
        f" {rates[BARE_NO_ICRC]:,}; engine sent {found['retransmitted']} again,"
        f" bare lost {found['bare_lost']}"
    )
    return lines


# Parts by name: the function that measures, and the one that makes lines.
PARTS: dict[str, tuple[Callable[[], dict[str, Any]], Callable[[dict[str, Any]], list[str]]]] = {
    "lab": (measure_lab, lab_lines),
    "cpu": (measure_cpu, cpu_lines),
}


def run(as_json: bool) -> int:
    """Measure every part and print; return the exit status."""
    prepare()
    figures: dict[str, Any] = {}
    for name, (measure, lines) in PARTS.items():
        say(f"{name} ...")
        figures[name] = measure()
        if not as_json:
            print("\n".join(lines(figures[name])), flush=True)
    if as_json:
        print(json.dumps(figures, indent=2))
    return 0
