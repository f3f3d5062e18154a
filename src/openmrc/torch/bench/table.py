"""The rows of `mrc bench torch` for people: nccl-tests' columns, Gloo's beside them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from openmrc.tabular import Column, print_table
from openmrc.torch.bench.measure import GLOO, OURS, Row

FIGURES = ("time, us", "algbw, GB/s", "busbw, GB/s", "wrong")
PLACES = (("out_of_place", "out of place"), ("in_place", "in place"))


def columns() -> list[Column]:
    """What a row is, MRC's figures, Gloo's time, and how many times that MRC takes."""
    found = [Column(name) for name in ("size, B", "count", "type", "redop", "root")]
    for _, words in PLACES:
        found += [Column(f"{words}: {figure}") for figure in FIGURES]
        found += [Column(f"{words}: Gloo, us"), Column(f"{words}: MRC / Gloo")]
    return found


def cells(row: Row) -> list[str]:
    """A row's."""
    rooted = "-" if row["root"] is None else str(row["root"])
    found = [str(row["size_bytes"]), str(row["count"]), row["type"], row["redop"] or "-", rooted]
    for place, _ in PLACES:
        found += _figures(row[place])
    return found


def _figures(of: dict[str, Any] | None) -> list[str]:
    if of is None:
        return ["-"] * (len(FIGURES) + 2)
    ours, gloo = of[OURS], of[GLOO]
    return [
        f"{ours['time_us']:.0f}",
        f"{ours['algbw_gbytes_per_s']:.3f}",
        f"{ours['busbw_gbytes_per_s']:.3f}",
        str(ours["wrong"]),
        f"{gloo['time_us']:.0f}",
        f"{ours['time_us'] / gloo['time_us']:.2f}",
    ]


def show(rows: Sequence[Row]) -> None:
    """Print a table for each collective."""
    for name in dict.fromkeys(row["collective"] for row in rows):
        own = [row for row in rows if row["collective"] == name]
        title = f"{name}, {own[0]['ranks']} ranks"
        print_table(title, columns(), [cells(row) for row in own], sys.stdout, pipe_width=200)
