"""The controller's history: places that lost probes, jobs, agents, denylists, admissions, and what
operators did (SQLite).

Times are microseconds of Unix time. The file is readable while the controller runs, by this module
or by `sqlite3`. A place that was open when a controller died ends at its last loss; if it still
loses probes the next controller names it again.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from openmrc.errors import InputError, OutputError
from openmrc.live.closing import Closing
from openmrc.reading import BROKEN, fault

KEPT_US = 90 * 86_400 * 10**6  # older rows are deleted
ROWS_MAX = 10_000  # of one answer
SCHEMA = """
CREATE TABLE IF NOT EXISTS place (
    id INTEGER PRIMARY KEY, place TEXT NOT NULL, kind TEXT NOT NULL, since_us INTEGER NOT NULL,
    last_us INTEGER NOT NULL, until_us INTEGER, named_us INTEGER NOT NULL, rate REAL NOT NULL,
    lost INTEGER NOT NULL, crossed INTEGER NOT NULL, nats REAL NOT NULL, withdrawn INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS place_since ON place (since_us);
CREATE TABLE IF NOT EXISTS agent (
    nic INTEGER NOT NULL, at_us INTEGER NOT NULL, joined INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS denylist (version INTEGER PRIMARY KEY, document TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS admission (at_us INTEGER NOT NULL, document TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS fabric (document TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS job (
    job TEXT NOT NULL, since_us INTEGER NOT NULL, last_us INTEGER NOT NULL, until_us INTEGER,
    nics TEXT NOT NULL, sent INTEGER NOT NULL, again INTEGER NOT NULL, set_aside INTEGER NOT NULL,
    PRIMARY KEY (job, since_us)
);
CREATE TABLE IF NOT EXISTS note (
    at_us INTEGER NOT NULL, who TEXT NOT NULL, what TEXT NOT NULL, place TEXT NOT NULL,
    text TEXT NOT NULL
);
"""


# SQLite keeps any value in any column, and a file may be another's.
Time = Annotated[int, Meta(ge=0, le=1 << 60)]  # for 36,000 years
Count = Annotated[int, Meta(ge=0)]


class Row(NamedTuple):
    """A place that lost probes."""

    place: str
    kind: str
    since_us: Time
    last_us: Time
    until_us: Time | None
    named_us: Time
    rate: Annotated[float, Meta(ge=0, le=1)]
    lost: Count
    crossed: Count
    nats: float
    withdrawn: int


class JobRow(NamedTuple):
    """A job, and the counts of its devices."""

    job: str
    since_us: Time
    last_us: Time  # the last report of a device
    until_us: Time | None  # None: it runs
    nics: str  # as places name them: "0-3,8"
    sent: Count  # data packets
    again: Count  # of these, retransmissions
    set_aside: Count  # paths, counted each time


class NoteRow(NamedTuple):
    """What somebody did about a place."""

    at_us: Time
    who: str  # "operator"
    what: str  # "denied", "lifted" or "acknowledged"
    place: str
    text: str  # the reason, or the note


_Kind = TypeVar("_Kind")


class History(Closing):
    """A file of history; ":memory:" keeps it as long as the process lives."""

    def __init__(self, file: str | Path, read_only: bool = False) -> None:
        self._file = file
        try:
            if read_only:
                there = Path(file).absolute().as_uri()  # a name may have "?" in it
                self._db = sqlite3.connect(f"{there}?mode=ro", uri=True)
                self._db.execute("SELECT count(*) FROM place")
                return
            self._db = sqlite3.connect(file, check_same_thread=False)
            self._db.executescript(SCHEMA)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
        except (sqlite3.Error, UnicodeError) as error:
            if read_only:
                raise self._foreign(str(error)) from None
            raise OutputError(file, str(error), "name another file with --history") from None

    def fabric(self, table: dict[str, Any]) -> None:
        """Store the fabric's table, from which places have their names."""
        with self._db:
            self._db.execute("DELETE FROM fabric")
            self._db.execute("INSERT INTO fabric VALUES (?)", [json.dumps(table)])

    def fabric_table(self) -> dict[str, Any]:
        """Return the fabric's table; {} if none was stored."""
        return self._document("SELECT document FROM fabric") or {}

    def place(self, key: int | None, row: Row) -> int:
        """Store a place, in the row `key` if it has one; return its key."""
        with self._db:
            if key is None:
                marks = ", ".join("?" * len(row))
                names = ", ".join(Row._fields)
                done = self._db.execute(f"INSERT INTO place ({names}) VALUES ({marks})", row)
                return int(done.lastrowid or 0)
            changed = row._replace(since_us=min(row.since_us, self._since(key)))
            sets = ", ".join(f"{name} = ?" for name in Row._fields)
            self._db.execute(f"UPDATE place SET {sets} WHERE id = ?", (*changed, key))
            return key

    def places(self, since_us: int = 0, until_us: int | None = None) -> list[Row]:
        """Return the places that lost something in this time, the latest last."""
        found = self._rows(
            f"SELECT {', '.join(Row._fields)} FROM place WHERE last_us >= ? AND since_us <= ?"
            " ORDER BY since_us DESC LIMIT ?",
            (since_us, (1 << 62) if until_us is None else until_us, ROWS_MAX),
        )
        return self._as(list[Row], found[::-1])

    def close_open(self) -> None:
        """End the places that no controller watches any more."""
        with self._db:
            self._db.execute("UPDATE place SET until_us = last_us WHERE until_us IS NULL")
            self._db.execute("UPDATE job SET until_us = last_us WHERE until_us IS NULL")

    def agent(self, nic: int, at_us: int, joined: bool) -> None:
        """Record that an agent joined or left."""
        with self._db:
            self._db.execute("INSERT INTO agent VALUES (?, ?, ?)", (nic, at_us, joined))

    def agents(self, since_us: int = 0) -> list[tuple[int, int, int]]:
        """Return [NIC, time, whether it joined] of agents, the latest last."""
        return self._db.execute(
            "SELECT nic, at_us, joined FROM agent WHERE at_us >= ? ORDER BY at_us LIMIT ?",
            (since_us, ROWS_MAX),
        ).fetchall()

    def denylist(self, document: dict[str, Any]) -> None:
        """Store a version of the denylist."""
        with self._db:
            self._db.execute(
                "INSERT OR REPLACE INTO denylist VALUES (?, ?)",
                (document["version"], json.dumps(document)),
            )

    def last_denylist(self) -> dict[str, Any] | None:
        """Return the last version that was stored."""
        return self._document("SELECT document FROM denylist ORDER BY version DESC LIMIT 1")

    def admission(self, at_us: int, document: Sequence[dict[str, Any]]) -> None:
        """Record the admission of nodes before a job."""
        with self._db:
            self._db.execute("INSERT INTO admission VALUES (?, ?)", (at_us, json.dumps(document)))

    def job(self, row: JobRow) -> None:
        """Store a job, or its changes."""
        with self._db:
            marks = ", ".join("?" * len(row))
            self._db.execute(f"INSERT OR REPLACE INTO job VALUES ({marks})", row)

    def jobs(self, since_us: int = 0) -> list[JobRow]:
        """Return the jobs that ran since then, the latest last."""
        if not self._has("job"):
            return []
        found = self._rows(
            f"SELECT {', '.join(JobRow._fields)} FROM job WHERE last_us >= ?"
            " ORDER BY since_us DESC LIMIT ?",
            (since_us, ROWS_MAX),
        )
        return self._as(list[JobRow], found[::-1])

    def note(self, row: NoteRow) -> None:
        """Record what somebody did about a place."""
        with self._db:
            marks = ", ".join("?" * len(row))
            self._db.execute(f"INSERT INTO note VALUES ({marks})", row)

    def notes(self, since_us: int = 0) -> list[NoteRow]:
        """Return what was done since then, the latest last."""
        if not self._has("note"):
            return []
        found = self._rows(
            f"SELECT {', '.join(NoteRow._fields)} FROM note WHERE at_us >= ?"
            " ORDER BY at_us DESC LIMIT ?",
            (since_us, ROWS_MAX),
        )
        return self._as(list[NoteRow], found[::-1])

    def forget(self, now_us: int) -> None:
        """Delete rows older than `KEPT_US`."""
        with self._db:
            kept = (
                ("place", "last_us"),
                ("agent", "at_us"),
                ("admission", "at_us"),
                ("job", "since_us"),
                ("note", "at_us"),
            )
            for table, column in kept:
                self._db.execute(f"DELETE FROM {table} WHERE {column} < ?", [now_us - KEPT_US])
            self._db.execute(
                "DELETE FROM denylist WHERE version < (SELECT max(version) FROM denylist) - 1000"
            )

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._db.execute(query, values).fetchall()
        except (sqlite3.Error, UnicodeError) as error:
            raise self._foreign(str(error)) from None

    def _has(self, table: str) -> bool:
        """Whether there is such a table: a file of an older version lacks some."""
        return bool(self._rows("SELECT name FROM sqlite_master WHERE name = ?", [table]))

    def _document(self, query: str) -> dict[str, Any] | None:
        """The object that a text holds; None if there is none."""
        rows = self._rows(query)
        try:
            return self._as(dict[str, Any], json.loads(rows[0][0])) if rows else None
        except BROKEN as error:
            raise self._foreign(fault(error)) from None

    def _as(self, kind: type[_Kind], found: Any) -> _Kind:
        try:
            return msgspec.convert(found, kind)
        except msgspec.ValidationError as error:
            raise self._foreign(str(error)) from None

    def _foreign(self, why: str) -> InputError:
        return InputError(
            f"{self._file}: is no history of a controller ({why}); name what mrc ops controller"
            " --history writes"
        )

    def _since(self, key: int) -> int:
        return int(self._db.execute("SELECT since_us FROM place WHERE id = ?", [key]).fetchone()[0])
