from __future__ import annotations

import re
from io import BytesIO, StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest
from matplotlib import image

from openmrc.errors import OutputError
from openmrc.report.files import write_results
from openmrc.report.page import html
from openmrc.report.picture import STYLES, goodput_png, style
from openmrc.report.series import goodput
from openmrc.report.table import print_table, sentences, table, warnings
from openmrc.run.simulation import simulate
from openmrc.scenario.scenario import Scenario, parse_scenario
from openmrc.units import US

if TYPE_CHECKING:
    from tests.conftest import FakeWorld

TEXT = """
name = "three <b>"
[fabric]
nics = 4
t0_down = 2
[workload]
kind = "permutation"
size = "1kB"
[[transport]]
[[transport]]
paths = "oblivious"
[[transport]]
name = "one path"
paths = "single"
[[fault]]
at = "60us"
kind = "link-down"
where = "plane 0 t0 0 - t1 0"
for = "50us"
"""


@pytest.fixture
def three(fake_world: type[FakeWorld]) -> Scenario:
    return parse_scenario(TEXT)


def rows(text: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.strip("│").split("│")]
        for line in text.splitlines()
        if line.startswith("│")
    ]


# What a comparison rests on: links fail, and one of the transports waits for routing.
RESTS = (
    "one path: its times assume that routing converges 50ms after a fault;"
    " transport.convergence sets another time."
)


STORED = (  # 4 planes of 200 Gb/s; packets of 4262 B, of which cut-through waits for 64
    "Switches store whole packets: 170.5ns each at 200Gbps, 42.62ns on one plane of 800Gbps."
    ' Compare the two with fabric.switching = "cut-through" (2.56ns).'
)


def test_what_storing_costs_several_planes_is_said(
    fake_world: type[FakeWorld],
) -> None:
    def said(fabric: str) -> list[str]:
        text = f'[fabric]\nnics = 4\n{fabric}\n[workload]\nkind = "permutation"\n'
        return sentences(simulate(parse_scenario(text)))

    assert said("planes = 4") == [STORED]
    for fabric in ("planes = 1", 'switching = "cut-through"', 'kind = "fat-tree"'):
        assert said(fabric) == []


def test_the_table_has_one_row_per_transport_and_one_sentence(three: Scenario) -> None:
    out = StringIO()
    print_table(simulate(three), out)
    assert rows(out.getvalue()) == [
        ["mrc", "40.00", "4.00", "20.00", "40.00", "40.00", "0.800", "1", "2"],
        ["oblivious", "120.0", "12.00", "60.00", "120.0", "120.0", "0.266", "2", "4"],
        ["one path", "200.0", "20.00", "100.0", "200.0", "200.0", "0.160", "3", "6"],
    ]
    assert out.getvalue().splitlines()[-3:] == [
        "mrc finished after 40us: oblivious took 3.00 times as long (120us), one path took 5.00"
        " times as long (200us).",
        RESTS,
        STORED,
    ]


def test_where_mrc_gains_nothing_it_says_so(three: Scenario, fake_world: type[FakeWorld]) -> None:
    fake_world.slower = 0
    assert sentences(simulate(three)) == [
        "mrc finished after 40us: oblivious took 1.00 times as long (40us), one path took 1.00"
        " times as long (40us). It gained nothing over oblivious and one path here.",
        RESTS,
        STORED,
    ]
    swapped = three.replace({"transport.one path.paths": "mrc", "transport.mrc.paths": "single"})
    fake_world.built.clear()
    fake_world.slower = 3  # the third transport, now MRC, is the slowest
    (said, *_) = sentences(simulate(swapped))
    assert said == (
        "one path finished after 280us: single took 0.14 times as long (40us), oblivious took 0.57"
        " times as long (160us). It gained nothing over single and oblivious here."
    )


