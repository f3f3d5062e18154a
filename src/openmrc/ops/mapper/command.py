"""`mrc ops agent`, on this host, and `mrc ops controller`, which collects the reports of all."""

from __future__ import annotations

import argparse
import errno
import os
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openmrc import ending
from openmrc.errors import InputError, OutputError
from openmrc.reading import check_file
from openmrc.say import say

if TYPE_CHECKING:
    from openmrc.fabric.model import Fabric
    from openmrc.ops.mapper.ends import Network
    from openmrc.ops.mapper.live import Wire
    from openmrc.ops.schedule import Schedule

PORT, HTTP_PORT = 4790, 4780  # of the controller
LOOPBACK = "127.0.0.1"
NOT_LISTENING = {
    errno.EADDRINUSE: "end what listens there (ss -tlnp), or name others",
    errno.EADDRNOTAVAIL: "it is no address of this host; those are shown by: ip -br address",
    errno.EACCES: "ports below 1024 are root's; name others",
}
SWITCH_S = 0.0005  # a judging thread yields this often to one that brings a report


def add_commands(parts: Any) -> None:
    """Add `agent` and `controller` to the parts of `mrc ops`."""
    agent = parts.add_parser(
        "agent",
        help="probe every link of a fabric from this host",
        description="Run an agent: it sends probes that switches return, and reports lost ones to a"
        " controller, or without one as lines of JSON.",
    )
    add = agent.add_argument
    add("--host", metavar="FILE", help="the host file (default: OPENMRC_HOST)")
    words = "a file with the addresses of all hosts, of a network without uSIDs: plain UDP"
    add("--network", metavar="FILE", type=Path, help=words)
    words = "with --network: file with the job's secret in hex (default: OPENMRC_SECRET)"
    add("--secret", metavar="FILE", help=words)
    words = "file with this NIC's own key in hex, instead of the job's secret (mrc secret --nic)"
    add("--key", metavar="FILE", help=words)
    add("--controller", metavar="ADDRESS[:PORT]", help="controller that receives the reports")
    add("--for", metavar="TIME", dest="duration", help="stop after this time")
    add_schedule(agent)
    agent.set_defaults(run=_agent)

    controller = parts.add_parser(
        "controller",
        help="collect the agents' reports: broken links, a denylist, a history",
        description="Name the links that lose probes, keep their history, and serve over HTTP a"
        " denylist and the nodes that are fit for a job.",
    )
    add = controller.add_argument
    add("scenario", metavar="FILE.toml", help="the agents' file: a scenario, or their --network")
    words = f"address to listen on, of both ports (default: {LOOPBACK}, this host alone)"
    add("--listen", metavar="ADDRESS", default=LOOPBACK, help=words)
    add("--port", metavar="N", type=int, default=PORT, help=f"port for agents (default: {PORT})")
    words = f"port for HTTP (default: {HTTP_PORT})"
    add("--http-port", metavar="N", type=int, default=HTTP_PORT, help=words)
    add("--history", metavar="FILE", default=":memory:", help="SQLite file that keeps the history")
    words = "file with the job's secret in hex (default: OPENMRC_SECRET)"
    add("--secret", metavar="FILE", help=words)
    add("--cert", metavar="FILE", type=Path, help="certificate and key (PEM), to serve HTTPS")
    add("--set", metavar="KEY=VALUE", action="append", default=[], help="as for mrc run")
    words = "probes come from NICs over MRC's C API (mrc ops nic), not from mrc ops agent"
    add("--nics", action="store_true", help=words)
    add_schedule(controller)
    controller.set_defaults(run=_controller)


def add_schedule(parser: argparse.ArgumentParser) -> None:
    """Add the options of the schedule, on which agents and controller must agree."""
    add = parser.add_argument
    add("--period", metavar="TIME", default="1ms", help="time in which each link is probed (1ms)")
    words = "largest share of a link's rate for probes; the period grows to stay below it (0.1%%)"
    add("--load", metavar="PERCENT", default="0.1%", help=words)
    words = "probes across each directed link in a period (10)"
    add("--crossings", metavar="N", type=int, default=10, help=words)


