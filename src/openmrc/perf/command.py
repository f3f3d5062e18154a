"""`mrc perf write_bw` and `mrc perf write_lat`: options as perftest's, server and client.

The server is started without a host and follows what its client says, so only the client takes
the options of a measurement. `--ranks` gives the same words to both, two hosts of a lab whose
ranks say which is which. `--overlay` runs both ends in this process. `--planes` measures between
two hosts of an ordinary network, by plain UDP.
"""

from __future__ import annotations

import argparse
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openmrc.errors import InputError

if TYPE_CHECKING:
    from openmrc.perf.plan import Plan
    from openmrc.perf.run import Planes

TESTS = {
    "write_bw": "bandwidth of RDMA WRITE",
    "write_lat": "latency of RDMA WRITE with immediate, half a round trip",
}
# (option, attribute): options of a measurement, for the client only
CLIENTS = (
    ("--size", "message_bytes"),
    ("--all", "all"),
    ("--iters", "iters"),
    ("--duration", "duration"),
    ("--qps", "qps"),
    ("--tx-depth", "tx_depth"),
    ("--bidirectional", "bidirectional"),
    ("--out", "out"),
)


def add_command(commands: Any) -> list[argparse.ArgumentParser]:
    """Add `perf`, whose tests take --json themselves."""
    perf = commands.add_parser(
        "perf",
        help="measure bandwidth or latency between two hosts, like perftest",
        description="Server on one host: mrc perf TEST. Client on the other: mrc perf TEST HOST.",
    )
    tests = perf.add_subparsers(dest="test", required=True, metavar="TEST")
    for name, words in TESTS.items():
        _add_test(tests.add_parser(name, help=words), name)
    return []


def _add_test(test: argparse.ArgumentParser, name: str) -> None:
    add = test.add_argument
    add(
        "host",
        metavar="HOST",
        nargs="?",
        help="address of the server; without it this is the server",
    )
    add(
        "-s",
        "--size",
        metavar="BYTES",
        dest="message_bytes",
        help="bytes of a message, such as 65536 or 64KiB",
    )
    add("-a", "--all", action="store_true", default=None, help="sizes 2 B to 8 MB")
    add("-n", "--iters", metavar="N", type=int, help="messages of each size and queue pair")
    add(
        "-D",
        "--duration",
        metavar="S",
        type=float,
        help="seconds for each size, instead of --iters",
    )
    if name == "write_bw":
        add("-q", "--qps", metavar="N", type=int, help="queue pairs (default: 1)")
        add("-t", "--tx-depth", metavar="N", type=int, help="writes posted on each (default: 128)")
        add("-b", "--bidirectional", action="store_true", default=None, help="both ends write")
    else:
        test.set_defaults(qps=None, tx_depth=None, bidirectional=None)
    add("-p", "--port", metavar="PORT", type=int, help="TCP port of the server (default: 18515)")
    add("--planes", metavar="A,B", help="plain UDP over these interfaces or addresses of this host")
    add("--udp-port", metavar="PORT", type=int, help="UDP port (default: 4791 or the next free)")
    add("--rate", metavar="RATE", help="rate of a plane, if not its interface's")
    add("--dscp", metavar="CLASS=N,...", help="DSCPs of --planes, such as control=48")
    add(
        "--secret",
        metavar="FILE",
        help="file with the job's secret in hex (default: OPENMRC_SECRET, or the host file's)",
    )
    add("--ranks", action="store_true", help="in a lab of two: rank 0 serves, rank 1 measures")
    add("--overlay", metavar="PLANES", type=int, help="both ends in one process, over loopback")
    add("--spin", action="store_true", help="never sleep while waiting: a core for each thread")
    add("--metrics", metavar="PORT", type=int, help="serve counters to Prometheus on loopback")
    add(
        "--out",
        metavar="DIR",
        type=Path,
        help="of a client on a fabric: what its paths lost, as a results directory for mrc why",
    )
    add("--json", action="store_true", help="print JSON and nothing else")
    test.set_defaults(run=_run, test=name)


