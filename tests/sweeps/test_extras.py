"""Tables of a run that a data set can keep beside its flows."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import polars as pl
import pytest

from openmrc import simulate
from openmrc.jit import interpreted
from openmrc.scenario.scenario import make_scenario
from openmrc.sweeps import extras
from openmrc.sweeps.dataset import DataSet
from openmrc.sweeps.plan import plan
from openmrc.sweeps.sweep import run_all

TABLES = {
    "fabric": {"nics": 4, "planes": 2, "port_rate": "100Gbps", "t0_down": 2},
    "workload": {"kind": "stream", "size": "2MB"},
}


@pytest.mark.skipif(interpreted(), reason="a minute in plain Python")
def test_the_tables_of_a_run_are_kept_and_found(tmp_path: Path) -> None:
    (run,) = plan(make_scenario(TABLES), {"seed": [5]})
    also = ("timeline", "paths", "queues", "counters")
    run_all([run], tmp_path, flows=True, also=also, progress=False)
    data = DataSet(tmp_path, flows=True, also=also)
    assert data.has(run)
    assert data.failure(run) is None

    alone = simulate(run.scenario, sampled=True)
    assert data.table(run, "timeline").equals(alone.timeline)
    assert data.table(run, "flows").drop("run").equals(alone.flows)
    paths = data.table(run, "paths")
    assert paths.columns == ["transport", "t_us", "ev", "path", "plane", "state", "used"]
    # a path carries an even share of the data packets of its QP, and of nothing else
    used = paths.group_by("path").agg(pl.sum("used")).sort("path")
    assert used["path"].to_list() == [f"over plane {p} t1 {t}" for p in (0, 1) for t in (0, 1)]
    assert used["used"].sum() == 489  # 2 MB in packets of 4096 B

    # the load of the NIC's own links, over all intervals, is what it sent
    queues = data.table(run, "queues")
    up = queues.filter((pl.col("row") == 0) & ~pl.col("down"))
    ports, rate, interval_us = 4 * 1, 100e3, float(up["t_us"].unique().sort().to_numpy()[1])
    sent_bits = float(up["load"].to_numpy().sum()) * ports * rate * interval_us
    assert sent_bits == pytest.approx(8 * (2e6 + 489 * 166), rel=0.05)  # and probes and SACKs
    counted = dict(data.table(run, "counters").select("counter", "value").iter_rows())
    assert counted["data"] == 489
    assert counted["link_traversals"] == alone.transports[0].counters["link_traversals"]


@pytest.mark.skipif(interpreted(), reason="a minute in plain Python")
def test_a_run_without_a_table_that_is_wanted_is_made_again(tmp_path: Path) -> None:
    (run,) = plan(make_scenario(TABLES), {"seed": [5]})
    run_all([run], tmp_path, progress=False)
    assert not DataSet(tmp_path, flows=False, also=("timeline",)).has(run)
    run_all([run], tmp_path, also=("timeline",), progress=False)
    assert DataSet(tmp_path, flows=False, also=("timeline",)).has(run)


def test_only_paths_are_made_of_samples(fake_world: object) -> None:
    assert extras.needs_samples(("timeline", "paths"))
    assert not extras.needs_samples(("timeline",))
    result = simulate(make_scenario(TABLES))
    timeline, steps = extras.tables(result, ("timeline", "steps")).values()
    assert pl.read_parquet(BytesIO(timeline)).equals(result.timeline)
    assert pl.read_parquet(BytesIO(steps)).equals(result.steps)
    with pytest.raises(ValueError, match="not sampled"):
        extras.tables(result, ("paths",))
