"""What the calls of libmrc cost the program that makes them, in nanoseconds.

Requests go to a queue pair in ERROR: they are checked, put into the ring, taken by the loop,
flushed and polled, and no network is waited for. Printed is the median over bursts of 128 calls,
and the tenth that was fastest: another process on the machine only makes a burst slower.

    .venv/bin/python benchmarks/libmrc.py
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from openmrc.capi import build, hot
from openmrc.verbs.cabled import prepare

ROOT = Path(__file__).resolve().parents[1]
CALLS = ("mrc_post_send", "mrc_post_recv", "mrc_poll_cq, one taken", "mrc_poll_cq, empty")
ALLOWED_NS = 300


def measured(folder: Path, bursts: int) -> np.ndarray:
    """Nanoseconds per call, a row for each burst."""
    build.build(folder)
    program = folder / "calls"
    words = [build.compiler(), "-O2", "-I", folder / "include", ROOT / "benchmarks/libmrc_calls.c"]
    words += ["-o", program, "-L", folder, "-lmrc", "-libverbs", f"-Wl,-rpath,{folder}"]
    subprocess.run(words, check=True)
    path = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "OPENMRC_INTERFACES": "127.0.11.1", "PYTHONPATH": path}
    environment.pop("OPENMRC_HOST", None)
    done = subprocess.run(
        [program, str(bursts)], env=environment, capture_output=True, text=True, check=True
    )
    return np.array([line.split() for line in done.stdout.splitlines()], float)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bursts", type=int, default=2000, help="of 128 calls each")
    arguments = parser.parse_args()
    prepare()
    hot.warm_up()
    with tempfile.TemporaryDirectory() as folder:
        found = measured(Path(folder), arguments.bursts)
    print(f"{'ns per call':26}{'median':>10}{'best tenth':>12}{f'bursts under {ALLOWED_NS}':>20}")
    for name, column in zip(CALLS, found.T, strict=True):
        under = (column < ALLOWED_NS).mean()
        print(f"{name:26}{np.median(column):10.0f}{np.quantile(column, 0.1):12.0f}{under:20.1%}")


if __name__ == "__main__":
    main()
