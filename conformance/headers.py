"""The layouts for other languages: a C header, and a JSON schema of the vector files.

Both are made from `openmrc.wire.layout`, by `generate.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from openmrc.engine import packet
from openmrc.fabric.dscp import TRIM_LENGTHS, Dscps
from openmrc.fabric.usid import BLOCK_BITS, USID_BITS
from openmrc.wire import frame, layout
from openmrc.wire.layout import Field, Header

JSON_BITS = 53  # numbers of more bits are text
CODES = [
    name
    for number in range(1, len(frame.REASONS))
    for name, value in vars(frame).items()
    if name.isupper() and isinstance(value, int) and value == number
]

# What fields may say: the code of what is wrong otherwise, and the values.
ALLOWED: dict[str, tuple[str, Iterable[int]]] = {
    "Ethernet.ethertype": ("ETHERTYPE", layout.ETHERTYPES),
    "IPv6.version": ("IP_VERSION", [6]),
    "IPv6.next_header": ("NEXT_HEADER", layout.PROTOCOLS),
    "SRH.next_header": ("NEXT_HEADER", [layout.PROTOCOL_IPV6]),
    "SRH.hdr_ext_len": ("ROUTING", [layout.SRH.size_bytes // 8 - 1]),
    "SRH.routing_type": ("ROUTING", [layout.ROUTING_SEGMENT]),
    "SRH.segments_left": ("ROUTING", [0, 1]),
    "SRH.last_entry": ("ROUTING", [0]),
    "IPv4.version": ("IP_VERSION", [4]),
    "IPv4.ihl": ("IP_HEADER_LENGTH", [layout.IPV4.size_bytes // 4]),
    "IPv4.ip_flags": ("FRAGMENT", [0, 2, 4, 6]),  # the low bit: more fragments
    "IPv4.fragment_offset": ("FRAGMENT", [0]),
    "IPv4.protocol": ("NEXT_HEADER", [layout.PROTOCOL_UDP]),
    "UDP.dst_port": ("UDP_PORT", [layout.UDP_PORT, layout.UDP_PORT_ALTERNATIVE]),
    "BTH.opcode": ("OPCODE", layout.OPCODES),
    "BTH.tver": ("TRANSPORT_VERSION", [0]),
}
LENGTHS = {
    "IPv6.payload_length": ("IP_LENGTH", "MRC_COUNTS_BEHIND"),
    "IPv4.total_length": ("IP_LENGTH", "MRC_COUNTS_ALL"),
    "UDP.length": ("UDP_LENGTH", "MRC_COUNTS_ALL"),
}


def c_header() -> str:
    """Return `mrc.h`: places and names of all fields, what follows which opcode, codes."""
    blocks = [
        _INTRODUCTION,
        "\n".join(_constants()),
        *("\n".join(_header(header)) for header in layout.HEADERS),
        "\n".join(_ones()),
        "\n".join(_extensions()),
        "#endif",
    ]
    return "\n\n".join(blocks) + "\n"


_INTRODUCTION = """\
/* MRC on the wire, made from openmrc's layouts by conformance/generate.py; edit those.

   A field is the number of its first bit in the header, the first on the wire being 0, and its
   width: mrc_get(bytes, MRC_BTH_OPCODE) is the opcode, and
   mrc_put writes it. Fields wider than 64 bits are addresses. The tables of fields have all that
   a decoder looks at in their order on the wire: what a field may say, and the code of `MRC_CODES`
   with which a frame that says otherwise is refused. */
#ifndef MRC_H
#define MRC_H

#include <stddef.h>
#include <stdint.h>

#define MRC_END 0xFFFF /* of a list of values */
enum mrc_counts { MRC_COUNTS_NOTHING, MRC_COUNTS_ALL, MRC_COUNTS_BEHIND };

struct mrc_field {
	const char *name;
	uint16_t bit, bits;
	uint8_t is_signed;
	uint8_t refused;         /* the code, if it says what it may not; 0: it may say anything */
	const uint16_t *allowed; /* values up to MRC_END, or NULL */
	enum mrc_counts counts;  /* bytes up to the packet's end: with its header, or behind that */
};
struct mrc_header { const char *name; size_t bytes; const struct mrc_field *fields; };

static inline uint64_t mrc_get(const uint8_t *header, unsigned bit, unsigned bits)
{
	uint64_t value = 0;
	for (unsigned i = bit; i < bit + bits; i++)
		value = value << 1 | (header[i / 8] >> (7 - i % 8) & 1);
	return value;
}

static inline void mrc_put(uint8_t *header, unsigned bit, unsigned bits, uint64_t value)
{
	for (unsigned i = bit + bits; i-- > bit; value >>= 1)
		header[i / 8] = (header[i / 8] & ~(1 << (7 - i % 8))) | (value & 1) << (7 - i % 8);
}

