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
from openmrc.errors import InputError
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


def test_a_line_is_a_transport_and_a_point_the_mean_over_seeds(drawn: list[Figure]) -> None:
    plot.plot_png(ROWS, ["seed", "fabric.nics"], "a sweep")
    (axes,) = drawn[0].axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("fabric.nics", plot.HEADINGS[plot.FIGURE])
    lines = {line.get_label(): np.array(line.get_xydata()).tolist() for line in axes.get_lines()}
    assert lines == {"mrc": [[16, 12], [32, 20]], "roce": [[16, 40], [32, 60]]}
    assert (
        len({str(line.get_linestyle()) + str(line.get_color()) for line in axes.get_lines()}) == 2
    )


def test_the_interval_is_that_of_the_mean_with_95_percent(drawn: list[Figure]) -> None:
    """Four seeds of 10, 12, 14, 16: mean 13, deviation 2.582, t of 3 is 3.182: 13 +- 4.108."""
    rows = pl.DataFrame(
        {
            "transport": "mrc",
            "fabric.nics": [16] * 4 + [32],
            "seed": [1, 2, 3, 4, 1],
            plot.FIGURE: [10.0, 12.0, 14.0, 16.0, 20.0],
        }
    )
    plot.plot_png(rows, ["fabric.nics", "seed"], "a sweep")
    (axes,) = drawn[0].axes
    (path,) = axes.collections[0].get_paths()
    corners = {tuple(corner) for corner in np.asarray(path.vertices).round(3).tolist()}
    assert corners == {(16, 8.892), (16, 17.108), (32, 20)}  # one seed alone has no interval


def test_any_figure_is_drawn_on_any_scale(drawn: list[Figure]) -> None:
    name = "packets.retransmitted"
    rows = ROWS.rename({plot.FIGURE: name}).with_columns(pl.col(name) - 10)
    for log in ("", "x", "y", "xy"):
        plot.plot_png(rows, ["fabric.nics", "seed"], "a sweep", name, log)
    scales = [(f.axes[0].get_xscale(), f.axes[0].get_yscale()) for f in drawn]
    linear, symlog = "linear", "symlog"  # a zero has its place
    assert scales == [(linear, linear), ("log", linear), (linear, symlog), ("log", symlog)]
    assert drawn[0].axes[0].get_ylabel() == name


def test_a_figure_that_is_none_is_refused() -> None:
    with pytest.raises(InputError, match=r"--figure flows.fct_us.p10: there is none; did you mean"):
        plot.refuse(["fabric.nics"], "flows.fct_us.p10")
    with pytest.raises(InputError, match=r"--figure qp_errors: there is none"):
        plot.refuse(["fabric.nics"], "qp_errors")


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
    assert main(["sweep", "x.toml", *over, "--out", "swept", "--log", "y"]) == 2
    assert capsys.readouterr().err == "mrc: --log: only with --plot FILE.png\n"
    assert (
        main(["sweep", "x.toml", *over, "--out", "swept", "--plot", "new/a.png", "--log", "y"]) == 0
    )
    assert capsys.readouterr().err.splitlines()[-1] == "The picture is new/a.png."
    assert image.imread(BytesIO(Path("new/a.png").read_bytes())).shape[:2] == (650, 1300)