def _run(arguments: argparse.Namespace) -> int:
    from openmrc.perf import ends, run
    from openmrc.report.directory import check_directory

    port = ends.PORT if arguments.port is None else arguments.port
    if not 1 <= port <= 65_535:
        raise InputError(f"--port {port}: 1 to 65535 is accepted")
    planes = _planes(arguments)
    if arguments.out is not None:
        check_directory(arguments.out)
        if planes is not None or arguments.overlay is not None:
            raise InputError("--out: without a fabric there are no places to name; leave it out")
    common = run.Common(arguments.json, arguments.spin, arguments.metrics, planes, arguments.out)
    if arguments.overlay is not None:
        for name, value in (
            ("HOST", arguments.host),
            ("--port", arguments.port),
            ("--secret", arguments.secret),
            ("--ranks", arguments.ranks or None),
            ("--planes", arguments.planes),
        ):
            if value is not None:
                raise InputError(f"both --overlay and {name}; the overlay has no other end")
        return run.overlay(_plan(arguments), arguments.overlay, secrets.token_bytes(16), common)
    if arguments.ranks:
        if arguments.host is not None:
            raise InputError("both --ranks and HOST; name one or the other")
        arguments.host = _host_by_rank()
        if arguments.host is None:
            _plan(arguments)  # report its errors here, where a client would report them alone
            return run.server(arguments.test, port, _secret(arguments), common)
    if arguments.host is None:
        for option, attribute in CLIENTS:
            if getattr(arguments, attribute) is not None:
                raise InputError(f"{option} without HOST: the client says it, the server follows")
        return run.server(arguments.test, port, _secret(arguments), common)
    return run.client(_plan(arguments), arguments.host, port, _secret(arguments), common)


def _host_by_rank() -> str | None:
    """The server's address, or None: this is the server. `mrc lab` says which (docs/lab.md)."""
    hosts = os.environ.get("OPENMRC_HOSTS", "").split(",")
    rank = os.environ.get("OPENMRC_RANK")
    if len(hosts) != 2 or rank not in ("0", "1"):
        raise InputError("--ranks: takes two hosts of a lab; mrc lab LAB.toml --hosts 0,1 -- ...")
    return hosts[0] if rank == "1" else None


def _planes(arguments: argparse.Namespace) -> Planes | None:
    """The planes of `--planes` and its related options; None: the host file describes the
    device.
    """
    from openmrc.fabric.dscp import Dscps
    from openmrc.perf.run import Planes
    from openmrc.units import parse_rate

    if arguments.planes is None:
        for name, value in (
            ("--udp-port", arguments.udp_port),
            ("--rate", arguments.rate),
            ("--dscp", arguments.dscp),
        ):
            if value is not None:
                raise InputError(f"{name} without --planes: a host file says it")
        return None
    try:
        rate_bps = None if arguments.rate is None else parse_rate(arguments.rate)
    except InputError as error:
        raise error.at("--rate") from None
    names = tuple(name.strip() for name in arguments.planes.split(","))
    try:
        Dscps.parse(arguments.dscp or "")
    except InputError as error:
        raise error.at("--dscp") from None
    return Planes(names, arguments.udp_port, rate_bps, arguments.dscp or "")


def _secret(arguments: argparse.Namespace) -> bytes:
    from openmrc.verbs import hostfile
    from openmrc.verbs import secret as secrets

    found = secrets.given(arguments.secret)
    if found is None and arguments.planes is None:
        return hostfile.secret()
    return secrets.needed(arguments.secret) if found is None else found


def _plan(arguments: argparse.Namespace) -> Plan:
    from openmrc.perf import plan

    test = arguments.test
    if arguments.all and arguments.message_bytes is not None:
        raise InputError("both --all and --size; name one or the other")
    if arguments.iters is not None and arguments.duration is not None:
        raise InputError("both --iters and --duration; name one or the other")
    sizes: tuple[int, ...] = (plan.SIZE[test],)
    if arguments.all:
        sizes = plan.ALL_SIZES
    elif arguments.message_bytes is not None:
        sizes = (_size(arguments.message_bytes),)
    if arguments.duration is not None:
        iterations, duration_s = 0, arguments.duration
        if not duration_s > 0:
            raise InputError(f"--duration {duration_s:g}: 0.01 or more is accepted")
    else:
        iterations, duration_s = arguments.iters, 0.0
        iterations = plan.ITERATIONS[test] if iterations is None else iterations
    return plan.Plan(
        test,
        sizes,
        iterations,
        duration_s,
        1 if arguments.qps is None else arguments.qps,
        plan.TX_DEPTH if arguments.tx_depth is None else arguments.tx_depth,
        bool(arguments.bidirectional),
    )


def _size(given: str) -> int:
    from openmrc.units import parse_size

    try:
        return int(given) if given.isascii() and given.isdigit() else parse_size(given)
    except InputError as error:
        raise error.at("--size") from None
