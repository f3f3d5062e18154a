"""`mrc plan`: a fabric for a number of GPUs, in one plane and in several."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from openmrc.errors import InputError
from openmrc.newfile import write_new
from openmrc.say import say

NIC_RATE, PLANES, SWITCH, TIERS = "800Gbps", 8, "51.2Tbps", 2


def add_command(commands: Any) -> list[argparse.ArgumentParser]:
    """Add `plan`; return the parsers that take --json."""
    plan: argparse.ArgumentParser = commands.add_parser(
        "plan",
        help="estimate switches, optics, power, cost and failures of a fabric",
        description="Size a fabric of full bisection for N GPUs, with one NIC each: as one plane,"
        " of as many tiers as needed, and as several planes. Nothing is simulated.",
    )
    add = plan.add_argument
    add("--gpus", metavar="N", required=True, help="number of GPUs, each with a NIC")
    add("--nic-rate", metavar="RATE", default=NIC_RATE, help=f"rate of a NIC (default: {NIC_RATE})")
    add(
        "--planes",
        metavar="P",
        default=str(PLANES),
        help=f"planes to compare with one (default: {PLANES})",
    )
    add("--switch", metavar="RATE", default=SWITCH, help=f"rate of a switch (default: {SWITCH})")
    add("--tiers", metavar="T", default=str(TIERS), help=f"tiers of each plane (default: {TIERS})")
    add(
        "--collisions",
        action="store_true",
        help="also show the cost of hashing flows onto paths",
    )
    words = "another value of an assumption, such as cable_usd=50"
    add("--set", metavar="NAME=VALUE", action="append", default=[], help=words)
    add("--scenario", metavar="OUT.toml", type=Path, help="write a smaller fabric for mrc run")
    plan.set_defaults(run=_plan)
    return [plan]


def _plan(arguments: argparse.Namespace) -> int:
    from openmrc.planning.assumptions import values_with
    from openmrc.planning.comparison import as_json, collisions, compare
    from openmrc.units import parse_rate

    values = values_with(arguments.set)
    plans = compare(
        gpus=_count("--gpus", arguments.gpus),
        nic_rate_bps=_with_place("--nic-rate", parse_rate, arguments.nic_rate),
        planes=_count("--planes", arguments.planes),
        switch_rate_bps=_with_place("--switch", parse_rate, arguments.switch),
        tiers=_count("--tiers", arguments.tiers),
        values=values,
    )
    if arguments.scenario is not None:
        from openmrc.planning.smaller import scenario

        write_new(arguments.scenario, scenario(plans[-1].design), "--scenario")
    hashed = collisions(plans[0].design) if arguments.collisions else None
    if arguments.json:
        print(json.dumps(as_json(plans, values, hashed), indent=2))
    else:
        from openmrc.planning.table import print_plan

        print_plan(plans, values, hashed, sys.stdout)
    if arguments.scenario is not None:
        say(f"mrc run {arguments.scenario} simulates a smaller fabric.")
    return 0


def _count(place: str, text: str) -> int:
    """Return a whole number as people write it: "131072", "131,072", "131_072", "100K", "1.5M"."""
    from fractions import Fraction

    found = re.fullmatch(r"(\d{1,13}(?:\.\d{1,6})?)([kKM]?)", re.sub("[,_]", "", text), re.ASCII)
    value = (
        Fraction(found[1]) * {"": 1, "M": 10**6}.get(found[2], 1000) if found else Fraction(1, 2)
    )
    if value.denominator != 1:
        raise InputError(f"{place} {text}: a whole number is accepted, such as 8192, 8,192 or 8K")
    return int(value)


def _with_place(place: str, parse: Callable[[str], int], text: str) -> int:
    try:
        return parse(text)
    except InputError as error:
        raise error.at(place) from None
