"""`mrc conformance`: test an implementation against the rules of MRC."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openmrc.errors import InputError
from openmrc.newfile import write_whole

if TYPE_CHECKING:
    from openmrc.conform.network import Where
    from openmrc.conform.outcome import Outcome
    from openmrc.conform.script import Rule
    from openmrc.fabric.dscp import Dscps

ENGINE, LIVE, LIBMRC = "engine", "live", "libmrc"
TARGETS = {
    ENGINE: "openmrc's engine",
    LIVE: "openmrc's live endpoint",
    LIBMRC: "openmrc's libmrc, by MRC's C API",
}
PORT = 18516  # of exchanges for the kit
START_S = 300.0  # until the other rank has compiled its code
ROLES = ("requester", "responder")


def add_command(commands: Any) -> list[argparse.ArgumentParser]:
    """Add `conformance`, which has a --json of its own."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "conformance",
        help="test an implementation against the rules of MRC",
        description="Test an implementation by scripted exchanges: the packets sent, the answers"
        " that must come, by when, and those that must not. Exit status 1 if a rule fails.",
    )
    add = parser.add_argument
    add("--role", choices=ROLES, help="role of the implementation (default: both)")
    words = "openmrc's own: engine, in process (default); live endpoint, libmrc: over loopback"
    add("--against", choices=tuple(TARGETS), help=words)
    words = "an implementation whose upper tester listens there (port: 18516)"
    add("--address", metavar="HOST[:PORT]", help=words)
    words = "an implementation with the attributes in FILE; the kit's are written to FILE.kit"
    add("--attributes", metavar="FILE.json", type=Path, help=words)
    words = "check a capture instead: its packets against each other"
    add("--capture", metavar="FILE", type=Path, help=words)
    words = "planes of this host, interfaces or addresses, for --address, --attributes, --serve"
    add("--interface", metavar="A,B", help=words)
    words = "whole frames, as a host of a fabric, by this host file (default: OPENMRC_HOST)"
    add("--host", metavar="FILE", nargs="?", const="", help=words)
    words = "whole frames, over the interfaces, addresses, EVs and carriers of FILE"
    add("--ways", metavar="FILE.json", type=Path, help=words)
    words = "in a lab of two: rank 0 is the live endpoint, rank 1 the kit, both by --host"
    add("--ranks", action="store_true", help=words)
    words = "file with the secret in hex, for --address and --serve (default: OPENMRC_SECRET)"
    add("--secret", metavar="FILE", help=words)
    words = "in real time: largest delay of an answer (default: 20ms)"
    add("--patience", metavar="TIME", help=words)
    words = "DSCPs of the fabric if not the defaults, such as trimmed=11,trimmed_lasthop=21"
    add("--dscp", metavar="CLASS=N,...", help=words)
    words = "act as the upper tester of openmrc's live endpoint, or of --against libmrc"
    add("--serve", action="store_true", help=words)
    add("--port", metavar="PORT", type=int, help="TCP port of --serve (default: 18516)")
    words = "only this rule; may be repeated"
    add("--rule", metavar="NAME", action="append", default=[], help=words)
    add("--list", action="store_true", help="print the rules and their sources, and run none")
    add("--page", metavar="FILE.html", type=Path, help="write a page")
    add("--junit", metavar="FILE.xml", type=Path, help="write JUnit XML")
    add("--json", action="store_true", help="print JSON and nothing else")
    parser.set_defaults(run=_conformance)
    return []


def _conformance(arguments: argparse.Namespace) -> int:
    from openmrc.conform import report
    from openmrc.conform.run import FAIL

    if arguments.ranks:
        _take_ranks(arguments)
    if arguments.serve:
        return _serve(arguments)
    if arguments.port is not None:
        raise InputError("--port without --serve: --address names the target's, as HOST:PORT")
    rules = _rules(arguments)
    if arguments.list:
        _list(rules, arguments.json)
        return 0
    target, outcomes = _held(arguments, rules)
    if arguments.junit is not None:
        write_whole(arguments.junit, report.junit(outcomes, target), "--junit")
    if arguments.page is not None:
        write_whole(arguments.page, report.page(outcomes, target, rules), "--page")
    if arguments.json:
        told = [each.as_dict() for each in outcomes]
        print(json.dumps({"target": target, "rules": told}))
    else:
        print("\n".join(report.lines(outcomes)))
    return int(any(each.outcome == FAIL for each in outcomes))


def _held(arguments: argparse.Namespace, rules: list[Rule]) -> tuple[str, list[Outcome]]:
    """Return what was tested, and the outcome of each rule."""
    from openmrc.conform import network, plain, targets

    named = [arguments.against, arguments.address, arguments.attributes, arguments.capture]
    if sum(one is not None for one in named) > 1:
        raise InputError("--against, --address, --attributes, --capture: name one of them")
    if arguments.capture is not None:
        from openmrc.conform import capture, passive

        for name in ("interface", "host", "ways", "secret", "patience"):
            if getattr(arguments, name) is not None:
                raise InputError(f"--{name} with --capture: nothing is sent")
        seen = capture.load(arguments.capture, dscps=_dscps(arguments))
        if not seen.packets:
            raise InputError(f"{arguments.capture}: has no packet of MRC; mrc decode shows why")
        return str(arguments.capture), passive.hold(rules, seen)
    if arguments.address is None and arguments.attributes is None:
        for name in ("interface", "host", "ways", "secret", "dscp"):
            if getattr(arguments, name) is not None:
                raise InputError(f"--{name} without --address: openmrc's own target needs none")
        if arguments.against in (LIVE, LIBMRC):
            _patience_ps(arguments)
            with targets.served(arguments.against) as where:
                outcomes = targets.over_network(rules, _patient(arguments, where))
                return TARGETS[arguments.against], outcomes
        if arguments.patience is not None:
            raise InputError("--patience: the engine runs in virtual time, and is never late")
        return TARGETS[ENGINE], plain.outcomes(rules)
    with contextlib.ExitStack() as at_last:
        if arguments.ranks:  # even after an error: the other rank waits for this one
            secret = _secret(arguments)
            at_last.callback(network.end, network.Where((), arguments.address, PORT, secret))
        where = _patient(arguments, _where(arguments))
        if where.attributes is not None and len(rules) != 1:
            raise InputError("--attributes: a queue pair is for one rule; name it by --rule")
        return str(where), targets.over_network(rules, where)


