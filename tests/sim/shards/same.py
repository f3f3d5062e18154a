"""Worlds cut into shards, and all that comes of them in one digest, to be compared for different
numbers of threads.
"""

from __future__ import annotations

import hashlib
from io import BytesIO
from typing import Any

import numpy as np

from openmrc.run.simulation import world_of
from openmrc.scenario.scenario import Scenario, make_scenario
from openmrc.sim.kinds import capture_of
from openmrc.sim.watch import books
from openmrc.sim.world import World
from openmrc.soak.sim import draw
from openmrc.wire.layout import PAYLOAD_BYTES_MAX

THREADS = (1, 2, 4, 16)
CAPTURED_BYTES_MAX = 500_000  # of payload: frames are written one by one
# what each shard has for itself: sums of it are compared, not the arrays
OWN = {
    *("ctl", "hop", "packet", "after", "bucket", "bucket_bits", "bucket_summary", "heap"),
    *("timeline", "rate", "outgoing", "tap", "tap_packet", "carrier"),
    *("out", "done", "count", "c"),
}


def scenario_of(seed: int, kind: str = "mrc") -> Scenario | None:
    """A scenario that the soak draws, if it is of this transport."""
    tables = draw(seed)
    return make_scenario(tables) if tables["transport"].get("kind", "mrc") == kind else None


def made(scenario: Scenario, shards: int, threads: int) -> tuple[World, BytesIO | None]:
    """Its world, and where the frames of all links go if they are few."""
    fabric, traffic, schedule = scenario.build()
    transport: Any = scenario.transport(0)
    stream, more = None, {}
    few = int(traffic.msg_total_bytes.sum()) <= CAPTURED_BYTES_MAX
    # where routing draws a path anew it may name an uplink below a T0, and no frame leads there
    rerouted = getattr(transport, "paths", None) == "single"
    if few and transport.pmtu <= PAYLOAD_BYTES_MAX and not rerouted:
        stream = BytesIO()
        more["capture"] = capture_of(transport).of(stream, fabric, ["everywhere"], transport)
    world = world_of(
        scenario, fabric, traffic, schedule, transport, shards=shards, threads=threads, **more
    )
    return world, stream


def digest(world: World, stream: BytesIO | None = None) -> dict[str, Any]:
    """Everything that a run leaves behind, by name."""
    assert books.wrong(world) == []
    found: dict[str, Any] = {
        **world.counters(),
        "now": world.now_ps,
        "errors": world.qp_errors(),
        "texts": world.errors(),
        "verified": world.bytes_verified,
        "bin": world.bin_ps,
        "placed": world.placed_ps,
    }
    arrays = {f"flow {name}": of for name, of in world.flows().items()}
    arrays |= {f"bin {name}": of for name, of in world.timeline().items()}
    arrays |= {f"of each {name}": of for name, of in world.placed().items()}
    groups = [world.net, world.engine] + ([] if world.state is None else [world.state])
    for number, group in enumerate(groups):
        pairs = zip(group._fields, group, strict=True)
        arrays |= {f"array {number} {name}": array for name, array in pairs if name not in OWN}
    port: Any = arrays.pop("array 0 port").copy()
    port.head, port.tail = 0, 0  # indices of packets, which say nothing once nothing is queued
    arrays["array 0 port"] = port
    for name, array in arrays.items():
        found[name] = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]
    if stream is not None:
        found["frames"] = hashlib.sha256(stream.getvalue()).hexdigest()[:16]
    return found


def different(scenario: Scenario, shards: int) -> tuple[int, list[str]]:
    """Run it with each number of threads: how many shards there were, and what differed."""
    first: dict[str, Any] = {}
    n, found = 1, []
    for threads in THREADS:
        world, stream = made(scenario, shards, threads)
        world.run()
        n, came = len(world.nets), digest(world, stream)
        first = first or came
        found += [f"{threads} threads: {name}" for name in came if came[name] != first[name]]
    return n, found
