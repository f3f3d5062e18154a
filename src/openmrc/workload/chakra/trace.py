"""MLCommons Chakra execution traces: a file per rank, `NAME.RANK.et`, of protobuf messages.

Each message is preceded by its length, as a varint; the first is the GlobalMetadata, the others are
nodes. A node begins when those that it names in `data_deps` and `ctrl_deps` are complete.

* COMP_NODE computes for `duration_micros`, on its stream (`stream`; `tid` with `is_cpu_op`), which
  runs one at a time; without a duration for `num_ops` at a stated rate. MEM_LOAD_NODE and
  MEM_STORE_NODE do too, if they have a duration.
* COMM_SEND_NODE and COMM_RECV_NODE move `comm_size` bytes to `comm_dst`, from `comm_src`, with
  `comm_tag`.
* COMM_COLL_NODE is a collective, see `chakra.collectives`.
* METADATA_NODE takes no time.

A communication of the host (`is_cpu_op`) that does not say what it moves is the host's part in that
of a device, and computes like a COMP_NODE.

The recorded duration of a communication does not apply here, and is ignored.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from openmrc.errors import InputError
from openmrc.fabric.words import NUMBER_MAX
from openmrc.reading import opened
from openmrc.traffic.traffic import LongArray, Traffic
from openmrc.units import US, S
from openmrc.workload import operations as ops
from openmrc.workload.chakra import schema
from openmrc.workload.chakra.collectives import (
    EXPANSION,
    Collective,
    Expansion,
    expand,
    read_groups,
)
from openmrc.workload.chakra.grid import Grid

MESSAGE_MAX = 1 << 26  # bytes of one node: operators' inputs as text can be long
RANKS_MAX = 1 << 20
_CHUNK = 1 << 20
_VARINT_MAX = 10  # bytes
_RANK = re.compile(r"(?:.*[^0-9])?([0-9]{1,7})\.et", re.ASCII | re.DOTALL)
# The converters write none, ASTRA-sim's generators 0.0.4, which has the same fields.
_VERSION = re.compile(r"(?:0\.0\.4|1\.[0-9.]+)?", re.ASCII)
# What a communication must say.
_MOVES = {
    schema.COMM_COLL: "comm_type",
    schema.COMM_SEND: "comm_dst",
    schema.COMM_RECV: "comm_src",
}
_INTEGERS = {f"{kind}_val" for kind in (
    "int32", "int64", "uint32", "uint64", "sint32", "sint64",
    "fixed32", "fixed64", "sfixed32", "sfixed64",
)}  # fmt: skip


def load_chakra(
    paths: Sequence[str | Path],
    n_nics: int,
    nics: LongArray | None = None,
    compute_scale: float = 1.0,
    expansion: Expansion = EXPANSION,
    groups: str | Path | None = None,
    compute_rate_ops: int | None = None,
    dimensions: Sequence[int] = (),
) -> Traffic:
    """Return the workload of a trace, one file for each rank, for a fabric of `n_nics` NICs.

    Rank r is NIC `nics[r]`, in order without `nics`. Computations take `compute_scale` times what
    the trace says, those without a time what their operations take at `compute_rate_ops` a second.
    `groups` names a JSON file of process groups: `{"0": [0, 1, 2, 3]}`; `dimensions` are the sizes
    of the grid in which ranks are numbered, the first fastest. Raises `InputError` with file and
    node, `MissingExtra` without protobuf.
    """
    files = by_rank(paths)
    nics = np.arange(n_nics) if nics is None else nics
    if len(files) > len(nics):
        raise InputError(
            f"{files[0]}: {len(files)} ranks on {len(nics)} NICs; take a larger fabric"
        )
    members = {} if groups is None else read_groups(groups, len(files))
    grid = Grid(tuple(dimensions), len(files))
    reader = _Reader(files, compute_scale, compute_rate_ops, grid)
    for rank in range(len(files)):
        reader.read(rank)
    messages = expand(
        reader.collectives, members, grid.members, len(files), expansion, reader.place
    )
    return ops.to_traffic("chakra", n_nics, nics, reader.ops, files[0], messages)


def by_rank(paths: Sequence[str | Path]) -> list[str]:
    """Return the files in the order of the ranks in their names: `NAME.3.et` is rank 3's."""
    ranks: dict[int, str] = {}
    for path in map(str, paths):
        found = _RANK.fullmatch(Path(path).name)
        if found is None:
            raise InputError(f"{path}: a trace's name ends in its rank, such as trace.0.et")
        if int(found[1]) in ranks:
            raise InputError(f"{path}: rank {int(found[1])} has {ranks[int(found[1])]} already")
        ranks[int(found[1])] = path
    if not ranks:
        raise InputError("workload.traces: no file; a file for each rank is needed, trace.0.et ...")
    missing = next((rank for rank in range(len(ranks)) if rank not in ranks), None)
    if missing is not None:
        raise InputError(
            f"{ranks[max(ranks)]}: rank {max(ranks)}, but rank {missing} has no file; name all"
            " ranks from 0"
        )
    return [ranks[rank] for rank in range(len(ranks))]


