"""The DSCPs of a fabric as one table, used by NICs, switches and readers of captures.

MRC 2.13 fixes the names; a fabric chooses the values (`[fabric] dscp`, `--dscp`).
"""

from __future__ import annotations

from typing import NamedTuple, Self

from openmrc.errors import InputError
from openmrc.units import integer

BITS, MASK = 6, 0x3F
# Which lengths of a trimmed packet a switch adjusts: all of them; that of the first IP header, as
# SAI's text says; or none, as SONiC's VPP switch does it.
TRIM_LENGTHS = ("all", "outer", "none")


class Dscps(NamedTuple):
    """One value of 0 to 63 for each class; all differ, so that the value identifies the class."""

    no_trim: int = 0
    trimmable: int = 4
    trimmable_retx: int = 8
    trimmed: int = 12
    trimmed_lasthop: int = 16
    control: int = 46

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the table of "trimmed=11, trimmed_lasthop=21"; classes that are not named keep
        their default.

        Raises `InputError`.
        """
        given: dict[str, int] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            name, _, value = (word.strip() for word in part.partition("="))
            if name not in cls._fields or name in given:
                once = "once each: " if name in given else ""
                raise InputError(
                    f"{part!r}: accepted, {once}{', '.join(cls._fields)}, as trimmed=11"
                )
            if not (value.isascii() and value.isdigit() and integer(value) <= MASK):
                raise InputError(f"{part!r}: a DSCP is 0 to {MASK}")
            given[name] = int(value)
        return cls(**given).checked()

    def checked(self) -> Self:
        """Return the table itself; `InputError` if two classes have the same value."""
        for name, value in self._asdict().items():
            if (other := self._fields[self.index(value)]) != name:
                raise InputError(f"{other} and {name} are both {value}: each class needs its own")
        return self

    @property
    def text(self) -> str:
        """Return the table as text that `parse` reads."""
        return ", ".join(f"{name}={value}" for name, value in self._asdict().items())

    @property
    def names(self) -> dict[int, str]:
        """Names of the classes as MRC writes them, by value."""
        return {value: name.upper() for name, value in self._asdict().items()}

    @property
    def trims(self) -> tuple[int, int]:
        """The values of trimmed packets."""
        return self.trimmed, self.trimmed_lasthop

    @property
    def packed(self) -> int:
        """All values packed into one integer, as compiled code takes them (`wire.classes`)."""
        return sum(value << BITS * place for place, value in enumerate(self))


DEFAULT = Dscps()
