"""`mrc soak`: random runs, simulated or of real devices, that must keep all invariants."""

from __future__ import annotations

import argparse
import os
from typing import Any

from openmrc.errors import InputError
from openmrc.printable import printable


def add_command(commands: Any) -> list[argparse.ArgumentParser]:
    """Add `soak`; it prints no JSON."""
    soak = commands.add_parser(
        "soak",
        help="run random scenarios and check all invariants",
        description="Draw scenarios from a seed, run them, check bytes, counters and invariants.",
    )
    soak.add_argument(
        "--seed", metavar="N", type=int, help="seed of the first round (default: random)"
    )
    soak.add_argument("--hours", metavar="H", type=float, help="duration in hours (default: 1)")
    soak.add_argument("--rounds", metavar="N", type=int, help="number of rounds, instead of a time")
    soak.add_argument(
        "--workers", metavar="N", type=int, help="parallel rounds (default: one per core)"
    )
    soak.add_argument(
        "--world", choices=("sim", "live"), default="sim", help="simulated, or real devices"
    )
    soak.add_argument(
        "--minutes", metavar="M", type=float, help="live: duration in minutes (default: 10)"
    )
    soak.set_defaults(run=_soak)
    return []


def _soak(arguments: argparse.Namespace) -> int:
    from openmrc.soak.sim import HOUR_S, SEEDS, soak

    if arguments.world == "live":
        return _soak_live(arguments)
    if arguments.minutes is not None:
        raise InputError("--minutes without --world live; the simulator's soak takes --hours")
    hours, rounds = arguments.hours, arguments.rounds
    if hours is not None and rounds is not None:
        raise InputError("both --hours and --rounds; name one or the other")
    for name, least, value in (
        ("hours", 0, hours),
        ("rounds", 1, rounds),
        ("workers", 1, arguments.workers),
    ):
        if value is not None and not least <= value < float("inf"):
            raise InputError(f"--{name} {value}: {least} or more is accepted")
    seed = _soak_seed(arguments.seed, SEEDS)
    seconds = None if rounds is not None else (1.0 if hours is None else hours) * HOUR_S
    failed = soak(seed, seconds=seconds, rounds=rounds, workers=arguments.workers, say=_print_line)
    return 1 if failed else 0


def _soak_live(arguments: argparse.Namespace) -> int:
    from openmrc.soak import live as soak

    for name in ("hours", "rounds", "workers"):
        if getattr(arguments, name) is not None:
            raise InputError(f"--{name} with --world live; it takes --minutes and --seed")
    minutes = soak.MINUTES if arguments.minutes is None else arguments.minutes
    if not soak.MINUTES_MIN <= minutes < float("inf"):
        raise InputError(f"--minutes {minutes:g}: {soak.MINUTES_MIN} or more is accepted")
    return soak.soak(_soak_seed(arguments.seed, soak.SEEDS), minutes, _print_line)


def _soak_seed(given: int | None, seeds: int) -> int:
    seed = int.from_bytes(os.urandom(4)) % seeds if given is None else given
    if not 0 <= seed < seeds:
        raise InputError(f"--seed {seed}: 0 to {seeds - 1} is accepted")
    return seed


def _print_line(words: str) -> None:
    print(printable(words), flush=True)
