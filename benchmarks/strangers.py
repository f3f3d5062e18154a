"""What a flood costs: nanoseconds of a live endpoint's loop for each frame of a stranger.

    .venv/bin/python benchmarks/strangers.py [--quick] [--json]

Frames of 4 KB of payload come at 20,000 a second (of the loop's own clock). `foreign` are valid
ones for another queue pair of the device: checked, placed, answered with a SACK each 16 KB. Every
other line is a kind of frame that is refused; the bar is that none costs more than `foreign`.
Answers are made and handed to the kernel within the time measured; taking frames from the kernel is
not in it, and costs the same for all.

`goodput` is that of a transfer between two devices over loopback sockets while another process
floods one of its planes at the transfer's own packet rate of that plane, beside the same with no
flood: median of several runs. It shares the cores of the machine with all that runs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from openmrc.engine import packet as pk
from openmrc.engine import state as es
from openmrc.fabric.clos import multiplane
from openmrc.jit import compiled, inlined
from openmrc.live import overlay
from openmrc.live.endpoint import host, loop, transmit
from openmrc.live.endpoint.limits import Limits, Port
from openmrc.verbs import Device, RemoteRegion
from openmrc.wire import addresses, codec, frame

PMTU = 4096
BATCH = 256  # frames made at a time, a message of 1 MB
ROOM = 4352
GAP_PS = 50_000_000  # 20,000 frames a second
MESSAGE = BATCH * PMTU
PEER_QPN, PEER_PSN = 0x123456, 1000


class Maker:
    """Frames to one queue pair of NIC `dst`, as its peer, NIC `src`, sends them on plane 0."""

    def __init__(self, dst: int, qpn: int, psn: int, region: RemoteRegion, src: int = 1) -> None:
        self.qpn, self.psn, self.region = qpn, psn, region
        self.p = np.zeros(1, pk.PACKET).view(np.recarray)
        self.e = np.zeros(1, frame.ENVELOPE).view(np.recarray)
        e = self.e[0]
        e.srv6 = e.tseth = 1
        e.carrier[:] = 1
        e.hop_limit = e.inner_hop_limit = 64
        e.udp_port, e.pkey = 4791, 0xFFFF
        e.inner_src[:] = list(addresses.ipv6(src, 0).packed)
        e.inner_dst[:] = list(addresses.ipv6(dst, 0).packed)
        self.payload = np.random.default_rng(1).integers(0, 256, PMTU, dtype=np.uint8)

    def frame(self, out: Any, seq: int, **changes: Any) -> int:
        """Write packet `seq` of a stream of 1 MB messages into `out`; its length."""
        p, index = self.p[0], seq % BATCH
        opcode = {0: pk.WRITE_FIRST, BATCH - 1: pk.WRITE_LAST}.get(index, pk.WRITE_MIDDLE)
        p.opcode, p.klass, p.flag_bits = opcode, pk.CLASS_DATA, 0
        if index == BATCH - 1:
            p.flag_bits = pk.ACK_REQ
        p.dst_qpn, p.psn, p.msn = self.qpn, self.psn + seq & 0xFF_FFFF, seq // BATCH & 0xFFFF
        p.va, p.rkey = self.region.addr + index * PMTU, self.region.rkey
        p.dma_len, p.payload_len = MESSAGE, PMTU
        for name, value in changes.items():
            p[name] = value
        return int(codec.encode(p, self.e[0], self.payload, out, 1))


class Receiver:
    """An endpoint without a thread, whose answers somebody takes away."""

    def __init__(self) -> None:
        fabric = multiplane(3, 2, 10 * 10**9, 1, 2, 500_000, 250_000)
        self.pairs = [overlay.pair() for _ in range(2)]
        ports = [Port(pair[0].fileno(), bytes(6)) for pair in self.pairs]
        limits = Limits(qps=2)
        self.host = host.Host(fabric, 0, ports, limits, 500_000_000)
        one = self.host
        one.open_qp(one.new_qp(0, 0), 1, PEER_QPN, PEER_PSN, 512, 128)
        self.room = np.zeros(MESSAGE, np.uint8)
        r = one.st.region[7]
        r.va = one.ep.region[7] = self.room.__array_interface__["data"][0]
        r.length, r.nic, r.rkey = MESSAGE, 0, 99 << es.REGION_INDEX_BITS | 7
        region = RemoteRegion(int(r.va), MESSAGE, int(r.rkey))
        self.maker = Maker(0, int(one.st.qp[0].qpn), PEER_PSN, region)
        self.frames = np.zeros((BATCH, ROOM), np.uint8)
        self.lengths = np.zeros(BATCH, np.int64)
        self.seq = 0
        self.now = GAP_PS
        self._stop = False
        self._drain = threading.Thread(target=self._take_away, daemon=True)
        self._drain.start()

    def _take_away(self) -> None:
        while not self._stop:
            for pair in self.pairs:
                try:
                    while True:
                        pair[1].recv(9000)
                except BlockingIOError:
                    pass
            time.sleep(0.0005)

    def close(self) -> None:
        self._stop = True
        self._drain.join()
        for pair in self.pairs:
            for end in pair:
                end.close()

    def valid(self) -> None:
        """The next message."""
        for i in range(BATCH):
            self.lengths[i] = self.maker.frame(self.frames[i], self.seq + i)
        self.seq += BATCH

    def hear(self) -> float:
        """Let the endpoint hear the batch; ns per frame."""
        one = self.host
        started = time.perf_counter_ns()
        _hear(
            one.ep, one.st, one.tx, one.headend, self.frames, self.lengths, self.now, GAP_PS, BATCH
        )
        taken = time.perf_counter_ns() - started
        self.now += BATCH * GAP_PS
        return taken / BATCH


@inlined
def _hear_all(ep, st, tx, headend, frames, lengths, now, gap, n):
    for i in range(n):
        loop.take_frame(ep, st, tx, headend, frames[i, : lengths[i]], 0, now + i * gap)
        if i & 15 == 15:
            transmit.flush_all(ep, tx)


@compiled
def _hear(ep, st, tx, headend, frames, lengths, now, gap, n):
    _hear_all(ep, st, tx, headend, frames, lengths, now, gap, n)


# Each makes a frame that is refused, out of a receiver that has heard `seq` packets.
Kind = Callable[[Receiver, Any], int]


def _made(**changes: Any) -> Kind:
    return lambda r, out: r.maker.frame(out, r.seq + BATCH // 2, **changes)


def _wrong_source(r: Receiver, out: Any) -> int:
    own = r.maker.e[0].inner_src.copy()
    r.maker.e[0].inner_src[:] = list(addresses.ipv6(2, 0).packed)
    n = r.maker.frame(out, r.seq)
    r.maker.e[0].inner_src[:] = own
    return n


def _bad_icrc(r: Receiver, out: Any) -> int:
    n = r.maker.frame(out, r.seq)
    out[n - 1] ^= 1
    return n


def _trimmed(r: Receiver, out: Any) -> int:
    return int(codec.trim(out, r.maker.frame(out, r.seq + 3), 0, 0, 0))


KINDS: dict[str, Kind] = {
    "unknown QPN": _made(dst_qpn=0xABCDE0),
    "wrong source": _wrong_source,
    "bad iCRC": _bad_icrc,
    "wrong rkey": _made(rkey=1),
    "out of bounds": _made(va=0),
    "outside the window": lambda r, out: r.maker.frame(out, r.seq + 500_000),
    "received before": lambda r, out: r.maker.frame(out, r.seq - 7),
    "received before, urgent": lambda r, out: r.maker.frame(
        out, r.seq - 7, flag_bits=pk.RTX | pk.ACK_REQ
    ),
    "truncated": lambda r, out: r.maker.frame(out, r.seq) - 9,
    "trimmed header": _trimmed,
}


def costs(rounds: int) -> dict[str, float]:
    """ns of the loop per frame, by kind: the median of `rounds` batches."""
    receiver = Receiver()
    found: dict[str, list[float]] = {"foreign": [], **{kind: [] for kind in KINDS}}
    for number in range(rounds + 1):
        receiver.valid()
        took = {"foreign": receiver.hear()}
        assert receiver.host.st.qp[0].rx_msn == number + 1  # all of it was taken
        for kind, make in KINDS.items():
            for i in range(BATCH):
                receiver.lengths[i] = make(receiver, receiver.frames[i])
            took[kind] = receiver.hear()
            assert receiver.host.st.qp[0].rx_msn == number + 1
        if number:  # the first round compiles
            for kind, ns in took.items():
                found[kind].append(ns)
    receiver.close()
    return {kind: statistics.median(ns) for kind, ns in found.items()}


# --- goodput under a flood


def flood(fd: int, qpn: int, psn: int, addr: int, rkey: int, kind: str, rate: float) -> None:
    """In a process of its own: write frames to a cable at `rate` a second, until killed."""
    import socket

    port = socket.socket(fileno=fd)
    maker = Maker(1, qpn, psn, RemoteRegion(addr, MESSAGE, rkey), src=0)
    changes = {"unknown QPN": {"dst_qpn": 0xABCDE0}, "wrong rkey": {"rkey": 1}}.get(kind, {})
    out = np.zeros(ROOM, np.uint8)
    started, sent = time.perf_counter(), 0
    while True:
        due = int((time.perf_counter() - started) * rate)
        while sent < due:
            seq = sent if kind == "foreign" else 3 if kind == "received before" else sent % 97 + 9
            seq += 500_000 if kind == "outside the window" else 0
            n = maker.frame(out, seq, **changes)
            try:
                port.send(out[:n])
            except BlockingIOError:
                break  # the cable is full: the same frame again
            sent += 1
        time.sleep(0.0005)


FLOODS = ("foreign", "unknown QPN", "wrong rkey", "outside the window", "received before")


def goodput(kind: str, rate: float, seconds: float) -> tuple[float, float]:
    """Gb/s of a transfer, and its packets a second on a plane, under a flood of `kind`."""
    fabric = multiplane(3, 2, 10 * 10**9, 1, 2, 500_000, 250_000)
    pairs = [overlay.pair() for _ in range(2)]
    devices = [
        Device(
            fabric,
            nic,
            [Port(pair[nic].fileno(), bytes(6)) for pair in pairs],
            base_rtt_ps=2_000_000_000,
        )
        for nic in range(2)
    ]
    a, b = devices
    cq = a.create_cq()
    qps = [(a.create_qp(cq), b.create_qp(b.create_cq())) for _ in range(2)]
    for one, other in qps:
        one.connect(other.attributes)
        other.connect(one.attributes)
    source = a.reg_mr(np.zeros(4 * MESSAGE, np.uint8))
    sink, other_sink = b.reg_mr(np.zeros(4 * MESSAGE, np.uint8)), b.reg_mr(bytearray(MESSAGE))
    flooder = None
    if kind:
        there = qps[1][1]
        psn = int(there._q.peer_psn)
        fd = pairs[0][0].fileno()
        values = (fd, there.qp_num, psn, other_sink.addr, other_sink.rkey, kind, rate)
        here = str(Path(__file__).parent)
        program = f"import sys; sys.path[:0] = [{here!r}]; import strangers as s; s.flood{values}"
        flooder = subprocess.Popen([sys.executable, "-c", program], pass_fds=[fd])
        until = time.monotonic() + 60
        before = b.counters()["ports"][0]["rx_packets"]
        while b.counters()["ports"][0]["rx_packets"] < before + 1000:
            assert time.monotonic() < until
            time.sleep(0.01)
    for _ in range(8):
        qps[0][0].post_write(0, source, remote_addr=sink.addr, rkey=sink.rkey)
    started, done = time.perf_counter(), 0
    packets = qps[0][0].counters()["tx_packets"]
    while (now := time.perf_counter()) < started + seconds:
        for _ in cq.wait(1, timeout=1.0):
            done += 1
            qps[0][0].post_write(0, source, remote_addr=sink.addr, rkey=sink.rkey)
    packets = qps[0][0].counters()["tx_packets"] - packets
    if flooder is not None:
        flooder.kill()
        flooder.wait()
    for device in devices:
        device.close()
    for pair in pairs:
        for end in pair:
            end.close()
    return done * 32 * MESSAGE / (now - started) / 1e9, packets / (now - started) / 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only show that it runs")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    ns = costs(3 if arguments.quick else 60)
    figures: dict[str, Any] = {"ns_per_frame": ns}
    if not arguments.quick:
        runs = [goodput("", 0.0, 2.0) for _ in range(3)]
        alone, rate = statistics.median(r[0] for r in runs), statistics.median(r[1] for r in runs)
        gbps = {
            kind: statistics.median(goodput(kind, rate, 2.0)[0] for _ in range(3))
            for kind in FLOODS
        }
        figures |= {"rate_per_s": rate, "goodput_gbps": {"no flood": alone, **gbps}}
    if arguments.json:
        print(json.dumps(figures))
        return
    for kind, cost in ns.items():
        print(f"{kind:26} {cost:8.0f} ns  {cost / ns['foreign']:5.2f} of foreign")
    for kind, rate_gbps in figures.get("goodput_gbps", {}).items():
        print(f"goodput, {kind:20} {rate_gbps:6.2f} Gb/s")


if __name__ == "__main__":
    main()
