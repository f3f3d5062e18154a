"""The command `mrc`. Results go to standard output, messages and progress to standard error.

Exit status: 0; 1 if a flow failed or did not finish without a stated end; 2 for bad input, with one
line that says what to change; 3 if results cannot be written, with one line that says where; 128
and its number for the signal that interrupted it: 130 after Ctrl-C. Nothing heavy is imported
before a run starts.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from difflib import get_close_matches
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn, TextIO

from openmrc.capi import command as capi
from openmrc.cli import (
    compare,
    completion,
    decode,
    doctor,
    init,
    interrupts,
    policy,
    secret,
    streams,
)
from openmrc.cli import lab as labs
from openmrc.conform import command as conformance
from openmrc.ending import EXIT_INTERRUPTED
from openmrc.ending import status as status_of_signal
from openmrc.errors import InputError, OpenMrcError, OutputError, Remark
from openmrc.ops import command as operators
from openmrc.ops.export import command as exporting
from openmrc.ops.mapper import command as mapping
from openmrc.ops.telemetry import command as telemetry
from openmrc.paper import command as paper
from openmrc.perf import command as perf
from openmrc.planning import command as planning
from openmrc.printable import printable
from openmrc.reading import STANDARD_INPUT as STANDARD_OUTPUT
from openmrc.say import check as check_form
from openmrc.say import say
from openmrc.sim.watch.forms import FORMS, NATIVE
from openmrc.torch.bench import command as torch_bench
from openmrc.version import __version__

if TYPE_CHECKING:
    from openmrc.run.results import Result
    from openmrc.scenario.scenario import Scenario

DEMO_DIRECTORY = "openmrc-demo"
WORLDS = ("sim", "lab")
EXAMPLES = """examples:
  mrc demo                            one all-reduce, three transports, links cut; a picture
  mrc init first.toml                 write a commented scenario
  mrc run first.toml --out results    run it; results/report.html is a page to look at
  mrc run first.toml --set fabric.nics=128 --json
  mrc sweep first.toml --over transport.pmtu=2048,4096 --over seed=1..5 --out swept
  mrc plan --gpus 65536               switches, optics, power, cost and failures, by arithmetic
  mrc COMMAND --help                  every option of a command"""
AUTO, THREADS_MAX = "auto", 1024
EXIT_NOBODY_READS, EXIT_BAD_INPUT, EXIT_NOT_WRITTEN = 1, 2, 3


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    # A sixth of the start is garbage collection among libraries that stay loaded; a run makes no
    # garbage.
    gc.disable()
    try:
        with streams.prepared():
            check_form()
            warnings.showwarning = _said
            try:
                status = _run_command(sys.argv[1:] if argv is None else argv)
                return status_of_signal() if status == EXIT_INTERRUPTED else status
            finally:
                sys.stdout.flush()
    except OutputError as error:
        streams.hush()
        say(f"mrc: {error}")
        return EXIT_NOT_WRITTEN
    except OpenMrcError as error:
        say(f"mrc: {error}")
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        interrupts.heard()
        say("mrc: interrupted")
        return status_of_signal()
    except BrokenPipeError:  # the reader, such as `head`, has left
        streams.hush()
        return EXIT_NOBODY_READS
    except OSError as error:
        streams.hush()
        say(f"mrc: {streams.described(error)}")
        return EXIT_BAD_INPUT if streams.is_nowhere(error) else EXIT_NOT_WRITTEN


_as_usual = warnings.showwarning


def _said(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Say a remark on the input in one line, as an error is; show other warnings as Python does."""
    if issubclass(category, Remark):
        say(f"{message}")
    else:
        _as_usual(message, category, filename, lineno, file, line)


def _run_command(argv: Sequence[str]) -> int:
    if not argv:
        print(_parser().format_help(), end="")
        return 0
    ours, theirs = labs.split(argv)
    arguments = _parser().parse_args(ours, argparse.Namespace(theirs=theirs))
    status: int = arguments.run(arguments)
    return status


