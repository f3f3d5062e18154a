from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from openmrc.cli.command import OLD_NAMES, main
from openmrc.cli.parser import GROUPS, make_parser
from openmrc.jit.beside import cores
from openmrc.scenario.scenario import load_scenario

if TYPE_CHECKING:
    from tests.conftest import FakeWorld

SCENARIO = '[fabric]\nnics = 4\n[workload]\nkind = "permutation"\nsize = "1kB"\n'
RESULTS = ["flows.parquet", "report.html", "scenario.toml", "summary.json", "timeline.parquet"]
TOPO = "Nodes 4\nTiers 2\nPodsize 4\n" + "".join(
    f"Tier {tier}\nDownlink_speed_Gbps 100\nRadix_Down 2\n{up}Downlink_Latency_ns 1000\n"
    for tier, up in ((0, "Radix_Up 2\n"), (1, ""))
)
CM = "Nodes 4\nConnections 1\n0->3 id 1 start 0 size 4096\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory to be in, with a scenario and the files of a peer."""
    (tmp_path / "x.toml").write_text(SCENARIO)
    (tmp_path / "a.topo").write_text(TOPO)
    (tmp_path / "a.cm").write_text(CM)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


BAD = {
    "an unknown key": ("x.toml", SCENARIO.replace("nics", "nicks"), "fabric.nicks"),
    "an unknown table": ("x.toml", SCENARIO + "[fabrics]\n", "did you mean 'fabric'?"),
    "a missing unit": ("x.toml", SCENARIO.replace('"1kB"', '"1000"'), "has no unit"),
    "a plane that does not exist": (
        "x.toml",
        SCENARIO + '[[fault]]\nat = "1us"\nkind = "switch-down"\nwhere = "plane 4 t1 0"\n',
        "fault[0].where: 'plane 4 t1 0'",
    ),
    "a link that is not there": (
        "x.toml",
        SCENARIO + '[[fault]]\nat = "1us"\nkind = "link-down"\nwhere = "plane 0 t0 7 - t1 0"\n',
        "fault[0].where: 'plane 0 t0 7 - t1 0'",
    ),
    "zero NICs": ("x.toml", SCENARIO.replace("nics = 4", "nics = 0"), "fabric.nics: 0 is refused"),
    "a negative size": ("x.toml", SCENARIO.replace('"1kB"', '"-1kB"'), "workload.size: '-1kB'"),
    "a share above 1": ("x.toml", SCENARIO.replace("nics", "ecn_high = 2\nnics"), "ecn_high: 2"),
    "a file that is not TOML": ("x.toml", "nics: 4", "is not TOML"),
    "an empty file": ("x.toml", "", "is empty"),
    "a .cm naming node 4000": ("a.cm", CM.replace("0->3", "0->4000"), "a.cm:3: "),
    "a .topo with words for numbers": (
        "a.topo",
        TOPO.replace("Nodes 4", "Nodes four"),
        "a.topo:1: ",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_status_2_one_line_and_nothing_written(
    what: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, text, place = BAD[what]
    (here / file).write_text(text)
    before = files(here)
    source = ["x.toml"] if file == "x.toml" else ["--topo", "a.topo", "--cm", "a.cm"]

    status = main(["run", *source, "--json", "--out", "results"])

    printed = capsys.readouterr()
    assert status == 2
    assert printed.out == ""
    assert printed.err.startswith("mrc: ")
    assert place in printed.err
    assert printed.err.count("\n") == 1
    assert files(here) == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("walk", "invalid choice: 'walk'"),
        ("run", "nothing to run; name SCENARIO.toml, or --topo FILE --cm FILE"),
        ("run no.toml", "no.toml: cannot be read (No such file or directory)"),
        ("run .", ".: cannot be read (Is a directory)"),
        ("run --topo a.topo", "nothing to run; name SCENARIO.toml, or --topo FILE --cm FILE"),
        ("run x.toml --cm a.cm", "both a scenario and --topo or --cm; name one or the other"),
        ("run --topo no.topo --cm a.cm", "fabric.topo: 'no.topo': there is no such file"),
        ("run x.toml --seed many", "seed: 'many' is refused; accepted: a whole number"),
        ("run x.toml --set fabric.nics", "--set fabric.nics: accepted: KEY=VALUE"),
        ("run x.toml --out x.toml", "--out x.toml: is a file; name a directory"),
        ("run x.toml --out /proc/no", "--out /proc/no: /proc cannot be written; name another"),
        ("run x.toml --at everywhere", "--at without --pcap; name the file"),
        ("run x.toml --frames ipv4", "--frames without --pcap; name the file"),
        (
            "run x.toml --world lab --pcap a.pcapng --frames ipv6",
            "--frames with --world lab: its frames are real, and captured as they are",
        ),
        ("run x.toml --pcap a.pcapng --frames ipx", "invalid choice: 'ipx'"),
        ("run x.toml --threads 0", "--threads 0: auto, or 1 to 1024"),
        ("run x.toml --threads 1025", "--threads 1025: auto, or 1 to 1024"),
        ("run x.toml --threads all", "--threads all: auto, or 1 to 1024"),
        ("run x.toml --world lab --threads 2", "--threads with --world lab: each NIC is a process"),
        ("run x.toml --set fabric.dscp=trimmed=64", "fabric.dscp: 'trimmed=64': a DSCP is 0 to 63"),
        ("perf write_bw --dscp control=48", "--dscp without --planes: a host file says it"),
        ("perf write_bw --planes 127.0.0.1 --dscp x=1", "--dscp: 'x=1': accepted, no_trim, "),
        ("conformance --dscp trimmed=11", "--dscp without --address: openmrc's own target"),
        ("conformance --host h --ways w", "--host without --address: openmrc's own target"),
        (
            "conformance --address a --host h --ways w",
            "--interface, --host, --ways: name one of them",
        ),
        ("conformance --serve --ways w", "w: cannot be read (No such file or directory)"),
        ("conformance --ranks", "--ranks: takes two hosts of a lab"),
        ("conformance --capture a --ways w", "--ways with --capture: nothing is sent"),
        ("run x.toml --pcap a.pcapng --at moon", "--at 'moon': not a place; "),
        ("run x.toml --pcap a.pcapng --at nic", "--at 'nic': not a place; "),
        ("run x.toml --pcap .", "--pcap .: is a directory; name a file"),
        ("run x.toml --pcap /proc/no/a", "--pcap /proc/no: /proc cannot be written; name another"),
        ("decode no.pcapng", "no.pcapng: cannot be read (No such file or directory); name a"),
        ("decode x.toml", "x.toml: is not a capture"),
        ("decode x.toml --qp x", "--qp x: is no QP number; 0 to 0xffffff"),
        ("bench fabric", "invalid choice: 'fabric'"),
    ],
)
def test_a_wrong_command_is_status_2_and_one_line(
    arguments: str, words: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(here)
    assert main(arguments.split()) == 2
    printed = capsys.readouterr()
    assert words in printed.err
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert files(here) == before


def test_json_is_all_there_is_on_standard_output(
    fake_world: type[FakeWorld], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "x.toml", "--json", "--seed", "5"]) == 0
    printed = capsys.readouterr()
    summary = json.loads(printed.out)
    assert [world.sampled for world in fake_world.built] == [None]
    assert (summary["scenario"], summary["seed"], summary["partial"]) == ("x", 5, False)
    (said,) = printed.err.splitlines()
    assert said.startswith("Switches store whole packets: ")
    assert files(here) == ["a.cm", "a.topo", "x.toml"]


def test_verbose_prints_what_was_derived_as_a_table(
    fake_world: type[FakeWorld], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "x.toml", "--json", "--verbose"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["scenario"] == "x"
    rows = [[cell.strip() for cell in line.split("│")] for line in printed.err.splitlines()]
    assert ["", "base_rtt", "8us", ""] in rows
    assert ["", "bdp", "100kB", ""] in rows


def test_without_json_the_table_is_on_standard_output(
    fake_world: type[FakeWorld], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "x.toml", "--set", "transport.paths=single"]) == 0
    printed = capsys.readouterr()
    (line,) = (line for line in printed.out.splitlines() if line.startswith("│ single"))
    row = [cell.strip() for cell in line.split("│")]
    assert row[1:-1] == ["single", "40.00", "4.00", "20.00", "40.00", "40.00", "0.800", "1", "2"]


def test_out_gets_the_results_directory_and_nothing_else(
    fake_world: type[FakeWorld], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "x.toml", "--out", "a/b", "--json"]) == 0
    assert files(here / "a" / "b") == RESULTS
    assert [world.sampled for world in fake_world.built] == [(None, 500)]
    printed = json.loads(capsys.readouterr().out)
    written = json.loads((here / "a/b/summary.json").read_text())
    assert {**written, "peak_rss_mb": 0} == {**printed, "peak_rss_mb": 0}
    assert load_scenario(here / "a/b/scenario.toml") == load_scenario(here / "x.toml")
    flows = pl.read_parquet(here / "a/b/flows.parquet")
    assert flows["fct_us"].to_list() == [10.0, 20.0, 30.0, 40.0]
    assert flows["delivered_us"].to_list() == [9.0, 19.0, 29.0, 39.0]


