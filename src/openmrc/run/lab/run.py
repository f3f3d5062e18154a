"""`mrc run --world lab`: each transport of a scenario in a lab of its own, one after the other.

The lab is in namespaces of a child process (`live.lab.isolation`); its results come back in a file
without a name. T, the base round trip from which windows, thresholds and timers follow, is the
simulator's: `base_rtt` of the transport, or the fabric's. The measured time of small packets is in
the result beside it.
"""

from __future__ import annotations

import pickle
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from openmrc import ending
from openmrc.errors import OpenMrcError
from openmrc.run.captures import pcap_paths, written
from openmrc.run.outcome import TransportResult
from openmrc.run.perfect import perfect_ps
from openmrc.run.results import Result
from openmrc.run.simulation import Step
from openmrc.units import US

if TYPE_CHECKING:
    from openmrc.live.lab import Lab, LabSpec
    from openmrc.run.lab.coordinator import Heard
    from openmrc.run.lab.plan import Plan
    from openmrc.scenario.scenario import Scenario


class _Bar:
    """A progress bar that shows nothing."""

    def update(self, step: Step) -> None:
        """Do nothing."""


def run_in_lab(
    scenario: Scenario | str | Path | Mapping[str, Any],
    bar: Callable[[], AbstractContextManager[Any]] | None = None,
    compiling: Callable[[str, int, int], None] | None = None,
    pcap: Path | None = None,
    at: Sequence[str] = ("everywhere",),
    keeps_account: bool = False,
) -> Result:
    """Run every transport of `scenario` on real frames, and return the results.

    Arguments and result are as those of `run.simulate`, except `bar`: it creates the context
    manager whose `update` takes the steps, in the process where the lab is. `InputError` for what
    cannot be done live, or on this machine. Ctrl-C returns the results so far, marked partial. With
    `keeps_account` senders tell what became of packets and paths: the basis of `mrc why`.
    """
    from openmrc.scenario.scenario import as_scenario

    started = time.perf_counter()
    scenario = as_scenario(scenario)
    fabric, traffic, schedule = scenario.build()
    prepared = [
        _prepare(scenario, index, keeps_account) for index in range(len(scenario.transports))
    ]
    files = pcap_paths(pcap, [transport.name for transport in scenario.transports])
    runs: list[TransportResult] = []
    partial = False
    try:
        _compile(compiling)
        for index, (spec, plan, derived) in enumerate(prepared):
            name = scenario.transports[index].name
            transport = scenario.transport(index)
            step = _steps(name, index, len(prepared), plan.traffic.n_msgs)
            heard = _in_a_lab(spec, plan, scenario.stop.time, step, bar, files.get(name), at)
            partial = heard is None or heard.interrupted
            if heard is not None and heard.totals:
                from openmrc.run.lab.results import result_of

                ideal = perfect_ps(fabric, traffic, transport)
                runs.append(result_of(name, fabric, traffic, plan, heard, derived, ideal))
            if partial:
                break
    except KeyboardInterrupt:
        partial = True
    wall_s = time.perf_counter() - started
    return Result(scenario, tuple(runs), partial, wall_s, tuple(schedule.names))


def _prepare(
    scenario: Scenario, index: int, keeps_account: bool = False
) -> tuple[LabSpec, Plan, Any]:
    """Check everything that can be checked before a lab is up."""
    from openmrc.live.lab.topology import topology
    from openmrc.run.lab.plan import make_plan, refuse
    from openmrc.run.lab.spec import lab_spec
    from openmrc.run.lab.spec import refuse as refuse_lab
    from openmrc.sim.mrc.derive import derive

    fabric, traffic, _ = scenario.build()
    with scenario.naming(index):
        section = refuse(scenario.transports[index], scenario.fabric, scenario.lab)
        topology(fabric, scenario.lab.build())
        senders = int(np.bincount(traffic.qp_dst, minlength=1).max())
        derived = derive(fabric, section.build(), scenario.fabric.queues(), senders)
        plan = make_plan(
            traffic, section, derived, scenario.fabric.trim, scenario.seed, keeps_account
        )
    spec = replace(
        lab_spec(scenario),
        base_rtt_us=derived.base_rtt_ps / US,
        pmtu=int(section.pmtu),
        senders_per_nic=senders,
    )
    refuse_lab(spec)
    return spec, plan, derived


def _steps(name: str, index: int, count: int, n: int) -> Callable[[int, int, int], Step]:
    """Return a function that creates the steps shown while one transport runs."""
    started = time.perf_counter()

    def step(now_ps: int, ended: int, traversals: int) -> Step:
        from openmrc.sim.world import Progress

        wall_s = time.perf_counter() - started
        progress = Progress(now_ps, ended, n, traversals, wall_s)
        return Step(name, index, count, progress, ended / max(n, 1))

    return step


def _in_a_lab(
    spec: LabSpec,
    plan: Plan,
    stop_ps: int | None,
    step: Callable[[int, int, int], Step],
    bar: Callable[[], AbstractContextManager[Any]] | None,
    pcap: Path | None,
    at: Sequence[str],
) -> Heard | None:
    """Run one transport in a child process; None if it was interrupted before it began."""
    from openmrc.live.lab.isolation import run_isolated

    with ExitStack() as stack:
        # Opened by the user: inside, root has only the user's own rights.
        back = stack.enter_context(tempfile.TemporaryFile())
        stream = None
        if pcap is not None:
            stream = stack.enter_context(written(pcap))

        def work() -> int:
            with (bar or _no_bar)() as shown:
                heard = _inside(
                    spec, plan, stop_ps, lambda *now: shown.update(step(*now)), stream, at
                )
            pickle.dump(heard, back)
            back.flush()
            return 0

        status = run_isolated(work, own_user=not spec.settings.bpf)
        if status == ending.EXIT_INTERRUPTED:
            return None
        if status != 0:
            raise OpenMrcError(f"the lab ended with status {status}")
        back.seek(0)
        heard: Heard = pickle.load(back)
        return heard


def _no_bar() -> AbstractContextManager[_Bar]:
    return nullcontext(_Bar())


def _inside(
    spec: LabSpec,
    plan: Plan,
    stop_ps: int | None,
    tell: Callable[[int, int, int], None],
    stream: BinaryIO | None,
    at: Sequence[str],
) -> Heard:
    """In the child: the lab, and the run in it."""
    from openmrc.live.lab import inside_lab
    from openmrc.live.lab.needs import explained
    from openmrc.run.lab.coordinator import Coordinator
    from openmrc.run.lab.spec import sentences

    heard: list[Heard] = []

    def work(lab: Lab) -> int:
        if stream is not None:
            lab.tap(list(at), stream)
        asked = ending.awaited()
        run = Coordinator(lab, plan, stop_ps, lambda: bool(asked), tell)
        for line in sentences(lab):
            run.say(line)
        heard.append(run.run())
        return 0

    with explained(spec.settings):
        inside_lab(spec, work)
    return heard[0]


def _compile(report: Callable[[str, int, int], None] | None) -> None:
    """Compile before any host starts: hosts that compile at the same time take several times as
    long.
    """
    from openmrc.live.endpoint.warmup import warm_up

    warm_up(report)
