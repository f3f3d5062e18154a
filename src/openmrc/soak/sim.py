"""`mrc soak`: random scenarios, hour after hour, each of them checked.

A round is a function of its seed: fabric, transport, workload and faults are drawn from it. Its
first phase is *safety*: while faults come and go the run is stopped at drawn times and its counters
are compared with its state (`sim.watch.books`). At the horizon everything is repaired, and the
second phase is *liveness*: every message must complete, each byte once at its address, with no QP
in error, because no fault lasts as long as a QP retries. Half of the fabrics are cut into shards,
for a drawn number of threads. One round in eight is run again, with another number of threads, and
must give the same result.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import active_children, get_context
from typing import TYPE_CHECKING, Any

import numpy as np

from openmrc.say import counted
from openmrc.units import MS, US, fmt_time

if TYPE_CHECKING:
    from openmrc.scenario.scenario import Scenario
    from openmrc.sim.world import World

HOUR_S = 3600.0
SEEDS = 1 << 62  # a scenario's seed is a signed 64-bit number, and rounds count up from it
HORIZONS_PS = (50 * US, 500 * US, 5 * MS)  # faults are over by then
ROCE_RTO = "20ms"  # the eighth such timer without progress is the last: no fault lasts that long
STOP_PS = 2000 * MS  # far beyond the longest retry: what is not done by then is stuck
LOOKS = 12  # checks of a round's invariants
AGAIN_EVERY = 8
THREADS_MAX = 4
FAULTS_MAX = 8
NICS = (4, 8, 16)
KINDS = (
    "permutation",
    "incast",
    "ring-all-reduce",
    "halving-doubling-all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "broadcast",
    "send-recv",
)


@dataclass(frozen=True)
class Round:
    """The outcome of a round: its seed, the drawn options in one line, and errors."""

    seed: int
    options: str
    wrong: tuple[str, ...]
    simulated_ps: int
    packets: int


def draw(seed: int, nics: Sequence[int] = NICS) -> dict[str, Any]:
    """Return the tables of a scenario in which everything is drawn from `seed`, with one of these
    numbers of NICs.
    """
    from openmrc.scenario.scenario import make_scenario

    rng = np.random.default_rng(seed)

    def pick(*choices: Any) -> Any:
        return choices[int(rng.integers(len(choices)))]

    fabric = _fabric(pick, nics)
    tables: dict[str, Any] = {
        "name": f"soak {seed}",
        "seed": seed,
        "fabric": fabric,
        "transport": _transport(pick),
        "workload": _workload(pick, fabric["nics"]),
        "stop": {"time": fmt_time(STOP_PS)},
    }
    tables["workload"] = pick(*[tables["workload"]] * 7, _training(pick))
    tables["transport"] = pick(
        *[tables["transport"]] * 4, _variant(tables["transport"], pick), _roce(pick), _roce(pick)
    )
    if tables["transport"].get("kind") == "roce":
        tables["transport"] |= _routing(pick)
    _leave_out_idle(tables)
    if not _windows_fit(fabric, tables["workload"]):
        # Fixed windows collapse: timeouts in step, each burst lost again, for seconds. So does
        # go-back-N where full queues drop.
        roce = tables["transport"].get("kind") == "roce"
        tables["transport"] |= {"pfc": True, "buffer": "5MB"} if roce else {"cc": "nscc"}
    built = make_scenario(tables).fabric.build()
    tables["fault"] = list(_faults(built, seed, pick))
    if fabric["switching"] == "store-and-forward":
        # PFC's headroom for more would not fit the buffers drawn
        longest = "500ns" if tables["transport"].get("kind") == "roce" else "20us"
        fabric["jitter"] = pick("0ns", "0ns", "0ns", "500ns", longest)
    if tables["transport"].get("kind") != "roce":
        tables["transport"]["share_window"] = pick(False, False, True)
        if tables["transport"]["paths"] == "mrc":
            tables["transport"]["skip_turns"] = pick("auto", "auto", 1, "squared")
        if not tables["transport"].get("srv6", True):
            tables["transport"]["ev_fields"] = pick(False, True)
            tables["transport"] |= _balance(pick, tables)
    return tables


def _fabric(pick: Callable[..., Any], nics: Sequence[int]) -> dict[str, Any]:
    tiers = pick(2, 2, 2, 3)
    fabric: dict[str, Any] = {
        "nics": pick(*nics),
        "t0_down": pick(2, 4),
        "t0_up": pick(1, 2, 4),
        "port_rate": pick("10Gbps", "100Gbps", "400Gbps"),
        "link_delay": pick("0ns", "500ns", "2us"),
        "trim": pick(True, True, False),
        "ecn_last_hop": pick(True, False),
        "forwarding": pick("arithmetic", "arithmetic", "usid"),
        "switching": pick("store-and-forward", "cut-through"),
    }
    if tiers == 3:
        return fabric | {"kind": "fat-tree", "tiers": 3, "t1_down": 2, "t1_up": 2}
    return fabric | {"planes": pick(1, 2, 4)}


def _transport(pick: Callable[..., Any]) -> dict[str, Any]:
    return {
        "paths": pick("mrc", "mrc", "mrc", "mrc", "oblivious", "single"),
        "cc": pick("nscc", "nscc", "nscc", "none"),
        "pmtu": pick(1024, 2048, 4096, 4096, 8192),
        "evs_active": pick(4, 16, 128),
        "evs_backup": pick(0, 8, 64),
        "mpr": pick("auto", 128, 256, 1024),
        "sack_bytes": pick(1, 4096, 16_384),
        "rto_exponent": pick(5, 6, 8),
        "always_skip_after": pick(0, 0, 3),
        "convergence": pick("0ns", "100us", "1ms"),
    }


def _variant(transport: dict[str, Any], pick: Callable[..., Any]) -> dict[str, Any]:
    """MRC without some of its parts."""
    paths = pick("mrc", "mrc", "reps", "oblivious")
    flags = {"ecn_skip": pick(True, False), "check_paths": pick(True, False)}
    more: dict[str, Any] = flags if paths == "mrc" else {}
    more |= {"freezing": pick("0ns", "100us", "10ms")} if paths == "reps" else {}
    return transport | more | {"paths": paths, "srv6": pick(True, False), "trim": pick(True, False)}


def _roce(pick: Callable[..., Any]) -> dict[str, Any]:
    return {
        "kind": "roce",
        "qps": pick(1, 1, 3, 8),
        "pmtu": pick(1024, 2048, 4096, 4096, 8192),
        "cc": pick("dcqcn", "rtt", "none"),
        "profile": pick("default", "lenient", "aggressive", "most-aggressive", "paper"),
        **pick({"buffer": "5MB"}, {"buffer": "40MB"}, {"pfc": False}),
        "ack_every": pick(1, 4, 100),
        "rto": ROCE_RTO,
        "rto_first": pick("1ms", ROCE_RTO),
        **pick(
            {"convergence": "instant"},
            {"convergence": "100us", "local_repair": "20us"},
            {"convergence": "50us-500us", "local_repair": "100us"},
        ),
    }


def _routing(pick: Callable[..., Any]) -> dict[str, Any]:
    """Switches that hash, or balance, and what the latter and their NICs have of their own."""
    routing = pick("hashed", "adaptive", "adaptive", "spray")
    if routing == "hashed":
        return {}
    recovery = pick({"recovery": "timer"}, {"reordering": pick("2us", "20us")})
    steps = {"load_steps": pick([0.05, 0.1, 0.2], [1.0])} if routing == "adaptive" else {}
    ties, failover = pick("random", "rotation"), pick("20us", "2ms")
    return {"routing": routing, "ties": ties, "failover": failover, **steps, **recovery}


def _balance(pick: Callable[..., Any], tables: dict[str, Any]) -> dict[str, Any]:
    """MRC over switches that balance, where they have a choice and an EV names no path."""
    fabric = tables["fabric"]
    one_path = fabric["t0_up"] == 1 or fabric["nics"] <= fabric["t0_down"]
    if one_path or tables["transport"]["ev_fields"]:
        return {}
    return {**pick({}, {"routing": "spray"}, {"routing": "adaptive", "convergence": "100us"})}


def _leave_out_idle(tables: dict[str, Any]) -> None:
    """Remove drawn keys that would have no effect: a scenario must not have them."""
    transport, fabric = tables["transport"], tables["fabric"]
    if transport.get("kind") == "roce":
        idle = {"profile"} if transport["cc"] != "dcqcn" else set()
        idle |= {"local_repair"} if "routing" in transport else set()
        idle |= {"failover"} if fabric.get("planes", 1) == 1 else set()
        for key in ("trim", "ecn_last_hop", "forwarding"):
            fabric.pop(key, None)
    else:
        idle = {"always_skip_after"} if transport["paths"] != "mrc" else set()
        idle |= {"convergence"} if transport["paths"] != "single" else set()
    one_path = fabric.get("planes", 1) * fabric["t0_up"] == 1
    one_t0 = fabric["nics"] <= fabric["t0_down"]
    idle |= {"convergence"} if one_path or one_t0 else set()
    no_choice = fabric["t0_up"] == 1 or one_t0
    idle |= {"local_repair", "load_steps", "ties"} if no_choice else set()
    for key in idle:
        transport.pop(key, None)


def _windows_fit(fabric: dict[str, Any], workload: dict[str, Any]) -> bool:
    """True if no port is ever offered more than one full window, apart from faults."""
    several = workload["kind"] in ("incast", "all-to-all", "training") or workload["channels"] > 1
    return not several and fabric["t0_up"] >= fabric["t0_down"]


def _workload(pick: Callable[..., Any], nics: int) -> dict[str, Any]:
    kind = pick(*KINDS)
    workload: dict[str, Any] = {"kind": kind, "size": pick("4kB", "100kB", "400kB", "2MB")}
    if kind == "incast":
        return workload | {"n": pick(1, nics // 2 - 1, nics - 3), "victim": pick(True, False)}
    workload["channels"] = pick(1, 1, 2)
    if kind == "permutation":
        return workload
    if kind == "all-to-all":
        # With hundreds of QPs through one slow port each has a packet in flight, even if all are
        # trimmed: the headers alone, in the class that goes first, would fill the port for good.
        return workload | {"channels": 1, "at_once": pick(1, 2, 4)}
    workload |= {"chunks": pick(1, 2)} | pick({}, {"compute": "3us", "jitter": pick(0.0, 0.5)})
    if kind == "send-recv":
        workload["steps"] = pick(2, 5)
    if kind != "halving-doubling-all-reduce":
        workload["flows"] = pick("message", "series")
    return workload


def _training(pick: Callable[..., Any]) -> dict[str, Any]:
    """A step or two of a training job; the replicas fill 4, 8 or 16 NICs."""
    sizes = ("tp_size", "pp_size", "ep_size", "dp_size", "expert_size")
    return {
        "kind": "training",
        "tp": pick(1, 2),
        "pp": pick(1, 2),
        "layers": 2,
        "microbatches": 2,
        "steps": pick(1, 2),
        "forward": "2us",
        "jitter": pick(0.0, 0.5),
        "tp_collective": pick("all-reduce", "reduce-scatter"),
        "dp_collective": pick("all-reduce", "reduce-scatter"),
        "bucket": pick("20kB", "1MB"),
        **{size: pick("4kB", "30kB") for size in sizes},
    }


def _faults(fabric: Any, seed: int, pick: Callable[..., Any]) -> Iterator[dict[str, Any]]:
    """Yield `[[fault]]` tables: all kinds in turn, everything repaired at the horizon."""
    from openmrc.fabric import draw_faults

    n = pick(*range(FAULTS_MAX + 1))
    for fault in draw_faults(fabric, seed, n, pick(*HORIZONS_PS)):
        stated = {key: value for key, value in vars(fault).items() if value is not None}
        yield {
            key.removesuffix("_ps"): fmt_time(value) if key.endswith("_ps") else value
            for key, value in stated.items()
        }


def run_round(seed: int) -> Round:
    """Draw a scenario, run it, and check it."""
    from openmrc.scenario.scenario import make_scenario

    tables = draw(seed)
    options = json.dumps(tables, separators=(",", ":"))
    scenario = make_scenario(tables)
    shards, threads = _shards(seed)
    world = _world(scenario, shards, threads)
    found = _safety(world, scenario, seed) or _liveness(world)
    if not found and seed % AGAIN_EVERY == 0:
        again = _world(scenario, shards, 1 + threads % THREADS_MAX)
        again.run()
        if again.counters() != world.counters():
            found = ["the same again came out differently"]
    packets = world.counters()["injected"]
    return Round(seed, options, tuple(found), int(world.now_ps), packets)


def _shards(seed: int) -> tuple[int, int]:
    """The number of shards, if the fabric can be cut, and of threads."""
    rng = np.random.default_rng([seed, 2])
    return int(rng.choice([1, 1, 2, 4])), int(rng.integers(1, THREADS_MAX + 1))


def _world(scenario: Scenario, shards: int = 1, threads: int = 1) -> World:
    from openmrc.run.simulation import world_of

    transport = scenario.transport(0)
    return world_of(scenario, *scenario.build(), transport, shards=shards, threads=threads)


def _safety(world: World, scenario: Scenario, seed: int) -> list[str]:
    """Stop at drawn times, mostly while faults last, and compare."""
    from openmrc.sim.watch import books

    last_ps = max((fault.at for fault in scenario.faults), default=HORIZONS_PS[0])
    rng = np.random.default_rng([seed, 1])
    for at_ps in np.sort(rng.integers(0, 2 * last_ps + 1, LOOKS)).tolist():
        over = world.run(until_ps=at_ps)
        if found := books.wrong(world):
            return [f"at {fmt_time(at_ps)}: {line}" for line in found]
        if over:
            break
    return []


def _liveness(world: World) -> list[str]:
    """All faults are repaired: now everything completes."""
    from openmrc.sim.watch import books

    world.run()
    found = books.wrong(world) + world.qp_errors()
    flows = world.flows()
    done = flows["done_ps"] >= 0
    if not done.all():
        found.append(f"{int((~done).sum())} of {len(done)} flows are not done at {world.now_ps} ps")
    elif world.bytes_verified != int(flows["bytes"].sum()):
        found.append(
            f"{world.bytes_verified} of {flows['bytes'].sum()} bytes are where they belong"
        )
    elif (world.calcs_ended_ps() < 0).any():
        found.append(f"not all computations are over at {world.now_ps} ps")
    elif (flows["done_ps"] < flows["delivered_ps"]).any():
        found.append("a flow was acknowledged before it was delivered")
    return found


def soak(
    seed: int,
    *,
    seconds: float | None = None,
    rounds: int | None = None,
    workers: int | None = None,
    say: Callable[[str], None] = print,
) -> int:
    """Run rounds `seed`, `seed + 1` ... for a time or a number; return how many failed.

    Rounds run in parallel, one on each core. `say` gets one line for each, with all drawn options,
    and for a failure the command that replays it.
    """
    from openmrc.jit.warmup import is_cached
    from openmrc.sim.warmup import warm_up_mrc

    if not is_cached("sim"):
        say("compiling the simulator ...")
        warm_up_mrc()
    started = time.monotonic()
    n_workers = workers or os.cpu_count() or 1
    failed = done = 0
    simulated_ps = packets = 0
    with ProcessPoolExecutor(n_workers, mp_context=get_context("spawn")) as pool:
        under_way: set[Future[Round]] = set()
        drawn = 0
        try:
            while True:
                more = rounds is None or drawn < rounds
                more = more and (seconds is None or time.monotonic() - started < seconds)
                while more and len(under_way) < n_workers:
                    under_way.add(pool.submit(run_round, seed + drawn))
                    drawn += 1
                    more = rounds is None or drawn < rounds
                if not under_way:
                    break
                ready, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                for future in ready:
                    r = future.result()
                    done += 1
                    failed += bool(r.wrong)
                    simulated_ps += r.simulated_ps
                    packets += r.packets
                    _report(r, say)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in active_children():  # a signal to this process alone did not reach them
                child.terminate()
            say(f"interrupted after {counted(done, 'round')}, {failed} failed")
            raise
    say(
        f"{counted(done, 'round')}, {failed} failed: seeds {seed} to {seed + max(drawn, 1) - 1},"
        f" {fmt_time(simulated_ps)} simulated, {packets:,} packets,"
        f" {time.monotonic() - started:.0f} s"
    )
    return failed


def _report(r: Round, say: Callable[[str], None]) -> None:
    say(f"{'FAILED' if r.wrong else 'ok'} {r.seed} {r.options}")
    for line in r.wrong:
        say(f"  {line}")
    if r.wrong:
        say(f"  replay: mrc soak --seed {r.seed} --rounds 1")
