"""The experiments are complete: files, scenarios that can be built, seeds, words."""

from __future__ import annotations

from pathlib import Path

import pytest

from openmrc.paper.case import SHIPPED_AS, Case, folder, scenario
from openmrc.paper.catalogue import EXPERIMENTS
from openmrc.paper.experiment import Experiment
from openmrc.scenario.scenario import load_scenario

ROOT = Path(__file__).resolve().parents[2]
CASES = [(e, case) for e in EXPERIMENTS for case in e.cases]


def test_names_and_tags_are_unique() -> None:
    names = [e.name for e in EXPERIMENTS]
    assert len(set(names)) == len(names)
    for experiment in EXPERIMENTS:
        tags = [case.tag for case in experiment.cases]
        assert len(set(tags)) == len(tags)


def test_every_scenario_of_the_folder_belongs_to_an_experiment() -> None:
    used = {case.file for _, case in CASES}
    assert {path.stem for path in folder().glob("*.toml")} == used


def test_a_clone_has_them_among_its_examples() -> None:
    assert (ROOT / SHIPPED_AS).resolve() == folder().resolve()


@pytest.mark.parametrize(("experiment", "case"), CASES, ids=[f"{e.name} {c.tag}" for e, c in CASES])
def test_a_case_can_be_built_and_has_its_seeds(experiment: Experiment, case: Case) -> None:
    runs = case.runs(quick=False)
    assert [run.scenario.seed for run in runs] == list(range(1, case.seeds + 1))
    _, traffic, _ = runs[0].scenario.build()
    assert traffic.n_msgs
    assert len(case.runs(quick=True)) == (0 if case.quick is None else 1)
    assert experiment.claim.endswith(".")
    assert experiment.scaled.endswith(".")


def test_every_experiment_has_a_part_in_the_reduced_set() -> None:
    assert [e.name for e in EXPERIMENTS if not any(c.runs(quick=True) for c in e.cases)] == []


@pytest.mark.parametrize("path", sorted(folder().glob("*.toml")), ids=lambda path: path.stem)
def test_all_have_one_set_of_protocol_defaults(path: Path) -> None:
    """What a file overrides is what its experiment states: nothing about how MRC behaves."""
    stated = {"name", "kind", "evs_active", "evs_backup", "qps", "profile", "buffer"}
    stated |= {"routing", "convergence"}  # of the fabric, not of its endpoints
    tables = load_scenario(path).tables["transport"]
    assert {key for table in tables for key in table} <= stated


def test_a_scenario_is_found_without_its_ending() -> None:
    assert scenario("B6_staircase").name == "B6 staircase"
