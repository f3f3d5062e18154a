"""The results directory: written aside, then renamed into place, so no file is half there.

summary.json      the object `--json` prints
flows.parquet     one row per transport and flow
timeline.parquet  one row per transport and bin of time
report.html       everything to look at, in one page
scenario.toml     the scenario with every default, to run again
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from openmrc.report.page import html
from openmrc.run import Result, TransportResult
from openmrc.units import US

PICTURE = "goodput.png"


def write_results(result: Result, directory: Path, picture: bool = False) -> None:
    """Write the results directory, and with `picture` also `goodput.png`."""
    directory.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=directory))
    try:
        (aside / "summary.json").write_text(summary_json(result), encoding="utf-8")
        pl.concat([flow_table(run) for run in result.transports] or [pl.DataFrame()]).write_parquet(
            aside / "flows.parquet"
        )
        pl.concat([time_table(run) for run in result.transports] or [pl.DataFrame()]).write_parquet(
            aside / "timeline.parquet"
        )
        (aside / "report.html").write_text(html(result), encoding="utf-8")
        (aside / "scenario.toml").write_text(result.scenario.to_toml(), encoding="utf-8")
        if picture:
            from openmrc.report.picture import goodput_png  # loads what nothing else here needs

            (aside / PICTURE).write_bytes(goodput_png(result))
        for file in aside.iterdir():
            file.replace(directory / file.name)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def summary_json(result: Result) -> str:
    """Return `summary.json` as text."""
    return json.dumps(result.summary(), indent=2) + "\n"


def flow_table(run: TransportResult) -> pl.DataFrame:
    """Return one row per flow; times in us, null where the event never came."""
    flows = run.flows
    done_us = _us_or_null(flows["done_ps"])
    start_us = _us_or_null(flows["start_ps"])
    return pl.DataFrame(
        {
            "transport": [run.name] * len(run.completed),
            "flow": np.arange(len(run.completed)),
            "qp": flows["qp"],
            "src": flows["src"],
            "dst": flows["dst"],
            "bytes": flows["bytes"],
            "start_us": start_us,
            "done_us": done_us,
            "fct_us": done_us - start_us,
            "delivered_us": _us_or_null(flows["delivered_ps"]),
            "retransmitted": flows["retransmitted"],
            "failed": flows["failed"].astype(bool),
            "error": list(run.flow_errors),
        }
    )


def time_table(run: TransportResult) -> pl.DataFrame:
    """Return one row per bin: its start, goodput, and packets sent again, lost and trimmed."""
    timeline = run.timeline
    return pl.DataFrame(
        {
            "transport": [run.name] * len(timeline["t_ps"]),
            "t_us": timeline["t_ps"] / US,
            "goodput_gbps": timeline["goodput_bytes"] * 8e3 / run.bin_ps,
            "retransmitted": timeline["retransmitted"],
            "lost": timeline["lost"],
            "trimmed": timeline["trimmed"],
        }
    )


def _us_or_null(times_ps: Any) -> pl.Series:
    times = pl.Series(times_ps)
    return pl.select(pl.when(times >= 0).then(times / US)).to_series()
