"""Tensors of a GPU over MRC, checked and timed: ranks of one host that share one GPU.

Every collective is compared with the exact result, in streams that are not the default one, with
work before and behind it and without waiting for the GPU; then the order of copies, DDP, FSDP2, and
all-reduce beside Gloo on the same tensors. A case that fails is reported, and the rest goes on.

    python benchmarks/cuda.py --out DIRECTORY [--ranks 2,4] [--stand-in]

`--stand-in` runs the same on the CPU, where there is no GPU. Full figures: DIRECTORY/cuda.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

KIB, MIB = 1 << 10, 1 << 20
LENGTHS = (1 * KIB, 4099, 64 * KIB, 200_003, MIB, 5 * MIB + 7, 16 * MIB, 64 * MIB)  # bytes, about
LARGE = 8 * MIB  # from here on two types only
SPEED = (64 * KIB, MIB, 16 * MIB, 64 * MIB)
ROUNDS = {64 * KIB: (9, 20), MIB: (9, 10), 16 * MIB: (7, 4), 64 * MIB: (7, 2)}  # rounds, calls
SLEEP_CYCLES = 500_000  # of the GPU, about 0.3 ms
LONG_CYCLES = 400_000_000  # about 0.2 s
POST_S = 0.05
LIMIT_S = 130.0  # for the ranks of one run


def say(*words: object) -> None:
    print(*words, flush=True)


# --- a rank


class Rank:
    """What all sections need."""

    def __init__(self, device: str, out: Path) -> None:
        import torch
        import torch.distributed as dist

        self.torch, self.dist, self.out = torch, dist, out
        self.on_gpu = device == "cuda"
        self.device = torch.device("cuda", 0) if self.on_gpu else torch.device("cpu")
        if self.on_gpu:
            torch.cuda.set_device(0)
        torch.set_num_threads(2)
        dist.init_process_group("mrc", timeout=timedelta(seconds=60))
        self.me, self.n = dist.get_rank(), dist.get_world_size()
        self.gloo: Any = dist.new_group(backend="gloo", timeout=timedelta(seconds=60))
        self.told: dict[str, Any] = {}
        self.failed: list[str] = []
        self.cases = 0
        self.streams = [torch.cuda.Stream() for _ in range(2)] if self.on_gpu else []
        self._suspect: list[tuple[str, Any]] = []

    def fail(self, what: str) -> None:
        self.failed.append(what)
        if len(self.failed) < 20:
            say(f"rank {self.me}: WRONG: {what}")

    @contextlib.contextmanager
    def stream(self, number: int) -> Iterator[None]:
        """The default stream, or another, which begins after it."""
        if not self.on_gpu or number % 3 == 0:
            yield
            return
        other, default = self.streams[number % 3 - 1], self.torch.cuda.current_stream()
        other.wait_stream(default)
        with self.torch.cuda.stream(other):
            yield
        default.wait_stream(other)

    def sleep(self, cycles: int = SLEEP_CYCLES) -> None:
        """Keep the current stream busy: what follows must wait."""
        if self.on_gpu:
            self.torch.cuda._sleep(cycles)

    def sync(self) -> None:
        if self.on_gpu:
            self.torch.cuda.synchronize()

    def expect(self, what: str, found: Any, want: Any) -> None:
        """Compare in the current stream, without waiting for it."""
        self.cases += 1
        if found.shape != want.shape or found.dtype != want.dtype:
            self.fail(f"{what}: {found.shape} {found.dtype}, not {want.shape} {want.dtype}")
            return
        self._suspect.append((what, (found != want).any()))

    def look(self) -> None:
        """What was compared, once the GPU is done."""
        self.sync()
        for what, bad in self._suspect:
            if bool(bad):
                self.fail(what)
        self._suspect.clear()

    def section(self, name: str, story: Callable[[Rank], Any]) -> None:
        """Run one, whatever happens in it."""
        started = time.perf_counter()
        try:
            told = story(self)
            self.look()
            if told is not None:
                self.told[name] = told
        except Exception:
            self.fail(f"{name}: {traceback.format_exc()}")
            self._suspect.clear()
        took_s = time.perf_counter() - started
        self.told.setdefault("seconds", {})[name] = took_s
        if self.me == 0:
            say(f"  {self.n} ranks, {name}: {took_s:.1f} s, {len(self.failed)} wrong so far")


def guarded(rank: Rank, what: str, call: Callable[[], None]) -> None:
    """A case that raises is one that fails; all ranks raise, and the next case follows."""
    try:
        call()
    except Exception as error:
        rank.cases += 1
        rank.fail(f"{what}: {type(error).__name__}: {str(error)[:300]}")


def values(rank: Rank, count: int, dtype: Any, seed: int) -> list[Any]:
    """Each rank's part, the same at all ranks: whole numbers, so that sums are exact."""
    torch = rank.torch
    generator = torch.Generator(device=rank.device).manual_seed(seed)
    least = 0 if dtype == torch.uint8 else -8
    drawn = [
        torch.randint(least, 9, (count,), generator=generator, device=rank.device)
        for _ in range(rank.n)
    ]
    return [one.to(dtype) for one in drawn]


