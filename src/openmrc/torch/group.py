"""The adapter for torch 2.13: a `ProcessGroup` in Python replaces torch's own.

C++ (DDP's reducer, functional collectives) sees only the methods of `PyProcessGroup.hpp`; the rest
is called from Python. Both store the group's name, each in its own way.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from openmrc.errors import InputError
from openmrc.say import say
from openmrc.torch.collectives import Collectives
from openmrc.torch.overloads import Asked, asked, overloaded, single
from openmrc.torch.span import Whole
from openmrc.torch.work import MrcWork
from openmrc.torch.world import PeerError, World

WORLD_NAME = "world"
DEVICES = ("cpu", "cuda")
_worlds: list[World] = []
_leaving: deque[threading.Thread] = deque(maxlen=64)  # the last that close a world


class Capabilities:
    """What torch queries about the backend of a device (`_get_backend`)."""

    supports_coalescing = False
    supports_splitting = False
    supports_time_estimate = False
    supports_shrinking = False

    def __init__(self, core: Collectives) -> None:
        self._core = core  # not the group: without a cycle it is freed with its last user
        self.options = Options(core)

    def supports_tensor_alloc(self, device: torch.device) -> bool:
        """False: any memory is suitable."""
        return False

    def _set_default_timeout(self, timeout: timedelta) -> None:
        self._core.timeout_s = timeout.total_seconds()

    def _set_sequence_number_for_group(self) -> None:
        """Do nothing: both ends count from 0."""

    def _get_sequence_number_for_group(self) -> int:
        return self._core.seq


class Options:
    """`options._timeout` of a backend."""

    global_ranks_in_group: Sequence[int] = ()
    group_name = ""

    def __init__(self, core: Collectives) -> None:
        self._core = core

    @property
    def _timeout(self) -> timedelta:
        return timedelta(seconds=self._core.timeout_s)


class MrcProcessGroup(dist.ProcessGroup):
    """A group of ranks; all groups of a process share a world."""

    backend_name = "mrc"
    profiled_as = "mrc"

    def __init__(
        self,
        store: Any,
        rank: int,
        size: int,
        timeout: timedelta,
        name: str = "",
        world_ranks: Sequence[int] = (),
    ) -> None:
        super().__init__(rank, size)
        self._rank, self._size, self._store = rank, size, store
        self._name, self._desc = name, ""
        seconds = timeout.total_seconds()
        self._world, ranks = _world_of(store, rank, size, seconds, world_ranks)
        self._world.groups += 1
        self.core = Collectives(
            self._world, name or WORLD_NAME, ranks, rank, seconds, self.profiled_as
        )
        # dropped without `shutdown`, it leaves all the same; an operation under way keeps the core
        self._dropped = weakref.finalize(self.core, _drop, self._world)
        self._dropped.atexit = False
        self._capabilities = Capabilities(self.core)
        self.options = self._capabilities.options

    # --- names and numbers

    def getBackendName(self) -> str:  # noqa: N802  C++'s names
        """Never "gloo": DDP would look for Gloo's own object."""
        return self.backend_name

    name = getBackendName

    def getRank(self) -> int:  # noqa: N802
        """The rank of this process in the group."""
        return self._rank

    rank = getRank

    def getSize(self) -> int:  # noqa: N802
        """The number of ranks in the group."""
        return self._size

    size = getSize

    def getGroupName(self) -> str:  # noqa: N802
        """For C++."""
        return self._name

    def setGroupName(self, name: str) -> None:  # noqa: N802
        """For C++."""
        self._set_group_name(name)

    def _set_group_name(self, name: str) -> None:
        self._name = name
        # all ranks of a group have the same name, and no two groups with a rank in common
        self.core.rename(name)

    @property
    def group_name(self) -> str:
        """For Python."""
        return self._name

    def getGroupDesc(self) -> str:  # noqa: N802
        """For C++."""
        return self._desc

    def setGroupDesc(self, desc: str) -> None:  # noqa: N802
        """For C++."""
        self._desc = desc

    def _set_group_desc(self, desc: str) -> None:
        self._desc = desc

    @property
    def group_desc(self) -> str:
        """For Python."""
        return self._desc

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device(name) for name in DEVICES]

    def _get_backend(self, device: Any) -> Capabilities:
        return self._capabilities

    def get_group_store(self) -> Any:
        """The store with which the group was created."""
        return self._store

    def _set_sequence_number_for_group(self) -> None:
        """Do nothing: both ends count from 0."""

    def _get_sequence_number_for_group(self) -> int:
        return self.core.seq

    def _set_default_timeout(self, timeout: timedelta) -> None:
        self.core.timeout_s = timeout.total_seconds()

    set_timeout = _set_default_timeout

    # --- collectives: each takes what the overloads of C++'s take (`overloads`)

    @overloaded("tensors|tensor")
    def allreduce(self, tensors: Any, asked: Asked) -> MrcWork:
        """Reduce in place."""
        return self.core.all_reduce([single("allreduce", tensors)], asked.op, asked)

    @overloaded("tensors")
    def allreduce_coalesced(self, tensors: Any, asked: Asked) -> MrcWork:
        """Reduce many in place."""
        return self.core.all_reduce(tensors, asked.op, asked)

    @overloaded("tensors|tensor")
    def broadcast(self, tensors: Any, asked: Asked) -> MrcWork:
        """Copy the root's to all."""
        return self.core.broadcast([single("broadcast", tensors)], asked.root, asked)

    @overloaded("tensors|tensor")
    def reduce(self, tensors: Any, asked: Asked) -> MrcWork:
        """Reduce at the root."""
        return self.core.reduce(single("reduce", tensors), asked.op, asked.root, asked)

    @overloaded("output_tensors", "input_tensors|input_tensor")
    def allgather(self, outputs: Any, inputs: Any, asked: Asked) -> MrcWork:
        """Copy every rank's to all."""
        if isinstance(inputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]
        _check_parts(outputs, self._size, "output")
        return self.core.all_gather(outputs, inputs, asked)

    @overloaded("output_lists", "input_list")
    def allgather_coalesced(self, outputs: Any, inputs: Any, asked: Asked) -> MrcWork:
        """The same of many; `outputs[r][i]` is `inputs[i]` of rank r."""
        _check_parts([outputs], self._size, "output")
        _check_parts(outputs, len(inputs), "output", "there are {} inputs")
        turned = [[outputs[r][i] for r in range(self._size)] for i in range(len(inputs))]
        return self.core.all_gather(turned, inputs, asked)

    @overloaded("output", "input")
    def all_gather_single(self, output: Any, tensor: Any, asked: Asked) -> MrcWork:
        """Copy every rank's into one tensor, one after the other."""
        return self._all_gather_single([output], [tensor], asked)

    _allgather_base = all_gather_into_tensor = all_gather_single

    @overloaded("outputs", "inputs")
    def all_gather_single_coalesced(self, outputs: Any, inputs: Any, asked: Asked) -> MrcWork:
        """Many at once."""
        return self._all_gather_single(outputs, inputs, asked)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def _all_gather_single(self, outputs: Any, inputs: Any, asked: Asked) -> MrcWork:
        _check_parts([outputs], len(inputs), "output", "there are {} inputs")
        parts = [_equal(t, self._size) for t in outputs]
        return self.core.all_gather(parts, inputs, asked)

    @overloaded("output_tensors|output", "input_tensors|input")
    def reduce_scatter(self, outputs: Any, inputs: Any, asked: Asked) -> MrcWork:
        """Reduce part r of all into rank r."""
        if isinstance(outputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]
        _check_parts(inputs, self._size, "input")
        return self.core.reduce_scatter(outputs, inputs, asked.op, asked)

    @overloaded("outputTensor|output", "inputTensor|input")
    def reduce_scatter_single(self, output: Any, tensor: Any, asked: Asked) -> MrcWork:
        """The same from one tensor that holds all parts one after the other."""
        return self._reduce_scatter_single([output], [tensor], asked)

    _reduce_scatter_base = reduce_scatter_tensor = reduce_scatter_single

    @overloaded("outputs", "inputs")
    def reduce_scatter_single_coalesced(self, outputs: Any, inputs: Any, asked: Asked) -> MrcWork:
        """Many at once."""
        return self._reduce_scatter_single(outputs, inputs, asked)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _reduce_scatter_single(self, outputs: Any, inputs: Any, asked: Asked) -> MrcWork:
        _check_parts([outputs], len(inputs), "output", "there are {} inputs")
        parts = [_equal(t, self._size) for t in inputs]
        return self.core.reduce_scatter(outputs, parts, asked.op, asked)

    @overloaded("output_tensors", "input_tensors|input_tensor")
    def gather(self, outputs: Any, inputs: Any, asked: Asked) -> MrcWork:
        """Copy every rank's to the root."""
        parts = self._at_root("gather: output", outputs, asked.root)
        return self.core.gather(parts, single("gather", inputs), asked.root, asked)

    @overloaded("output_tensors|output_tensor", "input_tensors")
    def scatter(self, outputs: Any, inputs: Any, asked: Asked) -> MrcWork:
        """Copy one of the root to each."""
        parts = self._at_root("scatter: input", inputs, asked.root)
        return self.core.scatter(single("scatter", outputs), parts, asked.root, asked)

    def _at_root(self, which: str, lists: Any, root: int) -> Any:
        """The root's list of tensors, one of each rank; others have none."""
        parts = lists[0] if len(lists) and not isinstance(lists[0], torch.Tensor) else lists
        if self._rank != root:
            return []
        _check_parts([parts], self._size, which)
        return parts

    @overloaded("output_tensors", "input_tensors")
    def alltoall(self, outputs: Any, inputs: Any, asked: Asked) -> MrcWork:
        """Copy tensor r to rank r."""
        _check_parts([outputs], self._size, "output")
        _check_parts([inputs], self._size, "input")
        return self.core.all_to_all(outputs, inputs, asked)

    def all_to_all_single(
        self,
        output: Any,
        input: Any,
        output_split_sizes: Any = None,
        input_split_sizes: Any = None,
        *given: Any,
        **named: Any,
    ) -> MrcWork:
        """The same with one tensor that is split along its first dimension."""
        opts = asked("all_to_all_single", list(given), named)
        into = _split(output, output_split_sizes, self._size)
        out = _split(input, input_split_sizes, self._size)
        return self.core.all_to_all(into, out, opts)

    alltoall_base = all_to_all_single

    @overloaded()
    def barrier(self, asked: Asked) -> MrcWork:
        """Wait for all ranks."""
        return self.core.barrier(asked)

    def monitored_barrier(
        self, timeout: timedelta | None = None, wait_all_ranks: bool = False
    ) -> None:
        """As `openmrc.torch.monitored.barrier`."""
        from openmrc.torch.monitored import barrier

        barrier(self.core, timeout, wait_all_ranks)

    # --- point to point

    def send(self, tensors: Any, dstRank: int, tag: int = 0) -> MrcWork:  # noqa: N803  C++'s names
        """Send to a rank of the group."""
        return self.core.send(single("send", tensors), dstRank, tag)

    def recv(self, tensors: Any, srcRank: int, tag: int = 0) -> MrcWork:  # noqa: N803
        """Receive from a rank of the group."""
        return self.core.receive(single("recv", tensors), srcRank, tag)

    def recv_anysource(self, tensors: Any, tag: int = 0) -> MrcWork:
        """Receive from any rank."""
        return self.core.receive(single("recv_anysource", tensors), None, tag)

    # --- other groups

    def split_group(
        self,
        ranks: Sequence[int],
        timeout: timedelta | None = None,
        opts: Any = None,
        group_name: str | None = None,
        group_desc: str | None = None,
    ) -> MrcProcessGroup | None:
        """Return the group of these ranks of this one; None at others."""
        if self._rank not in ranks:
            return None
        members = sorted(ranks)
        name = group_name or f"{self._name}:split:{','.join(map(str, members))}"
        part = MrcProcessGroup(
            dist.PrefixStore(f"{name}/", self._store),
            members.index(self._rank),
            len(members),
            timeout or timedelta(seconds=self.core.timeout_s),
            name,
            [self._world.ranks[self.core.ranks[rank]] for rank in members],
        )
        part._set_group_desc(group_desc or f"{self._desc}:split")
        return part

    def merge_remote_group(self, *_: Any, **__: Any) -> None:
        """Refuse: C++'s would crash, as it finds no backend of its own here."""
        raise InputError(
            "merge_remote_group: this backend cannot; create one group of all ranks,"
            " init_process_group"
        )

    # --- the end

    def shutdown(self) -> None:
        """Leave; the last group of a world closes the world."""
        self._leave(None)

    def abort(self) -> None:
        """Leave at once: what is posted fails, here and at all others."""
        self._leave({"failed": "it has called abort"})

    def _leave(self, said: dict[str, Any] | None) -> None:
        world = self._world
        if self._dropped.detach() is None or world.closed:
            return
        world.groups -= 1
        if world.groups <= 0 or said is not None:
            with contextlib.suppress(PeerError):
                world.close(said)
            if world in _worlds:
                _worlds.remove(world)


