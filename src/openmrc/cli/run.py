"""`mrc run` simulates a scenario, or runs it in a lab; `mrc demo` runs one that it brings along."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from openmrc.cli.lab import add_capture, add_set, check_at
from openmrc.errors import InputError, OutputError
from openmrc.printable import printable
from openmrc.reading import STANDARD_INPUT as STANDARD_OUTPUT
from openmrc.say import say
from openmrc.sim.watch.forms import FORMS, NATIVE

if TYPE_CHECKING:
    from openmrc.run.results import Result
    from openmrc.scenario.scenario import Scenario

DEMO_DIRECTORY = "openmrc-demo"
WORLDS = ("sim", "lab")
LEVELS = ("packet", "flow")
AUTO, THREADS_MAX = "auto", 1024


def add_command(commands: Any) -> list[argparse.ArgumentParser]:
    """Add `demo` and `run`; return the parsers that take --json."""
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
    add_capture(
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
    words = "packet: packet by packet; flow: rates of flows, for large fabrics and long times"
    add("--level", choices=LEVELS, help=f"override the scenario's level ({words})")
    add("--seed", metavar="N", help="override the scenario's seed")
    words = "threads that run a large fabric's shards (auto, the default: one per core)"
    add("--threads", metavar="N", default=AUTO, help=words)
    add_set(
        run,
        "such as fabric.nics=128; transport.pmtu=2048 sets every transport's,"
        " transport.mrc.pmtu=2048 one's",
    )
    _add_verbose(run)
    run.set_defaults(run=_run)
    return [demo, run]


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
    if arguments.level is not None:
        overrides.append(f"level={arguments.level}")
    if arguments.scenario is not None:
        if arguments.topo is not None or arguments.cm is not None:
            raise InputError("both a scenario and --topo or --cm; name one or the other")
        scenario = load_scenario(arguments.scenario, overrides)
    elif arguments.topo is not None and arguments.cm is not None:
        scenario = peer_scenario(arguments.topo, arguments.cm, overrides)
    else:
        raise InputError("nothing to run; name SCENARIO.toml, or --topo FILE --cm FILE")
    check_at(arguments)
    if scenario.level == "flow":
        _refuse_at_flow_level(arguments)
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


def _refuse_at_flow_level(arguments: argparse.Namespace) -> None:
    """Raise `InputError` for an option that has no meaning for flows."""
    for given, option in (
        (arguments.world == "lab", "--world lab"),
        (arguments.estimate, "--estimate"),
        (arguments.pcap is not None, "--pcap"),
        (arguments.frames is not None, "--frames"),
        (arguments.threads != AUTO, "--threads"),
    ):
        if given:
            raise InputError(
                f'{option} with level = "flow": it has no packets; leave one of them out'
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
    from openmrc.units import integer

    if words == AUTO:
        return None
    if not (words.isascii() and words.isdecimal() and 0 < integer(words) <= THREADS_MAX):
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

        result = run_in_lab(scenario, Bar, compiling, pcap, at, keeps_account=out is not None)
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
