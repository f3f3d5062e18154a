"""simulate(scenario): one run per transport on the same fabric, workload and faults; the results.

A flow is one message, or one series of them where a workload is generated. Its completion time
(FCT) runs from its start, the moment it (its first message) was posted, to the sender's last
acknowledgement. Percentiles are nearest rank: the ceil(p*n)-th smallest.
Goodput counts payload bytes only, in Gb/s:

* of a flow: its bytes over its FCT; `min` and `mean` are over the completed flows, `p100_flow` is
  the goodput of the flow that took longest;
* `total`: all payload placed, each byte once, over the time from the first start to the last
  completion (to the end of the run if anything is unfinished).

`ideal_us` is the least time in which a perfect network could complete the last flow, and
`slowdown_p100` is when the last completed flow did complete over that. Where all flows start
together, as in a permutation, that is the p100 of the FCT over the ideal.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import openmrc
from openmrc.errors import InputError, OpenMrcError
from openmrc.units import US

if TYPE_CHECKING:
    import polars as pl

    from openmrc.fabric.earliest import Cost
    from openmrc.fabric.faults import FaultSchedule
    from openmrc.fabric.model import Fabric
    from openmrc.scenario import Scenario
    from openmrc.sim.roce.transport import RoceTransport
    from openmrc.sim.samples import Samples
    from openmrc.sim.transport import Transport
    from openmrc.sim.world import Progress, World
    from openmrc.traffic import Traffic
    from openmrc.training import TrainingResult

    AnyTransport = Transport | RoceTransport

PERCENTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "p100": 1.0}
PACKETS = (
    "data",
    "retransmitted",
    "trimmed",
    "dropped_queue",
    "dropped_fault",
    "dropped_corrupt",
    "ecn_marked",
    "sack",
    "nack",
    "probe",
    "duplicates",
)
PATHS = ("assumed_bad", "revived", "skips")
ROCE = (  # of kind "roce"
    "acks",
    "naks",
    "cnps",
    "go_backs",
    "timeouts",
    "discarded",
    "no_route",
    "pauses",
    "pause_us",
    "pause_us_max",
    "pause_storms",
    "paused_ports",
    "pfc_drops",
)

# What a shell sees. 2, bad input, never reaches a Result.
EXIT_OK, EXIT_UNFINISHED, EXIT_BAD_INPUT, EXIT_INTERRUPTED = 0, 1, 2, 130


@dataclass(frozen=True)
class Step:
    """What `simulate` reports while it runs: transport `index` of `count`, and how far it is."""

    transport: str
    index: int
    count: int
    progress: Progress


@dataclass(frozen=True)
class TransportResult:
    """One transport's run. Arrays have one entry per flow (`flows`) or per bin (`timeline`)."""

    name: str
    flows: dict[str, NDArray[Any]]
    flow_errors: Sequence[str]
    qp_errors: Sequence[str]
    counters: dict[str, int]
    timeline: dict[str, NDArray[Any]]
    bin_ps: int
    derived: dict[str, Any]
    ideal_ps: int
    now_ps: int
    loop_s: float
    bytes_verified: int
    jobs: tuple[str, ...] = ()  # names, if the workload has jobs
    flow_job: NDArray[np.int32] | None = None  # index into `jobs`
    pauses: Sequence[dict[str, Any]] = ()  # ports that PFC held the longest, with their times
    samples: Samples | None = None  # what the run looked like over time, if it was sampled
    training: TrainingResult | None = None  # the steps, if the workload is training

    @property
    def completed(self) -> NDArray[np.bool_]:
        """Per flow: its sender has the last acknowledgement."""
        done: NDArray[np.bool_] = self.flows["done_ps"] >= 0
        return done

    @property
    def fct_ps(self) -> NDArray[np.int64]:
        """Completion times of the completed flows, ps."""
        fct: NDArray[np.int64] = (self.flows["done_ps"] - self.flows["start_ps"])[self.completed]
        return fct

    @property
    def n_failed(self) -> int:
        """Flows whose QP went to error."""
        return int(self.flows["failed"].sum())

    @property
    def n_unfinished(self) -> int:
        """Flows neither completed nor failed when the run ended."""
        return len(self.completed) - int(self.completed.sum()) - self.n_failed

    @property
    def died(self) -> bool:
        """Whether an error ended the job before its end."""
        return self.training is not None and self.training.died_ps is not None

    @property
    def finish_ps(self) -> int | None:
        """When the last flow completed; None if one never did."""
        return int(self.flows["done_ps"].max(initial=0)) if self.completed.all() else None

    def summary(self) -> dict[str, Any]:
        """This transport's object in `summary.json`."""
        traversals = self.counters["link_traversals"]
        fct_ps = self.fct_ps
        roce: dict[str, Any] = {
            key: self.counters[f"roce.{key}"] for key in ROCE if f"roce.{key}" in self.counters
        }
        if roce:
            roce["paused_most"] = list(self.pauses)
        jobs = {"jobs": {name: self._job(i) for i, name in enumerate(self.jobs)}}
        slowdown = int(self.flows["done_ps"].max()) / self.ideal_ps if len(fct_ps) else None
        return {
            "sim_time_us": _us(self.now_ps),
            "loop_s": round(self.loop_s, 4),
            "link_traversals": traversals,
            "link_traversals_per_s": round(traversals / self.loop_s) if self.loop_s else None,
            "flows": self._flows(slice(None)),
            "goodput_gbps": self._goodput_gbps(),
            "ideal_us": _us(self.ideal_ps),
            "slowdown_p100": None if slowdown is None else round(slowdown, 4),
            "packets": {key: self.counters[key] for key in PACKETS},
            "paths": {key: self.counters[key] for key in PATHS},
            **({"roce": roce} if roce else {}),
            "qp_errors": list(self.qp_errors),
            "bytes_verified": self.bytes_verified,
            **(jobs if self.jobs else {}),
            **({} if self.training is None else {"training": self.training.summary()}),
        }

    def _flows(self, these: Any) -> dict[str, Any]:
        """Count and time some of the flows."""
        flows = {key: self.flows[key][these] for key in ("start_ps", "done_ps", "failed")}
        done, failed = flows["done_ps"] >= 0, int(flows["failed"].sum())
        return {
            "total": len(done),
            "completed": int(done.sum()),
            "failed": failed,
            "unfinished": int((~done).sum()) - failed,
            "fct_us": distribution_us((flows["done_ps"] - flows["start_ps"])[done]),
        }

    def _job(self, index: int) -> dict[str, Any]:
        """Return a job's object: its flows, and the time from its first start to its last end."""
        mine = self.flow_job == index
        start_ps, done_ps = self.flows["start_ps"][mine], self.flows["done_ps"][mine]
        whole = bool((done_ps >= 0).all())
        return {
            "flows": self._flows(mine),
            "time_us": _us(done_ps.max() - start_ps.min()) if whole else None,
        }

    def _goodput_gbps(self) -> dict[str, float | None]:
        each = self.flows["bytes"][self.completed] * 8e3 / self.fct_ps  # bit/ps is Tb/s
        placed_bits = 8 * int(self.timeline["goodput_bytes"].sum())
        end_ps = self.now_ps if self.finish_ps is None else self.finish_ps
        span_ps = end_ps - int(self.flows["start_ps"].min(initial=end_ps))
        return {
            "min": _gbps(each.min()) if len(each) else None,
            "mean": _gbps(each.mean()) if len(each) else None,
            "p100_flow": _gbps(each[self.fct_ps.argmax()]) if len(each) else None,
            "total": _gbps(placed_bits * 1e3 / span_ps) if span_ps > 0 else None,
        }


