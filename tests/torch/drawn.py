"""Calls of a group, drawn: method, overload, root, reduction, type, shape, layout, splits, ranks.

`python -m tests.torch.drawn --seed S --calls N` makes them over MRC and over Gloo in one job, and
prints those in which MRC gives other values than Gloo, or refuses what Gloo takes. MRC gets tensors
of any layout; Gloo the same values in plain memory, for it reads and writes past any other.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import zlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

SOON = timedelta(seconds=6)
RANKS_MAX = 4
REAL = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
WHOLE = (torch.uint8, torch.int8, torch.int32, torch.int64)
OTHER = (torch.int16, torch.bool, torch.complex64, torch.complex128, torch.float8_e4m3fn)
OPS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM")
LAYOUTS = ("plain", "plain", "turned", "strided", "offset", "spread", "channels last", "conj")
SIZES = (0, 1, 2, 3, 5, 8, 17, 64, 300, 5000, 70_000)

Tensors = list[torch.Tensor]


class Maker:
    """Tensors of one rank: the same for both backends, different for each rank."""

    def __init__(self, seed: int, me: int, plain: bool) -> None:
        self.plain = plain  # whatever layout is asked for
        self.draw = torch.Generator().manual_seed(seed * 16 + me)

    def tensor(self, shape: tuple[int, ...], dtype: torch.dtype, layout: str) -> torch.Tensor:
        """A tensor of small whole numbers, whose sums and products are exact in every type."""
        found = self._laid_out(shape, dtype, layout)
        if not self.plain:
            return found
        return found.clone(memory_format=torch.contiguous_format).resolve_conj()

    def _laid_out(self, shape: tuple[int, ...], dtype: torch.dtype, layout: str) -> torch.Tensor:
        if layout == "turned" and len(shape) > 1:
            return self._values((*shape[:-2], shape[-1], shape[-2]), dtype).transpose(-1, -2)
        if layout == "strided" and shape:
            return self._values((*shape[:-1], 2 * shape[-1]), dtype)[..., ::2]
        if layout == "offset" and shape:
            return self._values((shape[0] + 1, *shape[1:]), dtype)[1:]
        if layout == "spread":  # every element is the same memory
            return self._values((1,) * len(shape), dtype).expand(shape)
        if layout == "channels last" and len(shape) == 4:
            return self._values(shape, dtype).contiguous(memory_format=torch.channels_last)
        if layout == "conj" and dtype.is_complex:
            return self._values(shape, dtype).conj()
        return self._values(shape, dtype)

    def _values(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        whole = torch.randint(0 if dtype == torch.uint8 else -2, 3, shape, generator=self.draw)
        if dtype == torch.bool:
            return whole > 0
        if dtype.is_complex:
            more = torch.randint(-2, 3, shape, generator=self.draw)
            return torch.complex(whole.double(), more.double()).to(dtype)
        return whole.to(dtype)


class Call(NamedTuple):
    """One call: `run(group, me, maker)` makes it at rank `me`; it returns its works and all tensors
    that it had.
    """

    words: str
    run: Callable[[Any, int, Maker], tuple[list[Any], Tensors]]
    waits: str


def drawn(seed: int, n: int) -> Call:
    """Call number `seed` of a group of n ranks: the same at all of them."""
    draw = random.Random(seed)
    kind = draw.choice(sorted(KINDS))
    words, run = KINDS[kind](draw, n, seed)
    return Call(f"{kind} {words}", run, draw.choice(("wait", "future", "later")))


def _dtype(draw: random.Random) -> torch.dtype:
    return draw.choice(draw.choice((REAL, REAL, WHOLE, OTHER)))


def _shape(draw: random.Random, whole: int = 1) -> tuple[int, ...]:
    """A shape whose first dimension is a multiple of `whole`, most often."""
    dims = draw.choice((0, 1, 1, 1, 2, 2, 3, 4))
    if dims == 0:
        return ()
    size = draw.choice(SIZES)
    first = size * whole if draw.random() < 0.95 else size
    return (first, *[draw.choice((1, 2, 3)) for _ in range(dims - 1)])


def _op(draw: random.Random) -> Any:
    name = draw.choice(OPS[:1] + OPS)
    if name == "PREMUL_SUM":
        return dist._make_nccl_premul_sum(2.0)
    return getattr(dist.ReduceOp, name)


def _told(op: Any) -> str:
    return str(getattr(op, "op", op)).rpartition(".")[2]


def _options(kind: Any, **fields: Any) -> Any:
    one = kind()
    for name, value in fields.items():
        setattr(one, name, value)
    return one


def _way(
    draw: random.Random, options: Any, names: dict[str, Any]
) -> tuple[str, list[Any], dict[str, Any]]:
    """How a call passes root, reduction and timeout: as options, by position, or by name."""
    way = draw.choice(("options", "opts=", "position", "names", "timeout", "defaults"))
    if way == "options":
        return way, [_options(options, **{OF_OPTIONS[k]: v for k, v in names.items()})], {}
    if way == "opts=":
        return way, [], {"opts": _options(options, **{OF_OPTIONS[k]: v for k, v in names.items()})}
    if way == "position":
        return way, list(names.values()), {}
    if way == "timeout":
        return way, [], {**names, "timeout": SOON}
    return way, [], names if way == "names" else {}


OF_OPTIONS = {"op": "reduceOp", "root": "rootRank"}


def _one_or_list(draw: random.Random) -> Callable[[torch.Tensor], Any]:
    return draw.choice((lambda t: t, lambda t: [t]))


def _reduced(method: str, options: Any, rooted: bool, many: bool = False) -> Any:
    def make(draw: random.Random, n: int, seed: int) -> Any:
        op, root, dtype = _op(draw), draw.randrange(n), _dtype(draw)
        shapes = [_shape(draw) for _ in range(draw.choice((1, 1, 2, 3)) if many else 1)]
        layouts = [draw.choice(LAYOUTS) for _ in shapes]
        names = {"root": root, "op": op} if rooted else {"op": op}
        way, given, named = _way(draw, options, names)
        wrap = (lambda t: [t]) if many else _one_or_list(draw)
        how = "list" if isinstance(wrap(0), list) else "tensor"

        def run(group: Any, me: int, maker: Maker) -> tuple[list[Any], Tensors]:
            every = [maker.tensor(s, dtype, one) for s, one in zip(shapes, layouts, strict=True)]
            passed = every if many else wrap(every[0])
            work = getattr(group, method)(passed, *given, **named)
            # what a reduce leaves at ranks that are no root is nobody's
            seen = every if not rooted or me == (root if way != "defaults" else 0) else []
            return [work], seen

        return f"{dtype} {shapes} {layouts} {_told(op)} root {root} by {way}, {how}", run

    return make


def _broadcast(draw: random.Random, n: int, seed: int) -> Any:
    root, dtype, shape, layout = draw.randrange(n), _dtype(draw), _shape(draw), draw.choice(LAYOUTS)
    way, given, named = _way(draw, dist.BroadcastOptions, {"root": root})
    wrap = _one_or_list(draw)

    def run(group: Any, me: int, maker: Maker) -> tuple[list[Any], Tensors]:
        x = maker.tensor(shape, dtype, layout)
        return [group.broadcast(wrap(x), *given, **named)], [x]

    return f"{dtype} {shape} {layout} root {root} by {way}", run


def _all_gather(method: str) -> Any:
    def make(draw: random.Random, n: int, seed: int) -> Any:
        dtype, shape = _dtype(draw), _shape(draw)
        own, out = draw.choice(LAYOUTS), draw.choice(LAYOUTS[:5])
        count = draw.choice((1, 1, 2))
        flat = draw.random() < 0.5  # one output per rank, or one behind the other
        alias = draw.random() < 0.2

        def run(group: Any, me: int, maker: Maker) -> tuple[list[Any], Tensors]:
            x = [maker.tensor(shape, dtype, own) for _ in range(count)]
            if method == "allgather":
                o = [maker.tensor(shape, dtype, out) for _ in range(n)]
                if alias:
                    x[0] = o[me]
                return [group.allgather(*((o, x[0]) if flat else ([o], x[:1])))], [*o, *x]
            if method == "allgather_coalesced":
                each = [[maker.tensor(shape, dtype, out) for _ in x] for _ in range(n)]
                work = group.allgather_coalesced(each, x)
                return [work], [*x, *[t for those in each for t in those]]
            whole = (n * shape[0], *shape[1:]) if shape and flat else (n, *shape)
            o = [maker.tensor(whole, dtype, out) for _ in x]
            if alias and shape and flat:
                x[0] = o[0][me * shape[0] : (me + 1) * shape[0]]
            if method == "all_gather_single_coalesced":
                return [_named(group, method, INTO)(o, x)], [*o, *x]
            return [_named(group, method, BASE)(o[0], x[0])], [o[0], x[0]]

        return f"{dtype} {shape} from {own} into {out} x{count} flat {flat} alias {alias}", run

    return make


BASE, INTO = "_allgather_base", "allgather_into_tensor_coalesced"
SCATTER_BASE, SCATTER_INTO = "_reduce_scatter_base", "reduce_scatter_tensor_coalesced"


def _named(group: Any, name: str, older: str) -> Any:
    """A method, by the name that this torch has."""
    return getattr(group, name, None) or getattr(group, older)


def _reduce_scatter(method: str) -> Any:
    def make(draw: random.Random, n: int, seed: int) -> Any:
        dtype, shape, op = _dtype(draw), _shape(draw), _op(draw)
        if method != "reduce_scatter":
            shape = shape or (1,)  # Gloo crashes
        own, out = draw.choice(LAYOUTS), draw.choice(LAYOUTS[:5])
        way, given, named = _way(draw, dist.ReduceScatterOptions, {"op": op})
        single, alias = draw.random() < 0.5, draw.random() < 0.2

        def run(group: Any, me: int, maker: Maker) -> tuple[list[Any], Tensors]:
            o = maker.tensor(shape, dtype, out)
            if method == "reduce_scatter":
                parts = [maker.tensor(shape, dtype, own) for _ in range(n)]
                if alias:
                    o = parts[me]
                passed = (o, parts) if single else ([o], [parts])
                return [group.reduce_scatter(*passed, *given, **named)], [o]
            whole = (n * shape[0], *shape[1:]) if shape else (n,)
            x = maker.tensor(whole, dtype, own)
            if method == "reduce_scatter_single":
                reduce = _named(group, method, SCATTER_BASE)
                return [reduce(o, x, *given, **named)], [o]
            return [_named(group, method, SCATTER_INTO)([o], [x], *given, **named)], [o]

        told = f"{dtype} {shape} from {own} into {out} {_told(op)} by {way}"
        return f"{told} single {single} alias {alias}", run

    return make


def _gather(draw: random.Random, n: int, seed: int) -> Any:
    root, dtype, shape = draw.randrange(n), _dtype(draw), _shape(draw)
    own, out = draw.choice(LAYOUTS), draw.choice(LAYOUTS[:5])
    way, given, named = _way(draw, dist.GatherOptions, {"root": root})
    single = draw.random() < 0.5
    root = 0 if way == "defaults" else root

    def run(group: Any, me: int, maker: Maker) -> tuple[list[Any], Tensors]:
        x = maker.tensor(shape, dtype, own)
        o = [maker.tensor(shape, dtype, out) for _ in range(n)] if me == root else []
        passed = (o, x) if single else ([o] if o else [], [x])
        return [group.gather(*passed, *given, **named)], [*o, x]

    return f"{dtype} {shape} from {own} into {out} root {root} by {way} single {single}", run


def _scatter(draw: random.Random, n: int, seed: int) -> Any:
    root, dtype, shape = draw.randrange(n), _dtype(draw), _shape(draw)
    own, out = draw.choice(LAYOUTS), draw.choice(LAYOUTS[:5])
    way, given, named = _way(draw, dist.ScatterOptions, {"root": root})
    single = draw.random() < 0.5
    root = 0 if way == "defaults" else root

    def run(group: Any, me: int, maker: Maker) -> tuple[list[Any], Tensors]:
        o = maker.tensor(shape, dtype, out)
        x = [maker.tensor(shape, dtype, own) for _ in range(n)] if me == root else []
        passed = (o, x) if single else ([o], [x] if x else [])
        return [group.scatter(*passed, *given, **named)], [*x, o]

    return f"{dtype} {shape} from {own} into {out} root {root} by {way} single {single}", run


def _alltoall(draw: random.Random, n: int, seed: int) -> Any:
    dtype, own, out = _dtype(draw), draw.choice(LAYOUTS), draw.choice(LAYOUTS[:5])
    more = draw.choice(((), (), (2,), (3, 1)))
    sizes = [[draw.choice(SIZES[:9]) for _ in range(n)] for _ in range(n)]  # from, to
    if draw.random() < 0.8:  # as Gloo wants them
        sizes = [[sizes[0][0]] * n] * n

    def run(group: Any, me: int, maker: Maker) -> tuple[list[Any], Tensors]:
        x = [maker.tensor((sizes[me][r], *more), dtype, own) for r in range(n)]
        o = [maker.tensor((sizes[r][me], *more), dtype, out) for r in range(n)]
        return [group.alltoall(o, x)], [*x, *o]

    return f"{dtype} {sizes} {more} from {own} into {out}", run


def _all_to_all_single(draw: random.Random, n: int, seed: int) -> Any:
    dtype, own, out = _dtype(draw), draw.choice(LAYOUTS), draw.choice(LAYOUTS[:5])
    more = draw.choice(((), (), (2,), (3, 1)))
    even = draw.choice(SIZES[:9]) if draw.random() < 0.4 else None
    sizes = [[draw.choice(SIZES[:9]) for _ in range(n)] for _ in range(n)]
    if even is not None:
        sizes = [[even] * n] * n
    empty = even is not None and draw.random() < 0.7

    def run(group: Any, me: int, maker: Maker) -> tuple[list[Any], Tensors]:
        into, of = [sizes[r][me] for r in range(n)], list(sizes[me])
        x = maker.tensor((sum(of), *more), dtype, own)
        o = maker.tensor((sum(into), *more), dtype, out)
        splits = ([], []) if empty else (into, of)
        return [_named(group, "all_to_all_single", "alltoall_base")(o, x, *splits)], [x, o]

    return f"{dtype} {sizes} {more} from {own} into {out} splits {not empty}", run


def _barrier(draw: random.Random, n: int, seed: int) -> Any:
    way, given, named = _way(draw, dist.BarrierOptions, {})
    return f"by {way}", lambda group, me, maker: ([group.barrier(*given, **named)], [])


def _between(draw: random.Random, n: int, seed: int) -> Any:
    """Messages around a ring, several with each tag, some received from anybody."""
    dtype, own, out = _dtype(draw), draw.choice(LAYOUTS), draw.choice(LAYOUTS[:5])
    shapes, tags = [_shape(draw) for _ in range(3)], [draw.choice((0, 0, 5)) for _ in range(3)]
    anybody, late = draw.random() < 0.3, draw.random() < 0.5

    def run(group: Any, me: int, maker: Maker) -> tuple[list[Any], Tensors]:
        works, seen = [], []

        def send() -> None:
            for shape, tag in zip(shapes, tags, strict=True):
                x = maker.tensor(shape, dtype, own)
                works.append(group.send([x], (me + 1) % n, tag))
                seen.append(x)

        if not late:
            send()
        for shape, tag in zip(shapes, tags, strict=True):
            o = maker.tensor(shape, dtype, out)
            if anybody:
                works.append(group.recv_anysource([o], tag))
            else:
                works.append(group.recv([o], (me - 1) % n, tag))
            seen.append(o)
        if late:
            send()
        return works, seen

    return f"{dtype} {shapes} {tags} from {own} into {out} anybody {anybody} late {late}", run


def _sparse(draw: random.Random, n: int, seed: int) -> Any:
    dtype, rows, width = draw.choice(REAL[:2]), draw.choice((1, 7, 300)), draw.choice((1, 3))

    def run(group: Any, me: int, maker: Maker) -> tuple[list[Any], Tensors]:
        count = (seed + me) % (rows + 1)
        at = torch.randint(0, rows, (1, count), generator=maker.draw)
        values = maker.tensor((count, width), dtype, "plain")
        x = torch.sparse_coo_tensor(at, values, (rows, width))
        return [group.allreduce([x])], [x]

    return f"{dtype} {rows} x {width}", run


KINDS: dict[str, Callable[[random.Random, int, int], Any]] = {
    "allreduce": _reduced("allreduce", dist.AllreduceOptions, False),
    "allreduce_coalesced": _reduced(
        "allreduce_coalesced", dist.AllreduceCoalescedOptions, False, True
    ),
    "reduce": _reduced("reduce", dist.ReduceOptions, True),
    "broadcast": _broadcast,
    **{
        name: _all_gather(name)
        for name in (
            *("allgather", "allgather_coalesced", "all_gather_single"),
            "all_gather_single_coalesced",
        )
    },
    **{
        name: _reduce_scatter(name)
        for name in ("reduce_scatter", "reduce_scatter_single", "reduce_scatter_single_coalesced")
    },
    "gather": _gather,
    "scatter": _scatter,
    "alltoall": _alltoall,
    "all_to_all_single": _all_to_all_single,
    "barrier": _barrier,
    "send, recv": _between,
    "sparse": _sparse,
}


# --- made, and compared


class Outcome(NamedTuple):
    """What became of a call at one rank: an error, or the bits of all its tensors."""

    error: str
    bits: tuple[bytes, ...]

    def words(self) -> str:
        """For people: the error, or sums that tell apart what differs."""
        return self.error or " ".join(f"{len(b)} B {zlib.crc32(b):08x}" for b in self.bits)


def bits(tensor: torch.Tensor) -> bytes:
    """A tensor's values, as bytes; all are exact in 64 bits."""
    there = tensor.detach().to_dense()
    if there.is_complex() or there.is_floating_point():
        there = there.to(torch.complex128 if there.is_complex() else torch.float64) + 0  # -0 is 0
    plain = torch.empty(there.numel(), dtype=there.dtype).copy_(there.reshape(-1))
    return plain.view(torch.uint8).numpy().tobytes()


