"""Worlds in a line each, and what one measures in them: the vocabulary of the simulator's stories.

    world = stream_world(faults=[Fault(1 * MS, "link-down", "plane 0 t0 0 - t1 3")], stop=3 * MS)
    world.run()
    assert goodput_gbps(world, 0.1 * MS, 1 * MS) == pytest.approx(768.8, abs=0.5)
    conserved(world)

Times are picoseconds throughout, rates bit/s unless a name says Gb/s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from openmrc.engine.ev import GOOD, SKIP
from openmrc.fabric.clos import fat_tree, multiplane
from openmrc.fabric.faults import Fault, compile_faults
from openmrc.fabric.model import Fabric
from openmrc.fabric.queues import Queues
from openmrc.sim.mrc.transport import Transport
from openmrc.sim.roce.transport import RoceTransport
from openmrc.sim.watch import books
from openmrc.sim.watch.capture import LinkCapture
from openmrc.sim.world import World
from openmrc.traffic.traffic import Calcs, Traffic, make_traffic
from openmrc.workload.patterns import stream

NS = 1000
US = 1000 * NS
MS = 1000 * US
GBPS = 10**9
FRAME = 166  # bytes on the wire beside the payload, reference 2.1
ENDLESS = 10**9  # bytes: more than any of the stories can move
STEADY_FROM = 100 * US  # the first SACKs, windows and averages are behind us by then
DIP = 0.95  # reference 11, measures: bins under 95 % of the steady value are a dip
BIN = 10 * US

Ints = npt.NDArray[np.int64]


def clos(nics: int = 8, planes: int = 8, down: int = 4, up: int = 8, gbps: int = 100) -> Fabric:
    """Two tiers, multi-plane; 500 ns a link, 250 ns a switch."""
    return multiplane(nics, planes, gbps * GBPS, down, up, 500 * NS, 250 * NS)


def tree(nics: int = 64, down: int = 4, up: int = 4, gbps: int = 100) -> Fabric:
    """Three tiers, one plane; 500 ns a link, 250 ns a switch."""
    return fat_tree(nics, gbps * GBPS, down, up, 500 * NS, 250 * NS, tiers=3)


def world_of(
    fabric: Fabric,
    traffic: Traffic,
    faults: Sequence[Fault] = (),
    *,
    seed: int = 1,
    stop: float | None = None,
    queues: Queues | None = None,
    capture: LinkCapture | None = None,
    shards: int | None = None,
    threads: int = 1,
    kind: type[Transport] | type[RoceTransport] = Transport,
    **transport: Any,
) -> World:
    """A world with these faults; keywords beyond the named ones go to the transport."""
    return World(
        fabric,
        traffic,
        kind(**transport),
        compile_faults(faults, fabric) if faults else None,
        seed,
        queues,
        None if stop is None else int(stop),
        capture,
        shards,
        threads,
    )


def stream_world(
    fabric: Fabric | None = None, faults: Sequence[Fault] = (), size: int = ENDLESS, **more: Any
) -> World:
    """One message from the first NIC to the last: cross-T1, or through all tiers."""
    fabric = fabric or clos()
    return world_of(fabric, stream(0, fabric.n_nics - 1, size), faults, **more)


def there_and_back(calcs: Calcs, recv: list[tuple[int, int]], far: int, size: int) -> Traffic:
    """Message 0 from NIC 0 of 8 to a far one, message 1 back; `recv` are releases, computations
    from 2.
    """
    giving, released = ([pair[end] for pair in recv] for end in (0, 1))
    return make_traffic(
        "test", 8, [0, far], [far, 0], [0, 1], size, recv=(giving, released), calcs=calcs
    )


def in_slices(world: World, slice_ps: int, look: Callable[[World], Any] | None = None) -> World:
    """The same world, run to its end step by step, and looked at after each."""
    until = 0
    while not world.run(until_ps=until):
        until += slice_ps
        if look is not None:
            look(world)
    return world


def finished(world: World) -> World:
    """The same world, run to its end; nothing in it was lost track of."""
    world.run()
    conserved(world)
    assert world.bytes_wrong == 0
    return world


def all_complete(world: World) -> World:
    """Run to the end: every message done, every byte verified once."""
    finished(world)
    flows = world.flows()
    assert (flows["done_ps"] >= flows["delivered_ps"]).all()
    assert (flows["delivered_ps"] > flows["start_ps"]).all()
    assert not flows["failed"].any()
    assert world.qp_errors() == []
    assert world.bytes_verified == flows["bytes"].sum()
    return world


# --- measures ---------------------------------------------------------------------------------


def fct(world: World) -> Ints:
    """Completion times, ps."""
    flows = world.flows()
    times: Ints = flows["done_ps"] - flows["start_ps"]
    return times


def bins(world: World, start: float, end: float) -> Ints:
    """Payload bytes placed in each whole bin of 10 us from `start` to `end`."""
    assert world.bin_ps == BIN
    found: Ints = world.timeline()["goodput_bytes"][int(start // BIN) : int(end // BIN)]
    return found


def gbps_of(n_bytes: float, duration_ps: float) -> float:
    return n_bytes * 8000 / duration_ps


def goodput_gbps(world: World, start: float, end: float) -> float:
    """Mean goodput of all flows together between two multiples of 10 us."""
    return gbps_of(int(bins(world, start, end).sum()), end - start)


def dip_us(world: World, steady_gbps: float, start: float, end: float) -> float:
    """How long bins of 10 us stay under 95 % of `steady_gbps`."""
    low = bins(world, start, end) * 8000 / BIN < DIP * steady_gbps
    return float(low.sum() * BIN / US)


def rtt(world: World) -> int:
    """T, the base round trip, ps."""
    return int(world.values.base_rtt_ps)


def first_loss(world: World) -> int:
    """When a fault first took a packet, ps."""
    at = int(world.net.ctl[0].first_fault_drop_at)
    assert at >= 0
    return at


# --- paths ------------------------------------------------------------------------------------


def sender(world: World, qp: int = 0) -> Any:
    """The engine's record of the sending end of a traffic QP."""
    return world.engine.qp[int(world.ends.sender[qp])]


