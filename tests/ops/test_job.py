"""What the ranks of a torch job wrote down, and what `mrc why` says of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from openmrc.cli.command import main
from openmrc.errors import InputError
from openmrc.ops import job
from openmrc.torch.record import VARIABLE, Recorder

T0 = 1_800_000_000.0
PLANES, EVS = 2, 4
HOSTS = ["a", "b", "c"]


def joined(rank: int, hosts: list[str] = HOSTS) -> dict[str, Any]:
    peers = {
        str(peer): {"host": host, "qp": peer, "paths": {str(k): EVS for k in range(PLANES)}}
        for peer, host in enumerate(hosts)
        if peer != rank
    }
    size = len(hosts)
    line = {"event": "joined", "t": T0, "rank": rank, "version": 1}
    return line | {"host": hosts[rank], "size": size, "peers": peers}


def path(event: str, rank: int, peer: int, plane: int, ev: int, at_s: float) -> dict[str, Any]:
    noticed = T0 + at_s + 0.2  # the clock of the endpoint began with the job
    line = {"event": event, "t": noticed, "rank": rank, "at_us": at_s * 1e6, "peer": peer}
    return line | {"plane": plane, "ev": plane * 100 + ev}


def written(directory: Path, lines: list[dict[str, Any]], job: str = "first") -> Path:
    for line in lines:
        with (directory / f"rank-{line['rank']}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"job": job} | line) + "\n")
    return directory


def only(directory: Path) -> job.Job:
    (found,) = job.read(directory)
    return found


def lost(pairs: list[tuple[int, int]], plane: int, back_s: float | None) -> list[dict[str, Any]]:
    """Every path of these pairs on a plane, from 5 s on."""
    found = []
    for rank, peer in pairs:
        for ev in range(EVS):
            found.append(path("path_bad", rank, peer, plane, ev, 5.0))
            if back_s is not None:
                found.append(path("path_revived", rank, peer, plane, ev, back_s))
    return found


ALL = [(a, b) for a in range(3) for b in range(3) if a != b]
OF_B = [pair for pair in ALL if 1 in pair]


@pytest.mark.parametrize(
    ("pairs", "where"),
    [
        (OF_B, "host b on plane 1"),
        (ALL, "plane 1"),
        ([(0, 1)], "the way from a to b on plane 1"),
        ([(0, 1), (1, 0)], "the way between a and b on plane 1"),
    ],
)
def test_places_are_ends_planes_and_ways(
    tmp_path: Path, pairs: list[tuple[int, int]], where: str
) -> None:
    here = written(tmp_path, [joined(rank) for rank in range(3)] + lost(pairs, 1, 9.0))
    (found,) = job.troubles(only(here))
    assert (found.where, found.paths, found.back) == (where, EVS * len(pairs), EVS * len(pairs))
    # Noticed 0.2 s late, in a file whose clock is known no better.
    assert found.since_s - T0 == pytest.approx(5.2)
    assert found.until_s == pytest.approx(T0 + 9.2)


def test_with_two_hosts_nobody_knows_which_end(tmp_path: Path) -> None:
    two = ["a", "b"]
    lines = [joined(rank, two) for rank in range(2)] + lost([(0, 1), (1, 0)], 0, None)
    (found,) = job.troubles(only(written(tmp_path, lines)))
    assert found.where == "the way between a and b on plane 0"
    assert (found.back, found.until_s) == (0, None)


def test_a_port_that_went_down_is_named_and_since_leaves_out_what_was_over(tmp_path: Path) -> None:
    down = {"event": "port_down", "t": T0 + 3, "rank": 2, "at_us": 3e6, "peer": None}
    up = {"event": "port_up", "t": T0 + 4, "rank": 2, "at_us": 4e6, "peer": None}
    ports = [each | {"plane": 1, "ev": 0} for each in (down, up)]
    here = written(tmp_path, [joined(rank) for rank in range(3)] + ports)
    (found,) = job.troubles(only(here))
    assert (found.where, found.since_s, found.until_s) == ("port 1 of host c", T0 + 3, T0 + 4)
    assert job.troubles(only(here), since_s=4.5) == []


def test_the_command_says_it_in_a_paragraph(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    end = {"event": "left", "t": T0 + 20, "rank": 0, "cause": None}
    lines = [joined(rank) for rank in range(3)] + lost(OF_B, 1, 9.0) + [end]
    written(tmp_path, lines)
    assert main(["why", str(tmp_path)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith("Nothing is broken any more; host b on plane 1 was. A job of 3 ranks on")
    assert "Host b on plane 1: 16 paths were avoided from 08:00:05.2 UTC" in said
    assert said.endswith("all are back since 08:00:09.2 UTC. No rank failed.")
    assert main(["why", str(tmp_path), "--json", "--since", "15s"]) == 0
    (told,) = json.loads(capsys.readouterr().out)["jobs"]
    assert told["nothing_broke"] is True
    assert main(["why", str(tmp_path), "--step", "3"]) == 2
    assert "--step: the records of a torch job have none" in capsys.readouterr().err


def test_why_a_job_failed_is_told(tmp_path: Path) -> None:
    left = [
        {"event": "left", "t": T0 + 9, "rank": rank, "cause": "rank 2 (host c) has ended"}
        for rank in range(2)
    ]
    record = only(written(tmp_path, [joined(rank) for rank in range(3)] + left))
    said = job.text(record, job.troubles(record))
    assert said.endswith("No path was avoided. It failed: rank 2 (host c) has ended.")
    told = job.as_json(record, [])
    assert told["nothing_broke"] is False
    assert told["state"] == "The job failed: rank 2 (host c) has ended."


def test_jobs_that_wrote_into_one_directory_are_told_one_by_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A restarted job appends to the files of its first life, which was another."""
    ranks = [joined(rank) for rank in range(3)]
    end = {"event": "left", "t": T0 + 20, "rank": 0, "cause": "rank 1 (host b) has ended"}
    written(tmp_path, [*ranks, *lost(OF_B, 1, None), end])
    later = [line | {"t": T0 + 60} for line in (*ranks, end | {"cause": None})]
    written(tmp_path, later, "second")
    assert main(["why", str(tmp_path)]) == 0
    first, second = capsys.readouterr().out.split("\n\n")
    assert first.startswith("Still broken: host b on plane 1.\n  host b on plane 1: check its port")
    assert "Host b on plane 1: 16 paths" in " ".join(first.split())
    assert " ".join(second.split()) == (
        "Nothing broke. A job of 3 ranks on 3 hosts ran for 0.0 s from 08:01:00.0 UTC on."
        " No path was avoided."
    )
    assert main(["why", str(tmp_path), "--since", "15s", "--json"]) == 0
    jobs = json.loads(capsys.readouterr().out)["jobs"]
    assert [each["nothing_broke"] for each in jobs] == [False, True]
    assert main(["why", str(tmp_path), "--since", "25s"]) == 2
    assert "the longest job lasted 20.0 s" in capsys.readouterr().err


