"""Training for hours in a lab while a fault is drawn every few seconds: does it ever end, does a
bit change, does memory grow?

Four ranks on four hosts (Linux's switches, four planes) train a small transformer with
DistributedDataParallel. Faults are ports that go down, links that lose packets, and switches that
go silent, on one to three planes at a time. Then as many steps again without faults: all losses and
final weights must have the same bits.

    .venv/bin/python benchmarks/endurance.py [--hours 1] [--seed 1]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any

from training import FABRIC, PLANES, RANKS, digest, run

EVERY_S = 4.0  # a fault begins
LASTS_S = (0.5, 3.0)
QUIET_S = 20.0  # at the beginning, while ranks meet
LOSS_RATE = 0.05
LOOK_S = 5.0  # between two looks at memory
SAY_S = 60.0  # between two lines about how far it is
GROWTH_MB = 8.0  # more, from the second tenth of the time to the last, is not flat


# --- a rank


def rank(seconds: float, steps: int) -> None:
    """Train for so long, or so many steps, and tell what came of it."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    from openmrc.torch.bench.training import Trainer, transformer

    torch.set_num_threads(1)
    dist.init_process_group("mrc")
    torch.manual_seed(1)
    trainer = Trainer(DistributedDataParallel(transformer()))
    losses, steps_ms, seen = hashlib.sha256(), [], [looked()]
    going, began = torch.ones(1), time.monotonic()
    last = looked_at = began
    while going:
        losses.update(trainer.step().numpy().tobytes())
        now = time.monotonic()
        steps_ms.append((now - last) * 1e3)
        last = now
        if now - looked_at >= LOOK_S:
            looked_at = now
            seen.append(looked())
            if dist.get_rank() == 0 and len(seen) % (SAY_S // LOOK_S) == 0:
                print(f"{now - began:.0f} s, {len(steps_ms)} steps", file=sys.stderr, flush=True)
        if steps:
            going.fill_(len(steps_ms) < steps)
        else:
            going.fill_(now - began < seconds)
        dist.all_reduce(going, dist.ReduceOp.MIN)  # all make as many
    told = {
        "rank": dist.get_rank(),
        "steps": len(steps_ms),
        "losses": losses.hexdigest(),
        "weights": digest(trainer.model),
        "steps_ms": {
            "p50": statistics.median(steps_ms),
            "p99": sorted(steps_ms)[len(steps_ms) * 99 // 100],
            "p100": max(steps_ms),
        },
        "seen": seen,
    }
    dist.destroy_process_group()
    print(json.dumps(told), flush=True)


def looked() -> tuple[float, int, int]:
    """Memory of its own in MB (what files back comes and goes), open files, threads."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    own = status.partition("RssAnon:")[2].split()[0]
    return int(own) * 1024 / 1e6, len(os.listdir("/proc/self/fd")), threading.active_count()


# --- the lab


def faults(seed: int, seconds: float) -> tuple[int, str]:
    """How many, and their tables: one at a time, on one to three planes."""
    draw, tables, number = random.Random(seed), [], 0
    at_s = QUIET_S
    while at_s < QUIET_S + seconds:
        number += 1
        lasts_s = draw.uniform(*LASTS_S)
        for plane in draw.sample(range(PLANES), draw.randint(1, PLANES - 1)):
            nic = f"nic {draw.choice(['*', *range(RANKS)])} plane {plane}"
            where, kind, more = draw.choice(
                [
                    (nic, "port-down", ""),
                    (nic, "link-loss", f"rate = {LOSS_RATE}\n"),
                    (f"plane {plane} t1 *", "switch-silent", ""),
                ]
            )
            tables.append(
                f'[[fault]]\nat = "{at_s * 1e3:.0f}ms"\nkind = "{kind}"\nwhere = "{where}"\n{more}'
                f'for = "{lasts_s * 1e3:.0f}ms"\n'
            )
        at_s += EVERY_S
    return number, "\n".join(tables)


def growth_mb(one: dict[str, Any]) -> float:
    """Of a rank's memory, from the second tenth of the time to the last: medians."""
    megabytes = [look[0] for look in one["seen"]]
    tenth = max(len(megabytes) // 10, 1)
    early = statistics.median(megabytes[tenth : 2 * tenth] or megabytes[:1])
    return statistics.median(megabytes[-tenth:]) - early


def tell(name: str, told: list[dict[str, Any]]) -> None:
    """A line about a run, as soon as it is over."""
    ms = {p: max(one["steps_ms"][p] for one in told) for p in ("p50", "p99", "p100")}
    files, threads = ([max(look[i] for look in one["seen"]) for one in told] for i in (1, 2))
    times = ", ".join(f"{p} {value:.0f} ms" for p, value in ms.items())
    print(
        f"{name:12} {told[0]['steps']} steps, {times};"
        f" memory grew by {max(map(growth_mb, told)):.1f} MB of"
        f" {max(one['seen'][-1][0] for one in told):.0f} MB of its own at most;"
        f" files {max(files)}, threads {max(threads)}; load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


def main() -> int:
    """Both runs; 1 if a bit differs or memory grows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rank", nargs=2, type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank is not None:
        rank(arguments.rank[0], int(arguments.rank[1]))
        return 0
    seconds = arguments.hours * 3600
    drawn, tables = faults(arguments.seed, seconds)
    print(f"seed {arguments.seed}, {drawn} faults", flush=True)
    faulty = run(FABRIC + tables, [__file__, "--rank", str(seconds), "0"])
    tell("with faults", faulty)
    healthy = run(FABRIC, [__file__, "--rank", "0", str(faulty[0]["steps"])])
    tell("without", healthy)
    bits = {
        json.dumps([[one[of] for of in ("losses", "weights")] for one in told])
        for told in (faulty, healthy)
    }
    flat = max(map(growth_mb, faulty)) <= GROWTH_MB
    print("losses and weights: " + ("the same bits in both runs" if len(bits) == 1 else "DIFFER"))
    print("memory: " + ("flat" if flat else "GROWS"))
    return int(len(bits) != 1 or not flat)


if __name__ == "__main__":
    sys.exit(main())
