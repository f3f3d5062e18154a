"""Rules are read from text, and what is wrong with one is said with its line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from openmrc.conform import events, script
from openmrc.conform.script import Time, read
from openmrc.errors import InputError

ROOT = Path(__file__).resolve().parents[2]
RULE = """
role responder

rule one   # with a remark
    What it
    says.
    source: MRC 2.6
    with: mpr=128 planes=1
    send data psn=+0 a=1
    expect sack cack_psn=+0 m!=SKIP_ONCE within 1.5rtt as first
    never nack for 2us
    port 1 down
"""


def test_a_rule_is_its_name_sentence_source_and_exchange() -> None:
    [rule] = read("group", RULE)
    assert (rule.name, rule.group, rule.role) == ("one", "group", "responder")
    assert (rule.says, rule.source) == ("What it says.", "MRC 2.6")
    assert rule.settings == {"mpr": 128, "planes": 1}
    send, expect, never, port = rule.steps
    assert (send.word, send.kind) == ("send", "data")
    assert send.conditions == (("psn", "=", "+0"), ("a", "=", "1"))
    assert expect.conditions[1] == ("m", "!=", "SKIP_ONCE")
    assert (expect.time, expect.name, expect.line) == (Time(1.5, "rtt"), "first", 10)
    assert never.time == Time(2, "us")
    assert port.kind == "1 down"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("role responder", "role switch", "group.rules line 2: 'switch': requester, responder are"),
        ("source: MRC 2.6", "source: hearsay", "one needs a source: MRC, row"),
        ("What it\n    says.\n", "", "one needs a role, a sentence and an exchange"),
        ("never nack", "perhaps nack", "line 11: 'perhaps' is no statement; arrive, each, expect"),
        ("1.5rtt", "soon", "line 10: 'soon' is no time; such as 5us, 2rtt or 1.5rto"),
        ("a=1", "a", "line 9: 'a' is neither FIELD=VALUE nor within, for, as"),
        ("down", "sideways", "line 12: 'sideways': down, up are accepted"),
        ("rule one", "# none", "line 5: 'What it' comes before the first rule"),
    ],
)
def test_what_is_no_rule_is_refused_with_its_line(old: str, new: str, words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        read("group", RULE.replace(old, new))


def test_the_kit_has_its_rules_and_each_has_a_name_of_its_own() -> None:
    rules = script.rules() + script.rules(kind=script.ALWAYS)
    assert len(rules) == len({rule.name for rule in rules}) == 417
    assert {rule.role for rule in rules} == {"requester", "responder"}
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"against {len(rules)} rules" in changes
    others = script.rules(kind=script.OF_CAPTURES)
    assert len(others) == len({rule.name for rule in others} - {rule.name for rule in rules}) == 34
    assert f"{len(others)} more rules" in changes


def test_every_field_that_a_rule_names_is_one() -> None:
    for rule in script.rules():
        for step in rule.steps:
            given = {"packet", "at", "got"} if step.word == "send" else set()
            for name, _, _ in step.conditions:
                if name not in given and step.word in ("send", "expect", "never"):
                    events.check_field(step.kind, name)


def test_every_source_is_a_line_of_the_documents() -> None:
    pages = [
        (ROOT / f"docs/{name}.md").read_text(encoding="utf-8") for name in ("protocol", "wire")
    ]
    known = set(re.findall(r"^(?:\| |### Row )([\d.]+)(?: \||:)", "\n".join(pages), re.M))
    kinds = ("", script.ALWAYS, script.OF_CAPTURES)
    for rule in (rule for kind in kinds for rule in script.rules(kind=kind)):
        assert set(re.findall(r"\d+(?:\.\d+)?", rule.source)) <= known, rule.name
