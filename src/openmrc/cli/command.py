"""The command `mrc`. Results go to standard output, messages and progress to standard error.

Exit status: 0; 1 if a flow failed or did not finish without a stated end; 2 for bad input, with one
line that says what to change; 3 if results cannot be written, with one line that says where; 128
and its number for the signal that interrupted it: 130 after Ctrl-C. Nothing heavy is imported
before a run starts.
"""

from __future__ import annotations

import argparse
import gc
import sys
import warnings
from collections.abc import Sequence
from typing import TextIO

from openmrc.cli import interrupts, streams
from openmrc.cli import lab as labs
from openmrc.cli.parser import make_parser
from openmrc.ending import EXIT_INTERRUPTED
from openmrc.ending import status as status_of_signal
from openmrc.errors import OpenMrcError, OutputError, Remark
from openmrc.say import check as check_form
from openmrc.say import say

EXIT_NOBODY_READS, EXIT_BAD_INPUT, EXIT_NOT_WRITTEN = 1, 2, 3
# Commands that have another name now.
OLD_NAMES = {
    "export": ("switches",),
    "mapper": ("ops", "agent"),
    "controller": ("ops", "controller"),
    "telemetry": ("ops",),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    # A sixth of the start is garbage collection among libraries that stay loaded; a run makes no
    # garbage.
    gc.disable()
    try:
        with streams.prepared():
            check_form()
            warnings.showwarning = _said
            try:
                status = _run_command(sys.argv[1:] if argv is None else argv)
                return status_of_signal() if status == EXIT_INTERRUPTED else status
            finally:
                sys.stdout.flush()
    except OutputError as error:
        streams.hush()
        say(f"mrc: {error}")
        return EXIT_NOT_WRITTEN
    except OpenMrcError as error:
        say(f"mrc: {error}")
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        interrupts.heard()
        say("mrc: interrupted")
        return status_of_signal()
    except BrokenPipeError:  # the reader, such as `head`, has left
        streams.hush()
        return EXIT_NOBODY_READS
    except OSError as error:
        streams.hush()
        say(f"mrc: {streams.described(error)}")
        return EXIT_BAD_INPUT if streams.is_nowhere(error) else EXIT_NOT_WRITTEN


_as_usual = warnings.showwarning


def _said(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Say a remark on the input in one line, as an error is; show other warnings as Python does."""
    if issubclass(category, Remark):
        say(f"{message}")
    else:
        _as_usual(message, category, filename, lineno, file, line)


def _run_command(argv: Sequence[str]) -> int:
    ours, theirs = labs.split(_renamed(argv))
    if not ours:
        print(make_parser().format_help(), end="")
        return 0
    arguments = make_parser().parse_args(ours, argparse.Namespace(theirs=theirs))
    status: int = arguments.run(arguments)
    return status


def _renamed(argv: Sequence[str]) -> list[str]:
    """A command line in today's names; what is asked with an old one is told the new one."""
    first, rest = argv[:1], list(argv[1:])
    if not first or first[0] not in OLD_NAMES:
        return list(argv)
    now = OLD_NAMES[first[0]]
    say(f"mrc {first[0]} is mrc {' '.join(now)} now.")
    return [*now, *rest]
