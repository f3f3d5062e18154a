"""`mrc plan` as it is typed: what it prints, what it writes, and what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from openmrc.cli.command import main
from openmrc.planning.assumptions import ASSUMPTIONS
from openmrc.planning.table import _duration
from openmrc.scenario.scenario import load_scenario

Out = pytest.CaptureFixture[str]


def plan(line: str, capsys: Out) -> Any:
    assert main(["plan", *line.split(), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_json_holds_both_designs_and_every_assumption(capsys: Out) -> None:
    shown = plan("--gpus 65536", capsys)
    assert list(shown) == [
        "gpus",
        "nic_rate_bps",
        "switch_rate_bps",
        "designs",
        "ratios",
        "rests_on",
        "assumptions",
    ]
    one, many = shown["designs"]
    assert (
        list(one)
        == list(many)
        == [
            "name",
            "planes",
            "tiers",
            "port_rate_bps",
            "radix",
            "nics_max",
            "switches",
            "links",
            "transceivers",
            "hops_max",
            "nics_one_hop",
            "power_w",
            "cost_usd",
            "failures",
            "interruptions_per_day",
            "between_interruptions_h",
            "time_lost",
        ]
    )
    assert one["switches"] == {"t0": 2048, "t1": 2048, "t2": 1024, "total": 5120}
    assert many["switches"] == {"t0": 2048, "t1": 1024, "total": 3072}
    assert many["links"] == {"nic_t0": 524_288, "t0_t1": 524_288, "total": 1_048_576}
    assert list(one["links"]) == ["nic_t0", "t0_t1", "t1_t2", "total"]
    assert (shown["ratios"]["switches"], shown["ratios"]["transceivers"]) == (3 / 5, 2 / 3)
    assert list(shown["assumptions"]) == list(ASSUMPTIONS)
    for assumption in shown["assumptions"].values():
        assert list(assumption) == ["value", "unit", "what", "source"]
        assert assumption["source"]
    for failure in one["failures"]:
        assert list(failure) == [
            "kind",
            "things",
            "share",
            "nics",
            "per_day",
            "interrupts",
            "lasts_days",
            "interruptions_per_day",
        ]
    assert one["between_interruptions_h"] < many["between_interruptions_h"]


def test_the_published_fabrics_by_their_command(capsys: Out) -> None:
    one, many = plan("--gpus 131072", capsys)["designs"]
    assert (many["switches"]["total"], many["nics_max"]) == (6144, 131_072)
    assert (one["tiers"], one["hops_max"]) == (4, 7)
    four = plan("--gpus 32,768 --planes 4", capsys)["designs"][1]
    assert (four["nics_max"], four["switches"]["total"]) == (32_768, 1536)


def test_one_plane_stands_alone(capsys: Out) -> None:
    shown = plan("--gpus 1024 --planes 1 --tiers 3", capsys)
    (one,) = shown["designs"]
    assert (one["name"], shown["ratios"]) == ("1 plane, 3 tiers", None)


def test_an_assumption_can_be_set(capsys: Out) -> None:
    shown = plan("--gpus 1024 --set cable_usd=0 --set switch_usd_per_tbps=1", capsys)
    assert shown["assumptions"]["cable_usd"]["value"] == 0
    assert shown["assumptions"]["cable_usd"]["source"] == "given by the user"
    assert shown["assumptions"]["flap_s"]["source"] == ASSUMPTIONS["flap_s"].source
    one = shown["designs"][0]
    assert one["cost_usd"]["cables"] == 0
    assert one["cost_usd"]["switches"] == pytest.approx(51.2 * one["switches"]["total"])


def test_nothing_costs_nothing(capsys: Out) -> None:
    free = " ".join(f"--set {name}=0" for name in ASSUMPTIONS if re.search("_w_|usd", name))
    shown = plan(f"--gpus 1024 {free}", capsys)
    assert shown["designs"][0]["cost_usd"]["total"] == 0
    assert (shown["ratios"]["power"], shown["ratios"]["cost"]) == (None, None)
    assert main(["plan", "--gpus", "1024", *free.split()]) == 0


def test_collisions_are_worked_out_on_request(capsys: Out) -> None:
    hashed = plan("--gpus 65536 --collisions", capsys)["collisions"]
    assert (hashed["nics_per_t0"], hashed["uplinks"], hashed["t0s"]) == (32, 32, 2048)
    rows = hashed["hashed"]
    assert [row["qps"] for row in rows] == [1, 2, 4, 8, 16, 32, 64]
    assert rows[0]["used"] == pytest.approx(0.638, abs=0.001)
    assert rows[0]["time"] == pytest.approx(7.26, abs=0.01)


def test_each_figure_names_the_assumptions_that_move_it(capsys: Out) -> None:
    behind = plan("--gpus 65536", capsys)["rests_on"]
    assert behind["power_w"] == ["switch_w_per_tbps", "optics_w_per_tbps"]
    assert behind["cost_usd"] == ["switch_usd_per_tbps", "optics_usd_per_tbps", "cable_usd"]
    assert behind["T0 switch"] == ["switch_mtbf_h"]
    assert behind["link T0-T1, flap"] == ["fabric_flaps_per_day"]
    restarts = {"nic_mtbf_h", "transceiver_mtbf_h", "checkpoint_s", "restart_s"}
    assert restarts <= set(behind["time_lost.restarts"])
    assert {"stall_s", "fabric_flaps_per_day"} <= set(behind["time_lost.stalls"])
    assert "exposed_share" in behind["time_lost.bandwidth"]
    every = {*behind["time_lost.restarts"], "stall_s", "exposed_share", "fabric_flaps_per_day"}
    assert every <= set(behind["time_lost.with_mrc"])
    # with several planes a port that is away for long makes the next failure worse
    several = plan("--gpus 8192 --planes 2", capsys)["rests_on"]["interruptions_per_day"]
    assert {"nic_mtbf_h", "link_mtbf_h", "repair_h", "port_flaps_per_day"} <= set(several)
    assert "cable_usd" not in several
    alone = plan("--gpus 64 --planes 1", capsys)["rests_on"]["interruptions_per_day"]
    assert "repair_h" not in alone


def cells(text: str, heading: str) -> list[str]:
    line = next(line for line in text.splitlines() if re.match(rf"│ {heading} +│", line))
    return [cell.strip() for cell in line.split("│")[2:-1]]


def test_the_tables_say_the_same(capsys: Out) -> None:
    assert main(["plan", "--gpus", "65536", "--collisions"]) == 0
    text = capsys.readouterr().out
    assert cells(text, "switches") == ["5,120", "3,072", "0.600", ""]
    assert cells(text, "transceivers of 800Gbps") == ["393,216", "262,144", "0.667", ""]
    assert cells(text, "switches on the longest path") == ["5", "3", "", ""]
    assert cells(text, "power, kW")[3] == "switch_w_per_tbps, optics_w_per_tbps"
    shares = [line.split("│")[3].strip() for line in text.splitlines() if "│ link T0-T1  " in line]
    assert shares[-2:] == ["3.12", "0.391"]
    assert "8 planes, 2 tiers: the fabric interrupts a job on all GPUs every 11.5 h." in text
    assert cells(text, "sprayed evenly") == ["100.0", "100.0", "1.00"]
    for name in ASSUMPTIONS:
        assert f"│ {name} " in text


def test_a_fabric_that_is_too_small_for_tiers_says_so(capsys: Out) -> None:
    assert main(["plan", "--gpus", "64"]) == 0
    text = capsys.readouterr().out
    assert "1 plane, 2 tiers: one switch of 64 ports would hold all NICs of a plane." in text
    assert "8 planes, 2 tiers: one switch of 512 ports would hold" in text
    assert main(["plan", "--gpus", "513"]) == 0
    assert "would hold" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("hours", "words"),
    [(0.25, "15 min"), (4.49, "4.49 h"), (96, "4 days"), (24 * 365 * 30, "30 years")],
)
def test_durations_have_fitting_units(hours: float, words: str) -> None:
    assert _duration(hours) == words


# --- the smaller fabric


@pytest.mark.parametrize(
    ("line", "kind", "planes", "tiers", "nics"),
    [
        ("--gpus 131072", "multiplane", 8, 2, 64),
        ("--gpus 40 --planes 4", "multiplane", 4, 2, 40),
        ("--gpus 65536 --planes 1 --tiers 3", "fat-tree", 1, 3, 64),
        ("--gpus 2 --planes 1", "fat-tree", 1, 2, 2),
    ],
)
def test_a_smaller_fabric_can_be_built(
    line: str, kind: str, planes: int, tiers: int, nics: int, tmp_path: Path, capsys: Out
) -> None:
    file = tmp_path / "small.toml"
    assert main(["plan", *line.split(), "--scenario", str(file)]) == 0
    assert f"mrc run {file} simulates a smaller fabric." in capsys.readouterr().err
    scenario = load_scenario(file)
    fabric, traffic, schedule = scenario.build()
    built = (fabric.kind, fabric.n_planes, fabric.n_tiers, fabric.n_nics)
    assert built == (kind, planes, tiers, nics)
    assert (traffic.n_nics, len(schedule.names)) == (nics, 1)
    assert "# Scaled: " in file.read_text()
    ((cut_ps, _),) = schedule.names
    alone_ps = 4_000_000 * 8 * 10**12 // (800 * 10**9)
    assert cut_ps == alone_ps // 4  # while there is traffic
    if planes == 8:
        assert set(fabric.port_rate_bps.tolist()) == {100 * 10**9}


# --- wrong input


def test_a_scenario_that_is_there_is_not_overwritten(tmp_path: Path, capsys: Out) -> None:
    file = tmp_path / "x.toml"
    line = ["plan", "--gpus", "64", "--planes", "2", "--scenario", str(file)]
    assert main(line) == 0
    file.write_text("mine")
    capsys.readouterr()
    assert main(line) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == (
        f"mrc: --scenario {file}: already exists; name another file, or remove it\n"
    )
    assert file.read_text() == "mine"


BAD = {
    "": "required: --gpus",
    "--gpus many": "--gpus many: a whole number is accepted, such as 8192",
    "--gpus -5": "--gpus -5: a whole number is accepted",
    "--gpus": "argument --gpus: expected one argument",
    "--gpus=-5": "--gpus -5: a whole number is accepted",
    "--gpus 1.5": "--gpus 1.5: a whole number is accepted",
    "--gpus 0": "--gpus 0: 2 to 10,000,000 is accepted",
    "--gpus 99999999999999999999": "a whole number is accepted",
    "--gpus 200000": "accepted: at most 131,072 GPUs, or --planes 16, or --tiers 3",
    "--gpus 64 --planes 3": "--planes 3: 800Gbps does not divide",
    "--gpus 64 --planes eight": "--planes eight: a whole number",
    "--gpus 64 --tiers 9": "--tiers 9: 2 to 4 is accepted",
    "--gpus 64 --nic-rate 800": "--nic-rate: '800' has no unit",
    "--gpus 64 --nic-rate 0Gbps": "a rate above 0",
    "--gpus 64 --switch 51.2T": "--switch: '51.2T': 'T' is not a unit of rate",
    "--gpus 64 --switch 1Gbps": "--switch 1Gbps: 0 ports of 100Gbps; 4 to 4096 are accepted",
    "--gpus 64 --set cable_usd": "--set cable_usd: accepted: NAME=VALUE",
    "--gpus 64 --set cabel_usd=3": "there is no assumption 'cabel_usd'; did you mean cable_usd?",
    "--gpus 64 --set x=3": "there is no assumption 'x'; accepted: switch_w_per_tbps",
    "--gpus 64 --set cable_usd=much": "a number from 0 to 1,000,000,000,000,000 is accepted",
    "--gpus 64 --set cable_usd=-1": "a number from 0 to 1,000,000,000,000,000",
    "--gpus 64 --set cable_usd=nan": "a number from 0 to 1,000,000,000,000,000",
    "--gpus 64 --set nic_mtbf_h=0": "a number from 0.001 to 1,000,000,000,000,000 is accepted",
    "--gpus 64 --set exposed_share=1.01": "a number from 0 to 1 is accepted, in of a step",
    "--gpus 64 --set checkpoint_s=0": "a number from 1 to 1,000,000,000,000,000 is accepted",
    "--gpus 64 --set nic_mtbf_h=inf": "a number from 0.001 to 1,000,000,000,000,000 is accepted",
    "--gpus 64 --scenario .": "--scenario .: cannot be written (Is a directory); name a file",
    "--gpus 64 --scenario no/such.toml": "cannot be written (No such file or directory)",
    "--gpus 64 --planes 32 --scenario x.toml": "a scenario has at most 16; plan fewer",
    "--gpus 64 --planes 2 --tiers 3 --scenario x.toml": "at most 2 tiers there",
    "--gpus 200000 --planes 1 --tiers 4 --scenario x.toml": "at most 3 tiers there",
}


@pytest.mark.parametrize("line", BAD)
def test_wrong_input_is_status_2_one_line_and_nothing_written(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["plan", *line.split(), "--json"]) == 2
    printed = capsys.readouterr()
    assert BAD[line] in printed.err
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert list(tmp_path.iterdir()) == []


# --- docs/plan.md

PAGE = (Path(__file__).resolve().parents[2] / "docs/plan.md").read_text(encoding="utf-8")


def test_the_page_shows_every_option(capsys: Out) -> None:
    with pytest.raises(SystemExit):
        main(["plan", "--help"])
    options = set(re.findall(r"--[a-z-]+", capsys.readouterr().out)) - {"--help"}
    usage = PAGE.partition("\n\n`mrc plan` sizes")[0]
    assert set(re.findall(r"--[a-z-]+", usage)) == options
    assert [option for option in options if f"| `{option}" not in PAGE] == []


def test_the_page_shows_what_is_printed(capsys: Out) -> None:
    assert main(["plan", "--gpus", "65536"]) == 0
    first_table = capsys.readouterr().out.partition("Failures")[0]
    assert "\n".join(line.rstrip() for line in first_table.splitlines()) in PAGE
    assert main(["plan", "--gpus", "200000"]) == 2
    assert f"\n{capsys.readouterr().err}" in PAGE


def test_the_page_lists_every_assumption_with_its_source() -> None:
    for name, known in ASSUMPTIONS.items():
        row = f"| `{name}` | {known.value:,.10g} | {known.unit} | {known.what} | {known.source} |"
        assert row in PAGE


def test_the_page_checks_against_the_published_run(capsys: Out) -> None:
    line = "--gpus 16384 --nic-rate 400Gbps --switch 25.6Tbps"
    assert f"`mrc plan {line}`" in PAGE
    (one, _) = plan(f"{line} --planes 4", capsys)["designs"]
    assert f"expects {54 * one['interruptions_per_day']:.0f}," in PAGE


def test_a_number_of_gpus_is_written_as_people_write_it(capsys: Out) -> None:
    for text in ("8192", "8,192", "8_192", "8.192K", "8.192k"):
        assert main(["plan", "--gpus", text, "--json"]) == 0
    first, *others = capsys.readouterr().out.split("}\n{")
    assert len(others) == 4
    assert len({text.strip("{}\n") for text in (first, *others)}) == 1
