"""The steps of a training job on the page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from openmrc.report.page import html
from openmrc.report.steps import COLUMNS, page_data
from openmrc.run.results import Result
from openmrc.run.simulation import simulate
from openmrc.scenario.scenario import parse_scenario
from openmrc.units import US
from tests.report import browser
from tests.report.browser import Browser

TEXT = """
name = "small job"
[fabric]
nics = 8
planes = 2
t0_down = 4
[workload]
kind = "training"
tp = 2
steps = 4
layers = 1
microbatches = 1
forward = "20us"
tp_size = "64kB"
dp_size = "64kB"
[[transport]]
[[transport]]
name = "dies"
rto_exponent = 0
linear_cnt = 2
exp_cnt = 1
[[fault]]
at = "150us"
kind = "port-down"
where = "nic 5 plane *"
for = "700us"
"""


@pytest.fixture(scope="module")
def result() -> Result:
    return simulate(parse_scenario(TEXT))


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    if absent := browser.missing():
        pytest.skip(f"{' and '.join(absent)} not installed: the page was not opened in a browser")
    with Browser() as window:
        yield window


def test_the_page_has_each_step_s_time_beside_the_ideals(result: Result) -> None:
    alive, dead = result.transports
    assert alive.training is not None
    assert dead.training is not None
    data = page_data(alive.training)
    assert data is not None
    assert data["steps"] == len(data["us"]) == 4
    assert sum(data["us"]) == pytest.approx(alive.training.ends_ps.max() / US)
    assert data["compute"] == [60.0] * 4
    ideal, real = data["network"], data["us"]
    assert all(a > 60 for a in ideal)
    assert sum(ideal) < sum(real)
    lost = page_data(dead.training)
    assert lost is not None
    assert (len(lost["us"]), lost["died"]) == (dead.training.completed, dead.training.died_in_step)
    assert page_data(None) is None


@pytest.mark.parametrize("width", [380, 1600])
def test_the_steps_are_drawn_and_a_dead_job_is_named(
    chrome: Browser, result: Result, tmp_path: Path, width: int
) -> None:
    page = tmp_path / "report.html"
    page.write_text(html(result), encoding="utf-8")
    chrome.open(page, width=width)
    assert chrome.js("document.documentElement.dataset.errors") == ""
    assert chrome.js("document.getElementById('steps').hidden") is False
    assert chrome.js("document.querySelectorAll('#steps svg .curve').length") == 4
    heads = chrome.js("[...document.querySelectorAll('#steps thead th')].length")
    assert heads == len(COLUMNS)
    legend = str(chrome.js("document.querySelector('#steps .legend').textContent"))
    assert "dies (died in step " in legend
    assert "compute and a perfect network" in legend
    ticks = chrome.js("document.querySelector('#steps .plot').textContent")
    assert "1234step" in str(ticks)
    box = chrome.js("document.getElementById('steps').getBoundingClientRect().right")
    assert float(str(box)) <= width


def test_the_page_of_another_workload_has_no_steps(chrome: Browser, tmp_path: Path) -> None:
    text = '[fabric]\nnics = 4\nt0_down = 2\n[workload]\nkind = "permutation"\nsize = "10kB"'
    page = tmp_path / "report.html"
    page.write_text(html(simulate(parse_scenario(text))), encoding="utf-8")
    chrome.open(page)
    assert chrome.js("document.documentElement.dataset.errors") == ""
    assert chrome.js("document.getElementById('steps').hidden") is True
