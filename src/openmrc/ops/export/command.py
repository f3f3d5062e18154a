"""`mrc switches`: every switch's boot configuration, from one scenario file."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openmrc.say import counted, say

if TYPE_CHECKING:
    from openmrc.ops.export.switches import Switch

PLATFORMS = (
    "sonic",
    "frr",
    "cumulus",
    "linux",
    "containerlab",
)  # as in `files`, which loads a fabric


def add_command(commands: Any) -> list[argparse.ArgumentParser]:
    """Add `switches`, which prints no JSON."""
    switches = commands.add_parser(
        "switches",
        help="write the switches' configuration for the fabric of a scenario file",
        description="Write locators, uN SIDs, static routes, queues, marks and trimming of every"
        " switch of SCENARIO.toml; settings that the platform cannot express are listed on"
        " standard error.",
    )
    add = switches.add_argument
    add("platform", choices=PLATFORMS, help="platform of the switches")
    add("scenario", metavar="SCENARIO.toml", help="its [fabric]; see docs/switches.md")
    add("--switch", metavar="NAME", help='only this switch: "plane 0 t0 1" or p0-t0-1')
    words = "a new directory with a file per switch (default: print all)"
    add("--out", metavar="DIR", type=Path, help=words)
    add("--set", metavar="KEY=VALUE", action="append", default=[], help="as for mrc run")
    switches.set_defaults(run=_write)
    return []


def _write(arguments: argparse.Namespace) -> int:
    from openmrc.ops.export import files
    from openmrc.ops.export.switches import Plant
    from openmrc.scenario.scenario import load_lab

    platform: str = arguments.platform
    plant = Plant(load_lab(arguments.scenario, arguments.set))
    chosen: Iterable[Switch] = plant.switches()
    if arguments.switch is not None:
        chosen = [plant.named(arguments.switch)]
    if arguments.out is not None:
        n = files.write(platform, plant, chosen, arguments.out)
        say(f"{counted(n, 'switch', 'switches')} in {arguments.out}.")
    else:
        print(files.whole(platform, plant, chosen), end="")
    for line in files.cannot(platform, plant):
        say(f"not in it: {line}")
    return 0
