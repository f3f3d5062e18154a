"""GOAL schedules: what each line becomes, what is refused, and a ring that runs as the built-in."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmrc.errors import InputError, Remark
from openmrc.run.simulation import simulate
from openmrc.scenario.scenario import make_scenario
from openmrc.traffic.traffic import Traffic
from openmrc.units import US
from openmrc.workload import load_goal
from tests.workload.releases import edges

ROOT = Path(__file__).resolve().parents[2]
NS = 1000  # ps

PLAIN = """\
// two ranks
num_ranks 2

rank 0 {
l1: calc 1000 cpu 1
l2: send 4096b to 1 tag 5 cpu 0 nic 0
l2 requires l1
recv 0b from 1
}
rank 1 { // the other
/* a comment
   of two lines */ l1: recv 4096b from 0 tag 5
reply : send 0 b to 0
reply requires l1
}
"""


def goal(tmp_path: Path, text: str, n_nics: int = 8, **more: Any) -> Traffic:
    path = tmp_path / "x.goal"
    path.write_text(text)
    return load_goal(path, n_nics, **more)


def ranks(*each: str) -> str:
    """A schedule of these ranks."""
    blocks = (f"rank {rank} {{\n{lines}\n}}\n" for rank, lines in enumerate(each))
    return f"num_ranks {len(each)}\n{''.join(blocks)}"


def refusal(tmp_path: Path, text: str, **more: Any) -> str:
    with pytest.raises(InputError) as error:
        goal(tmp_path, text, **more)
    return str(error.value).replace(f"{tmp_path}/", "")


def test_sends_are_messages_and_calcs_computations(tmp_path: Path) -> None:
    traffic = goal(tmp_path, PLAIN)
    assert (traffic.kind, traffic.n_nics, traffic.n_calcs) == ("goal", 8, 1)
    assert traffic.msg_src.tolist() == [0, 1]
    assert traffic.msg_dst.tolist() == [1, 0]
    assert traffic.msg_bytes.tolist() == [4096, 1]
    assert traffic.msg_imm.all()
    assert traffic.calc_ps.tolist() == [1000 * NS]
    assert traffic.calc_core.tolist() == [1]
    assert edges(traffic) == ([(0, 1), (2, 0)], [])


def test_a_send_is_over_with_its_acknowledgement(tmp_path: Path) -> None:
    text = ranks("a: send 9b to 1\nb: send 8b to 1\nb requires a", "recv 9b from 0\nrecv 8b from 0")
    assert edges(goal(tmp_path, text)) == ([], [(0, 1)])


def test_a_receive_that_waits_is_over_when_both_are(tmp_path: Path) -> None:
    # entry 2 is the calc, 3 the receive that waits for it, 4 what waits for the receive
    text = ranks(
        "send 9b to 1\nr: recv 5b from 1",
        "c: calc 7\nr: recv 9b from 0\nr requires c\nd: calc 8\nd requires r\n"
        "s: send 5b to 0\ns requires d",
    )
    traffic = goal(tmp_path, text)
    assert traffic.calc_ps.tolist() == [7 * NS, 0, 8 * NS]
    assert traffic.calc_core.tolist() == [1, 0, 1]
    assert edges(traffic) == ([(0, 3), (2, 3), (3, 4), (4, 1)], [])


def test_irequires_waits_for_a_beginning(tmp_path: Path) -> None:
    # b begins with a, that is when c is over: entry 4 is that moment
    text = ranks(
        "c: calc 5\na: calc 9\na requires c\nb: send 1b to 1\nb irequires a\n"
        "d: send 2b to 1\nd irequires c",
        "recv 1b from 0\nrecv 2b from 0",
    )
    traffic = goal(tmp_path, text)
    assert traffic.calc_ps.tolist() == [5 * NS, 9 * NS, 0]
    assert edges(traffic) == ([(2, 4), (4, 0), (4, 3)], [])
    assert traffic.msg_deps.tolist() == [1, 0]  # c begins at once, so d waits for nothing


def test_sends_and_receives_meet_by_rank_tag_and_order(tmp_path: Path) -> None:
    text = ranks(
        "send 1b to 2 tag 7\nsend 2b to 2 tag 8\nsend 3b to 2 tag 7",
        "send 4b to 2 tag 7",
        "a: recv 9b from 0 tag 8\nb: recv 4b from 1 tag 7\nc: recv 1b from 0 tag 7\n"
        "d: recv 3b from 0 tag 7\nx: calc 1\nx requires d\ny: calc 2\ny requires a",
    )
    traffic = goal(tmp_path, text)
    assert traffic.msg_bytes.tolist() == [1, 2, 3, 4]
    assert edges(traffic)[0] == [(1, 5), (2, 4)]


def test_what_only_joins_at_the_beginning_or_for_nobody_is_left_out(tmp_path: Path) -> None:
    text = ranks(
        "a: calc 0\ns: send 1b to 1\ns requires a\nz: calc 0\nz requires s", "recv 1b from 0"
    )
    traffic = goal(tmp_path, text)
    assert (traffic.n_calcs, traffic.msg_deps.tolist()) == (0, [0])
    text = ranks("send 1b to 1\nsend 2b to 1", "a: recv 1b from 0\nb: recv 2b from 0\nj: calc 0\n"
        "j requires a\nj requires b\nc: calc 3\nc requires j")  # fmt: skip
    traffic = goal(tmp_path, text)
    assert traffic.calc_ps.tolist() == [0, 3 * NS]
    assert edges(traffic)[0] == [(0, 2), (1, 2), (2, 3)]


def test_a_rank_may_compute_only(tmp_path: Path) -> None:
    traffic = goal(tmp_path, ranks("send 1b to 1", "recv 1b from 0", "calc 5\ncalc 6 cpu 3"))
    assert traffic.calc_ps.tolist() == [5 * NS, 6 * NS]
    assert traffic.calc_core.tolist() == [1, 2]


def test_computations_are_scaled(tmp_path: Path) -> None:
    text = ranks("send 1b to 1\ncalc 5", "recv 1b from 0")
    assert goal(tmp_path, text, compute_scale=0.5).calc_ps.tolist() == [2500]
    assert goal(tmp_path, text, compute_scale=0.0).n_calcs == 0


def test_a_rank_may_have_several_nics(tmp_path: Path) -> None:
    text = ranks("send 1b to 1 nic 1\nsend 2b to 1", "recv 1b from 0 nic 0\nrecv 2b from 0 nic 1")
    traffic = goal(tmp_path, text, rank_nics=2)
    assert traffic.msg_src.tolist() == [1, 0]
    assert traffic.msg_dst.tolist() == [2, 3]
    placed = goal(tmp_path, text, 8, rank_nics=2, nics=np.array([7, 5, 3, 1]))
    assert (placed.msg_src.tolist(), placed.msg_dst.tolist()) == ([5, 7], [3, 1])


def test_a_label_given_twice_is_remarked_on_if_nothing_refers_to_it(tmp_path: Path) -> None:
    text = ranks("l: send 1b to 2", "l: send 2b to 2", "l: recv 1b from 0\nl: recv 2b from 1")
    with pytest.warns(Remark, match=r"x\.goal:10: label l is that of line 9, too; nothing refers"):
        traffic = goal(tmp_path, text)
    assert (traffic.msg_src.tolist(), traffic.msg_dst.tolist()) == ([0, 1], [2, 2])


def test_a_schedule_of_computations_alone_runs(tmp_path: Path) -> None:
    (tmp_path / "x.goal").write_text(
        ranks("a: calc 4000 cpu 0\nb: calc 1500 cpu 1\nb requires a", "calc 900")
    )
    run = run_of({"kind": "goal", "file": "x.goal"}, tmp_path)
    assert (run.finish_ps, run.ideal_ps, len(run.flows["src"])) == (5500 * NS, 5500 * NS, 0)
    assert run.summary()["flows"]["fct_us"]["p100"] is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x.goal: no num_ranks; name a GOAL file"),
        ("rank 0 {\n}", "x.goal:1: 'rank 0 {'; accepted here: 'num_ranks N' first"),
        ("num_ranks 9\n", "x.goal:1: 9 ranks with 1 NICs each on 8 NICs; take a larger fabric"),
        ("num_ranks 2\nrank 0 {\n}", "x.goal: num_ranks 2, but rank 1 is missing; add it"),
        ("num_ranks 1\nrank 0 {\n}\nrank 0 {\n}", "x.goal:4: rank 0 is defined twice; join"),
        ("num_ranks 1\nrank 1 {\n}", "x.goal:2: rank 1; 0 to 0 are accepted"),
        ("num_ranks 1\nrank 0 {\ncalc 5", "x.goal:3: the file ends within rank 0; add }"),
        ("num_ranks 1\nrank 0 {\n}", "x.goal: workload: no messages, no computations"),
        ("num_ranks 1 /* no end\nrank", "x.goal:1: a comment begins here and never ends; add */"),
        (ranks("calc"), "x.goal:3: 'calc'; accepted: [LABEL:] calc NS [cpu C], [LABEL:] send"),
        (ranks("send 5b from 1"), "x.goal:3: send from; 'send ... to' and 'recv ... from' are"),
        (ranks("send 5b to 3"), "x.goal:3: rank 3; 0 to 0 are accepted"),
        (ranks("send 5b to 0"), "x.goal:3: rank 0 sends to itself; a calc is as long"),
        (ranks("recv 5b from -1", ""), "x.goal:3: recv from any rank (-1) is not supported:"),
        (ranks("recv 5b from 1 tag -1", ""), "x.goal:3: recv with any tag (-1) is not supported:"),
        (ranks("send 5b to 1 nic 1", ""), "x.goal:3: nic 1, but a rank has 1; set workload.rank"),
        (ranks("calc 5 cpu 256"), "x.goal:3: cpu 256; 0 to 255 are accepted"),
        (ranks(f"calc {'9' * 5000}"), "x.goal:3: calc 999999999999999999999999999999; 0 to 1152"),
        (ranks(f"calc {1 << 59}"), "x.goal:3: computes for 576460752303423488000 ps; at most"),
        (
            ranks("l: calc 5\nl: calc 6\nk: calc 7\nk requires l"),
            "x.goal:6: label l is given to lines 3 and 4; rename one",
        ),
        (ranks("l: calc 5\nl requires m"), "x.goal:4: no label m in rank 0; add it"),
        (
            ranks("send 5b to 1 tag 3", "recv 5b from 0 tag 4"),
            "x.goal:3: send to rank 1 with tag 3: that rank has no receive left for it; add one",
        ),
        (
            ranks("send 5b to 1", "recv 5b from 0\nrecv 5b from 0"),
            "x.goal:7: receive from rank 0 with tag 0: that rank has no send left for it; add one",
        ),
        (ranks("send 5b to 1", "recv 4b from 0"), "x.goal:6: receives 4 B of the 5 B sent at"),
        (
            ranks("send 5b to 1\na: calc 1\nb: calc 2\na requires b\nb requires a",
                  "recv 5b from 0"),
            "x.goal:4: never begins: it waits for itself, through others",
        ),
        (
            ranks("s: send 5b to 1\nr: recv 5b from 1\ns requires r",
                  "s: send 5b to 0\nr: recv 5b from 0\ns requires r"),
            "x.goal:3: never begins: it waits for itself, through others",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    assert refusal(tmp_path, text).startswith(message)


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\(No such file or directory\); name a GOAL file"):
        load_goal(tmp_path / "none.goal", 8)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(
        InputError, match="is not UTF-8 text; name a GOAL file, text or LogGOPSim's binary"
    ):
        load_goal(tmp_path / "binary", 8)


WORDS = st.sampled_from(
    ["num_ranks", "rank", "send", "recv", "calc", "to", "from", "tag", "cpu", "nic", "requires",
     "irequires", "b", "{", "}", ":", "\n", "0", "1", "2", "-1", "a", "a:", "8b", "//", "/*", "*/"]
)  # fmt: skip


@given(st.lists(WORDS | st.text(max_size=3), max_size=60).map(" ".join), st.booleans())
def test_any_text_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, text: str, begun: bool
) -> None:
    path = tmp_path_factory.mktemp("goal") / "x.goal"
    path.write_bytes(("num_ranks 2\nrank 0 {\n" * begun + text).encode("utf-8", "surrogatepass"))
    try:
        load_goal(path, 4)
    except InputError as error:
        assert str(error).startswith(str(path))  # noqa: PT017


def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "benchmarks/traces.py"))


def run_of(workload: dict[str, Any], base: Path) -> Any:
    fabric = {"nics": 8, "planes": 4, "port_rate": "100Gbps"}
    scenario = make_scenario({"fabric": fabric, "workload": workload}, base=base)
    return simulate(scenario).transports[0]


def test_a_ring_in_goal_is_the_built_in_ring(tmp_path: Path) -> None:
    size, n = 100_003, 8
    (tmp_path / "ring.goal").write_text(script()["ring_goal"](n, size))
    traced = run_of({"kind": "goal", "file": "ring.goal"}, tmp_path)
    built_in = run_of({"kind": "ring-all-reduce", "size": f"{size}B"}, tmp_path)
    assert traced.finish_ps == built_in.finish_ps
    for key in ("src", "dst", "bytes", "start_ps", "done_ps", "delivered_ps"):
        assert traced.flows[key].tolist() == built_in.flows[key].tolist(), key
    assert traced.counters == built_in.counters


def test_a_computation_before_the_ring_puts_it_off(tmp_path: Path) -> None:
    (tmp_path / "ring.goal").write_text(script()["ring_goal"](8, 100_003, 50_000))
    traced = run_of({"kind": "goal", "file": "ring.goal", "compute_scale": 2}, tmp_path)
    assert traced.flows["start_ps"].min() == 100 * US


def test_ranks_are_placed(tmp_path: Path) -> None:
    (tmp_path / "x.goal").write_text(ranks("send 1b to 1", "recv 1b from 0"))
    work = {"kind": "goal", "file": "x.goal"}
    tables = {"workload": work | {"order": "random"}, "fabric": {"nics": 64}, "seed": 5}
    _, traffic, _ = make_scenario(tables, base=tmp_path).build()
    mixed = np.random.default_rng(5).permutation(64)
    assert (traffic.msg_src.tolist(), traffic.msg_dst.tolist()) == ([mixed[0]], [mixed[1]])
    job = work | {"nics": [9, 3]}
    _, traffic, _ = make_scenario(
        {"workload": {"kind": "jobs", "job": [job]}, "fabric": {"nics": 64}}, base=tmp_path
    ).build()
    assert (traffic.msg_src.tolist(), traffic.msg_dst.tolist()) == ([9], [3])


def test_the_example_is_what_the_script_writes() -> None:
    text = script()["ring_goal"](8, 4_000_000, compute_ns=50_000)
    assert (ROOT / "examples/traces/ring.goal").read_text() == text
