"""A history that is damaged, or another's: it is refused in a line, or read."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from openmrc.cli.command import main
from openmrc.errors import InputError
from openmrc.ops.mapper.history import History, JobRow, NoteRow, Row
from openmrc.ops.mapper.page.data import of_file

PLACE = Row("plane 0 t0 0", "link", 10**12, 2 * 10**12, None, 10**12, 0.5, 10, 20, 3.0, 0)
JOB = JobRow("a", 10**12, 2 * 10**12, None, "0-3,7", 9, 2, 1)
NOTE = NoteRow(10**12, "operator", "acknowledged", "plane 0 t0 0", "known")
WRONG: tuple[tuple[str, Any], ...] = (
    ("since_us", -1),
    ("last_us", "x"),
    ("last_us", 1 << 62),
    ("until_us", b"\xff"),
    ("named_us", float("inf")),
    ("rate", "plane 0"),
    ("rate", -1),
    ("lost", -1),
    ("crossed", "x"),
    ("nats", "x"),
    ("withdrawn", "x"),
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    with History(tmp_path / "h.sqlite") as history:
        history.fabric({"kind": "multiplane", "nics": 8, "planes": 2})
        history.place(None, PLACE)
        history.job(JOB)
        history.note(NOTE)
    with sqlite3.connect(tmp_path / "h.sqlite") as database:
        database.execute("PRAGMA journal_mode = DELETE")
    return tmp_path / "h.sqlite"


def change(file: Path, query: str, *values: Any) -> None:
    with sqlite3.connect(file) as database:
        database.execute(query, values)


def test_what_is_written_is_read(file: Path) -> None:
    with History(file, read_only=True) as history:
        assert (history.places(), history.jobs(), history.notes()) == ([PLACE], [JOB], [NOTE])


def test_a_file_of_an_older_version_has_no_notes(file: Path) -> None:
    change(file, "DROP TABLE note")
    page = of_file(file)
    assert (page["notes"], len(page["places"])) == ([], 1)


@pytest.mark.parametrize(("column", "value"), WRONG)
def test_a_value_that_no_controller_writes_is_refused(column: str, value: Any, file: Path) -> None:
    change(file, f"UPDATE place SET {column} = ?", value)
    with (
        History(file, read_only=True) as history,
        pytest.raises(InputError, match=r"h.sqlite: is no history of a controller \("),
    ):
        history.places()


@pytest.mark.parametrize("text", ["[", "[]", "null", "[" * 100_000, '{"kind": 3}', b"\xff"])
def test_a_fabric_that_is_none_is_refused(text: Any, file: Path) -> None:
    change(file, "UPDATE fabric SET document = ?", text)
    with pytest.raises(InputError):
        of_file(file)


def test_changed_bytes_are_refused_or_read(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole, rng = file.read_bytes(), random.Random(8)
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(rng.choice((1, 5, 50))):
            data[rng.randrange(len(data))] = rng.randrange(256)
        file.write_bytes(data[: rng.choice((len(data), rng.randrange(len(data))))])
        status = main(["why", str(file)])
        said = capsys.readouterr().err
        assert (status, said.count("\n")) in ((0, 0), (2, 1))
