"""What a frame costs the switches of a live fabric: thousands of frames a second on one core.

    .venv/bin/python benchmarks/switches.py [--quick] [--json] [--seconds S]

One compiled thread sends frames of 8 NICs on 4 planes and receives them, with a window in flight;
the switches' loop runs beside it. Links are so fast that only the loop's own cost counts. Of each
kind of wire: frames a second through the fabric, and frames per second of CPU time of the loop,
which is what a core could do alone. Three hops each, spread over all planes and paths.

    udp      pairs of UDP sockets on 127.0.0.1
    local    pairs of AF_UNIX sockets
    packet   packet sockets on pairs of virtual Ethernets, in a namespace of this benchmark's own

`paced` is a lab as it should be: links of 100 Mb/s, a frame each 50 us (20 kpps, 0.7 Gb/s in all):
how late frames left, median, 99 % and worst, and how much of a core it took; with the loop's own
grain and, `exact`, without one.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from typing import Any

import numpy as np

from openmrc.engine import packet
from openmrc.engine.packet import CLASS_DATA, PACKET
from openmrc.fabric.clos import multiplane
from openmrc.fabric.model import Fabric
from openmrc.fabric.queues import Queues
from openmrc.jit import compiled, records
from openmrc.live.overlay import overlay_ports
from openmrc.live.switch.switches import Switches
from openmrc.live.syscalls import monotonic_ns, new_batch, receive, send
from openmrc.wire import addresses, codec, layout, srv6
from openmrc.wire.frame import ENVELOPE

NICS, PLANES = 8, 4
KINDS = ("udp", "local", "packet")
BATCH, WINDOW = 8, 512
LOST_NS = 20_000_000  # nothing has come for so long: what is out is lost
FAST_BPS, SLOW_BPS = 10**14, 10**8  # nothing ever waits; a lab
PACE_NS = 50_000
SIZES = {"4096 B": 4096, "0 B": 0}
_INSIDE = "OPENMRC_BENCH_NAMESPACE"


def fabric(rate_bps: int) -> Fabric:
    """T0s of 4 NICs, 4 uplinks."""
    return multiplane(NICS, PLANES, rate_bps, 4, 4, 1_000_000, 500_000)


def wires(kind: str) -> Any:
    """Ends of all wires: (switches', NICs')."""
    n = NICS * PLANES
    if kind != "packet":
        return overlay_ports(n, kind)
    return (
        np.array([_packet_socket(f"s{i}") for i in range(n)], np.int32),
        np.array([_packet_socket(f"h{i}") for i in range(n)], np.int32),
    )


def _packet_socket(interface: str) -> int:
    ignore_outgoing = 23
    one = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
    one.setsockopt(263, ignore_outgoing, 1)
    one.setblocking(False)
    one.bind((interface, layout.ETHERTYPE_IPV6))
    return one.detach()


def inside_namespace(arguments: list[str]) -> Any:
    """Run this benchmark for packet sockets in a network of its own; None where none is allowed."""
    lines = [
        f"link add s{i} mtu 9000 type veth peer name h{i} mtu 9000\nlink set s{i} up\n"
        f"link set h{i} up"
        for i in range(NICS * PLANES)
    ]
    script = 'echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6 && ip -batch - && exec "$@"'
    command = ["unshare", "-Urn", "sh", "-c", script, "sh", sys.executable, __file__]
    done = subprocess.run(
        [*command, *arguments, "--json", "--only", "packet"],
        input="\n".join(lines),
        text=True,
        capture_output=True,
        env={**os.environ, _INSIDE: "1"},
        check=False,
    )
    return json.loads(done.stdout)["packet"] if done.returncode == 0 else None


def batch_of(f: Fabric, payload: int) -> Any:
    """BATCH frames for each wire: to the NIC half way round, each on another path."""
    _, headend = srv6.of_fabric(f)
    batch = new_batch(NICS * PLANES * BATCH, 9100)
    p, e = records(1, PACKET)[0], records(1, ENVELOPE)[0]
    p.opcode, p.klass, p.payload_len = packet.WRITE_MIDDLE, CLASS_DATA, payload
    e.srv6, e.tseth, e.hop_limit, e.inner_hop_limit = 1, 1, 64, 64
    e.udp_port = layout.UDP_PORT
    for wire in range(NICS * PLANES):
        src, plane = divmod(wire, PLANES)
        dst = (src + NICS // 2) % NICS
        addresses.write_ipv6(e.inner_src, 0, src, plane)
        addresses.write_ipv6(e.inner_dst, 0, dst, plane)
        for k in range(BATCH):
            p.ev = f.ev(plane, k % 4)
            srv6.write_carrier(e.carrier, 0, headend, src, dst, int(p.ev))
            i = wire * BATCH + k
            batch.iov[i].length = codec.encode(p, e, np.zeros(0, np.uint8), batch.data[i], 1)
    return batch


@compiled
def drive(tx, rx, fds, window, until_ns, each_ns, word):
    """Send and receive on all wires until then: frames received. A frame each `each_ns`, if any."""
    n, received, out, wire = fds.shape[0], 0, 0, 0
    now = monotonic_ns(word)
    heard = now
    next_ns = now
    while now < until_ns:
        if each_ns == 0:
            for k in range(n):
                if out < window:
                    out += max(send(fds[k], tx, k * BATCH, BATCH), 0)
        elif now >= next_ns:
            send(fds[wire], tx, wire * BATCH, 1)
            wire = (wire + 1) % n
            next_ns += each_ns
        for k in range(n):
            got = receive(fds[k], rx, 32)
            if got > 0:
                received += got
                out -= got
                heard = now
        now = monotonic_ns(word)
        if now - heard > LOST_NS:
            out = 0
            heard = now
    return received


def measure(
    kind: str, payload: int, seconds: float, each_ns: int = 0, grain_ns: int | None = None
) -> dict[str, float]:
    """Run once; rates, and what the loop says of itself."""
    f = fabric(SLOW_BPS if each_ns else FAST_BPS)
    ends = wires(kind)
    word, tx, rx = np.zeros(2, np.int64), batch_of(f, payload), new_batch(32, 9100)
    queues = Queues(queue_bytes=1 << 30, queue_last_hop_bytes=1 << 30)
    with Switches(f, queues, ends[0], grain_ns=grain_ns) as s:
        s.start()
        drive(tx, rx, ends[1], WINDOW, time.monotonic_ns() + 50_000_000, each_ns, word)
        clock = time.pthread_getcpuclockid(s._thread.ident)  # type: ignore[union-attr, arg-type]
        before, cpu, started = s.counters(), time.clock_gettime(clock), time.perf_counter()
        s.net.late[:] = 0
        until = time.monotonic_ns() + int(seconds * 1e9)
        drive(tx, rx, ends[1], WINDOW, until, each_ns, word)
        wall, cpu = time.perf_counter() - started, time.clock_gettime(clock) - cpu
        after = s.counters()
    for fd in (*ends[0], *ends[1]):
        os.close(fd)
    frames = int(after.delivered.sum() - before.delivered.sum())
    return {
        "kpps": frames / wall / 1e3,
        "kpps_per_cpu": frames / cpu / 1e3,
        "busy": cpu / wall,
        "frames_per_turn": frames / max(after.turns - before.turns, 1),
        "late_us_p50": after.late_us(0.5),
        "late_us_p99": after.late_us(0.99),
        "late_us_max": after.late_ps_max / 1e6,
        "lost": int(after.dropped.sum() + after.socket_lost.sum()),
    }


def kind_of_wire(kind: str, seconds: float) -> dict[str, Any]:
    """All figures of one kind."""
    found: dict[str, Any] = {name: measure(kind, size, seconds) for name, size in SIZES.items()}
    found["paced"] = measure(kind, 4096, seconds, PACE_NS)
    found["exact"] = measure(kind, 4096, seconds, PACE_NS, grain_ns=0)
    return found


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("--quick", action="store_true", help="a quarter of a second each")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", choices=KINDS)
    chosen = parser.parse_args()
    seconds = 0.25 if chosen.quick else chosen.seconds
    found: dict[str, Any] = {}
    for kind in [chosen.only] if chosen.only else KINDS:
        if kind == "packet" and not os.environ.get(_INSIDE):
            found[kind] = inside_namespace(["--seconds", str(seconds)])
        else:
            found[kind] = kind_of_wire(kind, seconds)
    if chosen.json:
        print(json.dumps(found))
        return
    print("frames of        kpps   kpps/cpu   busy   frames/turn   lost")
    for kind, figures in found.items():
        if figures is None:
            print(f"{kind:7} skipped: user and network namespaces are not allowed here")
            continue
        for name in SIZES:
            v = figures[name]
            print(
                f"{kind:7}{name:>7}{v['kpps']:8.0f}{v['kpps_per_cpu']:11.0f}{v['busy']:7.2f}"
                f"{v['frames_per_turn']:14.1f}{v['lost']:7}"
            )
        for name in ("paced", "exact"):
            v = figures[name]
            print(
                f"{kind:7}{name:>7}: late {v['late_us_p50']} us, 99 % {v['late_us_p99']} us, worst"
                f" {v['late_us_max']:.0f} us; {v['busy']:.2f} of a core for {v['kpps']:.1f} kpps"
            )


if __name__ == "__main__":
    main()
