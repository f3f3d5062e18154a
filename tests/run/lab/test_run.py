"""Scenarios in a lab as a user runs them: real processes, real frames, the simulator's results.

Each host is a process that loads compiled code, so a run takes seconds whatever its size; bounds on
times are those of a machine that does something else as well.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from openmrc.run.lab.run import _prepare
from openmrc.scenario.scenario import load_scenario
from tests.live.lab.conftest import MRC, mrc, needed

SCENARIO = """
[fabric]
nics = 4
planes = 2
port_rate = "20Mbps"
t0_down = 2
link_delay = "500us"
switch_delay = "20us"

[transport]
base_rtt = "16ms"

[workload]
"""
PERMUTATION = 'kind = "permutation"\nsize = "1MB"\n'
RING = 'kind = "ring-all-reduce"\nsize = "400KB"\ncompute = "2ms"\n'


def written(folder: Path, workload: str, more: str = "") -> Path:
    needed("openmrc")
    file = folder / "scenario.toml"
    file.write_text(SCENARIO + workload + more)
    return file


def in_lab(file: Path, *options: str | Path) -> dict[str, Any]:
    done = mrc("run", file, "--world", "lab", "--json", *options)
    assert done.returncode == 0, done.stderr
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def simulated(file: Path) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads(mrc("run", file, "--json").stdout)
    return summary


def keys(table: Any) -> Any:
    """The names in nested objects."""
    return {k: keys(v) for k, v in table.items()} if isinstance(table, dict) else None


@pytest.fixture(scope="module")
def permutation(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("lab")
    file = written(folder, PERMUTATION)
    at = ("--pcap", folder / "nic0.pcapng", "--at", "nic 0")
    return folder, in_lab(file, "--out", folder / "out", *at)


def test_a_permutation_is_there_byte_for_byte(
    permutation: tuple[Path, dict[str, Any]],
) -> None:
    folder, summary = permutation
    run = summary["transports"]["mrc"]
    assert run["flows"]["completed"] == run["flows"]["total"] == 4
    assert run["bytes_verified"] == 4_000_000
    assert run["qp_errors"] == []
    assert run["packets"]["data"] == 4 * 245
    # 40 Mb/s a NIC; nothing is faster than the wires
    assert run["slowdown_p100"] >= 1
    timeline = pl.read_parquet(folder / "out/timeline.parquet")
    placed = float(timeline["goodput_gbps"].to_numpy().sum()) * 1e9 / 8 * 0.02
    assert placed == pytest.approx(4_000_000, rel=0.001)


def test_the_results_are_those_of_a_simulation(permutation: tuple[Path, dict[str, Any]]) -> None:
    folder, summary = permutation
    assert keys(summary) == keys(simulated(folder / "scenario.toml"))
    names = {path.name for path in (folder / "out").iterdir()}
    tables = ("flows", "timeline", "events", "paths", "account", "counts")
    assert names == {
        *("summary.json", "report.html", "scenario.toml"),
        *(f"{table}.parquet" for table in tables),
    }
    done = mrc("run", folder / "scenario.toml", "--out", folder / "sim")
    assert done.returncode == 0
    for name in tables:
        there, here = (
            pl.read_parquet(folder / d / f"{name}.parquet").schema for d in ("sim", "out")
        )
        assert there == here


def test_a_capture_shows_what_a_nic_sent(permutation: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = permutation
    done = mrc("decode", folder / "nic0.pcapng", "--json")
    assert done.returncode == 0
    *_, last = done.stdout.splitlines()
    assert json.loads(last)["summary"]["packets"] > 2 * 245


def test_messages_wait_for_what_releases_them(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run = in_lab(written(tmp_path, RING), "--out", out)["transports"]["mrc"]
    flows = pl.read_parquet(out / "flows.parquet").sort("src", "start_us")
    assert run["flows"]["completed"] == len(flows) == 4 * 6
    assert run["bytes_verified"] == 4 * 6 * 100_000
    # Step k of a rank begins 2 ms after step k - 1 of the one before it has arrived.
    for rank in range(4):
        mine, before = (flows.filter(pl.col("src") == nic) for nic in (rank, (rank - 1) % 4))
        gaps = (mine["start_us"][1:] - before["delivered_us"][:-1]).to_list()
        assert min(gaps) >= 2000
        assert mine["start_us"][0] >= 0


def test_a_run_goes_on_while_a_plane_is_cut_and_mrc_why_names_it(tmp_path: Path) -> None:
    fault = '[[fault]]\nat = "100ms"\nkind = "port-down"\nwhere = "nic * plane 1"\nfor = "700ms"\n'
    workload = PERMUTATION.replace("1MB", "3MB")
    file = written(tmp_path, workload, fault)
    run = in_lab(file, "--out", tmp_path / "out")["transports"]["mrc"]
    assert run["flows"]["completed"] == 4
    assert run["bytes_verified"] == 12_000_000
    assert run["packets"]["dropped_fault"] > 0
    # A NIC that waited for its dead port would keep the cores busy, and take many times as long.
    expected = simulated(file)["transports"]["mrc"]["flows"]["fct_us"]["p100"]
    assert run["flows"]["fct_us"]["p100"] < 2 * expected
    done = mrc("why", tmp_path / "out", "--json")
    (answer,) = json.loads(done.stdout)["transports"]
    assert answer["paths_known"]
    # links between its switches stay up: what is down are those of both T0s to their NICs
    places = {f"plane 1 t0 {k} transceiver 0" for k in range(2)}
    assert {it["where"] for it in answer["findings"]} in ({"plane 1"}, places)


def test_a_dead_peer_is_an_error_and_not_a_hang(tmp_path: Path) -> None:
    fault = '[[fault]]\nat = "50ms"\nkind = "port-down"\nwhere = "nic 0 plane *"\n'
    file = written(tmp_path, PERMUTATION, fault)
    done = mrc("run", file, "--world", "lab", "--json", "--set", "transport.exp_cnt=1")
    assert done.returncode == 1
    run = json.loads(done.stdout)["transports"]["mrc"]
    assert run["flows"]["failed"] >= 1
    assert run["qp_errors"]
    assert "FAILED" in done.stderr


def test_a_run_ends_at_the_stated_time(tmp_path: Path) -> None:
    workload = PERMUTATION.replace("1MB", "50MB")
    file = written(tmp_path, workload, '[stop]\ntime = "300ms"\n')
    run = in_lab(file)["transports"]["mrc"]
    assert run["flows"]["unfinished"] == 4
    assert 300_000 <= run["sim_time_us"] < 3_000_000
    assert run["goodput_gbps"]["total"] > 0


def agents(mark: str) -> list[int]:
    """Processes of our user whose environment holds this mark."""
    found = []
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and mark.encode() in Path(f"/proc/{name}/environ").read_bytes():
                found.append(int(name))
        except OSError:
            continue
    return found


def test_ctrl_c_gives_what_there_is_and_leaves_nothing(tmp_path: Path) -> None:
    file = written(tmp_path, PERMUTATION.replace("1MB", "200MB"))
    mark = f"MARK_OF_THIS_RUN={os.getpid()}"
    run = subprocess.Popen(
        ["env", mark, *MRC, "run", str(file), "--world", "lab", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    assert run.stderr is not None
    for line in run.stderr:
        if "the run begins" in line:
            break
    assert len(agents(mark)) >= 4
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does it: to all of the foreground
    out, words = run.communicate(timeout=60)
    assert run.returncode == 130, words
    summary = json.loads(out)
    assert summary["partial"]
    assert summary["transports"]["mrc"]["flows"]["unfinished"] == 4
    assert "INTERRUPTED" in words
    assert agents(mark) == []


def test_where_namespaces_are_refused_it_says_what_to_type(tmp_path: Path) -> None:
    file = written(tmp_path, PERMUTATION)
    forbid = 'echo 0 > /proc/sys/user/max_net_namespaces && exec "$@"'
    under = ["unshare", "-Ur", "sh", "-c", forbid, "sh"]
    done = mrc("run", file, "--world", "lab", under=under)
    assert done.returncode == 2
    assert "namespaces are refused" in done.stderr
    assert "type: sudo sysctl" in done.stderr


def test_python_runs_it_too(tmp_path: Path) -> None:
    file = written(tmp_path, PERMUTATION.replace("1MB", "100KB"))
    lines = (
        "from openmrc.run.lab import run_in_lab\n"
        f"result = run_in_lab({str(file)!r})\n"
        "print(result.exit_status, result.transports[0].bytes_verified, result.flows.height)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", lines], capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout.split() == ["0", "400000", "4"]


EXAMPLES = sorted((Path(__file__).resolve().parents[3] / "examples/worlds").glob("*.toml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_can_run_in_a_lab(path: Path) -> None:
    spec, plan, derived = _prepare(load_scenario(path), 0)
    assert spec.base_rtt_us == derived.base_rtt_ps / 1e6 == 16_000
    assert len(plan.jobs) == 8
