"""MRC in plain UDP between two network namespaces, over virtual Ethernets without a switch.

`mrc perf write_bw --planes e0,e1` at both ends, without root and without a trace: goodput, and with
`--cut` how long a plane costs it that begins to lose everything in its middle, both ways, while
nobody is told (windows of 20 ms, 70 % of the steady goodput).

    .venv/bin/python benchmarks/ordinary.py --planes 2 --mtu 9000
    .venv/bin/python benchmarks/ordinary.py --planes 4 --mtu 1500 --rate-mbps 500 --cut
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, TextIO

import numpy as np

from openmrc.live.lab.isolation import run_isolated
from openmrc.torch.bench.network import Network, address
from openmrc.verbs import Device, exchange
from openmrc.verbs import secret as secrets
from openmrc.verbs.qp import QueuePair

SECRET, PORT = secrets.given(None) or secrets.new(), 7471
MESSAGE_BYTES, DEPTH = 1 << 20, 16
WINDOW_S, SHARE = 0.02, 0.7


def start(network: Network, end: int, words: Sequence[str]) -> subprocess.Popen[str]:
    return network.start(
        end,
        [sys.executable, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "OPENMRC_SECRET": SECRET.hex()},
    )


def healthy(options: argparse.Namespace, network: Network) -> dict[str, Any]:
    """What `mrc perf` says; CPU seconds are of both processes, start-up included."""
    words = ["-m", "openmrc.cli", "perf", "write_bw", "--planes", network.interfaces, "--json"]
    measure = ["-D", str(options.seconds), "-s", "1MiB", "-t", str(DEPTH), "-q", str(options.qps)]
    server = start(network, 1, words)
    client = start(network, 0, [*words, *measure, address(1, 0, options.ip)])
    said, errors = client.communicate()
    server.communicate()
    if client.returncode:
        raise SystemExit(errors)
    told = json.loads(said)
    ports, pairs = told["device"]["ports"], list(told["queue_pairs"].values())
    sent = [port["tx_packets"] for port in ports]
    return {
        "goodput_gbps": told["rows"][0]["bw_average_gbps"],
        "pmtu_bytes": told["pmtu_bytes"],
        "base_rtt_us": told["base_rtt_us"],
        "sent_again": sum(one["rtx"] for one in pairs) / sum(one["tx_packets"] for one in pairs),
        "paths_bad": sum(one["paths_bad"] for one in pairs),
        "planes": [round(one / sum(sent), 3) for one in sent],
    }


def after_a_cut(options: argparse.Namespace, network: Network) -> dict[str, Any]:
    """The outage in ms, and goodput before and after it."""
    here = [__file__, "--planes", str(options.planes), "--ip", str(options.ip), "--end"]
    ends = []
    for end in (1, 0):  # the server hears before the client speaks
        ends.append(start(network, end, [*here, str(end)]))
        if not said_by(ends[-1]).readline():
            raise SystemExit(ends[-1].communicate()[1])
    client = ends[1]
    time.sleep(options.seconds)
    network.cut(options.planes - 1)
    at = time.monotonic()
    seen = [tuple(one) for one in json.loads(said_by(client).readline())]
    for one in ends:
        one.communicate()
    before = statistics.median(rate for when, rate in seen if at - 1.0 < when < at)
    back = next(when for when, rate in seen if when > at and rate >= SHARE * before)
    after = statistics.median(rate for when, rate in seen if when > at + 0.5)
    return {
        "before_gbps": before * 8e-9,
        "after_gbps": after * 8e-9,
        "outage_ms": (back - at) * 1e3,
    }


def said_by(process: subprocess.Popen[str]) -> TextIO:
    assert process.stdout is not None
    return process.stdout


def serve(device: Device, qp: QueuePair, host: str) -> None:
    sink = device.reg_mr(np.zeros(MESSAGE_BYTES, np.uint8))
    with exchange.Listener(PORT, SECRET, host) as listener:
        print("listening", flush=True)
        with listener.accept(qp, [sink]) as peer:
            peer.wait()


def write(device: Device, qp: QueuePair, host: str, seconds: float) -> None:
    """Write until the time is over; one line when it has begun, one with what windows carried."""
    source = device.reg_mr(np.zeros(MESSAGE_BYTES, np.uint8))
    stop = threading.Event()
    with exchange.connect(qp, host, PORT, SECRET) as peer:
        [there] = peer.regions

        def keep() -> None:
            open_ = 0
            while open_ or not stop.is_set():
                while open_ < DEPTH and not stop.is_set():
                    qp.post_write(0, source, remote_addr=there.addr, rkey=there.rkey)
                    open_ += 1
                for done in qp.send_cq.wait(1, 0.1):
                    assert done.status.name == "SUCCESS", done
                    open_ -= 1

        writer = threading.Thread(target=keep)
        writer.start()
        print("begun", flush=True)
        seen = []
        last_at, last = time.monotonic(), acknowledged(qp)
        until = last_at + seconds
        while last_at < until:
            time.sleep(WINDOW_S)
            at, now = time.monotonic(), acknowledged(qp)
            seen.append((at, (now - last) / (at - last_at)))
            last_at, last = at, now
        stop.set()
        writer.join()
        print(json.dumps(seen), flush=True)


def acknowledged(qp: QueuePair) -> int:
    """Payload bytes sent, without what was sent again or is not known to have arrived."""
    found = qp.counters()
    return found["tx_bytes"] - found["rtx"] * qp.attributes.pmtu - found["inflight_bytes"]


def be_an_end(options: argparse.Namespace) -> int:
    names = [f"e{k}" for k in range(options.planes)]
    with Device.on_network(names) as device:
        qp = device.create_qp(device.create_cq())
        if options.end == 1:
            serve(device, qp, address(1, 0, options.ip))
        else:
            write(device, qp, address(1, 0, options.ip), 2 * options.seconds)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--planes", type=int, default=2)
    parser.add_argument("--mtu", type=int, default=9000)
    parser.add_argument("--ip", type=int, default=4, choices=(4, 6))
    parser.add_argument("--rate-mbps", type=int, default=0, help="of each plane; 0: no limit")
    parser.add_argument("--qps", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--cut", action="store_true", help="a plane goes silent half way")
    parser.add_argument("--end", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.end is not None:
        return be_an_end(options)

    def work() -> int:
        shape = {"mtu": options.mtu, "version": options.ip, "rate_mbps": options.rate_mbps}
        network = Network(2, options.planes, **shape)
        found = (after_a_cut if options.cut else healthy)(options, network)
        print(json.dumps(found))
        return 0

    return run_isolated(work)


if __name__ == "__main__":
    sys.exit(main())
