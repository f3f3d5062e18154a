"""`mrc build-lib`: MRC's C API as shared libraries."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

from openmrc.say import say

DIRECTORY = "build/libmrc"


def add_command(commands: Any) -> list[argparse.ArgumentParser]:
    """Add `build-lib`, which prints no JSON."""
    parser = commands.add_parser(
        "build-lib",
        help="build libmrc.so: MRC's public C API over real frames",
        description="Write headers and a stub of C, and compile libmrc.so and a small"
        " libibverbs.so.1 for programs written against MRC's public C API. Needs a C compiler.",
    )
    words = f"output directory (default: {DIRECTORY})"
    parser.add_argument("--out", metavar="DIR", type=Path, default=Path(DIRECTORY), help=words)
    words = "check the stub's use of memory: programs run with libasan preloaded"
    parser.add_argument("--asan", action="store_true", help=words)
    parser.set_defaults(run=_build)
    return []


def _build(arguments: argparse.Namespace) -> int:
    from openmrc.capi import build, hot
    from openmrc.verbs.cabled import prepare

    out = arguments.out.resolve()
    made = build.build(out, build.ASAN if arguments.asan else ())
    prepare()
    hot.warm_up()
    for one in made:
        print(one)
    options = ["-I", f"{out}/include", "PROGRAM.c", "-L", f"{out}"]
    say(shlex.join(["cc", *options, "-lmrc", "-libverbs", f"-Wl,-rpath,{out}"]))
    return 0
