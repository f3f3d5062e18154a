"""The command `mrc doctor`: what of the live world runs on this machine, whether compiled code can
be kept, why not, and what to type.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from openmrc.errors import InputError


def add_command(commands: Any) -> list[argparse.ArgumentParser]:
    """Add `doctor`; return the parsers that take --json."""
    doctor: argparse.ArgumentParser = commands.add_parser(
        "doctor",
        help="check what the live world needs on this machine, and how to fix it",
        description="Test what the live world needs: packet sockets, namespaces, Linux's SRv6; and"
        " whether compiled code can be kept.",
    )
    words = "show what a torch.distributed job would use: interfaces, planes, PMTU, versions"
    doctor.add_argument("--torch", action="store_true", help=words)
    words = "check whether this host is fit for a job: ports, planes, and lost probes"
    doctor.add_argument("--node", action="store_true", help=words)
    doctor.add_argument("--host", metavar="FILE", help="with --node: default OPENMRC_HOST")
    doctor.set_defaults(run=_doctor)
    return [doctor]


def _doctor(arguments: argparse.Namespace) -> int:
    """Print one line per use; 0 if all are available, else 1."""
    if arguments.node:
        return _node(arguments.host, arguments.json)
    if arguments.host is not None:
        raise InputError("--host goes with --node; add it")
    if arguments.torch:
        return _torch(arguments.json)
    from openmrc.live.lab.needs import examine, lacking

    findings = examine()
    lacks = lacking(findings) | {"cache": _cache()}
    if arguments.json:
        print(
            json.dumps(
                {
                    "uses": {
                        use: {"can": not lines, "lacks": lines} for use, lines in lacks.items()
                    },
                    "checks": [
                        {"need": need, "lacks": line, "took_s": round(took_s, 4)}
                        for need, line, took_s in findings
                    ],
                },
                indent=2,
            )
        )
    else:
        for use, lines in lacks.items():
            print(f"{use:12} {'no' if lines else 'yes'}")
            for line in lines:
                print(f"{'':12} {line}")
    return 1 if any(lacks.values()) else 0


def _cache() -> list[str]:
    """Why compiled code cannot be kept; nothing if it can, or the simulator's is kept already."""
    from openmrc.jit.cache import trouble
    from openmrc.jit.warmup import is_cached

    why = "" if is_cached("sim") else trouble()
    return [f"{why}; OPENMRC_CACHE names another directory"] if why else []


def _node(file: str | None, as_json: bool) -> int:
    """Print whether this host is fit for a job, and why not; 0 if it is, else 1."""
    from dataclasses import asdict

    from openmrc.ops.mapper.node import examine
    from openmrc.verbs import hostfile

    host = hostfile.read(file)
    found = examine(hostfile.section(host, file)[1], host)
    if as_json:
        print(json.dumps(asdict(found), indent=2))
    else:
        print(f"nic {found.nic}: {'fit for a job' if found.fit else 'not fit for a job'}")
        for reason in found.reasons:
            print(f"  {reason}")
    return 0 if found.fit else 1


def _torch(as_json: bool) -> int:
    """Print what a training job would use; 0 if nothing is missing, else 1."""
    from openmrc.torch import doctor

    found = doctor.examine()
    print(json.dumps(found, indent=2) if as_json else "\n".join(doctor.lines(found)))
    return 1 if found["lacks"] else 0
