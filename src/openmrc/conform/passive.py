"""Rules that need no exchange: packets of a capture are compared with each other.

    each sack: psn=cack_psn
    each data rtx=1 after data psn=$.psn: va=$.va
    each sack pr=0 answers data psn=$.cack_psn+$.ack_psn_offset: ev=$.entropy

`each KIND CONDITIONS` chooses packets; the conditions after the colon must hold for them. `after`
finds the last earlier packet of that kind to the same queue pair that matches, `answers` all
earlier ones from the peer, one of which must satisfy the conditions. A packet without a match is
not tested. In conditions `$.x` is a field of the chosen packet, `x` one of the packet found.
Numbers wrap as on the wire.
"""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from openmrc.conform.capture import Capture, Seen
from openmrc.conform.events import COMPARE, NAMES
from openmrc.conform.outcome import Outcome
from openmrc.conform.run import FAIL, NOT_APPLICABLE, PASS
from openmrc.conform.script import Rule, Step
from openmrc.errors import InputError
from openmrc.wire import layout

BACK_MAX = 256  # earlier packets searched if no field selects one
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
Fields = dict[str, int]


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

    def holds(self, chosen: Fields, found: Fields) -> bool:
        """Whether the condition holds; it does not if a field is missing."""
        terms = [t.of(chosen, found) for t in self.left], [t.of(chosen, found) for t in self.right]
        if None in terms[0] or None in terms[1]:
            return False
        left, right = (sum(t for t in side if t is not None) for side in terms)
        half = 1 << self.bits - 1
        return _COMPARE[self.sign]((left - right + half) % (2 * half) - half, 0)

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
    return Condition(left, matched[2], _sum(matched[3], names), BITS.get(left[0].name, 65))


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


def hold(rules: Sequence[Rule], capture: Capture) -> list[Outcome]:
    """Test a capture against rules, and return their outcomes, in order."""
    return [_hold(rule, capture) for rule in rules]


def _hold(rule: Rule, capture: Capture) -> Outcome:
    head = (rule.name, rule.group, rule.role, rule.says, rule.source)
    held = 0
    for step in rule.steps:
        sentence = read(step)
        for seen, others in _pairs(sentence, capture):
            held += 1
            fields = seen.event.fields
            found = [o.event.fields for o in others] if sentence.how else [fields]
            if any(all(c.holds(fields, each) for c in sentence.must) for each in found):
                continue
            before = str(others[0]) if others else ""
            return Outcome(*head, FAIL, step.text, step.line, before, str(seen))
    if held:
        return Outcome(*head, PASS)
    return Outcome(*head, NOT_APPLICABLE, "the capture has no such packets")


def _pairs(sentence: Sentence, capture: Capture) -> Iterator[tuple[Seen, list[Seen]]]:
    """The packets that a sentence applies to, each with those that it is compared with."""
    index = _Index(sentence)
    of_damage = any(t.name == "icrc_ok" for c in sentence.must for t in c.left)
    for seen in capture.packets:
        kind, fields = seen.event.kind, seen.event.fields
        if not (fields["icrc_ok"] or of_damage):
            continue  # nothing in it is trusted
        if kind == sentence.kind and all(c.holds(fields, fields) for c in sentence.chosen):
            if sentence.how is None:
                yield seen, []
            elif others := index.fitting(seen, _flow_of(sentence, seen, capture)):
                yield seen, others
        if sentence.how and kind == sentence.other:
            index.add(seen)


def _flow_of(sentence: Sentence, seen: Seen, capture: Capture) -> int | None:
    """The destination queue pair of the earlier packets."""
    if sentence.how == "after" or seen.event.kind == "response":  # responses are all for endpoints
        return seen.flow
    return capture.peers.get(seen.flow)


class _Index:
    """Earlier packets of one kind, by queue pair and, if a field selects one, by its value."""

    def __init__(self, sentence: Sentence) -> None:
        self._joined, self._last_only = sentence.joined, sentence.how == "after"
        self._key = next((c for c in sentence.joined if c.key), None)
        self._earlier: dict[tuple[int, int | None], list[Seen]] = {}

    def add(self, seen: Seen) -> None:
        """Add a packet for later ones to find."""
        name = self._key.key if self._key else None
        value = seen.event.fields.get(name) if name else None
        self._earlier.setdefault((seen.flow, value), []).append(seen)

    def fitting(self, seen: Seen, flow: int | None) -> list[Seen]:
        """Those for a queue pair that match what `seen` searches for; for `after` the last one."""
        if flow is None:
            return []
        fields = seen.event.fields
        value = self._key.value(fields) if self._key else None
        near = reversed(self._earlier.get((flow, value), [])[-BACK_MAX:])
        fits = (one for one in near if all(c.holds(fields, one.event.fields) for c in self._joined))
        if self._last_only:
            return list(itertools.islice(fits, 1))
        return list(fits)
