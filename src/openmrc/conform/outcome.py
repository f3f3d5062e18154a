"""The outcome of a rule, as plain values: for JSON, JUnit, pages, and between processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from openmrc.conform.run import FAIL, Verdict


@dataclass(frozen=True)
class Outcome:
    """A verdict as text. For a rule that fails: its statement, what was sent, and what arrived."""

    rule: str
    group: str
    role: str
    says: str
    source: str
    outcome: str
    why: str = ""
    line: int = 0
    sent: str = ""
    came: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return asdict(self)

    @property
    def shown(self) -> list[str]:
        """Return the lines that show why it failed."""
        lines = [f"{self.group}.rules line {self.line}: {self.why}"]
        lines += [f"sent  {self.sent}"] if self.sent else []
        return [*lines, f"came  {self.came or 'nothing'}"]


def of(verdict: Verdict) -> Outcome:
    """Return a verdict as text."""
    rule, failed = verdict.rule, verdict.outcome == FAIL
    return Outcome(
        rule=rule.name,
        group=rule.group,
        role=rule.role,
        says=rule.says,
        source=rule.source,
        outcome=verdict.outcome,
        why=verdict.why,
        line=verdict.step.line if failed and verdict.step else 0,
        sent=str(verdict.sent or ""),
        came=str(verdict.came or ""),
    )


def count(outcomes: Sequence[Outcome], outcome: str) -> int:
    """Return the number of rules with this outcome."""
    return sum(each.outcome == outcome for each in outcomes)
