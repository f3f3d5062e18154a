"""One error family, with messages a user can act on.

Whatever openmrc raises on purpose derives from `OpenMrcError`. A message is one line that names the
place, the value found there and what would be accepted; the command prints it as it is.
"""

from __future__ import annotations

import warnings

from openmrc.printable import printable

MESSAGE_MAX = 2000  # characters: a word of a file, or of a peer, may have a million


def _line(message: str) -> str:
    """One printable line, whatever a file or a library put into the text: place and remedy, at its
    ends, are kept.
    """
    line = printable(" ".join(message.split()))
    half = MESSAGE_MAX // 2
    return line if len(line) <= MESSAGE_MAX else f"{line[:half]} ... {line[-half:]}"


class OpenMrcError(Exception):
    """Base of every error that openmrc raises on purpose."""

    def __init__(self, message: str) -> None:
        super().__init__(_line(message))


class InputError(OpenMrcError):
    """The input is invalid; the command prints the message and exits with status 2."""

    def at(self, place: str) -> InputError:
        """Return the same error with `place` ("fabric.nics", "a.topo:12") put in front."""
        return InputError(f"{place}: {self}")


class Remark(UserWarning):
    """The input is odd, and accepted; the command prints the message, and goes on."""


def remark(message: str) -> None:
    """Say that an input is odd: a Python warning."""
    warnings.warn(_line(message), Remark, stacklevel=2)


class OutputError(OpenMrcError):
    """The results cannot be written; the command exits with status 3."""

    def __init__(self, place: object, why: OSError | str, remedy: str = "") -> None:
        said = why if isinstance(why, str) else why.strerror or str(why)
        super().__init__(f"{place}: cannot be written ({said}){remedy and '; '}{remedy}")


class MissingExtra(OpenMrcError):
    """A feature needs an optional dependency that is not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs an extra: pip install 'openmrc[{extra}]'")