@dataclass(frozen=True)
class Result:
    """All transports of one scenario, in its order."""

    scenario: Scenario
    transports: tuple[TransportResult, ...]
    partial: bool
    wall_s: float
    fault_marks: Sequence[tuple[int, str]] = field(default=())

    @property
    def exit_status(self) -> int:
        """0; 1 if a flow failed, a job died, or a flow is unfinished without a stated end; 130 if
        interrupted.
        """
        if self.partial:
            return EXIT_INTERRUPTED
        planned = self.scenario.stop.time is not None
        if any(
            run.n_failed or run.died or (run.n_unfinished and not planned)
            for run in self.transports
        ):
            return EXIT_UNFINISHED
        return EXIT_OK

    @property
    def flows(self) -> pl.DataFrame:
        """One row per transport and flow, as in `flows.parquet`; times in us."""
        from openmrc import tables

        return tables.stacked(map(tables.flow_table, self.transports))

    @property
    def timeline(self) -> pl.DataFrame:
        """One row per transport and bin of simulated time, as in `timeline.parquet`."""
        from openmrc import tables

        return tables.stacked(map(tables.time_table, self.transports))

    @property
    def steps(self) -> pl.DataFrame:
        """One row per transport and step of a training job, as in `steps.parquet`; times in us."""
        from openmrc import tables

        return tables.stacked(map(tables.step_table, self.transports))

    @property
    def figures(self) -> pl.DataFrame:
        """One row per transport: the summary's figures, named by their place in it
        (`flows.fct_us.p100`).
        """
        from openmrc import tables

        return tables.stacked(map(tables.figure_table, self.transports))

    def summary(self) -> dict[str, Any]:
        """Return the object of `summary.json`."""
        return {
            "scenario": self.scenario.name,
            "seed": self.scenario.seed,
            "openmrc": openmrc.__version__,
            "partial": self.partial,
            "wall_s": round(self.wall_s, 3),
            "peak_rss_mb": round(peak_rss_mb(), 1),
            "transports": {run.name: run.summary() for run in self.transports},
        }


