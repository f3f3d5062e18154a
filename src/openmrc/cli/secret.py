"""`mrc secret`: a new secret of a job, and what follows from one for an agent or a browser."""

from __future__ import annotations

import argparse
from typing import Any

from openmrc.errors import InputError


def add_command(commands: Any) -> list[argparse.ArgumentParser]:
    """Add `secret`, which prints no JSON."""
    parser = commands.add_parser(
        "secret",
        help="make a job's secret, or what follows from it",
        description="Print a new secret in hex, drawn at random. With --nic or --token: what"
        " follows from a job's secret, for one agent, or for requests to a controller.",
    )
    add = parser.add_argument
    add("--nic", metavar="N", type=int, help="key of this NIC's agent, for mrc ops agent --key")
    add("--token", action="store_true", help="token of requests to a controller and of its page")
    words = "file with the job's secret in hex (default: OPENMRC_SECRET)"
    add("--secret", metavar="FILE", help=words)
    parser.set_defaults(run=_secret)
    return []


def _secret(arguments: argparse.Namespace) -> int:
    from openmrc.verbs import secret as secrets

    nic = arguments.nic
    if nic is not None and arguments.token:
        raise InputError("--nic and --token: name one of them")
    if nic is None and not arguments.token:
        if arguments.secret is not None:
            raise InputError("--secret: only with --nic or --token; without them a new one is made")
        print(secrets.new().hex())
        return 0
    if nic is not None and nic < 0:
        raise InputError(f"--nic {nic}: the number of a NIC is accepted, 0 or more")
    secret = secrets.needed(arguments.secret)
    print(secrets.token(secret) if nic is None else secrets.of_agent(secret, nic).hex())
    return 0
