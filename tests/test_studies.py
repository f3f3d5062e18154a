"""`benchmarks/studies.py`: what docs/studies.md says is what its runs say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import benchmark

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs/studies.md").read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def studies() -> Any:
    return benchmark.load("studies")


def table(columns: tuple[str, ...]) -> list[list[str]]:
    """The page's table with these columns, without its head."""
    start = PAGE.index(f"| {' | '.join(columns)} |") + 2
    rows = []
    for line in PAGE[start:]:
        if not line.startswith("|"):
            break
        rows.append(line.strip("| ").split(" | "))
    return rows


def test_the_page_has_every_point_and_the_first_one_comes_out_again(studies: Any) -> None:
    rows = table(studies.POINT_COLUMNS)
    named = [f"{planes}, {link.replace(' ', '')}" for planes, link, *_ in rows]
    assert named == list(studies.POINTS)
    assert rows[0] == studies.point_row(*studies.POINTS[named[0]])


def test_the_page_has_every_pair_of_jobs_and_those_of_mrc_come_out_again(studies: Any) -> None:
    rows = table(studies.JOB_COLUMNS)
    transports = [each["name"] for each in studies.example("neighbours.toml")["transport"]]
    assert [row[:2] for row in rows] == [
        [noise, name] for noise in studies.NOISES for name in transports
    ]
    for noise in studies.NOISES:
        (again,) = studies.job_rows(noise, "mrc")
        assert again in rows


def test_only_senders_whose_path_was_cut_count_and_of_each_the_first_path(studies: Any) -> None:
    events = {
        "at_ps": [5_000_000, 7_000_000, 9_000_000, 8_000_000],
        "qp": [0, 1, 1, 2],
        "src": [1, 9, 9, 9],
        "dst": [9, 2, 2, 10],
    }
    arrays = {name: np.array(column) for name, column in events.items()}
    run = type("Run", (), {"testimony": type("Testimony", (), {"events": arrays})})
    assert studies.left_us(run, below=4) == 7.0
