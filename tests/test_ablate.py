"""Every rule that `benchmarks/ablate.py` switches off is one of the engine as it is."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.benchmark import load

ROOT = Path(__file__).parent.parent
load("checkouts")  # which it imports
ablate = load("ablate")


@pytest.mark.parametrize("name", ablate.RULES)
def test_a_rule_stands_once_and_without_it_the_engine_is_still_a_program(name: str) -> None:
    one = ablate.RULES[name]
    assert ablate.stands(one)
    text = (ROOT / ablate.ENGINE / one.file).read_text(encoding="utf-8")
    without = text.replace(one.text, one.instead)
    assert ast.dump(ast.parse(without)) != ast.dump(ast.parse(text))


def test_rules_name_rows_of_the_choices() -> None:
    choices = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^### Row (\d+):", choices, re.MULTILINE))
    assert {one.row for one in ablate.RULES.values()} - {"-"} <= rows


def test_the_rows_that_show_a_rule_most_are_told() -> None:
    base = {"a": {"p50": 10.0, "p100": 20.0, "sent again": 0.0},
            "b": {"p50": 10.0, "p100": 20.0, "sent again": 100.0}}  # fmt: skip
    without = {"a": {"p50": 10.1, "p100": 18.0, "sent again": 0.0},
               "b": {"p50": 10.0, "p100": 23.0, "sent again": 300.0}}  # fmt: skip
    compared = ablate.ratios(without, base)
    assert [ablate.extremes(compared, key) for key in ("p100", "p50", "sent again")] == [
        [("b", 1.15), ("a", 0.9)], [], [("b", 2.0)]
    ]  # fmt: skip
    name = next(iter(ablate.RULES))
    assert ablate.markdown({"": base, name: without}).endswith("| b 1.15; a 0.90 | - | b 2.00 |")
