"""How soon every rank of a job knows that it is over: a rank is killed, or all its paths are cut.

Each round is a job of its own, whose ranks are processes of this machine that speak MRC over
loopback and reduce without end. The last rank kills itself with SIGKILL, or takes down all its
ports; a round is good if every other rank (after a cut, every rank) raises within the bound.

    .venv/bin/python benchmarks/ends.py [--kills 50] [--cuts 20] [--ranks 3]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from openmrc.live.endpoint.warmup import warm_up
from openmrc.torch import register

KILLED_S = 3.0  # of a process that is gone, its host lives
SILENCE_S, NOTICE_S = 2.0, 3.0  # `OPENMRC_TIMEOUT` of the cuts, and what may be added to it
PATIENCE_S = 60.0  # a rank that has said nothing by then hangs
STEPS = 20  # before the end begins


def rank(me: int, n: int, store: str, kind: str, when: Any, pipe: Any) -> None:
    """One rank, which tells when it raised, and what."""
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ |= {"OPENMRC_SHARED_MEMORY": "0", "OPENMRC_TIMEOUT": str(SILENCE_S)}
    if kind == "kill":
        del os.environ["OPENMRC_TIMEOUT"]
    dist.init_process_group("mrc", init_method=f"file://{store}", rank=me, world_size=n)
    group: Any = dist.group.WORLD
    x, step = torch.zeros(20_000), 0
    try:
        while True:
            dist.all_reduce(x)
            step += 1
            if me == n - 1 and step == STEPS:
                when.value = time.monotonic()
                if kind == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                for pair in group._world.progress.pairs.values():
                    for plane in range(pair.device.n_planes):
                        pair.device.set_port(plane, False)
    except dist.DistBackendError as error:
        pipe.send((time.monotonic(), str(error)))
    dist.destroy_process_group()


def round_of(kind: str, n: int) -> list[tuple[float, str]]:
    """After how long the ranks raised that had to, s, and what; infinite for one that hangs."""
    context = multiprocessing.get_context("fork")
    when = context.Value("d", 0.0)
    with tempfile.TemporaryDirectory() as place:
        pipes, ranks = [], []
        for me in range(n):
            mine, its = context.Pipe(False)
            arguments = (me, n, str(Path(place) / "store"), kind, when, its)
            ranks.append(context.Process(target=rank, args=arguments))
            ranks[-1].start()
            its.close()
            pipes.append(mine)
        told = []
        for me, pipe in enumerate(pipes):
            if kind == "kill" and me == n - 1:
                continue
            try:
                at, words = pipe.recv() if pipe.poll(PATIENCE_S) else (float("inf"), "it hangs")
            except EOFError:
                at, words = float("inf"), "it ended without an error"
            told.append((at - when.value, words))
        for one in ranks:
            one.join(PATIENCE_S)
            one.kill()
    return told


def main() -> int:
    """All rounds; 1 if one was not good."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--cuts", type=int, default=20)
    parser.add_argument("--ranks", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    register.register()
    warm_up()
    warm_up.__wrapped__()  # type: ignore[attr-defined]  # load it here: ranks are forked
    bad = 0
    for kind, rounds, bound_s in (
        ("kill", arguments.kills, KILLED_S),
        ("cut", arguments.cuts, SILENCE_S + NOTICE_S),
    ):
        longest, good = 0.0, 0
        for _ in range(rounds):
            told = round_of(kind, arguments.ranks)
            late = [one for one in told if one[0] > bound_s]
            longest = max([longest, *(after for after, _ in told)])
            good += not late
            for after, words in late:
                print(f"{kind}: after {after:.2f} s: {words}", flush=True)
        bad += rounds - good
        print(
            f"{kind}: {good} of {rounds} within {bound_s:g} s, {arguments.ranks} ranks; the last"
            f" rank raised after {longest:.2f} s at most; load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
