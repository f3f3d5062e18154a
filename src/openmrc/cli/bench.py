"""`mrc bench`: how fast both worlds are, and torch over MRC, on this machine."""

from __future__ import annotations

import argparse
import json
from typing import Any

from openmrc.say import say
from openmrc.torch.bench import command as torch


def add_command(commands: Any) -> list[argparse.ArgumentParser]:
    """Add `bench`; return the parsers that take --json."""
    bench = commands.add_parser("bench", help="measure how fast this machine simulates or sends")
    parts = bench.add_subparsers(dest="what", required=True, metavar="sim|live|torch")
    sim = parts.add_parser("sim", help="the event loop, by case")
    sim.set_defaults(run=_sim)
    live = parts.add_parser("live", help="goodput beside TCP; CPU time beside bare loops")
    live.set_defaults(run=_live)
    of_torch = parts.add_parser("torch", help="collectives of torch.distributed against Gloo")
    torch.add_options(of_torch)
    of_torch.set_defaults(run=torch.run)
    return [sim, live, of_torch]


def _live(arguments: argparse.Namespace) -> int:
    from openmrc.bench import live

    return live.run(arguments.json)


def _sim(arguments: argparse.Namespace) -> int:
    from openmrc.bench import sim as benchsim

    figures: dict[str, Any] = {}
    for name in benchsim.CASES:
        say(f"{name} ...")
        figures[name] = benchsim.measure(name)
    if arguments.json:
        print(json.dumps(figures, indent=2))
    else:
        for name, case in figures.items():
            print(
                f"{name:20} {case['link_traversals_per_s'] / 1e6:8.2f} M link traversals/s"
                f" {case['loop_s']:8.2f} s {case['peak_rss_mb']:8.0f} MB"
            )
    return 0
