"""The picture of a sweep."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from matplotlib import image
from matplotlib.figure import Figure

from openmrc.cli.command import main
from openmrc.scenario.scenario import Scenario
from openmrc.sweeps import plot

ROWS = pl.DataFrame(
    {
        "transport": ["mrc", "mrc", "mrc", "roce", "roce", "roce", "mrc"],
        "fabric.nics": [16, 16, 32, 16, 16, 32, 64],
        "seed": [1, 2, 1, 1, 2, 1, 1],
        plot.FIGURE: [10.0, 14.0, 20.0, 30.0, 50.0, 60.0, None],
    }
)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that are drawn, before they are pixels."""
    figures: list[Figure] = []

    def png(figure: Figure) -> bytes:
        figures.append(figure)
        return b""

    monkeypatch.setattr(plot, "png", png)
    return figures


def test_a_line_is_a_transport_and_a_point_the_median_over_seeds(drawn: list[Figure]) -> None:
    plot.plot_png(ROWS, ["seed", "fabric.nics"], "a sweep")
    (axes,) = drawn[0].axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("fabric.nics", plot.HEADING)
    lines = {line.get_label(): np.array(line.get_xydata()).tolist() for line in axes.get_lines()}
    assert lines == {"mrc": [[16, 12], [32, 20]], "roce": [[16, 40], [32, 60]]}
    assert (
        len({str(line.get_linestyle()) + str(line.get_color()) for line in axes.get_lines()}) == 2
    )


def test_further_keys_make_lines_of_their_own_and_words_stand_in_order(drawn: list[Figure]) -> None:
    rows = ROWS.with_columns(pl.Series("cc", ["nscc", "none"] * 3 + ["none"]))
    plot.plot_png(rows, ["cc", "fabric.nics"], "a sweep")
    (axes,) = drawn[0].axes
    assert [text.get_text() for text in axes.get_xticklabels()] == ["nscc", "none"]
    labels = [line.get_label() for line in axes.get_lines()]
    assert labels[0] == "mrc, fabric.nics 16"
    assert len(labels) == 4


def test_the_command_draws_and_refuses_seeds_alone(
    small: Scenario,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.toml").write_text(small.to_toml())
    assert main(["sweep", "x.toml", "--over", "seed=1,2", "--out", "swept", "--plot", "a.png"]) == 2
    assert "--plot: only seeds are swept over; name another key" in capsys.readouterr().err
    assert not Path("swept").exists()
    over = ["--over", "transport.pmtu=2048,4096", "--workers", "1"]
    assert main(["sweep", "x.toml", *over, "--out", "swept", "--plot", "new/a.png"]) == 0
    assert capsys.readouterr().err.splitlines()[-1] == "The picture is new/a.png."
    assert image.imread(BytesIO(Path("new/a.png").read_bytes())).shape[:2] == (650, 1300)
