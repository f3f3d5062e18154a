"""From a scenario's text to the summary, through the real simulator."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from matplotlib.image import imread

from openmrc.cli.command import main
from openmrc.jit import interpreted
from openmrc.report.files import write_results
from openmrc.report.picture import goodput_png
from openmrc.run.simulation import simulate
from openmrc.scenario.scenario import demo_scenario, load_scenario, make_scenario, parse_scenario
from tests import why_picture

ROOT = Path(__file__).resolve().parents[1]

SCENARIO = """
[fabric]
nics = 8
planes = 4
port_rate = "100Gbps"
t0_down = 4
[workload]
kind = "permutation"
size = "300kB"
[[transport]]
[[transport]]
paths = "oblivious"
[[transport]]
paths = "single"
"""
CUT = """
[[fault]]
at = "5us"
kind = "link-down"
where = "plane 1 t0 0 - t1 *"
"""


def summary(text: str, *overrides: str) -> dict[str, Any]:
    found = simulate(parse_scenario(text, overrides)).summary()
    for measured in ("wall_s", "peak_rss_mb"):
        del found[measured]
    for transport in found["transports"].values():
        for measured in ("loop_s", "link_traversals_per_s"):
            del transport[measured]
    return found


def test_a_run_is_a_function_of_scenario_and_seed() -> None:
    once = summary(SCENARIO + CUT)
    assert summary(SCENARIO + CUT) == once
    assert summary(SCENARIO + CUT, "seed=2")["transports"] != once["transports"]


def test_every_transport_places_every_byte_and_none_beats_the_ideal() -> None:
    for transport in summary(SCENARIO)["transports"].values():
        assert transport["flows"]["completed"] == 8
        assert transport["bytes_verified"] == 8 * 300_000
        assert transport["slowdown_p100"] > 1
        fct_us, ideal_us = transport["flows"]["fct_us"], transport["ideal_us"]
        assert transport["slowdown_p100"] == round(fct_us["p100"] / ideal_us, 4)


def test_a_cut_loses_packets_and_no_bytes() -> None:
    mrc = summary(SCENARIO + CUT)["transports"]["mrc"]
    assert mrc["packets"]["dropped_fault"] > 0
    assert mrc["packets"]["retransmitted"] > 0
    assert mrc["paths"]["assumed_bad"] > 0
    assert mrc["bytes_verified"] == 8 * 300_000


def test_a_stated_end_ends_the_run_there() -> None:
    result = simulate(parse_scenario(SCENARIO, ["stop.time=3us"]))
    assert result.exit_status == 0
    for run in result.transports:
        assert run.now_ps <= 3_000_000
        assert run.n_unfinished == 8


def test_control_c_prints_what_there_is(tmp_path: Path) -> None:
    (tmp_path / "long.toml").write_text(SCENARIO.replace("300kB", "3GB"))
    command = [sys.executable, "-m", "openmrc.cli", "run", "long.toml", "--json", "--out", "kept"]
    shows = os.environ | {"FORCE_COLOR": "1"}  # its progress, as on a terminal
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=shows
    ) as run:
        assert run.stderr is not None
        said = b""
        while b"us simulated" not in said:
            said += (more := os.read(run.stderr.fileno(), 1 << 12))
            assert more, said
        run.send_signal(signal.SIGINT)
        out, words = run.communicate(timeout=120)
    assert run.returncode == 130
    assert json.loads(out)["partial"] is True
    assert b"Traceback" not in words
    assert json.loads((tmp_path / "kept/summary.json").read_text())["partial"] is True


@pytest.mark.skipif(interpreted(), reason="minutes in plain Python")
def test_the_picture_of_the_readme_is_that_of_the_demo() -> None:
    """After a change of the protocol: `mrc demo`, `cp openmrc-demo/goodput.png docs/demo.png`."""
    result = simulate(demo_scenario())
    drawn = imread(BytesIO(goodput_png(result)), format="png")
    kept = imread(ROOT / "docs/demo.png")
    assert drawn.shape == kept.shape
    other = (abs(drawn - kept) > 0.1).any(axis=2)
    assert (
        other.mean() < 0.002
    )  # letters of another version of the fonts; another run is 1 % and more
    mrc, *others = (run.summary()["whole_us"] for run in result.transports)
    said = " ".join((ROOT / "README.md").read_text().split())
    for us in others:
        assert f" {us / mrc:.2f} times as long" in said


@pytest.mark.skipif(interpreted(), reason="minutes in plain Python")
def test_the_page_in_the_readme_says_what_mrc_why_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a change of its words: `python -m tests.why_picture`."""
    tables = load_scenario(why_picture.SCENARIO).tables
    alone = make_scenario(tables | {"transport": tables["transport"][:1]})
    write_results(simulate(alone, sampled=True), tmp_path / "results")
    assert main(["why", str(tmp_path / "results")]) == 0
    assert " ".join(capsys.readouterr().out.split()) == why_picture.paragraph()