class _Reader:
    """Reads one rank after the other; of a node only its operations are kept."""

    def __init__(
        self, files: Sequence[str], scale: float, rate_ops: int | None, grid: Grid
    ) -> None:
        self.files = files
        self.scale = scale
        self.rate_ops = rate_ops
        self.grid = grid
        self.schema = schema.schema()
        self.ops = ops.Operations(len(files), self.place)
        self.node = array("Q")  # of each operation
        self.type = array("b")
        self.first: list[int] = []  # operation of each rank
        self.cores: dict[tuple[int, bool, int], int] = {}
        self.collectives: list[Collective] = []

    def place(self, operation: int) -> str:
        rank = bisect_right(self.first, operation) - 1
        kind = schema.NODE_TYPES[self.type[operation]]
        return f"{self.files[rank]}: node {self.node[operation]} ({kind})"

    def read(self, rank: int) -> None:
        path = self.files[rank]
        self.first.append(len(self.node))
        with opened(path, "a Chakra trace") as file:
            messages = delimited(file, path)
            self._metadata(path, next(messages, None))
            self._nodes(rank, path, messages)

    def _metadata(self, path: str, message: bytes | None) -> None:
        if message is None:
            raise InputError(f"{path}: nothing in it; name a Chakra trace")
        try:
            version = self.schema.GlobalMetadata.FromString(message).version
        except self.schema.DecodeError:
            raise InputError(
                f"{path}: does not begin with the metadata of a Chakra trace; name one (.et)"
            ) from None
        if not _VERSION.fullmatch(version):
            raise InputError(
                f"{path}: schema version {version[:40]!r}; 0.0.4 and 1.x are accepted, convert"
                " other traces"
            )

    def _nodes(self, rank: int, path: str, messages: Iterator[bytes]) -> None:
        done: dict[int, int] = {}  # the last operation of a node, by id
        later, earlier = array("q"), array("Q")  # operation, id
        parse, refused = self.schema.Node.FromString, self.schema.DecodeError
        for number, message in enumerate(messages, start=1):
            try:
                node = parse(message)
            except refused:
                raise InputError(
                    f"{path}: message {number} is no node; the file is damaged, or no trace"
                ) from None
            if node.id in done:
                raise InputError(
                    f"{path}: node {node.id} is defined twice; ids are unique in a file"
                )
            begin = len(self.node)
            end = self._node(rank, path, node)
            done[node.id] = end
            self.node.extend([node.id] * (end + 1 - begin))
            self.type.extend([node.type] * (end + 1 - begin))
            for deps in (node.data_deps, node.ctrl_deps):
                if deps:
                    later.extend([begin] * len(deps))
                    earlier.extend(deps)
            if len(self.node) > ops.OPERATIONS_MAX:
                raise InputError(f"{path}: {ops.OPERATIONS_MAX} operations are accepted at most")
        self.ops.after.extend(later)
        try:
            self.ops.before.extend(map(done.__getitem__, earlier))
        except KeyError as error:
            i = list(earlier).index(error.args[0])
            raise InputError(
                f"{self.place(later[i])}: waits for node {earlier[i]}, which is not in the file"
            ) from None

    def _node(self, rank: int, path: str, node: Any) -> int:
        """Append a node's operations; return its last one."""
        kind = node.type
        if not schema.METADATA <= kind <= schema.COMM_COLL:
            name = schema.NODE_TYPES[0] if kind == 0 else f"type {kind}"
            raise InputError(
                f"{path}: node {node.id} ({name}): {', '.join(schema.NODE_TYPES[1:])} are accepted"
            )
        add = self.ops.add
        if kind == schema.METADATA:
            return add(ops.CALC, 0, 0)
        attributes = _Attributes(f"{path}: node {node.id} ({schema.NODE_TYPES[kind]})", node.attr)
        silent = kind in _MOVES and not attributes.has(_MOVES[kind])
        if kind not in _MOVES or (silent and attributes.flag("is_cpu_op")):
            return self._computation(rank, node, kind, attributes)
        if attributes.integer("comm_priority", 0):
            raise attributes.refused("comm_priority", "messages have no priorities here; remove it")
        if kind == schema.COMM_COLL:
            begin, end = add(ops.CALC, 0, 0), add(ops.CALC, 0, 0)
            self.ops.wait(end, begin)
            self.collectives.append(self._collective(rank, begin, end, attributes))
            return end
        key = "comm_dst" if kind == schema.COMM_SEND else "comm_src"
        peer = attributes.integer(key)
        if peer >= len(self.files):
            raise attributes.refused(key, f"{peer}; ranks 0 to {len(self.files) - 1} exist")
        if peer == rank:
            raise attributes.refused(key, f"{peer} is the rank itself; take a COMP_NODE")
        own = "comm_src" if kind == schema.COMM_SEND else "comm_dst"
        if attributes.integer(own, rank) != rank:
            raise attributes.refused(own, f"this is the trace of rank {rank}")
        size, tag = attributes.integer("comm_size"), attributes.integer("comm_tag", 0)
        return add(ops.SEND if kind == schema.COMM_SEND else ops.RECV, size, rank, peer, tag)

    def _computation(self, rank: int, node: Any, kind: int, attributes: _Attributes) -> int:
        micros = node.duration_micros
        if not micros:
            if kind in (schema.MEM_LOAD, schema.MEM_STORE):
                raise InputError(
                    f"{attributes.place}: no duration_micros; memory is not simulated, only time is"
                )
            count = attributes.integer("num_ops", 0)
            if count and self.rate_ops is None:
                raise attributes.refused(
                    "num_ops",
                    "and the node has no duration_micros; set workload.compute_rate, such as"
                    ' "400TOPS"',
                )
            if not count:
                return self.ops.add(ops.CALC, 0, 0)
        on_cpu = attributes.flag("is_cpu_op")
        stream = attributes.integer("tid" if on_cpu else "stream", 0, least=-(1 << 63))
        core = self.cores.setdefault((rank, on_cpu, stream), len(self.cores))
        if micros or self.rate_ops is None:
            ps = ops.picoseconds(attributes.place, micros, US, self.scale)
        else:
            ps = ops.picoseconds(attributes.place, count * S // self.rate_ops, 1, self.scale)
        return self.ops.add(ops.CALC, ps, core)

    def _collective(self, rank: int, begin: int, end: int, attributes: _Attributes) -> Collective:
        what = attributes.integer("comm_type")
        if what >= len(schema.COLLECTIVES):
            raise attributes.refused(
                "comm_type", f"{what}; 0 to {len(schema.COLLECTIVES) - 1} exist"
            )
        group = attributes.value("pg_name", ("string_val",)) or ""
        dims = attributes.value("involved_dim", ("bool_list",))
        if dims is not None and not group:
            try:
                group = self.grid.group(rank, list(dims.values))
            except InputError as error:
                raise attributes.refused("involved_dim", str(error)) from None
        barrier = schema.COLLECTIVES[what] == "BARRIER"
        size = attributes.integer("comm_size", 0 if barrier else None)
        return Collective(
            rank, begin, end, schema.COLLECTIVES[what], 0 if barrier else size, str(group)
        )


class _Attributes:
    """The attributes of a node, read and refused by name."""

    def __init__(self, place: str, attributes: Any) -> None:
        self.place = place
        self._named = {attribute.name: attribute for attribute in attributes}

    def refused(self, name: str, why: str) -> InputError:
        return InputError(f"{self.place}: attribute {name}: {why}")

    def has(self, name: str) -> bool:
        """Whether the node has this attribute."""
        return name in self._named

    def value(self, name: str, kinds: Sequence[str] | set[str]) -> Any:
        """Return the value, or None without the attribute."""
        attribute = self._named.get(name)
        if attribute is None:
            return None
        kind = attribute.WhichOneof("value")
        if kind not in kinds:
            accepted = "an integer" if kinds is _INTEGERS else " or ".join(kinds)
            raise self.refused(name, f"its value is {kind or 'another'}; {accepted} is accepted")
        return getattr(attribute, kind)

    def integer(self, name: str, default: int | None = None, least: int = 0) -> int:
        """Return an integer; without a default it must be present."""
        value = self.value(name, _INTEGERS)
        if value is None:
            value = default
        if value is None:
            raise self.refused(name, "is missing, and it is needed")
        if not least <= value <= NUMBER_MAX:
            raise self.refused(
                name, f"{value} is out of range; {least} to {NUMBER_MAX} is accepted"
            )
        return int(value)

    def flag(self, name: str) -> bool:
        """Return a boolean; false without the attribute."""
        return bool(self.value(name, ("bool_val",)))


def delimited(file: BinaryIO, path: str) -> Iterator[bytes]:
    """Yield the messages of a file in which each is preceded by its length; a chunk at a time."""
    data, at, offset, more = b"", 0, 0, True  # `data` is at `offset` of the file, used up to `at`
    while True:
        if more and len(data) - at < _VARINT_MAX:
            offset += at
            chunk = file.read(_CHUNK)
            data, at, more = data[at:] + chunk, 0, bool(chunk)
        if at == len(data):
            return
        length, begin = _varint(data, at)
        if begin < 0:
            raise InputError(
                f"{path}: byte {offset + at}: no length of a message; the file is damaged, or no"
                " trace"
            )
        if length > MESSAGE_MAX:
            raise InputError(
                f"{path}: byte {offset + at}: a message of {length} B; at most {MESSAGE_MAX} B are"
                " accepted"
            )
        if begin + length > len(data):
            data += file.read(begin + length - len(data) + _CHUNK)
        if begin + length > len(data):
            raise InputError(
                f"{path}: byte {offset + at}: a message of {length} B, but the file ends before; it"
                " is not complete"
            )
        yield data[begin : begin + length]
        at = begin + length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at `at`, and where it ends; -1 if it does not."""
    value = 0
    for i in range(at, min(at + _VARINT_MAX, len(data))):
        value |= (data[i] & 0x7F) << 7 * (i - at)
        if data[i] < 0x80:
            return value, i + 1
    return 0, -1
