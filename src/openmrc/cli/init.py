"""`mrc init`: a commented scenario to begin with, and the schema by which editors complete it."""

from __future__ import annotations

import argparse
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

from openmrc.errors import InputError
from openmrc.newfile import write_new
from openmrc.reading import STANDARD_INPUT as STANDARD_OUTPUT
from openmrc.say import say

FILE = "scenario.toml"
TEMPLATES = {
    "mrc": "MRC alone",
    "roce": "MRC against RoCEv2",
    "adaptive": "MRC against switches that balance",
    "failures": "links that are cut and lose packets, a switch that goes silent",
    "training": "a training job",
}


def add_command(commands: Any) -> list[argparse.ArgumentParser]:
    """Add `init`, which prints no JSON."""
    parser = commands.add_parser(
        "init",
        help="write a commented scenario to start from",
        description="Write a commented scenario to FILE, which must not exist.",
    )
    add = parser.add_argument
    words = f"the scenario (default: {FILE}); - is standard output"
    add("file", metavar="FILE", nargs="?", default=FILE, help=words)
    words = "; ".join(f"{name}: {about}" for name, about in TEMPLATES.items())
    add("--template", metavar="NAME", default=next(iter(TEMPLATES)), help=words)
    words = "print the JSON schema of scenarios, for editors, and write no scenario"
    add("--schema", action="store_true", help=words)
    parser.set_defaults(run=_run)
    return []


def _run(arguments: argparse.Namespace) -> int:
    if arguments.schema:
        print(schema_file().read_text(encoding="utf-8"), end="")
        return 0
    text = template(arguments.template)
    if arguments.file == STANDARD_OUTPUT:
        sys.stdout.write(text)
        return 0
    # Editors (Taplo, Even Better TOML) complete and check a file by the schema of this line.
    write_new(Path(arguments.file), f"#:schema ./{schema_file().name}\n{text}")
    schema = Path(arguments.file).with_name(schema_file().name)
    say(f"mrc run {arguments.file} runs it; docs/scenario.md explains every key.")
    say(f"mrc init --schema > {schema} lets an editor complete and check it.")
    return 0


def template(name: str) -> str:
    """Return a template's text; raise `InputError` for an unknown name."""
    if name not in TEMPLATES:
        from openmrc.scenario.toml import meant

        raise InputError(
            f"--template {name}: there is no such template; {meant(name, TEMPLATES)}"
            f"accepted: {', '.join(TEMPLATES)}"
        )
    return _scenario_files().joinpath(f"templates/{name}.toml").read_text(encoding="utf-8")


def schema_file() -> Path:
    """Return the path of the schema on this machine."""
    return _scenario_files() / "scenario.schema.json"


def _scenario_files() -> Path:
    return Path(str(files("openmrc.scenario").joinpath("files")))
