"""What a scenario needs in memory, before it is run: docs/costs.md's formula, evaluated.

    .venv/bin/python benchmarks/memory.py SCENARIO.toml [KEY=VALUE ...]
    .venv/bin/python benchmarks/memory.py --records

The second form prints the bytes of each record. `mrc run --estimate` tells all that a run takes.
"""

from __future__ import annotations

import argparse

import numpy as np

from openmrc.engine import packet as pk
from openmrc.engine import state as es
from openmrc.jit import heap
from openmrc.run.estimate import world_memory
from openmrc.scenario.scenario import Scenario, load_scenario
from openmrc.sim.mrc.transport import Transport
from openmrc.sim.net import state as ss

MODULES = {"engine.packet": pk, "engine.state": es, "jit.heap": heap, "sim.state": ss}


def record_bytes() -> dict[str, int]:
    """Bytes of each record: {"engine.state.QP": ...}."""
    return {
        f"{place}.{name}": value.itemsize
        for place, module in MODULES.items()
        for name, value in vars(module).items()
        if isinstance(value, np.dtype) and not (module is not pk and name == "PACKET")
    }


def estimate(scenario: Scenario) -> dict[str, int]:
    """Bytes of the arrays of a run of the first transport, which is MRC, by what they are for."""
    transport = scenario.transports[0].build()
    assert isinstance(transport, Transport)
    return world_memory(scenario, scenario.build(), transport)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("scenario", nargs="?", metavar="SCENARIO.toml")
    parser.add_argument("set", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--records", action="store_true")
    arguments = parser.parse_args(argv)
    if arguments.records:
        for name, n in record_bytes().items():
            print(f"{name:28}{n:6}")
    if arguments.scenario:
        parts = estimate(load_scenario(arguments.scenario, arguments.set))
        for name, n in parts.items():
            print(f"{name:10}{n / 1e6:10.2f} MB")
        print(f"{'all':10}{sum(parts.values()) / 1e6:10.2f} MB, and packets in flight")


if __name__ == "__main__":
    main()
