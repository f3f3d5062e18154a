"""openmrc: a packet-level simulator of MRC (Multipath Reliable Connection) fabrics.

    import openmrc

    scenario = openmrc.load_scenario("scenario.toml")
    result = openmrc.simulate(scenario)
    print(result.summary()["transports"]["mrc"]["flows"]["fct_us"]["p100"])
    table = openmrc.sweep(scenario, {"seed": range(1, 11)}, out="results")

The names below are the public API. They load on first use: importing `openmrc` is immediate.
"""

from __future__ import annotations

from openmrc.version import __version__

TYPE_CHECKING = False  # type checkers take it for True; `typing` is half the start of `mrc`
if TYPE_CHECKING:
    from typing import Any

    from openmrc.errors import InputError, MissingExtra, OpenMrcError, OutputError
    from openmrc.report.result import Result, simulate
    from openmrc.scenario.scenario import (
        Scenario,
        demo_scenario,
        load_scenario,
        make_scenario,
        parse_scenario,
    )
    from openmrc.sweeps.sweep import sweep


_HOMES = {
    "InputError": "openmrc.errors",
    "MissingExtra": "openmrc.errors",
    "OpenMrcError": "openmrc.errors",
    "OutputError": "openmrc.errors",
    "Result": "openmrc.report.result",
    "Scenario": "openmrc.scenario.scenario",
    "demo_scenario": "openmrc.scenario.scenario",
    "load_scenario": "openmrc.scenario.scenario",
    "make_scenario": "openmrc.scenario.scenario",
    "parse_scenario": "openmrc.scenario.scenario",
    "simulate": "openmrc.report.result",
    "sweep": "openmrc.sweeps.sweep",
}

__all__ = [
    "InputError",
    "MissingExtra",
    "OpenMrcError",
    "OutputError",
    "Result",
    "Scenario",
    "__version__",
    "demo_scenario",
    "load_scenario",
    "make_scenario",
    "parse_scenario",
    "simulate",
    "sweep",
]


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'openmrc' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