def test_an_unfinished_run_says_so_and_still_prints_the_object(
    fake_world: type[FakeWorld], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_world.unfinished = 2
    assert main(["run", "x.toml", "--json"]) == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out)["transports"]["mrc"]["flows"]["unfinished"] == 2
    assert "UNFINISHED: 2 of 4 flows of mrc." in printed.err


def test_an_interrupted_run_is_status_130_and_partial(
    fake_world: type[FakeWorld], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_world.interrupt = True
    (here / "x.toml").write_text(SCENARIO + '[[transport]]\n[[transport]]\npaths = "single"\n')
    assert main(["run", "x.toml", "--json", "--out", "kept"]) == 130
    printed = capsys.readouterr()
    assert json.loads(printed.out)["partial"] is True
    assert "INTERRUPTED: these are partial results." in printed.err
    assert files(here / "kept") == RESULTS


def test_threads_that_cannot_help_are_told_of_in_one_line(
    fake_world: type[FakeWorld], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, n in (("3", 3), ("1", 1), ("auto", cores())):
        assert main(["run", "x.toml", "--threads", words, "--json"]) == 0
        assert fake_world.built[-1].threads == n
        said = "--threads 3: mrc ran on one, for 8 NICs are few.\n"
        assert capsys.readouterr().err.count(said) == (words == "3")
    fake_world.uncut = ""
    assert main(["run", "x.toml", "--threads", "3", "--json"]) == 0
    assert "--threads" not in capsys.readouterr().err


def test_topo_and_cm_run_as_the_peer_would(
    fake_world: type[FakeWorld], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--topo", "a.topo", "--cm", "a.cm", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["scenario"] == "a"
    (world,) = fake_world.built
    assert (world.transport.rules, world.transport.pmtu) == ("peer", 4086)


def test_the_demo_leaves_a_picture_and_says_where(
    fake_world: type[FakeWorld], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_world.fct_ps = 100_000  # thousands of flows, one after the other
    assert main(["demo"]) == 0
    assert files(here / "openmrc-demo") == sorted([*RESULTS, "goodput.png"])
    assert "The picture is openmrc-demo/goodput.png" in capsys.readouterr().err
    assert (here / "openmrc-demo/goodput.png").read_bytes().startswith(b"\x89PNG")


def test_what_crosses_a_link_is_captured_and_decoded(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = ["--at", "nic 0 plane 0", "--at", "nic 0 plane 1", "--at", "plane 1 t0 0 - t1 0"]
    assert main(["run", "x.toml", "--pcap", "new/a.pcapng", *places, "--json"]) == 0
    printed = capsys.readouterr()
    assert (
        "The captured packets are in new/a.pcapng; to read them: mrc decode new/a.pcapng"
        in printed.err
    )
    assert main(["decode", "new/a.pcapng", "--json"]) == 0
    *packets, last = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert {p["interface"] for p in packets} <= {
        "nic 0 plane 0 > t0",
        "nic 0 plane 0 < t0",
        "nic 0 plane 1 > t0",
        "nic 0 plane 1 < t0",
        "plane 1 t0 0 > t1 0",
        "plane 1 t0 0 < t1 0",
    }
    data = [p for p in packets if p["headers"]["BTH"]["opcode_name"] == "RDMA_WRITE_ONLY"]
    assert [p["headers"]["RETH"]["dma_length"] for p in data] == [1000] * len(data)
    assert all(p["icrc_ok"] for p in packets)
    assert last["summary"]["packets"] == len(packets) > 0
    assert last["summary"]["damaged"] == {}


def test_each_of_several_transports_has_a_capture_of_its_own(here: Path) -> None:
    (here / "x.toml").write_text(
        SCENARIO + '[[transport]]\nname = "one"\n[[transport]]\nname = "two"\n'
    )
    assert main(["run", "x.toml", "--pcap", "a.pcapng", "--json"]) == 0
    assert [name for name in files(here) if "pcapng" in name] == [
        "a-one.pcapng",
        "a-two.pcapng",
    ]


def test_mrc_and_rocev2_are_captured_side_by_side(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "x.toml").write_text(
        SCENARIO + '[[transport]]\n[[transport]]\nname = "rival"\nkind = "roce"\n'
    )
    assert main(["run", "x.toml", "--pcap", "a.pcapng", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["transports"]
    for name, table in (("mrc", "qps"), ("rival", "roce")):
        assert main(["decode", f"a-{name}.pcapng", "--json"]) == 0
        *packets, last = (json.loads(line) for line in capsys.readouterr().out.splitlines())
        assert len(packets) == told[name]["link_traversals"] > 0
        assert all(p["icrc_ok"] for p in packets)
        assert last["summary"][table]
        assert last["summary"]["damaged"] == last["summary"]["not_mrc"] == {}
    assert main(["run", "x.toml", "--pcap", "b.pcapng", "--at", "nic 99"]) == 2
    assert "--at 'nic 99': there is no nic 99" in capsys.readouterr().err


def test_a_capture_of_what_no_frame_can_hold_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = "run --topo a.topo --cm a.cm --pcap a.pcapng --set transport.pmtu="
    assert main([*(command + "8193").split()]) == 2
    assert "transport.pmtu = 8193: no frame is so long; at most 8192" in capsys.readouterr().err
    assert not (here / "a.pcapng").exists()
    assert main([*(command + "8192").split()]) == 0


def test_help_is_there_before_one_wonders() -> None:
    code = "import sys; from openmrc.cli import main; sys.argv = ['mrc', '--help']; main()"
    taken_s = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken_s.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert done.stdout.startswith(b"usage: mrc")
    assert min(taken_s) < 0.5  # of a processor, however many share it


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from openmrc.cli.parser import make_parser; make_parser().format_help();"
        "print(*{'numpy', 'numba', 'polars', 'matplotlib', 'rich', 'msgspec'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize(
    ("old", "now"),
    [
        ("export linux x.toml", "switches linux x.toml"),
        ("telemetry alerts", "ops alerts"),
        ("telemetry dashboard", "ops dashboard"),
        ("mapper --help", "ops agent --help"),
        ("controller --help", "ops controller --help"),
        ("help run", "run --help"),
        ("help ops agent", "ops agent --help"),
        ("help", "--help"),
        ("version", "--version"),
    ],
)
def test_old_names_work_and_say_the_new_one(
    old: str, now: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = []
    for line in (old, now):
        with suppress(SystemExit):  # of --help
            assert main(line.split()) == 0
        printed.append(capsys.readouterr())
    assert printed[0].out == printed[1].out != ""
    first, *_ = old.split()
    if first in OLD_NAMES:
        assert (
            printed[0].err.splitlines()[0]
            == f"mrc {first} is mrc {' '.join(OLD_NAMES[first])} now."
        )
    else:
        assert printed[0].err == printed[1].err


def test_help_has_every_command_in_one_group(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    text = capsys.readouterr().out
    groups = re.findall(r"^(\w.*):\n((?:  .*\n)+)", text, re.M)
    assert [name for name, _ in groups][1:-1] == list(GROUPS)
    named = re.findall(r"^  (\S+)", "".join(lines for _, lines in groups[1:-1]), re.M)
    (commands,) = (a for a in make_parser()._actions if isinstance(a, argparse._SubParsersAction))
    assert named == list(commands.choices)
    assert not OLD_NAMES.keys() & set(named)


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A parser and those of all its parts."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for part in action.choices.values():
                yield from parsers(part)


def test_every_option_stands_with_its_meaning_in_the_help_of_its_command() -> None:
    for parser in parsers(make_parser()):
        text = parser.format_help()
        for action in parser._actions:
            for option in action.option_strings:
                assert option in text, (parser.prog, option)
                assert action.help, (parser.prog, option)
                assert action.help != argparse.SUPPRESS, (parser.prog, option)
