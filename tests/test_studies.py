"""`benchmarks/studies.py`: what docs/studies.md says is what its runs say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests import benchmark, pictures


@pytest.fixture(scope="module")
def studies() -> Any:
    return benchmark.load("studies")


def test_the_page_has_every_point_and_the_first_one_comes_out_again(studies: Any) -> None:
    rows = studies.table(studies.POINT_COLUMNS)
    named = [f"{planes}, {link.replace(' ', '')}" for planes, link, *_ in rows]
    assert named == list(studies.POINTS)
    assert rows[0] == studies.point_row(*studies.POINTS[named[0]])


def test_the_page_has_every_pair_of_jobs_and_those_of_mrc_come_out_again(studies: Any) -> None:
    rows = studies.table(studies.JOB_COLUMNS)
    transports = [each["name"] for each in studies.example("neighbours.toml")["transport"]]
    assert [row[:2] for row in rows] == [
        [noise, name] for noise in studies.NOISES for name in transports
    ]
    for noise in studies.NOISES:
        (again,) = studies.job_rows(noise, "mrc")
        assert again in rows


def test_the_memory_of_a_qp_is_what_the_formula_says_at_every_point(studies: Any) -> None:
    for row in studies.table(studies.POINT_COLUMNS):
        cells = dict(zip(studies.POINT_COLUMNS, row, strict=True))
        where = studies.POINTS[f"{cells['Planes']}, {cells['Link'].replace(' ', '')}"]
        planes, gbps, _ = where
        base_ps = round(studies.number(cells["Base RTT, us"]) * 1e6)
        size_bytes = studies.flow_bytes(planes, gbps, base_ps)
        assert f"{studies.qp_bytes(*where, size_bytes) / 1e3:,.0f}" == cells["QP, kB"], row


@pytest.mark.parametrize("study", ["points", "jobs"])
def test_the_pictures_are_of_the_tables(studies: Any, study: str) -> None:
    kept = (studies.PICTURES / f"{study}.svg").read_bytes()
    shown, overlaps = pictures.looked_at(studies.draw(study))
    assert shown == pictures.drawn(kept)
    assert overlaps == []
    assert (studies.PICTURES / f"{study}.png").read_bytes().startswith(b"\x89PNG")


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
