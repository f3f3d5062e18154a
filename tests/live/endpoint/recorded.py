"""A long story of frames and faults, and what the switches made of it, line by line.

`python -m tests.live.endpoint.recorded` prints it: compiled and plain Python must print the same.
"""

from __future__ import annotations

import zlib

import numpy as np

from openmrc.engine.packet import CLASS_CONTROL, CLASS_DATA, NO_TRIM
from openmrc.fabric import actions
from openmrc.fabric.queues import Queues
from tests.live.switch.switching import US, Rig

STEPS = 120


def run() -> list[str]:
    """One line per step: drops so far, and a sum over all frames that arrived."""
    rng = np.random.default_rng(11)
    lines = []
    rules = Queues(
        queue_bytes=5000,
        queue_last_hop_bytes=4000,
        control_queue_bytes=600,
        ecn_low=0.0,
        ecn_high=0.1,
    )
    with Rig(rules=rules, frames=128, seed=3) as rig:
        fabric = rig.fabric
        for step in range(STEPS):
            if step % 10 == 0:  # all is well again
                for port in range(fabric.n_ports):
                    rig.act(actions.PORT_UP, port)
                    rig.act(actions.PORT_RATE, port, 1.0)
            for _ in range(int(rng.integers(0, 24))):  # most of it to one NIC
                src = int(rng.integers(1, fabric.n_nics))
                dst = 0 if rng.random() < 0.7 else src % 3 + 1
                if src == dst:
                    continue
                ev = fabric.ev(int(rng.integers(2)), int(rng.integers(2)))
                klass = CLASS_CONTROL if rng.random() < 0.2 else CLASS_DATA
                payload = int(rng.integers(0, 3000))
                flags = NO_TRIM if rng.random() < 0.3 else 0
                data = rig.frame(src, dst, ev, payload=payload, klass=klass, flags=flags)
                rig.send(src, fabric.hops(ev).plane, data)
            if rng.random() < 0.2:
                action = int(rng.choice([actions.PORT_UP, actions.PORT_DOWN, actions.PORT_LOSS]))
                rig.act(action, int(rng.integers(fabric.n_ports)), 0.2, 2.0)
            if rng.random() < 0.2:
                action = int(rng.choice([actions.PORT_CORRUPT, actions.PORT_RATE]))
                rig.act(action, int(rng.integers(fabric.n_ports)), 0.5)
            rig.run(rig.now + int(rng.integers(1, 30)) * US)
            lines.append(f"{rig.now} {rig.drops()} {_sum(rig):08x}")
        c = rig.switches.counters()
        lines.append(f"{c.trims} {c.ecn_marked.sum()} {c.damaged.sum()} {c.late.sum()}")
    return lines


def _sum(rig: Rig) -> int:
    total = 0
    for (nic, plane), frames in rig.all_got().items():
        total = zlib.crc32(b"".join((bytes([nic, plane]), *frames)), total)
    return total


if __name__ == "__main__":
    print("\n".join(run()))
