"""The results directory: written aside, then renamed into place, so that no file is partial.

summary.json      the object `--json` prints
flows.parquet     one row per transport and flow
timeline.parquet  one row per transport and bin of time
steps.parquet     of a training job: one row per transport and step
events.parquet    paths set aside and returned to service (this and the next two: of MRC only)
paths.parquet     one row per transport, bin of time and path that lost packets
links.parquet     one row per transport, bin of time and directed link: packets sent, trimmed,
                  dropped; bytes
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

if TYPE_CHECKING:
    import polars as pl

PICTURE = "goodput.png"


def write_results(result: Result, directory: Path, picture: bool = False) -> None:
    """Write the results directory, and with `picture` also `goodput.png`."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=directory))
    except OSError as error:
        raise OutputError(directory, error) from None
    try:
        (aside / "summary.json").write_text(summary_json(result), encoding="utf-8")
        _write_parquet(result.flows, aside / "flows.parquet")
        _write_parquet(result.timeline, aside / "timeline.parquet")
        if any(run.training is not None for run in result.transports):
            _write_parquet(result.steps, aside / "steps.parquet")
        if any(run.testimony is not None for run in result.transports):
            _write_parquet(result.events, aside / "events.parquet")
            _write_parquet(result.paths, aside / "paths.parquet")
            _write_parquet(result.links, aside / "links.parquet")
        (aside / "report.html").write_text(html(result), encoding="utf-8")
        (aside / "scenario.toml").write_text(result.scenario.to_toml(), encoding="utf-8")
        if picture:
            from openmrc.report.picture import goodput_png  # loads what nothing else here needs

            (aside / PICTURE).write_bytes(goodput_png(result))
        for file in aside.iterdir():
            file.replace(directory / file.name)
    except OSError as error:
        raise OutputError(directory, error, "no file there is half written") from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _write_parquet(table: pl.DataFrame, file: Path) -> None:
    """Write by Python: polars raises errors of its own for a full disk."""
    stream = BytesIO()
    table.write_parquet(stream)
    file.write_bytes(stream.getbuffer())


def summary_json(result: Result) -> str:
    """Return `summary.json` as text."""
    return json.dumps(result.summary(), indent=2) + "\n"
