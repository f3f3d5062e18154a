"""A sweep on a Dask cluster of two processes on this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import polars as pl
import pytest

import openmrc
from openmrc.errors import MissingExtra
from openmrc.scenario.scenario import Scenario

HAS_DASK = find_spec("distributed") is not None


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        yield cluster.scheduler_address


# Of Dask's own shutdown: sockets and loops that it leaves to the garbage collector.
@pytest.mark.filterwarnings("ignore:::distributed", "ignore::ResourceWarning")
@pytest.mark.skipif(not HAS_DASK, reason="DASK IS NOT TESTED: pip install 'openmrc[dask]'")
def test_a_cluster_says_what_this_machine_says(
    small: Scenario, address: str, tmp_path: Path
) -> None:
    over = {"seed": [1, 2, 3], "workload.dst": [1, 99]}
    there = openmrc.sweep(small, over, out=tmp_path / "a", dask=address, flows=True, progress=False)
    here = openmrc.sweep(small, over, out=tmp_path / "b", progress=False)
    own = ["loop_s", "link_traversals_per_s", "wall_s", "peak_rss_mb"]
    assert there.drop(own).equals(here.drop(own))
    assert there["error"].is_null().to_list() == [True, False] * 3
    assert pl.read_parquet(tmp_path / "a/flows").height == 3

    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "a/flows").iterdir()}
    over["seed"] = [2, 3, 4]
    openmrc.sweep(small, over, out=tmp_path / "a", dask=address, flows=True, progress=False)
    after = {path: path.stat().st_mtime_ns for path in (tmp_path / "a/flows").iterdir()}
    assert before.items() < after.items()
    assert len(after) == 4


def test_without_dask_the_error_says_what_to_install(
    small: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtra) as error:
        openmrc.sweep(small, {"seed": [1]}, out=tmp_path, dask="tcp://127.0.0.1:8786")
    assert str(error.value) == (
        "a sweep on a Dask cluster needs an extra: pip install 'openmrc[dask]'"
    )
