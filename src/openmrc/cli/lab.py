"""The command `mrc lab`: a scenario file's fabric on this machine, with commands on its hosts.

`mrc lab LAB.toml -- COMMAND` runs in a process in namespaces of its own (`live.lab.isolation`). The
process that the user started only waits, so whatever kills it ends everything.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openmrc import ending
from openmrc.cli.streams import STDOUT
from openmrc.errors import InputError, OutputError
from openmrc.reading import STANDARD_INPUT as STANDARD_OUTPUT
from openmrc.say import say
from openmrc.units import parse_size

if TYPE_CHECKING:
    from openmrc.live.lab import Lab, LabSpec

NAME_HELP = (
    "name of the lab; on its own hosts it need not be said",
    "name of the lab, if several are running",
)
RUN = "run"  # what `mrc lab` does by default
ASKS = ("fail", "heal", "status")
NOBODY_READS, NOT_WRITTEN = 1, 3  # statuses, as those of other commands


def add_command(commands: Any) -> list[argparse.ArgumentParser]:
    """Add `lab`; return the parsers that take --json."""
    lab = commands.add_parser(
        "lab",
        help="build a fabric on this machine and run commands on its hosts",
        description="mrc lab LAB.toml -- COMMAND runs COMMAND on every host of the fabric; while\n"
        "it runs, mrc lab fail, heal and status change and show it.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parts = lab.add_subparsers(dest="part", required=True, metavar="LAB.toml|fail|heal|status")
    run = parts.add_parser(RUN, help="start a lab (the word run may be omitted)", prog="mrc lab")
    add = run.add_argument
    add("scenario", metavar="LAB.toml", help="a scenario file; see docs/lab.md")
    add("--hosts", metavar="NICS", help='run only on these: "0,3" or "0-3"')
    add("--shell", metavar="HOST", help="run a shell on this host instead of COMMAND")
    add("--name", metavar="NAME", help="name of the lab (default: the file's)")
    add_capture(
        run,
        "capture the packets on the links of --at",
        '"nic 5", "plane 0 t0 1 - t1 0" ... or "everywhere" (the default); may be repeated',
    )
    add_set(run)
    run.set_defaults(run=_run)
    lab.epilog = f"To start one:\n\n{run.format_help()}"

    fail = parts.add_parser("fail", help="break a place of a running lab")
    add = fail.add_argument
    add("place", metavar="PLACE", help='"nic 0 plane 1", "plane 0 t1 2" ...')
    add("--kind", metavar="KIND", help="a kind of [[fault]] (default: the place goes down)")
    add("--rate", metavar="R", type=float, help="rate of link-loss and link-corrupt")
    add("--factor", metavar="F", type=float, help="factor of link-slow")
    add("--mtu", metavar="SIZE", help='MTU of a link: "1500B"')
    add("--burst", metavar="N", type=float, help="mean burst of link-loss")
    heal = parts.add_parser("heal", help="repair a place of a running lab")
    heal.add_argument("place", metavar="PLACE", help='also "everywhere"')
    status = parts.add_parser("status", help="show what runs, what is broken, and the counters")
    for part in (fail, heal, status):
        part.add_argument("--name", metavar="NAME", help=NAME_HELP[part is status])
        part.set_defaults(run=_ask)
    return [fail, heal, status]


def add_capture(parser: argparse.ArgumentParser, pcap: str, at: str) -> None:
    """Add --pcap and --at, with these help texts."""
    parser.add_argument("--pcap", metavar="OUT.pcapng", type=Path, help=pcap)
    parser.add_argument("--at", metavar="PLACE", action="append", help=at)


def add_set(parser: argparse.ArgumentParser, words: str = "as for mrc run") -> None:
    """Add --set."""
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help=words)


def check_at(arguments: argparse.Namespace) -> None:
    """Refuse places of a capture without its file."""
    for option in ("at", "frames"):
        if getattr(arguments, option, None) is not None and arguments.pcap is None:
            raise InputError(f"--{option} without --pcap; name the file with --pcap OUT.pcapng")


def split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return our part of a command line, and the COMMAND of `mrc lab` after "--"."""
    ours = list(argv)
    if ours[:1] != ["lab"]:
        return ours, []
    theirs: list[str] = []
    if "--" in ours:
        at = ours.index("--")
        ours, theirs = ours[:at], ours[at + 1 :]
    if len(ours) > 1 and ours[1] not in (RUN, *ASKS, "-h", "--help"):
        ours.insert(1, RUN)
    return ours, theirs


def _run(arguments: argparse.Namespace) -> int:
    """Check what can be checked at once, then run the rest in namespaces of its own."""
    from openmrc.live.lab.control import listen
    from openmrc.live.lab.isolation import run_isolated
    from openmrc.run.lab.spec import lab_spec, refuse
    from openmrc.scenario.scenario import load_lab

    if arguments.theirs and arguments.shell is not None:
        raise InputError("both --shell and -- COMMAND; say one or the other")
    if not arguments.theirs and arguments.shell is None:
        raise InputError(
            f"mrc lab {arguments.scenario}: nothing to run on its hosts; add -- COMMAND, or"
            " --shell HOST"
        )
    check_at(arguments)
    if arguments.shell is not None and arguments.hosts is not None:
        raise InputError("--hosts does not go with --shell HOST; remove it")
    name = arguments.name or Path(arguments.scenario).stem
    with listen(name) as server, ExitStack() as files:
        # Opened by the user: inside, root has only the user's own rights.
        stream = files.enter_context(_opened(arguments.pcap)) if arguments.pcap else None
        spec = lab_spec(load_lab(arguments.scenario, arguments.set))
        refuse(spec)
        return run_isolated(
            lambda: _inside(arguments, name, server, spec, stream), own_user=not spec.settings.bpf
        )