def outcome(call: Call, group: Any, me: int, maker: Maker) -> Outcome:
    """Make a call and wait for it."""
    try:
        works, tensors = call.run(group, me, maker)
        for work in reversed(works) if call.waits == "later" else works:
            if call.waits == "future" and "send" not in call.words:
                work.get_future().wait()
            else:
                work.wait()
    except Exception as error:
        return Outcome(f"{type(error).__name__}: {error}".partition("\n")[0], ())
    return Outcome("", tuple(bits(t) for t in tensors))


def made(seeds: range, report: Callable[[str], None]) -> dict[str, int]:
    """Make these calls at this rank of a job; `report` is told of each that differs, once."""
    rank, size = dist.get_rank(), dist.get_world_size()
    control = dist.new_group(backend="gloo")
    sets = [list(range(size))]
    if size > 2:
        sets += [[0, size - 1], list(range(1, size))]
    groups: dict[tuple[str, int], Any] = {}
    counts = dict.fromkeys(VERDICTS, 0)
    for seed in seeds:
        at = seed % len(sets)
        for name in ("mrc", "gloo"):
            if (name, at) not in groups:
                groups[name, at] = dist.new_group(sets[at], timeout=SOON, backend=name)
        found: Any = None
        if rank in sets[at]:
            call, me = drawn(seed, len(sets[at])), sets[at].index(rank)
            outcomes = [
                outcome(call, groups[name, at], me, Maker(seed, me, name == "gloo"))
                for name in ("mrc", "gloo")
            ]
            found = (call.words, *outcomes)
        every: list[Any] = [None] * size
        dist.all_gather_object(every, found, group=control)
        told = [one for one in every if one is not None]
        verdict = judged(told)
        counts[verdict] += 1
        if verdict in ("MRC refuses", "wrong") and rank == 0:
            report(f"{seed} of {len(told)} ranks, {verdict}: {told[0][0]}")
            for _, mrc, gloo in told:
                report(f"    MRC {mrc.words():.150} | Gloo {gloo.words():.150}")
        if verdict != "same":  # what failed may have left its group in the middle
            for name in ("mrc", "gloo"):
                groups.pop((name, at))
    return counts


