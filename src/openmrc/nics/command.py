"""`mrc ops nic`: the agent of a NIC, over any library with MRC's C API for controllers; and the EVs
that agents give to NICs: `mrc ops evs`.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from openmrc import ending
from openmrc.capi.command import DIRECTORY
from openmrc.errors import InputError
from openmrc.ops.mapper.command import add_schedule, address_of, key_of, schedule_of
from openmrc.say import say

EVERY = 1 << 16  # EVs: no fabric of two tiers has more
SLOW_S = 10.0  # for a device to open: that is said


def add_commands(parts: Any) -> None:
    """Add `nic` and `evs` to the parts of `mrc ops`."""
    parser = parts.add_parser(
        "nic",
        help="the agent of a NIC, over MRC's C API for controllers",
        description="Give a NIC its EVs, probe its paths, deny those that a controller names: over"
        " any library with the functions of mrc_ctl.h. What it lacks is said, and done without.",
    )
    add = parser.add_argument
    words = f"shared library (default: {DIRECTORY}/libmrc.so, which mrc build-lib makes)"
    add("--library", metavar="PATH", type=Path, default=Path(DIRECTORY, "libmrc.so"), help=words)
    add("--device", metavar="NAME", default="", help="the NIC's name there (default: the first)")
    words = "EV profile that it fills and keeps (1); 0: the NIC's own, in which EVs are denied only"
    add("--profile", metavar="N", type=int, default=1, help=words)
    words = "file with the GID of each NIC, a line each (default: those of a lab)"
    add("--gids", metavar="FILE", type=Path, help=words)
    add("--host", metavar="FILE", help="the host file (default: OPENMRC_HOST)")
    words = "file with this NIC's own key in hex, instead of the job's secret (mrc secret --nic)"
    add("--key", metavar="FILE", help=words)
    words = "controller that receives the reports: mrc ops controller --nics"
    add("--controller", metavar="ADDRESS[:PORT]", help=words)
    words = "the controller's address for HTTP, or a file: EVs across its places are denied"
    add("--denylist", metavar="URL", help=words)
    add("--for", metavar="TIME", dest="duration", help="stop after this time")
    add_schedule(parser)
    parser.set_defaults(run=_run, nics=True)

    planned = parts.add_parser(
        "evs",
        help="plan the EVs of every NIC of a fabric",
        description="Print the EVs of each NIC as mrc ops nic gives them to it: a line a NIC, each"
        " EV in hex with its port, as examples/libmrc/controller.c takes them.",
    )
    add = planned.add_argument
    add("scenario", metavar="FILE.toml", help="a scenario, whose [fabric] it is")
    add("--nics", metavar="N-N", help="of these NICs (default: all)")
    words = "EVs of a NIC at most, of all planes together (default: one for each path)"
    add("--count", metavar="N", type=int, default=EVERY, help=words)
    words = "a place whose EVs are left out; several times"
    add("--deny", metavar="PLACE", action="append", default=[], help=words)
    add("--set", metavar="KEY=VALUE", action="append", default=[], help="as for mrc run")
    planned.set_defaults(run=_plan)


def _plan(arguments: argparse.Namespace) -> int:
    import numpy as np

    from openmrc.fabric import places
    from openmrc.fabric.denylist import entrances
    from openmrc.nics.plan import WIDTH, planned
    from openmrc.scenario.scenario import load_lab

    fabric = load_lab(arguments.scenario, arguments.set).fabric.build()
    denied = [np.zeros(0, np.int64)]
    for where in arguments.deny:
        try:
            denied.append(entrances(fabric, where).targets)
        except InputError as error:
            raise error.at("--deny") from None
    try:
        nics = places.nics(fabric, arguments.nics or f"0-{fabric.n_nics - 1}")
    except InputError as error:
        raise error.at("--nics") from None
    for nic in nics.tolist():
        try:
            evs = planned(fabric, nic, arguments.count, np.concatenate(denied))
        except InputError as error:
            raise error.at("--count") from None
        print(f"nic {nic}:", *(f"{ev.value[: WIDTH // 8].hex()}:{ev.port}" for ev in evs))
    return 0


def _run(arguments: argparse.Namespace) -> int:
    from openmrc.capi.places import Refused
    from openmrc.nics.agent import NicAgent
    from openmrc.nics.library import Library
    from openmrc.nics.run import run
    from openmrc.ops.evs import EvSchedule
    from openmrc.ops.mapper import words
    from openmrc.ops.mapper.link import Link
    from openmrc.ops.mapper.run import as_line
    from openmrc.units import NS, S, parse_time
    from openmrc.verbs import hostfile
    from openmrc.verbs import secret as secrets
    from openmrc.verbs.advised import Follower

    host = hostfile.read(arguments.host)
    _, fabric = hostfile.section(host, arguments.host)
    schedule = schedule_of(arguments, fabric)
    assert isinstance(schedule, EvSchedule)
    secret = key_of(arguments)
    if not secret and (arguments.controller or arguments.denylist):
        secret = secrets.check(hostfile.secret(arguments.host))
    try:
        duration_s = None if arguments.duration is None else parse_time(arguments.duration) / S
    except InputError as error:
        raise error.at("--for") from None
    number, ended, began = int(host["nic"]), ending.awaited(), time.monotonic()
    tell = _teller(number)
    said: list[str] = []

    def stopping() -> bool:
        return bool(ended) or (duration_s is not None and time.monotonic() - began > duration_s)

    def clock() -> int:
        return time.monotonic_ns() * NS

    def waits() -> bool:
        if not said and time.monotonic() - began > SLOW_S:
            said.append(f"the device has not opened after {SLOW_S:g} s; waiting for it")
            tell(said[-1])
        return not stopping()

    try:
        nic = Library(arguments.library, arguments.device, waits=waits)
    except Refused as error:
        if stopping():
            return ended[0] if ended else 0
        raise InputError(f"--library {arguments.library}: {error}") from None
    gids = _gids(arguments.gids, fabric.n_nics)
    agent = NicAgent(nic, schedule, number, gids, tell, clock, arguments.profile)
    agent.start()
    follower = Follower(agent, arguments.denylist, secret) if arguments.denylist else None
    try:
        if arguments.controller is None:
            run(agent, None, lambda message: print(as_line(message), flush=True), stopping)
        else:
            address, port = address_of(arguments.controller)
            join, is_key = words.join(schedule, number), arguments.key is not None
            with Link(address, port, secret, join, say, is_key) as link:
                run(agent, link, lambda _: None, stopping)
    finally:
        if follower is not None:
            follower.close()
    return ended[0] if ended else 0


def _teller(number: int) -> Any:
    return lambda words: say(f"nic {number}: {words}")


def _gids(path: Path | None, n: int) -> list[bytes]:
    """The GID of each NIC."""
    import ipaddress

    from openmrc.reading import read_text
    from openmrc.wire import addresses

    if path is None:
        return [addresses.ipv6(nic, 0).packed for nic in range(n)]
    try:
        lines = read_text(path, "GIDs, a line each").split()
        found = [ipaddress.IPv6Address(line).packed for line in lines]
    except ValueError as error:
        raise InputError(f"--gids {path}: {error}") from None
    if len(found) != n:
        raise InputError(f"--gids {path}: {len(found)} GIDs; the fabric has {n} NICs")
    return found
