"""The rows of `stalls.py`: one JSON line for each fault, in files that runs append to, and the
table that is made of any number of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

EDGES_MS = (1, 2, 5, 10, 20, 50, 100, 200)
STALL_BAR_MS, SHARE_BAR = 10.0, 0.97
GONE_MS = 2.0  # a core that was gone for longer may explain a fault's figures

Row = dict[str, Any]


def append(path: Path, row: Row) -> None:
    """Add a row to a file at once."""
    with path.open("a") as out:
        out.write(json.dumps(row) + "\n")


def read(paths: Iterable[Path]) -> Iterator[Row]:
    """All rows of these files; one that was cut off, as by a full disk, is left out."""
    for path in paths:
        for text in path.read_text().splitlines():
            try:
                row = json.loads(text)
            except json.JSONDecodeError:
                continue
            yield row


def share_there(row: Row) -> float:
    """The share of what the whole planes could carry while all cores were there; rows of before
    this was noted count as if they always were.
    """
    return float(row["share"] / (1.0 - row.get("away", 0.0)))


def is_bad(row: Row) -> bool:
    """Whether a fault misses one of the bars."""
    return bool(row["stall_ms"] >= STALL_BAR_MS or row["share"] < SHARE_BAR)


def is_gone(row: Row) -> bool:
    """Whether a core was gone in the time that the figures are about, whatever these are."""
    return bool(row["gone_ms"] > GONE_MS)


def line(name: str, rows: list[Row]) -> str:
    """One line of the table: percentiles of the stall and of the share, the least of the share and
    of that of the time when all cores were there, and the histogram.
    """
    stall = np.array([row["stall_ms"] for row in rows])
    share = np.array([row["share"] for row in rows])
    counts = np.histogram(stall, (0, *EDGES_MS, math.inf))[0]
    p50, p99, p100 = np.percentile(stall, (50, 99, 100))
    low, mid = np.percentile(share, (1, 50))
    there = np.array([share_there(row) for row in rows])
    cells = [f"{p50:.1f}", f"{p99:.1f}", f"{p100:.1f}", f"{mid:.2f}", f"{low:.2f}"]
    for each in (share, there):
        cells += [f"{each.min():.3f}", str(int((each < SHARE_BAR).sum()))]
    return f"| {name} | {len(rows)} | {' | '.join([*cells, *map(str, counts)])} |"


def lines(name: str, rows: list[Row]) -> list[str]:
    """The lines of one kind: all its faults; and, where a core was ever gone, those during which
    all cores were there, and the others.
    """
    gone = [row for row in rows if is_gone(row)]
    there = [row for row in rows if not is_gone(row)]
    parts = [(name, rows)]
    if gone:
        parts += [(f"{name}, all cores there", there), (f"{name}, a core gone", gone)]
    return [line(words, some) for words, some in parts if some]


def head() -> str:
    """The table's first two lines."""
    edges = [f"< {edge}" for edge in EDGES_MS] + [f">= {EDGES_MS[-1]}"]
    words = ["fault", "n", "stall p50", "p99", "p100", "share p50", "p1"]
    words += ["least", f"below {SHARE_BAR}", "there: least", f"below {SHARE_BAR}", *edges]
    return f"| {' | '.join(words)} |\n|{'---|' * len(words)}"


def world(row: Row) -> str:
    """The words about the lab and the machine that rows of one table share."""
    words = [f"{row['switch']}'s switches", f"{row['rate_mbps']} Mb/s a plane"]
    words.append("real-time priority" if row["priority"] else "normal priority")
    return ", ".join([*words, "all cores busy"] if row["busy"] else words)


def table(rows: Iterable[Row]) -> str:
    """A table for each world, with a line or three for each kind of fault."""
    worlds: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        worlds.setdefault(world(row), {}).setdefault(row["kind"], []).append(row)
    text = []
    for words, kinds in worlds.items():
        loads = [row["load"] for some in kinds.values() for row in some]
        text.append(f"{words}, load {min(loads):.1f} to {max(loads):.1f}; ms\n")
        text.append(head())
        text += [one for kind, some in kinds.items() for one in lines(kind, some)]
        text.append("")
    return "\n".join(text)
