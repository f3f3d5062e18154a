"""`mrc soak --world live`: real devices, real frames, and a network that never behaves for long.

Three devices over loopback sockets: two in this process, which write to each other, and one in a
process of its own, to which the first writes. Between them is a relay (`live.relay`) whose trouble
is drawn anew every 100 ms: frames dropped, repeated, reordered, corrupted, delayed, planes cut. The
process of the third is stopped, continued, and from time to time killed and restarted.

The invariants: every byte is right when the immediate after it arrives, immediates arrive in order,
every request completes exactly once, no queue pair ends but those of a killed peer, and those
within the configured retry time. Memory, queue pairs, regions and descriptors do not grow.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from openmrc import verbs
from openmrc.engine.parameters import RTO_UNIT_PS
from openmrc.fabric.clos import multiplane
from openmrc.fabric.model import Fabric
from openmrc.live.endpoint.limits import Limits, Port
from openmrc.live.relay import Relay, Trouble
from openmrc.units import S

MINUTES, MINUTES_MIN = 10.0, 0.2
SEEDS = 1 << 31
PLANES = 4
NICS = 3
CHILD = 2  # the NIC of the process that is stopped and killed
TROUBLE_EVERY_S = 0.1
KILL_EVERY_S = 15.0
STOP_MAX_S = 0.4
# The relay is a Python thread among others: its round trip is milliseconds, and tens of them if it
# has no core of its own.
BASE_RTT_PS = 10_000_000_000
RTO_EXPONENT, LINEAR, EXPONENTIAL = 14, 7, 6
POOL_BYTES = 1 << 20  # of random data; each message is a slice of it
SLOT_BYTES = 1 << 17
SLOTS = 16  # messages of a flow in flight
RETRY_SLACK_S = 5.0  # timers run late on a busy machine, and the kill is noticed at the next epoch
RSS_SLACK_MB = 48.0  # what Python's allocator keeps and releases, with both threads of a device
SETTLE_S = 5.0  # before the first measurement of memory
STILL_S = 60.0  # a transfer without progress for this long hangs


def retry_s() -> float:
    """Row 9: how long a queue pair retries before it fails, s."""
    rto_ps = max(RTO_UNIT_PS << RTO_EXPONENT, 4 * (BASE_RTT_PS + BASE_RTT_PS * 3 // 4))
    epochs = LINEAR + (2 << EXPONENTIAL) - 2
    return rto_ps * epochs / S


def _fabric() -> Fabric:
    return multiplane(NICS, PLANES, 10**9, 2, 2, 500_000, 250_000)


def _open(nic: int, descriptors: list[int]) -> verbs.Device:
    limits = Limits(
        rto_exponent=RTO_EXPONENT, linear_cnt=LINEAR, exp_cnt=EXPONENTIAL, qps=64, cqs=64
    )
    ports = [Port(fd, bytes(6)) for fd in descriptors]
    return verbs.Device(_fabric(), nic, ports, limits, BASE_RTT_PS)


def _pool(seed: int) -> Any:
    return np.random.default_rng([seed, 7]).integers(0, 256, POOL_BYTES, dtype=np.uint8)


def _message(seed: int, number: int) -> tuple[int, int, int, bool]:
    """The offset of message `number` in the pool, its length, its offset in the slot; and whether
    it is two requests.
    """
    rng = random.Random(seed << 32 | number)
    length = rng.choice((0, 1, rng.randrange(5000), rng.randrange(SLOT_BYTES - 64)))
    return rng.randrange(POOL_BYTES - length), length, rng.randrange(64), rng.random() < 0.3


class Sender:
    """Writes messages, each followed by an immediate with its number."""

    def __init__(
        self, device: verbs.Device, cq: verbs.CompletionQueue, qp: verbs.QueuePair, seed: int
    ) -> None:
        self.qp, self.cq, self.seed = qp, cq, seed
        self.mr = device.reg_mr(_pool(seed))
        self.sent = self.verified = 0  # the receiver reports what it has verified
        self.open: dict[int, bool] = {}  # requests by wr_id
        self.completed = 0
        self.statuses: list[verbs.Status] = []
        self._id = 0

    def pump(self, there: verbs.RemoteRegion) -> None:
        """Post as many messages as there are free slots at the receiver."""
        while self.sent - self.verified < SLOTS and self.qp.state == verbs.QpState.RTS:
            start, length, shift, in_two = _message(self.seed, self.sent)
            to = there.addr + self.sent % SLOTS * SLOT_BYTES + shift
            cut = length // 3 if in_two else 0
            key, number = there.rkey, self.sent & 0xFFFF_FFFF
            if cut:
                self.qp.post_write(self._next(), self.mr, start, cut, remote_addr=to, rkey=key)
            rest = (self._next(), self.mr, start + cut, length - cut)
            self.qp.post_write_imm(*rest, remote_addr=to + cut, rkey=key, imm_data=number)
            self.sent += 1

    def _next(self) -> int:
        self._id += 1
        self.open[self._id] = True
        return self._id

    def take(self) -> str:
        """Process completions; return the first error, or ""."""
        for c in self.cq.poll():
            if self.open.pop(c.wr_id, None) is None:
                return f"request {c.wr_id} completed twice, or was never posted"
            self.statuses += [] if c.status == verbs.Status.SUCCESS else [c.status]
            self.completed += 1
        return ""


class Receiver:
    """Verifies every message when its immediate arrives."""

    def __init__(
        self, device: verbs.Device, cq: verbs.CompletionQueue, qp: verbs.QueuePair, seed: int
    ) -> None:
        self.qp, self.cq, self.seed = qp, cq, seed
        self.pool = _pool(seed)
        self.room = np.zeros(SLOTS * SLOT_BYTES, np.uint8)
        self.mr: verbs.MemoryRegion = device.reg_mr(self.room)
        self.verified = self.bytes = 0

    def post(self) -> None:
        """Post receives for all immediates that may arrive."""
        for number in range(2 * SLOTS):
            self.qp.post_recv(number)

    def take(self) -> str:
        """Process arrivals; return the first error, or ""."""
        for c in self.cq.poll():
            if c.status != verbs.Status.SUCCESS:
                continue  # flushed: the queue pair's state explains it
            if (
                c.opcode != verbs.Opcode.RECV_RDMA_WITH_IMM
                or c.imm_data != self.verified & 0xFFFF_FFFF
            ):
                return f"immediate {c.imm_data} in place of {self.verified}"
            start, length, shift, _ = _message(self.seed, self.verified)
            at = self.verified % SLOTS * SLOT_BYTES + shift
            if not np.array_equal(self.room[at : at + length], self.pool[start : start + length]):
                return f"message {self.verified}: a byte is wrong"
            self.verified += 1
            self.bytes += length
            if self.qp.state == verbs.QpState.RTS:
                self.qp.post_recv(0)
        return ""


# --- the process that is stopped and killed ---------------------------------------------------


def child(descriptors: list[int], seed: int) -> None:
    """Receive until killed, or until standard input ends. Lines of JSON in and out."""
    device = _open(CHILD, descriptors)
    cq = device.create_cq(4096)
    qp = device.create_qp(cq)
    receiver = Receiver(device, cq, qp, seed)
    remote = json.loads(sys.stdin.readline())
    qp.connect(verbs.QpAttributes(**remote))
    receiver.post()
    region = receiver.mr.remote
    there = [region.addr, region.length, region.rkey]
    print(json.dumps({"qp": qp.attributes.as_dict(), "region": there}), flush=True)
    told = 0
    while True:
        readable, _, _ = select.select([cq, sys.stdin], [], [])
        if sys.stdin in readable and not sys.stdin.readline():
            device.close()
            return
        wrong = receiver.take()
        error = qp.error if qp.state == verbs.QpState.ERROR else ""
        if wrong or error or receiver.verified != told:
            told = receiver.verified
            print(json.dumps({"verified": told, "wrong": wrong or error}), flush=True)


class Child:
    """The other process, as seen from this one."""

    def __init__(
        self, sockets: list[socket.socket], seed: int, attributes: verbs.QpAttributes
    ) -> None:
        descriptors = [one.fileno() for one in sockets]
        program = f"from openmrc.soak.live import child; child({descriptors}, {seed})"
        self.process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=descriptors,
            text=True,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(attributes.as_dict()) + "\n")
        self.process.stdin.flush()
        first = json.loads(self.process.stdout.readline())
        self.attributes = verbs.QpAttributes(**first["qp"])
        self.region = verbs.RemoteRegion(*first["region"])
        self.verified = 0
        self.wrong = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with contextlib.suppress(ValueError):  # truncated by the kill
                told = json.loads(line)
                self.verified, self.wrong = told["verified"], told["wrong"]

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def end(self) -> None:
        """Kill it, whatever it is doing."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()


