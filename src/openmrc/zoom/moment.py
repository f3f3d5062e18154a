"""A moment of a run at the flow level as a scenario of its own: the fabric as it was, and the
messages under way.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from openmrc.errors import InputError
from openmrc.fabric.model import Fabric
from openmrc.run.saved import Saved
from openmrc.say import counted
from openmrc.scenario.scenario import Scenario, make_scenario
from openmrc.units import US, fmt_time
from openmrc.zoom.faults import faults_between
from openmrc.zoom.messages import Messages, as_cm, reduced, under_way

CM, SCENARIO = "zoom.cm", "zoom.toml"


class Moment(NamedTuple):
    """A scenario, its traffic as text, what its messages took in the results, and how it was
    reduced.
    """

    tables: dict[str, Any]
    cm: str
    found: Messages
    said: str

    def scenario(self, out: Path, level: str) -> Scenario:
        """Return the scenario, whose traffic was written to a directory."""
        workload = {"kind": "htsim", "cm": CM}
        return make_scenario({**self.tables, "level": level, "workload": workload}, base=out)


def moment_of(saved: Saved, name: str | None, at_ps: int, for_ps: int) -> Moment:
    """Return what a transport's run was doing; raise `InputError` for a time without traffic."""
    summary = saved.summary
    if summary.get("level") != "flow":
        raise InputError(
            f"{saved.directory}: was run packet by packet already; name one of mrc run --level flow"
        )
    run = _run_of(summary["transports"], name)
    end_us = summary["transports"][run]["sim_time_us"]
    if at_ps >= end_us * US:
        raise InputError(f"--at {fmt_time(at_ps)}: the run of {run} ended after {end_us} us")
    tables = {key: value for key, value in saved.scenario.items() if key != "workload"}
    scenario = make_scenario(saved.scenario)
    fabric, _, schedule = scenario.build()
    limits = {"transports": tuple(summary["transports"]), "nics": fabric.n_nics}
    ends_us = max(each["sim_time_us"] for each in summary["transports"].values()) + 1  # rounded
    flows = saved.table("flows", {**limits, "end_us": ends_us})
    until_ps = at_ps + for_ps
    every = under_way(flows.filter(flows["transport"] == run), end_us, at_ps, until_ps)
    if not len(every.src):
        raise InputError(f"--at {fmt_time(at_ps)}: nothing is under way; name another time")
    number = [each.name for each in scenario.transports].index(run)
    faults = faults_between(fabric, schedule.events, at_ps, until_ps)
    tables |= {
        "name": f"{scenario.name}, from {fmt_time(at_ps)} on",
        "transport": [saved.scenario["transport"][number]],
        "fault": faults,
        "stop": {},
    }
    tables.pop("report", None)
    return moment(tables, every, fabric, scenario.transport(number).pmtu)


def moment(tables: dict[str, Any], every: Messages, fabric: Fabric, pmtu: int) -> Moment:
    """Return a moment with the messages that one machine holds."""
    kept = reduced(every, fabric, pmtu)
    return Moment(tables, as_cm(kept, fabric.n_nics), kept, _said(every, kept))


def _run_of(runs: dict[str, Any], name: str | None) -> str:
    """The transport that is meant."""
    there = ", ".join(runs)
    if name is None and len(runs) > 1:
        raise InputError(f"--transport: the results have several; name one of {there}")
    if name is not None and name not in runs:
        raise InputError(f"--transport {name}: is not there; the results have {there}")
    return name or next(iter(runs))


def _said(every: Messages, kept: Messages) -> str:
    whole = f"{counted(len(every.src), 'message')} under way, {every.bytes.sum() / 1e6:,.1f} MB"
    if len(kept.src) == len(every.src):
        return f"{whole}: all of them."
    share = kept.bytes.sum() / every.bytes.sum()
    return (
        f"{whole}; kept are {len(kept.src):,}, {share:.1%} of the bytes: those of the T0 with the"
        " slowest one, and of the T0s that it has most to do with."
    )
