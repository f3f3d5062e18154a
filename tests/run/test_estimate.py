"""What a run is said to take before it starts."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from openmrc.cli import main
from openmrc.run import estimate as told
from openmrc.run.expected import ANSWERS_A_MESSAGE, PROBES_A_PACKET, Packets
from openmrc.scenario.scenario import parse_scenario
from openmrc.sim.shards.cut import Uncut
from openmrc.sim.shards.split import split
from openmrc.sim.world import World

ROOT = Path(__file__).resolve().parents[2]
TWO_RACKS = """
[fabric]
nics = 32
planes = 4
port_rate = "100Gbps"
t0_down = 16
[workload]
kind = "send-recv"
size = "1MiB"
steps = 1
"""


def told_of(text: str) -> told.Estimate:
    (one,) = told.estimates(parse_scenario(text))
    return one


def test_every_packet_crosses_the_links_of_its_way_and_so_do_its_answers() -> None:
    """Of 32 ranks in a ring two send to the other rack: 4 links instead of 2."""
    one = told_of(TWO_RACKS)
    assert one.data_packets == 32 * 256
    answers = 256 / 4 + ANSWERS_A_MESSAGE + PROBES_A_PACKET * 256
    assert one.link_traversals == int((30 * 2 + 2 * 4) * (256 + answers))
    assert (one.nics, one.qps, one.ends_early) == (32, 32, False)


def test_its_memory_is_that_of_the_world_and_what_comes_beside_it() -> None:
    one = told_of(TWO_RACKS)
    assert one.memory["slots"] == 32 * 512 * 24  # 256 packets, and one more slot
    assert one.memory_bytes == sum(one.memory.values()) > told.PROCESS_BYTES
    assert set(one.memory) > {"QPs", "EVs", "ports", "packets in flight", "wheels", "process"}


@pytest.mark.parametrize(("nics", "shards"), [(512, 1), (1024, 4), (2048, 8)])
def test_the_wheels_are_those_of_the_shards(nics: int, shards: int) -> None:
    text = TWO_RACKS.replace("32", str(nics))
    scenario = parse_scenario(text)
    fabric, traffic, schedule = scenario.build()
    world = World(fabric, traffic, scenario.transport(0), schedule)
    nets = [world.net]
    if not isinstance(world._cut, Uncut):
        nets = split(world.net, world.engine, *world._cut)[1]
    held = sum(net.bucket.nbytes + net.timeline.nbytes for net in nets)
    assert (len(nets), told_of(text).memory["wheels"]) == (shards, held)


@pytest.mark.parametrize(("size", "of_nic"), [("4KiB", 1), ("64KiB", 16)])
def test_no_more_packets_are_under_way_than_there_are(size: str, of_nic: int) -> None:
    of_one = 140
    one = told_of(TWO_RACKS.replace("1MiB", size))
    assert one.memory["packets in flight"] == 32 * of_nic * of_one


def test_a_longer_way_holds_more_packets() -> None:
    """Within a rack there is one switch on the way, between racks there are three."""
    near = told_of(TWO_RACKS.replace("steps = 1", "steps = 1\ngroup = 16"))
    far = told_of(TWO_RACKS.replace("t0_down = 16", "t0_down = 1"))
    of_near, of_far = (one.memory["packets in flight"] for one in (near, far))
    assert of_far == pytest.approx(3 * of_near, rel=0.05)


# What is expected of the runs of docs/costs.md (thousands; MB), and how long their loops took, s.
@pytest.mark.parametrize(
    ("data", "answers", "between", "scattered", "qps", "state_mb", "took_s"),
    [
        (251, 80, 624, 0, 1.024, 50, 0.247),
        (2_007, 640, 5_250, 0, 8.192, 406, 2.57),
        (4_014, 1_280, 10_500, 0, 16.384, 806, 5.78),
        (4_006, 1_140, 10_200, 0, 8.192, 250, 5.17),
        (1_000, 281, 2_470, 0, 0.256, 9, 0.878),
        (2_000, 560, 4_720, 0, 0.128, 5, 1.40),
        (1_807, 1_840, 5_510, 0, 0.255, 16, 3.02),
        (520, 186, 712, 520, 16.256, 136, 1.06),
        (988, 299, 1_960, 988, 4.032, 48, 1.85),
        (4_014, 1_280, 165, 0, 16.384, 480, 1.76),
        (4_129, 6_830, 0, 4_129, 1_032, 5_250, 12.99),
        (33_030, 54_700, 0, 0, 131, 3_000, 52.8),
        (32_110, 10_200, 84_700, 0, 131, 6_094, 77.9),
        (32_110, 10_200, 1_320, 0, 131, 3_475, 15.9),
        (68_880, 53_900, 56_600, 68_880, 193, 3_983, 174.6),
    ],
)
def test_the_time_is_within_a_fifth_of_what_was_measured(
    data: int,
    answers: int,
    between: int,
    scattered: int,
    qps: float,
    state_mb: int,
    took_s: float,
) -> None:
    sent = Packets(1000 * data, 1000 * answers, 0, 0, 1000 * between, 1000 * scattered)
    told_s = told.loop_s(sent, int(2000 * qps), state_mb * 10**6)
    assert told_s == pytest.approx(took_s, rel=0.2)


def test_powers_of_two() -> None:
    numbers = np.arange(2000)
    expected = [1 << max(int(n) - 1, 0).bit_length() for n in numbers]
    assert told._pow2(numbers).tolist() == expected


def test_the_command_says_it_and_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(ROOT / "examples/ring_16384.toml"), "--estimate"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("mrc: about ")
    assert "estimated, for 16,384 NICs, 16,384 queue pairs and 11 million" in line


def test_what_is_no_million_is_counted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_text('[fabric]\nnics = 4\n[workload]\nkind = "permutation"\nsize = "1kB"\n')
    assert main(["run", str(file), "--estimate"]) == 0
    line = capsys.readouterr().out
    assert "million" not in line
    assert re.search(r"4 queue pairs and [1-9]\d* link traversals", line)


def test_the_command_prints_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "racks.toml"
    file.write_text(TWO_RACKS + '[[transport]]\n[[transport]]\nname = "b"\npaths = "single"\n')
    assert main(["run", str(file), "--estimate", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["mrc", "b"]
    assert found["mrc"]["memory_bytes"] == told_of(TWO_RACKS).memory_bytes
    assert found["b"]["memory"]["EVs"] < found["mrc"]["memory"]["EVs"]


def test_what_it_does_not_know_it_says(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "racks.toml"
    file.write_text(TWO_RACKS + '[stop]\ntime = "1ms"\n[[transport]]\nkind = "roce"\n')
    assert main(["run", str(file), "--estimate"]) == 0
    assert capsys.readouterr().out == (
        "roce: no estimate; what RoCEv2 costs is not known before a run.\n"
    )


@pytest.mark.parametrize("more", [["--out", "x"], ["--pcap", "x.pcapng"], ["--world", "lab"]])
def test_what_only_a_run_does_is_refused(
    more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    example = str(ROOT / "examples/incast.toml")
    assert main(["run", example, "--estimate", *more]) == 2
    assert f"--estimate and {more[0]}" in capsys.readouterr().err
