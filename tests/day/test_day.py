"""`mrc day`: a small job's day, as a table, as JSON, and kept."""

from __future__ import annotations

import json
import signal
from base64 import b64decode
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openmrc.cli import main
from openmrc.day.life import Life
from openmrc.day.study import lives
from openmrc.scenario.scenario import load_scenario

SCENARIO = """
[fabric]
nics = 64
planes = 4
port_rate = "100Gbps"
t0_down = 8
[[transport]]
paths = "mrc"
[[transport]]
kind = "roce"
name = "balance"
routing = "adaptive"
[[transport]]
kind = "roce"
qps = 8
[workload]
kind = "training"
tp = 2
pp = 2
layers = 4
forward = "50ms"
tp_size = "1MB"
pp_size = "1MB"
dp_size = "200MB"
expert_size = "0B"
ep_size = "0B"
"""
OFTEN = ["--set", "link_mtbf_h=2000", "--set", "switch_mtbf_h=2000", "--set", "gpu_mtbf_h=2000"]


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    """A scenario file."""
    file = tmp_path / "job.toml"
    file.write_text(SCENARIO, encoding="utf-8")
    return str(file)


def day(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """The day as an object."""
    assert main(["day", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_same_failures_on_each_fabric(
    scenario: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fabrics = day(capsys, scenario, *OFTEN, "--time", "10d")["fabrics"]
    mrc, balance, hashed, one_plane = fabrics
    names = ["mrc", "balance", "roce, 4 planes, 2 tiers", "roce, 1 plane, 2 tiers"]
    assert [each["name"] for each in fabrics] == names
    assert mrc["failures"] == balance["failures"] == hashed["failures"] > 100
    # a lost port ends the job on one plane, on four it does not
    assert one_plane["interruptions_by_network"] > 3 * mrc["interruptions_by_network"]
    assert mrc["steps"] > one_plane["steps"]
    stalls = [each["gpu_hours_lost"]["stall"] for each in fabrics]
    assert stalls[0] < stalls[1] < stalls[2]
    assert hashed["gpu_hours_lost"]["collisions"] > 0 == mrc["gpu_hours_lost"]["collisions"]
    for each in fabrics:
        useful = each["effective_share"] * 64 * 240
        assert useful + each["gpu_hours_lost"]["total"] == pytest.approx(64 * 240)
        assert each["step_s"]["p50"] <= each["step_s"]["p99"] <= each["step_s"]["p100"]


def test_ranks_that_compute_unevenly_take_longer(
    scenario: str, capsys: pytest.CaptureFixture[str]
) -> None:
    even = day(capsys, scenario)["fabrics"][0]["step_s"]["undisturbed"]
    file = Path(scenario)
    file.write_text(SCENARIO + "jitter = 0.1\n", encoding="utf-8")
    uneven = day(capsys, scenario)["fabrics"][0]["step_s"]["undisturbed"]
    assert 1.01 * even < uneven < 1.1 * even


def test_the_formulas_of_a_plan_say_as_much(
    scenario: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fabrics = day(capsys, scenario, *OFTEN, "--time", "60d")["fabrics"]
    for each in (fabrics[0], fabrics[3]):  # four planes, one plane
        expected = each["formulas"]["interruptions"]
        assert each["interruptions_by_network"] == pytest.approx(expected, abs=4 * expected**0.5)
    balance, hashed = (each["formulas"]["stalls"] for each in fabrics[1:3])
    assert fabrics[0]["formulas"]["stalls"] < balance < hashed
    main(["day", scenario])
    assert "mrc plan" in capsys.readouterr().out


def test_several_jobs_each_have_the_failures_of_their_own_nics(
    scenario: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = day(capsys, scenario, *OFTEN, "--time", "10d")["fabrics"][0]
    fabric, work = SCENARIO.split("[workload]\n")
    several = f'{fabric}[workload]\nkind = "jobs"\n'
    for name, nics in (("left", "0-31"), ("right", "32-63")):
        several += f'[[workload.job]]\nname = "{name}"\nnics = "{nics}"\n{work}'
    file = tmp_path / "several.toml"
    file.write_text(several, encoding="utf-8")
    jobs = day(capsys, str(file), *OFTEN, "--time", "10d")["fabrics"]
    assert [each["name"] for each in jobs[:2]] == ["mrc: left", "mrc: right"]
    assert len(jobs) == 8
    left, right = (each["interruptions_by_kind"] for each in jobs[:2])
    of_all = whole["interruptions_by_kind"]
    assert left["GPU or its host"] + right["GPU or its host"] == of_all["GPU or its host"]
    assert left["update"] == right["update"] == of_all["update"]  # an operator's hits all
    assert jobs[0]["gpus"] == 32
    assert jobs[0]["effective_share"] > whole["effective_share"]  # half as many to fail
    assert main(["run", str(file)]) == 2
    assert "only mrc day knows several training jobs" in capsys.readouterr().err
    other = several.index("tp = 2")
    file.write_text(several[:other].replace("training", "permutation") + 'size = "1MB"\n')
    assert main(["day", str(file)]) == 2
    assert "workload.job[0].kind: 'permutation'" in capsys.readouterr().err


def test_the_first_two_lines_are_the_answer(
    scenario: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["day", scenario]) == 0
    steps, lost = capsys.readouterr().out.splitlines()[:2]
    assert steps.startswith("Steps in 24 h: mrc ")
    assert lost.startswith("GPU-hours lost: mrc ")


def test_results_are_kept_and_of_other_inputs_refused(
    scenario: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    out = str(tmp_path / "kept")
    first = day(capsys, scenario, "--out", out)
    monkeypatch.setattr("openmrc.day.life.Life.run", None)  # all of them are there
    assert day(capsys, scenario, "--out", out)["fabrics"] == first["fabrics"]
    page = (tmp_path / "kept/day.html").read_text(encoding="utf-8")
    assert "{{" not in page
    drawn = json.loads(page.split('id="data">')[1].split("</script>")[0])["fabrics"]
    for told, figures in zip(drawn, first["fabrics"], strict=True):
        at_s = np.frombuffer(b64decode(told["timeline"]["at_s"]), "<f8")
        assert len(at_s) == figures["failures"]
        assert (np.diff(at_s) >= 0).all()
    assert main(["day", scenario, "--out", out, "--seed", "2"]) == 2
    assert "other inputs" in capsys.readouterr().err


def test_what_was_interrupted_is_shown_and_goes_on_from_there(
    scenario: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    out = str(tmp_path / "kept")
    whole = day(capsys, scenario, *OFTEN)["fabrics"]
    run, lives = Life.run, []

    def third_is_interrupted(self: Life, until_s: float, tell: Any) -> None:
        lives.append(self)
        ctrl_c = len(lives) == 3
        run(self, until_s, lambda now_s: signal.raise_signal(signal.SIGINT) if ctrl_c else None)

    monkeypatch.setattr(Life, "run", third_is_interrupted)
    assert main(["day", scenario, *OFTEN, "--out", out, "--json"]) == 130
    shown = json.loads(capsys.readouterr().out)
    assert shown["partial"]
    assert [each["partial"] for each in shown["fabrics"]] == [False, False, True]
    assert shown["fabrics"][:2] == whole[:2]
    assert day(capsys, scenario, *OFTEN, "--out", out)["fabrics"] == whole
    assert len(lives) == 5  # two of them were there


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--time", "0d"], "--time 0d: more than nothing"),
        (["--time", "soon"], "--time: "),
        (["--seed", "x"], "--seed x: a whole number"),
        (["--set", "gpu_mtbf=1"], "did you mean gpu_mtbf_h?"),
        (["--switch", "fast"], "--switch: "),
    ],
)
def test_bad_input_is_refused_with_its_place(
    scenario: str, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["day", scenario, *arguments]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('kind = "training"', 'kind = "permutation"'), "a day is one of a training job"),
        (("t0_down = 8", "t0_down = 8\nt0_up = 4"), "full bisection"),
        (('paths = "mrc"', 'paths = "single"'), "MRC that names its paths"),
    ],
)
def test_what_a_day_is_not_known_of_is_refused(
    change: tuple[str, str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = SCENARIO.replace(*change)
    if "permutation" in text:
        text = text[: text.index("[workload]")] + '[workload]\nkind = "permutation"\nsize = "1MB"\n'
    file = tmp_path / "other.toml"
    file.write_text(text, encoding="utf-8")
    assert main(["day", str(file)]) == 2
    assert said in capsys.readouterr().err


def test_every_assumption_is_told_with_its_source(
    scenario: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["day", scenario, "--assumptions"]) == 0
    told = capsys.readouterr().out
    assert "gpu_mtbf_h" in told
    assert "2407.21783" in told


def test_many_draws_are_told_by_their_spread_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each seed of a study is the day of that seed; what is there already is not computed again."""
    scenario, out = tmp_path / "job.toml", tmp_path / "out"
    scenario.write_text(SCENARIO, encoding="utf-8")
    days = []
    for seed in ("4", "5"):
        assert main(["day", str(scenario), "--seed", seed, "--json"]) == 0
        days.append(json.loads(capsys.readouterr().out))
    out.mkdir()
    for day in days:
        kept = {key: value for key, value in day.items() if key != "partial"}
        (out / f"seed-{day['seed']}.json").write_text(json.dumps(kept), encoding="utf-8")
    monkeypatch.setattr("openmrc.day.study.lives", None)  # nothing is left to compute
    asked = ["day", str(scenario), "--seed", "4", "--seeds", "2", "--out", str(out), "--json"]
    assert main(asked) == 0
    found = json.loads(capsys.readouterr().out)
    shares = sorted(100 * day["fabrics"][0]["effective_share"] for day in days)
    effective = found["fabrics"][0]["effective"]
    assert [effective["least"], effective["most"]] == shares
    assert effective["median"] == pytest.approx(sum(shares) / 2)
    assert main([*asked, "--time", "2h"]) == 2
    assert "has other inputs" in capsys.readouterr().err


def test_a_seed_of_a_study_is_its_day(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenario = tmp_path / "job.toml"
    scenario.write_text(SCENARIO, encoding="utf-8")
    assert main(["day", str(scenario), "--seed", "4", "--json"]) == 0
    day = json.loads(capsys.readouterr().out)
    found = [{**each, "partial": False} for each in lives(load_scenario(str(scenario)), day)]
    assert found == day["fabrics"]
