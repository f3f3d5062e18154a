"""Scenario files: what is built, what runs on it, what fails when; all of it checked."""

from __future__ import annotations

from openmrc.scenario.scenario import (
    Scenario,
    demo_scenario,
    load_scenario,
    make_scenario,
    parse_scenario,
    peer_scenario,
)

__all__ = [
    "Scenario",
    "demo_scenario",
    "fabric",
    "fault",
    "jobs",
    "lab",
    "load_scenario",
    "make_scenario",
    "parse_scenario",
    "peer_scenario",
    "scenario",
    "sections",
    "toml",
    "training",
    "transports",
    "workload",
    "workloads",
]
