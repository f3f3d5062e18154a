"""The results directory: written aside, then renamed into place, so that no file is partial.

All files carry the identity of the run, and a run owns these names: it replaces or removes what an
earlier one left.

summary.json      the object `--json` prints
flows.parquet     one row per transport and flow
timeline.parquet  one row per transport and bin of time
steps.parquet     of a training job: one row per transport and step
events.parquet    paths avoided and returned to service (this and the next two: of MRC only)
paths.parquet     one row per transport, bin of time and path that lost packets
account.parquet   one row per packet or probe that was judged lost, or probe that was answered
counts.parquet    one row per transport, tick and directed port: what the port counts
report.html       everything in one page
scenario.toml     the scenario with every default, to run again
"""

from __future__ import annotations

import json
import shutil
import tempfile
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from openmrc.errors import OutputError
from openmrc.report.page import html
from openmrc.run.results import Result
from openmrc.run.saved import FILES, IDENTITY, PAGE, PICTURE, SCENARIO, SUMMARY, named

if TYPE_CHECKING:
    import polars as pl


def write_results(result: Result, directory: Path, picture: bool = False) -> None:
    """Write the results directory, and with `picture` also `goodput.png`."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=directory))
    except OSError as error:
        raise OutputError(directory, error) from None
    try:
        (aside / SUMMARY).write_text(summary_json(result), encoding="utf-8")
        for name in _tables(result):
            _write_parquet(getattr(result, name), aside / f"{name}.parquet", result.identity)
        (aside / PAGE).write_text(html(result), encoding="utf-8")
        scenario = named(result.scenario.to_toml(), result.identity)
        (aside / SCENARIO).write_text(scenario, encoding="utf-8")
        if picture:
            from openmrc.report.picture import goodput_png  # loads what nothing else here needs

            (aside / PICTURE).write_bytes(goodput_png(result))
        _put(aside, directory)
    except OSError as error:
        raise OutputError(directory, error, "no file there is half written") from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _tables(result: Result) -> list[str]:
    """The tables that a run writes, by the name of its property."""
    trained = any(run.training is not None for run in result.transports)
    watched = any(run.testimony is not None for run in result.transports)
    return [
        "flows",
        "timeline",
        *(["steps"] if trained else []),
        *(["events", "paths", "account", "counts"] if watched else []),
    ]


def _put(aside: Path, directory: Path) -> None:
    """Put all files in their places, and remove those of an earlier run that this one has not.

    Without `summary.json` nothing is read: it is removed first and put in its place last, so that
    an interruption leaves no mixture of two runs that looks like one.
    """
    (directory / SUMMARY).unlink(missing_ok=True)
    for name in FILES:
        if (aside / name).exists() and name != SUMMARY:
            (aside / name).replace(directory / name)
        else:
            (directory / name).unlink(missing_ok=True)
    (aside / SUMMARY).replace(directory / SUMMARY)


def _write_parquet(table: pl.DataFrame, file: Path, identity: str) -> None:
    """Write by Python: polars raises errors of its own for a full disk."""
    stream = BytesIO()
    table.write_parquet(stream, metadata={IDENTITY: identity})
    file.write_bytes(stream.getbuffer())


def summary_json(result: Result) -> str:
    """Return `summary.json` as text."""
    return json.dumps(result.summary(), indent=2) + "\n"
