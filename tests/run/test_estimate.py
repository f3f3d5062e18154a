"""What a run is said to take before it starts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from openmrc.cli import main
from openmrc.run import estimate as told
from openmrc.scenario.scenario import parse_scenario

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
    answers = told.ANSWERS_A_PACKET * 256 + told.ANSWERS_A_MESSAGE
    assert one.link_traversals == int((30 * 2 + 2 * 4) * (256 + answers))
    assert (one.nics, one.qps, one.ends_early) == (32, 32, False)


def test_its_memory_is_that_of_the_world_and_what_comes_beside_it() -> None:
    one = told_of(TWO_RACKS)
    assert one.memory["slots"] == 32 * 512 * 24  # 256 packets, and one more slot
    assert one.memory_bytes == sum(one.memory.values()) > told.PROCESS_BYTES
    assert set(one.memory) > {"QPs", "EVs", "ports", "packets in flight", "process"}


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


# docs/costs.md: what its runs are, and seconds of their loops on an idle core.
@pytest.mark.parametrize(
    ("packets", "traversals", "qps", "state_mb", "loop_s"),
    [
        (62_592, 0.33e6, 128, 3, 0.035),
        (250_112, 1.15e6, 256, 16, 0.14),
        (500_736, 2.82e6, 1024, 22, 0.52),
        (250_880, 1.34e6, 1024, 45, 0.19),
        (4.0e6, 20.6e6, 8192, 241, 4.5),
        (2.0e6, 11.1e6, 8192, 371, 2.3),
        (4.0e6, 10.5e6, 16_384, 417, 1.8),
        (4.1e6, 21.8e6, 1_032_192, 5205, 13.9),
        (33.0e6, 174e6, 131_072, 3894, 51.3),
        (32.1e6, 85.4e6, 131_072, 3332, 20.4),
        (32.1e6, 183e6, 131_072, 5951, 72.4),
    ],
)
def test_the_time_is_within_a_quarter_of_what_was_measured(
    packets: float, traversals: float, qps: int, state_mb: int, loop_s: float
) -> None:
    told_s = told.loop_s(int(packets), int(traversals), 2 * qps, state_mb * 10**6)
    assert told_s == pytest.approx(loop_s, rel=0.25)


def test_powers_of_two() -> None:
    numbers = np.arange(2000)
    expected = [1 << max(int(n) - 1, 0).bit_length() for n in numbers]
    assert told._pow2(numbers).tolist() == expected


def test_the_command_says_it_and_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(ROOT / "examples/ring_16384.toml"), "--estimate"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("mrc: about ")
    assert "estimated, for 16,384 NICs, 16,384 queue pairs and 11 million" in line


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
    assert capsys.readouterr().out == "There is no model of RoCEv2: nothing is said of roce.\n"


@pytest.mark.parametrize("more", [["--out", "x"], ["--pcap", "x.pcapng"], ["--world", "lab"]])
def test_what_only_a_run_does_is_refused(
    more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    example = str(ROOT / "examples/incast.toml")
    assert main(["run", example, "--estimate", *more]) == 2
    assert f"--estimate and {more[0]}" in capsys.readouterr().err
