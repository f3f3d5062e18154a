"""The core of both adapters: operations on tensors of one group."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from functools import cache, partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from openmrc.errors import InputError, OpenMrcError
from openmrc.torch import algorithms, kernels, profile
from openmrc.torch.algorithms import Combine, Context
from openmrc.torch.call import P2P, Call
from openmrc.torch.operation import Operation, Strand, Transfer
from openmrc.torch.span import (
    DTYPES,
    WHOLE,
    Parts,
    Span,
    Whole,
    count_of,
    spans_of,
    tensors_of,
)
from openmrc.torch.staging import Staged, around
from openmrc.torch.streams import Event
from openmrc.torch.work import MrcWork
from openmrc.torch.world import World

Op = dist.ReduceOp.RedOpType
STEPS_PER_TENSOR = algorithms.STEPS_PER_STRAND * algorithms.STRANDS_MAX

SUMS = (Op.SUM, Op.AVG, Op.PREMUL_SUM)
AVG, PREMUL_SUM = (
    int(Op.AVG),
    int(Op.PREMUL_SUM),
)  # torch compares its own slowly
_BITS = {Op.BAND: kernels.bits_and, Op.BOR: kernels.bits_or, Op.BXOR: kernels.bits_xor}
_NUMBERS = {
    Op.SUM: kernels.add,
    Op.PRODUCT: kernels.multiply,
    Op.MIN: kernels.least,
    Op.MAX: kernels.most,
}
_SHORT = {
    torch.bfloat16: {
        Op.SUM: kernels.add_bf16,
        Op.PRODUCT: kernels.multiply_bf16,
        Op.MIN: kernels.least_bf16,
        Op.MAX: kernels.most_bf16,
    },
    torch.float16: {
        Op.SUM: kernels.add_f16,
        Op.PRODUCT: kernels.multiply_f16,
        Op.MIN: kernels.least_f16,
        Op.MAX: kernels.most_f16,
    },
}
# torch adds booleans as "or" and multiplies them as "and"
_TRUTH = {
    Op.SUM: kernels.bits_or,
    Op.PRODUCT: kernels.bits_and,
    Op.MIN: kernels.bits_and,
    Op.MAX: kernels.bits_or,
    **_BITS,
}


def plain(op: Any) -> Any:
    """The kind of a reduction: `ReduceOp.SUM == x` is False where `x == ReduceOp.SUM` is True."""
    return getattr(op, "op", op)


def combine_of(dtype: torch.dtype, op: Any) -> Combine:
    """The function that reduces tensors of a type; `InputError` if there is none."""
    return _combine_of(dtype, int(plain(op)))


@cache
def _combine_of(dtype: torch.dtype, number: int) -> Combine:
    asked = kind = Op(number)
    if kind in SUMS:
        kind = Op.SUM
    table: dict[Any, Any] = _NUMBERS
    if dtype in _SHORT:
        table = _SHORT[dtype]
    elif dtype == torch.bool:
        table = _TRUTH
    elif dtype.is_complex:
        table = {one: _NUMBERS[one] for one in (Op.SUM, Op.PRODUCT)}
    elif not dtype.is_floating_point:
        table = {**_NUMBERS, **_BITS}
    if dtype not in DTYPES or kind not in table:
        raise InputError(f"{asked.name} of {dtype}: there is no such reduction")
    combine: Combine = table[kind]
    combine(np.empty(0, DTYPES[dtype]), np.empty(0, DTYPES[dtype]))  # compiled before it is posted
    return combine


class Collectives:
    """The operations of a group; `ranks` are the members' ranks in the world."""

    def __init__(
        self,
        world: World,
        name: str,
        ranks: Sequence[int],
        rank: int,
        timeout_s: float,
        profiled_as: str = "mrc",
    ) -> None:
        self.world, self.name, self.ranks, self.rank = world, name, list(ranks), rank
        self.profiled_as = profiled_as  # events of the profiler are "mrc:all_reduce", ...
        self._turn = world.turn_of(ranks)  # torch gives a name again once its group is gone
        self.rename(name)
        self.timeout_s = timeout_s
        self.seq = 0
        self._confirms = dist.get_debug_level() == dist.DebugLevel.DETAIL

    def rename(self, name: str) -> None:
        """Set the name that torch gives a group after creating it; nothing was posted before."""
        self.name, self.group = name, zlib.crc32(f"{name} {self._turn}".encode())

    def _post(
        self,
        what: str,
        call: Call,
        strands: Callable[[Callable[[int], Context]], Iterable[Strand]],
        used: Sequence[Span],
        filled: Sequence[Span],
        opts: Any = None,
        at_end: Callable[[], dict[torch.device, Event]] | None = None,
    ) -> MrcWork:
        if self.world.closed:
            why = "the process group was destroyed"
            if self.world.progress.forked:
                me = self.world.ranks[self.world.rank]
                why = f"this process was forked from rank {me}, and is no rank itself"
            raise OpenMrcError(f"{what}: {why}")
        seq: int | None = None
        if call.kind != P2P:  # not all ranks take part in those
            seq, self.seq = self.seq, self.seq + 1
        name, timeout_s = f"{what} of group {self.name!r}", self._timeout_of(opts)
        op = Operation(name, self.ranks, timeout_s, call.packed(), self.group, seq)
        progress = self.world.progress

        def context(step: int) -> Context:
            return Context(progress, op, self.ranks, self.rank, self.group, seq or 0, step)

        op.strands = list(strands(context))
        if self._confirms and seq is not None:
            op.strands = [algorithms.confirmed(context(0), op.strands)]
        event = None
        if profile.enabled():
            seen = [span.tensor for span in used or filled]
            event = profile.Event(f"{self.profiled_as}:{what.partition(' ')[0]}", seen)
        result = [span.tensor for span in filled or used]
        work = MrcWork(op, result, (*used, *filled, self), progress, event)
        work.devices = {span.tensor.device for span in filled if isinstance(span, Staged)}

        copies = [span for span in filled if span.is_copy]
        staged = [span for span in (*used, *filled) if isinstance(span, Staged)]

        def finish() -> None:
            for span in copies:
                span.copy_back()
            if at_end is not None:
                work.left = at_end()
            if staged:
                work.left = progress.staging.leave(staged)

        if copies or staged or at_end is not None:
            work.at_end = finish
        progress.post(op)
        return work

    def _span(self, tensor: torch.Tensor) -> Span:
        return self.world.progress.staging.span(tensor)

    def _averaged(self, strand: Strand, span: Span, part: slice) -> Strand:
        """Add up, then divide: in this host's memory also for a GPU, so with the same bits."""
        yield from strand
        _divide(span, part, len(self.ranks))

    def _timeout_of(self, opts: Any) -> float:
        given = getattr(opts, "timeout", None)
        seconds = given.total_seconds() if isinstance(given, timedelta) else 0.0
        return seconds if seconds > 0 else self.timeout_s

    # --- reductions

    def all_reduce(
        self, tensors: Sequence[torch.Tensor], op: Any, opts: Any = None, what: str = "all_reduce"
    ) -> MrcWork:
        """Reduce each tensor in place."""
        if tensors[0].is_sparse:
            return self._sparse(tensors[0], op, opts)
        combines = [combine_of(t.dtype, op) for t in tensors]
        _scale_before(tensors, op)
        spans = [self._span(t) for t in tensors]
        kind = int(plain(op))

        def strands(context: Callable[[int], Context]) -> Iterator[Strand]:
            for i, (span, combine) in enumerate(zip(spans, combines, strict=True)):
                of = partial(_further, context, i * STEPS_PER_TENSOR) if i else context
                for part, strand in algorithms.all_reduce_strands(of, span.array, combine):
                    whole = self._averaged(strand, span, part) if kind == AVG else strand
                    yield around(of(0).op, whole, [span], [span], part)

        call = Call("all_reduce", tensors[0].dtype, kind, None, len(tensors), _bytes(tensors))
        return self._post(what, call, strands, [], spans, opts)

    def reduce(self, tensor: torch.Tensor, op: Any, root: int, opts: Any = None) -> MrcWork:
        """Reduce into the root's tensor."""
        self._check_rank("reduce: root", root)
        combine = combine_of(tensor.dtype, op)
        at_root = root == self.rank
        own, factor = tensor, _factor(op)
        if at_root:
            _scale_before([own], op)
        elif factor is not None:
            own = tensor.detach() * factor
        elif not self.world.progress.staging.door.holds(tensor):
            own = tensor.detach().clone()  # other ranks' tensors stay unchanged, as work space
        span = self._span(own)
        used, filled = ([], [span]) if at_root else ([span], [])

        def strand(c: Context) -> Strand:
            yield from algorithms.reduce_tree(c, span.array, combine, root)
            if at_root and int(plain(op)) == AVG:
                _divide(span, WHOLE, c.n)

        return self._post(
            "reduce",
            Call("reduce", tensor.dtype, int(plain(op)), root, n=tensor.nbytes),
            lambda c: [around(c(0).op, strand(c(0)), [span], filled)],
            used,
            filled,
            opts,
        )

    def reduce_scatter(
        self,
        outputs: Sequence[torch.Tensor],
        inputs: Sequence[Parts],
        op: Any,
        opts: Any = None,
    ) -> MrcWork:
        """Reduce the parts of `inputs[i]`, one per rank, each into `outputs[i]` of its rank."""
        combine = combine_of(outputs[0].dtype, op)
        for one, parts in zip(outputs, inputs, strict=True):
            every = [one, *tensors_of(parts)]
            _check_same("reduce_scatter", every, one.numel(), count_of(parts, self.rank))
        factor = _factor(op)
        if factor is not None:
            inputs = [_scaled(parts, factor) for parts in inputs]
        filled = [self._span(t) for t in outputs]
        used = [spans_of(parts, self._span) for parts in inputs]
        kind = int(plain(op))

        def strands(context: Callable[[int], Context]) -> Iterator[Strand]:
            for i, (into, (spans, arrays)) in enumerate(zip(filled, used, strict=True)):
                c = context(i * STEPS_PER_TENSOR)
                strand = algorithms.reduce_scatter(c, into.array, arrays, combine)
                whole = self._averaged(strand, into, WHOLE) if kind == AVG else strand
                yield around(c.op, whole, spans, [into])

        return self._post(
            "reduce_scatter",
            Call("reduce_scatter", outputs[0].dtype, kind, tensors=len(outputs)),
            strands,
            [span for spans, _ in used for span in spans],
            filled,
            opts,
        )

    # --- copies

    def broadcast(self, tensors: Sequence[torch.Tensor], root: int, opts: Any = None) -> MrcWork:
        """Copy the root's tensors to all."""
        self._check_rank("broadcast: root", root)
        spans = [self._span(t) for t in tensors]

        def strands(context: Callable[[int], Context]) -> Iterator[Strand]:
            for i, span in enumerate(spans):
                c = context(i * STEPS_PER_TENSOR)
                strand = algorithms.broadcast(c, span.array, root)
                read, filled = ([span], []) if root == self.rank else ([], [span])
                yield around(c.op, strand, read, filled)

        call = Call("broadcast", tensors[0].dtype, root=root, tensors=len(spans), n=_bytes(tensors))
        return self._post("broadcast", call, strands, [], spans, opts)

    def all_gather(
        self,
        outputs: Sequence[Parts],
        inputs: Sequence[torch.Tensor],
        opts: Any = None,
        what: str = "all_gather",
    ) -> MrcWork:
        """Copy `inputs[i]` of rank r into part r of `outputs[i]` of all."""
        for one, parts in zip(inputs, outputs, strict=True):
            every = [one, *tensors_of(parts)]
            _check_same(what, every, one.numel(), count_of(parts, self.rank))
        used = [self._span(t) for t in inputs]
        filled = [spans_of(parts, self._span) for parts in outputs]

        def strands(context: Callable[[int], Context]) -> Iterator[Strand]:
            for i, (one, (spans, arrays)) in enumerate(zip(used, filled, strict=True)):
                c = context(i * STEPS_PER_TENSOR)
                yield around(c.op, algorithms.all_gather(c, one.array, arrays), [one], spans)

        return self._post(
            what,
            Call("all_gather", inputs[0].dtype if inputs else None, tensors=len(inputs)),
            strands,
            used,
            [span for spans, _ in filled for span in spans],
            opts,
        )

    def gather(
        self, parts: Sequence[torch.Tensor], tensor: torch.Tensor, root: int, opts: Any = None
    ) -> MrcWork:
        """Copy every rank's tensor to the root."""
        self._check_rank("gather: root", root)
        if parts:
            _check_same("gather", [tensor, *parts], tensor.numel(), parts[root].numel())
        used, filled = self._span(tensor), [self._span(t) for t in parts]
        arrays = [part.array for part in filled]

        def strand(c: Context) -> Strand:
            return around(c.op, algorithms.gather(c, used.array, arrays, root), [used], filled)

        return self._post(
            "gather",
            Call("gather", tensor.dtype, root=root),
            lambda c: [strand(c(0))],
            [used],
            filled,
            opts,
        )

    def scatter(
        self, tensor: torch.Tensor, parts: Sequence[torch.Tensor], root: int, opts: Any = None
    ) -> MrcWork:
        """Copy one tensor of the root to each rank."""
        self._check_rank("scatter: root", root)
        if parts:
            _check_same("scatter", [tensor, *parts], tensor.numel(), parts[root].numel())
        filled, used = self._span(tensor), [self._span(t) for t in parts]
        arrays = [part.array for part in used]

        def strand(c: Context) -> Strand:
            return around(c.op, algorithms.scatter(c, filled.array, arrays, root), used, [filled])

        return self._post(
            "scatter",
            Call("scatter", tensor.dtype, root=root),
            lambda c: [strand(c(0))],
            used,
            [filled],
            opts,
        )

    def all_to_all(self, outputs: Parts, inputs: Parts, opts: Any = None) -> MrcWork:
        """Copy part r of the inputs into part "this rank" of the outputs of rank r."""
        every = [*tensors_of(inputs), *tensors_of(outputs)]
        _check_same("all_to_all", every, count_of(inputs, self.rank), count_of(outputs, self.rank))
        used, out = spans_of(inputs, self._span)
        filled, into = spans_of(outputs, self._span)
        return self._post(
            "all_to_all",
            Call("all_to_all", every[0].dtype if every else None),
            lambda c: [around(c(0).op, algorithms.all_to_all(c(0), out, into), used, filled)],
            used,
            filled,
            opts,
        )

    def barrier(self, opts: Any = None) -> MrcWork:
        """Wait for all ranks."""
        return self._post(
            "barrier", Call("barrier"), lambda c: [algorithms.barrier(c(0))], [], [], opts
        )

    # --- point to point

    def send(self, tensor: torch.Tensor, to: int, tag: int) -> MrcWork:
        """Send a tensor."""
        self._check_other("send to", to)
        span, messages = self._span(tensor), self.world.progress.matching

        def strand(c: Context) -> Strand:
            key = messages.next_sent(c.ranks[to], self.group, tag)  # in the order of posting
            yield span.arrive(c.op)
            yield [messages.send(c.op, c.ranks[to], key, algorithms.as_bytes(span.array))]

        return self._between(f"send to rank {to}", strand, [span], [])

    def receive(self, tensor: torch.Tensor, of: int | None, tag: int) -> MrcWork:
        """Receive a tensor from a rank, or from any."""
        if of is not None:
            self._check_other("recv from", of)
        span, progress = self._span(tensor), self.world.progress

        def strand(c: Context) -> Strand:
            data = algorithms.as_bytes(span.array)
            yield [self._receive(progress, c, of, tag, data)]
            span.put()
            if c.op.source is not None:
                c.op.source = self.ranks.index(c.op.source)

        return self._between(
            "recvAnySource" if of is None else f"recv from rank {of}", strand, [], [span]
        )

    def _receive(self, progress: Any, c: Context, of: int | None, tag: int, data: Any) -> Transfer:
        if of is None:
            return progress.matching.receive_any(c.op, self.group, tag, data)
        c.op.source = self.ranks[of]
        return progress.matching.receive_next(c.op, self.ranks[of], self.group, tag, data)

    def _check_rank(self, what: str, rank: int) -> None:
        if not 0 <= rank < len(self.ranks):
            raise InputError(f"{what} {rank}: the group has ranks 0 to {len(self.ranks) - 1}")

    def _check_other(self, what: str, rank: int) -> None:
        self._check_rank(f"{what} rank", rank)
        if rank == self.rank:
            raise InputError(f"{what} rank {rank}: that is this rank itself; copy the tensor")

    def _between(
        self,
        what: str,
        strand: Callable[[Context], Strand],
        used: list[Span],
        filled: list[Span],
    ) -> MrcWork:
        tensor = (used or filled)[0].tensor
        call = Call(P2P, tensor.dtype, n=tensor.nbytes)
        return self._post(what, call, lambda c: [strand(c(0))], used, filled)

    # --- sparse

    def _sparse(self, tensor: torch.Tensor, op: Any, opts: Any) -> MrcWork:
        """Sum sparse tensors: every rank sends its indices and values to all, added in rank
        order.
        """
        if plain(op) != Op.SUM:
            raise InputError(f"{plain(op).name} of a sparse tensor: only SUM is defined")
        staging, reader = self.world.progress.staging, None
        if staging.door.holds(tensor):
            reader = staging.door.current(tensor.device)
            posted = reader.record_event()
        mine = tensor.coalesce().cpu()  # waits for a GPU: how many elements there are must be known
        indices, values = mine.indices().contiguous(), mine.values().contiguous()
        n, me, dims = len(self.ranks), self.rank, indices.shape[0]
        counts = torch.zeros(n, dtype=torch.int64)
        counts[me] = indices.shape[1]
        count_span, keep = Span(counts), []
        there: list[tuple[torch.Tensor, torch.Tensor]] = []

        def strand(context: Callable[[int], Context]) -> Strand:
            c = context(0)
            parts = [count_span.array[r : r + 1] for r in range(n)]
            yield from algorithms.all_gather(c, parts[me].copy(), parts)
            for r in range(n):
                count = int(counts[r])
                there.append(
                    (
                        torch.empty((dims, count), dtype=torch.int64),
                        torch.empty((count, *values.shape[1:]), dtype=values.dtype),
                    )
                )
            for step, own in enumerate((indices, values)):
                spans = [Span(pair[step]) for pair in there]
                source = Span(own)
                keep.extend([*spans, source])
                yield from algorithms.all_gather(
                    context((step + 1) * 8), source.array, [span.array for span in spans]
                )

        def add() -> dict[torch.device, Event]:
            total = torch.sparse_coo_tensor(*there[0], tensor.shape)
            for pair in there[1:]:
                total = total + torch.sparse_coo_tensor(*pair, tensor.shape)
            total = total.coalesce()
            if reader is not None:
                return {tensor.device: staging.fill(tensor, total, posted, reader)}
            with torch.no_grad():
                tensor.copy_(total)
            return {}

        call = Call("all_reduce of sparse tensors", tensor.dtype)
        work = self._post("all_reduce", call, lambda c: [strand(c)], [count_span], [], opts, add)
        work._result = [tensor]
        work.devices = {tensor.device} if reader is not None else ()
        return work