class _Parser(argparse.ArgumentParser):
    """argparse that reports errors in one line, like every other bad input."""

    def error(self, message: str) -> NoReturn:
        wrong = re.search(r"(.*invalid choice: )'(.*)' \(choose from (.*)\)", message)
        if wrong is not None:
            known = re.findall(r"[\w-]+", wrong[3])
            accepted = f"accepted: {', '.join(known)}"
            message = f"{wrong[1]}{wrong[2]!r};{_did_you_mean(wrong[2], known)} {accepted}"
        raise InputError(f"{message}; see {self.prog} --help")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse does, but a command reports unknown options under its own name."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            options = [text for action in self._actions for text in action.option_strings]
            near = _did_you_mean(unknown[0], options)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{near and ';'}{near}")
        return parsed, unknown

    def _print_message(self, message: str, file: Any = None) -> None:
        """As argparse does, but a failure to print help is an error like any other."""
        (file or sys.stderr).write(message)


def _did_you_mean(word: str, known: Sequence[str]) -> str:
    near = get_close_matches(word, known, n=1)
    return f" did you mean {near[0]!r}?" if near else ""


def _parser() -> _Parser:
    parser = _Parser(
        prog="mrc",
        description="MRC, Multipath Reliable Connection: simulate fabrics packet by packet,\n"
        "run the protocol over real frames, decode captures.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"openmrc {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    init.add_command(commands)
    demo = commands.add_parser(
        "demo", help="compare MRC with spraying and RoCEv2 while links are cut"
    )
    words = f"directory for the picture and the other results (default: {DEMO_DIRECTORY})"
    demo.add_argument("--out", metavar="DIR", type=Path, default=Path(DEMO_DIRECTORY), help=words)
    _add_verbose(demo)
    demo.set_defaults(run=_demo)

    run = commands.add_parser(
        "run",
        help="simulate a scenario file, or an htsim topology and traffic",
        description="Simulate SCENARIO.toml, or --topo and --cm with the parameters of htsim.",
    )
    add = run.add_argument
    add("scenario", metavar="SCENARIO.toml", nargs="?", help="see docs/scenario.md")
    add("--topo", metavar="FILE", help="an htsim .topo file, with --cm")
    add("--cm", metavar="FILE", help="an htsim .cm file, with --topo")
    add("--out", metavar="DIR", type=Path, help="write the results directory")
    labs.add_capture(
        run,
        "capture the packets of MRC or of RoCEv2 on the links of --at; one file for each transport",
        '"plane 0 t0 1 - t1 0", "nic 5", "plane 0 t1 2" or "everywhere" (the default);'
        " may be repeated",
    )
    words = "form of captured packets: as sent (native, the default), or with a single IP header"
    add("--frames", choices=FORMS, help=words)
    add("--estimate", action="store_true", help="estimate time and memory; run nothing")
    words = "sim: simulated (the default); lab: real frames between processes of this machine"
    add("--world", choices=WORLDS, default=WORLDS[0], help=words)
    add("--seed", metavar="N", help="override the scenario's seed")
    words = "threads that run a large fabric's shards (auto, the default: one per core)"
    add("--threads", metavar="N", default=AUTO, help=words)
    labs.add_set(
        run,
        "such as fabric.nics=128; transport.pmtu=2048 sets every transport's,"
        " transport.mrc.pmtu=2048 one's",
    )
    _add_verbose(run)
    run.set_defaults(run=_run)

    sweep = commands.add_parser(
        "sweep",
        help="simulate a scenario file for every combination of values",
        description="Simulate SCENARIO.toml for every combination of the values of --over, on all"
        " cores or a Dask cluster, into one Parquet data set. Runs already in DIR are not"
        " repeated.",
    )
    add = sweep.add_argument
    add("scenario", metavar="SCENARIO.toml", help="see docs/scenario.md")
    words = "such as transport.pmtu=2048,4096 or seed=1..10, both ends included"
    add("--over", metavar="KEY=VALUES", action="append", required=True, help=words)
    add("--out", metavar="DIR", type=Path, required=True, help="the data set")
    labs.add_set(sweep)
    add("--workers", metavar="N", help="parallel runs (default: one per core)")
    add("--dask", metavar="ADDRESS", help="address of a Dask scheduler, such as tcp://head:8786")
    add("--flows", action="store_true", help="keep one row for each flow as well")
    words = "draw a figure over the first key of --over that is not seed"
    add("--plot", metavar="FILE.png", type=Path, help=words)
    words = "with --plot: the figure, a column of the data set (default: flows.fct_us.p100)"
    add("--figure", metavar="NAME", help=words)
    add("--log", choices=("x", "y", "xy"), help="with --plot: the axes that are logarithmic")
    sweep.set_defaults(run=_sweep)

    bench = commands.add_parser("bench", help="measure how fast this machine simulates or sends")
    words = (
        "sim: the event loop, by case; live: CPU time of endpoints against bare loops; torch:"
        " collectives against Gloo"
    )
    bench.add_argument("what", choices=["sim", "live", "torch"], help=words)
    torch_bench.add_options(bench)
    bench.set_defaults(run=_bench)

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

    decode.add_command(commands)
    of_compare = compare.add_command(commands)
    of_lab = labs.add_command(commands)
    of_doctor = doctor.add_command(commands)
    perf.add_command(commands)
    secret.add_command(commands)
    of_policy = policy.add_command(commands)
    of_plan = planning.add_command(commands)
    exporting.add_command(commands)
    mapping.add_command(commands)
    telemetry.add_command(commands)
    capi.add_command(commands)
    of_why = operators.add_command(commands)
    conformance.add_command(commands)
    paper.add_command(commands)
    completion.add_command(commands, parser)
    for command in (
        demo,
        run,
        sweep,
        bench,
        *of_lab,
        of_doctor,
        *of_policy,
        of_plan,
        of_compare,
        of_why,
    ):
        command.add_argument("--json", action="store_true", help="print JSON and nothing else")
    return parser


def _add_verbose(parser: argparse.ArgumentParser) -> None:
    words = "also print, on standard error, the values that were derived at start"
    parser.add_argument("-v", "--verbose", action="store_true", help=words)


def _demo(arguments: argparse.Namespace) -> int:
    from openmrc.scenario.scenario import demo_scenario

    say("A ring all-reduce of 32 NICs on four planes. Two links are cut, and a switch goes silent.")
    status = _simulate(demo_scenario(), arguments, picture=True)
    say(f"The picture is {arguments.out / 'goodput.png'}; the page beside it is report.html.")
    return status


def _run(arguments: argparse.Namespace) -> int:
    from openmrc.scenario.scenario import load_scenario, peer_scenario

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
    labs.check_at(arguments)
    if arguments.estimate:
        return _estimate(scenario, arguments)
    at = arguments.at or ["everywhere"]
    if arguments.pcap is not None:
        if str(arguments.pcap) == STANDARD_OUTPUT:
            _refuse_to_mix(scenario, arguments.json)
        check_capture(arguments.pcap, scenario, at)
    in_lab = arguments.world == "lab"
    frames = arguments.frames or NATIVE
    if in_lab and arguments.frames is not None:
        raise InputError("--frames with --world lab: its frames are real, and captured as they are")
    threads = _threads(arguments.threads)
    if in_lab and threads is not None:
        raise InputError("--threads with --world lab: each NIC is a process there; leave it out")
    return _simulate(
        scenario,
        arguments,
        in_lab=in_lab,
        pcap=arguments.pcap,
        at=at,
        frames=frames,
        threads=threads,
    )


def _refuse_to_mix(scenario: Scenario, as_json: bool) -> None:
    """Raise `InputError` where standard output cannot be the one capture that it shall be."""
    if len(scenario.transports) > 1:
        raise InputError(
            f"--pcap -: {len(scenario.transports)} transports make as many captures; name a file"
        )
    if as_json:
        raise InputError("--pcap - and --json: both are for standard output; name a file for one")
    if sys.stdout.isatty():
        raise InputError("--pcap -: standard output is a terminal; pipe it, or name a file")


def _threads(words: str) -> int | None:
    """The requested number of threads; None for the default."""
    if words == AUTO:
        return None
    if not (words.isascii() and words.isdecimal() and 0 < int(words) <= THREADS_MAX):
        raise InputError(f"--threads {words}: auto, or 1 to {THREADS_MAX}")
    return int(words)


def _estimate(scenario: Scenario, arguments: argparse.Namespace) -> int:
    """Print what each transport takes, without running it."""
    from openmrc.report.estimate import sentences
    from openmrc.run.estimate import estimates

    for given, option in (
        (arguments.out is not None, "--out"),
        (arguments.pcap is not None, "--pcap"),
        (arguments.world == "lab", "--world lab"),
    ):
        if given:
            raise InputError(f"--estimate and {option}: nothing is run; leave one of them out")
    found = estimates(scenario)
    if arguments.json:
        print(json.dumps({each.transport: each.as_dict() for each in found}, indent=2))
        return 0
    for line in sentences(scenario, found):
        print(printable(line))
    return 0


def _sweep(arguments: argparse.Namespace) -> int:
    from openmrc.sweeps.command import run_command

    return run_command(arguments)


def _bench(arguments: argparse.Namespace) -> int:
    if arguments.what == "torch":
        return torch_bench.run(arguments)
    torch_bench.refuse_options(arguments)
    if arguments.what == "live":
        from openmrc.bench import live as benchlive

        return benchlive.run(arguments.json)
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


def _simulate(
    scenario: Scenario,
    arguments: argparse.Namespace,
    *,
    picture: bool = False,
    in_lab: bool = False,
    pcap: Path | None = None,
    at: Sequence[str] = (),
    frames: str = NATIVE,
    threads: int | None = None,
) -> int:
    """Run in one world or the other, print, and write the results directory if --out names one, and
    captures to `pcap`; return the exit status.
    """
    from openmrc.report.directory import check_directory
    from openmrc.report.progress import Bar, compiling

    out: Path | None = arguments.out
    if out is not None:
        check_directory(out)
    if in_lab:
        from openmrc.run.lab import run_in_lab

        result = run_in_lab(scenario, Bar, compiling, pcap, at)
    else:
        from openmrc.run.simulation import simulate

        with Bar() as bar:
            sampled = out is not None
            result = simulate(
                scenario,
                bar.update,
                compiling=compiling,
                pcap=pcap,
                at=at,
                sampled=sampled,
                frames=frames,
                threads=threads,
            )
    if threads is not None and threads > 1:
        for run in result.transports:
            if run.uncut:
                say(f"--threads {threads}: {run.name} ran on one, for {run.uncut}.")
    from openmrc.run.captures import pcap_paths

    files = pcap_paths(pcap, [run.name for run in result.transports]).values()
    piped = str(pcap) == STANDARD_OUTPUT
    # A full disk and a closed output do not prevent each other's results.
    with ExitStack() as at_last:
        if out is not None:
            at_last.callback(_written(result, out, picture))
        _report(result, arguments, sys.stderr if piped else sys.stdout)
    for file in () if piped else files:
        say(f"The captured packets are in {file}; to read them: mrc decode {file}")
    return result.exit_status


def _written(result: Result, out: Path, picture: bool) -> Callable[[], None]:
    """Write the results directory; return a function that says so, or raises, once all is
    printed.
    """
    from openmrc.report.files import write_results

    try:
        write_results(result, out, picture)
    except OutputError as error:
        refused = error

        def fail() -> None:
            raise refused

        return fail
    return lambda: say(f"Results are in {_shown(out)}.")


def _shown(directory: Path) -> str:
    """A directory as it appears in a sentence: "." would look like the sentence's end."""
    return (
        f"the current directory ({directory.absolute()})" if directory == Path() else f"{directory}"
    )


def _report(result: Result, arguments: argparse.Namespace, table: IO[str]) -> None:
    from openmrc.report.table import print_derived, print_table, sentences, warnings

    if arguments.verbose:
        print_derived(result, sys.stderr)
    for run in result.transports:
        for line in warnings(result, run):
            say(line)
    if arguments.json:
        print(json.dumps(result.summary(), indent=2), flush=True)
        for sentence in sentences(result):
            say(sentence)
    else:
        print_table(result, table)


def check_capture(file: Path, scenario: Scenario, at: Sequence[str]) -> None:
    """Raise `InputError` unless the places exist and `file` can be written, before a run starts."""
    from openmrc.report.directory import check_directory
    from openmrc.sim.watch.capture import ports_at

    ports_at(scenario.fabric.build(), at)
    check_directory(file.absolute().parent, "--pcap")
    if file.is_dir():
        raise InputError(f"--pcap {file}: is a directory; name a file")
