"""The constants of `mrc day`, measured packet by packet: how long a failure stalls a job.

    .venv/bin/python benchmarks/day.py [--seeds N]

The job of `adaptive.py`, a ring that never stops sending, loses a link between two switches, or a
NIC's port. Printed are the medians over the seeds, beside what `day/rates.py` has; and for hashed
RoCEv2, whose stall follows from its timers, the rule beside what a job loses while routing takes
300 ms.
"""

from __future__ import annotations

import argparse
from statistics import median

import adaptive
import numpy as np

from openmrc.day.rates import OF_A_DAY
from openmrc.day.stalls import hashed
from openmrc.run.simulation import simulate
from openmrc.scenario.scenario import parse_scenario
from openmrc.sim.roce.transport import RoceTransport

SIZE = "1MB"
CONVERGES_MS, END_MS, STEADY_MS = 300, 580, 545
OF_MRC = {"port": "mrc_port_stall_s", "link": "mrc_path_stall_s"}
CONSTANTS = {  # by failure and transport: the constant, and how many of it a ms is
    ("port", "adaptive"): ("balance_port_stall_s", 1e-3),
    ("link", "adaptive"): ("balance_path_share", 1 / adaptive.KNOWN_MS),
}
MRC = f"""{adaptive.RING % SIZE}
    steps = 100
"""
HASHED = f"""{adaptive.RING % SIZE}
    steps = 20000
    [stop]
    time = "{END_MS}ms"
    [transport]
    kind = "roce"
    qps = 8
    convergence = "{CONVERGES_MS}ms"
"""


def of_mrc(seeds: int) -> None:
    """Print how long MRC stalls: what a ring takes beyond the time that it would with the failure
    from the start, and without it before.
    """
    for failure, name in OF_MRC.items():
        fault = adaptive.FAULT % adaptive.FAILURES[failure][0]
        early = fault.replace(f"{adaptive.AT_MS}ms", "0s")
        each = []
        for seed in range(1, seeds + 1):
            healthy, broken, real = (_whole_s(MRC + more, seed) for more in ("", early, fault))
            at_s = adaptive.AT_MS * 1e-3
            each.append(max(real - at_s - (1 - at_s / healthy) * broken, 0.0))
        _print(name, each)


def _whole_s(text: str, seed: int) -> float:
    (run,) = simulate(parse_scenario(text, [f"seed={seed}"])).transports
    return (run.whole_ps or 0) * 1e-12


def _print(name: str, each: list[float]) -> None:
    drawn = ", ".join(f"{value:.3g}" for value in each)
    print(f"{name:22} {median(each):9.3g}   of {drawn}; in use {OF_A_DAY[name].value:.3g}")


def of_balance(seeds: int) -> None:
    """Print what switches that balance lose."""
    found: dict[str, list[float]] = {name: [] for name, _ in CONSTANTS.values()}
    for failure, (where, steady_ms) in adaptive.FAILURES.items():
        for seed in range(1, seeds + 1):
            for transport, (t_ms, sent) in adaptive.bytes_of(
                SIZE, seed, adaptive.FAULT % where
            ).items():
                if (failure, transport) in CONSTANTS:
                    name, per_ms = CONSTANTS[failure, transport]
                    lost = adaptive.lost_ms(t_ms, sent, steady_ms)
                    found[name].append(max(lost, 0.0) * per_ms)
    for name, each in found.items():
        _print(name, each)


def rule_of_hashed() -> None:
    """Print how long hashed queue pairs stand still, by the rule and packet by packet."""
    fault = adaptive.FAULT % adaptive.FAILURES["link"][0]
    (run,) = simulate(parse_scenario(HASHED + fault)).transports
    t_ms = np.asarray(run.timeline["t_ps"]) / 1e9
    sent = np.asarray(run.timeline["goodput_bytes"], np.float64)
    steady = sent[(t_ms >= STEADY_MS) & (t_ms < END_MS - 1)].mean()
    during = (t_ms >= adaptive.AT_MS) & (t_ms < STEADY_MS)
    lost = (float(during.sum()) - float(sent[during].sum() / steady)) * float(t_ms[1] - t_ms[0])
    rule = hashed(RoceTransport(), CONVERGES_MS * 1e-3).s
    print(f"hashed, routing after {CONVERGES_MS} ms: {lost:.0f} ms lost; by the rule {rule:.3f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description="the constants of mrc day")
    parser.add_argument("--seeds", type=int, default=3)
    seeds = parser.parse_args().seeds
    of_mrc(seeds)
    rule_of_hashed()
    of_balance(seeds)


if __name__ == "__main__":
    main()
