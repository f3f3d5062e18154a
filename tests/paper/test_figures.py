"""The figures of the committed page, drawn anew from what it keeps of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from openmrc.paper.catalogue import EXPERIMENTS
from openmrc.paper.experiment import Experiment
from openmrc.paper.page import figure_name
from openmrc.paper.publish import FIGURES, PAGE, RESULTS, publish
from openmrc.report.picture import svg
from tests import pictures

FOLDER = Path(__file__).resolve().parents[2] / "docs/paper"
KEPT = json.loads((FOLDER / FIGURES).read_text(encoding="utf-8"))
BY_NAME = {e.name: e for e in EXPERIMENTS}
DRAWN = [e for e in EXPERIMENTS if KEPT[e.name]["drawn"] is not None]
# Whose published values are an order of curves, without a number.
WORDS_ALONE = {"B16"}


@pytest.mark.parametrize("experiment", DRAWN, ids=lambda e: e.name)
def test_a_figure_is_as_its_file_and_no_words_lie_on_others(experiment: Experiment) -> None:
    shown, overlaps = pictures.looked_at(experiment.draw(KEPT[experiment.name]["drawn"]))
    assert shown == pictures.drawn((FOLDER / figure_name(experiment, "svg")).read_bytes())
    said = " ".join(shown[0])
    assert ("published" in said or "ns-3" in said) == (experiment.name not in WORDS_ALONE)
    assert overlaps == []


def test_a_figure_is_the_same_file_twice() -> None:
    b7, drawn = BY_NAME["B7"], KEPT["B7"]["drawn"]
    assert svg(b7.draw(drawn)) == svg(b7.draw(drawn))


def test_what_is_not_run_again_keeps_its_part_of_the_page(tmp_path: Path) -> None:
    kept = KEPT | {e.name: KEPT[e.name] | {"drawn": None} for e in EXPERIMENTS if e.name != "B7"}
    (tmp_path / FIGURES).write_text(json.dumps(kept))
    (tmp_path / RESULTS).write_bytes((FOLDER / RESULTS).read_bytes())
    published = publish(EXPERIMENTS, tmp_path, tmp_path / "data", quick=False)
    assert list(published.findings) == [e.name for e in EXPERIMENTS]

    def rows(path: Path) -> list[str]:
        return [line for line in path.read_text(encoding="utf-8").splitlines() if "|" in line]

    assert rows(tmp_path / PAGE) == rows(FOLDER / PAGE)
    results = (tmp_path / RESULTS).read_text(encoding="utf-8")
    assert json.loads(results) == json.loads((FOLDER / RESULTS).read_text(encoding="utf-8"))
    assert json.loads((tmp_path / FIGURES).read_text(encoding="utf-8")) == kept
    # a figure of which nothing is kept stays as it is
    written = {RESULTS, FIGURES, PAGE, "B7.png", "B7.svg"}
    assert {path.name for path in tmp_path.iterdir()} == written
    # the reduced set is another page
    assert publish(EXPERIMENTS, tmp_path, tmp_path / "data", quick=True).findings == {}


def test_files_that_are_not_of_one_page_are_refused(tmp_path: Path) -> None:
    from openmrc.errors import InputError

    (tmp_path / RESULTS).write_bytes((FOLDER / RESULTS).read_bytes())
    (tmp_path / FIGURES).write_text("{}")
    with pytest.raises(InputError, match="not of one page"):
        publish(EXPERIMENTS, tmp_path, tmp_path / "data", quick=False)


def test_losses_of_rocev2_are_on_a_logarithmic_axis() -> None:
    from openmrc.paper.experiments import collectives

    shown: dict[str, Any] = {loss: {} for loss in collectives.LOSSES}
    one = {"size_mb": [4, 16], "least": [0.2, 0.2], "middle": [0.3, 0.4], "most": [0.4, 0.5]}
    shown["1 %"][collectives.roce(1)] = one
    _, panels = collectives.figure()
    collectives.draw(panels, shown)
    assert [axes.get_yscale() for axes in panels] == ["linear", "log", "log"]
    assert panels[2].get_ylim()[0] < 0.2
