"""Sentences about packets: what chooses them, and what must hold for them.

    each sack: psn=cack_psn
    each data rtx=1 after data psn=$.psn: va=$.va

`each KIND CONDITIONS: CONDITIONS`. A condition compares two sums of fields and numbers, as the
fields wrap on the wire; `x` is a field of the packet, `$.x` one of what it is compared with.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property

from openmrc.conform.events import COMPARE, NAMES
from openmrc.conform.script import Step
from openmrc.errors import InputError
from openmrc.wire import layout

BITS = {
    **dict.fromkeys(("psn", "cack_psn", "nack_psn", "rcvd_bytes"), 24),
    **dict.fromkeys(("msn", "rqmsn", "tx_timestamp", "id", "probe_id", "dpdcid", "spdcid"), 16),
    "va": 64,
}
_NAMES = {**NAMES, "dscp": layout.DSCPS, "ecn": layout.ECNS}
_SENTENCE = re.compile(r"each (\w+)((?: \S+)*?)(?: (after|answers) (\w+)((?: \S+)*?))?: (.+)")
_CONDITION = re.compile(r"(.+?)(!=|<=|>=|=|<|>)(.+)")
_TERM = re.compile(r"([+-]?)(\$\.)?(\w[\w-]*?)(?=[+-]|$)")
_COMPARE: dict[str, Callable[[int, int], bool]] = {**COMPARE, "<": operator.lt, ">": operator.gt}
Fields = Mapping[str, int]


@dataclass(frozen=True)
class Term:
    """A number, or a field: of the chosen packet (`own`), or of the one found."""

    sign: int
    own: bool
    name: str
    number: int | None

    def of(self, chosen: Fields, found: Fields) -> int | None:
        """Its value; None if the packet has no such field."""
        if self.number is not None:
            return self.sign * self.number
        value = (chosen if self.own else found).get(self.name)
        return None if value is None else self.sign * value


@dataclass(frozen=True)
class Condition:
    """Two sums, compared; `bits` is the width of their unit on the wire."""

    left: tuple[Term, ...]
    sign: str
    right: tuple[Term, ...]
    bits: int

    def says(self, chosen: Fields, found: Fields) -> bool | None:
        """Whether the condition holds; None if a field is missing."""
        fields, difference = self._difference
        for sign, own, name in fields:
            if (value := (chosen if own else found).get(name)) is None:
                return None
            difference += sign * value
        half = 1 << self.bits - 1
        return _COMPARE[self.sign]((difference + half) % (2 * half) - half, 0)

    @cached_property
    def _difference(self) -> tuple[list[tuple[int, bool, str]], int]:
        """Left less right: signed fields, and the sum of the numbers."""
        terms = [(1, t) for t in self.left] + [(-1, t) for t in self.right]
        fields = [(sign * t.sign, t.own, t.name) for sign, t in terms if t.number is None]
        return fields, sum(sign * t.sign * t.number for sign, t in terms if t.number is not None)

    def holds(self, chosen: Fields, found: Fields) -> bool:
        """Whether the condition holds; it does not if a field is missing."""
        return bool(self.says(chosen, found))

    @property
    def key(self) -> str | None:
        """The field of the packet searched for that must have one value, if the condition
        says so.
        """
        [first, *more] = self.left
        bare = not more and not first.own and first.number is None
        return first.name if bare and self.sign == "=" else None

    def value(self, chosen: Fields) -> int | None:
        """The value that this field must have."""
        values = [t.of(chosen, {}) for t in self.right]
        if None in values:
            return None
        return sum(v for v in values if v is not None) % (1 << self.bits)


@dataclass(frozen=True)
class Sentence:
    """One statement of a rule."""

    kind: str
    chosen: tuple[Condition, ...]
    how: str | None  # "after", "answers"
    other: str
    joined: tuple[Condition, ...]
    must: tuple[Condition, ...]


@cache
def read(step: Step) -> Sentence:
    """Parse a line. `InputError` if it is not a statement."""
    matched = _SENTENCE.fullmatch(step.text)
    if not matched:
        raise InputError(
            f"{step.text!r}: each KIND CONDITIONS [after|answers KIND ...]: CONDITIONS"
        )
    kind, chosen, how, other, joined, must = matched.groups()
    return Sentence(
        kind, _conditions(chosen), how, other or "", _conditions(joined or ""), _conditions(must)
    )


def _conditions(text: str) -> tuple[Condition, ...]:
    return tuple(_condition(word) for word in text.split())


def _condition(word: str) -> Condition:
    matched = _CONDITION.fullmatch(word)
    if not matched:
        raise InputError(f"{word!r} is no condition, such as psn=$.cack_psn")
    left = _sum(matched[1], {})
    names = {name: value for value, name in _NAMES.get(left[0].name, {}).items()}
    return Condition(left, matched[2], _sum(matched[3], names), BITS.get(left[0].name, 66))


def _sum(text: str, names: dict[str, int]) -> tuple[Term, ...]:
    if text in names:
        return (Term(1, False, "", names[text]),)
    found = list(_TERM.finditer(text))
    if "".join(match[0] for match in found) != text:
        raise InputError(f"{text!r} is no sum of fields and numbers")
    return tuple(
        Term(-1 if m[1] == "-" else 1, bool(m[2]), m[3], int(m[3]) if m[3].isdigit() else None)
        for m in found
    )