def _inside(
    arguments: argparse.Namespace, name: str, server: socket.socket, spec: LabSpec, stream: Any
) -> int:
    from openmrc.live.lab import inside_lab
    from openmrc.live.lab.needs import explained

    chosen = _chosen(arguments, spec)
    with explained(spec.settings):
        return inside_lab(spec, lambda lab: _work(arguments, name, server, lab, chosen, stream))


def _work(
    arguments: argparse.Namespace,
    name: str,
    server: socket.socket,
    lab: Lab,
    chosen: Sequence[int],
    stream: Any,
) -> int:
    from openmrc.live.lab import commands
    from openmrc.run.lab.spec import sentences

    for line in sentences(lab):
        say(line)
    lab.begin()
    if stream is not None:
        lab.tap(arguments.at or ["everywhere"], stream)
    lab.listen(name, server)
    if arguments.shell is not None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C of the terminal is for the shell
        (host,) = chosen
        every = range(lab.spec.fabric.n_nics)
        return commands.run_shell(
            lab.namespaces, lab.topology.hosts[host], lab.environment(every, host)
        )
    stopped = ending.awaited()
    out, err = (_writer(fd, unwritten(stopped)) for fd in (1, 2))
    running = [lab.command(chosen, rank, arguments.theirs, out, err) for rank in range(len(chosen))]

    def stopping() -> int:
        lab.check()
        return stopped[0] if stopped else 0

    return commands.watch(running, stopping)


def _chosen(arguments: argparse.Namespace, spec: LabSpec) -> list[int]:
    """The NICs whose hosts run something."""
    from openmrc.fabric.places import nics

    if arguments.shell is not None:
        text, option = arguments.shell.removeprefix("h"), "--shell"
    elif arguments.hosts is not None:
        text, option = arguments.hosts, "--hosts"
    else:
        return list(range(spec.fabric.n_nics))
    try:
        chosen = nics(spec.fabric, text).tolist()
    except InputError as error:
        raise error.at(option) from None
    if option == "--shell" and len(chosen) != 1:
        raise InputError(f"--shell {arguments.shell}: names {len(chosen)} hosts; name one")
    return list(chosen)


def _opened(file: Path) -> Any:
    if str(file) == STANDARD_OUTPUT:
        raise InputError("--pcap -: standard output is that of the commands; name a file")
    try:
        return file.open("wb")
    except OSError as error:
        raise InputError(f"--pcap {file}: {error.strerror}; name a file") from None


def _ask(arguments: argparse.Namespace) -> int:
    from openmrc.live.lab.control import ask

    if arguments.theirs:
        raise InputError(f"mrc lab {arguments.part} runs no command; remove -- and what follows")
    request: dict[str, Any] = {"do": arguments.part}
    if arguments.part != "status":
        request["where"] = arguments.place
    for key in ("kind", "rate", "factor", "burst"):
        if getattr(arguments, key, None) is not None:
            request[key] = getattr(arguments, key)
    if getattr(arguments, "mtu", None) is not None:
        request["mtu"] = _size("--mtu", arguments.mtu)
    answer = ask(arguments.name, request)
    if arguments.json:
        print(json.dumps(answer, indent=2))
    elif arguments.part == "status":
        _print_status(answer)
    else:
        _print_faults(answer)
    return 0


def _size(option: str, text: str) -> int:
    """Bytes; `InputError` that names the option."""
    try:
        return parse_size(text)
    except InputError as error:
        raise error.at(option) from None


def _print_status(status: dict[str, Any]) -> None:
    print(f"switch {status['switch']}, mode {status['mode']}, up in {status['up_s']} s")
    for host in status["hosts"]:
        ended = host["status"]
        state = "running" if ended is None else f"ended with {ended}"
        print(f"{host['host']:8} {state}")
    _print_faults(status["faults"])
    for switch, counted in status["counters"].items():
        words = [f"{key} {value}" for key, value in counted.items() if not isinstance(value, dict)]
        print(f"{switch:16} {', '.join(words)}")


def _print_faults(faults: list[dict[str, str]]) -> None:
    for fault in faults:
        print(f"{fault['place']}: {fault['state']}")
    if not faults:
        print("nothing is broken")


def _writer(fd: int, unwritten: Callable[[int, OSError], None]) -> Any:
    """Write whole lines past Python's buffers, so that two streams keep their order; `unwritten` is
    told of a line that cannot be, because its reader has left or there is no room.
    """

    def write(data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(fd, view) :]
        except OSError as error:
            unwritten(fd, error)

    return write


def unwritten(stopped: list[int]) -> Callable[[int, OSError], None]:
    """Return a function that ends the lab, by a status in `stopped`, when a line cannot be written;
    what comes after it disappears.
    """

    def end(fd: int, error: OSError) -> None:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, fd)
        os.close(null)
        if isinstance(error, BrokenPipeError):
            stopped.append(NOBODY_READS)
            return
        stopped.append(NOT_WRITTEN)
        say(f"mrc: {OutputError(STDOUT, error)}")

    return end
