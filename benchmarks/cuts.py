"""How soon a live transfer is back after a plane has gone silent: median of so many cuts.

One QP from NIC 0 to NIC 7 over four planes, inside this process (openmrc.verbs.inside). A plane
begins to lose everything in its middle; nobody is told. Goodput is read in windows of 20 ms; what
counts is the end of the first window after the cut that carries 70 % of the steady goodput again.

    .venv/bin/python benchmarks/cuts.py [--cuts 20] [--rate-mbps 60]
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time

import numpy as np

from openmrc.fabric.clos import multiplane
from openmrc.verbs import QueuePair
from openmrc.verbs.inside import Inside

WINDOW_S, STEADY_S, AFTER_S = 0.02, 1.0, 0.5
SHARE = 0.7
MESSAGE_BYTES, DEPTH = 64 * 1024, 32


def keep_writing(qp: QueuePair, post: object, stop: threading.Event) -> None:
    """Post again what has completed."""
    assert callable(post)
    for _ in range(DEPTH):
        post()
    while not stop.is_set():
        for done in qp.send_cq.wait(1, 0.1):
            assert done.status.name == "SUCCESS", done
            post()


def windows(qp: QueuePair, seconds: float) -> list[tuple[float, float]]:
    """Goodput of consecutive windows: when each ended, and bytes per second."""
    found = []
    last_at, last = time.perf_counter(), qp.counters()["rx_bytes"]
    until = last_at + seconds
    while last_at < until:
        time.sleep(WINDOW_S - 0.0005)
        at, now = time.perf_counter(), qp.counters()["rx_bytes"]
        found.append((at, (now - last) / (at - last_at)))
        last_at, last = at, now
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cuts", type=int, default=20)
    parser.add_argument("--rate-mbps", type=int, default=60, help="of each plane")
    options = parser.parse_args()
    fabric = multiplane(8, 4, options.rate_mbps * 10**6, 4, 2, 0, 0)
    with Inside(fabric) as lab:
        a, b = lab.device(0), lab.device(7)
        qa, qb = lab.connect(a, b)
        source = a.reg_mr(np.zeros(MESSAGE_BYTES, np.uint8))
        sink = b.reg_mr(bytearray(MESSAGE_BYTES))
        stop = threading.Event()

        def post() -> None:
            qa.post_write(0, source, remote_addr=sink.addr, rkey=sink.rkey)

        writer = threading.Thread(target=keep_writing, args=(qa, post, stop))
        writer.start()
        time.sleep(1)
        back_ms, shares = [], []
        for cut in range(options.cuts):
            steady = statistics.mean(rate for _, rate in windows(qb, STEADY_S))
            place = f"plane {cut % 4} t0 * - t1 *"
            lab.lose(place, 1.0)
            began = time.perf_counter()
            after = windows(qb, AFTER_S)
            ends = [at for at, rate in after if rate >= SHARE * steady]
            back_ms.append(1e3 * (ends[0] - began) if ends else float("inf"))
            shares.append(statistics.mean(rate for _, rate in after[-10:]) / steady)
            lab.heal(place)
            while any(ev["state"] == "ASSUMED_BAD" for ev in qa.evs()):
                time.sleep(0.05)
            print(
                f"cut {cut + 1}: {8e-6 * steady:.0f} Mb/s before, {back_ms[-1]:.0f} ms to"
                f" {SHARE:.0%}, {shares[-1]:.0%} afterwards",
                flush=True,
            )
        stop.set()
        writer.join()
    print(f"median {statistics.median(back_ms):.0f} ms, worst {max(back_ms):.0f} ms")


if __name__ == "__main__":
    main()
