"""Files that would unpack to more than memory holds are known by their headers."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from openmrc.run.parquet import ROOM_BYTES, ROWS_MAX, check_room


def check(folder: Path, table: pl.DataFrame, **how: Any) -> None:
    file = folder / "a.parquet"
    table.write_parquet(file, **how)
    assert file.stat().st_size < 2**20
    check_room(file)


@pytest.mark.parametrize("packed", ["zstd", "gzip", "snappy", "uncompressed"])
def test_tables_of_a_run_have_room(packed: str, tmp_path: Path) -> None:
    n = 10_000
    table = pl.DataFrame(
        {
            "name": ["mrc"] * n,
            "error": [f"flow {i}: retry exceeded" if i % 7 else None for i in range(n)],
            "n": range(n),
            "us": [i / 7 for i in range(n)],
            "failed": [False] * n,
            "fault": [[{"at": "1us", "rate": 0.5}]] * n,
        }
    )
    check(tmp_path, table, compression=packed, row_group_size=3000)
    check(tmp_path, table.clear(), compression=packed)


def test_a_long_text_has_none(tmp_path: Path) -> None:
    long = pl.DataFrame({"a": ["x" * (ROOM_BYTES + 1000), "b"]})
    with pytest.raises(ValueError, match=r"67,109,\d{3} bytes of 2 values, packed"):
        check(tmp_path, long)
    with pytest.raises(ValueError, match="bytes of 2 values"):
        check(tmp_path, long.select(a=pl.struct("a")))
    check(tmp_path, pl.DataFrame({"a": ["x" * (ROOM_BYTES - 1000)]}))


@pytest.mark.parametrize("nested", [False, True])
def test_countless_values_have_none(nested: bool, tmp_path: Path) -> None:
    many = pl.select(a=pl.repeat(1, ROWS_MAX + 1, dtype=pl.Int8))
    with pytest.raises(ValueError, match="16,777,217 rows; at most 16,777,216 are read"):
        check(tmp_path, many.select(pl.col("a").implode()) if nested else many)


def test_what_is_no_parquet_is_refused_and_never_walked_for_long(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    table = pl.DataFrame({"a": ["x", "y"] * 50, "b": range(100)})
    table.write_parquet(file)
    whole = file.read_bytes()
    check_room(file)
    drawn = random.Random(1)
    refused = 0
    for _ in range(500):
        content = bytearray(whole)
        for _ in range(drawn.randint(1, 4)):
            content[drawn.randrange(len(content))] = drawn.choice([0, 1, 127, 128, 255])
        if drawn.random() < 0.1:
            del content[drawn.randrange(len(content)) :]
        file.write_bytes(content)
        try:
            check_room(file)
        except ValueError:
            refused += 1
    assert refused > 100
