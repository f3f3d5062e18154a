"""Places for people: "plane 3 t0 5 to t1 2", and what the people there call them.

A file of names says what places are called: hosts, racks, switches, cables.

    "nic 3" = "gpu-17, rack 4"
    "plane 2 t0 1" = "leaf-2-1"
    "plane 2 t0 1 - t1 3" = "cable C-0412"
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from openmrc import reading
from openmrc.errors import InputError
from openmrc.fabric import places
from openmrc.fabric.model import Fabric
from openmrc.ops import causes

NAME_MAX = 200  # characters


def names(file: Path, fabric: Fabric | None) -> dict[str, str]:
    """Read a file of names. Raises `InputError` for what is no place of the fabric, if known."""
    text = reading.read_text(file, "a TOML file of names")
    try:
        table = reading.toml(text)
    except ValueError as error:
        raise InputError(f"{file}: is no TOML ({error})") from None
    for where, name in table.items():
        if not isinstance(name, str) or len(name) > NAME_MAX:
            raise InputError(f'{file}: "{where}": a name of up to {NAME_MAX} letters is accepted')
        if fabric is not None:
            try:
                places.ports(fabric, where)
            except InputError as error:
                raise InputError(f'{file}: "{where}": {error}') from None
    return table


class Spoken:
    """How places are spoken of; without a fabric as they stand, with their names."""

    def __init__(self, fabric: Fabric | None, named: Mapping[str, str]) -> None:
        self._fabric, self._named = fabric, named

    def __call__(self, where: str) -> str:
        """Return a place for people, the sender first: "plane 3 t0 5 to t1 2"; or places."""
        if ", " in where:
            return " and ".join(self(each) for each in places.split(where))
        own = self._own(where)
        if self._fabric is None or (" > " not in where and " < " not in where):
            return f"{where}{own}"
        if "*" in where:
            return f"{_of_many(where)}{own}"
        sends, receives = causes.ends(self._fabric, int(places.links(self._fabric, where)[0]))
        near, far = (f"{end.device}{self._own(end.device)}" for end in (sends, receives))
        if near.startswith("plane") and far.startswith("plane"):
            far = " ".join(far.split()[2:])
        return f"{near} to {far}{own}"

    def _own(self, where: str) -> str:
        """What people call a place, or its cable."""
        cable = where.replace(" > ", " - ").replace(" < ", " - ")
        found = self._named.get(where) or self._named.get(cable)
        if found is None and where.startswith("nic"):
            found = self._named.get(cable.removesuffix(" - t0"))
        return f" ({found})" if found else ""


def _of_many(where: str) -> str:
    """Links with a star for one end: "plane 3 t1 * to t0 5"."""
    below, arrow, above = where.partition(" > ")
    if arrow:
        return f"{below} to {above}"
    below, _, above = where.partition(" < ")
    if below.startswith("nic"):
        return f"{above} to {below}"
    plane, lower = " ".join(below.split()[:2]), " ".join(below.split()[2:])
    return f"{plane} {above} to {lower}"
