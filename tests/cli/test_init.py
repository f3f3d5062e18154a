"""From nothing to a first result: help, a commented scenario, the schema."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from openmrc.cli.command import main
from openmrc.cli.init import TEMPLATES
from openmrc.cli.parser import EXAMPLES
from openmrc.scenario.scenario import load_scenario, parse_scenario

if TYPE_CHECKING:
    from tests.conftest import FakeWorld

Out = pytest.CaptureFixture[str]


def test_mrc_alone_shows_help_with_examples(capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main([]) == 0
    alone = capsys.readouterr()
    assert EXAMPLES in alone.out
    assert alone.err == ""
    monkeypatch.setattr(sys, "argv", ["mrc"])
    assert main() == 0
    assert capsys.readouterr().out == alone.out


# `mrc demo` has a test of its own, and takes a minute
TYPED = [x.split("   ")[0] for x in EXAMPLES.splitlines()[1:-1] if "mrc demo" not in x]


@pytest.mark.parametrize("line", TYPED)
def test_the_examples_of_the_help_run(
    line: str,
    fake_world: type[FakeWorld],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Out,
) -> None:
    monkeypatch.chdir(tmp_path)
    mrc, command, *words = line.split()
    assert mrc == "mrc"
    if "first.toml" in words and command != "init":
        assert main(["init", "first.toml"]) == 0
    if command == "sweep":  # its runs have processes of their own
        monkeypatch.setattr("openmrc.sweeps.command.run_all", lambda runs, *_, **__: runs)
        monkeypatch.setattr("openmrc.sweeps.command._all_well", lambda table: len(table) == 10)
        monkeypatch.setattr("openmrc.sweeps.command._print", lambda *_: None)
    assert main([command, *words]) == 0


@pytest.mark.parametrize("name", TEMPLATES)
def test_init_writes_a_scenario_that_runs(
    name: str, fake_world: type[FakeWorld], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("openmrc.run.simulation._trained", lambda *_: None)
    assert main(["init", "--template", name]) == 0
    text = Path("scenario.toml").read_text()
    assert text.startswith("#:schema ./scenario.schema.json\n# ")
    keys = [line for line in text.splitlines() if "=" in line.partition("#")[0]]
    assert sum("#" in line for line in keys) > 4
    assert main(["run", "scenario.toml", "--json"]) == 0
    load_scenario("scenario.toml").build()


def test_init_overwrites_nothing_and_knows_its_templates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("scenario.toml").write_text("mine")
    for line, words in (
        ("init", "scenario.toml: already exists; name another file, or remove it"),
        ("init no/a.toml", "no/a.toml: cannot be written (No such file or directory)"),
        ("init a.toml --template rocee", "did you mean 'roce'? accepted: mrc, roce, adaptive"),
        ("rnu", "invalid choice: 'rnu'; did you mean 'run'? accepted: init, demo, run, "),
        (
            "decode a.pcapng --jsno",
            "unrecognized arguments: --jsno; did you mean '--json'?; see mrc decode ",
        ),
    ):
        assert main(line.split()) == 2
        printed = capsys.readouterr()
        assert words in printed.err
        assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert [path.name for path in tmp_path.iterdir()] == ["scenario.toml"]
    assert Path("scenario.toml").read_text() == "mine"


def test_init_writes_to_standard_output(capsys: Out) -> None:
    assert main(["init", "-"]) == 0
    printed = capsys.readouterr()
    assert parse_scenario(printed.out).name == "first"
    assert printed.err == ""
    assert main(["init", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "A scenario of openmrc"
