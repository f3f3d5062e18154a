"""The rows of `mrc bench torch` for people: nccl-tests' columns, Gloo's beside them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from openmrc.tabular import Column, print_table
from openmrc.torch.bench.measure import CUBIC, GLOO, OURS, Row
from openmrc.torch.bench.network import CUT_S

FIGURES = ("time, us", "algbw, GB/s", "busbw, GB/s", "wrong")
PLACES = (("out_of_place", "out of place"), ("in_place", "in place"))
OTHERS = {GLOO: "Gloo", CUBIC: "CUBIC"}


def backends(row: Row) -> list[str]:
    """The backends in a row."""
    return list(row["out_of_place"])


def columns(row: Row, cut: bool = False) -> list[Column]:
    """The columns: the row's parameters, MRC's figures, and for each other backend its time and the
    ratio to MRC's; for calls through a cut also the longest.
    """
    found = [Column(name) for name in ("size, B", "count", "type", "redop", "root")]
    for _, words in PLACES:
        found += [Column(f"{words}: {figure}") for figure in FIGURES]
        if cut:
            found.append(Column(f"{words}: longest, ms"))
        for backend in backends(row)[1:]:
            name = OTHERS[backend]
            found += [Column(f"{words}: {name}, us"), Column(f"{words}: MRC / {name}")]
            if cut:
                found.append(Column(f"{words}: {name}, longest, ms"))
    return found


def cells(row: Row, cut: bool = False) -> list[str]:
    """The cells of a row."""
    rooted = "-" if row["root"] is None else str(row["root"])
    found = [str(row["size_bytes"]), str(row["count"]), row["type"], row["redop"] or "-", rooted]
    width = (len(columns(row, cut)) - len(found)) // len(PLACES)
    for place, _ in PLACES:
        of = (row["cut"] if cut else row)[place]
        found += ["-"] * width if of is None else _figures(of)
    return found


def _figures(of: dict[str, Any]) -> list[str]:
    ours = of[OURS]
    found = [
        f"{ours['time_us']:.0f}",
        f"{ours['algbw_gbytes_per_s']:.3f}",
        f"{ours['busbw_gbytes_per_s']:.3f}",
        str(ours["wrong"]),
        *_longest(ours),
    ]
    for backend, theirs in of.items():
        if backend != OURS:
            ratio = ours["time_us"] / theirs["time_us"]
            found += [f"{theirs['time_us']:.0f}", f"{ratio:.2f}", *_longest(theirs)]
    return found


def _longest(of: dict[str, Any]) -> list[str]:
    return [f"{of['longest_us'] / 1e3:.0f}"] if "longest_us" in of else []


def show(rows: Sequence[Row]) -> None:
    """Print a table for each collective, and another for its calls through cuts."""
    for name in dict.fromkeys(row["collective"] for row in rows):
        own = [row for row in rows if row["collective"] == name]
        title = f"{name}, {own[0]['ranks']} ranks"
        _print(title, own, False)
        if "cut" in own[0]:
            words = f"{title}, plane 0 silent for {CUT_S:g} s in the middle; times are means"
            _print(words, own, True)


def _print(title: str, rows: Sequence[Row], cut: bool) -> None:
    named = columns(rows[0], cut)
    print_table(title, named, [cells(row, cut) for row in rows], sys.stdout, pipe_width=200)
