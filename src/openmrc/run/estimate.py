"""What a run will take, computed before it starts: the formulas of docs/costs.md.

Memory is arithmetic: the same expressions size the arrays of a world. The number of packets in
flight at once and the time of a traversal were measured; both are estimates.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from openmrc.run.expected import Packets, packets, under_way
from openmrc.units import PS_BITS

if TYPE_CHECKING:
    from openmrc.fabric.faults import FaultSchedule
    from openmrc.fabric.model import Fabric
    from openmrc.scenario.scenario import Scenario
    from openmrc.sim.mrc.derive import Derived
    from openmrc.sim.mrc.transport import Transport
    from openmrc.traffic.traffic import Traffic

    Built = tuple[Fabric, Traffic, FaultSchedule]

Index = npt.NDArray[np.int64]

PROCESS_BYTES = 205_000_000  # Python, NumPy, Numba and the simulator's code
# Nanoseconds of one core, fitted to the runs of docs/costs.md.
PACKET_NS, ANSWER_NS = 180, 880  # of a data packet and of an answer, with the links of both NICs
BETWEEN_NS, BETWEEN_NS_ROOT = 136, 7.2  # of a link between switches; and times sqrt(MB of state)
SCATTERED_NS = 1075  # more, of a data packet of a NIC that sends on several QPs
END_NS = 957  # of a QP
START_S = 1.0  # loading code
PORT_NS, EV_NS, QP_NS = 600, 80, 6000  # building


@dataclass(frozen=True)
class Estimate:
    """What one transport of a scenario takes. Memory in bytes, by its use; seconds of one core."""

    transport: str
    nics: int
    qps: int
    data_packets: int
    link_traversals: int
    memory: dict[str, int]
    build_s: float
    loop_s: float
    ends_early: bool  # it has a `stop.time`, so it may end earlier

    @property
    def memory_bytes(self) -> int:
        """The total memory, bytes."""
        return sum(self.memory.values())

    @property
    def wall_s(self) -> float:
        """From the start of the command to its end, s, if code is already compiled."""
        return START_S + self.build_s + self.loop_s

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return asdict(self) | {"memory_bytes": self.memory_bytes, "wall_s": self.wall_s}


def estimates(scenario: Scenario) -> list[Estimate]:
    """Estimate each transport of MRC; of RoCEv2 there is no model."""
    from openmrc.sim.mrc.transport import Transport

    built = scenario.build()
    transports = [scenario.transport(i) for i in range(len(scenario.transports))]
    return [estimate(scenario, built, each) for each in transports if isinstance(each, Transport)]


def estimate(scenario: Scenario, built: Built, transport: Transport) -> Estimate:
    """Estimate one transport of a scenario that has been built."""
    fabric, traffic, _ = built
    memory = run_memory(scenario, built, transport)
    derived = _derived(scenario, built, transport)
    sent = packets(fabric, traffic, transport, derived)
    state_bytes = sum(memory.values()) - PROCESS_BYTES
    evs = ev_counts(fabric, traffic, transport, derived)[0]
    return Estimate(
        transport=transport.name,
        nics=fabric.n_nics,
        qps=traffic.n_qps,
        data_packets=sent.data,
        link_traversals=sent.traversals,
        memory=memory,
        build_s=(fabric.n_ports * PORT_NS + evs * EV_NS + 2 * traffic.n_qps * QP_NS) / 1e9,
        loop_s=loop_s(sent, 2 * traffic.n_qps, state_bytes),
        ends_early=scenario.stop.time is not None,
    )


def loop_s(sent: Packets, qp_ends: int, state_bytes: int) -> float:
    """Seconds of the event loop of a world with so much state."""
    between_ns = BETWEEN_NS + BETWEEN_NS_ROOT * sqrt(max(state_bytes, 0) / 1e6)
    return (
        (sent.data + sent.trims) * PACKET_NS
        + sent.answers * ANSWER_NS
        + sent.between * between_ns
        + sent.scattered * SCATTERED_NS
        + qp_ends * END_NS
    ) / 1e9


def run_memory(scenario: Scenario, built: Built, transport: Transport) -> dict[str, int]:
    """Bytes of a run by their use: `world_memory`, and everything else."""
    from openmrc.engine.packet import PACKET
    from openmrc.sim.net import state as ss

    derived = _derived(scenario, built, transport)
    at_once = under_way(built[0], built[1], transport.pmtu, derived.bdp_bytes)
    return world_memory(scenario, built, transport) | {
        "packets in flight": at_once * (ss.HOP.itemsize + PACKET.itemsize + 4),
        "wheels": _wheels(built[0], transport, derived),
        "fabric and workload": sum(_bytes_of(each) for each in built[:2]),
        "process": PROCESS_BYTES,
    }


def _wheels(fabric: Fabric, transport: Transport, derived: Derived) -> int:
    """Bytes of the wheels of a world's shards, and of their sums over time."""
    from openmrc.sim.net import events, network
    from openmrc.sim.net import state as ss
    from openmrc.sim.shards.cut import shards_of
    from openmrc.sim.shards.split import NARROWER
    from openmrc.wire.framing import framing

    shards = shards_of(fabric)
    sent_ps = derived.data_packet_wire_bytes * PS_BITS // fabric.port_rate_bps
    shortest_bytes = min(framing(transport.rules, transport.srv6).header_bytes)
    shortest_ps = shortest_bytes * PS_BITS // int(fabric.port_rate_bps.max())
    span_ps = int((fabric.hop_delays_ps() + sent_ps).max()) + fabric.jitter_ps
    shift, buckets = network.wheel(span_ps, shortest_ps, fabric.n_ports)
    if shards > 1:
        span_ps = (buckets - events.SPARE_BUCKETS) << shift
        _, buckets = network.wheel(span_ps, shortest_ps, NARROWER * fabric.n_ports // shards)
    bins = network.TIMELINE_BINS * ss.BIN_COLUMNS * 8
    return shards * (buckets * ss.BUCKET.itemsize + bins)


def world_memory(scenario: Scenario, built: Built, transport: Transport) -> dict[str, int]:
    """Bytes of the arrays of a world, by their use.

    Packets, and the records of EVs that were ever ASSUMED_BAD, are left out: their number depends
    on the run.
    """
    from openmrc.engine import state as es
    from openmrc.fabric.actions import EVENT
    from openmrc.jit import heap
    from openmrc.sim.net import network
    from openmrc.sim.net import state as ss

    fabric, traffic, schedule = built
    derived = _derived(scenario, built, transport)
    planes, qps, nics, ends = fabric.n_planes, traffic.n_qps, fabric.n_nics, 2 * traffic.n_qps
    evs, order = ev_counts(fabric, traffic, transport, derived)
    carried = _units_of(traffic, transport)
    slots = np.minimum(_pow2(carried + 1), _pow2(np.array([derived.mpr_packets])))
    messages = np.bincount(traffic.msg_qp, traffic.msg_count, qps).astype(np.int64)
    held = int(_pow2(np.minimum(messages, network.SEND_QUEUE_MAX)).sum())
    low, high = (
        np.minimum(traffic.qp_src, traffic.qp_dst),
        np.maximum(traffic.qp_src, traffic.qp_dst),
    )
    pairs = len(np.unique(low * nics + high))
    ring_bytes = int(_pow2(np.array([derived.mpr_packets + 256]))[0]) // 8
    size = {
        name: value.itemsize
        for module in (es, heap, ss)
        for name, value in vars(module).items()
        if isinstance(value, np.dtype)
    }
    per_end = size["QP"] + size["LINK_QP"] + planes * (size["PLANE"] + 4) + ring_bytes + 8
    if transport.paths == "reps":
        per_end += planes * size["REPS"]
    any_series = bool((traffic.msg_count > 1).any())
    first = int(np.clip(1 - traffic.msg_deps, 0, traffic.msg_count).sum()) if any_series else 0
    entries = 2 * traffic.n_msgs + first + 8 * ends + 2 * nics + 4096
    releases = len(traffic.recv_next) + len(traffic.sent_next)
    assert size["FAULT"] >= EVENT.itemsize
    return {
        "QPs": ends * per_end + qps * size["REGION"] + 2 * pairs * size["PEER"],
        "slots": int(slots.sum()) * size["SLOT"],
        "EVs": evs * size["EV"] + size["BLAME"] + 2 * order,
        "messages": held * (size["MESSAGE"] + size["RX_MESSAGE"])
        + traffic.n_msgs * (size["MESSAGE_STATE"] + any_series * size["SERIES"] + 4)
        + 4 * releases,
        "payload": 2 * int(np.minimum(_pow2(carried), slots).sum()),
        "NICs": nics * (size["NIC"] + size["LINK_NIC"] + 8 * planes + 4 * es.REQUESTS),
        "ports": fabric.n_ports * (size["PORT"] + size["HEALTH"] + size["TALLY"] + 8),
        "switches": fabric.n_switches * size["SWITCH"],
        "heap": entries * size["ENTRY"],
        "faults": len(schedule.events) * size["FAULT"],
    }


def ev_counts(
    fabric: Fabric, traffic: Traffic, transport: Transport, derived: Derived
) -> tuple[int, int]:
    """EVs of all QP ends, and entries of their rotations: room for those of the plane that has
    most.
    """
    from openmrc.sim.mrc import build

    planes, qps = fabric.n_planes, traffic.n_qps
    wanted = derived.evs_per_plane_active + derived.evs_per_plane_backup
    reverse = max(build.REVERSE_EVS // planes, build.REVERSE_EVS_PER_PLANE_MIN)
    if transport.rules == "peer":
        out, back, planes_of_evs = np.full(qps, transport.evs_active), np.ones(qps, np.int64), 1
    elif transport.paths == "single":
        out, back, planes_of_evs = np.ones(qps, np.int64), np.ones(qps, np.int64), 1
    elif transport.hashed:  # as many as requested: nobody knows how many paths there are
        out, back, planes_of_evs = np.full(qps, wanted), np.full(qps, reverse), planes
    else:
        paths = _paths_of(fabric, traffic)
        out, back = np.minimum(paths, wanted), np.minimum(paths, reverse)
        planes_of_evs = planes
    order = int(np.maximum(out, 1).sum() + np.maximum(back, 1).sum()) * planes
    return int((out + back).sum()) * planes_of_evs, order


def _paths_of(fabric: Fabric, traffic: Traffic) -> Index:
    """Paths of each QP in one plane."""
    paths = np.ones(traffic.n_qps, np.int64)
    climbs = fabric.uplinks(traffic.qp_src, traffic.qp_dst)
    for up in np.unique(climbs):
        mine = climbs == up
        one = int(mine.argmax())
        paths[mine] = fabric.n_paths(int(traffic.qp_src[one]), int(traffic.qp_dst[one]), 0)
    return paths


def _derived(scenario: Scenario, built: Built, transport: Transport) -> Derived:
    from openmrc.sim.mrc.derive import derive

    fabric, traffic, _ = built
    senders = int(np.bincount(traffic.qp_dst, minlength=1).max(initial=0))
    return derive(fabric, transport, scenario.fabric.queues(), senders)


def _units_of(traffic: Traffic, transport: Transport) -> Index:
    """Packets of each QP."""
    carried = np.bincount(traffic.msg_qp, traffic.packets(transport.pmtu), traffic.n_qps)
    return carried.astype(np.int64)


def _bytes_of(arrays: Any) -> int:
    """Bytes of the arrays of a fabric or a workload."""
    return sum(each.nbytes for each in vars(arrays).values() if isinstance(each, np.ndarray))


def _pow2(n: Index) -> Index:
    """The smallest power of two that is `n` or more, of each."""
    rounded: Index = 1 << np.frexp(np.maximum(n - 1, 0).astype(np.float64))[1].astype(np.int64)
    return rounded
