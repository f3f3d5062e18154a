"""The command `mrc`. Results go to standard output, words and progress to standard error.

Exit status: 0; 1 if a flow failed or did not finish without a stated end; 2 for bad input, with one
line that says what to change; 130 when interrupted. Nothing heavy is imported before a run starts.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from openmrc import __version__, decode, doctor, labs
from openmrc.errors import InputError, OpenMrcError
from openmrc.paper import command as paper
from openmrc.perf import command as perf
from openmrc.planning import command as planning

if TYPE_CHECKING:
    from openmrc.run import Result
    from openmrc.scenario import Scenario

DEMO_DIRECTORY = "openmrc-demo"
WORLDS = ("sim", "lab")
EXIT_BAD_INPUT, EXIT_INTERRUPTED = 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    # A sixth of the start is garbage collection among libraries that stay loaded; a run makes none.
    gc.disable()
    try:
        ours, theirs = labs.split(sys.argv[1:] if argv is None else argv)
        arguments = _parser().parse_args(ours, argparse.Namespace(theirs=theirs))
        status: int = arguments.run(arguments)
        sys.stdout.flush()
        return status
    except OpenMrcError as error:
        _say(f"mrc: {error}")
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        _say("mrc: interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader, such as `head`, has left: nobody to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


class _Parser(argparse.ArgumentParser):
    """argparse that refuses in one line, as every other bad input is refused."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}; see {self.prog} --help")


def _parser() -> _Parser:
    parser = _Parser(
        prog="mrc", description="Simulate multi-plane fabrics that carry MRC, packet by packet."
    )
    parser.add_argument("--version", action="version", version=f"openmrc {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="MRC and two rivals while links are cut")
    demo.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        default=Path(DEMO_DIRECTORY),
        help=(f"directory for the picture and the other results (default: {DEMO_DIRECTORY})"),
    )
    demo.set_defaults(run=_demo)

    run = commands.add_parser(
        "run",
        help="simulate a scenario file, or an htsim topology and traffic",
        description="Simulate SCENARIO.toml, or --topo and --cm with the parameters of htsim.",
    )
    run.add_argument("scenario", metavar="SCENARIO.toml", nargs="?", help="see docs/scenario.md")
    run.add_argument("--topo", metavar="FILE", help="an htsim .topo file, with --cm")
    run.add_argument("--cm", metavar="FILE", help="an htsim .cm file, with --topo")
    run.add_argument("--out", metavar="DIR", type=Path, help="write the results directory")
    run.add_argument(
        "--pcap",
        metavar="OUT.pcapng",
        type=Path,
        help="write what crosses the links of --at, packets of MRC or of RoCEv2; one file for each"
        " transport",
    )
    run.add_argument(
        "--at",
        metavar="PLACE",
        action="append",
        help='"plane 0 t0 1 - t1 0", "nic 5", "plane 0 t1 2" or "everywhere" (the default);'
        " may be repeated",
    )
    run.add_argument(
        "--world",
        choices=WORLDS,
        default=WORLDS[0],
        help="sim: simulated (the default); lab: real frames between processes of this machine",
    )
    run.add_argument("--seed", metavar="N", help="in place of the scenario's seed")
    run.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="such as fabric.nics=128; transport.pmtu=2048 sets every transport's,"
        " transport.mrc.pmtu=2048 one's",
    )
    run.set_defaults(run=_run)

    sweep = commands.add_parser(
        "sweep",
        help="simulate a scenario file for every combination of values",
        description="Simulate SCENARIO.toml for every combination of the values of --over, on all"
        " cores or a Dask cluster, into one Parquet data set. Runs that are in DIR are not run"
        " again.",
    )
    sweep.add_argument("scenario", metavar="SCENARIO.toml", help="see docs/scenario.md")
    sweep.add_argument(
        "--over",
        metavar="KEY=VALUES",
        action="append",
        required=True,
        help="such as transport.pmtu=2048,4096 or seed=1..10, both ends included",
    )
    sweep.add_argument("--out", metavar="DIR", type=Path, required=True, help="the data set")
    sweep.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="as for mrc run"
    )
    sweep.add_argument("--workers", metavar="N", help="runs at a time (default: one a core)")
    sweep.add_argument("--dask", metavar="ADDRESS", help="a scheduler's, such as tcp://head:8786")
    sweep.add_argument("--flows", action="store_true", help="keep one row for each flow as well")
    sweep.set_defaults(run=_sweep)

    bench = commands.add_parser("bench", help="measure how fast this machine simulates or sends")
    bench.add_argument(
        "what",
        choices=["sim", "live"],
        help="sim: the event loop, by case; live: CPU time of endpoints beside bare loops",
    )
    bench.set_defaults(run=_bench)

    soak = commands.add_parser(
        "soak",
        help="run random scenarios and check everything",
        description="Draw scenarios from a seed, run them, check bytes, counters and invariants.",
    )
    soak.add_argument("--seed", metavar="N", type=int, help="of the first round (default: drawn)")
    soak.add_argument("--hours", metavar="H", type=float, help="how long (default: 1)")
    soak.add_argument("--rounds", metavar="N", type=int, help="how many rounds, in place of a time")
    soak.add_argument("--workers", metavar="N", type=int, help="side by side (default: all cores)")
    soak.add_argument(
        "--world", choices=("sim", "live"), default="sim", help="simulated, or real devices"
    )
    soak.add_argument("--minutes", metavar="M", type=float, help="live: how long (default: 10)")
    soak.set_defaults(run=_soak)

    decode.add_command(commands)
    of_lab = labs.add_command(commands)
    of_doctor = doctor.add_command(commands)
    perf.add_command(commands)
    of_plan = planning.add_command(commands)
    paper.add_command(commands)
    for command in (demo, run, sweep, bench, *of_lab, of_doctor, of_plan):
        command.add_argument("--json", action="store_true", help="print JSON and nothing else")
    return parser