def test_what_did_not_finish_is_said_loudly(three: Scenario, fake_world: type[FakeWorld]) -> None:
    fake_world.unfinished = 1
    assert sentences(simulate(three)) == [
        "UNFINISHED: 1 of 4 flows of mrc.",
        "UNFINISHED: 1 of 4 flows of oblivious.",
        "UNFINISHED: 1 of 4 flows of one path.",
        "None finished: mrc, oblivious and one path.",
        RESTS,
        STORED,
    ]


def test_a_run_that_did_not_finish_has_no_share_of_the_ideal(
    three: Scenario, fake_world: type[FakeWorld]
) -> None:
    fake_world.unfinished = 1
    out = StringIO()
    print_table(simulate(three), out)
    assert [row[1:3] for row in rows(out.getvalue())] == [["never", "-"]] * 3


def test_an_interrupted_run_is_not_ranked(three: Scenario, fake_world: type[FakeWorld]) -> None:
    fake_world.interrupt = True
    assert sentences(simulate(three)) == ["INTERRUPTED: these are partial results."]


def test_a_failed_flow_comes_with_its_reason(three: Scenario, fake_world: type[FakeWorld]) -> None:
    fake_world.failed = 2
    assert sentences(simulate(three))[0] == (
        "FAILED: 2 of 4 flows of mrc: QP 0: retry exceeded (and 1 more)"
    )


def test_a_control_queue_that_starts_overflow_is_warned_of_where_it_was_stated(
    fake_world: type[FakeWorld],
) -> None:
    """The fabric's own needs 65,537 B."""
    text = '[fabric]\nnics = 4\n{}[workload]\nkind = "permutation"\n'
    said = simulate(parse_scenario(text.format('control_queue = "64KiB"\n')))
    assert warnings(said, said.transports[0]) == [
        "WARNING: fabric.control_queue: 65536 B: senders that start at line rate need 65537 B for"
        " their trimmed headers, and a header that is dropped is a loss that nobody is told of;"
        ' state 65537 B or more, or "auto"'
    ]
    by_default = simulate(parse_scenario(text.format("")))
    assert warnings(by_default, by_default.transports[0]) == []


@pytest.mark.parametrize(("n_bytes", "warned"), [(4 * 4262 - 1, True), (4 * 4262, False)])
def test_a_queue_of_fewer_than_four_packets_is_warned_of(
    n_bytes: int, warned: bool, fake_world: type[FakeWorld]
) -> None:
    result = simulate(parse_scenario('[fabric]\nnics = 4\n[workload]\nkind = "permutation"\n'))
    run = result.transports[0]
    run.derived["queue_last_hop_bytes"] = n_bytes
    said = (
        "WARNING: fabric.queue_last_hop: 17047 B hold 3 packets of 4262 B: nearly everything that"
        " waits is cut or lost; state 17048 B or more"
    )
    assert warnings(result, run) == [said] * warned


def test_a_single_transport_is_compared_with_nothing(fake_world: type[FakeWorld]) -> None:
    alone = parse_scenario('[fabric]\nnics = 4\n[workload]\nkind = "permutation"\n')
    assert sentences(simulate(alone)) == [STORED]


def test_the_line_keeps_every_byte_when_bins_are_joined(three: Scenario) -> None:
    run = simulate(three).transports[0]
    assert (run.bin_ps, run.timeline["goodput_bytes"].tolist()) == (10 * US, [1000] * 4)
    starts_ps, gbps = goodput(run, 40 * US, 200)
    assert starts_ps.tolist() == [0, 10 * US, 20 * US, 30 * US, 40 * US]
    assert gbps.tolist() == [0.8, 0.8, 0.8, 0.8, 0.0]
    # 8 ms are 800 bins of 10 us: four are joined.
    starts_ps, gbps = goodput(run, 8_000 * US, 200)
    assert starts_ps.tolist() == [0, 40 * US]
    assert gbps.tolist() == [0.8, 0.0]


