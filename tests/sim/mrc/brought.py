"""Worlds with policies that a user brings."""

from __future__ import annotations

from pathlib import Path

from openmrc import parse_scenario
from openmrc.scenario.scenario import Scenario
from openmrc.sim.world import World

PERMUTATION = 'kind = "permutation"'


def scenario(
    folder: Path, transport: str, workload: str = PERMUTATION, size: str = "400kB"
) -> Scenario:
    return parse_scenario(
        f'[fabric]\nnics = 8\nplanes = 2\nport_rate = "100Gbps"\nt0_down = 4\nt0_up = 4\n'
        f'[transport]\nname = "x"\n{transport}\n'
        f'[workload]\n{workload}\nsize = "{size}"\n',
        base=folder,
    )


def world(
    folder: Path,
    transport: str,
    workload: str = PERMUTATION,
    run: bool = True,
    size: str = "400kB",
) -> World:
    said = scenario(folder, transport, workload, size)
    fabric, traffic, schedule = said.build()
    w = World(fabric, traffic, said.transports[0].build(), schedule, queues=said.fabric.queues())
    if run:
        w.run()
        assert w.bytes_verified == w.traffic.msg_bytes.sum()
    return w
