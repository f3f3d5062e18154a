"""What a failure costs a job that never stops sending: MRC, switches that balance, hashed RoCEv2.

    .venv/bin/python benchmarks/adaptive.py [SIZE] [SEEDS]

A ring of 32 NICs of four planes of 100 Gb/s, ranks at random, passes messages of SIZE (1MB) on
without a pause; its rate is compared with that of the same ring without a failure:

link      a link between two switches dies, and routing knows 20 ms later: the share of that time
          that is lost, and the same in ms
port      a NIC loses a port, and each NIC leaves the plane towards it 3 ms later (RoCEv2: by
          routing, 20 ms): what is lost, ms, beyond the missing bandwidth

`mrc plan` takes its assumptions on stalls from here. (Other figures of switches that balance are
experiments A1 to A4 of `mrc paper`.)
"""

from __future__ import annotations

import sys

import numpy as np

from openmrc.run.simulation import simulate
from openmrc.scenario.scenario import parse_scenario

KNOWN_MS = 20
RING = """
    [fabric]
    nics = 32
    planes = 4
    port_rate = "100Gbps"
    t0_down = 8
    [workload]
    kind = "send-recv"
    order = "random"
    size = "%s"
"""
JOB = f"""{RING}
    steps = 20000
    [stop]
    time = "45ms"
    [[transport]]
    [[transport]]
    kind = "roce"
    name = "adaptive"
    routing = "adaptive"
    convergence = "{KNOWN_MS}ms"
    [[transport]]
    kind = "roce"
    name = "hashed"
    qps = 8
    convergence = "{KNOWN_MS}ms"
"""
AT_MS, END_MS = 1, 45  # of the failure and the run
FAULT = f"""
    [[fault]]
    at = "{AT_MS}ms"
    kind = "link-down"
    where = "%s"
"""
HASHED_MS = 32  # from when on rates are steady, ms: of hashed flows, and of others by failure
FAILURES = {"link": ("plane 0 t0 0 - t1 0", 32), "port": ("nic 0 plane 0", 16)}


def bytes_of(size: str, seed: int, fault: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The beginning of each bin, ms, and the payload placed in it, by transport."""
    runs = simulate(parse_scenario(JOB % size + fault, [f"seed={seed}"])).transports
    return {
        run.name: (
            np.asarray(run.timeline["t_ps"]) / 1e9,
            np.asarray(run.timeline["goodput_bytes"], np.float64),
        )
        for run in runs
    }


def lost_ms(t_ms: np.ndarray, sent: np.ndarray, steady_ms: float) -> float:
    """Return how much of the time from the failure on the job lost, ms, beside one that always has
    the rate of the time from `steady_ms` on.
    """
    width_ms = float(t_ms[1] - t_ms[0])
    steady = sent[(t_ms >= steady_ms) & (t_ms < END_MS - width_ms)].mean()
    during = (t_ms >= AT_MS) & (t_ms < steady_ms)
    return (float(during.sum()) - float(sent[during].sum() / steady)) * width_ms


def main() -> None:
    size = sys.argv[1] if len(sys.argv) > 1 else "1MB"
    seeds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    for failure, (where, steady_ms) in FAILURES.items():
        for seed in range(1, seeds + 1):
            for name, (t_ms, sent) in bytes_of(size, seed, FAULT % where).items():
                lost = lost_ms(t_ms, sent, HASHED_MS if name == "hashed" else steady_ms)
                told = f"{lost / KNOWN_MS:7.1%} of {KNOWN_MS} ms" if failure == "link" else ""
                print(
                    f"{failure:5} {size:6} seed {seed}  {name:9} {lost:7.2f} ms {told}", flush=True
                )


if __name__ == "__main__":
    main()