def poisoned(rank: Rank, count: int, dtype: Any) -> Any:
    """An output; poison is written late, so that a copy back that comes too early is lost."""
    x = rank.torch.empty(count, dtype=dtype, device=rank.device)
    rank.sleep()
    return x.fill_(77)


def late(rank: Rank, value: Any) -> Any:
    """An input that has its value late."""
    x = rank.torch.full_like(value, 55)
    rank.sleep()
    x.copy_(value)
    return x


def collectives(rank: Rank) -> dict[str, Any]:
    """All collectives, several types and lengths, each in one of three streams."""
    torch = rank.torch
    small = (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int32)
    small = (*small, torch.uint8, torch.complex64)
    seed = time.time_ns() % (1 << 40)
    seeds: list[Any] = [seed]
    rank.dist.broadcast_object_list(seeds, 0, group=rank.gloo)
    number = 0
    for length in LENGTHS:
        for dtype in small if length < LARGE else (torch.float32, torch.bfloat16):
            count = max(length // dtype.itemsize, 1)
            for name, case in CASES.items():
                number += 1
                with rank.stream(number):
                    parts = values(rank, count, dtype, seeds[0] + number)
                    what = f"{name} of {count} {dtype}, {rank.n} ranks"
                    guarded(rank, what, lambda c=case, w=what, p=parts: c(rank, w, p))
            if length >= LARGE:
                rank.look()
        rank.look()
    return {"cases": number, "seed": seeds[0]}


def _all_reduce(rank: Rank, what: str, parts: list[Any]) -> None:
    x = late(rank, parts[rank.me])
    rank.dist.all_reduce(x)
    rank.expect(what, x, sum(parts[1:], parts[0]))
    if parts[0].dtype == rank.torch.float32:
        x = late(rank, parts[rank.me])
        rank.dist.all_reduce(x, rank.dist.ReduceOp.AVG)
        rank.expect(f"{what} (average)", x, sum(parts[1:], parts[0]) / rank.n)
        x = late(rank, parts[rank.me])
        rank.dist.all_reduce(x, rank.dist.ReduceOp.MAX)
        rank.expect(f"{what} (most)", x, rank.torch.stack(parts).amax(0))


def _reduce(rank: Rank, what: str, parts: list[Any]) -> None:
    x = late(rank, parts[rank.me])
    rank.dist.reduce(x, 1)
    rank.expect(what, x, sum(parts[1:], parts[0]) if rank.me == 1 else parts[rank.me])


def _broadcast(rank: Rank, what: str, parts: list[Any]) -> None:
    root, like = rank.n - 1, parts[0]
    x = late(rank, parts[root]) if rank.me == root else poisoned(rank, len(like), like.dtype)
    rank.dist.broadcast(x, root)
    rank.expect(what, x, parts[root])


def _all_gather(rank: Rank, what: str, parts: list[Any]) -> None:
    like = parts[0]
    found = [poisoned(rank, len(like), like.dtype) for _ in parts]
    rank.dist.all_gather(found, late(rank, parts[rank.me]))
    for one, want in zip(found, parts, strict=True):
        rank.expect(what, one, want)
    whole = poisoned(rank, len(like) * rank.n, like.dtype)
    rank.dist.all_gather_into_tensor(whole, late(rank, parts[rank.me]))
    rank.expect(f"{what} (one tensor)", whole, rank.torch.cat(parts))


def _gather(rank: Rank, what: str, parts: list[Any]) -> None:
    like = parts[0]
    found = [poisoned(rank, len(like), like.dtype) for _ in parts] if rank.me == 0 else None
    rank.dist.gather(late(rank, parts[rank.me]), found, 0)
    for one, want in zip(found or [], parts, strict=False):
        rank.expect(what, one, want)


def _scatter(rank: Rank, what: str, parts: list[Any]) -> None:
    found = poisoned(rank, len(parts[0]), parts[0].dtype)
    rank.dist.scatter(found, [late(rank, p) for p in parts] if rank.me == 1 else None, 1)
    rank.expect(what, found, parts[rank.me])


def _reduce_scatter(rank: Rank, what: str, parts: list[Any]) -> None:
    found = poisoned(rank, len(parts[0]), parts[0].dtype)
    mine = [late(rank, (p * (rank.me + 1)).to(p.dtype)) for p in parts]
    rank.dist.reduce_scatter(found, mine)
    times = rank.n * (rank.n + 1) // 2
    rank.expect(what, found, (parts[rank.me] * times).to(parts[0].dtype))
    found = poisoned(rank, len(parts[0]), parts[0].dtype)
    rank.dist.reduce_scatter_tensor(found, late(rank, rank.torch.cat(parts)))
    rank.expect(f"{what} (one tensor)", found, (parts[rank.me] * rank.n).to(parts[0].dtype))


def _all_to_all(rank: Rank, what: str, parts: list[Any]) -> None:
    found = [poisoned(rank, len(p), p.dtype) for p in parts]
    rank.dist.all_to_all(found, [late(rank, parts[rank.me] + r) for r in range(rank.n)])
    for r, one in enumerate(found):
        rank.expect(what, one, parts[r] + rank.me)


def _point_to_point(rank: Rank, what: str, parts: list[Any]) -> None:
    right, left = (rank.me + 1) % rank.n, (rank.me - 1) % rank.n
    found, little = poisoned(rank, len(parts[0]), parts[0].dtype), poisoned(rank, 3, parts[0].dtype)
    work = [
        rank.dist.isend(late(rank, parts[rank.me]), right),  # what is posted first arrives first
        rank.dist.isend(late(rank, parts[rank.me][:3].clone()), right),
        rank.dist.irecv(found, left),
        rank.dist.irecv(little, left),
    ]
    for one in work:
        one.wait()
    rank.expect(what, found, parts[left])
    rank.expect(f"{what} (second)", little, parts[left][:3])


CASES: dict[str, Callable[[Rank, str, list[Any]], None]] = {
    "all_reduce": _all_reduce,
    "reduce": _reduce,
    "broadcast": _broadcast,
    "all_gather": _all_gather,
    "gather": _gather,
    "scatter": _scatter,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "send and receive": _point_to_point,
}


def order(rank: Rank) -> dict[str, Any]:
    """Posting does not wait for the GPU; nothing is read, overwritten or freed too early."""
    torch, dist = rank.torch, rank.dist
    told: dict[str, Any] = {}
    x = torch.ones(MIB, device=rank.device)
    dist.all_reduce(x)  # streams and pinned memory are there now
    dist.all_reduce(x)
    rank.sync()
    y = torch.ones(MIB, device=rank.device)
    rank.sleep(LONG_CYCLES)
    y.mul_(3)
    started = time.perf_counter()
    work = dist.all_reduce(y, async_op=True)
    told["post_s"] = time.perf_counter() - started
    behind = torch.arange(1000, device=rank.device) * 2  # work of the GPU that need not wait
    work.wait()
    told["wait_s"] = time.perf_counter() - started
    z = y + 1
    rank.expect("work behind a wait", z, torch.full_like(z, 3 * rank.n + 1))
    rank.expect("work beside", behind, torch.arange(0, 2000, 2, device=rank.device))
    if told["post_s"] > POST_S:
        rank.fail(f"posting took {told['post_s']:.3f} s while the GPU was busy")
    # many at once, in three streams, of changing lengths, waited for at the end
    posted = []
    for i in range(60):
        with rank.stream(i):
            x = late(
                rank, torch.full((1000 * (i % 7 + 1) ** 4,), float(rank.me + i), device=rank.device)
            )
            posted.append((i, x, dist.all_reduce(x, async_op=True)))
    for i, x, work in posted:
        with rank.stream(i):
            work.wait()
            want = rank.n * i + rank.n * (rank.n - 1) / 2
            rank.expect("many at once", x, torch.full_like(x, want))
            x.fill_(-1)
    posted.clear()
    # in a chain, without waiting for the GPU between
    x = torch.ones(300_001, device=rank.device)
    for _ in range(30):
        dist.all_reduce(x)
        x /= rank.n
    rank.expect("a chain", x, torch.ones_like(x))
    # memory that is given away at once
    for i in range(20):
        with rank.stream(i):
            x = late(rank, torch.full((500_000,), 1.0, device=rank.device))
            keep = x[::50_000].clone()
            work = dist.all_reduce(x, async_op=True)
            work.wait()
            keep = x[::50_000].clone()
            del x, work
            torch.full((500_000,), 99.0, device=rank.device)
            rank.expect("freed memory", keep, torch.full_like(keep, rank.n))
    # in strides, requiring gradients, a list, objects, futures
    x = torch.arange(12.0, device=rank.device).view(3, 4).t()
    dist.all_reduce(x)
    rank.expect(
        "a transposed tensor", x, rank.n * torch.arange(12.0, device=rank.device).view(3, 4).t()
    )
    with dist._coalescing_manager():
        several = [torch.full((k + 1,), 1.0, device=rank.device) for k in range(5)]
        for one in several:
            dist.all_reduce(one)
    for one in several:
        rank.expect("coalesced", one, torch.full_like(one, rank.n))
    objects: list[Any] = [None] * rank.n
    dist.all_gather_object(objects, {"rank": rank.me})
    if objects != [{"rank": r} for r in range(rank.n)]:
        rank.fail(f"objects: {objects}")
    x = torch.ones(MIB, device=rank.device)
    rank.sleep()
    x.mul_(2)
    future = dist.all_reduce(x, async_op=True).get_future().then(lambda f: f.value()[0] * 10)
    rank.expect("a future", future.wait(), torch.full_like(x, 20.0 * rank.n))
    x = torch.sparse_coo_tensor([[rank.me, 5]], [1.0, 2.0], (8,), device=rank.device)
    dist.all_reduce(x)
    want = torch.zeros(8, device=rank.device)
    want[: rank.n] += 1
    want[5] += 2 * rank.n
    rank.expect("a sparse tensor", x.to_dense(), want)
    return told


def same_bits(rank: Rank) -> dict[str, Any]:
    """All-reduce and reduce-scatter of random numbers: the same bits as with CPU tensors."""
    torch, dist = rank.torch, rank.dist
    for count in (1000, 300_001, 5_000_003):
        for dtype in (torch.float32, torch.bfloat16):
            for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
                x = torch.randn(count, device=rank.device).to(dtype)
                host = x.cpu().clone()
                dist.all_reduce(x, op)
                dist.all_reduce(host, op)
                rank.expect(f"bits of all_reduce, {count} {dtype} {op}", x.cpu(), host)
            whole = torch.randn(count * rank.n, device=rank.device).to(dtype)
            host, out = whole.cpu().clone(), torch.empty(count, dtype=dtype, device=rank.device)
            there = torch.empty(count, dtype=dtype)
            dist.reduce_scatter_tensor(out, whole)
            dist.reduce_scatter_tensor(there, host)
            rank.expect(f"bits of reduce_scatter, {count} {dtype}", out.cpu(), there)
    return {}


def _model(rank: Rank) -> Any:
    torch = rank.torch
    torch.manual_seed(1)
    layers = [torch.nn.Linear(512, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 512)]
    return torch.nn.Sequential(*layers, torch.nn.LayerNorm(512), torch.nn.Linear(512, 10)).to(
        rank.device
    )


def _train(rank: Rank, model: Any, steps: int, same: bool = False) -> list[float]:
    torch = rank.torch
    generator = torch.Generator(device=rank.device).manual_seed(0 if same else 100 + rank.me)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(steps):
        x = torch.randn(64, 512, generator=generator, device=rank.device)
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [float(loss) for loss in losses]


def ddp(rank: Rank) -> dict[str, Any]:
    """DDP: each bucket's sum has the bits of the same reduction of CPU tensors."""
    torch, dist = rank.torch, rank.dist
    from torch.nn.parallel import DistributedDataParallel

    seen: list[tuple[Any, Any]] = []

    def hook(_: Any, bucket: Any) -> Any:
        buffer = bucket.buffer().div_(rank.n)
        host = buffer.cpu().clone()
        future = dist.all_reduce(buffer, async_op=True).get_future()
        dist.all_reduce(host)

        def keep(done: Any) -> Any:
            seen.append((done.value()[0].clone(), host))
            return done.value()[0]

        return future.then(keep)

    def wrapped(group: Any = None) -> Any:
        return DistributedDataParallel(_model(rank), bucket_cap_mb=1, process_group=group)

    hooked = wrapped()
    # DDP reads the annotations of what it is given
    hooked.register_comm_hook(None, lambda state, bucket: hook(state, bucket))  # noqa: PLW0108
    _train(rank, hooked, 5)
    rank.sync()
    for found, host in seen:
        rank.expect("DDP: a bucket", found.cpu(), host)
    default = wrapped()
    losses = _train(rank, default, 5)
    for one, other in zip(default.parameters(), hooked.parameters(), strict=True):
        rank.expect("DDP: weights with and without a hook", one.detach(), other.detach())
    for parameter in default.parameters():
        every = [torch.empty_like(parameter) for _ in range(rank.n)]
        dist.all_gather(every, parameter.detach())
        for other in every:
            rank.expect("DDP: weights of all ranks", other, parameter.detach())
    over_gloo = wrapped(rank.gloo)
    _train(rank, over_gloo, 5)
    pairs = list(zip(default.parameters(), over_gloo.parameters(), strict=True))
    same = all(torch.equal(a, b) for a, b in pairs)
    if not all(torch.allclose(a, b, atol=1e-4) for a, b in pairs):
        rank.fail("DDP: weights are not near those with Gloo")
    seconds = {}
    for name, model in (("mrc", default), ("gloo", over_gloo)):
        rank.sync()
        dist.barrier(group=rank.gloo)
        started = time.perf_counter()
        _train(rank, model, 20)
        rank.sync()
        seconds[name] = (time.perf_counter() - started) / 20
    return {"buckets": len(seen), "losses": losses, "bits_of_gloo": same, "step_s": seconds}


def fsdp(rank: Rank) -> dict[str, Any]:
    """FSDP2 with the same data at all ranks: what one process computes."""
    torch = rank.torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(rank.device.type, (rank.n,))
    model, alone = _model(rank), _model(rank)
    for layer in model:
        if any(True for _ in layer.parameters()):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    losses, wants = _train(rank, model, 5, same=True), _train(rank, alone, 5, same=True)
    for parameter, want in zip(model.parameters(), alone.parameters(), strict=True):
        if not torch.allclose(parameter.full_tensor(), want, atol=1e-5):
            rank.fail("FSDP2: a parameter is not what one process computes")
            break
    if max(abs(a - b) for a, b in zip(losses, wants, strict=True)) > 1e-4:
        rank.fail(f"FSDP2: losses {losses}, alone {wants}")
    return {"losses": losses}


def bound(rank: Rank) -> dict[str, Any]:
    """`device_id`: the group is made once more, bound to the GPU. The last section."""
    dist, torch = rank.dist, rank.torch
    if not rank.on_gpu:
        return {}
    dist.destroy_process_group()
    store = f"file://{rank.out / f'bound-{rank.n}'}"
    dist.init_process_group(
        "mrc", init_method=store, rank=rank.me, world_size=rank.n, device_id=rank.device,
        timeout=timedelta(seconds=30),
    )  # fmt: skip
    x = torch.ones(1000, device=rank.device)
    dist.all_reduce(x)
    rank.expect("device_id", x, torch.full_like(x, rank.n))
    dist.barrier()
    objects: list[Any] = [None] * rank.n
    dist.all_gather_object(objects, rank.me)
    if objects != list(range(rank.n)):
        rank.fail(f"device_id: objects {objects}")
    return {"device": str(dist.group.WORLD.bound_device_id)}


def speed(rank: Rank) -> dict[str, Any]:
    """All-reduce beside Gloo on the same tensors, in turn: seconds of the slower rank."""
    torch, dist = rank.torch, rank.dist
    told: dict[str, Any] = {}
    ways: dict[str, tuple[Any, Any]] = {
        "mrc": (dist.group.WORLD, rank.device),
        "gloo": (rank.gloo, rank.device),
    }
    if rank.on_gpu:
        ways["mrc, CPU tensors"] = (dist.group.WORLD, torch.device("cpu"))
    for length in SPEED:
        rounds, calls = ROUNDS[length]
        own: dict[str, list[float]] = {name: [] for name in ways}
        tensors = {name: torch.ones(length // 4, device=way[1]) for name, way in ways.items()}
        for i in range(rounds + 1):
            for name, (group, _) in ways.items():
                x = tensors[name].fill_(1)
                rank.sync()
                dist.barrier(group=rank.gloo)
                for _ in range(calls):
                    started = time.perf_counter()
                    dist.all_reduce(x, group=group)
                    rank.sync()
                    if i:  # the first round warms up
                        own[name].append(time.perf_counter() - started)
                rank.expect("speed", x[:9], torch.full_like(x[:9], float(rank.n**calls)))
        every: list[Any] = [None] * rank.n
        dist.all_gather_object(every, own, group=rank.gloo)
        slow = {
            name: [max(call) for call in zip(*(one[name] for one in every), strict=True)]
            for name in ways
        }
        told[str(length)] = {"seconds": slow, "median_s": {k: _middle(v) for k, v in slow.items()}}
    return told


def others(rank: Rank) -> dict[str, Any]:
    """The other collectives beside Gloo, where it has them: 16 MiB at each rank."""
    torch, dist = rank.torch, rank.dist
    count = 4 * MIB // rank.n * rank.n
    x, whole = torch.ones(count, device=rank.device), torch.ones(count * rank.n, device=rank.device)
    parts = list(whole.chunk(rank.n))
    into, out = list(x.chunk(rank.n)), list(whole[:count].chunk(rank.n))
    calls: dict[str, Callable[[Any], None]] = {
        "broadcast": lambda g: dist.broadcast(x, 0, group=g),
        "reduce": lambda g: dist.reduce(x, 0, group=g),
        "all_gather": lambda g: dist.all_gather(parts, x, group=g),
        "reduce_scatter": lambda g: dist.reduce_scatter(x, parts, group=g),
        "all_to_all": lambda g: dist.all_to_all(into, out, group=g),
    }  # fmt: skip
    told: dict[str, Any] = {}
    for name, call in calls.items():
        found: dict[str, list[float]] = {"mrc": [], "gloo": []}
        for i in range(6):
            for which, group in (("mrc", dist.group.WORLD), ("gloo", rank.gloo)):
                rank.sync()
                dist.barrier(group=rank.gloo)
                started = time.perf_counter()
                try:
                    call(group)
                except Exception:
                    if which == "mrc":
                        raise
                    continue
                rank.sync()
                if i:
                    found[which].append(time.perf_counter() - started)
        every: list[Any] = [None] * rank.n
        dist.all_gather_object(every, found, group=rank.gloo)
        told[name] = {
            which: _middle([max(c) for c in zip(*(e[which] for e in every), strict=True)])
            for which in found
        }
    return told


def _middle(numbers: list[float]) -> float | None:
    return sorted(numbers)[len(numbers) // 2] if numbers else None


SECTIONS = {
    "collectives": collectives,
    "order": order,
    "same bits": same_bits,
    "ddp": ddp,
    "fsdp2": fsdp,
    "speed": speed,
    "others": others,
    "device_id": bound,
}


def be_rank(options: argparse.Namespace) -> int:
    started = time.perf_counter()
    rank = Rank("cpu" if options.stand_in else "cuda", options.out)
    rank.told["seconds"] = {"start": time.perf_counter() - started}
    if rank.me == 0:
        start_s, version = rank.told["seconds"]["start"], rank.torch.__version__
        say(f"  {rank.n} ranks, start: {start_s:.1f} s, torch {version}")
    path = options.out / f"rank-{rank.n}-{rank.me}{options.suffix}.json"
    for name, story in SECTIONS.items():
        if not options.sections or name in options.sections:
            rank.section(name, story)
            rank.told |= {"failed": rank.failed, "cases": rank.cases}
            path.write_text(json.dumps(rank.told, indent=1), encoding="utf-8")  # it may end here
    with contextlib.suppress(Exception):
        rank.dist.destroy_process_group()
    return 1 if rank.failed else 0


# --- all ranks


def launch(
    options: argparse.Namespace, n: int, suffix: str, more: list[str], **env: str
) -> list[Any]:
    """Run n ranks; return what each has found. Those that hang are ended, and found so."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        port = one.getsockname()[1]
    command = [sys.executable, __file__, "--rank", "--out", str(options.out), f"--suffix={suffix}"]
    command += ["--stand-in"] if options.stand_in else []
    shared = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), **env}
    shared["WORLD_SIZE"] = str(n)
    processes = [
        subprocess.Popen([*command, *more], env={**shared, "RANK": str(r)}, start_new_session=True)
        for r in range(n)
    ]
    until = time.monotonic() + options.limit
    for one_process in processes:
        try:
            one_process.wait(max(until - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            os.killpg(one_process.pid, signal.SIGKILL)
            one_process.wait()
    found = []
    for r, one_process in enumerate(processes):
        path = options.out / f"rank-{n}-{r}{suffix}.json"
        told: dict[str, Any] = {"failed": [], "cases": 0}
        if path.exists():
            told = json.loads(path.read_text(encoding="utf-8"))
        if one_process.returncode not in (0, 1):
            told["failed"].append(f"rank {r} of {n}{suffix} ended with {one_process.returncode}")
        found.append(told)
    return found


def table(runs: dict[str, list[Any]]) -> None:
    """The short table."""
    say()
    say(f"{'run':12} {'checks':>7} {'wrong':>6}   seconds")
    for name, found in runs.items():
        wrong = sum(len(one["failed"]) for one in found)
        took = sum(found[0].get("seconds", {}).values())
        say(f"{name:12} {sum(one['cases'] for one in found):7} {wrong:6}   {took:7.1f}")
    say(f"{'all-reduce':12} {'size':>14} {'MRC ms':>9} {'Gloo ms':>9}  times  MRC of CPU tensors")
    for name, found in runs.items():
        for length, row in found[0].get("speed", {}).items():
            _row(name, f"{int(length) // KIB} KiB", row["median_s"])
    say("16 MiB of each rank, median ms")
    for name, found in runs.items():
        for collective, row in found[0].get("others", {}).items():
            _row(name, collective, row)
    for name, found in runs.items():
        if "order" in found[0]:
            post_ms, wait_ms = (found[0]["order"][k] * 1e3 for k in ("post_s", "wait_s"))
            say(f"{name}: posting while the GPU was busy: {post_ms:.2f} ms, waiting: {wait_ms:.0f}")
        if "ddp" in found[0]:
            told = found[0]["ddp"]
            mrc_ms, gloo_ms = (told["step_s"][k] * 1e3 for k in ("mrc", "gloo"))
            say(f"{name}: DDP: {told['buckets']} buckets with the bits of CPU tensors")
            say(f"{name}: DDP: a step {mrc_ms:.1f} ms, over Gloo {gloo_ms:.1f}")
            say(f"{name}: DDP: weights with the bits that Gloo gives: {told['bits_of_gloo']}")
    for name, found in runs.items():
        for words in [w for one in found for w in one["failed"]][:8]:
            say(f"WRONG, {name}: {words}")


def _row(name: str, what: str, seconds: dict[str, float | None]) -> None:
    mrc, gloo = seconds["mrc"], seconds["gloo"]
    there = seconds.get("mrc, CPU tensors")
    cells = [f"{v * 1e3:9.3f}" if v else f"{'-':>9}" for v in (mrc, gloo)]
    times = f"{mrc / gloo:6.2f}" if mrc and gloo else f"{'-':>6}"
    own = f"{there * 1e3:9.3f}" if there else ""
    say(f"{name:12} {what:>14} {' '.join(cells)} {times} {own}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="a directory for all figures")
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--stand-in", action="store_true", help="on the CPU, without a GPU")
    parser.add_argument("--loopback", action="store_true", help="also over UDP, 2 ranks")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds of each run")
    parser.add_argument("--sections", nargs="*", default=[], choices=SECTIONS)
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--suffix", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.rank:
        return be_rank(options)
    started = time.perf_counter()
    from openmrc.jit.warmup import warm_up
    from openmrc.torch.prepared import reductions

    say(f"reductions compiled in {warm_up(reductions):.1f} s")
    sections = ["--sections", *options.sections] if options.sections else []
    runs: dict[str, list[Any]] = {}
    for n in map(int, options.ranks.split(",")):
        runs[f"{n} ranks"] = launch(options, n, "", sections)
        (options.out / "cuda.json").write_text(json.dumps(runs, indent=1), encoding="utf-8")
    if options.loopback:
        from openmrc.live.endpoint.warmup import warm_up as endpoint

        say(f"endpoints compiled in {warm_up(endpoint):.1f} s")
        more = ["--sections", "order", "same bits", "ddp", "speed"]
        runs["2, UDP"] = launch(options, 2, "-udp", more, OPENMRC_SHARED_MEMORY="0")
        (options.out / "cuda.json").write_text(json.dumps(runs, indent=1), encoding="utf-8")
    table(runs)
    say(f"all of it took {time.perf_counter() - started:.0f} s")
    return 1 if any(one["failed"] for found in runs.values() for one in found) else 0


if __name__ == "__main__":
    sys.exit(main())