# --- the soak ---------------------------------------------------------------------------------


@dataclass
class Outcome:
    """The outcome of a soak."""

    wrong: list[str] = field(default_factory=list)
    messages: int = 0
    bytes: int = 0
    kills: int = 0
    stops: int = 0
    detect_s: list[float] = field(default_factory=list)
    rss_mb: list[float] = field(default_factory=list)
    frames: dict[str, int] = field(default_factory=dict)


class Soak:
    """One run. `say` gets a line every ten seconds."""

    def __init__(self, seed: int, seconds: float, say: Callable[[str], None]) -> None:
        self.seed, self.seconds, self.say = seed, seconds, say
        self.rng = random.Random(seed)
        self.out = Outcome()
        self.relay = Relay(NICS, PLANES, seed)
        ends = [[one.fileno() for one in row] for row in self.relay.ends]
        self.devices = [_open(nic, ends[nic]) for nic in range(CHILD)]
        self._flows()
        self.cq = self.devices[0].create_cq(4096)
        self._meet()

    def _flows(self) -> None:
        """The two devices of this process write to each other, over one pair of queue pairs."""
        a, b = self.devices
        queues = [[d.create_cq(4096), d.create_cq(4096)] for d in (a, b)]
        qps = [
            d.create_qp(send_cq, recv_cq)
            for d, (send_cq, recv_cq) in zip((a, b), queues, strict=True)
        ]
        qps[0].connect(qps[1].attributes)
        qps[1].connect(qps[0].attributes)
        self.pairs = []
        for i in range(2):
            j = 1 - i
            sender = Sender(self.devices[i], queues[i][0], qps[i], self.seed + i)
            receiver = Receiver(self.devices[j], queues[j][1], qps[j], self.seed + i)
            receiver.post()
            self.pairs.append((sender, receiver))

    def _meet(self) -> None:
        """Start the third device, and connect to it."""
        device = self.devices[0]
        self.qp = device.create_qp(self.cq)
        seed = self.seed + 1000 + self.out.kills
        self.child = Child(self.relay.ends[CHILD], seed, self.qp.attributes)
        self.qp.connect(self.child.attributes)
        self.remote = Sender(device, self.cq, self.qp, seed)

    def run(self) -> Outcome:
        """Run until the time is over or something is wrong."""
        started = time.monotonic()
        next_look = self._next_trouble = started
        next_kill = started + self.rng.uniform(0.3, 1.0) * min(KILL_EVERY_S, self.seconds / 2)
        stopped_until = 0.0
        self._alive_at, self._delivered = started, 0
        base: list[int] | None = None
        while not self.out.wrong and (now := time.monotonic()) < started + self.seconds:
            if stopped_until and now >= stopped_until:
                self.child.signal(signal.SIGCONT)
                stopped_until = 0.0
            if self._stir(now) and not stopped_until and self.rng.random() < 0.05:
                self.child.signal(signal.SIGSTOP)
                stopped_until = now + self.rng.uniform(0.05, STOP_MAX_S)
                self.out.stops += 1
            if now >= next_kill and not stopped_until:
                self._kill()
                next_kill = time.monotonic() + KILL_EVERY_S
            self._work()
            if now >= next_look and now >= started + SETTLE_S:
                next_look = now + 10.0
                base = self._look(base)
        if stopped_until:
            self.child.signal(signal.SIGCONT)
        self._finish(base)
        return self.out

    def _stir(self, now: float) -> bool:
        """Draw the network's trouble anew if it is time; True if it was."""
        if now < self._next_trouble:
            return False
        self._next_trouble = now + TROUBLE_EVERY_S
        self.relay.trouble = [self._draw() for _ in range(PLANES)]
        return True

    def _draw(self) -> Trouble:
        """The trouble of a plane for the next 100 ms."""
        pick = self.rng.random
        return Trouble(
            drop=pick() * 0.1 if pick() < 0.3 else 0.0,
            repeat=pick() * 0.1 if pick() < 0.3 else 0.0,
            reorder=pick() * 0.3 if pick() < 0.3 else 0.0,
            corrupt=pick() * 0.05 if pick() < 0.3 else 0.0,
            delay_s=pick() * 0.01 if pick() < 0.2 else 0.0,
            cut=pick() < 0.15,
        )

    def _work(self) -> None:
        """Run one turn of every sender and receiver."""
        self._work_here()
        for sender, _ in self.pairs:
            if sender.statuses or sender.qp.state != verbs.QpState.RTS:
                self._note(f"a healthy queue pair ended: {sender.qp.error} {sender.statuses}")
        self.remote.verified = self.child.verified
        self.remote.pump(self.child.region)
        self._note(self.remote.take() or self.child.wrong)
        if self.qp.state != verbs.QpState.RTS:
            self._note(f"the queue pair to a living peer ended: {self.qp.error}")
        delivered = sum(r.verified for _, r in self.pairs) + self.child.verified
        if delivered != self._delivered:
            self._delivered, self._alive_at = delivered, time.monotonic()
        elif time.monotonic() - self._alive_at > STILL_S:
            self._note(f"nothing was delivered for {STILL_S:.0f} s")
        time.sleep(0.002)

    def _work_here(self) -> None:
        """Run one turn of those in this process."""
        for sender, receiver in self.pairs:
            sender.verified = receiver.verified
            sender.pump(receiver.mr.remote)
            self._note(sender.take() or receiver.take())

    def _note(self, wrong: str) -> None:
        if wrong:
            self.out.wrong.append(wrong)

    def _kill(self) -> None:
        """Kill the peer: its queue pair must fail in time, and every request with it."""
        if not self._stop_with_work_under_way():
            return
        at = time.monotonic()
        self.child.end()
        until = at + retry_s() + RETRY_SLACK_S
        while self.qp.state != verbs.QpState.ERROR and time.monotonic() < until:
            self._stir(time.monotonic())
            self._work_here()
            self._note(self.remote.take())
            time.sleep(0.002)
        self.out.detect_s.append(time.monotonic() - at)
        if self.qp.state != verbs.QpState.ERROR:
            self._note(f"a killed peer is no error after {retry_s() + RETRY_SLACK_S:.1f} s")
        time.sleep(0.05)
        while self.remote.open and not self._wrong_of_take():
            if time.monotonic() > until + 1.0:
                self._note(f"{len(self.remote.open)} requests were never completed")
                break
        if self.remote.statuses[:1] not in ([], [verbs.Status.RETRY_EXC_ERR]):
            self._note(f"the first request to fail says {self.remote.statuses[0].name}")
        self.out.messages += self.child.verified
        self.qp.destroy()
        self.remote.mr.dereg()
        self.out.kills += 1
        self._drain()
        self._meet()

    def _stop_with_work_under_way(self) -> bool:
        """Stop the peer before it has answered everything: an end that waits for nothing cannot
        detect that its peer is gone (row 28). False if something was wrong.
        """
        while not self.out.wrong:
            self.child.signal(signal.SIGSTOP)
            time.sleep(0.1)  # its messages have arrived by then
            self._work()
            self._note(self.remote.take())
            if self.remote.open:
                return True
            self.child.signal(signal.SIGCONT)
            for _ in range(10):
                self._work()
        return False

    def _wrong_of_take(self) -> str:
        wrong = self.remote.take()
        self._note(wrong)
        return wrong

    def _drain(self) -> None:
        """Drain what the dead process left in its sockets: it is not for the next one."""
        for one in self.relay.ends[CHILD]:
            with contextlib.suppress(OSError):
                while one.recv(1 << 16):
                    pass

    def _look(self, base: list[int] | None) -> list[int]:
        """Memory, slots and descriptors must not exceed those of the first measurement."""
        device = self.devices[0]
        now = [
            len(os.listdir("/proc/self/fd")),
            sum(int(d._host._used.sum()) for d in self.devices),
            sum(len(d._regions) for d in self.devices),
        ]
        self.out.rss_mb.append(_rss_mb())
        ctl = device._host.ep.ctl[0]
        if int(ctl.posted) - int(ctl.taken) > 4 * SLOTS:
            self._note("posts are not taken")
        if base is not None and now != base:
            self._note(f"descriptors, queue pairs, regions: {now}, and {base} before")
        if self.out.rss_mb[-1] > self.out.rss_mb[0] + RSS_SLACK_MB:
            self._note(f"memory grows: {self.out.rss_mb} MB")
        delivered = sum(r.verified for _, r in self.pairs) + self.out.messages
        self.say(
            f"{delivered + self.child.verified} messages, {self.out.kills} killed,"
            f" {self.out.stops} stopped, {self.out.rss_mb[-1]:.0f} MB"
        )
        return base or now

    def _finish(self, base: list[int] | None) -> None:
        """Stop the trouble: everything arrives, and all resources are released."""
        self.relay.trouble = [Trouble() for _ in range(PLANES)]
        until = time.monotonic() + STILL_S
        senders = [*(s for s, _ in self.pairs), self.remote]
        while not self.out.wrong and any(s.open for s in senders):
            for sender, receiver in self.pairs:
                self._note(sender.take() or receiver.take())
            self._note(self.remote.take() or self.child.wrong)
            if time.monotonic() > until:
                self._note(f"{[len(s.open) for s in senders]} requests never completed")
            time.sleep(0.002)
        if not self.out.wrong:
            self._look(base)
        self.out.messages += sum(r.verified for _, r in self.pairs) + self.child.verified
        self.out.bytes = sum(r.bytes for _, r in self.pairs)
        names = ("forwarded", "dropped", "repeated", "corrupted", "delayed")
        self.out.frames = {name: int(getattr(self.relay, name)) for name in names}

    def close(self) -> None:
        """Release all resources."""
        self.child.end()
        for device in self.devices:
            device.close()
        self.relay.close()


def _rss_mb() -> float:
    with open("/proc/self/status", encoding="ascii") as status:
        line = next(line for line in status if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def soak(seed: int, minutes: float, say: Callable[[str], None] = print) -> int:
    """Run for `minutes`; return 1 if something was wrong, else 0. `say` gets progress and
    errors.
    """
    one = Soak(seed, minutes * 60, say)
    try:
        out = one.run()
    finally:
        one.close()
    detect = f"{max(out.detect_s):.1f}" if out.detect_s else "-"
    say(
        f"{'FAILED' if out.wrong else 'ok'} {seed}: {out.messages} messages,"
        f" {out.bytes / 1e6:.0f} MB verified here, frames {json.dumps(out.frames)},"
        f" {out.stops} stops, {out.kills} kills, noticed within {detect} s"
        f" (retry time {retry_s():.1f} s)"
    )
    for line in out.wrong:
        say(f"  {line}")
    if out.wrong:
        say(f"  again: mrc soak --world live --minutes {minutes:g} --seed {seed}")
    return 1 if out.wrong else 0
