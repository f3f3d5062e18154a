"""Rules that hold always, beside the exchanges of all others."""

from __future__ import annotations

from collections.abc import Sequence

from openmrc.conform import script, whole
from openmrc.conform.events import Event
from openmrc.conform.model.watch import Breach
from openmrc.conform.run import FAIL, NOT_APPLICABLE, PASS, Verdict
from openmrc.conform.script import Rule

EXCHANGES = script.rules("responder")[:2]
ALWAYS = script.rules("responder", script.ALWAYS)[:3]


def tried(rule: Rule, always: Sequence[Rule]) -> Verdict:
    """Of three rules the first is broken in the second exchange, and the third has no packet."""
    came = Event(5, "sack", {"psn": 1})
    held = frozenset(each.name for each in always[:2])
    broken = rule == EXCHANGES[1] and always
    breaches = (Breach(always[0], always[0].steps[0], None, came, "psn"),) if broken else ()
    return Verdict(rule, PASS, breaches=breaches, held=held)


def test_each_has_an_outcome_of_its_own() -> None:
    told = whole.hold([*EXCHANGES, *ALWAYS], tried)
    assert [one.outcome for one in told] == [PASS, PASS, FAIL, PASS, NOT_APPLICABLE]
    assert told[2].why == f"in {EXCHANGES[1].name}: psn"
    assert told[2].came.startswith("    0.000 us  sack")


def test_alone_they_are_tried_in_every_exchange() -> None:
    seen: list[str] = []

    def one(rule: Rule, always: Sequence[Rule]) -> Verdict:
        seen.append(rule.name)
        return tried(rule, always)

    told = whole.hold(ALWAYS[1:2], one)
    assert seen == [rule.name for rule in script.rules()]
    assert [(each.rule, each.outcome) for each in told] == [(ALWAYS[1].name, FAIL)]


def test_without_them_an_exchange_is_all_there_is() -> None:
    assert [one.outcome for one in whole.hold(EXCHANGES, tried)] == [PASS, PASS]