def _take_ranks(arguments: argparse.Namespace) -> None:
    """Become one of two hosts of a lab: `mrc lab` says which (docs/lab.md)."""
    hosts = os.environ.get("OPENMRC_HOSTS", "").split(",")
    rank = os.environ.get("OPENMRC_RANK")
    if len(hosts) != 2 or rank not in ("0", "1"):
        raise InputError("--ranks: takes two hosts of a lab; mrc lab LAB.toml --hosts 0,2 -- ...")
    if rank == "0":
        arguments.serve, arguments.ways = True, None
    else:
        arguments.address = hosts[0]
    if arguments.host is None and arguments.ways is None:
        arguments.host = ""


def _where(arguments: argparse.Namespace) -> Where:
    from openmrc.conform import wires
    from openmrc.conform.network import Where
    from openmrc.units import integer

    names, dscps = _planes(arguments), _dscps(arguments)
    opened: Callable[[Sequence[str], int], Any] = wires.opened
    if arguments.host is not None or arguments.ways is not None:
        from functools import partial

        from openmrc.conform import raw
        from openmrc.verbs import hostfile

        if arguments.host is not None:
            path = arguments.host or None
            dscps = hostfile.fabric(path).dscps
            opened = partial(raw.of_host, path)
        else:
            opened = partial(raw.of_ways, arguments.ways, dscps=dscps)
    if arguments.attributes is not None:
        return Where(names, attributes=arguments.attributes, dscps=dscps, opened=opened)
    host, _, port = arguments.address.rpartition(":")
    if not host or not port.isdigit():
        host, port = arguments.address, str(PORT)
    at = host.strip("[]"), integer(port), _secret(arguments)
    where = Where(names, *at, dscps=dscps, opened=opened)
    return replace(where, connect_s=START_S) if arguments.ranks else where


def _dscps(arguments: argparse.Namespace) -> Dscps:
    from openmrc.fabric.dscp import Dscps

    try:
        return Dscps.parse(arguments.dscp or "")
    except InputError as error:
        raise error.at("--dscp") from None


def _patient(arguments: argparse.Namespace, where: Where) -> Where:
    patience_ps = _patience_ps(arguments)
    return where if patience_ps is None else replace(where, patience_ps=patience_ps)


def _patience_ps(arguments: argparse.Namespace) -> int | None:
    from openmrc.units import parse_time

    if arguments.patience is None:
        return None
    try:
        return parse_time(arguments.patience)
    except InputError as error:
        raise error.at("--patience") from None


def _planes(arguments: argparse.Namespace) -> tuple[str, ...]:
    given = [arguments.interface, arguments.host, arguments.ways]
    if sum(one is not None for one in given) > 1:
        raise InputError("--interface, --host, --ways: name one of them")
    if arguments.host is not None or arguments.ways is not None:
        from openmrc.conform import raw

        if arguments.host is not None:
            return raw.interfaces(arguments.host or None)
        return tuple(name for name, _ in raw.read(arguments.ways)[0])
    if arguments.interface is None:
        raise InputError("--interface: name the planes of this host, as eth0,eth1")
    return tuple(name.strip() for name in arguments.interface.split(","))


def _secret(arguments: argparse.Namespace) -> bytes:
    from openmrc.verbs import secret as secrets

    return secrets.needed(arguments.secret)


def _serve(arguments: argparse.Namespace) -> int:
    from openmrc.conform import targets, tester

    def listening(port: int) -> None:
        print(f"{targets.LISTENING}{port}", flush=True)

    port = PORT if arguments.port is None else arguments.port
    names = _planes(arguments)
    if arguments.ways is not None:
        raise InputError("--ways with --serve: the live endpoint has its own; name --host")
    host = arguments.host
    if arguments.against == LIBMRC:
        from openmrc.conform import libmrc

        if host is not None:
            raise InputError("--host with --against libmrc: it is met by plain UDP")
        with libmrc.served(names) as opened:
            tester.serve(opened, _secret(arguments), port, listening)
        return 0
    opened = tester.on_network(names) if host is None else tester.on_host(host or None)
    tester.serve(opened, _secret(arguments), port, listening)
    return 0


def _rules(arguments: argparse.Namespace) -> list[Rule]:
    from openmrc.conform import script

    kinds = (script.OF_CAPTURES,) if arguments.capture is not None else ("", script.ALWAYS)
    rules = [rule for kind in kinds for rule in script.rules(arguments.role, kind)]
    if not arguments.rule:
        return rules
    known = {rule.name: rule for rule in rules}
    for name in arguments.rule:
        if name not in known:
            raise InputError(f"--rule {name}: is no rule of this role; --list shows all")
    return [known[name] for name in arguments.rule]


def _list(rules: list[Rule], as_json: bool) -> None:
    if as_json:
        told = [{"rule": r.name, "role": r.role, "says": r.says, "source": r.source} for r in rules]
        print(json.dumps(told))
        return
    for rule in rules:
        print(f"{rule.role:10}  {rule.name}  ({rule.source})\n            {rule.says}")
