from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openmrc.errors import InputError
from openmrc.jit import cache
from openmrc.scenario.fabric import Multiplane
from openmrc.scenario.scenario import Scenario, load_scenario, make_scenario
from openmrc.sweeps import plan as plans
from openmrc.sweeps.plan import code_hash, plan


def test_every_combination_is_a_run_and_the_last_key_changes_fastest(small: Scenario) -> None:
    runs = plan(small, {"transport.pmtu": [2048, 4096], "seed": range(1, 4)})
    assert [(r.scenario.transports[0].pmtu, r.scenario.seed) for r in runs] == [
        (2048, 1),
        (2048, 2),
        (2048, 3),
        (4096, 1),
        (4096, 2),
        (4096, 3),
    ]
    assert runs[4].overrides == {"transport.pmtu": 4096, "seed": 2}
    assert len({run.key for run in runs}) == 6


def test_a_list_of_dicts_names_the_runs_one_by_one(small: Scenario) -> None:
    first, second = plan(small, [{"fabric.nics": 8, "seed": 5}, {"workload.size": "1kB"}])
    assert isinstance(first.scenario.fabric, Multiplane)
    assert (first.scenario.fabric.nics, first.scenario.seed) == (8, 5)
    assert second.scenario == small.replace({"workload.size": "1kB"})


def test_numbers_of_numpy_are_numbers(small: Scenario) -> None:
    runs = plan(small, {"seed": np.arange(2), "fabric.ecn_low": np.linspace(0, 0.5, 2)})
    assert [(r.scenario.seed, r.scenario.fabric.ecn_low) for r in runs] == [
        (0, 0.0),
        (0, 0.5),
        (1, 0.0),
        (1, 0.5),
    ]
    assert {type(value) for run in runs for value in run.overrides.values()} == {int, float}


def test_what_means_the_same_is_run_once(small: Scenario) -> None:
    runs = plan(small, {"transport.pmtu": [4096, "4KiB", "4096B"]})
    assert [run.overrides for run in runs] == [{"transport.pmtu": 4096}]
    assert runs[0].key == plan(small, {"seed": [1]})[0].key


def test_a_key_follows_all_that_decides_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cm = tmp_path / "a.cm"
    cm.write_text("Nodes 4\nConnections 1\n0->3 id 1 start 0 size 4096\n")
    file = tmp_path / "x.toml"
    file.write_text('[fabric]\nnics = 4\n[workload]\nkind = "htsim"\ncm = "a.cm"\n')

    def key() -> str:
        return plan(load_scenario(file), {"seed": [1]})[0].key

    keys = [key(), key()]
    cm.write_text(cm.read_text().replace("4096", "8192"))
    keys.append(key())
    monkeypatch.setattr(plans, "code_hash", lambda: "another protocol")
    keys.append(key())
    monkeypatch.setattr("openmrc.version.__version__", "9.9.9")
    keys.append(key())
    assert [a == b for a, b in itertools.pairwise(keys)] == [True, False, False, False]


def test_any_edit_of_the_protocol_is_other_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = code_hash()
    patterns = (*cache.COMPILED_PARTS, *plans.CODE)
    for path in (p for pattern in patterns for p in cache.PACKAGE.glob(pattern)):
        copy = tmp_path / path.relative_to(cache.PACKAGE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    monkeypatch.setattr(cache, "PACKAGE", tmp_path)
    assert code_hash.__wrapped__() == before
    with (tmp_path / "engine/nscc.py").open("a") as file:
        file.write("# an edit\n")
    assert code_hash.__wrapped__() != before


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ({}, "over: is empty; such as seed = 1 to 10"),
        ([], "over: is empty; "),
        ([{}], "over: is empty; "),
        ([3], "over: 3 is not a dict; "),
        (3, "over: 3 is neither a dict nor a list of dicts"),
        ({"seed": []}, "over seed: has no value; give at least one"),
        ({"seed": "12"}, "over seed: '12' is not a list; give the values as one"),
        ({"seed": 3}, "over seed: 3 is not a list; "),
        ({"seed": itertools.count()}, "over: more than 100,000 runs; "),
        ({"seed": range(1000), "fabric.nics": range(2, 200)}, "over: more than 100,000 runs; "),
        ({"seed": [1, -1]}, "over: seed: -1 is refused; accepted: a whole number >= 0"),
        ({"fabric.nick": [1]}, "over: fabric.nick: unknown key; did you mean 'nics'? "),
        ({"transport.pmtu": [4096, 3000]}, "over: transport.pmtu: 3000; accepted: 1024, 2048, "),
        ({"transport.v2.pmtu": [4096]}, "over transport.v2.pmtu: there is no transport 'v2'; "),
        ({"fault[0].rate": [0.1]}, "over fault[0].rate: there is no such fault; there is no fault"),
        ({"seed.x": [1]}, "over seed.x=1: accepted: KEY=VALUE, such as fabric.nics=128"),
    ],
)
def test_a_sweep_that_cannot_be_is_refused_before_anything_runs(
    small: Scenario, over: Any, message: str
) -> None:
    with pytest.raises(InputError) as error:
        plan(small, over)
    assert str(error.value).startswith(message)


def test_as_many_runs_as_the_limit_and_no_more(
    small: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "RUNS_MAX", 6)
    assert len(plan(small, {"seed": range(6)})) == 6
    with pytest.raises(InputError, match="more than 6 runs"):
        plan(small, {"seed": range(7)})


def test_the_scenarios_own_mistake_is_not_blamed_on_the_sweep() -> None:
    scenario = make_scenario({"workload": {"kind": "stream"}, "transport": {"pmtu": 3000}})
    with pytest.raises(InputError, match=r"^scenario: transport\.pmtu: 3000"):
        plan(scenario, {"seed": [1]})
