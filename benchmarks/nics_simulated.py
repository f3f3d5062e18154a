"""A controller tried at 1,024 NICs in virtual time, by the 14 functions of MRC's C API.

    .venv/bin/python benchmarks/nics_simulated.py [--nics N] [--period-ms MS] [--seed N]

An agent on every NIC of a simulated fabric of four planes, and the controller that judges their
reports: the code of `mrc ops nic` and of `mrc ops controller`, while each NIC sends to one of
another T0. A drawn T1 falls silent and is healed later. Printed: when it was named and what else
was, how many EVs were denied, how many packets took the T1 while it was denied, and when the
denial ended.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np

from openmrc.engine import place
from openmrc.fabric.clos import multiplane
from openmrc.fabric.faults import Fault, compile_faults
from openmrc.nics.simulated import Controlled
from openmrc.ops import evs
from openmrc.sim.mrc.transport import Transport
from openmrc.sim.world import World
from openmrc.traffic.traffic import make_traffic
from openmrc.units import MS

PLANES, DOWN, UP, RATE_BPS = 4, 32, 16, 100_000_000
BEFORE, DENIED_FOR, AFTER = 20, 10, 45  # periods; after 16 every partner has answered once
MESSAGE_BYTES = 10**9


def used(there: Controlled, ev: int) -> int:
    """How many packets have taken an EV."""
    engine = there.world.engine
    found = 0
    for end in np.flatnonzero(there.world.ends.sends).tolist():
        own = engine.ev[place.evs(engine.qp[end])]
        found += int(own.used[own.value == ev].sum())
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nics", type=int, default=1024)
    parser.add_argument("--period-ms", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    n, period_ps = arguments.nics, round(arguments.period_ms * MS)
    rng = np.random.default_rng(arguments.seed)
    fabric = multiplane(n, PLANES, RATE_BPS, DOWN, UP, 500_000, 250_000)
    plane, up = int(rng.integers(PLANES)), int(rng.integers(UP))
    where, ev = f"plane {plane} t1 {up}", fabric.ev(plane, up)
    silent_ps = BEFORE * period_ps + int(rng.integers(period_ps))
    healed_ps = silent_ps + DENIED_FOR * period_ps
    faults = [Fault(silent_ps, "switch-silent", where), Fault(healed_ps, "switch-up", where)]
    nics = np.arange(n)
    traffic = make_traffic("ring", n, nics, (nics + DOWN) % n, nics, MESSAGE_BYTES)
    schedule = compile_faults(faults, fabric)
    world = World(fabric, traffic, Transport(), schedule, arguments.seed, shards=1)
    probes = replace(evs.make(fabric, 10, period_ps, 1.0), period_ps=period_ps)
    there = Controlled(world, probes)
    began = time.process_time()
    period = 0
    while not there.found and period < BEFORE + DENIED_FOR:
        period += 1
        there.run(period * period_ps)
    named = [(one.where, (one.named_ps - silent_ps) / MS) for one in there.found]
    denied = sum(map(len, (agent.denied for agent in there.agents)))
    before = used(there, ev)
    period = BEFORE + DENIED_FOR
    there.run(period * period_ps)
    kept = used(there, ev) - before
    while any(agent.denied for agent in there.agents) and period < BEFORE + DENIED_FOR + AFTER:
        period += 1
        there.run(period * period_ps)
    again_ms = (period * period_ps - healed_ps) / MS
    took_s = time.process_time() - began
    print(f"{n:,} NICs, {int(world.ends.sends.sum()):,} queue pairs that send, {where} silent:")
    print(f"  named after (ms): {named}, {arguments.period_ms:g} ms a period")
    print(f"  {denied:,} EVs denied; packets on them since: {kept}")
    lifted = not any(agent.denied for agent in there.agents)
    print(f"  healed: {'allowed again' if lifted else 'still denied'} after {again_ms:.0f} ms")
    print(f"  others named: {len(there.found) - 1}; {len(there.told)} complaints of agents")
    print(f"  {world.now_ps / MS:.0f} ms of virtual time in {took_s:.0f} s of processor time")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
