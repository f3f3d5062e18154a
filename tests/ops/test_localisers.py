"""openmrc's localiser beside others: the traces that they read, how answers are scored, and what
was measured.
"""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openmrc.fabric import places
from openmrc.ops import causes
from tests import benchmark

ROOT = Path(__file__).resolve().parents[2]
# Names what the trace says has failed, and one link too many for parameters below 0.5.
RIVAL = """\
#!/bin/sh
"exec" "{python}" "$0" "$@"  # Python ignores this line, and a blank in its own path
import sys
_, algorithm, trace, topology, end_ms = sys.argv
failed = [line.split()[1:3] for line in open(trace) if line.startswith("Failing_link")]
for line in sys.stdin:
    more = ["1>2"] if float(line.split()[0]) < 0.5 else []
    print("ANSWER", *[">".join(each) for each in failed], *more)
"""


@pytest.fixture(scope="module")
def bench() -> Any:
    return benchmark.load("localisers")


@pytest.fixture(scope="module")
def place(bench: Any) -> Any:
    return bench.Place.of(1, 16, 2, 4)


def cause(place: Any, where: str) -> int:
    (port,) = places.links(place.fabric, where)
    return int(port)


def test_a_trace_says_of_each_path_what_was_sent_and_lost(bench: Any, place: Any) -> None:
    port = cause(place, "plane 1 t0 1 > t1 2")
    case = bench.Case(lambda place, rng: [bench.Fault(port, 1.0)], 0.0)
    trace = bench.drawn(place, case, np.random.default_rng(1))
    lines = list(bench.trace_lines(place, trace))
    fabric = place.fabric
    sender = int(fabric.port_switch[port])
    receiver = int(fabric.port_peer_switch[port])
    assert lines[0] == f"Failing_link {sender} {receiver} 1.0"
    taken = [line.split()[1:] for line in lines if line.startswith("FPT ")]
    counts = [line.split()[2:4] for line in lines if line.startswith("SS ")]
    assert len(taken) == len(counts) == len(place.paths)
    lossy = {(a, b) for (a, b, _), (_, lost) in zip(taken, counts, strict=True) if int(lost)}
    assert lossy == {(str(sender), str(receiver))}
    assert sum(int(lost) for _, lost in counts) == trace.lost.sum() > 0
    every = {line.removeprefix("FP ") for line in lines if line.startswith("FP ")}
    assert {" ".join(path) for path in taken} == every


def test_what_no_packet_crosses_does_not_fail(bench: Any, place: Any) -> None:
    fabric, idle = place.fabric, 4
    kept = np.flatnonzero(fabric.port_peer_nic[place.paths[:, -1]] != idle)
    less = bench.Place(fabric, place.paths[kept], place.crossed[:, kept])
    of_idle = (fabric.port_nic == idle) | (fabric.port_peer_nic == idle)
    assert less.busy.tolist() == np.flatnonzero(~of_idle).tolist()
    rng = np.random.default_rng(1)
    assert not of_idle[[port for _ in range(200) for port in bench.cable(less, rng)]].any()
    nics = {bench.nic(less, rng) for _ in range(200)}
    assert len(nics) == fabric.n_nics - 1
    assert causes.name(fabric, min(nics)) == "nic 0"
    assert f"nic {idle}" not in {causes.name(fabric, each) for each in nics}


def test_each_port_of_a_nic_is_a_host_of_one_rack(bench: Any, place: Any) -> None:
    lines = list(bench.topology(place.fabric))
    hosts = [line.split("->") for line in lines if "->" in line]
    assert len(hosts) == len({host for host, _ in hosts}) == 16 * 2
    assert len(lines) - len(hosts) == 2 * 4 * 4  # links between T0s and T1s, once


def test_answers_are_scored_as_the_harness_does(bench: Any, place: Any) -> None:
    fabric, switch = place.fabric, int(np.flatnonzero(place.fabric.sw_tier == 1)[0])
    device = bench.Fault(fabric.n_ports + switch, 1.0)
    port = int(np.flatnonzero(fabric.port_switch == switch)[0])
    own = bench.link(fabric, port)
    whole = bench.score(fabric, [device], {(switch, switch)})
    assert (whole.precision, whole.recall) == (1, 1)
    part = bench.score(fabric, [device], {own, (10_000, 0)})
    assert (part.precision, part.recall) == (0.5, 1 / 8)
    assert bench.score(fabric, [bench.Fault(port, 1.0)], {own[::-1]}).recall == 0
    assert bench.score(fabric, [], {own}).precision == 0
    assert bench.score(fabric, [], set()).f1 == 1
    assert bench.beats(whole, part)
    assert not bench.beats(part, whole)


def test_baselines_answer_with_their_best_parameters(
    bench: Any, place: Any, tmp_path: Path
) -> None:
    program = tmp_path / "baseline"
    program.write_text(RIVAL.format(python=sys.executable))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    port = cause(place, "nic 3 plane 1 > t0")
    case = bench.Case(lambda place, rng: [bench.Fault(port, 1.0)])
    row = bench.compare(place, case, 0, 1, 1, program, tmp_path)
    assert {name: (each["precision"], each["recall"]) for name, each in row.items()} == {
        "openmrc": (1, 1),
        "flock": (1, 1),
        "netbouncer": (1, 1),
        "007": (0.5, 1),
    }
    assert row["netbouncer"]["parameters"] == [0.51, 0.0205, 0.41]


def test_nobody_is_better_and_the_page_shows_it(bench: Any) -> None:
    table = json.loads((ROOT / "docs/operators/localisers.json").read_text(encoding="utf-8"))
    assert table["trials"] >= 20
    assert list(table["cases"]) == list(bench.CASES)
    for name, row in table["cases"].items():
        assert list(row) == list(bench.COLUMNS)
        for who in set(row) - {bench.OURS}:
            assert row[who]["better"] == [], (name, who)
            assert row[who]["f1"] <= row[bench.OURS]["f1"], (name, who)
            assert tuple(row[who]["parameters"]) in bench.PARAMETERS[who]
    page = (ROOT / "docs/localisation.md").read_text(encoding="utf-8")
    assert bench.markdown(table) in page