VERDICTS = ("same", "both refuse", "MRC alone", "MRC refuses", "wrong")


def judged(told: list[tuple[str, Outcome, Outcome]]) -> str:
    """How the outcomes of all ranks compare: one of `VERDICTS`."""
    if any(gloo.error for _, _, gloo in told):
        return "both refuse" if any(mrc.error for _, mrc, _ in told) else "MRC alone"
    if all(mrc.error for _, mrc, _ in told):
        return "MRC refuses"
    return "same" if all(mrc == gloo for _, mrc, gloo in told) else "wrong"


def _rank(rank: int, size: int, store: str, seeds: range, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    torch.set_num_threads(1)
    dist.init_process_group("mrc", init_method=store, rank=rank, world_size=size)
    counts = made(seeds, lambda line: print(line, flush=True))
    if rank == 0:
        print(counts)
    dist.destroy_process_group()


def main() -> int:
    import tempfile

    import torch.multiprocessing as mp

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--shared", default="1")
    options = parser.parse_args()
    seeds = range(options.seed, options.seed + options.calls)
    with tempfile.TemporaryDirectory() as place:
        environment = {"OPENMRC_SHARED_MEMORY": options.shared}
        store = f"file://{place}/store"
        mp.spawn(_rank, (options.ranks, store, seeds, environment), options.ranks)
    return 0


if __name__ == "__main__":
    sys.exit(main())
