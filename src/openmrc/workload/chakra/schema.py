"""The messages of MLCommons Chakra execution traces, schema 1.0, as far as they are read.

Names and numbers are those of the published `et_def.proto`. Omitted fields (inputs and outputs of
operators, lists of values) are skipped when a trace is read, as protobuf does with unknown ones.
Enumerations are plain integers, so that a number without a name is seen.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from openmrc.errors import MissingExtra

PACKAGE = "ChakraProtoMsg"
INVALID, METADATA, MEM_LOAD, MEM_STORE, COMP, COMM_SEND, COMM_RECV, COMM_COLL = range(8)
NODE_TYPES = (
    "INVALID_NODE",
    "METADATA_NODE",
    "MEM_LOAD_NODE",
    "MEM_STORE_NODE",
    "COMP_NODE",
    "COMM_SEND_NODE",
    "COMM_RECV_NODE",
    "COMM_COLL_NODE",
)
COLLECTIVES = (
    "ALL_REDUCE",
    "REDUCE",
    "ALL_GATHER",
    "GATHER",
    "SCATTER",
    "BROADCAST",
    "ALL_TO_ALL",
    "REDUCE_SCATTER",
    "REDUCE_SCATTER_BLOCK",
    "BARRIER",
)

# message: field: its number, type, whether it is repeated, and whether it is one of `value`
_Field = tuple[int, str, bool, bool]
_MESSAGES: dict[str, dict[str, _Field]] = {
    "BoolList": {"values": (1, "bool", True, False)},
    "AttributeProto": {
        "name": (1, "string", False, False),
        **{
            f"{kind}_val": (number, kind, False, True)
            for number, kind in (
                (3, "double"),
                (5, "float"),
                (7, "int32"),
                (9, "int64"),
                (11, "uint32"),
                (13, "uint64"),
                (15, "sint32"),
                (17, "sint64"),
                (19, "fixed32"),
                (21, "fixed64"),
                (23, "sfixed32"),
                (25, "sfixed64"),
                (27, "bool"),
            )
        },
        "bool_list": (28, "BoolList", False, True),
        "string_val": (29, "string", False, True),
        "bytes_val": (31, "bytes", False, True),
    },
    "GlobalMetadata": {
        "version": (1, "string", False, False),
        "attr": (2, "AttributeProto", True, False),
    },
    "Node": {
        "id": (1, "uint64", False, False),
        "name": (2, "string", False, False),
        "type": (3, "int32", False, False),
        "ctrl_deps": (4, "uint64", True, False),
        "data_deps": (5, "uint64", True, False),
        "duration_micros": (7, "uint64", False, False),
        "attr": (10, "AttributeProto", True, False),
    },
}


class Schema(NamedTuple):
    """The classes of the messages, and the error that decoding them raises."""

    GlobalMetadata: Any
    Node: Any
    AttributeProto: Any
    BoolList: Any
    DecodeError: type[Exception]


@cache
def schema() -> Schema:
    """Return the classes; raise `MissingExtra` without protobuf."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory
    except ImportError:
        raise MissingExtra("reading Chakra traces", "traces") from None
    file = descriptor_pb2.FileDescriptorProto(
        name="openmrc/chakra.proto", package=PACKAGE, syntax="proto3"
    )
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in _MESSAGES.items():
        described = file.message_type.add(name=name)
        for field, (number, kind, repeated, one_of) in fields.items():
            made = described.field.add(name=field, number=number)
            made.label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            if kind in _MESSAGES:
                made.type, made.type_name = kinds.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
            else:
                made.type = getattr(kinds, f"TYPE_{kind.upper()}")
            if one_of:
                made.oneof_index = 0
        if any(one_of for *_, one_of in fields.values()):
            described.oneof_decl.add(name="value")
    pool = descriptor_pool.DescriptorPool()  # a separate one: another may hold the whole schema
    pool.Add(file)
    classes = {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))
        for name in _MESSAGES
    }
    return Schema(**classes, DecodeError=message.DecodeError)
