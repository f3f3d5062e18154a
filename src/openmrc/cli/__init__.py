"""The `mrc` command."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command in a process of its own; return its exit status."""
    from openmrc import ending

    try:
        from openmrc.cli.interrupts import keep

        keep()
        from openmrc.cli.command import main as run
        from openmrc.cli.streams import forget_messages
    except KeyboardInterrupt:  # while it loads: there is nothing to report yet
        return ending.status()
    try:
        return run(argv)
    finally:
        forget_messages()