def simulate(
    scenario: Scenario | str | Path | Mapping[str, Any],
    progress: Callable[[Step], None] | None = None,
    compiling: Callable[[str, int, int], None] | None = None,
    pcap: Path | None = None,
    at: Sequence[str] = ("everywhere",),
    sampled: bool = False,
) -> Result:
    """Run every transport of `scenario`, one after the other, and return what came of it.

    `scenario` may also be the name of a file, or dicts as `make_scenario` takes them.
    Everything is checked before the first one starts (`InputError`). Ctrl-C ends the run and
    returns what there is, marked partial. `compiling(what, step, steps)` is called before each
    step of a first compilation, which takes up to two minutes. What crosses the links `at` these
    places is written to `pcap`, or to one file for each transport (`pcap_paths`). `sampled` keeps
    what the pictures of `report.html` show, as `[report]` says; it changes nothing else.
    """
    from openmrc.scenario import as_scenario

    started = time.perf_counter()
    scenario = as_scenario(scenario)
    fabric, traffic, schedule = scenario.build()
    transports = [
        (section.name, scenario.transport(i)) for i, section in enumerate(scenario.transports)
    ]
    files = pcap_paths(pcap, [name for name, _ in transports])
    for _, transport in transports if files else ():
        check_captured(fabric, transport)
    runs: list[TransportResult] = []
    world, partial = None, False
    try:
        _compile(compiling, [transport for _, transport in transports])
        for index, (name, transport) in enumerate(transports):
            ideal_ps = perfect_ps(fabric, traffic, transport)
            with _capturing(files.get(name), fabric, at, transport) as capture:
                world = world_of(scenario, fabric, traffic, schedule, transport, **capture)
                if sampled:
                    world.sample(scenario.report.qp, scenario.report.samples)
                world.run(progress=_reporter(progress, name, index, len(transports)))
            runs.append(_collect(name, scenario, fabric, transport, world, ideal_ps))
            world = None
    except KeyboardInterrupt:
        partial = True
        if world is not None:
            runs.append(_collect(name, scenario, fabric, transport, world, ideal_ps))
    return Result(
        scenario=scenario,
        transports=tuple(runs),
        partial=partial,
        wall_s=time.perf_counter() - started,
        fault_marks=tuple(schedule.names),
    )


def pcap_paths(pcap: Path | None, names: Sequence[str]) -> dict[str, Path]:
    """Return the capture file of each transport: `pcap`, or for several "OUT-NAME.pcapng" each."""
    if pcap is None:
        return {}
    if len(names) == 1:
        return {names[0]: pcap}
    return {name: pcap.with_name(f"{pcap.stem}-{name}{pcap.suffix}") for name in names}


def check_captured(fabric: Fabric, transport: AnyTransport) -> None:
    """Raise `InputError` for a transport that has no frames on this fabric."""
    from openmrc.sim.roce.transport import RoceTransport
    from openmrc.wire.layout import PAYLOAD_BYTES_MAX

    if transport.pmtu > PAYLOAD_BYTES_MAX:
        raise InputError(
            f"--pcap: transport.pmtu = {transport.pmtu}: no frame is so long;"
            f" at most {PAYLOAD_BYTES_MAX}"
        )
    if isinstance(transport, RoceTransport):
        from openmrc.sim.roce.capture import check_fabric

        check_fabric(fabric)


@contextmanager
def _capturing(
    path: Path | None, fabric: Fabric, at: Sequence[str], transport: AnyTransport
) -> Iterator[dict[str, Any]]:
    """The argument that makes a world write what it sends to `path`; none without a path."""
    if path is None:
        yield {}
        return
    from openmrc.sim.capture import Capture
    from openmrc.sim.transport import Transport

    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("wb") as stream:
            if isinstance(transport, Transport):
                yield {"capture": Capture(stream, fabric, at, hashed=transport.hashed)}
            else:
                from openmrc.sim.roce.capture import RoceCapture

                yield {"capture": RoceCapture(stream, fabric, at)}
    except OpenMrcError:  # refused before it began: nothing half-written
        path.unlink()
        raise


def flat(table: Mapping[str, Any], place: str = "") -> dict[str, Any]:
    """Return nested dicts as one, keys joined by dots."""
    figures: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            figures |= flat(value, f"{place}{key}.")
        else:
            figures[f"{place}{key}"] = value
    return figures


def without_lists(summary: dict[str, Any]) -> dict[str, Any]:
    """Return a transport's summary without what has no column: a list of ports."""
    roce = {key: value for key, value in summary.get("roce", {}).items() if key in ROCE}
    return summary | ({"roce": roce} if roce else {})