def evs(world: World, qp: int = 0) -> Any:
    """The EV records of a sender, planes one after the other."""
    q = sender(world, qp)
    return world.engine.ev[int(q.ev0) : int(q.ev0 + q.n_evs)]


def routes(world: World, qp: int = 0) -> list[list[int]]:
    """The directed ports of each EV of a sender."""
    src, dst = int(world.traffic.qp_src[qp]), int(world.traffic.qp_dst[qp])
    return [world.fabric.route(src, dst, int(e.value)) for e in evs(world, qp)]


def evs_over(world: World, ports: Iterable[int], qp: int = 0) -> npt.NDArray[np.bool_]:
    """Which EVs of a sender lead over one of these directed ports."""
    ports = set(ports)
    return np.array([not ports.isdisjoint(route) for route in routes(world, qp)])


def faulty_ports(world: World) -> list[int]:
    """Directed ports that are down or lossy, and all that lead into a silent switch."""
    ports, fabric = world.net.port, world.fabric
    silent = np.flatnonzero(world.net.switch.silent)
    into = np.isin(fabric.port_peer_switch, silent)
    return [int(port) for port in np.flatnonzero((ports.faulty != 0) | into)]


def in_service(world: World, qp: int = 0) -> npt.NDArray[np.bool_]:
    """Which EVs of a sender the next packets may take."""
    e = evs(world, qp)
    q = sender(world, qp)
    usable = (e.state == GOOD) | (e.state == SKIP)
    turn = (int(q.planes_ok) >> np.asarray(e.plane, np.int64)) & 1 == 1
    found: npt.NDArray[np.bool_] = usable & (e.active == 1) & turn
    return found


def plane_turns(world: World, qp: int = 0) -> list[int]:
    """Packets given to each plane so far."""
    e = evs(world, qp)
    planes = world.fabric.n_planes
    return [int(n) for n in np.bincount(e.plane, e.used, planes)]


def run_until(world: World, true: Callable[[], bool], step: int, limit: int) -> int:
    """Step through time until something is true; the time it was first seen, at most `limit`."""
    now = int(world.net.ctl[0].now)
    while not true():
        assert now < limit, f"not true at {now / US:.2f} us"
        now += step
        world.run(until_ps=now)
    return now


def kind_of(world: World, port: int) -> Any:
    """Rate, delay and limits of a port."""
    return world.net.port_kind[int(world.net.port[port].kind)]


def under_way(world: World) -> list[int]:
    """Indices of the packets in the network, queued or on a link, oldest first."""
    free, n = set(), int(world.net.ctl[0].free_head)
    for _ in range(int(world.net.ctl[0].n_free)):
        free.add(n)
        n = int(world.net.hop[n].next)
    found = [n for n in range(int(world.net.ctl[0].n_packets)) if n not in free]
    return sorted(found, key=lambda n: int(world.net.hop[n].at))


def data_under_way(world: World) -> list[int]:
    """Those of them that carry payload."""
    return [n for n in under_way(world) if int(world.net.hop[n].tag) >= 0]


# --- books ------------------------------------------------------------------------------------


def conserved(world: World) -> None:
    """Every packet that was injected is delivered, dropped, or in the network."""
    assert books.conservation(world) == []


def books_balance(world: World) -> None:
    """What the engine and the ports count is what their records hold."""
    assert books.wrong(world) == []
