"""The whole of it, on real workers: what a user calls, and what the command does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

import openmrc
from openmrc.cli.command import main
from openmrc.errors import InputError
from openmrc.scenario.scenario import Scenario, make_scenario
from openmrc.sweeps.command import parse_over

TWO = {
    "fabric": {"nics": 4, "planes": 2, "port_rate": "100Gbps", "t0_down": 2},
    "workload": {"kind": "permutation", "size": "20kB"},
    "transport": [{}, {"paths": "single"}],
    "fault": [{"at": "0us", "kind": "link-loss", "where": "plane 0 t0 0 - t1 *", "rate": 0.0}],
}


def files(folder: Path) -> dict[str, int]:
    """Every file with the time it was written."""
    return {p.name: p.stat().st_mtime_ns for p in folder.rglob("*") if p.is_file()}


def test_a_sweep_is_a_table_of_what_each_run_alone_would_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    over = {"transport.mrc.pmtu": [1024, "4KiB"], "seed": [3, 4]}
    table = openmrc.sweep(TWO, over, out=tmp_path, flows=True)

    assert table.columns[:5] == ["transport.mrc.pmtu", "seed", "transport", "error", "run"]
    assert table.select("transport.mrc.pmtu", "seed", "transport", "transport.pmtu").rows() == [
        ("1024", 3, "mrc", 1024),
        ("1024", 3, "single", 4096),
        ("1024", 4, "mrc", 1024),
        ("1024", 4, "single", 4096),
        ("4KiB", 3, "mrc", 4096),
        ("4KiB", 3, "single", 4096),
        ("4KiB", 4, "mrc", 4096),
        ("4KiB", 4, "single", 4096),
    ]
    alone = openmrc.simulate(make_scenario(TWO, {"transport.mrc.pmtu": 1024, "seed": 4}))
    own = {"loop_s", "link_traversals_per_s"}
    shared = [column for column in alone.figures.columns if column not in own]
    assert alone.figures.select(shared).equals(table[2:4].select(shared))
    flows = pl.read_parquet(tmp_path / "flows").filter(pl.col("run") == table["run"][2])
    assert flows.drop("run").equals(alone.flows)
    assert capsys.readouterr().err.splitlines()[-1] == f"4 of 4 runs are in {tmp_path}."


def test_a_sweep_called_again_runs_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = openmrc.sweep(TWO, {"seed": [1, 2]}, out=tmp_path, progress=False)
    assert capsys.readouterr().err == ""
    before = files(tmp_path)
    more = openmrc.sweep(TWO, {"seed": [1, 2, 3]}, out=tmp_path)
    assert more[:4].equals(first)
    after = files(tmp_path)
    assert {name: after[name] for name in before} == before
    assert len(after) == len(before) + 1
    assert capsys.readouterr().err.splitlines() == [
        f"2 of 3 runs are in {tmp_path}.",
        f"3 of 3 runs are in {tmp_path}.",
    ]
    again = openmrc.sweep(TWO, {"seed": [3, 1]}, out=tmp_path, workers=1)
    assert again["seed"].to_list() == [3, 3, 1, 1]
    assert files(tmp_path) == after


def test_a_run_that_fails_says_which_and_why_and_the_others_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    over = {"fault[0].where": ["plane 0 t0 0 - t1 *", "plane 7 t0 0 - t1 0"], "seed": [1, 2]}
    table = openmrc.sweep(TWO, over, out=tmp_path, workers=1)
    why = "scenario: fault[0].where: 'plane 7 t0 0 - t1 0'"
    failed = table.filter(pl.col("error").is_not_null())
    assert failed.select("fault[0].where", "seed", "transport").rows() == [
        ("plane 7 t0 0 - t1 0", 1, None),
        ("plane 7 t0 0 - t1 0", 2, None),
    ]
    assert all(error.startswith(why) for error in failed["error"])
    assert table.height == 6
    said = capsys.readouterr().err
    assert f"FAILED: fault[0].where=plane 7 t0 0 - t1 0 seed=2: {why}" in said
    assert said.splitlines()[-1] == f"2 of 4 runs are in {tmp_path}, 2 failed."


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 0}, "workers: 0; accepted: 1 to 1024"),
        ({"workers": 1025}, "workers: 1025; accepted: 1 to 1024"),
        ({"workers": 2, "dask": "tcp://a:1"}, "workers: is for this machine; a Dask cluster has"),
        ({"dask": "nowhere"}, "dask: no scheduler answers at 'nowhere' (missing port number"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_written(
    small: Scenario, options: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as error:
        openmrc.sweep(small, {"seed": [1]}, out=tmp_path / "d", **options)  # type: ignore[arg-type]
    assert str(error.value).startswith(message)
    assert not (tmp_path / "d").exists()


def test_a_file_in_the_way_is_seen_before_anything_runs(small: Scenario, tmp_path: Path) -> None:
    (tmp_path / "d").touch()
    with pytest.raises(InputError, match=r"^out .*d: is a file; name a directory"):
        openmrc.sweep(small, {"seed": [1]}, out=tmp_path / "d")


def test_a_script_needs_no_guard(tmp_path: Path) -> None:
    """Workers do not run the script that called `sweep` again."""
    script = tmp_path / "study.py"
    script.write_text(
        "import openmrc\n"
        f"table = openmrc.sweep({TWO!r}, {{'seed': range(3)}}, out='d', progress=False)\n"
        "print(table.height)\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("6\n", "")


# --- the command


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "x.toml").write_text(make_scenario(TWO).to_toml())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_values_are_listed_or_a_range_with_both_ends() -> None:
    assert parse_over(["seed=1..3", "transport.pmtu=2048, 4KiB", "fabric.trim=true,false"]) == {
        "seed": [1, 2, 3],
        "transport.pmtu": [2048, "4KiB"],
        "fabric.trim": [True, False],
    }
    assert parse_over(["seed=4..4", "fault[0].rate=0.5"]) == {"seed": [4], "fault[0].rate": [0.5]}


def test_the_command_prints_a_row_per_run_and_transport(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = "sweep x.toml --over seed=1..2 --over fault[0].rate=0,1 --set stop.time=1ms --out d"
    assert main(command.split()) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    cells = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]
    assert [row[:3] for row in cells] == [
        [seed, rate, name] for seed in "12" for rate in "01" for name in ("mrc", "single")
    ]
    assert main([*command.split(), "--json", "--workers", "1", "--flows"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["fault[0].rate"] for row in rows] == [0, 0, 1, 1] * 2
    assert len(list((here / "d/flows").iterdir())) == 4


@pytest.mark.parametrize(
    ("what", "status", "words"),
    [
        ("workload.size=1GB stop.time=20us", 0, ""),
        ("transport.exp_cnt=0 fault[0].rate=1.0 fault[0].where=plane_*_t0_*_-_t1_*", 1, ""),
        ("fault[0].where=plane_9_t0_0_-_t1_0", 1, "FAILED: seed=1: x.toml: fault[0].where: "),
    ],
)
def test_a_planned_end_is_well_a_failed_flow_or_run_is_not(
    what: str, status: int, words: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = [part for word in what.split() for part in ("--set", word.replace("_", " "))]
    changes = [part.replace("exp cnt", "exp_cnt") for part in changes]
    assert main(["sweep", "x.toml", "--over", "seed=1", "--out", "d", *changes]) == status
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("sweep x.toml --out d", "the following arguments are required: --over"),
        ("sweep x.toml --over seed=1", "the following arguments are required: --out"),
        ("sweep no.toml --over seed=1 --out d", "no.toml: cannot be read (No such file or "),
        ("sweep x.toml --over seed --out d", "--over seed: accepted: KEY=VALUES, such as "),
        ("sweep x.toml --over seed= --out d", "--over seed=: accepted: KEY=VALUES, such as "),
        ("sweep x.toml --over =1 --out d", "--over =1: accepted: KEY=VALUES, such as "),
        ("sweep x.toml --over seed=2..1 --out d", "--over seed=2..1: 2 is above 1; "),
        ("sweep x.toml --over seed=1..100001 --out d", "more than 100,000 runs; sweep over fewer"),
        ("sweep x.toml --over seed=1,x --out d", "--over: seed: 'x' is refused; accepted: a whole"),
        ("sweep x.toml --over seed=1 --over seed=2 --out d", "--over seed=2: seed is given twice"),
        (
            "sweep x.toml --over transport.pmtu=3000 --out d",
            "--over: transport[0].pmtu: 3000; accept",
        ),
        ("sweep x.toml --over fault[1].rate=1 --out d", "--over fault[1].rate: there is no such"),
        ("sweep x.toml --over seed=1 --set seed=x --out d", "--set: seed: 'x' is refused; "),
        ("sweep x.toml --over seed=1 --out x.toml", "--out x.toml: is a file; name a directory"),
        ("sweep x.toml --over seed=1 --out d --workers 0", "workers: 0; accepted: 1 to 1024"),
        ("sweep x.toml --over seed=1 --out d --workers two", "--workers two: accepted: a whole "),
        ("sweep x.toml --over seed=1 --out d --dask x", "dask: no scheduler answers at 'x' ("),
    ],
)
def test_a_wrong_sweep_is_status_2_one_line_and_nothing_written(
    arguments: str, words: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments.split()) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("mrc: ")
    assert words in printed.err
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert [path.name for path in here.iterdir()] == ["x.toml"]


def test_an_interrupted_sweep_keeps_what_is_done_and_goes_on(here: Path) -> None:
    command = [sys.executable, "-m", "openmrc.cli", "sweep", "x.toml", "--out", "d"]
    command += ["--over", "workload.size=20kB,100GB", "--over", "seed=1"]
    sweep = subprocess.Popen(
        [*command, "--workers", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    limit = time.monotonic() + 120
    while not list(here.glob("d/runs/*.parquet")):
        assert time.monotonic() < limit
        time.sleep(0.02)
    os.kill(sweep.pid, signal.SIGINT)
    out, err = sweep.communicate(timeout=30)
    assert (sweep.returncode, out) == (130, "")
    assert err.splitlines()[-2:] == [
        "Interrupted: 1 of 2 runs are in d; resume by running the same again.",
        "mrc: interrupted",
    ]
    kept = files(here / "d")
    command[command.index("workload.size=20kB,100GB")] = "workload.size=20kB,40kB"
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "1 of 2 runs are in d." in done.stderr
    assert kept.items() <= files(here / "d").items()
