"""openmrc: a packet-level simulator of MRC (Multipath Reliable Connection) fabrics.

    import openmrc

    scenario = openmrc.load_scenario("scenario.toml")
    result = openmrc.simulate(scenario)
    print(result.summary()["transports"]["mrc"]["flows"]["fct_us"]["p100"])
    table = openmrc.sweep(scenario, {"seed": range(1, 11)}, out="results")

The names below are the public API. They load on first use: importing `openmrc` is immediate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from openmrc.errors import InputError, MissingExtra, OpenMrcError
    from openmrc.run import Result, simulate
    from openmrc.scenario import (
        Scenario,
        demo_scenario,
        load_scenario,
        make_scenario,
        parse_scenario,
    )
    from openmrc.sweeps.sweep import sweep

__version__ = "0.1.0"

_HOMES = {
    "InputError": "openmrc.errors",
    "MissingExtra": "openmrc.errors",
    "OpenMrcError": "openmrc.errors",
    "Result": "openmrc.run",
    "Scenario": "openmrc.scenario",
    "demo_scenario": "openmrc.scenario",
    "load_scenario": "openmrc.scenario",
    "make_scenario": "openmrc.scenario",
    "parse_scenario": "openmrc.scenario",
    "simulate": "openmrc.run",
    "sweep": "openmrc.sweeps.sweep",
}

__all__ = [
    "InputError",
    "MissingExtra",
    "OpenMrcError",
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


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'openmrc' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
