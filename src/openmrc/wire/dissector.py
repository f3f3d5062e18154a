"""The Wireshark dissector `mrc.lua`: its path, and its tables, which are generated from `layout`.

Its code is written by hand in `mrc.lua` beside this file; `path` puts the tables between its two
markers (see `generated`). A field is called `mrc.HEADER.FIELD`, in lower case, with the names of
`layout`; reserved fields are `reserved1` and so on. Every field is a number: versions of Wireshark
print booleans differently.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from openmrc.engine import packet
from openmrc.jit.cache import root as cache_root
from openmrc.wire import frame, icrc, layout
from openmrc.wire.generated import replace_parts
from openmrc.wire.layout import Field, Header
from openmrc.wire.view import HEXADECIMAL

# headers after UDP: Wireshark knows those before
HEADERS = layout.HEADERS[layout.HEADERS.index(layout.BTH) :]
SHORT_FORMS = {"opcode": "opcode", "qpn": "dest_qpn", "rtx": "rtx"}  # of the BTH
_ERRORS = (
    "TOO_SHORT",
    "OPCODE",
    "TRANSPORT_VERSION",
    "EXTENSION_LENGTH",
    "FTYPE",
    "PAD",
    "PAYLOAD_LENGTH",
    "ICRC",
)


def path() -> Path:
    """Return the dissector's file, for `tshark -X lua_script:FILE`; the call writes it to openmrc's
    cache directory.
    """
    file = cache_root() / "mrc.lua"
    code = Path(__file__).with_name("mrc.lua").read_text(encoding="utf-8")
    text = replace_parts(code, {"tables": tables()})
    if not file.exists() or file.read_text(encoding="utf-8") != text:
        file.parent.mkdir(parents=True, exist_ok=True)
        own = file.with_name(f"mrc.{os.getpid()}.lua")  # readers never see a partial file
        own.write_text(text, encoding="utf-8")
        own.replace(file)
    return file


def tables() -> str:
    """Return the Lua tables: names of values, fields by header, extensions, errors, constants."""
    blocks = [
        _constants(),
        "\n".join(f"local {name} = {_names(table)}" for name, table in _name_tables().items()),
        *(_header(header) for header in HEADERS),
        f"local HEADERS = {{ {', '.join(map(_variable, HEADERS))} }}",
        "local SHORT_FORMS = {\n" + "\n".join(_short_forms()) + "\n}",
        "-- what follows the BTH\nlocal EXTENSIONS = {\n" + "\n".join(_extensions()) + "\n}",
        "local ERRORS = {\n" + "\n".join(_errors()) + "\n}",
    ]
    return "\n".join(blocks) + "\n"


def _constants() -> str:
    return "\n".join(
        (
            f'local UDP_PORTS = "{layout.UDP_PORT},{layout.UDP_PORT_ALTERNATIVE}"',
            f"local DSCP_NO_TRIM = {layout.DSCP_NO_TRIM} -- a fabric's own are preferences",
            f"local DSCP_TRIMMED = {layout.DSCP_TRIMMED}",
            f"local DSCP_TRIMMED_LASTHOP = {layout.DSCP_TRIMMED_LASTHOP}",
            f"local ECN_CE = {layout.ECN_CE}",
            f"local FTYPE_TIMESTAMP, FTYPE_NONE = {layout.FTYPE_TIMESTAMP}, {layout.FTYPE_NONE}",
            f"local PSNS = {packet.PSN_MASK + 1} -- modulus",
            f"local UDP_BYTES = {layout.UDP.size_bytes}",
            f"local MPR_UNIT = {packet.MPR_UNIT}",
            f"local MAX_PAYLOAD = {layout.PAYLOAD_BYTES_MAX}",
            "-- bits that the iCRC takes as ones, from the IP header on",
            f"local MASK_IPV6 = {_bytes(icrc.MASK_IPV6)}",
            f"local MASK_IPV4 = {_bytes(icrc.MASK_IPV4)}",
        )
    )


def _header(header: Header) -> str:
    rows = "\n".join(
        f'  {{ "{name}", {bit}, {field.bits}, {_proto_field(header.name, name, bit, field)} }},'
        for name, bit, field in named_fields(header)
    )
    name, title = _text(header.name), _text(header.title)
    return (
        f"local {_variable(header)} = {{\n"
        f"  name = {name}, title = {title}, size = {header.size_bytes},\n{rows}\n}}"
    )


def named_fields(header: Header) -> Iterator[tuple[str, int, Field]]:
    """Yield (unique name, offset in bits, field): reserved fields are numbered from 1."""
    bit, reserved = 0, 0
    for field in header.fields:
        name = field.name
        if name == layout.RESERVED:
            reserved += 1
            name = f"{name}{reserved}"
        yield name, bit, field
        bit += field.bits


def _short_forms() -> Iterator[str]:
    where = {name: (bit, field) for name, bit, field in named_fields(layout.BTH)}
    for short, name in SHORT_FORMS.items():
        bit, field = where[name]
        proto = _proto_field("", short, bit, field)
        yield f'  {{ "{name}", {bit}, {field.bits}, {proto} }},'


def _extensions() -> Iterator[str]:
    for opcode, following in layout.EXTENSIONS.items():
        yield f"  [0x{opcode:02X}] = {{ {', '.join(map(_variable, following))} }},"


def _errors() -> Iterator[str]:
    for name in _ERRORS:
        group = "CHECKSUM" if name == "ICRC" else "PROTOCOL"
        text = _text(frame.REASONS[getattr(frame, name)])
        yield (
            f'  {name} = {{ {text}, ProtoExpert.new("mrc.error.{name.lower()}", {text},'
            f" expert.group.{group}, expert.severity.ERROR) }},"
        )


def _proto_field(header: str, name: str, bit: int, field: Field) -> str:
    """Return the constructor of one ProtoField, with a mask if it does not fill whole bytes."""
    filter_name = ".".join(part for part in ("mrc", header.lower(), name) if part)
    meaning = _text(field.meaning) if field.meaning else "nil"
    n_bytes = (bit % 8 + field.bits + 7) // 8
    if field.bits > 64 or n_bytes in (5, 6, 7):
        return f'ProtoField.bytes("{filter_name}", "{name}", base.NONE, {meaning})'
    kind = f"{'int' if field.signed else 'uint'}{8 * n_bytes}"
    shown = "base.HEX" if field.name in HEXADECIMAL else "base.DEC"
    mask = ((1 << field.bits) - 1) << (8 * n_bytes - bit % 8 - field.bits)
    masked = "nil" if field.bits == 8 * n_bytes else f"0x{mask:0{2 * n_bytes}X}"
    arguments = [f'"{filter_name}"', f'"{name}"', shown, _name_of(field.names), masked, meaning]
    while arguments[-1] == "nil":
        arguments.pop()
    return f"ProtoField.{kind}({', '.join(arguments)})"


def _name_tables() -> dict[str, Mapping[int, str]]:
    """Return every table of named values by its variable, each table once."""
    found: dict[str, Mapping[int, str]] = {}
    for header in HEADERS:
        for field in header.fields:
            if field.names and field.names not in found.values():
                found[f"{field.name.upper()}_NAMES"] = field.names
    return found


def _name_of(names: Mapping[int, str]) -> str:
    return next((name for name, table in _name_tables().items() if table == names), "nil")


def _names(names: Mapping[int, str]) -> str:
    return "{ " + ", ".join(f"[{value}] = {_text(name)}" for value, name in names.items()) + " }"


def _variable(header: Header) -> str:
    return header.name.upper()


def _text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _bytes(mask: Any) -> str:
    return "{ " + ", ".join(str(byte) for byte in bytes(mask).rstrip(b"\0")) + " }"


if __name__ == "__main__":
    print(path())