def _check_same(what: str, every: Sequence[torch.Tensor], own: int, there: int) -> None:
    """All tensors of a call have one type, and this rank's own part as many elements at both
    ends.
    """
    for each in every:
        if each.dtype != every[0].dtype:
            raise InputError(f"{what}: {every[0].dtype} and {each.dtype}: all must have one type")
    if own != there:
        raise InputError(
            f"{what}: this rank's own part has {own} elements, where it belongs there are {there}"
        )


def _bytes(tensors: Sequence[torch.Tensor]) -> int:
    return sum(t.nbytes for t in tensors)


def _further(context: Callable[[int], Context], base: int, step: int) -> Context:
    return context(base + step)


def _factor(op: Any) -> Any:
    """The factor of PREMUL_SUM; None for other operations."""
    if int(plain(op)) != PREMUL_SUM:
        return None
    state = op.__getstate__()  # (kind, factor): the only way that torch offers
    return state[1]


def _scaled(parts: Parts, factor: Any) -> Parts:
    if isinstance(parts, Whole):
        return Whole(parts.tensor * factor, parts.counts)
    return [part * factor for part in parts]


def _scale_before(tensors: Sequence[torch.Tensor], op: Any) -> None:
    factor = _factor(op)
    if factor is not None:
        with torch.no_grad():
            for t in tensors:
                t.mul_(factor)


def _divide(span: Span, part: slice, n: int) -> None:
    with torch.no_grad():
        t = span.flatten()[part]
        if t.is_floating_point() or t.is_complex():
            t.div_(n)
        else:
            t.div_(n, rounding_mode="trunc")
