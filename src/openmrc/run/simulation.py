"""simulate(scenario): one run per transport on the same fabric, workload and faults."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openmrc.errors import InputError
from openmrc.run.captures import pcap_paths, written
from openmrc.run.outcome import TransportResult
from openmrc.run.perfect import parts_of, perfect_costs, perfect_ps
from openmrc.run.results import Result
from openmrc.sim.watch.forms import NATIVE

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from openmrc.fabric.faults import FaultSchedule
    from openmrc.fabric.model import Fabric
    from openmrc.run.perfect import AnyTransport
    from openmrc.run.ports import Ports
    from openmrc.run.training import TrainingResult
    from openmrc.scenario.scenario import Scenario
    from openmrc.sim.world import Progress, World
    from openmrc.traffic.traffic import Traffic


@dataclass(frozen=True)
class Step:
    """What `simulate` reports while it runs: transport `index` of `count`, and its progress.

    `share` is the fraction of the payload that is placed, or of the time until `stop.time` if that
    is more. Flows say little, because they often end together.
    """

    transport: str
    index: int
    count: int
    progress: Progress
    share: float


def simulate(
    scenario: Scenario | str | Path | Mapping[str, Any],
    progress: Callable[[Step], None] | None = None,
    compiling: Callable[[str, int, int], None] | None = None,
    pcap: Path | None = None,
    at: Sequence[str] = ("everywhere",),
    sampled: bool = False,
    frames: str = NATIVE,
    threads: int | None = None,
) -> Result:
    """Run every transport of `scenario`, one after the other, and return the results.

    `scenario` may also be the name of a file, or dicts as `make_scenario` takes them. Everything is
    checked before the first one starts (`InputError`). Ctrl-C ends the run and returns the results
    so far, marked partial; without any, `KeyboardInterrupt` is raised.

    `compiling(what, step, steps)` is called while a first compilation proceeds, which takes up to a
    minute: first with an empty `what`, then with the next function and the share of the work that
    is done, last with "done"; `steps` is 0 if the share is unknown. `pcap` is a capture file for
    the links at the places `at`, with several transports one file for each; `frames` is "native",
    "ipv4" or "ipv6". `sampled` keeps the values over time that `report.html` shows, by the
    scenario's `[report]`, and changes no result. `threads` run the shards of a large fabric (None:
    one per core); their number changes only the time that a run takes.
    """
    from openmrc.scenario.scenario import as_scenario

    started = time.perf_counter()
    scenario = as_scenario(scenario)
    fabric, traffic, schedule = scenario.build()
    transports = [
        (section.name, scenario.transport(i)) for i, section in enumerate(scenario.transports)
    ]
    files = pcap_paths(pcap, [name for name, _ in transports])
    if scenario.level == "flow":
        _refuse_packets(files)
    for _, transport in transports if files else ():
        check_captured(fabric, transport, frames)
    runs: list[TransportResult] = []
    world, witness, partial = None, None, False
    try:
        _compile(compiling, [transport for _, transport in transports], scenario.level)
        crew = _cores() if threads is None else threads
        for index, (name, transport) in enumerate(transports):
            ideal_ps = perfect_ps(fabric, traffic, transport)
            with _capturing(files.get(name), fabric, at, transport, frames) as capture:
                world = world_of(
                    scenario, fabric, traffic, schedule, transport, threads=crew, **capture
                )
                if sampled and traffic.n_qps and scenario.level == "packet":
                    world.sample(scenario.report.qp, scenario.report.samples)
                report = None
                if progress is not None:
                    report = _reporter(progress, name, index, len(transports), world)
                witness = _witness(world) if sampled and scenario.level == "packet" else None
                _run(world, witness, report)
            runs.append(_collect(name, scenario, fabric, transport, world, ideal_ps, witness))
            world = None
    except KeyboardInterrupt:
        if world is None and not runs:
            raise  # while compiling: there is nothing to return
        partial = True
        if world is not None:
            runs.append(_collect(name, scenario, fabric, transport, world, ideal_ps, witness))
    wall_s = time.perf_counter() - started
    return Result(scenario, tuple(runs), partial, wall_s, tuple(schedule.names))


def _refuse_packets(files: Mapping[str, Path]) -> None:
    """Raise `InputError` for what has packets: there are none at the flow level."""
    if files:
        raise InputError('--pcap: level = "flow" has no packets; leave it out, or --level packet')


def check_captured(fabric: Fabric, transport: AnyTransport, frames: str = NATIVE) -> None:
    """Raise `InputError` for a transport that has no frames on this fabric."""
    from openmrc.sim.kinds import capture_of
    from openmrc.wire.layout import PAYLOAD_BYTES_MAX

    if transport.pmtu > PAYLOAD_BYTES_MAX:
        raise InputError(
            f"--pcap: transport.pmtu = {transport.pmtu}: no frame is so long;"
            f" at most {PAYLOAD_BYTES_MAX}"
        )
    capture_of(transport).check(fabric, frames)


@contextmanager
def _capturing(
    path: Path | None, fabric: Fabric, at: Sequence[str], transport: AnyTransport, frames: str
) -> Iterator[dict[str, Any]]:
    """Return the argument that makes a world write its packets to `path`; none without a path."""
    if path is None:
        yield {}
        return
    from openmrc.sim.kinds import capture_of

    with written(path) as stream:
        yield {"capture": capture_of(transport).of(stream, fabric, at, transport, frames)}


def _compile(
    report: Callable[[str, int, int], None] | None,
    transports: Sequence[AnyTransport],
    level: str = "packet",
) -> None:
    """Compile what these transports need and is not cached."""
    if level == "flow":
        from openmrc.flow.warmup import warm_up_flows

        warm_up_flows(report)
        return
    from openmrc.jit.warmup import is_cached, warm_up
    from openmrc.sim.mrc.transport import Transport

    of_mrc = [isinstance(each, Transport) for each in transports]
    balances = any(getattr(each, "balances", False) for each in transports)
    needed = {"sim": any(of_mrc), "sim.roce": not all(of_mrc), "sim.roce.balance": balances}
    if all(is_cached(world) for world, is_needed in needed.items() if is_needed):
        return
    from openmrc.sim.warmup import warm_up_balance, warm_up_mrc, warm_up_roce

    known = (warm_up_mrc, warm_up_roce, warm_up_balance)
    worlds = [each for each in known if needed[each.world]]
    warm_up(*worlds, report=report)


def world_of(
    scenario: Scenario,
    fabric: Fabric,
    traffic: Traffic,
    schedule: FaultSchedule,
    transport: AnyTransport,
    **more: Any,
) -> World:
    """Return the world of one transport; the next three are what `scenario.build` made."""
    number = [section.name for section in scenario.transports].index(transport.name)
    if scenario.level == "flow":
        more = {"cost": perfect_costs(fabric, _parts(traffic, transport), transport)}
    make = _flow_world if scenario.level == "flow" else _world
    with scenario.naming(number):
        try:
            world = make(
                fabric,
                traffic,
                transport,
                schedule,
                scenario.seed,
                queues=scenario.fabric.queues(),
                stop_ps=scenario.stop.time,
                **more,
            )
            _return_memory()
            return world
        except MemoryError as error:
            raise InputError(
                f"{traffic.n_qps} queue pairs among {fabric.n_nics} NICs do not fit this machine's"
                f" memory ({error}); fewer do, and fewer EVs"
            ) from None


def _parts(traffic: Traffic, transport: AnyTransport) -> Traffic:
    """The same messages, each as long as the parts that it is striped into."""
    return replace(traffic, msg_bytes=-(-traffic.msg_bytes // parts_of(transport)))


def _return_memory() -> None:
    """Return free heap memory of the construction to the system, a tenth of a gigabyte for 131,072
    NICs; without support by the C library it stays.
    """
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def _world(*args: Any, **kwargs: Any) -> World:
    from openmrc.sim.world import World  # compiled code is loaded when a run starts, not before

    return World(*args, **kwargs)


def _flow_world(*args: Any, **kwargs: Any) -> Any:
    from openmrc.flow.world import FlowWorld

    return FlowWorld(*args, **kwargs)


def _cores() -> int:
    from openmrc.jit.beside import cores

    return cores()


def _witness(world: World) -> Ports:
    """Return what reads a world's ports, and its senders, if they keep track of their paths."""
    from openmrc.run.ports import Ports
    from openmrc.run.witness import Witness, can_tell

    return (Witness if can_tell(world) else Ports)(world)