def test_the_picture_is_drawn_and_its_lines_differ_without_colour(three: Scenario) -> None:
    pixels = image.imread(BytesIO(goodput_png(simulate(three))), format="png")
    assert pixels.shape[:2] == (650, 1300)
    assert len(np.unique(pixels.reshape(-1, pixels.shape[2]), axis=0)) > 50
    assert len({str(style["linestyle"]) for style in STYLES}) == len(STYLES)


def test_no_two_of_25_lines_look_alike() -> None:
    looks = [style(number) for number in range(25)]
    assert looks[:5] == list(STYLES)
    assert len({(look["color"], str(look["linestyle"])) for look in looks}) == 25
    assert len({str(look["linestyle"]) for look in looks[:10]}) == 10  # in black and white, too


def test_the_page_needs_no_other_file_and_escapes_names(three: Scenario) -> None:
    page = html(simulate(three))
    assert "<h1>three &lt;b&gt;, seed 1</h1>" in page
    assert not re.search(r"<(img|link|iframe)|src=|url\(|@import", page)
    (namespace,) = re.findall(r"https?://[^\s\"']+", page)
    assert namespace == "http://www.w3.org/2000/svg"
    assert "one path took 5.00 times as long" in page
    assert page.count("<tr>") == 4


def test_results_replace_older_ones_and_leave_the_rest_alone(
    three: Scenario, tmp_path: Path, fake_world: type[FakeWorld]
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "summary.json").write_text("old")
    fake_world.unfinished = 1
    write_results(simulate(three), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "flows.parquet",
        "notes.txt",
        "report.html",
        "scenario.toml",
        "summary.json",
        "timeline.parquet",
    ]
    assert (tmp_path / "summary.json").read_text().startswith("{")
    flows = pl.read_parquet(tmp_path / "flows.parquet")
    assert flows.columns == [
        "transport",
        "flow",
        "qp",
        "src",
        "dst",
        "bytes",
        "start_us",
        "done_us",
        "fct_us",
        "delivered_us",
        "retransmitted",
        "failed",
        "error",
        "messages",
        "job",
    ]
    assert flows.filter(pl.col("transport") == "mrc")["fct_us"].to_list() == [
        10.0,
        20.0,
        30.0,
        None,
    ]
    timeline = pl.read_parquet(tmp_path / "timeline.parquet")
    assert timeline.columns[:3] == ["transport", "t_us", "goodput_gbps"]
    assert timeline.columns[3:] == ["retransmitted", "lost", "trimmed", "job_gbps", "flow_gbps"]


def test_a_failure_while_writing_leaves_nothing_half_written(
    three: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(*arguments: object) -> str:
        raise OSError("no space left on device")

    monkeypatch.setattr("openmrc.report.files.html", full_disk)
    with pytest.raises(OutputError, match="cannot be written"):
        write_results(simulate(three), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_jobs_stand_below_their_transport(fake_world: type[FakeWorld], tmp_path: Path) -> None:
    job = '[[workload.job]]\nname = "{}"\nkind = "incast"\nn = {}\n'
    text = '[workload]\nkind = "jobs"\n' + job.format("a <b>", 2) + job.format("large", 3)
    result = simulate(parse_scenario(text))
    headings, (first, small, large) = table(result)
    assert headings[1] == ("all jobs finished after", "us")
    assert first[:3] == ["mrc", "50.00", "5.00"]
    assert small == ["mrc: a <b>", "20.00", "-", "10.00", "20.00", "20.00", "", "", ""]
    assert large == ["mrc: large", "50.00", "-", "40.00", "50.00", "50.00", "", "", ""]
    write_results(result, tmp_path)
    flows = pl.read_parquet(tmp_path / "flows.parquet")
    assert flows["job"].to_list() == ["a <b>"] * 2 + ["large"] * 3
    assert flows["messages"].to_list() == [1] * 5
    assert '<th scope="row">mrc: a &lt;b&gt;</th>' in (tmp_path / "report.html").read_text()