def test_a_record_that_does_not_name_its_job_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rank-0.jsonl").write_text(json.dumps(joined(0)) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"rank-0.jsonl:1: does not name its job, an older"):
        job.read(tmp_path)


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"t": 1}', '{"job": "a", "event": "left", "t": 1, "rank": 0}']
)
def test_what_is_no_record_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "rank-0.jsonl").write_text(line + "\n", encoding="utf-8")
    with pytest.raises(InputError, match="record"):
        job.read(tmp_path)


def test_a_rank_writes_lines_that_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "new"))
    recorder = Recorder(1)
    recorder.write("left", cause=None)  # not joined: nothing yet
    of_line = ("event", "t", "rank", "version")
    recorder.join(b"secret", **{k: v for k, v in joined(1).items() if k not in of_line})
    recorder.write("path_bad", at_us=1.0, peer=0, plane=1, ev=101)
    recorder.write("left", cause=None)
    recorder.close()
    recorder.write("left", cause=None)  # nothing any more
    (found,) = job.troubles(only(tmp_path / "new"))
    assert (found.where, found.paths) == ("the way from b to a on plane 1", 1)


def test_what_cannot_be_written_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "file"))
    recorder = Recorder(1)
    recorder.write("left", cause=None)
    recorder.close()
    assert not recorder.writes
    assert "rank 1 writes nothing more" in capsys.readouterr().err
    monkeypatch.delenv(VARIABLE)
    assert not Recorder(1).writes
