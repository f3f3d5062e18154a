"""The `mrc` command."""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers take it for True; nothing is loaded before `main` runs
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "main",
]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command in a process of its own; return its exit status."""
    # What `signal` is made of, without the time that it takes.
    import _signal  # type: ignore[import-not-found]  # typeshed leaves it out

    # While the command loads there is nothing to report: Ctrl-C ends it as SIGTERM does.
    usual = _signal.getsignal(_signal.SIGINT)
    if usual is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    from openmrc import ending
    from openmrc.cli.command import main as run
    from openmrc.cli.interrupts import keep
    from openmrc.cli.streams import forget_messages

    try:
        _signal.signal(_signal.SIGINT, usual)
        keep()
        return run(argv)
    except KeyboardInterrupt:  # before `run` handles it, or once more meanwhile
        return ending.status()
    finally:
        forget_messages()
