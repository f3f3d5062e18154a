"""What is said to people, and to machines that read logs."""

from __future__ import annotations

import json
from datetime import datetime

import pytest

from openmrc.cli import main
from openmrc.say import counted, number, say, written

Out = pytest.CaptureFixture[str]


def test_people_read_lines(capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    for form in ("", "text"):
        monkeypatch.setenv("OPENMRC_LOG", form)
        assert main(["run", "no.toml"]) == 2
        printed = capsys.readouterr()
        assert printed.err == (
            "mrc: no.toml: cannot be read (No such file or directory); name a scenario file\n"
        )


def test_machines_read_an_object_a_line(capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENMRC_LOG", "json")
    say('It is "up".')
    assert main(["run", "no.toml"]) == 2
    printed = capsys.readouterr()
    first, second = (json.loads(line) for line in printed.err.splitlines())
    assert list(first) == ["time", "level", "message"]
    assert (first["level"], first["message"]) == ("info", 'It is "up".')
    assert second["level"] == "error"
    assert second["message"].startswith("no.toml: cannot be read")
    times = [datetime.fromisoformat(line["time"]) for line in (first, second)]
    assert times == sorted(times)
    assert all(time.tzinfo is not None for time in times)
    assert printed.out == ""


def test_a_bar_is_for_people_alone(capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    heard = []
    for form in ("text", "json"):
        monkeypatch.setenv("OPENMRC_LOG", form)
        say("10 %", end="", over=True)
        heard.append(capsys.readouterr().err)
    assert heard == ["\r\x1b[K10 %", ""]


def test_another_form_is_refused(capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENMRC_LOG", "xml")
    assert main(["completion", "bash"]) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "mrc: OPENMRC_LOG=xml: text or json is accepted\n")


def test_one_thing_is_not_many() -> None:
    assert [counted(n, "plane") for n in (0, 1, 2, 1024)] == [
        "0 planes", "1 plane", "2 planes", "1,024 planes",
    ]  # fmt: skip
    assert [counted(n, "switch", "switches") for n in (1, 2)] == ["1 switch", "2 switches"]


def test_numbers_are_those_of_people() -> None:
    shown = {1 << 30: "1,073,741,824", 1e15: "1,000,000,000,000,000", 0.01: "0.01", 12.5: "12.5"}
    assert {number(value): text for value, text in shown.items()} == {t: t for t in shown.values()}


def test_a_value_is_written_as_its_file_has_it() -> None:
    date = datetime(2020, 1, 2).date()
    value = {"a": [True, False, 1.5], "b": "x", "c": date}
    assert written(value) == "{a = [true, false, 1.5], b = 'x', c = 2020-01-02}"