def _drop(world: World) -> None:
    """The last user of a group is gone. This may be called anywhere, by the collector of garbage,
    so that it only asks for what follows.
    """
    world.progress.do(partial(_left, world))


def _left(world: World) -> None:
    world.groups -= 1
    if world.groups <= 0 and world in _worlds:
        _worlds.remove(world)
        one = threading.Thread(target=world.close, name="mrc leaves", daemon=True)
        _leaving.append(one)
        one.start()


def leave_all() -> None:
    """Leave in order at exit, also without `destroy_process_group`."""
    for one in _leaving:
        one.join()
    while _worlds:
        world = _worlds.pop()
        world.close()
        if left := ", ".join(world.left_over):
            say(f"mrc: rank {world.ranks[world.rank]} has ended without waiting for {left}")


def _forget_all() -> None:
    """In a forked child, which is no rank of its parent's groups."""
    while _worlds:
        _worlds.pop().forget()


os.register_at_fork(after_in_child=_forget_all)


def _world_of(
    store: Any, rank: int, size: int, timeout_s: float, world_ranks: Sequence[int]
) -> tuple[World, list[int]]:
    """The world of a group, and its members' ranks there."""
    for world in _worlds:
        if world_ranks and not world.closed and set(world_ranks) <= set(world.ranks):
            return world, [world.ranks.index(r) for r in world_ranks]
    names = list(world_ranks) or list(range(size))
    turn = store.add(f"openmrc/{rank}/joined", 1)
    prefixed = dist.PrefixStore(f"openmrc/{turn}", store)
    world = World(prefixed, rank, names, timeout_s)
    _worlds.append(world)
    return world, list(range(size))


