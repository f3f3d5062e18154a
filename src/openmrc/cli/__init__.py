"""The `mrc` command."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command in a process of its own; return its exit status."""
    try:
        from openmrc.cli import interrupts

        interrupts.keep()
        from openmrc.cli.command import main as run
    except KeyboardInterrupt:  # while it loads: there is nothing to report yet
        return 130
    return run(argv)