def _demo(arguments: argparse.Namespace) -> int:
    from openmrc.scenario import demo_scenario

    _say(
        "A ring all-reduce of 32 NICs on four planes. Two links are cut, and a switch goes silent."
    )
    status = _simulate(demo_scenario(), arguments.json, arguments.out, picture=True)
    _say(f"The picture is {arguments.out / 'goodput.png'}; the page beside it is report.html.")
    return status


def _run(arguments: argparse.Namespace) -> int:
    from openmrc.scenario import load_scenario, peer_scenario

    overrides = list(arguments.set)
    if arguments.seed is not None:
        overrides.append(f"seed={arguments.seed}")
    if arguments.scenario is not None:
        if arguments.topo is not None or arguments.cm is not None:
            raise InputError("both a scenario and --topo or --cm; name one or the other")
        scenario = load_scenario(arguments.scenario, overrides)
    elif arguments.topo is not None and arguments.cm is not None:
        scenario = peer_scenario(arguments.topo, arguments.cm, overrides)
    else:
        raise InputError("nothing to run; name SCENARIO.toml, or --topo FILE --cm FILE")
    if arguments.at is not None and arguments.pcap is None:
        raise InputError("--at without --pcap; name the file with --pcap OUT.pcapng")
    at = arguments.at or ["everywhere"]
    if arguments.pcap is not None:
        check_capture(arguments.pcap, scenario, at)
    run = _run_in_lab if arguments.world == "lab" else _simulate
    return run(scenario, arguments.json, arguments.out, pcap=arguments.pcap, at=at)


def _sweep(arguments: argparse.Namespace) -> int:
    from openmrc.sweeps.command import run_command

    return run_command(arguments)


def _bench(arguments: argparse.Namespace) -> int:
    if arguments.what == "live":
        from openmrc import benchlive

        return benchlive.run(arguments.json)
    from openmrc import benchsim

    figures: dict[str, Any] = {}
    for name in benchsim.CASES:
        _say(f"{name} ...")
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


