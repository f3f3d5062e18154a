"""The constants of pools that many NICs fill (`flow/crowded.py`), measured packet by packet.

    .venv/bin/python benchmarks/crowded.py

32 NICs, four below each T0, send to four other T0s over one or two uplinks for each plane, so that
every flow crosses two pools that are full, all alike. Printed is how many packets are answered by
themselves, beyond the answers that bytes ask for; and how much later than the mean the last flow is
done, packet by packet and at the flow level: its `SPREAD` is the one with which both are alike.

Then three flows alone: the first crosses two queues, of which each of the others has one. Printed
is what the first has beside another while all last, by how many BDPs each sends: `YIELD` is what is
left in the end, and it has as much as they do for the first `EVEN`.
"""

from __future__ import annotations

from statistics import median

import numpy as np

from openmrc.fabric.clos import multiplane
from openmrc.flow import crowded
from openmrc.flow.build import sizes_of
from openmrc.flow.world import FlowWorld
from openmrc.run.perfect import perfect_costs
from openmrc.sim.mrc.transport import Transport
from openmrc.sim.world import World
from openmrc.traffic.traffic import make_traffic
from openmrc.units import PS_BITS

NICS, BELOW = 32, 4
RATE_BPS = 100 * 10**9
SIZES = (400_000, 2_000_000, 10_000_000)
SHAPES = ((1, 1), (1, 4), (2, 1), (2, 4))  # uplinks of a T0 in each plane, planes


def main() -> None:
    all_alike()
    one_queue_more()


def one_queue_more() -> None:
    """What a flow over two queues has beside those over one."""
    ends = np.array([0, 1, 6]), np.array([2, 4, 3])  # two below each T0, which has one uplink
    transport = Transport()
    for delay_ps in (0, 500_000, 2_000_000):
        fabric = multiplane(8, 1, RATE_BPS, 2, 1, delay_ps, 250_000)
        for size in SIZES:
            world = World(fabric, make_traffic("one more", 8, *ends, range(3), size), transport)
            world.run()
            done_ps = world.flows()["done_ps"]
            share = 1 - size * PS_BITS / RATE_BPS / float(done_ps[1:].min())
            windows = size / world.values.bdp_bytes
            print(
                f"{windows:6.1f} BDPs: {share / (1 - share):.2f} of the others' rate,"
                f" {float(crowded.yields(np.array([windows]))[0]):.2f} here",
                flush=True,
            )


def all_alike() -> None:
    """How much more than data crosses a full pool, and how uneven equal flows are."""
    transport = Transport()
    nic = np.arange(NICS)
    dst = (nic // BELOW + 1 + nic % BELOW) * BELOW % NICS + nic % BELOW
    found: list[tuple[float, float, float]] = []
    for up, planes in SHAPES:
        fabric = multiplane(NICS, planes, RATE_BPS, BELOW, up, 500_000, 250_000)
        for size in SIZES:
            traffic = make_traffic("crowded", NICS, nic, dst, nic, size)
            packet = World(fabric, traffic, transport)
            cost = perfect_costs(fabric, traffic, transport)
            flow = FlowWorld(fabric, traffic, transport, cost=cost)
            last = []
            for world in (packet, flow):
                world.run()
                done = world.flows()["done_ps"]
                last.append(float(done.max() / done.mean()) - 1)
            counts = packet.counters()
            alone = counts["sack"] / counts["data"] - 1 / sizes_of(transport).packets_an_answer
            found.append((alone, *last))
            print(
                f"{up} uplinks, {planes} planes, {size / 1e6:4} MB: {alone:.2f} answered alone;"
                f" last {last[0]:+.1%} packet by packet, {last[1]:+.1%} here",
                flush=True,
            )
    alone, last_there, last_here = (median(column) for column in zip(*found, strict=True))
    print(
        f"medians: {alone:.2f}, in use {crowded.ANSWERED}; {last_there:+.1%}, {last_here:+.1%} here"
    )


if __name__ == "__main__":
    main()
