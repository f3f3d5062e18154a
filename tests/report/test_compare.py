"""Results directories side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from openmrc.cli.command import main

if TYPE_CHECKING:
    from tests.conftest import FakeWorld

Out = pytest.CaptureFixture[str]
SCENARIO = """
[fabric]
nics = 4
[workload]
kind = "permutation"
size = "1kB"
[[transport]]
[[transport]]
name = "<one>"
paths = "single"
[[fault]]
at = "1us"
kind = "link-loss"
where = "nic 0 plane 0"
rate = 0.5
"""


@pytest.fixture
def here(
    fake_world: type[FakeWorld], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> Path:
    """Two results directories: b is twice as slow, with another PMTU and rate of loss."""
    (tmp_path / "x.toml").write_text(SCENARIO)
    monkeypatch.chdir(tmp_path)
    assert main(["run", "x.toml", "--out", "a"]) == 0
    fake_world.fct_ps *= 2
    fake_world.built.clear()
    changes = ["--set", "transport.pmtu=2048", "--set", "fault[0].rate=0.25"]
    assert main(["run", "x.toml", "--out", "b", *changes]) == 0
    capsys.readouterr()
    return tmp_path


def cells(text: str) -> list[list[str]]:
    lines = (line for line in text.splitlines() if line.startswith("│"))
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines]


def test_each_transport_has_a_row_and_what_it_takes_over_the_first(here: Path, capsys: Out) -> None:
    assert main(["compare", "a", "b", "--page", "c.html"]) == 0
    printed = capsys.readouterr()
    rows = cells(printed.out)
    assert [row[:2] for row in rows[:4]] == [
        ["a", "mrc"], ["a", "<one>"], ["b", "mrc"], ["b", "<one>"],
    ]  # fmt: skip
    assert [row[2] for row in rows[:4]] == ["40.00", "120.0", "80.00", "240.0"]  # of all, us
    assert [row[3] for row in rows[:4]] == ["1.000", "1.000", "2.000", "2.000"]
    verdict, last = printed.out.splitlines()[-2:]
    assert verdict == (
        "b against a, all flows finished after: mrc 80us against 40us (2.000 times);"
        " <one> 240us against 120us (2.000 times)."
    )
    assert last == (
        "b against a: transport[0].pmtu 4KiB -> 2KiB; transport[1].pmtu 4KiB -> 2KiB;"
        " fault[0].rate 0.5 -> 0.25."
    )
    assert printed.err == "The page is c.html.\n"
    page = (here / "c.html").read_text(encoding="utf-8")
    assert page.count("<tr>") == 5
    assert '<section class="wide" id="table">' in page  # not half of a wide screen
    assert "&lt;one&gt;" in page
    assert "<one>" not in page
    assert "fault[0].rate 0.5 -&gt; 0.25" in page


def test_links_of_other_rates_are_compared_with_switches_in_mind(here: Path, capsys: Out) -> None:
    faster = ["--set", "fabric.port_rate=400Gbps"]
    assert main(["run", "x.toml", "--out", "c", *faster]) == 0
    through = ["--set", "fabric.switching=cut-through"]
    assert main(["run", "x.toml", "--out", "d", *faster, *through]) == 0
    said = "Links differ in rate, and switches store whole packets"
    capsys.readouterr()
    for others, stores in ((["c"], True), (["b"], False), (["d"], False)):
        assert main(["compare", "a", *others]) == 0
        assert (said in capsys.readouterr().out) == stores, others


def test_as_an_object(here: Path, capsys: Out) -> None:
    assert main(["compare", "a", "b", "a", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [each["directory"] for each in told["results"]] == ["a", "b", "a"]
    assert told["differences"]["b"]["fault[0].rate"] == [0.5, 0.25]
    assert told["differences"]["a"] == {}
    assert told["verdict"][2] == {
        "directory": "b", "transport": "mrc", "job": None, "whole_us": 80.0, "over": 2.0,
    }  # fmt: skip
    assert told["results"][1]["summary"] == json.loads((here / "b/summary.json").read_text())


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (
            lambda b: (b / "summary.json").unlink(),
            "b: has no summary.json; name a directory that mrc run --out",
        ),
        (
            lambda b: (b / "summary.json").write_text("[]"),
            "b/summary.json: was not written by mrc run",
        ),
        (lambda b: (b / "summary.json").write_text('{"transports": {"a": 1}}'), "was not written"),
        (lambda b: (b / "summary.json").write_bytes(b"\xff"), "b/summary.json: is not UTF-8 text"),
        (lambda b: (b / "scenario.toml").write_text("nics: 4"), "b/scenario.toml: was not written"),
    ],
)
def test_what_is_no_results_directory_is_refused(
    break_it: object, words: str, here: Path, capsys: Out
) -> None:
    assert callable(break_it)
    break_it(here / "b")
    assert main(["compare", "a", "b"]) == 2
    printed = capsys.readouterr()
    assert words in printed.err
    assert (printed.out, printed.err.count("\n")) == ("", 1)
