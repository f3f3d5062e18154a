"""The endpoint of `examples/c` and `mrc perf` between two network namespaces, while a plane is cut.

Both directions, without root and without a trace. With `--cut` the last plane loses everything from
half a second after the first byte on, both ways, while nobody is told. The bytes that the endpoint
of C takes are compared; of those that `mrc perf` takes, completion says that each was acknowledged.

    .venv/bin/python benchmarks/stranger_c.py --cut                 # 1 GB each way
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ordinary import ENDS, SECRET, address, build, cut

from openmrc.live.lab.isolation import run_isolated
from openmrc.live.lab.namespaces import Namespaces

ROOT = Path(__file__).resolve().parents[1]
MESSAGE_BYTES = 1 << 20
CUT_AFTER_S = 0.5  # of writing
SAID = r"took (\d+) messages of (\d+) bytes, (\d+) bytes wrong|wrote (\d+)"


def compiled(folder: Path) -> str:
    """The endpoint, compiled."""
    program = folder / "mrc_endpoint"
    sources = sorted((ROOT / "examples/c").glob("*.c"))
    words = ["cc", "-O2", "-I", str(ROOT / "conformance"), "-o", str(program), *map(str, sources)]
    subprocess.run(words, check=True)
    return str(program)


def start(namespaces: Namespaces, end: int, words: Sequence[str]) -> subprocess.Popen[str]:
    with namespaces.inside(ENDS[end]):
        return subprocess.Popen(
            words,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OPENMRC_SECRET": SECRET.hex()},
        )


def received_bytes(namespaces: Namespaces, end: int) -> int:
    """What has come in on plane 0 of an end."""
    with namespaces.inside(ENDS[end]):
        lines = Path("/proc/thread-self/net/dev").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.strip().startswith("e0:"))


def moved(options: argparse.Namespace, program: str, c_writes: bool) -> dict[str, Any]:
    """One direction: `end` 0 writes, `end` 1 takes."""
    namespaces = build(options)
    own = [",".join(address(end, k, 4) for k in range(options.planes)) for end in (0, 1)]
    pmtu = "8192" if options.mtu >= 9000 else "1024"
    c = [program, "write" if c_writes else "serve", "--pmtu", pmtu]
    perf = [sys.executable, "-m", "openmrc.cli", "perf", "write_bw", "--json", "--planes"]
    n = str(options.megabytes)
    if c_writes:
        there = [address(1, 0, 4), *c[2:], "--planes", own[0]]
        size = ["--iters", n, "--size", str(MESSAGE_BYTES)]
        words = [
            [*c[:2], *there, *size],
            [*perf, own[1]],
        ]
    else:
        there = [address(1, 0, 4), "-s", str(MESSAGE_BYTES), "-n", n]
        words = [[*perf, own[0], *there], [*c, "--planes", own[1], "--once"]]
    server = start(namespaces, 1, words[1])
    client = start(namespaces, 0, words[0])
    begun = 0.0
    while client.poll() is None and not begun:
        time.sleep(0.02)
        if received_bytes(namespaces, 1) > 4 * MESSAGE_BYTES:
            begun = time.monotonic()
    if options.cut:
        time.sleep(CUT_AFTER_S)
        cut(namespaces, options.planes - 1)
    left = client.poll() is None
    said, errors = client.communicate()
    told, more = server.communicate()
    if client.returncode or server.returncode:
        raise SystemExit(errors + more)
    taken = told if not c_writes else said
    found = re.search(
        r"(?:took (\d+) messages of (\d+) bytes, (\d+) bytes wrong|wrote (\d+))", taken
    )
    assert found
    perf_said = json.loads(told if c_writes else said)
    return {
        "writes": "C" if c_writes else "mrc perf",
        "bytes": int(found[4]) if c_writes else int(found[1]) * int(found[2]),
        "bytes_wrong": None if c_writes else int(found[3]),
        "cut_while_writing": bool(options.cut and left),
        "gbps": round(perf_said["rows"][0]["bw_average_gbps"], 2),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--planes", type=int, default=2)
    parser.add_argument("--mtu", type=int, default=9000)
    parser.add_argument("--rate-mbps", type=int, default=0, help="of each plane; 0: no limit")
    parser.add_argument("--megabytes", type=int, default=1024, help="each way")
    parser.add_argument("--cut", action="store_true", help="the last plane goes silent")
    options = parser.parse_args()
    options.ip = 4

    def work() -> int:
        with tempfile.TemporaryDirectory() as folder:
            program = compiled(Path(folder))
            for c_writes in (False, True):
                print(json.dumps(moved(options, program, c_writes)), flush=True)
        return 0

    return run_isolated(work)


if __name__ == "__main__":
    sys.exit(main())
