"""`mrc bench torch`: ranks as processes of this machine, or one of a job that torchrun started."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from openmrc.errors import InputError, OpenMrcError
from openmrc.say import say
from openmrc.units import parse_size

RANKS, RANKS_MAX = 2, 8
COLLECTIVES = (
    *("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"),
    *("reduce", "gather", "scatter", "send_recv"),
)
SIZES = "1KiB,32KiB,1MiB,16MiB"
CONTROL = Path("/proc/sys/net/ipv4/tcp_congestion_control")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `mrc bench torch`."""
    add = parser.add_argument
    add("--ranks", metavar="N", type=int, help=f"torch: 2 to {RANKS_MAX} (default: {RANKS})")
    words = f"torch: of {', '.join(COLLECTIVES)} (default: all)"
    add("--collectives", metavar="A,B", help=words)
    add("--sizes", metavar="A,B", help=f"torch: of tensors (default: {SIZES})")


def refuse_options(arguments: argparse.Namespace) -> None:
    """Options of `mrc bench torch` mean nothing to the others."""
    for name in ("ranks", "collectives", "sizes"):
        if getattr(arguments, name) is not None:
            raise InputError(f"--{name}: only mrc bench torch takes it")


def run(arguments: argparse.Namespace) -> int:
    """Measure, print, and return the exit status: 1 if an element was wrong."""
    n = RANKS if arguments.ranks is None else arguments.ranks
    if not 2 <= n <= RANKS_MAX:
        raise InputError(f"--ranks {n}: 2 to {RANKS_MAX} are accepted")
    collectives = _collectives(arguments.collectives)
    sizes = [parse_size(one) for one in (arguments.sizes or SIZES).split(",")]
    rows = _measured(n, collectives, sizes)
    found = {
        "congestion_control": CONTROL.read_text(encoding="ascii").strip(),
        "load": os.getloadavg()[0],
        "rows": rows,
    }
    if arguments.json:
        print(json.dumps(found, indent=2))
    else:
        from openmrc.torch.bench.table import show

        show(rows)
        print(
            f"Medians of the slowest rank. Gloo's TCP: {found['congestion_control']}."
            f" Load at the end: {found['load']:.1f} on {os.cpu_count()} cores."
        )
    figures = [of for row in rows for of in (row["out_of_place"], row["in_place"]) if of]
    return int(any(one["wrong"] for of in figures for one in of.values()))


def _collectives(given: str | None) -> list[str]:
    names = list(COLLECTIVES) if given is None else given.split(",")
    for name in names:
        if name not in COLLECTIVES:
            raise InputError(f"--collectives {name}: {', '.join(COLLECTIVES)} are accepted")
    return names


def _measured(n: int, collectives: Sequence[str], sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Rows of rank 0, while the others do their part."""
    with tempfile.TemporaryDirectory() as place:
        asked = json.dumps({"n": n, "place": place, "collectives": collectives, "sizes": sizes})
        ranks = [
            subprocess.Popen(
                [sys.executable, "-m", "openmrc.torch.bench.rank", str(rank), asked],
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                text=True,
            )
            for rank in range(n)
        ]
        try:
            told = ranks[0].stdout
            assert told is not None
            rows = []
            for line in told:
                rows.append(json.loads(line))
                last = rows[-1]
                say(f"{last['collective']}, {last['size_bytes']} B ...")
            statuses = [one.wait() for one in ranks]
        finally:
            for one in ranks:
                one.kill()
                one.wait()
    if any(statuses):
        raise OpenMrcError(f"bench torch: ranks ended with {statuses}; their words are above")
    return rows
