"""A job whose ranks write down what became of their paths, and `mrc why` after it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra openmrc[torch] is not installed")

from openmrc.ops import job  # noqa: E402
from tests.torch.ranks import run  # noqa: E402


def _world() -> Any:
    group: Any = torch.distributed.group.WORLD
    return group._world


def summed(rank: int, size: int) -> float:
    """Sums once, and once more while a port of rank 0 is down."""
    x = torch.ones(1 << 16)
    torch.distributed.all_reduce(x)
    (pair,) = _world().progress.pairs.values()
    for up in (False, True):
        if rank == 0:
            pair.device.set_port(1, up)
        torch.distributed.all_reduce(x)
    return float(x[0])


def test_ranks_write_who_they_were_and_which_port_was_down(tmp_path: Path) -> None:
    assert run(2, summed, OPENMRC_RECORD=str(tmp_path)) == [8.0, 8.0]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["rank-0.jsonl", "rank-1.jsonl"]
    lines = [json.loads(line) for line in (tmp_path / "rank-0.jsonl").read_text().splitlines()]
    assert (lines[0]["event"], lines[-1]["event"]) == ("joined", "left")
    (peer,) = lines[0]["peers"].values()
    assert min(peer["paths"].values()) > 0
    (record,) = job.read(tmp_path)
    assert len(record.hosts) == 2
    assert len(record.ways) == len(peer["paths"])
    assert record.causes == ()
    found = {it.where: it for it in job.troubles(record)}
    down = found[f"port 1 of host {record.hosts[0]}"]
    assert down.until_s is not None
    assert record.since_s < down.since_s < down.until_s