def _soak(arguments: argparse.Namespace) -> int:
    from openmrc.soak import HOUR_S, SEEDS, soak

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
    seed = int.from_bytes(os.urandom(4)) if arguments.seed is None else arguments.seed
    if not 0 <= seed < SEEDS:
        raise InputError(f"--seed {seed}: 0 to {SEEDS - 1} is accepted")
    seconds = None if rounds is not None else (1.0 if hours is None else hours) * HOUR_S
    failed = soak(seed, seconds=seconds, rounds=rounds, workers=arguments.workers, say=_print_line)
    return 1 if failed else 0


def _soak_live(arguments: argparse.Namespace) -> int:
    from openmrc.live import soak

    for name in ("hours", "rounds", "workers"):
        if getattr(arguments, name) is not None:
            raise InputError(f"--{name} with --world live; it takes --minutes and --seed")
    minutes = soak.MINUTES if arguments.minutes is None else arguments.minutes
    if not soak.MINUTES_MIN <= minutes < float("inf"):
        raise InputError(f"--minutes {minutes:g}: {soak.MINUTES_MIN} or more is accepted")
    seed = int.from_bytes(os.urandom(4)) if arguments.seed is None else arguments.seed
    if not 0 <= seed < soak.SEEDS:
        raise InputError(f"--seed {seed}: 0 to {soak.SEEDS - 1} is accepted")
    return soak.soak(seed, minutes, _print_line)


def _print_line(words: str) -> None:
    print(words, flush=True)


def _simulate(
    scenario: Scenario,
    as_json: bool,
    out: Path | None,
    picture: bool = False,
    pcap: Path | None = None,
    at: Sequence[str] = (),
) -> int:
    """Run, report, and write the results directory if `out` names one, and captures to `pcap`;
    return the exit status.
    """
    from openmrc.report.directory import check_directory
    from openmrc.report.progress import Bar, compiling
    from openmrc.run import simulate

    if out is not None:
        check_directory(out)
    with Bar() as bar:
        result = simulate(
            scenario, bar.update, compiling=compiling, pcap=pcap, at=at, sampled=out is not None
        )
    return _deliver(result, as_json, out, picture, pcap)


def _run_in_lab(
    scenario: Scenario, as_json: bool, out: Path | None, pcap: Path | None, at: Sequence[str]
) -> int:
    """As `_simulate`, in the live world."""
    from openmrc.inlab import run_in_lab
    from openmrc.report.directory import check_directory
    from openmrc.report.progress import Bar, compiling

    if out is not None:
        check_directory(out)
    result = run_in_lab(scenario, Bar, compiling, pcap, at)
    return _deliver(result, as_json, out, False, pcap)


def _deliver(
    result: Result, as_json: bool, out: Path | None, picture: bool, pcap: Path | None
) -> int:
    """Print and write what came of a run; return the exit status."""
    from openmrc.run import pcap_paths

    _report(result, as_json)
    if out is not None:
        from openmrc.report.files import write_results

        write_results(result, out, picture)
        _say(f"Results are in {out}.")
    for file in pcap_paths(pcap, [run.name for run in result.transports]).values():
        _say(f"What crossed the links is in {file}; mrc decode shows it.")
    return result.exit_status


def _report(result: Result, as_json: bool) -> None:
    from openmrc.report.table import derived_line, print_table, sentences

    for run in result.transports:
        _say(derived_line(run))
    if as_json:
        print(json.dumps(result.summary(), indent=2), flush=True)
        for sentence in sentences(result):
            _say(sentence)
    else:
        print_table(result, sys.stdout)


def check_capture(file: Path, scenario: Scenario, at: Sequence[str]) -> None:
    """Raise `InputError` unless the places exist and `file` can be written, before a run starts."""
    from openmrc.report.directory import check_directory
    from openmrc.sim.capture import ports_at

    ports_at(scenario.fabric.build(), at)
    check_directory(file.absolute().parent, "--pcap")
    if file.is_dir():
        raise InputError(f"--pcap {file}: is a directory; name a file")


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
