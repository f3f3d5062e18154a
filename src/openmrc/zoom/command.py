"""`mrc zoom`: a moment of a run at the flow level, packet by packet."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openmrc.errors import InputError
from openmrc.newfile import write_whole
from openmrc.printable import printable
from openmrc.say import say

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

OUT, SPAN = "zoom", "2ms"
LEVELS = ("flow", "packet")
SPAN_PS_MAX = 10**12  # a second: more than one machine does packet by packet in a day


def add_command(commands: Any) -> list[argparse.ArgumentParser]:
    """Add `zoom`; return the parsers that take --json."""
    zoom: argparse.ArgumentParser = commands.add_parser(
        "zoom",
        help="a moment of a run at the flow level, packet by packet",
        description="Write the scenario of a moment of a run at the flow level, or of a day: the"
        " fabric as it was, and the messages under way. Run it packet by packet, and compare.",
    )
    add = zoom.add_argument
    words = "of mrc run --level flow --out, or of mrc day --out"
    add("results", metavar="DIR", type=Path, help=words)
    words = "when it begins, such as 1.2ms, or of a day 46931s"
    add("--at", metavar="TIME", required=True, help=words)
    add("--for", metavar="TIME", dest="span", default=SPAN, help=f"how long (default: {SPAN})")
    add("--transport", metavar="NAME", help="whose run, or which fabric, if there are several")
    words = f"where zoom.toml and zoom.cm are written (default: {OUT})"
    add("--out", metavar="OUT", type=Path, default=Path(OUT), help=words)
    zoom.set_defaults(run=_zoom)
    return [zoom]


def _zoom(arguments: argparse.Namespace) -> int:
    from openmrc.day.command import RESULTS
    from openmrc.run.saved import Saved
    from openmrc.run.simulation import simulate
    from openmrc.tabular import Column, print_table
    from openmrc.zoom.moment import CM, SCENARIO, moment_of
    from openmrc.zoom.of_day import moment_of_day

    at_ps, for_ps = _time("--at", arguments.at), _time("--for", arguments.span)
    if not 0 < for_ps <= SPAN_PS_MAX:
        raise InputError(f"--for {arguments.span}: more than nothing, and at most 1s, is accepted")
    asked = arguments.transport, at_ps, for_ps
    if (arguments.results / RESULTS).exists():
        moment = moment_of_day(arguments.results, *asked)
    else:
        moment = moment_of(Saved(arguments.results), *asked)
    out: Path = arguments.out
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out {out}: cannot be made ({error.strerror})") from None
    write_whole(out / CM, moment.cm, "--out")
    scenarios = {level: moment.scenario(out.resolve(), level) for level in LEVELS}
    text = scenarios["packet"].to_toml().replace(str(out.resolve() / CM), CM)  # they stay together
    write_whole(out / SCENARIO, text, "--out")
    say(moment.said)
    rows = {"in the results": _figures(moment.found.start_ps, moment.found.took_ps)}
    for level, scenario in scenarios.items():
        (run,) = simulate(scenario).transports
        placed = run.flows["delivered_ps"] >= 0
        start_ps = run.flows["start_ps"][placed]
        words = f"{level} level, from there on"
        rows[words] = _figures(start_ps, run.flows["delivered_ps"][placed] - start_ps)
    if arguments.json:
        told = {"reduced": moment.said, "scenario": str(out / SCENARIO), "figures": rows}
        print(json.dumps(told, indent=2))
        return 0
    names = next(iter(rows.values()))
    columns = [Column(printable(arguments.results.name), words=True), *map(Column, names)]
    cells = [[words, *(f"{value:,.6g}" for value in row.values())] for words, row in rows.items()]
    print_table(None, columns, cells, sys.stdout)
    say(f"mrc run {out / SCENARIO} is the packet level again.")
    return 0


def _figures(
    start_ps: npt.NDArray[np.int64], took_ps: npt.NDArray[np.int64]
) -> dict[str, float | int]:
    """How many messages were placed, when the last one was, and what they took."""
    from openmrc.run.figures import nearest_rank, us

    if not len(took_ps):
        return {"messages": 0}
    shares = {"p50": 0.5, "p99": 0.99, "p100": 1.0}
    return {
        "messages": len(took_ps),
        "all placed, us": us((start_ps + took_ps).max()),
        **{f"{name}, us": us(nearest_rank(took_ps, share)) for name, share in shares.items()},
    }


def _time(option: str, text: str) -> int:
    from openmrc.units import parse_time

    try:
        return parse_time(text)
    except InputError as error:
        raise error.at(option) from None