def _run(world: World, witness: Ports | None, report: Callable[[Progress], None] | None) -> None:
    if witness is None:
        world.run(progress=report)
        return
    while not world.run(until_ps=witness.due_ps, progress=report):
        witness.take()


def _reporter(
    report: Callable[[Step], None], name: str, index: int, count: int, world: World
) -> Callable[[Progress], None]:
    payload_bytes = max(int(world.traffic.msg_total_bytes.sum()), 1)

    def tell(progress: Progress) -> None:
        placed = world.bytes_verified / payload_bytes
        of_time = progress.now_ps / world.stop_ps if world.stop_ps else 0.0
        report(Step(name, index, count, progress, min(max(placed, of_time), 1.0)))

    return tell


def _collect(
    name: str,
    scenario: Scenario,
    fabric: Fabric,
    transport: AnyTransport,
    world: World,
    ideal_ps: int,
    witness: Ports | None,
) -> TransportResult:
    return TransportResult(
        name=name,
        flows=world.flows(),
        flow_errors=world.errors(),
        qp_errors=world.qp_errors(),
        counters={key: int(value) for key, value in world.counters().items()},
        timeline=world.timeline(),
        bin_ps=world.bin_ps,
        derived=world.derived(),
        ideal_ps=ideal_ps,
        now_ps=int(world.now_ps),
        loop_s=float(world.loop_s),
        bytes_verified=int(world.bytes_verified),
        jobs=world.traffic.jobs,
        flow_job=world.traffic.msg_job,
        placed_ps=world.placed_ps,
        calcs_ps=_last(world.calcs_ended_ps()),
        placed=world.placed(),
        pauses=world.pauses(),
        samples=world.samples(),
        training=_trained(scenario, fabric, transport, world),
        testimony=None if witness is None else witness.testimony(),
        uncut=world.uncut,
    )


def _last(ended_ps: npt.NDArray[np.int64]) -> int:
    """When the last of some computations ended; -1 if one never did, 0 if there are none."""
    if not len(ended_ps):
        return 0
    return -1 if (ended_ps < 0).any() else int(ended_ps.max())


def _trained(
    scenario: Scenario, fabric: Fabric, transport: AnyTransport, world: World
) -> TrainingResult | None:
    from openmrc.scenario.training import Training

    if not isinstance(scenario.workload, Training):
        return None
    from openmrc.run.training import trained

    return trained(scenario.workload, fabric, world.traffic, transport, world)
