"""`mrc bench torch`: ranks as processes of this machine, on its loopback or on hosts of their own.

With `--planes`, `--cut` and `--steps` each rank has a host (`network`), whose planes this process
cuts when rank 0 requests it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openmrc.errors import InputError, OpenMrcError
from openmrc.newfile import write_whole
from openmrc.say import say
from openmrc.torch.bench import congestion
from openmrc.units import parse_size

if TYPE_CHECKING:
    from openmrc.torch.bench.network import Network

RANKS, RANKS_MAX = 2, 8
COLLECTIVES = (
    *("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"),
    *("reduce", "gather", "scatter", "send_recv"),
)
SIZES = "1KiB..64MiB"
PLANES, PLANES_MAX = 2, 8
# For `--steps`: how long each backend trains, and when which plane is silent. Gloo has plane 0.
SECONDS = 24.0
CUTS = ((5.0, 8.0, 0), (15.0, 18.0, 1))
BACKENDS = {"mrc": f"MRC, {PLANES} planes", "gloo": "Gloo, plane 0"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `mrc bench torch`."""
    add = parser.add_argument
    add("--ranks", metavar="N", type=int, help=f"2 to {RANKS_MAX} (default: {RANKS})")
    words = f"of {', '.join(COLLECTIVES)} (default: all)"
    add("--collectives", metavar="A,B", help=words)
    words = f"of tensors; A..B are all powers of two (default: {SIZES})"
    add("--sizes", metavar="A,B", help=words)
    words = f"each rank on a host of its own with 1 to {PLANES_MAX} planes"
    add("--planes", metavar="N", type=int, help=words)
    words = f"the same with {PLANES} planes, and every row through a cut, too"
    add("--cut", action="store_true", default=None, help=words)
    words = "instead, draw the step times of a DDP training through cuts (.svg or .png)"
    add("--steps", metavar="FILE", type=Path, help=words)


def run(arguments: argparse.Namespace) -> int:
    """Measure, print, and return the exit status: 1 if an element was wrong."""
    n = RANKS if arguments.ranks is None else arguments.ranks
    if not 2 <= n <= RANKS_MAX:
        raise InputError(f"--ranks {n}: 2 to {RANKS_MAX} are accepted")
    if arguments.steps is not None:
        return _draw_steps(arguments, n)
    collectives = _collectives(arguments.collectives)
    planes = PLANES if arguments.cut and arguments.planes is None else arguments.planes
    if planes is not None and not 1 <= planes <= PLANES_MAX:
        raise InputError(f"--planes {planes}: 1 to {PLANES_MAX} are accepted")
    asked = {
        "collectives": collectives,
        "sizes": sizes_of(arguments.sizes or SIZES),
        "cut": bool(arguments.cut),
    }

    def table() -> int:
        return _table(n, planes, asked, arguments.json)

    return table() if planes is None else _isolated(table)


def sizes_of(given: str) -> list[int]:
    """Sizes in bytes: those that are named, and of `A..B` A, 2 A, 4 A ... up to B."""
    sizes = []
    for one in given.split(","):
        first, _, last = one.partition("..")
        size, most = parse_size(first), parse_size(last or first)
        if not 0 < size <= most:
            raise InputError(f"--sizes {one}: the first is more than 0, the last not less")
        while size <= most:
            sizes.append(size)
            size *= 2
    return sizes


def _isolated(work: Callable[[], int]) -> int:
    from openmrc.live.lab.isolation import run_isolated

    return run_isolated(work)


def _table(n: int, planes: int | None, asked: dict[str, Any], as_json: bool) -> int:
    from openmrc.torch.bench.network import CUT_AFTER_S, CUT_S, Network

    rows: list[dict[str, Any]] = []
    network = None if planes is None else Network(n, planes)

    def hear(said: dict[str, Any], answer: Callable[[], None]) -> None:
        if "do" in said:
            assert network is not None
            time.sleep(CUT_AFTER_S)
            network.cut(0)
            time.sleep(CUT_S)
            network.heal(0)
            answer()
            return
        rows.append(said)
        say(f"{said['collective']}, {said['size_bytes']} B ...")

    try:
        _ranks(n, asked, network, hear)
    finally:  # also of a run that was ended, or of which a rank failed
        _print(rows, as_json)
    parts = [part for row in rows for part in (row, row.get("cut")) if part]
    figures = [of for part in parts for of in (part["out_of_place"], part["in_place"]) if of]
    return int(any(one["wrong"] for of in figures for one in of.values()))


