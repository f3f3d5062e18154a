"""`[[fault]]` of a scenario file: what fails, where and when."""

from __future__ import annotations

import dataclasses
import functools
import keyword
import operator
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_type_hints

import msgspec
from msgspec import UNSET, Meta, UnsetType

from openmrc.errors import InputError
from openmrc.fabric.kinds import KINDS, Fault, check
from openmrc.scenario.sections import Count, Label, Section, Share
from openmrc.scenario.toml import ByteCount, Time

Places = Annotated[str, Meta(min_length=1, max_length=10_000)]
PLACES_MAX = 10_000  # of one fault; "*" names many more


# What a file checks of a key before `fabric.kinds` does; for other keys, their type.
TYPES: dict[str, Any] = {
    "kind": Literal[KINDS],
    "where": Places | Annotated[tuple[Places, ...], Meta(min_length=1, max_length=PLACES_MAX)],
    "rate": Share,
    "mtu": ByteCount,
    "seed": Annotated[int, Meta(ge=0, le=2**63 - 1)],
    "links": Count,
    "nics": Label,
}


class FaultKeys(Section, frozen=True, kw_only=True):
    """One `[[fault]]`: what fails where and when; `fabric.kinds` says which keys go together."""

    def __post_init__(self) -> None:
        try:
            check(self.build())
        except InputError as error:
            raise ValueError(f".{error}") from None

    def build(self) -> Fault:
        """Return the fault in the fabric's form."""
        given = {
            each.name: value
            for each in dataclasses.fields(Fault)
            if (value := getattr(self, _attribute(each.name))) is not UNSET
        }
        return Fault(**given)


def _attribute(name: str) -> str:
    key = name.removesuffix("_ps")
    return f"{key}_" if keyword.iskeyword(key) else key


def _stated(kind: Any) -> Any:
    """The type of a key that is stated: a type without None."""
    if not isinstance(kind, UnionType):
        return kind
    return functools.reduce(operator.or_, (one for one in get_args(kind) if one is not NoneType))


def _keys() -> Iterator[tuple[str, Any] | tuple[str, Any, Any]]:
    """The fields of a fault as keys: their types in a file, and UNSET where they may be left
    out.
    """
    hints = get_type_hints(Fault)
    for each in dataclasses.fields(Fault):
        name, key = _attribute(each.name), each.name.removesuffix("_ps")
        kind = TYPES.get(key, Time if each.name.endswith("_ps") else hints[each.name])
        if each.default is dataclasses.MISSING:
            yield name, kind
        else:
            yield name, _stated(kind) | UnsetType, msgspec.field(name=key, default=UNSET)


if TYPE_CHECKING:

    class FaultSection(FaultKeys, frozen=True, kw_only=True):
        """`[[fault]]`, with the keys that code here reads by name."""

        at: Time
        kind: str
        rate: Share | UnsetType = UNSET
else:
    FaultSection = msgspec.defstruct(
        "FaultSection",
        list(_keys()),
        bases=(FaultKeys,),
        module=__name__,
        frozen=True,
        kw_only=True,
    )
