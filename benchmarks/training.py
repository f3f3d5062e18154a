"""Training in a lab while links and planes are cut: is any bit another, how long does a step take?

Four ranks on four hosts of a lab (Linux's switches, four planes) train a small transformer, with
DistributedDataParallel and then with FSDP2: without faults, with cuts drawn from a seed, and with
the same cuts once more. Each cut takes one to three planes from a host or from all; one plane of
each pair always lives. Losses and final weights of all runs must have the same bits.

    .venv/bin/python benchmarks/training.py [--steps 200] [--cuts 20] [--seed 1]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

STARTED = time.monotonic()
RANKS, PLANES = 4, 4
KINDS = ("ddp", "fsdp2")
CUT_SHARE = 0.5  # of the time between two cuts' beginnings
LATE_MS = 100.0  # how much longer than the median without faults a step may take
FABRIC = f"""[fabric]
nics = {RANKS}
planes = {PLANES}
port_rate = "200Mbps"
t0_down = 2
t0_up = 2

[lab]
switch = "linux"
"""


# --- a rank


def rank(steps: int) -> None:
    """Train twice, and tell what came of it."""
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    from openmrc.torch.bench.training import transformer

    torch.set_num_threads(1)
    dist.init_process_group("mrc")
    told: dict[str, Any] = {"rank": dist.get_rank(), "began_s": time.monotonic() - STARTED}
    for name in KINDS:
        torch.manual_seed(1)
        model: Any = transformer()
        if name == "ddp":
            model = DistributedDataParallel(model)
        else:
            for layer in model[1].layers:
                fully_shard(layer)
            fully_shard(model)
        told[name] = _train(model, steps)
    told["ended_s"] = time.monotonic() - STARTED
    dist.destroy_process_group()
    print(json.dumps(told), flush=True)


def _train(model: Any, steps: int) -> dict[str, Any]:
    import torch

    from openmrc.torch.bench.training import Trainer

    trainer = Trainer(model)
    losses, steps_ms = hashlib.sha256(), []
    loss = torch.zeros(())
    for _ in range(steps):
        started = time.perf_counter()
        loss = trainer.step()
        losses.update(loss.numpy().tobytes())
        steps_ms.append((time.perf_counter() - started) * 1e3)
    return {
        "losses": losses.hexdigest(),
        "weights": digest(model),
        "last_loss": float(loss),
        "steps_ms": steps_ms,
    }


def digest(model: Any) -> str:
    """Of all weights."""
    weights = hashlib.sha256()
    for p in model.parameters():
        whole = p.full_tensor() if hasattr(p, "full_tensor") else p
        weights.update(whole.detach().numpy().tobytes())
    return weights.hexdigest()


# --- the lab


def run(scenario: str, command: list[str]) -> list[dict[str, Any]]:
    """What the ranks of a Python command told, by rank."""
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "training.toml"
        file.write_text(scenario, encoding="utf-8")
        me = [sys.executable, "-W", "ignore", *command]
        done = subprocess.run(
            [sys.executable, "-m", "openmrc.cli", "lab", str(file), "--", *me],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
    lines = [line.partition("| ")[2] for line in done.stdout.splitlines()]
    told = [json.loads(line) for line in lines if line.startswith("{")]
    if done.returncode or len(told) != RANKS:
        raise SystemExit(f"a run ended with status {done.returncode}:\n{done.stdout}")
    return sorted(told, key=lambda one: int(one["rank"]))


def faults(seed: int, cuts: int, began_s: float, ended_s: float) -> str:
    """Tables of cuts that never overlap, each of one to three planes of a host or of all."""
    draw, each_s = random.Random(seed), (ended_s - began_s) / cuts
    tables = []
    for number in range(cuts):
        at_s = began_s + number * each_s + draw.random() * each_s * (1 - CUT_SHARE)
        nic = draw.choice(["*", *range(RANKS)])
        for plane in draw.sample(range(PLANES), draw.randint(1, PLANES - 1)):
            tables.append(
                f'[[fault]]\nat = "{at_s * 1e3:.0f}ms"\nkind = "port-down"\n'
                f'where = "nic {nic} plane {plane}"\nfor = "{each_s * CUT_SHARE * 1e3:.0f}ms"\n'
            )
    return "\n".join(tables)


def words(name: str, told: list[dict[str, Any]], healthy: list[dict[str, Any]]) -> list[str]:
    """A run for people, beside the one without faults."""
    lines = []
    for kind in KINDS:
        steps = [t for one in told for t in one[kind]["steps_ms"][1:]]  # the first one warms up
        median = statistics.median(t for one in healthy for t in one[kind]["steps_ms"][1:])
        late = sum(t > median + LATE_MS for t in steps)
        lines.append(
            f"{name:16} {kind:6} loss {told[0][kind]['last_loss']:.6f}, step median"
            f" {statistics.median(steps):.0f} ms, longest {max(steps):.0f} ms; {late} of"
            f" {len(steps)} took {LATE_MS:.0f} ms more than {median:.0f} ms"
        )
    return lines


def main() -> int:
    """Three runs; 1 if any bit differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--cuts", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank:
        rank(arguments.steps)
        return 0
    command = [__file__, "--rank", "--steps", str(arguments.steps)]
    healthy = run(FABRIC, command)
    began = max(one["began_s"] for one in healthy)
    ended = min(one["ended_s"] for one in healthy)
    cuts = faults(arguments.seed, arguments.cuts, began, ended)
    runs = {"without faults": healthy}
    for name in ("with cuts", "the same again"):
        runs[name] = run(FABRIC + cuts, command)
    print(f"seed {arguments.seed}, {arguments.cuts} cuts, load {os.getloadavg()[0]:.1f}")
    for name, told in runs.items():
        print("\n".join(words(name, told, healthy)))
    bits = {
        json.dumps([[one[k][of] for of in ("losses", "weights")] for one in told for k in KINDS])
        for told in runs.values()
    }
    print("losses and weights: " + ("the same bits in all runs" if len(bits) == 1 else "DIFFER"))
    return int(len(bits) != 1)


if __name__ == "__main__":
    sys.exit(main())