def create(opts: Any, pg_options: Any = None) -> MrcProcessGroup:
    """Create a group; torch calls this for every group (`extended_api`)."""
    return MrcProcessGroup(
        opts.store,
        opts.group_rank,
        opts.group_size,
        opts.timeout,
        str(opts.group_id),
        list(opts.global_ranks_in_group or ()),
    )


class InGloosPlace(MrcProcessGroup):
    """For scripts that name Gloo (`OPENMRC_AS=gloo`): torch constructs it as Gloo's group."""

    profiled_as = "gloo"

    def __init__(
        self, store: Any, rank: int, size: int, timeout: timedelta = timedelta(minutes=30)
    ) -> None:
        ranks: list[int] = []
        if dist.is_initialized():  # a subgroup: torch names its members only later
            own = dist.PrefixStore("openmrc/members", store)
            own.set(str(rank), str(dist.get_rank()))
            ranks = [int(own.get(str(r))) for r in range(size)]
        super().__init__(store, rank, size, timeout, "", ranks)


# --- tensors


def _check_parts(parts: Any, n: int, which: str, need: str = "the group has {} ranks") -> None:
    for each in parts:
        if len(each) != n:
            raise InputError(f"{which} list has {len(each)} tensors: {need.format(n)}")


def _equal(tensor: torch.Tensor, n: int) -> Whole:
    """A tensor's elements in n equal parts."""
    count = tensor.numel()
    if count % n:
        raise InputError(f"{count} elements cannot be divided among {n} ranks")
    return Whole(tensor, [count // n] * n)


def _split(tensor: torch.Tensor, sizes: Any, n: int) -> Whole:
    """A tensor split along its first dimension."""
    rows = tensor.shape[0]
    if not sizes:
        if rows % n:
            raise InputError(f"first dimension {rows}: cannot be divided among {n} ranks")
        sizes = [rows // n] * n
    if len(sizes) != n:
        raise InputError(f"splits {list(sizes)}: the group has {n} ranks, one for each is needed")
    if sum(sizes) != rows or min(sizes) < 0:
        raise InputError(f"splits {list(sizes)}: the first dimension has {rows}")
    each = tensor.numel() // max(rows, 1)
    return Whole(tensor, [each * size for size in sizes])
