"""The page, from findings made up here."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NoReturn

from openmrc.paper.case import Case
from openmrc.paper.catalogue import EXPERIMENTS
from openmrc.paper.experiment import Experiment, Finding
from openmrc.paper.page import figure_name, measured, number, page
from openmrc.paper.verdict import Bar, Check, around

ROOT = Path(__file__).resolve().parents[2]


def experiment(name: str, title: str) -> Experiment:
    def nothing(_: object) -> NoReturn:
        raise AssertionError

    case = Case("one", "B6_staircase")
    return Experiment(name, title, "Fig. 1", "A claim.", "Smaller.", [case], nothing, nothing)


CHECKS = [
    Check("rate", "about half", [49.0, 50.5, 50.0], "%", around(50, 2)),
    Check("back", "soon", [math.inf], "ms", Bar(high=1000)),
]


def test_a_page_of_one_that_was_run_one_that_failed_and_one_that_was_not() -> None:
    all_of_them = [
        experiment("B6", "links, one by one"),
        experiment("B7", "four"),
        experiment("B8.4", "others"),
    ]
    text = page(
        all_of_them, {"B6": Finding(CHECKS, {}, ["Words."])}, {"B7": "no memory"}, quick=False
    )
    lines = text.splitlines()
    assert (
        "| [B6](#b6-links-one-by-one) | rate | about half | 50 % (49 to 50.5) | **holds** |"
        in lines
    )
    assert "|  | back | soon | never | **does not hold** |" in lines
    assert "| [B7](#b7-four) | four |  |  | failed |" in lines
    assert "| [B8.4](#b84-others) | others |  |  | not run |" in lines
    assert "## B6: links, one by one" in lines
    assert "![links, one by one](B6.png)" in lines
    assert "| rate | about half | 50 % (49 to 50.5) | 48 to 52 % | holds |" in lines
    assert "A run failed: no memory" in lines
    assert "[As SVG](B6.svg)" in lines
    assert "Words." in lines
    assert "reduced set" not in text
    assert figure_name(all_of_them[2]) == "B8_4.png"


def test_a_page_names_what_an_earlier_version_of_the_code_measured() -> None:
    all_of_them = [experiment("B6", "one"), experiment("B7", "two")]
    found = {"B6": Finding(CHECKS, None, code="old"), "B7": Finding(CHECKS, {}, code="new")}
    text = page(all_of_them, found, {}, quick=False, code="new")
    assert "\nMeasured by an earlier version of the code, and not anew since: B6.\n" in text
    assert "As SVG](B6.svg" not in text  # there is nothing to draw it from


def test_a_page_of_the_reduced_set_says_so() -> None:
    assert "reduced set" in page([], {}, {}, quick=True)


def test_the_committed_page_has_every_experiment_and_its_figure() -> None:
    folder = ROOT / "docs/paper"
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert "not run" not in text
    assert "reduced set" not in text
    for experiment in EXPERIMENTS:
        assert f"## {experiment.name}: {experiment.title}\n" in text
        assert (folder / figure_name(experiment)).read_bytes().startswith(b"\x89PNG")
    assert "(docs/paper/README.md)" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_numbers_have_four_figures() -> None:
    assert [number(value) for value in (768.8456, 0.012345, 12345.6, 0, 1000, -1.10912)] == [
        "768.8",
        "0.01235",
        "12,346",
        "0",
        "1,000",
        "-1.109",
    ]
    assert measured(Check("x", "y", [2.0, 2.0], "ms")) == "2 ms"
    assert measured(Check("x", "y", [])) == "-"