def schedule_of(
    arguments: argparse.Namespace, fabric: Fabric, network: Network | None = None
) -> Schedule:
    """Return the schedule that the options describe."""
    from openmrc.ops import evs
    from openmrc.ops.schedule import COVERAGE_MAX, PERIOD_MAX_PS, make
    from openmrc.units import fmt_time, parse_time

    text = str(arguments.load)
    try:
        load = float(text.removesuffix("%")) / 100
    except ValueError:
        load = 0.0
    if not text.endswith("%") or not 0 < load <= 1:
        raise InputError(
            f"--load {text}: a share of a link's rate above 0% is accepted, such as 0.1%"
        )
    if not 1 <= arguments.crossings <= COVERAGE_MAX:
        raise InputError(f"--crossings {arguments.crossings}: 1 to {COVERAGE_MAX} are accepted")
    try:
        period_ps = parse_time(arguments.period)
    except InputError as error:
        raise error.at("--period") from None
    if not 1 <= period_ps <= PERIOD_MAX_PS:
        most = fmt_time(PERIOD_MAX_PS)
        raise InputError(f"--period {arguments.period}: a time above 0, up to {most}, is accepted")
    if network is not None:
        return network.schedule(fabric, arguments.crossings, period_ps, load)
    if getattr(arguments, "nics", False):
        return evs.make(fabric, arguments.crossings, period_ps, load)
    return make(fabric, arguments.crossings, period_ps, load)


def _agent(arguments: argparse.Namespace) -> int:
    from openmrc.ops.mapper import loop, run, words
    from openmrc.ops.mapper.agent import Agent
    from openmrc.ops.mapper.link import Link
    from openmrc.ops.mapper.live import Ports
    from openmrc.units import S, parse_time

    schedule, nic, secret, wire = _on_network(arguments) or _on_fabric(arguments)
    try:
        duration_s = None if arguments.duration is None else parse_time(arguments.duration) / S
    except InputError as error:
        raise error.at("--for") from None
    loop.warm_up()
    zero_ns = time.monotonic_ns()
    agent = Agent(schedule, nic, 0, run.first_period(schedule.period_ps))
    ended = ending.awaited()

    def stopping() -> bool:
        past = duration_s is not None and time.monotonic_ns() - zero_ns > duration_s * 1e9
        return past or bool(ended)

    def tell(message: dict[str, Any]) -> None:
        print(run.as_line(message), flush=True)

    seen = run.Seen()
    with Ports(agent, wire(), zero_ns) as ports:
        if arguments.controller is None:
            run.run(agent, ports, None, tell, stopping, zero_ns, seen.add)
            say(seen.line(agent))
            return ended[0] if ended else 0
        address, port = address_of(arguments.controller)
        join, is_key = words.join(schedule, agent.nic), arguments.key is not None
        with Link(address, port, secret, join, say, is_key) as link:
            run.run(agent, ports, link, tell, stopping, zero_ns, seen.add)
    say(seen.line(agent))
    return ended[0] if ended else 0


_Placed = tuple["Schedule", int, bytes, Callable[[], "Wire"]]


def _on_fabric(arguments: argparse.Namespace) -> _Placed:
    """The schedule, this NIC, the secret and the wire of a host file."""
    from openmrc.ops.mapper.live import SegmentRouting
    from openmrc.verbs import hostfile
    from openmrc.verbs import secret as secrets

    host = hostfile.read(arguments.host)
    _, fabric = hostfile.section(host, arguments.host)
    secret = key_of(arguments)
    if arguments.controller is not None and not secret:
        try:
            secret = secrets.check(hostfile.secret(arguments.host))
        except InputError as error:
            raise error.at("--controller: the host file") from None
    schedule = schedule_of(arguments, fabric)
    return schedule, host["nic"], secret, lambda: SegmentRouting(fabric, host)


def _on_network(arguments: argparse.Namespace) -> _Placed | None:
    """The same for `--network`."""
    if arguments.network is None:
        if arguments.secret is not None:
            raise InputError("--secret: only with --network; a host file has the job's secret")
        return None
    if arguments.host is not None:
        raise InputError("--host and --network: one of them says what this host is")
    if arguments.secret is not None and arguments.controller is None:
        raise InputError("--secret: only with --controller, which asks for it")
    if arguments.secret is not None and arguments.key is not None:
        raise InputError("--secret and --key: one of them proves who this is")
    from openmrc.live.endpoint import links
    from openmrc.ops.mapper import ends
    from openmrc.scenario.scenario import fabric_section
    from openmrc.verbs import secret as secrets

    network = ends.read(arguments.network)
    fabric = fabric_section(network.fabric_table).build()
    try:
        nic = network.own([address for _, address in links.addresses()])
    except InputError as error:
        raise error.at(str(arguments.network)) from None
    secret = key_of(arguments)
    if arguments.controller is not None and not secret:
        secret = secrets.needed(arguments.secret)
    schedule = schedule_of(arguments, fabric, network)
    return schedule, nic, secret, lambda: ends.Datagrams(network, fabric, nic)


