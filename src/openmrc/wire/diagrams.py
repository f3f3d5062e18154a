"""Header diagrams as in RFCs, and tables of fields and values, in Markdown; generated from
`layout`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from openmrc.engine import packet
from openmrc.wire import layout
from openmrc.wire.layout import Field, Header

ROW_BITS = 32
_MOST_NAMES = 8  # a field with more named values gets a table of its own
_Cell = tuple[int, int]  # index of a field, and how many of its bits are in this cell


def parts() -> dict[str, str]:
    """Return every generated part of the page, with empty lines around it, by the name of its
    marker.
    """
    made = {header.name: section(header) for header in layout.HEADERS} | {
        "opcodes": opcodes(),
        "traffic classes": values(layout.DSCPS, "DSCP", "Class"),
    }
    return {name: f"\n{text}\n\n" for name, text in made.items()}


def section(header: Header) -> str:
    """Return size and source, diagram and field table of a header."""
    about = f"{header.title}. {header.size_bytes} B; {header.source}."
    return f"{about}\n\n```text\n{diagram(header)}\n```\n\n{field_table(header)}"


def diagram(header: Header) -> str:
    """Return the header drawn as in RFCs, 32 bits to a row.

    A name too long for its field is replaced by a capital letter, which `field_table` explains.
    """
    rows = _rows(header)
    named = _named_cells(rows)
    lines = _ruler(min(ROW_BITS, header.size_bytes * 8))
    above: list[_Cell] = []
    for number, row in enumerate(rows):
        lines.append(_border(above, row))
        texts = [
            _label(header, index, bits) if (number, place) in named else ""
            for place, (index, bits) in enumerate(row)
        ]
        cells = zip(texts, row, strict=True)
        lines.append("|" + "|".join(text.center(2 * bits - 1) for text, (_, bits) in cells) + "|")
        above = row
    lines.append(_border(above, []))
    return "\n".join(line.rstrip() for line in lines)


def field_table(header: Header) -> str:
    """Return the fields as a table: their bits, counted from the first on the wire, and meaning."""
    keys = _keys(header)
    rows, at = [], 0
    for index, field in enumerate(header.fields):
        place = f"{at}" if field.bits == 1 else f"{at}-{at + field.bits - 1}"
        key = f" ({keys[index]})" if index in keys else ""
        name = field.name if field.name == layout.RESERVED else f"`{field.name}`"
        rows.append((place, f"{name}{key}", _meaning(field)))
        at += field.bits
    return _table(("Bits", "Field", "Meaning"), rows)


def opcodes() -> str:
    """Return all opcodes with the headers that follow the BTH.

    The last two columns are the bytes of a frame without payload, Ethernet header to iCRC, that has
    every optional header.
    """
    rows = []
    for opcode, following in layout.EXTENSIONS.items():
        data = opcode <= packet.LAST_DATA
        names = " ".join(f"[{h.name}]" if data and h is layout.TSETH else h.name for h in following)
        name = layout.OPCODES[opcode]
        inside = (layout.UDP, layout.BTH, *following, layout.ICRC)
        sizes = (
            sum(h.size_bytes for h in (layout.ETHERNET, *outside, *inside))
            for outside in ((layout.IPV6, layout.IPV6), (layout.IPV4,))
        )
        rows.append((f"0x{opcode:02X}", name, names, *map(str, sizes)))
    return _table(("Opcode", "Name", "Behind the BTH", "Bytes with SRv6", "with IPv4"), rows)


def values(names: Mapping[int, str], what: str, name: str) -> str:
    """Return a table of named values."""
    return _table((what, name), [(str(value), text) for value, text in names.items()])


def _rows(header: Header) -> list[list[_Cell]]:
    """Cut the fields into rows of 32 bits."""
    rows: list[list[_Cell]] = [[]]
    room = ROW_BITS
    for index, field in enumerate(header.fields):
        left = field.bits
        while left:
            if room == 0:
                rows.append([])
                room = ROW_BITS
            bits = min(left, room)
            rows[-1].append((index, bits))
            left -= bits
            room -= bits
    return rows


def _named_cells(rows: list[list[_Cell]]) -> set[tuple[int, int]]:
    """Return (row, place in the row) of the cell of each field that bears its name.

    That is the middle one of its widest.
    """
    where: dict[int, list[tuple[int, int, int]]] = {}
    for number, row in enumerate(rows):
        for place, (index, bits) in enumerate(row):
            where.setdefault(index, []).append((bits, number, place))
    named = set()
    for cells in where.values():
        widest = [cell[1:] for cell in cells if cell[0] == max(cells)[0]]
        named.add(widest[(len(widest) - 1) // 2])
    return named


def _keys(header: Header) -> dict[int, str]:
    """Return the letters of the fields whose names do not fit, by index."""
    narrow = [
        index
        for index, field in enumerate(header.fields)
        if field.name != layout.RESERVED and len(field.name) > 2 * field.bits - 1
    ]
    return {index: chr(ord("A") + number) for number, index in enumerate(narrow)}


def _label(header: Header, index: int, bits: int) -> str:
    field = header.fields[index]
    if field.name != layout.RESERVED:
        return _keys(header).get(index, field.name)
    return next((word for word in (field.name, "res") if len(word) < 2 * bits), "")


def _ruler(bits: int) -> list[str]:
    tens = "".join(str(bit // 10) if bit % 10 == 0 else " " for bit in range(bits))
    ones = "".join(str(bit % 10) for bit in range(bits))
    return [" " + " ".join(digits) for digits in (tens, ones)]


def _border(above: list[_Cell], below: list[_Cell]) -> str:
    """Return the line between two rows; it is open where a field continues."""
    columns = [[index for index, bits in row for _ in range(bits)] for row in (above, below)]
    width = max(len(column) for column in columns)
    upper, lower = ([*column, *[-1] * (width - len(column))] for column in columns)
    closed = [a != b for a, b in zip(upper, lower, strict=True)]
    line = "+"
    for bit, dash in enumerate(closed):
        corner = bit + 1 == width or dash or closed[bit + 1]
        line += ("-" if dash else " ") + ("+" if corner else " ")
    return line


def _meaning(field: Field) -> str:
    text = field.meaning + (", signed" if field.signed else "")
    if field.names is layout.OPCODES:
        return f"{text}: see [opcodes](#opcodes)"
    assert len(field.names) < _MOST_NAMES, f"{field.name} needs a table of its own"
    # small numbers in decimal; large ones are codes
    number = f"0x{{:0{field.bits // 4}X}}" if max(field.names, default=0) >= 64 else "{}"
    named = ", ".join(f"{number.format(value)} {name}" for value, name in field.names.items())
    return f"{text} ({named})" if named else text


def _table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    titles = tuple(titles)
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join("|" + "".join(f" {cell} |" if cell else " |" for cell in c) for c in lines)
