"""The process on two hosts for openmrc: rank 0 keeps writes posted, rank 1's memory receives them.

    python -m openmrc.bench.lab.writes SECONDS

Rank 0 prints lines of JSON: `started` (ns of CLOCK_MONOTONIC), and at the end the curve of messages
that have completed, which is in order. A dead plane holds up later messages, too, as it holds up
what TCP's reader may read; data placed after the gap does not count for either.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence

import numpy as np

from openmrc import verbs
from openmrc.bench.lab.stream import NS_PER_S, say, say_curve
from openmrc.errors import OpenMrcError
from openmrc.verbs import exchange, hostfile

PORT = 7481
MESSAGE_BYTES, DEPTH = 64 * 1024, 32
PATIENCE_S = 20.0  # for posted requests to complete


def main(words: Sequence[str]) -> int:
    """Run this rank's part."""
    (seconds,) = map(float, words)
    server = os.environ["OPENMRC_HOSTS"].split(",")[1]
    try:
        with verbs.Device.open(cqs=1) as device:
            cq = device.create_cq()
            qp = device.create_qp(cq)
            if os.environ["OPENMRC_RANK"] == "1":
                _take(device, qp)
            else:
                with exchange.connect(qp, server, PORT, hostfile.secret()) as peer:
                    _write(device, qp, cq, peer.regions[0], seconds)
    except OpenMrcError as error:
        say(error=str(error))
        return 1
    return 0


def _take(device: verbs.Device, qp: verbs.QueuePair) -> None:
    sink = device.reg_mr(np.zeros(DEPTH * MESSAGE_BYTES, np.uint8))
    with exchange.Listener(PORT, hostfile.secret(), "0.0.0.0") as listener:
        peer = listener.accept(qp, [sink])
    with peer:
        peer.wait()


def _write(
    device: verbs.Device,
    qp: verbs.QueuePair,
    cq: verbs.CompletionQueue,
    sink: verbs.RemoteRegion,
    seconds: float,
) -> None:
    data = np.random.default_rng(1).integers(0, 256, MESSAGE_BYTES, np.uint8)
    source = device.reg_mr(data)
    started = time.monotonic_ns()
    say(started=started, pmtu=device.pmtu, base_rtt_us=device.base_rtt_us)
    posted = done = 0
    curve = [(started, 0)]
    while True:
        over = time.monotonic_ns() - started >= seconds * NS_PER_S
        while posted - done < DEPTH and not over:
            at = sink.addr + posted % DEPTH * MESSAGE_BYTES
            qp.post_write(posted, source, remote_addr=at, rkey=sink.rkey)
            posted += 1
        if posted == done:
            break
        completed = cq.wait(1, PATIENCE_S)
        if not completed or completed[0].status != verbs.Status.SUCCESS:
            raise OpenMrcError(f"a write did not complete: {completed or 'nothing came'}")
        done += 1
        curve.append((time.monotonic_ns(), done * MESSAGE_BYTES))
    say_curve("completed", curve)
    say(counters=qp.counters())


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