def key_of(arguments: argparse.Namespace) -> bytes:
    """The key of this NIC's agent; none if no option names it."""
    from openmrc.verbs import secret as secrets

    if arguments.key is None:
        return b""
    if arguments.controller is None:
        raise InputError("--key: only with --controller, which asks for it")
    return secrets.given(arguments.key, "--key") or b""


def address_of(text: str) -> tuple[str, int]:
    """Return the address and the port that `--controller` names."""
    host, colon, port = text.rpartition(":") if text.count(":") == 1 else (text, "", "")
    _check_host("--controller", host)
    if not colon:
        return text, PORT
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise InputError(f"--controller {text}: ADDRESS or ADDRESS:PORT is accepted")
    return host, int(port)


def _check_host(option: str, host: str) -> None:
    """Raise `InputError` for a text that no address and no name of a host can be."""
    try:
        host.encode("idna")
    except UnicodeError:
        raise InputError(f"{option} {host}: is no address, and no name of a host") from None


def _controller(arguments: argparse.Namespace) -> int:
    import ssl

    from openmrc.ops.mapper import ends
    from openmrc.ops.mapper.history import History
    from openmrc.ops.mapper.server import Controller
    from openmrc.scenario.scenario import fabric_section, load_lab
    from openmrc.scenario.toml import as_table
    from openmrc.verbs import secret as secrets

    secret = secrets.needed(arguments.secret)
    _check_host("--listen", arguments.listen)
    file = Path(arguments.scenario)
    network = ends.read(file) if ends.is_one(file) else None
    if network is not None and arguments.nics:
        raise InputError(f"--nics: EVs are paths of a fabric; {file} describes a network")
    if network is not None and arguments.set:
        raise InputError(f"--set: changes a scenario; {file} describes a network")
    if network is None:
        section = load_lab(arguments.scenario, arguments.set).fabric
    else:
        section = fabric_section(network.fabric_table)
    schedule = schedule_of(arguments, section.build(), network)
    tls = None
    if arguments.cert is not None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            check_file(arguments.cert, "a certificate with its key, as PEM")
            tls.load_cert_chain(arguments.cert)
        except ssl.SSLError:
            raise InputError(
                f"--cert {arguments.cert}: no certificate with its key, both PEM in one file"
            ) from None
        except OSError as error:
            raise InputError(f"--cert {arguments.cert}: {error.strerror or error}") from None
    ended = ending.awaited()
    sys.setswitchinterval(SWITCH_S)
    with History(arguments.history) as history:
        history.fabric(as_table(section, kind=section.kind))
        try:
            controller = Controller(
                schedule,
                secret,
                history,
                arguments.port,
                arguments.http_port,
                arguments.listen,
                tls,
                say,
                Path(arguments.scenario).stem,
            )
        except (OSError, OverflowError) as error:
            asked = f"--listen {arguments.listen}, --port {arguments.port}"
            number = error.errno if isinstance(error, OSError) else None
            why = os.strerror(number) if number else error
            remedy = NOT_LISTENING.get(number or 0, "name others")
            raise InputError(
                f"{asked}, --http-port {arguments.http_port}: {why}; {remedy}"
            ) from None
        with controller:
            scheme = "http" if tls is None else "https"
            address = arguments.listen or "0.0.0.0"
            address = f"[{address}]" if ":" in address else address
            say(f"Agents connect to port {controller.port}, a period is {_ms(schedule)}.")
            if tls is None and not _is_loopback(arguments.listen):
                say("HTTP is readable on its way, and so is the token; --cert FILE serves HTTPS.")
            print(f"{scheme}://{address}:{controller.http_port}/", flush=True)
            while not ended and controller.failure is None:
                time.sleep(0.1)
            if isinstance(controller.failure, sqlite3.Error):
                why = str(controller.failure)
                raise OutputError(arguments.history, why, "make room, or name another --history")
            if controller.failure is not None:
                raise controller.failure
    return ended[0]


def _is_loopback(address: str) -> bool:
    import ipaddress

    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def _ms(schedule: Schedule) -> str:
    from openmrc.units import fmt_time

    return fmt_time(schedule.period_ps)
