"""What chance does to a mapper's probes: a second of packets, healthy and in an incast.

    .venv/bin/python benchmarks/chance.py [--time 1s] [--json]

Simulates 16 NICs on two planes, MRC alone: a permutation in which every NIC sends all that ports of
10 Gb/s carry, and an incast of twelve that fills the victim's two of 100 Gb/s. Nothing is broken.
Counted are control packets (SACKs, NACKs, and headers that trimming leaves), in whose class a
mapper's probes travel, and how many of them found no room in a queue; and at 10,000 instants how
long a packet that came then to the fullest control queue of the fabric would have waited. Where
none was lost, chance loses at most 3 of as many (to 95 %), and a probe crosses six links: from that
follows how often a healthy link would be named in 10^6 hours of links.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from rows import tell

from openmrc.ops import alarms
from openmrc.ops.evidence import BACKGROUND
from openmrc.ops.localise import Rules
from openmrc.run.simulation import world_of
from openmrc.scenario.scenario import make_scenario
from openmrc.units import MS, PS_BITS, US, S, parse_time

LOOKS = 10_000
HOPS = 6  # of the longest probe
DATA_BYTES = 4190  # that a control packet waits for at most: nothing is cut short
PROBES, WINDOW_PS = 100, 10 * MS
FABRIC = {"nics": 16, "planes": 2, "t0_down": 4, "port_rate": "100Gbps"}
LOADS: dict[str, dict[str, Any]] = {
    "healthy": {"fabric": FABRIC | {"port_rate": "10Gbps"}, "workload": {"kind": "permutation"}},
    "incast": {"fabric": FABRIC, "workload": {"kind": "incast", "n": 12}},
}


def measure(load: str, time_ps: int) -> dict[str, Any]:
    """What control packets met in so much simulated time."""
    tables = LOADS[load] | {"seed": 1, "stop": {"time": f"{time_ps // US}us"}}
    rate_bps = int(str(tables["fabric"]["port_rate"]).removesuffix("Gbps")) * 10**9
    n = tables["workload"].get("n", 1)
    size = rate_bps * tables["fabric"]["planes"] // 8 * time_ps // S // n
    tables["workload"] = tables["workload"] | {"size": f"{size * 11 // 10}B"}
    scenario = make_scenario(tables)
    fabric, traffic, schedule = scenario.build()
    world = world_of(scenario, fabric, traffic, schedule, scenario.transport(0))
    waits = np.zeros(LOOKS)
    began = time.process_time()
    for look in range(LOOKS):
        world.run(until_ps=(look + 1) * time_ps // LOOKS)
        queued = int(np.asarray(world.net.port.control_queued_bytes).max())
        waits[look] = (queued + DATA_BYTES) * PS_BITS / rate_bps / US
    ctl = world.net.ctl[0]
    c = world.counters()
    control = int(c["sack"] + c["nack"] + c["trimmed"])
    lost = int(ctl.dropped_control)
    chance = alarms.background_at_most(control, lost)
    losses = alarms.alarm(PROBES, BACKGROUND, Rules().alarm).losses
    share = alarms.tail(PROBES, min(1.0, HOPS * chance), losses)
    return {
        "load": load,
        "simulated_ms": time_ps / MS,
        "data": int(c["data"]),
        "trimmed": int(c["trimmed"]),
        "control": control,
        "control_lost": lost,
        "chance_at_most": chance,
        "wait_us": {q: float(np.quantile(waits, float(q))) for q in ("0.5", "0.99", "1")},
        "named_from": losses,
        "alarms": share * 1e6 * alarms.windows_an_hour(WINDOW_PS),
        "cpu_s": round(time.process_time() - began, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--time", default="1s", help="simulated time of each (default: 1s)")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    arguments = parser.parse_args()
    tell((measure(load, parse_time(arguments.time)) for load in LOADS), arguments.json)


if __name__ == "__main__":
    main()