def _print(rows: list[dict[str, Any]], as_json: bool) -> None:
    found = {
        "congestion_control": congestion.default(),
        "load": os.getloadavg()[0],
        "rows": rows,
    }
    if as_json:
        print(json.dumps(found, indent=2), flush=True)
        return
    from openmrc.torch.bench.table import show

    show(rows)
    print(
        f"Medians of the slowest rank. Gloo's TCP: {found['congestion_control']}."
        f" Load at the end: {found['load']:.1f} on {os.cpu_count()} cores."
    )
    if refused := congestion.refusal(congestion.CUBIC):
        print(f"NOT MEASURED: Gloo with CUBIC: {refused}")


def _collectives(given: str | None) -> list[str]:
    names = list(COLLECTIVES) if given is None else given.split(",")
    for name in names:
        if name not in COLLECTIVES:
            raise InputError(f"--collectives {name}: {', '.join(COLLECTIVES)} are accepted")
    return names


def _draw_steps(arguments: argparse.Namespace, n: int) -> int:
    """Run the same training over each backend in turn, through the same cuts."""
    file: Path = arguments.steps
    for name in ("collectives", "sizes", "planes", "cut"):
        if getattr(arguments, name) is not None:
            raise InputError(f"--{name} does not go with --steps; remove it")
    if file.suffix not in (".svg", ".png"):
        raise InputError(f"--steps {file}: name a file that ends in .svg or .png")

    def work() -> int:
        from openmrc.torch.bench.network import Network

        network = Network(n, PLANES)
        found = {backend: _steps(n, backend, network) for backend in BACKENDS}
        _write_picture(file, found, n)
        if arguments.json:
            print(json.dumps({"cuts": CUTS, "load": os.getloadavg()[0], "steps": found}))
            return 0
        for backend, steps in found.items():
            ms = [1e3 * took for _, took in steps]
            print(
                f"{BACKENDS[backend]}: {len(ms)} steps, median {statistics.median(ms):.0f} ms,"
                f" longest {max(ms):.0f} ms"
            )
        print(f"Load at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.")
        return 0

    return _isolated(work)


def _steps(n: int, backend: str, network: Network) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []

    def hear(said: dict[str, Any], answer: Callable[[], None]) -> None:
        if "steps" in said:
            found.extend(said["steps"])
            return
        began = time.monotonic()
        for begin_s, end_s, plane in CUTS:
            for at_s, act in ((begin_s, network.cut), (end_s, network.heal)):
                time.sleep(max(began + at_s - time.monotonic(), 0))
                act(plane)

    say(f"{BACKENDS[backend]} ...")
    _ranks(n, {"backend": backend, "seconds": SECONDS}, network, hear)
    return found


def _write_picture(file: Path, found: dict[str, list[tuple[float, float]]], n: int) -> None:
    from openmrc.report.picture import png, svg
    from openmrc.torch.bench.picture import draw

    cuts = [(begin_s, end_s, f"plane {plane} silent") for begin_s, end_s, plane in CUTS]
    lines = {BACKENDS[backend]: steps for backend, steps in found.items()}
    figure = draw(lines, cuts, f"DDP, {n} ranks: a transformer's steps")
    write_whole(file, svg(figure) if file.suffix == ".svg" else png(figure))


Hear = Callable[[dict[str, Any], Callable[[], None]], None]


def _ranks(n: int, asked: dict[str, Any], network: Network | None, hear: Hear) -> None:
    """Let all ranks do what is requested, and process rank 0's output; it may be answered by a
    line.
    """
    with tempfile.TemporaryDirectory() as place:
        told = json.dumps({"n": n, "place": place, **asked})
        ranks = [_rank(rank, told, network) for rank in range(n)]
        says, hears = ranks[0].stdout, ranks[0].stdin
        assert says is not None
        assert hears is not None

        def answer() -> None:
            hears.write("\n")
            hears.flush()

        try:
            for line in says:
                hear(json.loads(line), answer)
            statuses = [one.wait() for one in ranks]
        finally:
            for one in ranks:
                one.kill()
                one.wait()
    if any(statuses):
        raise OpenMrcError(f"bench torch: ranks ended with {statuses}; their words are above")


def _rank(rank: int, told: str, network: Network | None) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "openmrc.torch.bench.rank", str(rank), told]
    ends: dict[str, Any] = dict.fromkeys(
        ("stdin", "stdout"), subprocess.PIPE if rank == 0 else subprocess.DEVNULL
    )
    if network is not None:
        return network.rank(rank, words, **ends)
    return subprocess.Popen(words, env={**os.environ, "OMP_NUM_THREADS": "1"}, text=True, **ends)