def nearest_rank(values: NDArray[np.int64], share: float) -> int:
    """Return the ceil(share * n)-th smallest of `values` (at least the first); n > 0."""
    rank = rank_of(len(values), share)
    return int(np.partition(values, rank - 1)[rank - 1])


def rank_of(n: int, share: float) -> int:
    """Return ceil(share * n), at least 1: which of n values in order is that percentile."""
    # 1e-9: 0.99 * 100 is 99.00000000000001 in floating point, and that is rank 99.
    return max(1, int(np.ceil(share * n - 1e-9)))


def distribution_us(values_ps: NDArray[np.int64]) -> dict[str, float | None]:
    """Return min, percentiles and mean in microseconds; all None if there is no value."""
    if not len(values_ps):
        return dict.fromkeys(("min", *PERCENTILES, "mean"))
    ranks = {key: _us(nearest_rank(values_ps, share)) for key, share in PERCENTILES.items()}
    return {"min": _us(values_ps.min()), **ranks, "mean": round(float(values_ps.mean()) / US, 6)}


def peak_rss_mb() -> float:
    """Return this process's largest resident memory so far, in 10^6 bytes.

    `VmHWM` belongs to this program alone; `ru_maxrss` survives exec and shows the parent's memory
    in a small child.
    """
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e6
    except (OSError, IndexError):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def _compile(
    report: Callable[[str, int, int], None] | None, transports: Sequence[AnyTransport]
) -> None:
    """Compile what these transports need and is not on disk."""
    from openmrc import jit
    from openmrc.sim.transport import Transport

    for world in dict.fromkeys(
        "sim" if isinstance(each, Transport) else "sim.roce" for each in transports
    ):
        if not jit.is_cached(world):
            jit.warm_up(report or (lambda what, step, steps: None), world)


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
    with scenario.naming(number):
        try:
            return _world(
                fabric,
                traffic,
                transport,
                schedule,
                scenario.seed,
                queues=scenario.fabric.queues(),
                stop_ps=scenario.stop.time,
                **more,
            )
        except MemoryError as error:
            raise InputError(
                f"{traffic.n_qps} queue pairs among {fabric.n_nics} NICs do not fit this machine's"
                f" memory ({error}); fewer do, and fewer EVs"
            ) from None


def _world(*args: Any, **kwargs: Any) -> World:
    from openmrc.sim.world import World  # compiled code is loaded when a run starts, not before

    return World(*args, **kwargs)


def perfect_ps(fabric: Fabric, traffic: Traffic, transport: AnyTransport) -> int:
    """Return `ideal_ps` of a result: what a perfect network would have taken."""
    from openmrc.fabric.ideal import ideal_ps

    data_bytes, ack_bytes = _sizes(transport)
    return int(ideal_ps(fabric, traffic, data_bytes, transport.pmtu, ack_bytes))


def perfect_costs(fabric: Fabric, traffic: Traffic, transport: AnyTransport) -> Cost:
    """Return what each message costs in a perfect network."""
    from openmrc.fabric.ideal import costs

    data_bytes, ack_bytes = _sizes(transport)
    return costs(fabric, traffic, data_bytes, transport.pmtu, ack_bytes)


def _sizes(transport: AnyTransport) -> tuple[Callable[[int], int], int]:
    """Bytes on the wire of a data packet, by its payload, and of an acknowledgement."""
    from openmrc.engine.packet import ACKNOWLEDGE
    from openmrc.sim.transport import Transport
    from openmrc.wire import roce
    from openmrc.wire.framing import framing

    if isinstance(transport, Transport):
        sizes = framing(transport.rules, transport.srv6)
        return sizes.data_bytes, sizes.header_bytes[ACKNOWLEDGE]
    of_roce = roce.roce_framing(transport.rules)
    return of_roce.data_bytes, of_roce.sack_bytes


def _reporter(
    report: Callable[[Step], None] | None, name: str, index: int, count: int
) -> Callable[[Progress], None] | None:
    if report is None:
        return None
    return lambda progress: report(Step(name, index, count, progress))


def _collect(
    name: str,
    scenario: Scenario,
    fabric: Fabric,
    transport: AnyTransport,
    world: World,
    ideal_ps: int,
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
        pauses=world.pauses(),
        samples=world.samples(),
        training=_trained(scenario, fabric, transport, world),
    )


def _trained(
    scenario: Scenario, fabric: Fabric, transport: AnyTransport, world: World
) -> TrainingResult | None:
    from openmrc.training_section import Training

    if not isinstance(scenario.workload, Training):
        return None
    from openmrc.training import trained

    return trained(scenario.workload, fabric, world.traffic, transport, world)


def _us(ps: float) -> float:
    return round(int(ps) / US, 6)


def _gbps(value: float) -> float:
    return round(float(value), 3)
