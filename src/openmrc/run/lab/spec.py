"""The lab that a scenario describes, and notes about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from openmrc.errors import InputError
from openmrc.say import counted
from openmrc.units import US

if TYPE_CHECKING:
    from openmrc.live.lab import Lab, LabSpec
    from openmrc.scenario.scenario import Scenario


def lab_spec(scenario: Scenario) -> LabSpec:
    """Return the lab that a scenario describes; `InputError` for what a lab cannot be."""
    from openmrc.fabric.faults import compile_faults
    from openmrc.live.lab import LabSpec
    from openmrc.live.lab.health import refuse_denials
    from openmrc.scenario.toml import as_table

    base_rtt_ps = scenario.transports[0].base_rtt
    try:
        fabric = scenario.fabric.build()
        if fabric.cut_through:
            raise InputError(
                "fabric.switching: 'cut-through' is only simulated, a lab's switches take whole"
                " frames; leave it out, or 'store-and-forward'"
            )
        if fabric.jitter_ps:
            raise InputError(
                "fabric.jitter: is only simulated, a lab's frames are late by themselves; leave it"
                " out"
            )
        if scenario.lab.bpf and not scenario.fabric.trim:
            raise InputError("lab.bpf: true with fabric.trim = false; remove one of them")
        if scenario.lab.bpf and scenario.fabric.trim_lengths == "none":
            raise InputError(
                'lab.bpf: true with fabric.trim_lengths = "none": Linux drops such packets at the'
                ' next switch; accepted: "all", "outer"'
            )
        refuse_denials(fault.kind for fault in scenario.faults)
        faults = [fault.build() for fault in scenario.faults]
        return LabSpec(
            fabric=fabric,
            settings=scenario.lab.build(),
            queues=scenario.fabric.queues(),
            schedule=compile_faults(faults, fabric, scenario.seed, scenario.stop.time),
            fabric_table=as_table(scenario.fabric, kind=scenario.fabric.kind),
            base_rtt_us=None if base_rtt_ps is None else base_rtt_ps / US,
            seed=scenario.seed,
            pmtu=int(scenario.transports[0].pmtu),
        )
    except InputError as error:
        raise error.at(scenario.source) from None


def refuse(spec: LabSpec) -> None:
    """Raise `InputError` for what this machine cannot provide, if that is known in advance."""
    if spec.settings.bpf:
        from openmrc.live.lab.trimming import missing

        if lacks := missing():
            raise InputError(lacks)


def sentences(lab: Lab) -> list[str]:
    """Return notes about a lab that is up."""
    spec = lab.spec
    switches = "Linux's switches" if spec.settings.switch == "linux" else "openmrc's switches"
    lines = [
        f"{counted(spec.fabric.n_nics, 'host')}, {counted(spec.fabric.n_planes, 'plane')},"
        f" {switches}:"
        f" up in {lab.up_s:.2f} s."
    ]
    if spec.settings.bpf:
        lines.append("A BPF program trims and marks ECN; links have no delay. Commands are root.")
    elif spec.settings.switch == "linux":
        lines.append("Linux's switches neither trim nor mark ECN, and links have no delay.")
    return lines