static inline int mrc_may_say(const struct mrc_field *field, uint64_t value)
{
	const uint16_t *one = field->allowed;
	while (one && *one != MRC_END && *one != value)
		one++;
	return !one || *one != MRC_END;
}

/* RFC 1071: with its checksum in it an IPv4 header, which has no options, sums up to ones */
static inline int mrc_ipv4_sum_is_right(const uint8_t *header)
{
	uint32_t sum = 0;
	for (int i = 0; i < 20; i += 2)
		sum += header[i] << 8 | header[i + 1];
	return sum % 0xFFFF == 0;
}"""

_ICRC = """
/* The iCRC of a packet of `n` bytes from its inner IP header on, without the iCRC itself */
static inline uint32_t mrc_icrc(const uint8_t *packet, size_t n)
{
	int v6 = packet[0] >> 4 == 6;
	const uint8_t *ones = v6 ? MRC_ICRC_ONES_IPV6 : MRC_ICRC_ONES_IPV4;
	size_t masked = v6 ? sizeof MRC_ICRC_ONES_IPV6 : sizeof MRC_ICRC_ONES_IPV4;
	uint32_t sum = 0xFFFFFFFF;
	for (size_t i = 0; i < 8 + n; i++) { /* eight bytes of ones stand before it */
		sum ^= i < 8 ? 0xFF : packet[i - 8] | (i - 8 < masked ? ones[i - 8] : 0);
		for (int bit = 0; bit < 8; bit++)
			sum = sum >> 1 ^ (sum & 1 ? 0xEDB88320 : 0);
	}
	return ~sum;
}"""


def _define(name: str, value: object) -> str:
    return f"#define MRC_{name} {value}"


def _constants() -> Iterator[str]:
    yield _define("UDP_PORT", layout.UDP_PORT)
    yield _define("UDP_PORT_ALTERNATIVE", layout.UDP_PORT_ALTERNATIVE)
    yield _define("PAYLOAD_BYTES_MAX", layout.PAYLOAD_BYTES_MAX)
    yield _define("CARRIER_USID", f"{layout.IPV6.bit('dst') + BLOCK_BITS}, {USID_BITS}")
    yield _define("ENDPOINT_QPN", packet.ENDPOINT_QPN)
    yield _define("FTYPE_NONE", layout.FTYPE_NONE)
    yield _define("FTYPE_TIMESTAMP", layout.FTYPE_TIMESTAMP)
    for front, names in (
        ("ETHERTYPE", layout.ETHERTYPES),
        ("PROTOCOL", layout.PROTOCOLS),
        ("OP", layout.OPCODES),
        ("NACK", layout.NACK_REASONS),
        ("M", layout.SKIPS),
        ("ENDPOINT", layout.ENDPOINT_OPS),
        ("AETH", layout.SYNDROMES),
        ("DSCP", layout.DSCPS),
        ("ECN", layout.ECNS),
    ):
        yield f"/* {front} */"
        for value, name in names.items():
            word = "".join(c if c.isalnum() else "_" for c in name.upper()).strip("_")
            yield _define(f"{front}_{word}", f"0x{value:02X}")
    yield "/* why a frame is refused */"
    yield "static const char *const MRC_CODES[] = {"
    yield f'\t"OK", {", ".join(json.dumps(code) for code in CODES)},'
    yield "};"
    yield "enum mrc_code { MRC_OK, " + ", ".join(f"MRC_E_{code}" for code in CODES) + " };"


def _header(header: Header) -> Iterator[str]:
    name = header.name.upper()
    yield f"/* {header.title}; {header.source} */"
    at, rows = 0, []
    for field in header.fields:
        if field.name != layout.RESERVED:
            yield _define(f"{name}_{field.name.upper()}", f"{at}, {field.bits}")
            signed, check = int(field.signed), _check(header, field)
            rows.append(f'\t{{"{field.name}", {at}, {field.bits}, {signed}, {check}}},')
        at += field.bits
    yield f"static const struct mrc_field MRC_{name}_FIELDS[] = {{"
    yield from rows
    yield "\t{NULL, 0, 0, 0, 0, NULL, 0},\n};"
    yield (
        f"static const struct mrc_header MRC_{name} ="
        f' {{"{header.name}", {header.size_bytes}, MRC_{name}_FIELDS}};'
    )


def _check(header: Header, field: Field) -> str:
    """What a decoder asks of a field: the last three members of its `mrc_field`."""
    if length := LENGTHS.get(f"{header.name}.{field.name}"):
        return f"MRC_E_{length[0]}, NULL, {length[1]}"
    code, values = ALLOWED.get(f"{header.name}.{field.name}", ("", ()))
    if field.name == "ftype":
        code, values = "FTYPE", field.names
    if not code:
        return "0, NULL, 0"
    listed = ", ".join(map(str, values))
    return f"MRC_E_{code}, (const uint16_t[]){{{listed}, MRC_END}}, 0"


def _ones() -> Iterator[str]:
    yield "/* Bits that the iCRC takes as ones, from the IP header it begins with to the BTH */"
    for ip, names in (
        (layout.IPV6, ("dscp", "ecn", "flow_label", "hop_limit")),
        (layout.IPV4, ("dscp", "ecn", "ttl", "header_checksum")),
    ):
        size = ip.size_bytes + layout.UDP.size_bytes + layout.BTH.size_bytes
        bits, start = 0, 0
        for header, masked in ((ip, names), (layout.UDP, ["checksum"]), (layout.BTH, ["reserved"])):
            for name in masked:
                width, first = header.field(name).bits, 8 * start + header.bit(name)
                bits |= (1 << width) - 1 << 8 * size - first - width
            start += header.size_bytes
        listed = ", ".join(f"0x{byte:02X}" for byte in bits.to_bytes(size, "big"))
        yield f"static const uint8_t MRC_ICRC_ONES_{ip.name.upper()}[{size}] = {{\n\t{listed},\n}};"
    yield _ICRC


def _extensions() -> Iterator[str]:
    yield "/* what follows the BTH, up to a NULL; the TSETH of data only if BTH.ts is 1 */"
    yield "static const struct mrc_header *const *mrc_extensions(unsigned opcode)"
    yield "{"
    cases: dict[str, list[int]] = {}
    for opcode, headers in layout.EXTENSIONS.items():
        listed = ", ".join(f"&MRC_{h.name.upper()}" for h in headers)
        cases.setdefault(listed, []).append(opcode)
    for number, listed in enumerate(cases):
        yield f"\tstatic const struct mrc_header *const chain{number}[] = {{{listed}, NULL}};"
    yield "\tswitch (opcode) {"
    for number, opcodes in enumerate(cases.values()):
        yield (
            "".join(f"\tcase 0x{opcode:02X}:\n" for opcode in opcodes)
            + f"\t\treturn chain{number};"
        )
    yield "\t}\n\treturn NULL;\n}"


def schema() -> dict[str, Any]:
    """Return the JSON schema of a file of vectors."""
    text = {"type": "string"}
    hexadecimal = {"type": "string", "pattern": "^([0-9a-f]{2})*$"}
    natural = {"type": "integer", "minimum": 0}
    headers = {header.name: _object(header) for header in layout.HEADERS}
    headers["outer IPv6"] = headers["IPv6"]
    dscps = {name: _number(6) for name in Dscps._fields}
    first = {"name": text, "shows": text, "ev_swapped": {"const": True}, "frame": hexadecimal}
    first["dscps"] = _closed(dscps, dscps)
    good = {
        "canonical": {"type": "boolean"},
        "trimmed_from": text,
        "trim_lengths": {"enum": TRIM_LENGTHS[1:]},
        "switched_from": text,
        "at_usid": _number(16),
        "link_usid": _number(16),
        "headers": {"type": "object", "properties": headers, "additionalProperties": False},
        "ev": _number(32),
        "trimmed": {"type": "boolean"},
        "icrc_ok": {"enum": [True, None]},
        "payload_at": natural,
        "payload_length": {**natural, "maximum": layout.PAYLOAD_BYTES_MAX},
    }
    why = {"code": {"enum": CODES}, "offset": natural}
    refused = {"refused": _closed(why, why)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Test vectors of the wire format of MRC",
        "type": "array",
        "items": {
            "oneOf": [
                _closed({**first, **good}, [k for k in (*first, *good) if k not in OPTIONAL]),
                _closed({**first, **refused}, [k for k in (*first, *refused) if k not in OPTIONAL]),
            ]
        },
    }


OPTIONAL = (
    *("ev_swapped", "dscps", "trimmed_from", "trim_lengths"),
    *("switched_from", "at_usid", "link_usid"),
)


def _closed(properties: dict[str, Any], required: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def _object(header: Header) -> dict[str, Any]:
    fields = {f.name: _value(header, f) for f in header.fields if f.name != layout.RESERVED}
    return {"description": header.title, **_closed(fields, fields)}


def _value(header: Header, field: Field) -> dict[str, Any]:
    """Return what a field's value is in the files, as `generate._value` writes it."""
    about = {"description": field.meaning} if field.meaning else {}
    if field.bits == 48:
        return {**about, "type": "string", "pattern": "^([0-9a-f]{2}:){5}[0-9a-f]{2}$"}
    if field.bits == 128:
        return {**about, "type": "string", "format": "ipv6"}
    if header is layout.IPV4 and field.bits == 32:
        return {**about, "type": "string", "format": "ipv4"}
    if field.bits > JSON_BITS:
        return {**about, "type": "string", "pattern": "^0x[0-9a-f]{1,16}$"}
    return {**about, **_number(field.bits, field.signed)}


def _number(bits: int, signed: bool = False) -> dict[str, Any]:
    least = -(1 << bits - 1) if signed else 0
    return {"type": "integer", "minimum": least, "maximum": least + (1 << bits) - 1}
