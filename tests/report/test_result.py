"""What a person at a prompt or in a notebook sees of openmrc, and keeps."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

import openmrc
from openmrc.errors import InputError

if TYPE_CHECKING:
    from tests.conftest import FakeWorld

TEXT = """
name = "a <b> run"
[fabric]
nics = 4
[workload]
kind = "permutation"
size = "1kB"
[[transport]]
[[transport]]
name = "one path"
paths = "single"
"""


@pytest.fixture
def result(fake_world: type[FakeWorld]) -> openmrc.Result:
    return openmrc.simulate(openmrc.parse_scenario(TEXT))


def test_dir_is_the_api_before_anything_is_loaded() -> None:
    code = "import openmrc, sys; print(*dir(openmrc)); print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names, heavy = done.stdout.splitlines()
    assert names.split() == sorted(openmrc.__all__)
    assert heavy == "False"


def test_a_result_is_one_short_line(result: openmrc.Result, fake_world: type[FakeWorld]) -> None:
    assert repr(result) == "<Result of a <b> run, seed 1: mrc 40us, one path 120us>"
    assert repr(result.transports[0]) == "<TransportResult 'mrc': 4 of 4 flows completed>"
    fake_world.unfinished = 1
    late = openmrc.simulate(openmrc.parse_scenario(TEXT))
    assert repr(late) == "<Result of a <b> run, seed 1: mrc unfinished, one path unfinished>"
    many = TEXT + "".join(f'[[transport]]\nname = "t{i}"\n' for i in range(9))
    assert len(repr(openmrc.simulate(openmrc.parse_scenario(many)))) < 150


def test_a_notebook_shows_the_table_and_what_it_says(result: openmrc.Result) -> None:
    shown = result._repr_html_()
    assert shown.startswith("<p>a &lt;b&gt; run, seed 1</p><table>")
    assert (
        '<th scope="row">one path</th><td data-label="all flows finished after, us">120.0' in shown
    )
    assert "mrc finished after 40us: one path took 3.00 times as long (120us)." in shown


def test_a_result_is_saved_as_the_command_does(result: openmrc.Result, tmp_path: Path) -> None:
    assert isinstance(result, openmrc.Result)
    result.save(tmp_path / "new/results")
    names = sorted(path.name for path in (tmp_path / "new/results").iterdir())
    assert names == [
        "flows.parquet", "report.html", "scenario.toml", "summary.json", "timeline.parquet",
    ]  # fmt: skip
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match=r"save .*file: is a file; name a directory"):
        result.save(tmp_path / "file")


def test_a_report_is_one_page(result: openmrc.Result, tmp_path: Path) -> None:
    for _ in range(2):  # an older one is replaced
        result.report(tmp_path / "page.html")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    assert "a &lt;b&gt; run" in (tmp_path / "page.html").read_text(encoding="utf-8")
    with pytest.raises(InputError, match=r"report .*no/page.html: cannot be written"):
        result.report(tmp_path / "no/page.html")


def test_the_extra_that_the_api_page_names_is_there() -> None:
    root = Path(__file__).parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "`openmrc[pandas]`" in (root / "docs/api.md").read_text(encoding="utf-8")
    assert {each.partition(">")[0] for each in project["optional-dependencies"]["pandas"]} == {
        "pandas",
        "pyarrow",
    }


def test_a_table_says_what_pandas_needs(
    result: openmrc.Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without(*_: object, **__: object) -> None:
        raise ModuleNotFoundError("pa.Table requires 'pyarrow' module to be installed")

    monkeypatch.setattr(pl.DataFrame, "to_pandas", without)
    flows = result.flows
    late = flows.filter(pl.col("fct_us") > 0).sort("fct_us").with_columns(n=1).head(3)
    for table in (flows, result.figures, result.timeline, late, flows[:2], late.select("n")):
        with pytest.raises(openmrc.MissingExtra, match=r"pip install 'openmrc\[pandas\]'"):
            table.to_pandas()
