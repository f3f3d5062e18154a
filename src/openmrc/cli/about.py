"""`mrc help COMMAND` and `mrc version`, for who does not think of an option."""

from __future__ import annotations

import argparse
from typing import Any

from openmrc.version import __version__


def add_command(commands: Any) -> list[argparse.ArgumentParser]:
    """Add `help` and `version`."""
    words = "print every option of a command"
    of_help = commands.add_parser("help", help=words, description="The same as COMMAND --help.")
    words = "such as run, or ops agent (default: list all commands)"
    of_help.add_argument("words", metavar="COMMAND", nargs="*", help=words)
    of_help.set_defaults(run=_help)
    version = commands.add_parser("version", help="print the version of openmrc")
    version.set_defaults(run=_version)
    return []


def _help(arguments: argparse.Namespace) -> int:
    arguments.parser.parse_args([*arguments.words, "--help"])
    return 0


def _version(_: argparse.Namespace) -> int:
    print(version_line())
    return 0


def version_line() -> str:
    """What `mrc version` and `mrc --version` print."""
    return f"openmrc {__version__}"
