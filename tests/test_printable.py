"""Text of others on a terminal: nothing that it obeys gets there."""

from __future__ import annotations

import json
import sys
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmrc.cli.command import main
from openmrc.errors import InputError
from openmrc.printable import LINES, PrintableStream, printable
from openmrc.run.simulation import simulate
from openmrc.say import say
from openmrc.scenario.scenario import make_scenario

if TYPE_CHECKING:
    from tests.conftest import FakeWorld

Out = pytest.CaptureFixture[str]
TITLE, CLEAR, BELL, C1, BIDI, HALF = (
    "\x1b]0;x\x07",
    "\x1b[2J",
    "\x07",
    "\x9b31m",
    "\u202e",
    "\udc80",
)
HOSTILE = f"a{TITLE}{CLEAR}{BELL}{C1}{BIDI}\nb\rc\u2028d[bold red]:bomb:[/bold red]"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Zürich, 東京", "Zürich, 東京"),
        ("\x1b[31m", r"\x1b[31m"),
        (BELL + C1, r"\x07\x9b31m"),
        ("\u202eevil\u200b", r"\u202eevil\u200b"),
        (HALF, r"\udc80"),
        ("\U000e0001", r"\U000e0001"),  # a tag, which is seen by programs alone
        ("a\nb\rc\u2028", r"a\nb\rc\u2028"),
    ],
)
def test_what_is_no_character_to_see_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text(st.characters()))
def test_every_text_becomes_printable_and_stays_so(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert printable(shown) == shown
    out = StringIO()
    assert PrintableStream(out).write(text) == len(text)
    assert all(c.isprintable() or c in LINES for c in out.getvalue())


def test_errors_and_messages_are_one_printable_line(capsys: Out) -> None:
    assert str(InputError(f"name: {HOSTILE}")).isprintable()
    say(HOSTILE)
    said = capsys.readouterr().err
    assert (said[:-1].isprintable(), said[-1]) == (True, "\n")


def test_a_bar_overwrites_the_line_and_its_text_does_not(capsys: Out) -> None:
    say("\r\x1b[A10 %", end="", over=True)
    assert capsys.readouterr().err == "\r\x1b[K\\r\\x1b[A10 %"


def scenario(folder: Path) -> str:
    """A scenario all of whose names are hostile."""
    folder.mkdir()
    text = make_scenario(
        {
            "name": HOSTILE,
            "fabric": {"nics": 4},
            "workload": {
                "kind": "jobs",
                "job": [{"name": f"job{HOSTILE}", "kind": "permutation", "size": "1kB"}],
            },
            "transport": [{"name": HOSTILE}, {"name": f"{HOSTILE}2", "paths": "single"}],
        }
    ).to_toml()
    (folder / "x.toml").write_text(text, encoding="utf-8")
    return str(folder / "x.toml")


def check(printed: str) -> None:
    assert all(c.isprintable() or c == "\n" for c in printed)
    assert not any(line.startswith(("b\\rc", "bc")) for line in printed.splitlines())


@pytest.mark.parametrize("options", [[], ["-v"], ["--estimate"]])
def test_no_name_of_a_scenario_reaches_the_terminal_as_it_is(
    options: list[str], tmp_path: Path, fake_world: type[FakeWorld], capsys: Out
) -> None:
    main(["run", scenario(tmp_path / HOSTILE.replace("/", "")), *options])
    printed = capsys.readouterr()
    check(printed.out)
    check(printed.err)
    assert r"\x1b" in printed.out
    assert "[bold red]:bomb:" in printed.out  # no mark-up of the library that draws tables


def test_no_name_of_results_reaches_the_terminal_as_it_is(
    tmp_path: Path, fake_world: type[FakeWorld], capsys: Out
) -> None:
    folder = tmp_path / HOSTILE.replace("/", "")
    assert main(["run", scenario(folder), "--out", str(folder / "a")]) == 0
    fake_world.built.clear()
    assert main(["run", scenario(tmp_path / "o"), "--out", str(folder / "b")]) == 0
    capsys.readouterr()
    for command in (
        ["compare", str(folder / "a"), str(folder / "b")],
        ["why", str(folder / "a"), "--report"],
        ["why", str(folder / "a"), "--transport", HOSTILE + "3"],
        ["run", str(folder / "none")],
        ["run", str(folder / "x.toml"), "--set", f"fabric.{HOSTILE}=1"],
        [HOSTILE],
    ):
        main(command)
        printed = capsys.readouterr()
        check(printed.out)
        check(printed.err)
        assert r"\x1b" in printed.out + printed.err


def test_objects_are_what_they_were(
    tmp_path: Path, fake_world: type[FakeWorld], capsys: Out
) -> None:
    assert main(["run", scenario(tmp_path / "s"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["scenario"] == HOSTILE


def test_a_prompt_shows_a_result_as_one_printable_line(fake_world: type[FakeWorld]) -> None:
    result = simulate({"name": HOSTILE, "workload": {"kind": "permutation"}})
    assert repr(result).isprintable()


def test_the_command_leaves_standard_output_as_it_was(capsys: Out) -> None:
    before = sys.stdout
    main(["init", "--schema"])
    assert sys.stdout is before
