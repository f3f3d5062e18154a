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
from collections.abc import Iterator, Sequence

from openmrc.conform.capture import Capture, Seen
from openmrc.conform.outcome import Outcome
from openmrc.conform.run import FAIL, NOT_APPLICABLE, PASS
from openmrc.conform.script import Rule
from openmrc.conform.sentences import Sentence, read

BACK_MAX = 256  # earlier packets searched if no field selects one


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
