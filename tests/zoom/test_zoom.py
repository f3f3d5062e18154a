"""`mrc zoom`: what was broken and under way at a moment, written down, run and compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from openmrc.cli import main
from openmrc.fabric.clos import multiplane
from openmrc.fabric.faults import compile_faults
from openmrc.fabric.kinds import Fault
from openmrc.scenario.scenario import load_scenario
from openmrc.zoom.faults import faults_between
from openmrc.zoom.messages import Messages, as_cm, reduced, under_way

US = 10**6
RUN = """
level = "flow"
[fabric]
nics = 32
planes = 2
port_rate = "100Gbps"
t0_down = 8
[workload]
kind = "ring-all-reduce"
size = "4MB"
[[fault]]
at = "20us"
kind = "port-down"
where = "nic 3 plane 1"
"""
DAY = """
[fabric]
nics = 32
planes = 4
port_rate = "100Gbps"
t0_down = 8
[workload]
kind = "training"
tp = 4
layers = 2
forward = "10ms"
tp_size = "1MB"
dp_size = "10MB"
expert_size = "0B"
ep_size = "0B"
pp_size = "1B"
"""
OFTEN = ["--set", "link_mtbf_h=200", "--set", "gpu_mtbf_h=1e6"]


def fabric() -> Any:
    """Four T0s of four NICs, two planes."""
    return multiplane(16, 2, 100 * 10**9, 4, 4, 500_000, 250_000)


def messages(*rows: tuple[int, int, int, int, int]) -> Messages:
    """Messages as (from, to, bytes, start, time), times in us."""
    src, dst, size, start, took = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    return Messages(src, dst, size, start * US, took * US)


def test_what_holds_at_a_moment_holds_from_its_beginning() -> None:
    link = "plane 0 t0 0 - t1 1"
    before = Fault(at_ps=10 * US, kind="link-down", where=link, for_ps=20 * US)
    within = Fault(at_ps=22 * US, kind="link-loss", where="nic 3 plane 1", rate=0.25)
    over = Fault(at_ps=1 * US, kind="link-down", where="nic 0 plane 0", for_ps=4 * US)
    later = Fault(at_ps=50 * US, kind="switch-silent", where="plane 0 t1 0")
    events = compile_faults([before, within, over, later], fabric(), 1, None).events
    found = faults_between(fabric(), events, 20 * US, 40 * US)
    down, loss = sorted(found, key=lambda each: str(each["kind"]))
    assert down == {
        **{"at": "0ps", "for": f"{10 * US}ps", "kind": "link-down"},
        "where": ["plane 0 t0 0 > t1 1", "plane 0 t0 0 < t1 1"],
    }
    assert (loss["at"], loss["rate"], "for" in loss) == (f"{2 * US}ps", 0.25, False)
    silent = faults_between(fabric(), events, 60 * US, 61 * US)
    assert {"at": "0ps", "kind": "switch-silent", "where": ["plane 0 t1 0"]} in silent


def test_of_a_message_the_rest_is_under_way_and_of_a_series_its_next_messages() -> None:
    flows = pl.DataFrame(
        {
            "src": [0, 1, 2, 3],
            "dst": [1, 2, 3, 0],
            "bytes": [1000, 1000, 8000, 1000],
            "messages": [1, 1, 8, 1],
            "start_us": [10.0, 90.0, 100.0, None],
            "delivered_us": [110.0, 95.0, 180.0, None],
            "done_us": [111.0, 96.0, 181.0, None],
        }
    )
    found = under_way(flows, 200.0, 100 * US, 125 * US)
    assert found.src.tolist() == [0, 2, 2, 2]
    assert found.bytes.tolist() == [100, 1000, 1000, 1000]
    assert (found.start_ps / US).tolist() == [0, 0, 10, 20]
    assert (found.took_ps / US).tolist() == [10, 10, 10, 10]


def test_what_is_kept_is_of_the_t0_with_the_slowest_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    every = messages((0, 1, 100, 0, 5), (4, 9, 100, 0, 50), (8, 5, 100, 0, 5), (12, 13, 100, 0, 5))
    assert reduced(every, fabric(), 4096) is every
    monkeypatch.setattr("openmrc.zoom.messages.MESSAGES_MAX", 2)
    assert reduced(every, fabric(), 4096).src.tolist() == [4, 8]
    assert as_cm(every, 16).splitlines()[2] == "0->1 id 1 start 0 size 100"


def test_a_moment_of_a_run_is_written_run_and_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.toml"
    file.write_text(RUN, encoding="utf-8")
    results, out = str(tmp_path / "results"), tmp_path / "zoomed"
    assert main(["run", str(file), "--out", results]) == 0
    capsys.readouterr()
    asked = ["zoom", results, "--for", "20us", "--out", str(out)]
    assert main([*asked, "--at", "100us", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    was, flow, packet = told["figures"].values()
    assert was["messages"] == flow["messages"] == packet["messages"] > 32
    assert packet["all placed, us"] == pytest.approx(flow["all placed, us"], rel=0.03)
    assert was["p50, us"] == pytest.approx(packet["p50, us"], rel=0.1)
    written = load_scenario(out / "zoom.toml")
    assert [each.kind for each in written.faults] == ["link-down"]
    assert 'cm = "zoom.cm"' in (out / "zoom.toml").read_text(encoding="utf-8")
    assert main([*asked, "--at", "1s"]) == 2
    assert "the run of mrc ended after" in capsys.readouterr().err
    assert main([*asked, "--at", "100us", "--transport", "x"]) == 2
    assert "is not there; the results have mrc" in capsys.readouterr().err


def test_a_moment_of_a_day_lacks_what_the_day_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "day.toml"
    file.write_text(DAY, encoding="utf-8")
    results, out = str(tmp_path / "results"), tmp_path / "zoomed"
    assert main(["day", str(file), "--out", results, *OFTEN]) == 0
    capsys.readouterr()
    asked = ["zoom", results, "--for", "50us", "--out", str(out), "--json"]
    assert main([*asked, "--at", "80000s"]) == 0
    _, flow, packet = json.loads(capsys.readouterr().out)["figures"].values()
    assert packet["all placed, us"] == pytest.approx(flow["all placed, us"], rel=0.05)
    assert {each.kind for each in load_scenario(out / "zoom.toml").faults} == {"link-down"}
    assert main([*asked, "--at", "90000s"]) == 2
    assert "the day ended after 1 days" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--at", "soon"], "--at: "),
        (["--at", "1us", "--for", "2s"], "at most 1s"),
        (["--at", "1us"], "is not there; name a directory that mrc run --out has written"),
    ],
)
def test_wrong_input_is_refused_with_its_place(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["zoom", str(tmp_path / "nothing"), *arguments]) == 2
    assert said in capsys.readouterr().err
