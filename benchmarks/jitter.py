"""A plane falls silent where packets are late by drawn times: stall and goodput, by jitter.

    .venv/bin/python benchmarks/jitter.py [--jitter 0s 300us 1ms 3ms] [--base-rtt auto] [--seeds 20]

Four planes of 100 Mb/s between two NICs, queues of 256 KiB that neither trim nor mark, messages of
16 KiB: the network of `stalls.py`, simulated. *Stall* is the longest gap between completions in the
100 ms after the cut, less the median of the longest gaps in five stretches before it; *goodput* is
that of the last 50 of them, relative to three planes. Median and worst of all seeds.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from stalls import longest_gap_ms

from openmrc.units import MS, S, parse_time

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.sim.worlds import silent_plane

RATE_BPS, PLANES, MESSAGE_BYTES = 100 * 10**6, 4, 16 * 1024
BEFORE_PS, AFTER_PS, STRETCHES = 100 * MS, 100 * MS, 5
PAYLOAD = 4096 / 4262  # of a full frame


def cut(jitter_ps: int, base_rtt_ps: int | None, seed: int) -> tuple[float, float, int, int]:
    """Stall in ms, goodput, timeouts and false alarms of one cut."""
    world = silent_plane(jitter_ps, seed, BEFORE_PS, base_rtt_ps)
    world.run()
    done = np.sort(world.flows()["done_ps"])
    stretch = (BEFORE_PS - 20 * MS) // STRETCHES  # the start apart
    calm = [longest_ms(done, BEFORE_PS - (i + 1) * stretch, stretch) for i in range(STRETCHES)]
    stall_ms = longest_ms(done, BEFORE_PS, AFTER_PS) - float(np.median(calm))
    half_ps = AFTER_PS // 2
    messages = (done > BEFORE_PS + half_ps).sum()
    left_bps = (PLANES - 1) * RATE_BPS * PAYLOAD
    goodput = messages * MESSAGE_BYTES * 8 / (left_bps * half_ps / 1e12)
    counters = world.counters()
    return stall_ms, goodput, counters["timeouts"], counters["false_alarms"]


def longest_ms(done: Any, from_ps: int, lasts_ps: int) -> float:
    """The longest time without a completion."""
    end_ps = from_ps + lasts_ps
    within = done[(done > from_ps) & (done < end_ps)]
    return longest_gap_ms(within / S, from_ps / S, end_ps / S)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jitter", nargs="+", default=["0s", "300us", "1ms", "3ms"])
    parser.add_argument("--base-rtt", default="auto")
    parser.add_argument("--seeds", type=int, default=20)
    options = parser.parse_args()
    given = options.base_rtt
    base_rtt_ps = None if given == "auto" else parse_time(given)
    columns = "stall p50 / p100, ms | goodput p50 / least | timeouts | false alarms"
    print(f"| Jitter of a link | {columns} |")
    print("|---|---|---|---|---|")
    for text in options.jitter:
        seeds = range(1, options.seeds + 1)
        found = np.array([cut(parse_time(text), base_rtt_ps, seed) for seed in seeds])
        stall, goodput = np.median(found[:, 0]), np.median(found[:, 1])
        worst, least = found[:, 0].max(), found[:, 1].min()
        timeouts, false = found[:, 2:].sum(axis=0).astype(int)
        print(
            f"| {text} | {stall:.1f} / {worst:.1f} | {goodput:.2f} / {least:.2f} |"
            f" {timeouts} | {false} |"
        )


if __name__ == "__main__":
    main()
