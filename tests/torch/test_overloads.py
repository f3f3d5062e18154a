"""Every overload of a group's methods, by position and by name, the root not 0: as Gloo."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

pytest.importorskip("torch", reason="the extra openmrc[torch] is not installed")

import torch
import torch.distributed as dist

from openmrc.errors import InputError
from openmrc.torch.overloads import asked, overloaded, single
from tests.torch.ranks import run

ROOT, SOON = 1, timedelta(seconds=50)
op = dist.ReduceOp
Overload = Callable[[Any, Any, Any, Any], Any]


def _options(kind: Any, **fields: Any) -> Any:
    one = kind()
    for name, value in fields.items():
        setattr(one, name, value)
    return one


ALL = _options(dist.AllreduceOptions, reduceOp=op.MAX)
COALESCED = _options(dist.AllreduceCoalescedOptions, reduceOp=op.MAX)
FROM = _options(dist.BroadcastOptions, rootRank=ROOT)
INTO = _options(dist.ReduceOptions, reduceOp=op.MAX, rootRank=ROOT)
GATHER = _options(dist.GatherOptions, rootRank=ROOT)
SCATTER = _options(dist.ScatterOptions, rootRank=ROOT)
PARTS = _options(dist.ReduceScatterOptions, reduceOp=op.MAX)

# Of group g: x is each rank's tensor, o one for each rank, i the same filled; at a root, where
# others pass nothing: r(...).
OVERLOADS: dict[str, dict[str, Overload]] = {
    "allreduce": {
        "list": lambda g, x, o, i: g.allreduce([x]),
        "list, options": lambda g, x, o, i: g.allreduce([x], ALL),
        "list, op": lambda g, x, o, i: g.allreduce([x], op.MAX),
        "tensors=, op=, timeout=": lambda g, x, o, i: g.allreduce(
            tensors=[x], op=op.MAX, timeout=SOON
        ),
        "tensor": lambda g, x, o, i: g.allreduce(x),
        "tensor, op": lambda g, x, o, i: g.allreduce(x, op.MAX),
        "tensor, op, timeout": lambda g, x, o, i: g.allreduce(x, op.MAX, SOON),
        "tensor=, op=": lambda g, x, o, i: g.allreduce(tensor=x, op=op.MIN),
        "tensor, timeout=": lambda g, x, o, i: g.allreduce(x, timeout=SOON),
        "list, opts=": lambda g, x, o, i: g.allreduce([x], opts=ALL),
    },
    "allreduce_coalesced": {
        "list, options": lambda g, x, o, i: g.allreduce_coalesced([x, i[0]], COALESCED),
        "tensors=": lambda g, x, o, i: g.allreduce_coalesced(tensors=[x, i[0]]),
    },
    "broadcast": {
        "list, options": lambda g, x, o, i: g.broadcast([x], FROM),
        "tensor, root": lambda g, x, o, i: g.broadcast(x, ROOT),
        "tensor, root, timeout": lambda g, x, o, i: g.broadcast(x, ROOT, SOON),
        "tensor, root=": lambda g, x, o, i: g.broadcast(x, root=ROOT),
        "tensor=, root=, timeout=": lambda g, x, o, i: g.broadcast(
            tensor=x, root=ROOT, timeout=SOON
        ),
    },
    "reduce": {
        "list, options": lambda g, x, o, i: g.reduce([x], INTO),
        "tensor, root": lambda g, x, o, i: g.reduce(x, ROOT),
        "tensor, root, op": lambda g, x, o, i: g.reduce(x, ROOT, op.MAX),
        "tensor, root, op, timeout": lambda g, x, o, i: g.reduce(x, ROOT, op.MAX, SOON),
        "tensor, root=, op=": lambda g, x, o, i: g.reduce(x, root=ROOT, op=op.MAX),
    },
    "allgather": {
        "lists": lambda g, x, o, i: g.allgather([o], [x]),
        "list, tensor": lambda g, x, o, i: g.allgather(o, x),
        "list, tensor, timeout": lambda g, x, o, i: g.allgather(o, x, SOON),
        "output_tensors=, input_tensor=": lambda g, x, o, i: g.allgather(
            output_tensors=o, input_tensor=x, timeout=SOON
        ),
        "coalesced": lambda g, x, o, i: g.allgather_coalesced([[one] for one in o], [x]),
        "single": lambda g, x, o, i: g.all_gather_single(o[0], x[:2]),
        "base, names": lambda g, x, o, i: g._allgather_base(output=o[0], input=x[:2]),
        "singles": lambda g, x, o, i: g.all_gather_single_coalesced(o[:1], [x[:2]]),
        "into": lambda g, x, o, i: g.allgather_into_tensor_coalesced(o[:1], [x[:2]]),
    },
    "gather": {
        "lists, options": lambda g, x, o, i: g.gather([o] if _at_root(g) else [], [x], GATHER),
        "list, tensor, root": lambda g, x, o, i: g.gather(o if _at_root(g) else [], x, ROOT),
        "list, tensor, root, timeout": lambda g, x, o, i: g.gather(
            o if _at_root(g) else [], x, ROOT, SOON
        ),
        "root=": lambda g, x, o, i: g.gather(o if _at_root(g) else [], x, root=ROOT),
        "names": lambda g, x, o, i: g.gather(
            output_tensors=o if _at_root(g) else [], input_tensor=x, root=ROOT
        ),
    },
    "scatter": {
        "lists, options": lambda g, x, o, i: g.scatter([x], [i] if _at_root(g) else [], SCATTER),
        "tensor, list, root": lambda g, x, o, i: g.scatter(x, i if _at_root(g) else [], ROOT),
        "tensor, list, root=, timeout=": lambda g, x, o, i: g.scatter(
            x, i if _at_root(g) else [], root=ROOT, timeout=SOON
        ),
        "names": lambda g, x, o, i: g.scatter(
            output_tensor=x, input_tensors=i if _at_root(g) else [], root=ROOT
        ),
    },
    "reduce_scatter": {
        "lists, options": lambda g, x, o, i: g.reduce_scatter([x], [i], PARTS),
        "tensor, list": lambda g, x, o, i: g.reduce_scatter(x, i),
        "tensor, list, op": lambda g, x, o, i: g.reduce_scatter(x, i, op.MAX),
        "names": lambda g, x, o, i: g.reduce_scatter(output=x, input=i, op=op.MAX, timeout=SOON),
        "single": lambda g, x, o, i: g.reduce_scatter_single(x[:2], i[0], PARTS),
        "base, names": lambda g, x, o, i: g._reduce_scatter_base(
            outputTensor=x[:2], inputTensor=i[0], opts=PARTS
        ),
        "singles": lambda g, x, o, i: g.reduce_scatter_single_coalesced([x[:2]], i[:1], PARTS),
        "into": lambda g, x, o, i: g.reduce_scatter_tensor_coalesced([x[:2]], i[:1], PARTS),
    },
    "alltoall": {
        "lists": lambda g, x, o, i: g.alltoall(o, i),
        "single": lambda g, x, o, i: g.all_to_all_single(x, i[0], [], []),
        "single, splits, timeout": lambda g, x, o, i: g.all_to_all_single(
            x, i[0], [2, 2], [2, 2], SOON
        ),
        "base, names": lambda g, x, o, i: g.alltoall_base(
            output=x, input=i[0], output_split_sizes=[2, 2], input_split_sizes=[2, 2]
        ),
    },
    "barrier": {
        "nothing": lambda g, x, o, i: g.barrier(),
        "options": lambda g, x, o, i: g.barrier(dist.BarrierOptions()),
        "timeout": lambda g, x, o, i: g.barrier(SOON),
        "timeout=": lambda g, x, o, i: g.barrier(timeout=SOON),
        "opts=": lambda g, x, o, i: g.barrier(opts=dist.BarrierOptions()),
    },
    "send and recv": {
        "positions": lambda g, x, o, i: (
            g.send([x], ROOT, 7) if not _at_root(g) else g.recv([x], 1 - ROOT, 7)
        ),
        "names": lambda g, x, o, i: (
            g.send(tensors=[x], dstRank=ROOT, tag=7)
            if not _at_root(g)
            else g.recv(tensors=[x], srcRank=1 - ROOT, tag=7)
        ),
        "any": lambda g, x, o, i: (
            g.send([x], ROOT, 8) if not _at_root(g) else g.recv_anysource([x], 8)
        ),
    },
}


def _at_root(group: Any) -> bool:
    return bool(group.rank() == ROOT)


def _done(group: Any, overload: Overload) -> list[list[float]]:
    rank, n = group.rank(), group.size()
    x = torch.arange(4.0) + 10 * rank
    outs = [torch.zeros(4) for _ in range(n)]
    ins = [torch.arange(4.0) * (r + 1) + rank for r in range(n)]
    overload(group, x, outs, ins).wait()
    return [one.tolist() for one in (x, *outs, *ins)]


REFUSED: list[tuple[Callable[[Any], Any], str]] = [
    (lambda g: g.broadcast(torch.ones(2), 7), r"broadcast: root 7: the group has ranks 0 to 1"),
    (lambda g: g.reduce(torch.ones(2), -1), "reduce: root -1: the group has ranks 0 to 1"),
    (lambda g: g.allreduce([torch.ones(2)] * 2), "allreduce: 2 tensors: one is accepted"),
    (lambda g: g.broadcast([torch.ones(2)] * 2, 1), "broadcast: 2 tensors: one is accepted"),
    (lambda g: g.allreduce(torch.ones(2), "sum"), "str is no options, reduction, root or timeout"),
    (lambda g: g.allreduce(torch.ones(2), rank=1), "allreduce: 'rank' is no argument of it"),
    (lambda g: g.allreduce(), "allreduce: tensors is missing"),
    (lambda g: g.send([torch.ones(2)], g.rank(), 0), "that is this rank itself; copy the tensor"),
    (lambda g: g.recv([torch.ones(2)], g.rank(), 0), "that is this rank itself; copy the tensor"),
    (lambda g: g.send([torch.ones(2)], 2, 0), "send to rank 2: the group has ranks 0 to 1"),
    (
        lambda g: g.all_to_all_single(torch.ones(4), torch.ones(4), [4], [4]),
        r"splits \[4\]: the group has 2 ranks, one for each is needed",
    ),
    (
        lambda g: g.all_to_all_single(torch.ones(4), torch.ones(4), [5, -1], [2, 2]),
        r"splits \[5, -1\]: the first dimension has 4",
    ),
    (lambda g: g.alltoall([torch.ones(2)], [torch.ones(2)] * 2), "output list has 1 tensors"),
    (
        lambda g: g.gather([torch.ones(2)] if g.rank() else [], torch.ones(2), g.rank()),
        "gather: output list has . tensors: the group has 2 ranks",
    ),
    (
        lambda g: g.allgather([torch.ones(3)] * 2, torch.ones(1)),
        "this rank's own part has 1 elements, where it belongs there are 3",
    ),
    (
        lambda g: g.allgather([torch.ones(1, dtype=torch.int32)] * 2, torch.ones(1)),
        r"allgather|all_gather: torch.float32 and torch.int32: all must have one type",
    ),
]


def every_overload(rank: int, n: int) -> None:
    group: Any = dist.group.WORLD
    gloo: Any = dist.new_group(backend="gloo")
    for method, overloads in OVERLOADS.items():
        for name, overload in overloads.items():
            mine, its = _done(group, overload), _done(gloo, overload)
            if method != "reduce" or rank == ROOT:  # elsewhere Gloo leaves what it has added so far
                assert mine == its, (method, name)
    for call, words in REFUSED:
        with pytest.raises(InputError, match=words):
            call(group)
    group.monitored_barrier(timeout=SOON, wait_all_ranks=True)
    group.set_timeout(timeout=timedelta(seconds=0.1))
    with pytest.raises(dist.DistBackendError, match=r"Timed out waiting for .* after 0\.1 s"):
        group.recv([torch.ones(1)], 1 - rank, 98).wait()
    group.set_timeout(SOON)
    group.barrier().wait()


def test_every_overload_does_what_gloo_does() -> None:
    told = run(2, every_overload, OPENMRC_SHARED_MEMORY="1")
    assert told == [None, None]


def test_what_follows_the_tensors_is_known_by_its_type() -> None:
    named = {"root": 3, "timeout": SOON}
    assert asked("x", [op.MAX], named) == (op.MAX, 3, SOON)
    assert asked("x", [INTO], {})[1] == ROOT
    assert asked("x", [None], {}).timeout is None


def test_tensors_by_any_of_their_names() -> None:
    class Group:
        @overloaded("tensors|tensor", "others")
        def do(self, one: Any, other: Any, asked: Any) -> Any:
            return one, other, asked.root

    group: Any = Group()
    assert group.do(1, 2, 5) == group.do(others=2, tensor=1, root=5) == (1, 2, 5)
    assert single("x", [group]) is group
