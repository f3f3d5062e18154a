"""`benchmarks/roce.py`: the tables of docs/roce.md are those of its runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import benchmark

PAGE = Path(__file__).resolve().parents[1] / "docs/roce.md"


@pytest.fixture(scope="module")
def roce() -> Any:
    return benchmark.load("roce")


def cells(heading: str) -> dict[str, list[str]]:
    """The rows of the table of the page with this heading, by their first cell."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("|") and heading in line)
    rows: dict[str, list[str]] = {}
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        name, *values = (cell.strip() for cell in line.split("|")[1:-1])
        rows[name] = values
    return rows


def test_the_page_has_the_rows_of_both_tables_and_their_commands(roce: Any) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert list(cells("16 MB (two seeds)")) == list(roce.RING)
    assert list(cells("4 MB, 0.1 %")) == list(roce.LOSS)
    assert "`benchmarks/roce.py ring --sizes 16MB`" in page
    assert "`benchmarks/roce.py loss`" in page


def test_a_cell_of_each_table_comes_out_again(roce: Any) -> None:
    first, *_ = cells("16 MB (two seeds)")["MRC, 1 QP"]
    assert roce.ring_cell(roce.RING["MRC, 1 QP"], "16MB", [1]) == first.partition(",")[0]
    small, *_ = cells("4 MB, 0.1 %")["MRC"]
    assert roce.loss_cell(roce.LOSS["MRC"], "4MB", 0.001) == small
