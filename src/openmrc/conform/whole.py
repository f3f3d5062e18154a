"""All rules against one target: each exchange, and beside it those rules that hold always."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from openmrc.conform import outcome, script
from openmrc.conform.outcome import Outcome
from openmrc.conform.run import FAIL, NOT_APPLICABLE, PASS, Verdict
from openmrc.conform.script import Rule

Try = Callable[[Rule, Sequence[Rule]], Verdict]


def hold(rules: Sequence[Rule], tried: Try) -> list[Outcome]:
    """Return the outcomes of rules, those that hold always last. `tried(rule, always)` runs one
    exchange. If rules that hold always are alone, they are tried in every exchange.
    """
    always = [rule for rule in rules if rule.group.startswith(script.ALWAYS)]
    exchanges = [rule for rule in rules if rule not in always]
    verdicts = [tried(rule, always) for rule in exchanges or script.rules()]
    told = [outcome.of(each) for each in verdicts if each.rule in exchanges]
    return told + [outcome.of(_always(rule, verdicts)) for rule in always]


def _always(rule: Rule, verdicts: Sequence[Verdict]) -> Verdict:
    """What all exchanges together say of a rule that holds always."""
    for each in verdicts:
        for breach in each.breaches:
            if breach.rule == rule:
                why = f"in {each.rule.name}: {breach.why}"
                return Verdict(rule, FAIL, why, breach.step, breach.sent, breach.came)
    if any(rule.name in each.held for each in verdicts):
        return Verdict(rule, PASS)
    return Verdict(rule, NOT_APPLICABLE, "no exchange has such a packet")
